/* report.c - raffle_report: log-probabilities, ranks and entropy at the three points, against the oracle bit for bit on
 * every instruction set, and against long double. */
#include <math.h>
#include <stdlib.h>

#include "../common/batch.h"
#include "../common/pick_extra.h"
#include "../common/report_row.h"

enum { HISTORY = 60, ROWS = 12, TOP = 7, GIVEN = 4 };

typedef struct told {
    float chosen[ROWS], entropy[ROWS], top[ROWS * TOP], given[ROWS * GIVEN], *all;
    int32_t rank[ROWS], top_token[ROWS * TOP], given_rank[ROWS * GIVEN];
} told;

/* The oracle's numbers of row i, beside those that were told. */
static void check_row(const batch *b, int64_t i, int point, const int32_t *given, const told *t, const char *isa) {
    oracle_case c = batch_case(b, i);
    report_row row = report_row_make(&c, point);
    int good = row.token == b->wanted[i].token && report_id_is(&row, row.token, t->chosen[i], t->rank[i]) &&
               report_same(t->entropy[i], row.entropy) && report_top_is(&row, t->top_token + i * TOP, t->top + i * TOP, TOP);
    for (int64_t id = 0; id < b->vocab; ++id) good = good && report_same(t->all[i * b->vocab + id], row.log[id]);
    for (int64_t n = i * GIVEN; n < (i + 1) * GIVEN; ++n) good = good && report_id_is(&row, given[n], t->given[n], t->given_rank[n]);
    if (test_note(good)) {
        printf("%s point %d: chosen %a (%a) rank %d entropy %a (%a) top %d %a\n", isa, point, (double)t->chosen[i],
               row.token < 0 ? 0.0 : (double)row.log[row.token], t->rank[i], (double)t->entropy[i], (double)row.entropy,
               t->top_token[i * TOP], (double)t->top[i * TOP]);
        batch_print(b, i);
    }
    report_row_free(&row);
}

static void report_batch(test_random *r, uint32_t wish, int64_t vocab) {
    static arena lists;
    batch b;
    int dtype = (int)random_below(r, 3);
    raffle_state state = raffle_state_init();
    state.slots = ROWS;
    state.history_max = HISTORY;
    state.vocab = vocab;
    state.memory = test_alloc(raffle_state_bytes(&state));
    raffle_state_clear(&state, NULL, NULL);
    batch_alloc(&b, ROWS, vocab, dtype, random_below(r, 30), random_below(r, 64));
    b.flags = pick_flags(r) & ~RAFFLE_EMPTY_IS_ZERO;
    b.extra = calloc(ROWS, sizeof *b.extra);
    b.state = &state;
    if (random_below(r, 2)) batch_allow(&b, r);
    int32_t given[ROWS * GIVEN];
    for (int64_t i = 0; i < ROWS; ++i) {
        int32_t token[HISTORY], slot = (int32_t)i, count = (int32_t)random_below(r, HISTORY + 1);
        pick_history(r, vocab, token, count);
        raffle_tokens t = raffle_tokens_init();
        t.rows = 1, t.slot = &slot, t.token = token, t.count = &count, t.stride = HISTORY;
        CHECK_STATUS(raffle_state_accept(&state, &t, NULL), RAFFLE_OK);
        b.kind[i] = row_kinds[random_below(r, ROW_KINDS)];
        b.row_seed[i] = random_bits(r) >> 40;
        vector_row_make(b.kind[i], b.row_seed[i], vocab, dtype, b.data + i * b.stride * element_bytes(dtype));
        b.temperature[i] = pick_temperature(r);
        b.top_k[i] = pick_top_k(r, vocab);
        b.top_p[i] = pick_top_p(r);
        b.min_p[i] = pick_min_p(r);
        b.seed[i] = random_bits(r);
        b.position[i] = random_bits(r);
        if (random_below(r, 4)) b.extra[i] = pick_extra(r, &lists, wish, vocab, token, count, count);
        b.extra[i].flags &= ~RAFFLE_EMPTY_IS_ZERO;
        for (int n = 0; n < GIVEN; ++n) given[i * GIVEN + n] = (int32_t)random_below(r, vocab + 2) - 1;
    }
    batch_ask_oracle(&b);
    told *t = calloc(1, sizeof *t);
    t->all = malloc((size_t)(ROWS * vocab) * 4);
    for (int point = RAFFLE_RAW; point <= RAFFLE_FILTERED; ++point) {
        for (int isa = 0; isa < ISA_COUNT; ++isa) {
            if (!raffle_isa_available(every_isa[isa])) continue;
            runner own = runner_make_for(dtype, vocab, every_isa[isa], RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, HISTORY);
            raffle_params params = batch_params(&b);
            raffle_logits logits = raffle_logits_init();
            raffle_report report = raffle_report_init();
            raffle_error error = raffle_error_init();
            outputs o;
            outputs_poison(&o);
            logits.data = b.data;
            logits.rows = ROWS;
            logits.row_stride = b.stride;
            report.point = point;
            report.chosen = t->chosen;
            report.rank = t->rank;
            report.entropy = t->entropy;
            report.top_count = TOP;
            report.top_token = t->top_token;
            report.top = t->top;
            report.given = given;
            report.given_count = GIVEN;
            report.given_logprob = t->given;
            report.given_rank = t->given_rank;
            report.all = t->all;
            o.result.report = &report;
            raffle_status status = raffle_sample(own.plan, &logits, &params, &o.result, &own.launch, &error);
            CHECK(!status, "%s", error.text);
            outputs_check(&o, &b, NULL, "with a report");
            for (int64_t i = 0; i < ROWS; ++i) check_row(&b, i, point, given, t, raffle_isa_name(every_isa[isa]));
            runner_free(own);
        }
    }
    free(t->all);
    free(t);
    free(b.extra);
    free(state.memory);
    batch_free(&b);
    arena_free(&lists);
}

TEST(plain_rows) {
    test_random r = {1};
    for (int i = 0; i < test_amount(40); ++i) report_batch(&r, 0, 1 + random_below(&r, 900));
}
TEST(mixtures) {
    test_random r = {2};
    for (int i = 0; i < test_amount(80); ++i)
        report_batch(&r, (uint32_t)random_bits(&r) & (uint32_t)random_bits(&r) & PICK_ALL, 1 + random_below(&r, 900));
}
/* More groups than likeliest tokens: most groups are never looked at. */
TEST(long_rows) {
    test_random r = {3};
    for (int i = 0; i < test_amount(10); ++i)
        report_batch(&r, (uint32_t)random_bits(&r) & (uint32_t)random_bits(&r) & PICK_ALL, 2000 + random_below(&r, 9000));
}

/* Within 1e-6 of long double, relative where the logarithm is larger than 1. */
TEST(near_long_double) {
    enum { VOCAB = 50000 };
    static float x[VOCAB], all[VOCAB];
    const char *const kinds[] = {"normal", "peaked", "flat", "constant", "spiky", "narrow"};
    runner own = runner_make_for(RAFFLE_F32, VOCAB, RAFFLE_ISA_BEST, RAFFLE_PLAN_REPORT, 0);
    for (int kind = 0; kind < 6; ++kind) {
        const uint64_t seed = 1, position = 2;
        float temperature = 0.7f, entropy;
        int32_t token;
        raffle_params params = raffle_params_init();
        raffle_logits logits = raffle_logits_init();
        raffle_report report = raffle_report_init();
        raffle_result result = raffle_result_init();
        vector_row_make(kinds[kind], 7, VOCAB, RAFFLE_F32, x);
        params.seed = &seed, params.position = &position, params.temperature = &temperature;
        logits.data = x, logits.rows = 1;
        result.token = &token, result.report = &report;
        report.point = kind % 2 ? RAFFLE_RAW : RAFFLE_TEMPERED, report.all = all, report.entropy = &entropy;
        CHECK_STATUS(raffle_sample(own.plan, &logits, &params, &result, &own.launch, NULL), RAFFLE_OK);
        long double T = kind % 2 ? 1.0L : (long double)temperature, M = -INFINITY, sum = 0, h = 0, worst = 0;
        for (int i = 0; i < VOCAB; ++i) M = x[i] > M ? (long double)x[i] : M;
        for (int i = 0; i < VOCAB; ++i) sum += expl(((long double)x[i] - M) / T);
        for (int i = 0; i < VOCAB; ++i) {
            long double exact = ((long double)x[i] - M) / T - logl(sum), off = fabsl(exact - (long double)all[i]) / fmaxl(1, fabsl(exact));
            worst = off > worst ? off : worst;
            h -= expl(exact) * exact;
        }
        CHECK(worst < 1e-6L, "%s: off by %Lg", kinds[kind], worst);
        CHECK(fabsl(h - (long double)entropy) < 1e-6L * fmaxl(1, h), "%s: entropy %g, exact %Lg", kinds[kind], (double)entropy, h);
    }
    runner_free(own);
}

int main(void) {
    RUN(plain_rows);
    RUN(mixtures);
    RUN(long_rows);
    RUN(near_long_double);
    return test_report("report");
}
