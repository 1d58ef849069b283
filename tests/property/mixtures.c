/* mixtures.c - random mixtures of everything a request can ask for: every instruction set gives the oracle's token, bit
 * for bit, in any batch; and each row its own. */
#include <stdlib.h>

#include "../common/batch.h"
#include "../common/pick_extra.h"

enum { HISTORY_MAX = 300 };

static long rows_checked, mixtures_checked;

/* A state with one slot per row. */
typedef struct pool {
    raffle_state state;
} pool;

static pool pool_make(int64_t slots, int64_t vocab) {
    pool p = {raffle_state_init()};
    p.state.slots = slots;
    p.state.history_max = HISTORY_MAX;
    p.state.vocab = vocab;
    p.state.memory = test_alloc(raffle_state_bytes(&p.state));
    memset(p.state.memory, 0xa5, raffle_state_bytes(&p.state));
    CHECK_STATUS(raffle_state_clear(&p.state, NULL, NULL), RAFFLE_OK);
    return p;
}

/* Fills slot i by ways that all must come to the same: prompt, tokens accepted in pieces, drafts taken back. */
static void pool_fill(pool *p, int64_t slot, test_random *r, const int32_t *token, int64_t length, int64_t prompt) {
    raffle_tokens t = raffle_tokens_init();
    int32_t at = (int32_t)slot, count = (int32_t)prompt;
    t.rows = 1;
    t.slot = &at;
    t.token = token;
    t.count = &count;
    t.stride = HISTORY_MAX;
    CHECK_STATUS(raffle_state_prompt(&p->state, &t, NULL), RAFFLE_OK);
    for (int64_t done = prompt; done < length;) {
        int32_t drafts[4], taken = (int32_t)random_below(r, 5);
        for (int i = 0; i < 4; ++i) drafts[i] = (int32_t)random_below(r, p->state.vocab);
        if (done + taken <= HISTORY_MAX) {
            t.token = drafts;
            t.stride = 4;
            count = taken;
            CHECK_STATUS(raffle_state_accept(&p->state, &t, NULL), RAFFLE_OK);
            CHECK_STATUS(raffle_state_truncate(&p->state, &t, NULL), RAFFLE_OK);
        }
        count = (int32_t)(1 + random_below(r, length - done));
        t.token = token + done;
        t.stride = count;
        CHECK_STATUS(raffle_state_accept(&p->state, &t, NULL), RAFFLE_OK);
        done += count;
    }
    int64_t told_prompt, told_length;
    const int32_t *told = raffle_state_history(&p->state, slot, &told_prompt, &told_length);
    CHECK(told && told_prompt == prompt && told_length == length && !memcmp(told, token, (size_t)length * 4),
          "the slot has %lld tokens of %lld", (long long)told_length, (long long)length);
}

static raffle_logits batch_logits(const batch *b) {
    raffle_logits logits = raffle_logits_init();
    logits.data = b->data;
    logits.rows = b->rows;
    logits.row_stride = b->stride;
    return logits;
}

static void run_all(const batch *b, runner r, const char *isa, int32_t parts) {
    outputs o;
    outputs_poison(&o);
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    raffle_error error = raffle_error_init();
    r.launch.parts = parts;
    for (r.launch.part = parts - 1; r.launch.part >= 0; --r.launch.part) {
        raffle_status status = raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, &error);
        CHECK(!status, "%s", error.text);
    }
    outputs_check(&o, b, NULL, isa);
}

/* The rows in another order, some left out: none may look at another's wishes. */
static void run_shuffled(const batch *b, runner r, const char *isa, test_random *random) {
    for (int64_t i = 0; i < b->rows; i += 1 + random_below(random, 2)) {
        outputs o;
        outputs_poison(&o);
        raffle_params params = batch_params(b);
        raffle_logits logits = batch_logits(b);
        int32_t slot = (int32_t)i;
        params.slot = &slot;
        params.allow = b->allow ? b->allow + i * b->words : NULL;
        logits.data = batch_row(b, i);
        logits.rows = 1;
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
        const oracle_answer *w = &b->wanted[i];
        if (test_note(o.token[0] == w->token && o.row_flags[0] == w->row_flags)) {
            printf("%s alone: token %d flags %u, oracle %d flags %u\n", isa, o.token[0], o.row_flags[0], w->token, w->row_flags);
            batch_print(b, i);
        }
    }
}

static void run_explain(const batch *b, runner r) {
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    for (int64_t i = 0; i < b->rows; i += 3) {
        const oracle_answer *w = &b->wanted[i];
        raffle_explanation e = raffle_explanation_init();
        CHECK_STATUS(raffle_explain(r.plan, &logits, &params, i, &e, &r.launch, NULL), RAFFLE_OK);
        int64_t all = 0;
        for (int f = 0; f < 8; ++f) all += e.fates[f];
        int good = e.token == w->token && e.row_flags == w->row_flags && e.fates[RAFFLE_KEPT] == w->kept_count && all == b->vocab;
        if (!(w->row_flags & RAFFLE_ROW_EMPTY) && !w->greedy)
            good = good && e.row_tickets == w->row_mass && e.draw_tickets == w->draw_mass && e.drawn == w->drawn;
        if (test_note(good)) {
            printf("explain: token %d kept %lld of %lld tickets %llu/%llu; oracle %d %lld %llu/%llu\n", e.token,
                   (long long)e.fates[0], (long long)all, (unsigned long long)e.draw_tickets,
                   (unsigned long long)e.row_tickets, w->token, (long long)w->kept_count,
                   (unsigned long long)w->draw_mass, (unsigned long long)w->row_mass);
            batch_print(b, i);
        }
    }
}

static void mixture(test_random *r, uint32_t wish, int64_t vocab, int64_t rows) {
    static arena lists;
    batch b;
    int dtype = (int)random_below(r, 3);
    pool p = pool_make(rows, vocab);
    batch_alloc(&b, rows, vocab, dtype, random_below(r, 2) ? random_below(r, 70) : 0, random_below(r, 64));
    b.flags = pick_flags(r);
    b.extra = calloc((size_t)rows, sizeof *b.extra);
    b.state = &p.state;
    for (int64_t i = 0; i < rows; ++i) {
        int32_t token[HISTORY_MAX];
        int64_t length = random_below(r, random_below(r, 3) ? 40 : HISTORY_MAX + 1), prompt = pick_history(r, vocab, token, length);
        b.kind[i] = row_kinds[random_below(r, 3) ? random_below(r, 8) : random_below(r, ROW_KINDS)];
        b.row_seed[i] = random_bits(r) >> 40;
        vector_row_make(b.kind[i], b.row_seed[i], vocab, dtype, b.data + i * b.stride * element_bytes(dtype));
        b.temperature[i] = random_below(r, 3) ? (float)(0.3 + random_unit(r) * 2) : pick_temperature(r);
        b.top_k[i] = random_below(r, 3) ? 0 : pick_top_k(r, vocab);
        b.top_p[i] = random_below(r, 2) ? 1.0f : pick_top_p(r);
        b.min_p[i] = random_below(r, 2) ? 0.0f : pick_min_p(r);
        b.seed[i] = random_bits(r);
        b.position[i] = random_bits(r) >> random_below(r, 64);
        pool_fill(&p, i, r, token, length, prompt);
        if (random_below(r, 8)) b.extra[i] = pick_extra(r, &lists, wish, vocab, token, length, length - prompt);
    }
    if (random_below(r, 3) == 0) {
        b.allow = malloc((size_t)(rows * b.words) * 4);
        for (int64_t i = 0; i < rows; ++i) vector_allow_make(random_bits(r) >> 40, vocab, b.allow + i * b.words);
    }
    batch_ask_oracle(&b);
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        runner own = runner_make_for(dtype, vocab, every_isa[i], RAFFLE_PLAN_EXTRA, HISTORY_MAX);
        run_all(&b, own, raffle_isa_name(every_isa[i]), 1 + (int32_t)random_below(r, 3));
        run_shuffled(&b, own, raffle_isa_name(every_isa[i]), r);
        run_explain(&b, own);
        runner_free(own);
    }
    rows_checked += rows;
    ++mixtures_checked;
    free(b.extra);
    free(p.state.memory);
    batch_free(&b);
    arena_free(&lists);
}

static uint32_t some_wishes(test_random *r) {
    uint32_t wish = (uint32_t)random_bits(r) & PICK_ALL;
    return random_below(r, 3) ? wish & (uint32_t)random_bits(r) : wish;
}

/* Each feature alone, in many rows, then mixtures. */
TEST(alone) {
    test_random r = {101};
    for (uint32_t wish = 1; wish <= PICK_ALL; wish *= 2)
        for (int i = 0; i < test_amount(10); ++i) mixture(&r, wish, 1 + random_below(&r, 1500), 16);
}
TEST(small_vocab) {
    test_random r = {102};
    for (int i = 0; i < test_amount(300); ++i) mixture(&r, some_wishes(&r), 1 + random_below(&r, 64), 40);
}
TEST(middle_vocab) {
    test_random r = {103};
    for (int i = 0; i < test_amount(220); ++i) mixture(&r, some_wishes(&r), 200 + random_below(&r, 2000), 32);
}
TEST(large_vocab) {
    test_random r = {104};
    for (int i = 0; i < test_amount(24); ++i) mixture(&r, some_wishes(&r), 30000 + random_below(&r, 120000), 4);
}
TEST(enough) {
    CHECK(rows_checked >= test_amount(20000), "only %ld rows were checked", rows_checked);
    CHECK(mixtures_checked >= test_amount(200), "only %ld mixtures were checked", mixtures_checked);
}

int main(void) {
    RUN(alone);
    RUN(small_vocab);
    RUN(middle_vocab);
    RUN(large_vocab);
    RUN(enough);
    printf("%ld rows, %ld mixtures\n", rows_checked, mixtures_checked);
    return test_report("mixtures");
}
