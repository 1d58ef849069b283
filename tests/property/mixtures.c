/* mixtures.c - random mixtures of everything a request can ask for: every instruction set gives the oracle's token, bit
 * for bit, in any batch; and each row its own. */
#include <stdlib.h>

#include "../common/mixture.h"

static long rows_checked, mixtures_checked;

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

static void check_made(mixture *m, test_random *r) {
    const int dtype = m->b.dtype;
    const int64_t vocab = m->b.vocab;
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        runner own = runner_make_for(dtype, vocab, every_isa[i], RAFFLE_PLAN_EXTRA, HISTORY_MAX);
        run_all(&m->b, own, raffle_isa_name(every_isa[i]), 1 + (int32_t)random_below(r, 3));
        run_shuffled(&m->b, own, raffle_isa_name(every_isa[i]), r);
        run_explain(&m->b, own);
        runner_free(own);
    }
    rows_checked += m->b.rows;
    ++mixtures_checked;
    mixture_free(m);
}

static void check(test_random *r, uint32_t wish, int64_t vocab, int64_t rows) {
    static mixture m;
    int dtype = (int)random_below(r, 3);
    mixture_make(&m, r, wish, vocab, rows, dtype, random_below(r, 64));
    check_made(&m, r);
}

/* Each feature alone, in many rows, then mixtures. */
TEST(alone) {
    test_random r = {101};
    for (uint32_t wish = 1; wish <= PICK_ALL; wish *= 2)
        for (int i = 0; i < test_amount(10); ++i) check(&r, wish, 1 + random_below(&r, 1500), 16);
}
TEST(small_vocab) {
    test_random r = {102};
    for (int i = 0; i < test_amount(300); ++i) check(&r, some_wishes(&r), 1 + random_below(&r, 64), 40);
}
TEST(middle_vocab) {
    test_random r = {103};
    for (int i = 0; i < test_amount(220); ++i) check(&r, some_wishes(&r), 200 + random_below(&r, 2000), 32);
}
TEST(large_vocab) {
    test_random r = {104};
    for (int i = 0; i < test_amount(24); ++i) check(&r, some_wishes(&r), 30000 + random_below(&r, 120000), 4);
}
/* Rows of many groups, some with one filter of raffle_extra and nothing else: without it, an estimate would do for them. */
TEST(large_alone) {
    static const uint32_t filters[] = {PICK_SIGMA, PICK_EPSILON, PICK_ETA, PICK_TYPICAL, PICK_XTC};
    test_random r = {105};
    for (int i = 0; i < test_amount(50); ++i) check(&r, filters[i % 5], 16400 + random_below(&r, 2000), 8);
}
/* typical-p with keep_least between min-p or top-k, which leave a list, and top-p: it writes another list over that one. */
TEST(typical_between) {
    test_random r = {106};
    for (int i = 0; i < test_amount(20); ++i) {
        static mixture m;
        mixture_make(&m, &r, 0, 300 + random_below(&r, 3000), 8, RAFFLE_F32, 0);
        m.b.flags &= ~(uint32_t)RAFFLE_SHAPE_LAST;
        for (int64_t row = 0; row < m.b.rows; ++row) {
            float *x = (float *)(void *)(m.b.data + row * m.b.stride * 4); /* a bell: hundreds of tokens matter */
            for (int64_t id = 0; id < m.b.vocab; ++id) x[id] = (float)((random_unit(&r) + random_unit(&r) + random_unit(&r) - 1.5) * 4.0);
            m.b.temperature[row] = 1.0f;
            m.b.min_p[row] = row % 2 ? (float)(random_unit(&r) * 0.05) : 0.0f;
            m.b.top_k[row] = row % 2 ? 0 : 100 + (int32_t)random_below(&r, m.b.vocab - 100);
            m.b.top_p[row] = (float)random_unit(&r);
            m.b.extra[row].typical_p = (float)(random_unit(&r) * 0.5 + 0.01);
            m.b.extra[row].keep_least = 2 + (int32_t)random_below(&r, 20);
        }
        batch_ask_oracle(&m.b);
        check_made(&m, &r);
    }
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
    RUN(large_alone);
    RUN(typical_between);
    RUN(enough);
    printf("%ld rows, %ld mixtures\n", rows_checked, mixtures_checked);
    return test_report("mixtures");
}
