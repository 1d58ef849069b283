/* report.c - raffle_report: log-probabilities, ranks and entropy at the three points and the kept set, against the oracle bit for
 * bit on every instruction set, and against long double; kept sets also against raffle_mask's. */
#include <math.h>
#include <stdlib.h>

#include "../common/mixture.h"
#include "../common/report_row.h"

enum { GIVEN = 4, TOP_ROOM = BATCH_ROWS_MAX * RAFFLE_TOP_MAX, GIVEN_ROOM = BATCH_ROWS_MAX * GIVEN, LIST_ROOM = 3000 };

static long rows_checked, mixtures_checked;

/* Memory for the parts of a report. */
typedef struct kept_arrays {
    uint32_t *kept; /* [rows, words + 2], and a guard */
    int32_t *list;  /* [rows, LIST_ROOM], and a guard */
    int32_t count[BATCH_ROWS_MAX];
} kept_arrays;
static struct {
    float chosen[BATCH_ROWS_MAX], entropy[BATCH_ROWS_MAX], top[TOP_ROOM], given_log[GIVEN_ROOM], *all;
    int32_t rank[BATCH_ROWS_MAX], top_token[TOP_ROOM], given[GIVEN_ROOM], given_rank[GIVEN_ROOM];
    kept_arrays kept, masks; /* the report's, and raffle_mask's */
} told;

static size_t kept_bytes(int64_t rows, int64_t vocab) { return (size_t)(rows * ((vocab + 31) / 32 + 2) + 1) * 4; }
static size_t list_bytes(int64_t rows) { return (size_t)(rows * LIST_ROOM + 1) * 4; }
static void kept_arrays_make(kept_arrays *k, int64_t rows, int64_t vocab) {
    k->kept = malloc(kept_bytes(rows, vocab));
    k->list = malloc(list_bytes(rows));
}
static void kept_arrays_poison(kept_arrays *k, int64_t rows, int64_t vocab) {
    memset(k->kept, REPORT_POISON, kept_bytes(rows, vocab));
    memset(k->list, REPORT_POISON, list_bytes(rows));
    memset(k->count, REPORT_POISON, sizeof k->count);
}
static void kept_arrays_free(kept_arrays *k) {
    free(k->kept);
    free(k->list);
}

/* A report of all parts, or, now and then, of some. */
static raffle_report report_pick(test_random *r, int point, int64_t vocab) {
    static const int32_t tops[] = {0, 1, 2, 7, 20, 100, 1000, 1023, 1024};
    const uint64_t without = random_below(r, 3) ? 0 : random_bits(r);
    const int64_t top = random_below(r, 10);
    raffle_report report = raffle_report_init();
    report.point = point;
    report.chosen = without & 1 ? NULL : told.chosen;
    report.rank = without & 2 ? NULL : told.rank;
    report.entropy = without & 4 ? NULL : told.entropy;
    report.top_token = without & 8 ? NULL : told.top_token;
    report.top = without & 16 ? NULL : told.top;
    if (report.top_token || report.top) report.top_count = top < 9 ? tops[top] : (int32_t)random_below(r, RAFFLE_TOP_MAX + 1);
    report.given = told.given;
    report.given_count = (int32_t)random_below(r, GIVEN + 1);
    report.given_logprob = without & 32 ? NULL : told.given_log;
    report.given_rank = without & 64 ? NULL : told.given_rank;
    report.all = without & 128 ? NULL : told.all;
    report.all_stride = random_below(r, 2) ? vocab + random_below(r, 9) : 0;
    report.kept = without & 256 ? NULL : told.kept.kept;
    report.kept_stride = (vocab + 31) / 32 + random_below(r, 3);
    report.kept_list = without & 512 ? NULL : told.kept.list;
    report.kept_list_stride = random_below(r, 2) ? 1 + random_below(r, LIST_ROOM) : 1 + random_below(r, 4);
    report.kept_count = without & 1024 ? NULL : told.kept.count;
    return report;
}

/* Nothing is as a call before has left it. */
static void told_poison(const batch *b) {
    memset(told.chosen, 0x7f, sizeof told.chosen);
    memset(told.entropy, 0x7f, sizeof told.entropy);
    memset(told.top, 0x7f, sizeof told.top);
    memset(told.given_log, 0x7f, sizeof told.given_log);
    memset(told.rank, 0x7f, sizeof told.rank);
    memset(told.top_token, 0x7f, sizeof told.top_token);
    memset(told.given_rank, 0x7f, sizeof told.given_rank);
    memset(told.all, 0x7f, (size_t)(b->rows * (b->vocab + 8)) * 4);
    kept_arrays_poison(&told.kept, b->rows, b->vocab);
    kept_arrays_poison(&told.masks, b->rows, b->vocab);
}

/* raffle_mask finds the same kept sets, and leaves alone what the report does. */
static void check_masks(const batch *b, const runner *own, const raffle_logits *logits, const raffle_params *params,
                        const raffle_report *report) {
    raffle_output output = raffle_output_init();
    raffle_error error = raffle_error_init();
    output.kept = report->kept ? told.masks.kept : NULL;
    output.kept_stride = report->kept_stride;
    output.kept_list = report->kept_list ? told.masks.list : NULL;
    output.kept_list_stride = report->kept_list_stride;
    output.kept_count = report->kept_count ? told.masks.count : NULL;
    if (!output.kept && !output.kept_list && !output.kept_count) return;
    raffle_status status = raffle_mask(own->plan, logits, params, &output, &own->launch, &error);
    CHECK(!status, "%s", error.text);
    CHECK(!memcmp(told.kept.kept, told.masks.kept, kept_bytes(b->rows, b->vocab)), "raffle_mask has other bits");
    CHECK(!memcmp(told.kept.list, told.masks.list, list_bytes(b->rows)), "raffle_mask has another list");
    CHECK(!memcmp(told.kept.count, told.masks.count, sizeof told.kept.count), "raffle_mask counts others");
}

/* The batch by one instruction set with this report. */
static void run(const batch *b, const report_row *row, raffle_isa isa, const raffle_report *report) {
    runner own = runner_make_for(b->dtype, b->vocab, isa, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, HISTORY_MAX);
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    raffle_error error = raffle_error_init();
    outputs o;
    outputs_poison(&o);
    told_poison(b);
    o.result.report = report;
    raffle_status status = raffle_sample(own.plan, &logits, &params, &o.result, &own.launch, &error);
    CHECK(!status, "%s", error.text);
    outputs_check(&o, b, NULL, "with a report");
    for (int64_t i = 0; i < b->rows; ++i) {
        if (!test_note(report_is(&row[i], report, i, row[i].token))) continue;
        printf("%s point %d, top %d, given %d: chosen %a (%a) rank %d entropy %a (%a) top %d %a\n", raffle_isa_name(isa), report->point,
               report->top_count, report->given_count, (double)told.chosen[i], (double)report_log(&row[i], row[i].token), told.rank[i],
               (double)told.entropy[i], (double)row[i].entropy, told.top_token[i * report->top_count], (double)told.top[i * report->top_count]);
        batch_print(b, i);
    }
    check_masks(b, &own, &logits, &params, report);
    runner_free(own);
}

/* A mixture at `points` of the points, from a random one on. */
static void check(test_random *r, uint32_t wish, int64_t vocab, int64_t rows, int points) {
    static mixture m;
    report_row row[BATCH_ROWS_MAX];
    int first = (int)random_below(r, 3);
    mixture_make(&m, r, wish, vocab, rows, (int)random_below(r, 3), random_below(r, 64));
    told.all = malloc((size_t)(rows * (vocab + 8)) * 4);
    kept_arrays_make(&told.kept, rows, vocab);
    kept_arrays_make(&told.masks, rows, vocab);
    for (int64_t i = 0; i < rows * GIVEN; ++i) told.given[i] = (int32_t)random_below(r, vocab + 2) - 1;
    for (int point = first; point < first + points; ++point) {
        const raffle_report report = report_pick(r, point % 3, vocab);
        for (int64_t i = 0; i < rows; ++i) {
            oracle_case c = batch_case(&m.b, i);
            row[i] = report_row_make(&c, report.point);
        }
        for (int isa = 0; isa < ISA_COUNT; ++isa)
            if (raffle_isa_available(every_isa[isa])) run(&m.b, row, every_isa[isa], &report);
        for (int64_t i = 0; i < rows; ++i) report_row_free(&row[i]);
    }
    free(told.all);
    kept_arrays_free(&told.kept);
    kept_arrays_free(&told.masks);
    rows_checked += rows;
    ++mixtures_checked;
    mixture_free(&m);
}

TEST(plain_rows) {
    test_random r = {1};
    for (int i = 0; i < test_amount(40); ++i) check(&r, 0, 1 + random_below(&r, 900), 12, 3);
}
TEST(small_vocab) {
    test_random r = {2};
    for (int i = 0; i < test_amount(480); ++i) check(&r, some_wishes(&r), 1 + random_below(&r, 64), 40, 1);
}
/* Rows that end with a word of the kept set, a little before or behind it, or a group. */
TEST(edges) {
    static const int64_t vocab[] = {1, 31, 32, 33, 63, 255, 256, 257, 4097};
    test_random r = {5};
    for (int n = 0; n < 9; ++n)
        for (int i = 0; i < test_amount(10); ++i) check(&r, i % 2 ? some_wishes(&r) : 0, vocab[n], 12, 3);
}
/* More tokens than a report may list, and fewer. */
TEST(middle_vocab) {
    test_random r = {4};
    for (int i = 0; i < test_amount(80); ++i) check(&r, some_wishes(&r), 1 + random_below(&r, 1800), 12, 3);
}
/* More groups than likeliest tokens: most groups are never looked at. */
TEST(long_rows) {
    test_random r = {3};
    for (int i = 0; i < test_amount(10); ++i) check(&r, some_wishes(&r), 2000 + random_below(&r, 9000), 12, 3);
}
TEST(enough) {
    CHECK(rows_checked >= test_amount(20000), "only %ld rows were checked", rows_checked);
    CHECK(mixtures_checked >= test_amount(200), "only %ld mixtures were checked", mixtures_checked);
}

/* Within 1e-6 of long double, relative where the logarithm is larger than 1. Which tokens are kept is as told: others look at that. */
TEST(near_long_double) {
    enum { VOCAB = 50000 };
    static float x[VOCAB], all[VOCAB];
    const char *const kinds[] = {"normal", "peaked", "flat", "constant", "spiky", "narrow"};
    runner own = runner_make_for(RAFFLE_F32, VOCAB, RAFFLE_ISA_BEST, RAFFLE_PLAN_REPORT, 0);
    for (int i = 0; i < 18; ++i) {
        const int kind = i / 3, point = i % 3;
        const uint64_t seed = 1, position = 2;
        const float temperature = 0.7f, top_p = 0.9f;
        float entropy;
        int32_t token;
        raffle_params params = raffle_params_init();
        raffle_logits logits = raffle_logits_init();
        raffle_report report = raffle_report_init();
        raffle_result result = raffle_result_init();
        vector_row_make(kinds[kind], 7, VOCAB, RAFFLE_F32, x);
        params.seed = &seed, params.position = &position, params.temperature = &temperature, params.top_p = &top_p;
        logits.data = x, logits.rows = 1;
        result.token = &token, result.report = &report;
        report.point = point, report.all = all, report.entropy = &entropy;
        CHECK_STATUS(raffle_sample(own.plan, &logits, &params, &result, &own.launch, NULL), RAFFLE_OK);
        long double T = point == RAFFLE_RAW ? 1.0L : (long double)temperature, M = -INFINITY, sum = 0, h = 0, worst = 0;
        int kept = 0;
        for (int id = 0; id < VOCAB; ++id) M = x[id] > M ? (long double)x[id] : M, kept += all[id] > -INFINITY;
        for (int id = 0; id < VOCAB; ++id) sum += all[id] > -INFINITY ? expl(((long double)x[id] - M) / T) : 0;
        for (int id = 0; id < VOCAB; ++id) {
            if (all[id] == -INFINITY) continue;
            long double exact = ((long double)x[id] - M) / T - logl(sum), off = fabsl(exact - (long double)all[id]) / fmaxl(1, fabsl(exact));
            worst = off > worst ? off : worst;
            h -= expl(exact) * exact;
        }
        CHECK(point == RAFFLE_FILTERED ? kept > 0 : kept == VOCAB, "%s, point %d: %d tokens", kinds[kind], point, kept);
        CHECK(worst < 1e-6L, "%s, point %d: off by %Lg", kinds[kind], point, worst);
        CHECK(fabsl(h - (long double)entropy) < 1e-6L * fmaxl(1, h), "%s, point %d: entropy %g, exact %Lg", kinds[kind], point, (double)entropy, h);
    }
    runner_free(own);
}

int main(void) {
    RUN(plain_rows);
    RUN(small_vocab);
    RUN(edges);
    RUN(middle_vocab);
    RUN(long_rows);
    RUN(enough);
    RUN(near_long_double);
    printf("%ld rows, %ld mixtures\n", rows_checked, mixtures_checked);
    return test_report("report");
}
