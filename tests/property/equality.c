/* equality.c - every instruction set, split, order, stride and alignment gives the oracle's token, bit for bit. */
#include <stdlib.h>

#include "../common/batch.h"
#include "../common/pick.h"

#ifndef RAFFLE_DATA_DIR
#define RAFFLE_DATA_DIR "data"
#endif

static long rows_checked;

/* ---- parameters ---- */

static void pick_params(batch *b, int64_t i, test_random *r) {
    b->temperature[i] = pick_temperature(r);
    b->top_k[i] = pick_top_k(r, b->vocab);
    b->top_p[i] = pick_top_p(r);
    b->min_p[i] = pick_min_p(r);
    b->seed[i] = random_bits(r);
    b->position[i] = random_bits(r) >> random_below(r, 64);
    if (random_below(r, 12)) return;
    int64_t live = 0; /* top-k at the border of having nothing to remove */
    for (int64_t t = 0; t < b->vocab; ++t) {
        float x = oracle_load(batch_row(b, i), b->dtype, t);
        live += x > -INFINITY && (!b->allow || (b->allow[i * b->words + t / 32] >> t % 32 & 1));
    }
    b->top_k[i] = (int32_t)(live - 1 + random_below(r, 3));
}

/* ---- ways to run a batch ---- */

/* All rows at once, with seeds and positions that begin elsewhere. */
static void run_plain(const batch *b, runner r, const char *isa) {
    outputs o;
    outputs_poison(&o);
    raffle_params params = batch_params(b);
    uint64_t seed[BATCH_ROWS_MAX], position[BATCH_ROWS_MAX];
    params.seed_offset = (uint64_t)b->vocab * 0x9e3779b97f4a7c15u;
    params.position_offset = 7;
    for (int64_t i = 0; i < b->rows; ++i) {
        seed[i] = b->seed[i] - params.seed_offset;
        position[i] = b->position[i] - params.position_offset;
    }
    params.seed = seed;
    params.position = position;
    o.result.advance = position;
    raffle_logits logits = batch_logits(b);
    CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
    for (int64_t i = 0; i < b->rows; ++i) CHECK_EQ(position[i], b->position[i] - params.position_offset + 1);
    outputs_check(&o, b, NULL, isa);
}

/* In parts, the last first, on one workspace that is dirty from the part before. */
static void run_parts(const batch *b, runner r, const char *isa, int32_t parts) {
    outputs o;
    outputs_poison(&o);
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    r.launch.parts = parts;
    for (r.launch.part = parts - 1; r.launch.part >= 0; --r.launch.part)
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
    outputs_check(&o, b, NULL, isa);
}

/* From the last row to the first by a negative stride; slot finds each row's parameters. Allow masks go with rows, so
 * they are reversed. */
static void run_backwards(const batch *b, runner r, const char *isa) {
    outputs o;
    outputs_poison(&o);
    int32_t order[BATCH_ROWS_MAX];
    uint32_t *allow = NULL;
    if (b->allow) allow = malloc((size_t)(b->rows * (b->words + 3)) * 4);
    for (int64_t i = 0; i < b->rows; ++i) {
        order[i] = (int32_t)(b->rows - 1 - i);
        if (allow) memcpy(allow + i * (b->words + 3), b->allow + order[i] * b->words, (size_t)b->words * 4);
    }
    raffle_params params = batch_params(b);
    params.slot = order;
    uint64_t position[BATCH_ROWS_MAX];
    memcpy(position, b->position, (size_t)b->rows * sizeof *position);
    params.position = o.result.advance = position;
    params.allow = allow;
    params.allow_stride = b->words + 3;
    raffle_logits logits = raffle_logits_init();
    logits.data = batch_row(b, b->rows - 1);
    logits.rows = b->rows;
    logits.row_stride = -b->stride;
    CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
    for (int64_t i = 0; i < b->rows; ++i) CHECK_EQ(position[i], b->position[i] + 1);
    outputs_check(&o, b, order, isa);
    free(allow);
}

/* Each row by a call of its own: no batch-mate can matter. row_flags may be NULL. */
static void run_alone(const batch *b, runner r, const char *isa) {
    outputs o;
    outputs_poison(&o);
    for (int64_t i = 0; i < b->rows; ++i) {
        raffle_params params = batch_params(b);
        int32_t slot = (int32_t)i;
        params.slot = &slot;
        params.allow = b->allow ? b->allow + i * b->words : NULL;
        raffle_logits logits = raffle_logits_init();
        logits.data = batch_row(b, i);
        logits.rows = 1;
        o.result.token = o.token + i;
        o.result.row_flags = NULL;
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
        o.row_flags[i] = b->wanted[i].row_flags; /* not asked for */
    }
    outputs_check(&o, b, NULL, isa);
}

/* The likeliest tokens of an explanation: in order, with the oracle's tickets and verdict. */
static void check_candidates(const batch *b, int64_t row, const raffle_explanation *e) {
    if (!e->top_count) return;
    uint8_t *kept = malloc((size_t)b->vocab);
    uint64_t *tickets = malloc((size_t)b->vocab * sizeof *tickets);
    oracle_case c = batch_case(b, row);
    oracle_answer a = oracle_sample(&c, kept, tickets);
    for (int64_t i = 0; i < e->top_count; ++i) {
        const raffle_candidate *t = &e->top[i];
        float x = oracle_load(c.row, c.dtype, t->token);
        int dead = x != x || (c.allow && !(c.allow[t->token / 32] >> t->token % 32 & 1));
        int good = dead ? t->logit == -INFINITY : t->logit == x;
        if (i) good = good && (t[-1].logit > t->logit || (t[-1].logit == t->logit && t[-1].token < t->token));
        good = good && (t->fate == RAFFLE_KEPT) == kept[t->token] && (a.greedy || t->tickets == tickets[t->token]);
        CHECK(good, "candidate %lld: token %d logit %a fate %d tickets %llu, oracle kept %d tickets %llu", (long long)i,
              t->token, (double)t->logit, t->fate, (unsigned long long)t->tickets, kept[t->token],
              (unsigned long long)tickets[t->token]);
        if (!good) batch_print(b, row);
    }
    free(tickets);
    free(kept);
}

/* raffle_explain tells the same story, down to the number of tickets. */
static void run_explain(const batch *b, runner r) {
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    raffle_candidate top[6];
    for (int64_t i = 0; i < b->rows; i += 1 + i % 3) {
        const oracle_answer *w = &b->wanted[i];
        int empty = (w->row_flags & RAFFLE_ROW_EMPTY) != 0;
        raffle_explanation e = raffle_explanation_init();
        e.top = top;
        e.top_count = b->vocab < 1000 ? 6 : 0;
        CHECK_STATUS(raffle_explain(r.plan, &logits, &params, i, &e, &r.launch, NULL), RAFFLE_OK);
        int64_t all = 0;
        for (int f = 0; f < 8; ++f) all += e.fates[f];
        int good = e.token == w->token && e.row_flags == w->row_flags && e.fates[RAFFLE_KEPT] == w->kept_count &&
                   all == b->vocab;
        if (!empty) good = good && e.greedy == w->greedy;
        if (!empty && !w->greedy)
            good = good && e.row_tickets == w->row_mass && e.draw_tickets == w->draw_mass && e.drawn == w->drawn;
        if (test_note(good)) {
            printf("explain: token %d flags %u greedy %d kept %lld of %lld tickets %llu/%llu drawn %llu\n", e.token,
                   e.row_flags, e.greedy, (long long)e.fates[0], (long long)all, (unsigned long long)e.draw_tickets,
                   (unsigned long long)e.row_tickets, (unsigned long long)e.drawn);
            printf("oracle:  token %d flags %u greedy %d kept %lld tickets %llu/%llu drawn %llu\n", w->token,
                   w->row_flags, w->greedy, (long long)w->kept_count, (unsigned long long)w->draw_mass,
                   (unsigned long long)w->row_mass, (unsigned long long)w->drawn);
            batch_print(b, i);
        }
        check_candidates(b, i, &e);
    }
}

static void run_everyway(const batch *b) {
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        const char *name = raffle_isa_name(every_isa[i]);
        runner r = runner_make(b->dtype, b->vocab, every_isa[i]);
        run_plain(b, r, name);
        run_parts(b, r, name, 3);
        run_parts(b, r, name, (int32_t)b->rows + 2); /* some parts are empty */
        run_backwards(b, r, name);
        if (b->vocab < 5000) run_alone(b, r, name);
        run_explain(b, r);
        runner_free(r);
    }
    rows_checked += b->rows;
}

/* ---- batches ---- */

static void equal_batch(test_random *r, int64_t vocab, int64_t rows) {
    batch b;
    int dtype = (int)random_below(r, 3);
    batch_alloc(&b, rows, vocab, dtype, random_below(r, 2) ? random_below(r, 70) : 0, random_below(r, 64));
    b.flags = pick_flags(r);
    for (int64_t i = 0; i < rows; ++i) {
        b.kind[i] = row_kinds[random_below(r, ROW_KINDS)];
        b.row_seed[i] = random_bits(r) >> 40;
        vector_row_make(b.kind[i], b.row_seed[i], vocab, dtype, b.data + i * b.stride * element_bytes(dtype));
    }
    if (random_below(r, 3) == 0) {
        b.allow = malloc((size_t)(rows * b.words) * 4);
        for (int64_t i = 0; i < rows; ++i) vector_allow_make(random_bits(r) >> 40, vocab, b.allow + i * b.words);
    }
    for (int64_t i = 0; i < rows; ++i) pick_params(&b, i, r);
    batch_ask_oracle(&b);
    run_everyway(&b);
    batch_free(&b);
}

static void equal_batches(uint64_t seed, int64_t vocab, int64_t rows, int64_t batches) {
    test_random r = {seed};
    for (int64_t i = 0; i < test_amount(batches); ++i) equal_batch(&r, vocab, rows);
}

TEST(vocab_1) { equal_batches(1, 1, 16, 40); }
TEST(vocab_2) { equal_batches(2, 2, 16, 60); }
TEST(vocab_255) { equal_batches(3, 255, 16, 120); }
TEST(vocab_256) { equal_batches(4, 256, 16, 120); }
TEST(vocab_257) { equal_batches(5, 257, 16, 120); }
TEST(vocab_999) { equal_batches(6, 999, 16, 160); }
TEST(vocab_4097) { equal_batches(7, 4097, 16, 80); }
TEST(vocab_any_small) {
    test_random r = {8};
    for (int i = 0; i < test_amount(200); ++i) equal_batch(&r, 1 + random_below(&r, 1200), 1 + random_below(&r, 20));
}
TEST(vocab_49152) { equal_batches(9, 49152, 4, 40); }
TEST(vocab_128256) { equal_batches(10, 128256, 2, 30); }
TEST(vocab_151936) { equal_batches(11, 151936, 2, 16); }
TEST(vocab_262144) { equal_batches(12, 262144, 2, 12); }

/* ---- real rows ---- */

static const struct {
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    uint32_t flags;
} real_params[] = {
    {1.0f, 0, 1.0f, 0.0f, 0},
    {0.7f, 0, 1.0f, 0.0f, 0},
    {0.8f, 50, 0.9f, 0.0f, 0},
    {0.8f, 50, 0.9f, 0.0f, RAFFLE_TOP_P_JOINT},
    {1.0f, 0, 0.9f, 0.0f, 0},
    {0.3f, 0, 0.95f, 0.0f, 0},
    {1.3f, 0, 0.999f, 0.0f, RAFFLE_FILTERS_FIRST},
    {0.7f, 0, 1.0f, 0.05f, 0},
    {2.0f, 1000, 0.99f, 0.01f, RAFFLE_MIN_P_LAST},
    {1.0f, 64, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT},
    {0.6f, 20, 0.95f, 0.02f, RAFFLE_FILTERS_FIRST | RAFFLE_TOP_K_EXACT},
    {0.0f, 0, 1.0f, 0.0f, 0},
    {1.0f, 1, 1.0f, 0.0f, 0},
    {3.0f, 0, 0.5f, 0.0f, 0},
    {100.0f, 0, 0.01f, 0.0f, 0},
};
enum { REAL_PARAMS = sizeof real_params / sizeof *real_params };

static void equal_real(const char *file, int64_t rows, int64_t vocab) {
    const int quick = getenv("RAFFLE_TEST_QUICK") != NULL;
    char path[1024];
    if (quick) rows /= 4;
    snprintf(path, sizeof path, "%s/%s", RAFFLE_DATA_DIR, file);
    FILE *in = fopen(path, "rb");
    if (!in) SKIP("the file of real rows was not found");
    batch b;
    batch_alloc(&b, rows, vocab, RAFFLE_F16, 0, 0);
    int good = fseek(in, 128, SEEK_SET) == 0 && fread(b.data, 2, (size_t)(rows * vocab), in) == (size_t)(rows * vocab);
    fclose(in);
    CHECK(good, "%s is too short", path);
    for (size_t p = 0; good && p < REAL_PARAMS; p += quick ? 7 : 1) {
        b.flags = real_params[p].flags;
        for (int64_t i = 0; i < rows; ++i) {
            b.kind[i] = file;
            b.row_seed[i] = (uint64_t)i;
            b.temperature[i] = real_params[p].temperature;
            b.top_k[i] = real_params[p].top_k;
            b.top_p[i] = real_params[p].top_p;
            b.min_p[i] = real_params[p].min_p;
            b.seed[i] = 1000 + (uint64_t)i;
            b.position[i] = p;
        }
        batch_ask_oracle(&b);
        run_everyway(&b);
    }
    batch_free(&b);
}

TEST(real_smollm2) { equal_real("smollm2.npy", 16, 49152); }
TEST(real_gemma3) { equal_real("gemma3.npy", 4, 262144); }

TEST(enough_rows) { CHECK(rows_checked >= test_amount(10000), "only %ld rows were checked", rows_checked); }

int main(void) {
    RUN(vocab_1);
    RUN(vocab_2);
    RUN(vocab_255);
    RUN(vocab_256);
    RUN(vocab_257);
    RUN(vocab_999);
    RUN(vocab_4097);
    RUN(vocab_any_small);
    RUN(vocab_49152);
    RUN(vocab_128256);
    RUN(vocab_151936);
    RUN(vocab_262144);
    RUN(real_smollm2);
    RUN(real_gemma3);
    RUN(enough_rows);
    printf("%ld rows checked\n", rows_checked);
    return test_report("equality");
}
