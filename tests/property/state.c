/* state.c - a raffle_state against a plain list per slot: any order of prompt, accept, truncate, reset and fork leaves the
 * history and the counts that the header draws. */
#include "../common/batch.h"

enum { SLOTS = 5, HISTORY = 40 };

typedef struct model {
    int32_t token[HISTORY];
    int length, prompt;
} model;

/* Counts of a slot as raffle.h draws them, straight out of the memory. */
static void check_slot(const raffle_state *s, int slot, const model *m) {
    int64_t prompt, length, most = s->history_max + s->history_max / 8 + 16, entry_max = most < s->vocab ? most : s->vocab;
    const int32_t *told = raffle_state_history(s, slot, &prompt, &length);
    CHECK(length == m->length && prompt == m->prompt && !memcmp(told, m->token, (size_t)length * 4), "slot %d: history of %lld",
          slot, (long long)length);
    const char *memory = (const char *)s->memory + (int64_t)slot * (int64_t)(raffle_state_bytes(s) / (size_t)s->slots);
    int32_t entries;
    memcpy(&entries, memory + 8, 4);
    const uint64_t *entry = (const uint64_t *)(const void *)(memory + 64 + (s->history_max * 4 + 63) / 64 * 64);
    int seen[200][2] = {{0}}, found = 0;
    CHECK(entries >= 0 && entries <= entry_max, "%d entries of %lld", entries, (long long)entry_max);
    for (int i = 0; i < m->length; ++i) ++seen[m->token[i]][i < m->prompt];
    for (int i = 0; i < entries; ++i) {
        int id = (int)(entry[i] & 0x1fffff), output = (int)(entry[i] >> 21 & 0x1fffff), in = (int)(entry[i] >> 42);
        CHECK(seen[id][0] == output && seen[id][1] == in, "slot %d token %d: %d and %d, wanted %d and %d", slot, id, output, in,
              seen[id][0], seen[id][1]);
        found += output + in;
    }
    CHECK_EQ(found, m->length);
}

static void walk(uint64_t seed, int64_t vocab, int steps) {
    test_random r = {seed};
    model m[SLOTS];
    memset(m, 0, sizeof m);
    raffle_state s = raffle_state_init();
    s.slots = SLOTS;
    s.history_max = HISTORY;
    s.vocab = vocab;
    size_t bytes = raffle_state_bytes(&s);
    char *memory = test_alloc(bytes + 128);
    memset(memory, 0xee, bytes + 128);
    s.memory = memory + 64;
    CHECK_STATUS(raffle_state_clear(&s, NULL, NULL), RAFFLE_OK);
    for (int step = 0; step < steps; ++step) {
        int32_t a = (int32_t)random_below(&r, SLOTS), b = (int32_t)((a + 1 + random_below(&r, SLOTS - 1)) % SLOTS), count;
        int32_t tokens[HISTORY + 8], first[2] = {0, 0};
        raffle_tokens t = raffle_tokens_init();
        for (int i = 0; i < HISTORY + 8; ++i) tokens[i] = (int32_t)random_below(&r, vocab);
        t.rows = 1;
        t.slot = &a;
        t.token = tokens;
        t.count = &count;
        t.stride = HISTORY;
        int64_t what = random_below(&r, 12), ragged = (what == 0 || what >= 7) && random_below(&r, 2);
        const int32_t *const token = tokens + (ragged ? first[0] = (int32_t)random_below(&r, 9) : 0);
        if (ragged) t.first = first, t.stride = 0, t.count = random_below(&r, 2) ? &count : NULL;
        if (what == 0) {
            count = (int32_t)random_below(&r, HISTORY + 1);
            first[1] = first[0] + count;
            CHECK_STATUS(raffle_state_prompt(&s, &t, NULL), RAFFLE_OK);
            memcpy(m[a].token, token, (size_t)count * 4);
            m[a].length = m[a].prompt = count;
        } else if (what == 1) {
            CHECK_STATUS(raffle_state_reset(&s, &t, NULL), RAFFLE_OK);
            m[a].length = m[a].prompt = 0;
        } else if (what == 2) {
            t.token = &b;
            t.stride = 1;
            CHECK_STATUS(raffle_state_fork(&s, &t, NULL), RAFFLE_OK);
            m[b] = m[a];
        } else if (what < 7) {
            count = (int32_t)random_below(&r, m[a].length - m[a].prompt + 1);
            CHECK_STATUS(raffle_state_truncate(&s, &t, NULL), RAFFLE_OK);
            m[a].length -= count;
        } else {
            count = (int32_t)random_below(&r, HISTORY - m[a].length + 1);
            first[1] = first[0] + count;
            CHECK_STATUS(raffle_state_accept(&s, &t, NULL), RAFFLE_OK);
            memcpy(m[a].token + m[a].length, token, (size_t)count * 4);
            m[a].length += count;
        }
        for (int i = 0; i < SLOTS; ++i) check_slot(&s, i, &m[i]);
    }
    for (int i = 0; i < 64; ++i)
        CHECK((unsigned char)memory[i] == 0xee && (unsigned char)memory[64 + bytes + (size_t)i] == 0xee, "written outside");
    free(memory);
}

/* Requests with 2, 0 and 1 drafts, of which 1, 0 and 1 were accepted: what raffle_verify emits goes to the histories in one call. */
TEST(what_verify_emits) {
    const int32_t drafts_first[] = {0, 2, 2, 3}, token[] = {10, 11, RAFFLE_NO_TOKEN, 12, 13, 14};
    const int32_t wanted[3][2] = {{10, 11}, {12}, {13, 14}}, lengths[] = {2, 1, 2};
    int32_t first[4];
    raffle_state s = raffle_state_init();
    s.slots = 3;
    s.history_max = HISTORY;
    s.vocab = 20;
    s.memory = test_alloc(raffle_state_bytes(&s));
    CHECK_STATUS(raffle_state_clear(&s, NULL, NULL), RAFFLE_OK);
    for (int r = 0; r < 4; ++r) first[r] = drafts_first[r] + r; /* of target rows */
    raffle_tokens t = raffle_tokens_init();
    t.rows = 3;
    t.token = token;
    t.first = first;
    CHECK_STATUS(raffle_state_accept(&s, &t, NULL), RAFFLE_OK);
    for (int r = 0; r < 3; ++r) {
        int64_t length;
        const int32_t *const told = raffle_state_history(&s, r, NULL, &length);
        CHECK(length == lengths[r] && !memcmp(told, wanted[r], (size_t)length * 4), "request %d: %lld tokens", r, (long long)length);
    }
    free(s.memory);
}

TEST(few_tokens) { walk(1, 3, (int)test_amount(3000)); }
TEST(one_token) { walk(2, 1, (int)test_amount(300)); }
TEST(many_tokens) { walk(3, 200, (int)test_amount(6000)); } /* more than entries: counted anew again and again */

/* A slot whose table has more entries than a history has tokens, nearly all of them of tokens that were taken back. */
TEST(taken_back) {
    enum { ROOM = 8192, WIDE = 40000, DRAFTS = 384, ROWS = 8 }; /* 24 * 384 entries: one for nearly all there is room for */
    test_random r = {4};
    static int32_t token[DRAFTS];
    raffle_state s = raffle_state_init();
    s.slots = ROWS;
    s.history_max = ROOM;
    s.vocab = WIDE;
    s.memory = test_alloc(raffle_state_bytes(&s));
    CHECK_STATUS(raffle_state_clear(&s, NULL, NULL), RAFFLE_OK);
    batch b;
    batch_alloc(&b, ROWS, WIDE, RAFFLE_F32, 0, 0);
    b.flags = 0;
    raffle_extra extra[ROWS];
    memset(extra, 0, sizeof extra);
    for (int32_t row = 0; row < ROWS; ++row) {
        int32_t count = DRAFTS, id = 0;
        raffle_tokens t = raffle_tokens_init();
        t.rows = 1;
        t.slot = &row;
        t.token = token;
        t.count = &count;
        t.stride = DRAFTS;
        while (id < ROOM + ROOM / 8) { /* ids are spread over the row; the last are left */
            for (int i = 0; i < DRAFTS; ++i, ++id) token[i] = (int32_t)((int64_t)id * 7 % WIDE);
            CHECK_STATUS(raffle_state_accept(&s, &t, NULL), RAFFLE_OK);
            if (id < ROOM + ROOM / 8) CHECK_STATUS(raffle_state_truncate(&s, &t, NULL), RAFFLE_OK);
        }
        b.kind[row] = "normal";
        b.row_seed[row] = random_bits(&r) >> 40;
        vector_row_make("normal", b.row_seed[row], WIDE, RAFFLE_F32, b.data + row * b.stride * 4);
        for (int i = 0; i < DRAFTS; i += 2) /* what was said is the likeliest, so that penalties matter */
            vector_store(b.data + row * b.stride * 4, RAFFLE_F32, token[i], vector_bits(9.0f + (float)(i % 16) / 8));
        b.temperature[row] = 0.8f;
        b.top_k[row] = 40;
        b.top_p[row] = 1.0f;
        b.min_p[row] = 0.0f;
        b.seed[row] = random_bits(&r);
        b.position[row] = (uint64_t)row;
        extra[row].presence = 1.5f;
        extra[row].penalty_window = row % 2 ? DRAFTS / 2 : 0;
    }
    b.extra = extra;
    b.state = &s;
    batch_ask_oracle(&b);
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        runner own = runner_make_for(RAFFLE_F32, WIDE, every_isa[i], RAFFLE_PLAN_EXTRA, ROOM);
        raffle_params params = batch_params(&b);
        raffle_logits logits = raffle_logits_init();
        outputs o;
        logits.data = b.data;
        logits.rows = ROWS;
        outputs_poison(&o);
        CHECK_STATUS(raffle_sample(own.plan, &logits, &params, &o.result, &own.launch, NULL), RAFFLE_OK);
        outputs_check(&o, &b, NULL, raffle_isa_name(every_isa[i]));
        runner_free(own);
    }
    batch_free(&b);
    free(s.memory);
}

/* ---- memory that was never cleared is refused wherever its lengths would be believed, and nothing is written ---- */

enum { SPOILT_VOCAB = 300 };
static const float spoilt_rows[2 * SPOILT_VOCAB];

static raffle_state spoilt_make(int byte) {
    raffle_state s = raffle_state_init();
    s.slots = SLOTS;
    s.history_max = HISTORY;
    s.vocab = SPOILT_VOCAB;
    s.memory = test_alloc(raffle_state_bytes(&s));
    memset(s.memory, byte, raffle_state_bytes(&s));
    return s;
}

static raffle_params spoilt_params(const raffle_state *s, const raffle_extra extra[SLOTS], const int32_t *slot) {
    static const uint64_t zeros[SLOTS];
    raffle_params p = raffle_params_init();
    p.slots = SLOTS;
    p.slot = slot;
    p.seed = p.position = zeros;
    p.extra = extra;
    p.extra_bytes = sizeof *extra;
    p.state = s;
    return p;
}

static void spoilt_changes(const raffle_state *s, const raffle_tokens *t) {
    typedef raffle_status change(const raffle_state *, const raffle_tokens *, raffle_error *);
    change *const calls[] = {raffle_state_accept, raffle_state_truncate, raffle_state_fork};
    const size_t bytes = raffle_state_bytes(s);
    char *const before = test_alloc(bytes);
    memcpy(before, s->memory, bytes);
    for (int i = 0; i < 3; ++i) {
        raffle_error error = raffle_error_init();
        CHECK_STATUS(calls[i](s, t, &error), RAFFLE_E_ARGUMENT);
        CHECK(error.row == 0 && strstr(error.text, "slot 1 of row 0 was never cleared"), "call %d, row %lld: %s", i, (long long)error.row,
              error.text);
    }
    CHECK(!memcmp(s->memory, before, bytes), "it was written to");
    free(before);
}

/* Of row 0, which does not look back, the slot is not looked at. */
static void spoilt_draw(const runner *own, const raffle_state *s, const raffle_extra extra[SLOTS], const int32_t *slot, int refused) {
    const raffle_params params = spoilt_params(s, extra, slot);
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    raffle_error error = raffle_error_init();
    int32_t drawn[] = {-77, -77};
    logits.data = spoilt_rows;
    logits.rows = 2;
    result.token = drawn;
    CHECK_STATUS(raffle_sample(own->plan, &logits, &params, &result, &own->launch, &error), refused ? RAFFLE_E_ARGUMENT : RAFFLE_OK);
    if (!refused) return;
    CHECK(error.row == 1 && strstr(error.text, "slot 3 of row 1 was never cleared"), "row %lld: %s", (long long)error.row, error.text);
    CHECK(drawn[0] == -77 && drawn[1] == -77, "tokens %d %d", drawn[0], drawn[1]);
}

/* One request with one draft, of which the target or the drafts have such a state. */
static void spoilt_verify(const runner *own, const raffle_state *of_target, const raffle_state *of_drafts, const raffle_extra extra[SLOTS],
                          const int32_t *slot, int refused) {
    const raffle_params params = spoilt_params(of_target, extra, slot), draft_params = spoilt_params(of_drafts, extra, slot);
    raffle_logits logits = raffle_logits_init(), drafted = raffle_logits_init();
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    raffle_error error = raffle_error_init();
    int32_t draft = 5, drawn[] = {-77, -77}, accepted = -77;
    logits.data = drafted.data = spoilt_rows;
    logits.rows = 2;
    drafted.rows = drafts.requests = drafts.each = 1;
    drafts.token = &draft;
    drafts.logits = &drafted;
    drafts.params = &draft_params;
    verified.token = drawn;
    verified.accepted = &accepted;
    CHECK_STATUS(raffle_verify(own->plan, &logits, &params, &drafts, &verified, &own->launch, &error),
                 refused ? RAFFLE_E_ARGUMENT : RAFFLE_OK);
    if (!refused) return;
    CHECK(error.row == 0 && strstr(error.text, "was never cleared"), "row %lld: %s", (long long)error.row, error.text);
    CHECK(drawn[0] == -77 && accepted == -77, "token %d, accepted %d", drawn[0], accepted);
}

static void never_cleared_of(int byte) {
    const int32_t slot[] = {1, 3}, token[] = {2, 4}, count[] = {1, 1}, prompt[] = {7, 8}, liked = 5;
    const float much = 1.0f;
    const raffle_extra looks[SLOTS] = {[3] = {.presence = 1.0f}};
    const raffle_extra biased[SLOTS] = {[3] = {.bias_id = &liked, .bias = &much, .bias_count = 1}};
    const raffle_state s = spoilt_make(byte), whole = spoilt_make(byte);
    const runner own = runner_make_for(RAFFLE_F32, SPOILT_VOCAB, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA, HISTORY);
    CHECK_STATUS(raffle_state_clear(&whole, NULL, NULL), RAFFLE_OK);
    raffle_tokens t = raffle_tokens_init();
    t.rows = 2;
    t.slot = slot;
    t.token = token;
    t.count = count;
    t.stride = 1;
    spoilt_changes(&s, &t);
    spoilt_draw(&own, &s, looks, slot, 1);
    spoilt_verify(&own, &s, &whole, looks, &slot[1], 1);
    spoilt_verify(&own, &whole, &s, looks, &slot[1], 1);
    spoilt_verify(&own, &s, &s, biased, &slot[1], 0);
    t.token = prompt;
    CHECK_STATUS(raffle_state_prompt(&s, &t, NULL), RAFFLE_OK); /* makes its slots whole, whatever was there */
    spoilt_draw(&own, &s, looks, slot, 0);
    runner_free(own);
    free(whole.memory);
    free(s.memory);
}

TEST(never_cleared) {
    never_cleared_of(0xa5);
    never_cleared_of(0x11);
    never_cleared_of(0); /* looks like empty histories */
}

int main(void) {
    RUN(what_verify_emits);
    RUN(few_tokens);
    RUN(one_token);
    RUN(many_tokens);
    RUN(taken_back);
    RUN(never_cleared);
    return test_report("state");
}
