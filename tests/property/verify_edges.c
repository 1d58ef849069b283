/* verify_edges.c - the edges of raffle_verify, and defects of other verifiers as named cases. Every answer is that of every
 * instruction set and of the oracle. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <sys/mman.h>

#include "../common/ask.h"
#include "../common/draft_batch.h"

enum { V = 300, N = 64 }; /* tokens of a row, most drafts here */
static const uint64_t ONES = ~0ull;

/* One request with f32 rows, one after the other. */
typedef struct request {
    verify_case c;
    oracle_case target[N + 1], draft[N];
    float rows[N + 1][V], draft_rows[N][V];
    const float *probabilities[N];
    int32_t token[N];
    uint64_t accept_bits[N + 1], recover_bits[2], draw_bits[2 * (N + 1)];
    int64_t vocab;
} request;

/* Rows as flat or peaked as "normal" ones, drafts without a distribution. */
static request *request_make(int32_t method, int32_t count, int64_t vocab) {
    request *q = calloc(1, sizeof *q);
    for (int i = 0; i <= count; ++i) {
        vector_row_make("normal", (uint64_t)i + 5, vocab, RAFFLE_F32, q->rows[i]);
        q->target[i] = ask_row(q->rows[i], RAFFLE_F32, vocab);
    }
    for (int i = 0; i < count; ++i) {
        vector_row_make("normal", (uint64_t)i + 77, vocab, RAFFLE_F32, q->draft_rows[i]);
        q->draft[i] = ask_row(q->draft_rows[i], RAFFLE_F32, vocab);
        q->probabilities[i] = q->draft_rows[i];
        q->token[i] = (int32_t)((i * 7) % vocab);
    }
    q->c.method = method;
    q->c.count = count;
    q->c.target = q->target;
    q->c.token = q->token;
    q->vocab = vocab;
    return q;
}

/* Those of them that the method uses: others are refused. */
static void bits_point(request *q) {
    if (q->c.method != RAFFLE_MATCH) q->c.accept_bits = q->accept_bits;
    if (q->c.method == RAFFLE_REJECTION || q->c.method == RAFFLE_BLOCK) q->c.recover_bits = q->recover_bits;
}
static void bits_all(request *q, uint64_t accept, uint64_t recover) {
    for (int i = 0; i <= N; ++i) q->accept_bits[i] = accept;
    q->recover_bits[0] = q->recover_bits[1] = recover;
    bits_point(q);
}

/* The oracle's answer, after checking that every instruction set gives it. Parameters are those of the first rows. */
static verify_answer ask_request(const request *q) {
    verify_answer wanted = oracle_verify(&q->c);
    raffle_params params = ask_params(&q->target[0]), draft_params = ask_params(&q->draft[0]);
    raffle_logits logits = ask_logits(&q->target[0]), draft_logits = ask_logits(&q->draft[0]);
    raffle_probabilities probabilities = raffle_probabilities_init();
    raffle_drafts d = raffle_drafts_init();
    logits.rows = q->c.count + 1;
    draft_logits.rows = probabilities.rows = q->c.count;
    logits.row_stride = draft_logits.row_stride = probabilities.row_stride = V;
    probabilities.data = q->draft_rows[0];
    d.method = q->c.method;
    d.requests = 1;
    d.each = q->c.count;
    d.token = q->token;
    d.parent = q->c.parent;
    if (q->c.draft) d.logits = &draft_logits, d.params = &draft_params;
    if (q->c.probabilities) d.probabilities = &probabilities;
    d.threshold_single = q->c.threshold_single;
    d.threshold_sum = q->c.threshold_sum;
    d.rate = q->c.rate;
    d.accept_bits = q->c.accept_bits;
    d.recover_bits = q->c.recover_bits;
    d.draw_bits = q->c.draw_bits;
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        verify_answer got;
        memset(&got, 0x5a, sizeof got);
        raffle_verified v = raffle_verified_init();
        v.token = got.token, v.path = got.path, v.row_flags = got.row_flags, v.accepted = &got.accepted, v.last = &got.last;
        runner r = runner_make(RAFFLE_F32, q->vocab, every_isa[i]);
        CHECK_STATUS(raffle_verify(r.plan, &logits, &params, &d, &v, &r.launch, NULL), RAFFLE_OK);
        runner_free(r);
        int good = got.accepted == wanted.accepted && got.last == wanted.last;
        for (int k = 0; k <= q->c.count; ++k)
            good = good && got.token[k] == wanted.token[k] && got.path[k] == wanted.path[k] && got.row_flags[k] == wanted.row_flags[k];
        CHECK(good, "%s: accepted %d last %d, oracle %d %d", raffle_isa_name(every_isa[i]), got.accepted, got.last, wanted.accepted,
              wanted.last);
    }
    return wanted;
}

static int32_t plain_token(const request *q, int row, int tokens) {
    oracle_case c = q->target[row];
    c.position += (uint64_t)tokens;
    return ask(&c, NULL).token;
}

static const int32_t both_methods[] = {RAFFLE_REJECTION, RAFFLE_BLOCK};

/* ---- the ratio ---- */

TEST(equal_rows_accept_always) {
    for (int m = 0; m < 2; ++m)
        for (int bits = 0; bits < 2; ++bits) {
            request *q = request_make(both_methods[m], N, V);
            q->c.draft = q->draft;
            memcpy(q->draft_rows, q->rows, sizeof q->draft_rows);
            bits_all(q, bits ? ONES : 0, ONES);
            verify_answer a = ask_request(q);
            CHECK_EQ(a.accepted, N);
            CHECK_EQ(a.last, plain_token(q, N, N));
            free(q);
        }
}

TEST(impossible_in_the_target_rejects) {
    for (int m = 0; m < 2; ++m) {
        request *q = request_make(both_methods[m], 3, V);
        bits_all(q, 0, 0);
        q->rows[1][q->token[1]] = -INFINITY;
        verify_answer a = ask_request(q); /* tokens alone */
        CHECK_EQ(a.accepted, 1);
        CHECK(a.last != q->token[1] && a.last >= 0, "recovered %d", a.last);
        q->c.draft = q->draft;
        a = ask_request(q);
        CHECK(a.accepted <= 1, "accepted %d", a.accepted);
        free(q);
    }
}

TEST(impossible_in_the_draft_accepts) {
    for (int m = 0; m < 2; ++m) {
        request *q = request_make(both_methods[m], 1, V);
        q->c.draft = q->draft;
        q->draft_rows[0][q->token[0]] = -INFINITY;
        bits_all(q, ONES, 0);
        CHECK_EQ(ask_request(q).accepted, 1);
        free(q);
    }
}

TEST(impossible_in_both_rejects) {
    for (int m = 0; m < 2; ++m)
        for (int equal = 0; equal < 2; ++equal) { /* equal: nothing is left over, and yet a token is */
            request *q = request_make(both_methods[m], 1, V);
            q->c.draft = q->draft;
            if (equal) memcpy(q->draft_rows[0], q->rows[0], sizeof q->rows[0]);
            q->draft_rows[0][q->token[0]] = q->rows[0][q->token[0]] = -INFINITY;
            bits_all(q, 0, ONES);
            verify_answer a = ask_request(q);
            CHECK_EQ(a.accepted, 0);
            if (equal) CHECK_EQ(a.last, plain_token(q, 0, 0));
            free(q);
        }
}

/* What was accepted for certain does not fall with it, by blocks neither. */
TEST(impossible_in_both_rejects_alone) {
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < N; ++n) {
            request *q = request_make(both_methods[m], N, V);
            q->c.draft = q->draft;
            q->rows[n][q->token[n]] = -INFINITY;
            memcpy(q->draft_rows, q->rows, sizeof q->draft_rows);
            bits_all(q, ONES, 0);
            verify_answer a = ask_request(q);
            CHECK_EQ(a.accepted, n);
            CHECK_EQ(a.last, plain_token(q, n, n));
            free(q);
        }
}

TEST(disjoint_rows_never_accept) {
    for (int m = 0; m < 2; ++m) {
        request *q = request_make(both_methods[m], 4, V);
        q->c.draft = q->draft;
        for (int i = 0; i < 4; ++i)
            for (int t = 0; t < V; ++t) (t % 2 ? q->rows[i] : q->draft_rows[i])[t] = -INFINITY;
        for (int i = 0; i < 4; ++i) q->token[i] = 2 * i + 1;
        verify_answer a = ask_request(q);
        CHECK_EQ(a.accepted, 0);
        CHECK(a.last >= 0 && a.last % 2 == 0, "recovered %d", a.last);
        free(q);
    }
}

/* Acceptance ends at one number, and each recovered token's range at another: the library's must be the oracle's to the last
 * bit, also where a group far below the best shares out fewer tickets than it has weights. */

static int accepts(request *q, uint64_t bits) {
    q->accept_bits[0] = bits;
    return oracle_verify(&q->c).accepted > 0;
}

/* The smallest bits that reject, and those before. */
static void check_accept_edge(request *q) {
    bits_all(q, 0, 0);
    if (!accepts(q, 0) || accepts(q, ONES)) return;
    uint64_t low = 0, high = ONES; /* low accepts, high rejects */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        *(accepts(q, middle) ? &low : &high) = middle;
    }
    q->accept_bits[0] = low;
    CHECK_EQ(ask_request(q).accepted, 1);
    q->accept_bits[0] = high;
    CHECK_EQ(ask_request(q).accepted, 0);
}

static int recovers_up_to(request *q, uint64_t high, uint64_t low, int32_t token) {
    q->recover_bits[0] = low;
    q->recover_bits[1] = high;
    return oracle_verify(&q->c).last <= token;
}

/* The last of the 128 bits that recover a token up to `token`, and the next. */
static void check_recover_edge(request *q, int32_t token) {
    uint64_t last[2] = {0, 0};
    bits_all(q, ONES, 0);
    if (oracle_verify(&q->c).accepted || !recovers_up_to(q, 0, 0, token) || recovers_up_to(q, ONES, ONES, token)) return;
    for (int bit = 127; bit >= 0; --bit) {
        uint64_t tried[2] = {last[0] | (bit < 64 ? 1ull << bit : 0), last[1] | (bit >= 64 ? 1ull << (bit - 64) : 0)};
        if (recovers_up_to(q, tried[1], tried[0], token)) memcpy(last, tried, sizeof last);
    }
    for (int next = 0; next < 2; ++next) {
        q->recover_bits[0] = last[0] + (uint64_t)next;
        q->recover_bits[1] = last[1] + (next && !q->recover_bits[0]);
        verify_answer a = ask_request(q);
        CHECK((a.last <= token) == !next, "token %d beside %d", a.last, token);
    }
}

TEST(every_ticket_counts) {
    test_random r = {17};
    for (int64_t i = 0, amount = test_amount(60); i < amount; ++i) {
        request *q = request_make(RAFFLE_REJECTION, 1, V);
        for (int t = 0; t < V; ++t) { /* two groups, the second 2^13 and more below the first, and of few weights */
            float far = -9.5f - (float)random_below(&r, 12);
            q->rows[0][t] = (float)random_unit(&r) + (t < 256 ? 0.0f : far);
            q->draft_rows[0][t] = (float)random_unit(&r) + (t < 256 ? 0.0f : far);
        }
        q->target[0].temperature = q->target[1].temperature = q->draft[0].temperature = i % 4 ? 1.0f : 0.5f;
        q->token[0] = (int32_t)(i % 3 ? 256 + random_below(&r, V - 256) : random_below(&r, V));
        if (i % 2) q->c.draft = q->draft;
        check_accept_edge(q);
        if (i % 2 == 0) q->token[0] = V - 1;
        check_recover_edge(q, (int32_t)(250 + random_below(&r, V - 251)));
        free(q);
    }
}

/* ---- rows and drafts that are not ordinary ---- */

TEST(no_drafts_is_plain_sampling) {
    for (int32_t method = 0; method < 4; ++method) {
        request *q = request_make(method, 0, V);
        verify_answer a = ask_request(q);
        CHECK_EQ(a.accepted, 0);
        CHECK_EQ(a.last, plain_token(q, 0, 0));
        free(q);
        q = request_make(method, 5, V); /* the same if the first is a placeholder */
        q->token[0] = -1;
        a = ask_request(q);
        CHECK_EQ(a.accepted, 0);
        CHECK_EQ(a.last, plain_token(q, 0, 0));
        free(q);
    }
}

TEST(a_placeholder_ends_the_drafts) {
    request *q = request_make(RAFFLE_SYNTHETIC, 6, V);
    q->c.rate = 1.0f;
    q->token[3] = -1;
    verify_answer a = ask_request(q);
    CHECK_EQ(a.accepted, 3);
    CHECK_EQ(a.last, plain_token(q, 3, 3));
    CHECK_EQ(a.token[4], RAFFLE_NO_TOKEN);
    free(q);
}

TEST(empty_rows) {
    for (int32_t method = 0; method < 4; ++method)
        for (int at = 0; at < 3; ++at) {
            request *q = request_make(method, 3, V);
            for (int i = 0; i < 3; ++i) q->token[i] = plain_token(q, i, i);
            q->c.rate = 1.0f;
            if (method != RAFFLE_SYNTHETIC) q->c.rate = 0.0f;
            bits_all(q, 0, 0);
            for (int t = 0; t < V; ++t) q->rows[at][t] = t % 2 ? NAN : -INFINITY;
            verify_answer a = ask_request(q);
            CHECK_EQ(a.accepted, at);
            CHECK_EQ(a.last, RAFFLE_NO_TOKEN);
            CHECK_EQ(a.row_flags[at], RAFFLE_ROW_EMPTY | RAFFLE_ROW_NAN);
            for (int i = 0; i <= 3; ++i) q->target[i].flags = RAFFLE_EMPTY_IS_ZERO;
            a = ask_request(q);
            CHECK_EQ(a.last, 0);
            CHECK_EQ(a.row_flags[at], RAFFLE_ROW_EMPTY | RAFFLE_ROW_NAN);
            free(q);
        }
}

TEST(draft_rows_that_are_none) {
    for (int m = 0; m < 2; ++m)
        for (int kind = 0; kind < 5; ++kind) {
            request *q = request_make(both_methods[m], 3, V);
            if (kind < 2) q->c.draft = q->draft;
            else q->c.probabilities = q->probabilities;
            for (int i = 0; i < 3; ++i)
                for (int t = 0; kind >= 2 && t < V; ++t) q->draft_rows[i][t] = 1.0f / V;
            for (int t = 0; t < V; ++t) {
                if (kind == 0) q->draft_rows[0][t] = -INFINITY;
                if (kind == 1) q->draft_rows[0][t] = NAN;
                if (kind == 2) q->draft_rows[0][t] = 0.0f;
            }
            if (kind == 3) q->draft_rows[0][V - 1] = NAN;
            if (kind == 4) q->draft_rows[0][7] = -1e-9f;
            verify_answer a = ask_request(q);
            CHECK_EQ(a.accepted, 0);
            CHECK_EQ(a.last, plain_token(q, 0, 0));
            CHECK_EQ(a.row_flags[0], RAFFLE_ROW_DRAFT);
            free(q);
        }
}

TEST(infinities) {
    request *q = request_make(RAFFLE_REJECTION, 2, V);
    q->rows[0][9] = q->rows[0][200] = INFINITY;
    q->token[0] = 200;
    q->c.draft = q->draft;
    q->draft_rows[0][200] = INFINITY;
    bits_all(q, 1ull << 62, 0);
    verify_answer a = ask_request(q); /* p = 1/2, q = 1 */
    CHECK(a.accepted >= 1, "rejected");
    CHECK_EQ(a.row_flags[0], RAFFLE_ROW_INF);
    bits_all(q, 3ull << 62, ONES);
    a = ask_request(q);
    CHECK_EQ(a.accepted, 0);
    CHECK_EQ(a.last, 9);
    free(q);
}

TEST(smallest_vocabularies) {
    for (int64_t vocab = 1; vocab <= 3; ++vocab)
        for (int m = 0; m < 2; ++m) {
            request *q = request_make(both_methods[m], 8, vocab);
            q->c.draft = q->draft;
            verify_answer a = ask_request(q);
            if (vocab == 1) CHECK(a.accepted == 8 && a.last == 0, "accepted %d", a.accepted);
            free(q);
        }
}

/* ---- greedy and match: the same text ---- */

TEST(greedy_by_every_method) {
    for (int32_t method = 0; method < 3; ++method) {
        request *q = request_make(method, 5, V);
        for (int i = 0; i <= 5; ++i) q->target[i].temperature = 0.0f;
        for (int i = 0; i < 5; ++i) q->token[i] = plain_token(q, i, i);
        bits_all(q, ONES, ONES);
        CHECK_EQ(ask_request(q).accepted, 5);
        if (method != RAFFLE_MATCH) q->c.draft = q->draft;
        CHECK_EQ(ask_request(q).accepted, 5);
        q->token[3] = (q->token[3] + 1) % V;
        bits_all(q, 0, 0);
        verify_answer a = ask_request(q);
        CHECK_EQ(a.accepted, 3);
        CHECK_EQ(a.last, plain_token(q, 3, 3));
        free(q);
    }
}

/* ---- proposals ---- */

/* The draft's row is the target's, but for the draft: what is left over is so little that no proposal is kept, and it is drawn from. */
TEST(proposals_that_are_never_kept) {
    int others = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        request *q = request_make(RAFFLE_REJECTION, 1, V);
        memcpy(q->draft_rows[0], q->rows[0], sizeof q->rows[0]);
        q->draft_rows[0][q->token[0]] += 0.001f * (float)(seed % 4); /* 0: nothing is left over, and the row's token is sampled */
        q->c.draft = q->draft;
        for (int i = 0; i < 2; ++i) q->target[i].seed = seed;
        q->c.accept_bits = q->accept_bits;
        q->accept_bits[0] = ONES;
        verify_answer a = ask_request(q);
        if (seed % 4 && !a.accepted) others += a.last != q->token[0];
        free(q);
    }
    CHECK(others == 30, "%d of 30 rejected drafts have another token in their place", others);
}

/* ---- random bits that are handed in ---- */

/* Those that the seed would give change nothing. */
TEST(the_seeds_own_bits) {
    for (int32_t method = 0; method < 4; ++method)
        for (int by_logits = 0; by_logits < (method < RAFFLE_MATCH ? 2 : 1); ++by_logits)
            for (uint64_t seed = 0; seed < 20; ++seed) {
                enum { COUNT = 5 };
                request *q = request_make(method, COUNT, V);
                if (by_logits) q->c.draft = q->draft;
                if (method == RAFFLE_SYNTHETIC) q->c.rate = 0.7f;
                if (method == RAFFLE_REJECTION) /* of rows without a cut tokens are proposed, by bits that nobody can hand in */
                    for (int i = 0; i <= COUNT; ++i) q->target[i].top_k = V - 1;
                for (int i = 0; i <= COUNT; ++i) q->target[i].seed = seed, q->target[i].position = 11;
                for (int i = 0; i < COUNT && method == RAFFLE_MATCH && (int)(seed % 5) > i; ++i) q->token[i] = plain_token(q, i, i);
                const verify_answer wanted = ask_request(q);
                uint64_t bits[2];
                for (int i = 0; i <= COUNT; ++i) {
                    oracle_random(seed, 11, 2, (uint32_t)i, bits);
                    q->accept_bits[i] = bits[0];
                    oracle_random(seed, 11 + (uint64_t)i, 0, 0, q->draw_bits + 2 * i);
                }
                oracle_random(seed, 11, 3, (uint32_t)wanted.accepted, q->recover_bits);
                bits_point(q);
                q->c.draw_bits = q->draw_bits;
                for (int i = 0; i <= COUNT; ++i) q->target[i].seed = ~seed; /* which nobody looks at */
                const verify_answer got = ask_request(q);
                CHECK(!memcmp(&got, &wanted, sizeof got), "%s, seed %d: %d drafts, then %d; with its bits %d, then %d",
                      method_names[method], (int)seed, wanted.accepted, wanted.last, got.accepted, got.last);
                free(q);
            }
}

/* The lowest bits draw the first token that holds a ticket, the highest the last. Of each row, whichever is given for it. */
TEST(first_and_last_tickets) {
    static uint64_t held[V];
    for (int32_t method = 0; method < 4; ++method)
        for (int filtered = 0; filtered < 2; ++filtered)
            for (int high = 0; high < 2; ++high) {
                enum { COUNT = 3 };
                request *q = request_make(method, COUNT, V);
                int32_t edge[COUNT + 1];
                for (int i = 0; i <= COUNT; ++i) {
                    q->target[i].top_p = filtered ? 0.9f : 1.0f;
                    const int last = high ^ (i & 1); /* by turns */
                    q->draw_bits[2 * i] = q->draw_bits[2 * i + 1] = last ? ONES : 0;
                    const uint64_t mass = oracle_held(&q->target[i], held);
                    CHECK(mass > 1, "row %d has one ticket", i);
                    edge[i] = last ? V - 1 : 0;
                    while (!held[edge[i]]) edge[i] += last ? -1 : 1;
                }
                q->c.draw_bits = q->draw_bits;
                if (method == RAFFLE_SYNTHETIC) q->c.rate = 1.0f;
                if (method == RAFFLE_MATCH) memcpy(q->token, edge, sizeof *edge * COUNT);
                if (method < RAFFLE_MATCH) memcpy(q->draft_rows, q->rows, sizeof q->draft_rows), q->c.draft = q->draft;
                for (int i = 0; i < COUNT && method < RAFFLE_MATCH; ++i) q->draft[i].top_p = q->target[0].top_p, q->token[i] = edge[i];
                const verify_answer a = ask_request(q);
                CHECK_EQ(a.accepted, COUNT);
                CHECK_EQ(a.last, edge[COUNT]);
                if (method == RAFFLE_MATCH) { /* and where the text goes another way */
                    q->token[1] = edge[1] == 7 ? 8 : 7;
                    const verify_answer other = ask_request(q);
                    CHECK_EQ(other.accepted, 1);
                    CHECK_EQ(other.last, edge[1]);
                }
                free(q);
            }
}

/* A seeded text by RAFFLE_MATCH is the text of plain sampling, whatever is drafted. */
TEST(match_keeps_the_text) {
    enum { TOKENS = 200 };
    static float rows[V][V];
    for (int i = 0; i < V; ++i) vector_row_make("normal", (uint64_t)i, V, RAFFLE_F32, rows[i]);
    int32_t plain[TOKENS + 1] = {0};
    for (int i = 0; i < TOKENS; ++i) {
        oracle_case c = ask_row(rows[plain[i]], RAFFLE_F32, V);
        c.top_p = 0.95f;
        c.seed = 5;
        c.position = (uint64_t)i;
        plain[i + 1] = oracle_sample(&c, NULL, NULL).token;
    }
    test_random r = {3};
    int32_t text[TOKENS + 20] = {0}, length = 0, accepted = 0;
    while (length < TOKENS) {
        request *q = request_make(RAFFLE_MATCH, (int32_t)random_below(&r, 7), V);
        for (int i = 0; i <= q->c.count; ++i) {
            int32_t before = i ? q->token[i - 1] : text[length];
            memcpy(q->rows[i], rows[before], sizeof q->rows[i]);
            q->target[i].top_p = 0.95f;
            q->target[i].seed = 5;
            q->target[i].position = (uint64_t)length;
            int known = length + i < TOKENS && random_below(&r, 4);
            if (i < q->c.count) q->token[i] = known ? plain[length + i + 1] : (int32_t)random_below(&r, V);
        }
        verify_answer a = ask_request(q);
        memcpy(text + length + 1, a.token, sizeof(int32_t) * (size_t)(a.accepted + 1));
        length += a.accepted + 1;
        accepted += a.accepted;
        free(q);
    }
    CHECK(!memcmp(text, plain, sizeof plain), "the text changed");
    CHECK(accepted > TOKENS / 4, "only %d drafts were accepted", accepted);
}

/* ---- trees ---- */

TEST(siblings_share_one_coin) {
    request *q = request_make(RAFFLE_REJECTION, 4, V);
    static const int32_t parents[] = {-1, -1, -1, 1};
    q->c.parent = parents;
    for (int t = 0; t < V; ++t) q->rows[0][t] = t < 4 ? 0.0f : -INFINITY; /* a quarter each */
    q->token[0] = 2, q->token[1] = 0, q->token[2] = 2, q->token[3] = 9;
    static const struct { uint64_t bits; int32_t first; } cases[] = {{0, 2}, {(1ull << 62) - 1, 2}, {1ull << 62, 0}, {(1ull << 63) - 1, 0}};
    for (int i = 0; i < 4; ++i) {
        bits_all(q, cases[i].bits, 0);
        CHECK_EQ(ask_request(q).token[0], cases[i].first);
    }
    bits_all(q, 1ull << 63, 0); /* the second 2 adds nothing; 1 and 3 are left */
    verify_answer a = ask_request(q);
    CHECK(a.accepted == 0 && a.last == 1, "accepted %d, last %d", a.accepted, a.last);
    bits_all(q, ONES, ONES);
    CHECK_EQ(ask_request(q).last, 3);
    free(q);
}

TEST(thresholds_as_sglang) {
    request *q = request_make(RAFFLE_REJECTION, 2, V);
    static const int32_t parents[] = {-1, -1};
    q->c.parent = parents;
    for (int t = 0; t < V; ++t) q->rows[0][t] = t < 4 ? 0.0f : -INFINITY;
    q->token[0] = 1, q->token[1] = 3;
    bits_all(q, ONES, 0);
    CHECK_EQ(ask_request(q).accepted, 0);
    q->c.threshold_single = 0.25f; /* p is exactly that */
    CHECK_EQ(ask_request(q).path[0], 0);
    q->c.threshold_single = 0x1.000002p-2f;
    CHECK_EQ(ask_request(q).accepted, 0);
    q->c.threshold_single = 0.0f;
    q->c.threshold_sum = 0.5f; /* 1/4 / 1/2 is half, the two together all */
    CHECK_EQ(ask_request(q).path[0], 1);
    bits_all(q, (1ull << 63) - 1, 0);
    CHECK_EQ(ask_request(q).path[0], 0);
    bits_all(q, 1ull << 63, 0);
    CHECK_EQ(ask_request(q).path[0], 1);
    free(q);
}

/* ---- defects of others ---- */

/* A recovered id >= vocab came out of rows whose last token was drawn (GHSA-8wr5-jm2h-8r4f). */
TEST(recovered_ids_are_in_range) {
    for (int64_t vocab = 2; vocab <= V; vocab += 1 + vocab / 9)
        for (int bits = 0; bits < 4; ++bits) {
            request *q = request_make(bits / 2 ? RAFFLE_BLOCK : RAFFLE_REJECTION, 2, vocab);
            q->c.draft = q->draft;
            bits_all(q, ONES, bits % 2 ? ONES : 0);
            verify_answer a = ask_request(q);
            for (int i = 0; i <= a.accepted; ++i) CHECK(a.token[i] >= 0 && a.token[i] < vocab, "token %d of %lld", a.token[i], (long long)vocab);
            free(q);
        }
}

/* A mask at each position holds there, and only there, also for the recovered and the bonus token. */
TEST(masks_by_position) {
    enum { WORDS = (V + 31) / 32 };
    static uint32_t allow[4 * WORDS];
    for (int trial = 0; trial < 60; ++trial) {
        request *q = request_make(trial % 3 ? RAFFLE_REJECTION : RAFFLE_BLOCK, 3, V);
        memset(allow, 0, sizeof allow);
        for (int i = 0; i < 4; ++i) {
            for (int t = i; t < V; t += 4) allow[i * WORDS + t / 32] |= 1u << t % 32;
            q->target[i].allow = allow + i * WORDS;
            q->target[i].seed = (uint64_t)trial;
            if (i < 3) q->token[i] = (trial * 4 + i + 4 * (trial % 5 == 0)) % (V - 3), q->token[i] += (i - q->token[i] % 4 + 4) % 4;
        }
        if (trial % 7 == 0) q->token[1] ^= 1; /* not allowed */
        if (trial % 2) q->c.draft = q->draft;
        verify_answer a = ask_request(q);
        for (int i = 0; i <= a.accepted; ++i) CHECK(a.token[i] % 4 == i, "token %d at position %d", a.token[i], i);
        free(q);
    }
}

/* Sampling and verification disagreed about parameters (FIELD: verify ignored min_p, penalties, bias). Each filter leaves
 * its own set, and what is emitted is in it. */
TEST(filters_hold_in_verification) {
    uint8_t kept[V];
    for (int trial = 0; trial < 200; ++trial) {
        request *q = request_make(trial % 2 ? RAFFLE_REJECTION : RAFFLE_BLOCK, 2, V);
        for (int i = 0; i < 3; ++i) {
            q->target[i].seed = (uint64_t)trial;
            q->target[i].temperature = 2.0f;
            q->target[i].min_p = trial % 5 == 1 ? 0.3f : 0.0f;
            q->target[i].top_k = trial % 5 == 2 ? 7 : 0;
            q->target[i].top_p = trial % 5 == 3 ? 0.2f : 1.0f;
        }
        q->c.draft = q->draft;
        for (int i = 0; i < 2; ++i) q->token[i] = oracle_sample(&q->draft[i], NULL, NULL).token;
        verify_answer a = ask_request(q);
        for (int i = 0; i <= a.accepted; ++i) {
            oracle_sample(&q->target[i], kept, NULL);
            CHECK(kept[a.token[i]], "trial %d: token %d at %d was cut", trial, a.token[i], i);
        }
        free(q);
    }
}

/* What a tensor holds is in its type: a port kept passing probabilities where logits had come to be expected. */
TEST(types_tell_logits_from_probabilities) {
    raffle_drafts d = raffle_drafts_init();
    CHECK(_Generic(d.logits, const raffle_logits *: 1, default: 0) && _Generic(d.probabilities, const raffle_probabilities *: 1, default: 0),
          "the two have one type");
    request *q = request_make(RAFFLE_REJECTION, 1, 4); /* and the two mean different things */
    const float p[4] = {0.97f, 0.01f, 0.01f, 0.01f};
    memcpy(q->draft_rows[0], p, sizeof p);
    for (int t = 0; t < 4; ++t) q->rows[0][t] = 0.0f;
    q->token[0] = 0;
    bits_all(q, 1ull << 63, 0);
    q->c.probabilities = q->probabilities;
    CHECK_EQ(ask_request(q).accepted, 0); /* 0.25 / 0.97 < 1/2 */
    q->c.probabilities = NULL;
    q->c.draft = q->draft;
    CHECK_EQ(ask_request(q).accepted, 1); /* 0.25 / 0.46 > 1/2 */
    free(q);
}

/* ---- large ---- */

/* Rows 2^31 + 64 elements apart, in memory that is only promised. */
TEST(offsets_beyond_32_bits) {
    const int64_t stride = (1ll << 31) + 64, vocab = 1000;
    size_t bytes = (size_t)(2 * stride + vocab) * 2;
    uint16_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint16_t *draft_map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || draft_map == MAP_FAILED) SKIP("no 16 GB of address space");
    oracle_case target[3], draft[2];
    for (int i = 0; i < 3; ++i) {
        vector_row_make("normal", (uint64_t)i, vocab, RAFFLE_BF16, map + i * stride);
        target[i] = ask_row(map + i * stride, RAFFLE_BF16, vocab);
        if (i == 2) break;
        vector_row_make("normal", (uint64_t)i, vocab, RAFFLE_BF16, draft_map + i * stride);
        draft[i] = ask_row(draft_map + i * stride, RAFFLE_BF16, vocab);
    }
    int32_t token[2] = {7, 8};
    verify_case c = {.method = RAFFLE_REJECTION, .count = 2, .target = target, .token = token, .draft = draft};
    verify_answer wanted = oracle_verify(&c);
    raffle_logits logits = ask_logits(&target[0]), draft_logits = ask_logits(&draft[0]);
    raffle_params params = ask_params(&target[0]);
    logits.rows = 3, draft_logits.rows = 2;
    logits.row_stride = draft_logits.row_stride = stride;
    raffle_drafts d = raffle_drafts_init();
    d.requests = 1, d.each = 2, d.token = token, d.logits = &draft_logits, d.params = &params;
    int32_t out[3], accepted;
    raffle_verified v = raffle_verified_init();
    v.token = out, v.accepted = &accepted;
    runner r = runner_make(RAFFLE_BF16, vocab, RAFFLE_ISA_BEST);
    CHECK_STATUS(raffle_verify(r.plan, &logits, &params, &d, &v, &r.launch, NULL), RAFFLE_OK);
    CHECK(accepted == wanted.accepted && accepted == 2 && out[2] == wanted.token[2], "accepted %d, last %d", accepted, out[2]);
    runner_free(r);
    munmap(map, bytes);
    munmap(draft_map, bytes);
}

int main(void) {
    RUN(equal_rows_accept_always);
    RUN(impossible_in_the_target_rejects);
    RUN(impossible_in_the_draft_accepts);
    RUN(impossible_in_both_rejects);
    RUN(impossible_in_both_rejects_alone);
    RUN(disjoint_rows_never_accept);
    RUN(every_ticket_counts);
    RUN(no_drafts_is_plain_sampling);
    RUN(a_placeholder_ends_the_drafts);
    RUN(empty_rows);
    RUN(draft_rows_that_are_none);
    RUN(infinities);
    RUN(smallest_vocabularies);
    RUN(greedy_by_every_method);
    RUN(proposals_that_are_never_kept);
    RUN(the_seeds_own_bits);
    RUN(first_and_last_tickets);
    RUN(match_keeps_the_text);
    RUN(siblings_share_one_coin);
    RUN(thresholds_as_sglang);
    RUN(recovered_ids_are_in_range);
    RUN(masks_by_position);
    RUN(filters_hold_in_verification);
    RUN(types_tell_logits_from_probabilities);
    RUN(offsets_beyond_32_bits);
    return test_report("verify_edges");
}
