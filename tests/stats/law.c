/* law.c - the tokens follow the law that was asked for: chi-square and z tests against softmax in long double.
 * Seeds are fixed, so a result is a fact and not a matter of luck. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "../common/ask.h"
#include "../common/fit.h"
#include "../oracle/softmax.h"

static void check_fit(const char *name, const oracle_case *c, int64_t draws) {
    int64_t *count = malloc((size_t)c->vocab * sizeof *count), doubtful = 0;
    long double *law = malloc((size_t)c->vocab * sizeof *law);
    int cells;
    softmax_law(c, law, &doubtful);
    CHECK(doubtful == 0, "%s: a border hangs on rounding; choose another parameter", name);
    ask_count(c, draws, count);
    double p = fit(count, law, c->vocab, draws, &cells);
    printf("     %-44s %7lld draws %4d cells  p = %.4f\n", name, (long long)draws, cells, p);
    CHECK(p > P_LEAST, "%s: p = %g", name, p);
    free(law);
    free(count);
}

/* The test itself must see a law that is one percent off in half of its tokens. */
TEST(chi_square_sees_errors) {
    enum { VOCAB = 100, DRAWS = 1000000 };
    float row[VOCAB];
    int64_t count[VOCAB];
    long double law[VOCAB];
    int cells;
    vector_row_make("flat", 2, VOCAB, RAFFLE_F32, row);
    oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
    softmax_law(&c, law, NULL);
    ask_count(&c, DRAWS, count);
    CHECK(fit(count, law, VOCAB, DRAWS, &cells) > P_LEAST, "the true law was refused");
    for (int i = 0; i < VOCAB; ++i) law[i] *= i % 2 ? 1.01L : 0.99L;
    CHECK(fit(count, law, VOCAB, DRAWS, &cells) < P_LEAST, "a law that is off was accepted");
    CHECK(fabs(gamma_q(5, 9.1545) - 0.05) < 1e-3 && fabs(gamma_q(50, 67.4) - 0.0125) < 2e-3, "gamma_q: %g %g",
          gamma_q(5, 9.1545), gamma_q(50, 67.4));
}

/* ---- no filter, each filter, and together ---- */

static const struct {
    const char *name, *kind;
    int dtype;
    float T;
    int32_t k;
    float p, min_p;
    uint32_t flags;
} laws[] = {
    {"no filter, T 1", "normal", 0, 1.0f, 0, 1.0f, 0.0f, 0},
    {"no filter, T 0.7, f16", "normal", 1, 0.7f, 0, 1.0f, 0.0f, 0},
    {"no filter, T 3, bf16", "normal", 2, 3.0f, 0, 1.0f, 0.0f, 0},
    {"no filter, one spike per group", "spiky", 0, 2.0f, 0, 1.0f, 0.0f, 0},
    {"no filter, ascending", "ascending", 0, 0.3f, 0, 1.0f, 0.0f, 0},
    {"no filter, T +inf", "normal", 0, INFINITY, 0, 1.0f, 0.0f, 0},
    {"no filter, ties", "ties", 0, 1.0f, 0, 1.0f, 0.0f, 0},
    {"top-k 20", "normal", 0, 1.0f, 20, 1.0f, 0.0f, 0},
    {"top-k 65, T 5", "normal", 0, 5.0f, 65, 1.0f, 0.0f, 0},
    {"top-k 127, T 5, f16", "normal", 1, 5.0f, 127, 1.0f, 0.0f, 0},
    {"top-k 100 of ties, exactly", "ties", 0, 1.0f, 100, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT},
    {"top-p 0.9, T 3", "normal", 0, 3.0f, 0, 0.9f, 0.0f, 0},
    {"top-p 0.5, T 10", "normal", 0, 10.0f, 0, 0.5f, 0.0f, 0},
    {"top-p 0.1, T 10", "normal", 0, 10.0f, 0, 0.1f, 0.0f, 0},
    {"top-p 0.01, flat", "flat", 0, 1.0f, 0, 0.01f, 0.0f, 0},
    {"min-p 0.05, T 2", "normal", 0, 2.0f, 0, 1.0f, 0.05f, 0},
    {"min-p 0.3, T 5, bf16", "normal", 2, 5.0f, 0, 1.0f, 0.3f, 0},
    {"top-k 50 + top-p 0.9", "normal", 0, 2.0f, 50, 0.9f, 0.0f, 0},
    {"top-k 50 + top-p 0.6, joint", "normal", 0, 2.0f, 50, 0.6f, 0.0f, RAFFLE_TOP_P_JOINT},
    {"top-k 50 + top-p 0.9 at T 1, drawn at T 2", "normal", 0, 2.0f, 50, 0.9f, 0.0f, RAFFLE_FILTERS_FIRST},
    {"min-p 0.1 + top-p 0.8", "normal", 0, 3.0f, 0, 0.8f, 0.1f, 0},
    {"min-p 0.1 + top-p 0.8, min-p last", "normal", 0, 3.0f, 0, 0.8f, 0.1f, RAFFLE_MIN_P_LAST},
    {"all three", "normal", 0, 2.5f, 100, 0.95f, 0.02f, 0},
    {"all three, all flags", "normal", 0, 1.5f, 100, 0.95f, 0.002f, 31},
    {"nan and masks", "nan", 0, 2.0f, 0, 0.99f, 0.0f, 0},
};

TEST(every_filter) {
    float row[999]; /* 16-bit rows use half of it */
    uint32_t allow[32];
    for (size_t i = 0; i < sizeof laws / sizeof *laws; ++i) {
        vector_row_make(laws[i].kind, 7, 999, laws[i].dtype, row);
        oracle_case c = ask_row(row, laws[i].dtype, 999);
        c.temperature = laws[i].T;
        c.top_k = laws[i].k;
        c.top_p = laws[i].p;
        c.min_p = laws[i].min_p;
        c.flags = laws[i].flags;
        c.seed = 4242 + i;
        if (!strcmp(laws[i].kind, "nan")) {
            vector_allow_make(4, 999, allow);
            c.allow = allow;
        }
        check_fit(laws[i].name, &c, 80000);
    }
}

/* Many groups, so that the choice of the group is tested as well as the choice inside it. */
TEST(large_vocabulary) {
    static float row[32000];
    vector_row_make("normal", 8, 32000, RAFFLE_F32, row);
    oracle_case c = ask_row(row, RAFFLE_F32, 32000);
    check_fit("32000 tokens, T 1", &c, 100000);
    c.temperature = 4.0f;
    check_fit("32000 tokens, T 4", &c, 100000);
    c.top_p = 0.9f;
    check_fit("32000 tokens, T 4, top-p 0.9", &c, 20000);
}

/* Steps of 2^-20 at a height of 8 and a temperature of 1e-5: exponents of a million, ratios of e^-0.095. */
TEST(tiny_temperature) {
    float row[300];
    for (int i = 0; i < 300; ++i) row[i] = 8.0f - (float)((i * 37) % 300) * 0x1p-20f;
    oracle_case c = ask_row(row, RAFFLE_F32, 300);
    c.temperature = 1e-5f;
    check_fit("T 1e-5 at height 8", &c, 200000);
    for (int i = 0; i < 300; ++i) row[i] = -1000.0f - (float)((i * 37) % 300) * 0x1p-10f;
    c.temperature = 0.01f;
    check_fit("T 0.01 at height -1000", &c, 200000);
}

/* Most of the row is in groups far below the best one's, 2^11 times and more: the tickets of their tokens lose bits. */
TEST(groups_far_below) {
    static const float shares[] = {1.0f, 0.9f, 0.6f, 0.5f, 0.4f};
    enum { VOCAB = 6000 };
    static float row[VOCAB];
    for (int i = 0; i < VOCAB; ++i) {
        const float far = -7.7f - 0.05f * (float)(i / 512) - 0.004f * (float)(i * 37 % 101);
        row[i] = i == 99 ? 0.0f : i < 256 ? -14.0f : far;
    }
    oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
    for (int i = 0; i < 5; ++i) {
        char name[40];
        snprintf(name, sizeof name, "groups far below, top-p %.1f", (double)shares[i]);
        c.top_p = shares[i];
        check_fit(name, &c, 100000);
    }
}

TEST(ties_share_evenly) {
    float row[512];
    for (int i = 0; i < 512; ++i) row[i] = i % 3 ? 5.0f : -40.0f;
    oracle_case c = ask_row(row, RAFFLE_F32, 512);
    check_fit("341 equal tokens", &c, 100000);
    c.top_k = 10;
    check_fit("341 equal tokens, top-k 10", &c, 100000);
    c.top_k = 0;
    c.top_p = 0.01f;
    check_fit("341 equal tokens, top-p 0.01", &c, 100000);
}

/* ---- a flat tail: one token at 0 and 200,000 far below, where f32 sums and capped noise fail ---- */

enum { TAIL = 200000, TAIL_DRAWS = 500000, TOGETHER = 250, WORKERS = 2, BINS = 20 };
typedef struct worker {
    const float *row;
    uint64_t first, end; /* positions */
    int64_t tail, bins[BINS], alone, differ;
} worker;

/* TOGETHER draws in a call, which cost one weighing. Each of the tail's and every eighth other is drawn again alone. */
static void *draw_tail(void *given) {
    worker *w = given;
    static const int32_t row_index[TOGETHER]; /* all of row 0 */
    oracle_case c = ask_row(w->row, RAFFLE_F32, TAIL + 1);
    uint64_t seed[TOGETHER], position[TOGETHER];
    int32_t token[TOGETHER], own;
    runner r = runner_make(RAFFLE_F32, TAIL + 1, RAFFLE_ISA_BEST);
    raffle_params params = ask_params(&c), together = raffle_params_init();
    raffle_logits logits = ask_logits(&c), shared = logits;
    raffle_result result = raffle_result_init(), results = result;
    c.seed = 99;
    together.seed = seed, together.position = position;
    shared.rows = TOGETHER, shared.row_index = row_index, shared.data_rows = 1;
    result.token = &own, results.token = token;
    for (uint64_t at = w->first; at < w->end; at += TOGETHER) {
        for (int i = 0; i < TOGETHER; ++i) seed[i] = c.seed, position[i] = at + (uint64_t)i;
        if (raffle_sample(r.plan, &shared, &together, &results, &r.launch, NULL)) abort();
        for (int i = 0; i < TOGETHER; ++i) {
            if (token[i] < 0 || token[i] > TAIL) abort();
            if (token[i] || position[i] % 8 == 0) {
                c.position = position[i];
                if (raffle_sample(r.plan, &logits, &params, &result, &r.launch, NULL)) abort();
                ++w->alone;
                w->differ += own != token[i];
            }
            if (!token[i]) continue;
            ++w->tail;
            ++w->bins[(token[i] - 1) / (TAIL / BINS)];
        }
    }
    runner_free(r);
    return NULL;
}

static void check_tail(float height) {
    float *row = malloc((TAIL + 1) * sizeof *row);
    for (int i = 0; i <= TAIL; ++i) row[i] = i ? height : 0.0f;
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < WORKERS; ++i) {
        workers[i].row = row;
        workers[i].first = (uint64_t)(TAIL_DRAWS / WORKERS * i);
        workers[i].end = workers[i].first + TAIL_DRAWS / WORKERS;
        if (pthread_create(&threads[i], NULL, draw_tail, &workers[i])) abort();
    }
    for (int i = 0; i < WORKERS; ++i) pthread_join(threads[i], NULL);
    int64_t tail = 0, alone = 0, differ = 0, bins[BINS] = {0};
    for (int i = 0; i < WORKERS * BINS; ++i) bins[i % BINS] += workers[i / BINS].bins[i % BINS];
    for (int i = 0; i < WORKERS; ++i) tail += workers[i].tail, alone += workers[i].alone, differ += workers[i].differ;
    CHECK(alone > TAIL_DRAWS / 9 && !differ, "tail at %g: %lld of %lld draws are others alone", (double)height, (long long)differ, (long long)alone);
    double weight = TAIL * exp((double)height), share = weight / (1 + weight), expected = share * TAIL_DRAWS;
    double z = ((double)tail - expected) / sqrt(expected * (1 - share));
    printf("     tail at %g: %lld draws expected %.4f, z = %.2f\n", (double)height, (long long)tail, expected, z);
    CHECK(fabs(z) < 4, "tail at %g: %lld draws, expected %.3f, z = %.2f", (double)height, (long long)tail, expected, z);
    if (expected > 100) { /* and it is spread over the whole tail */
        double chi = 0, each = (double)tail / BINS;
        for (int i = 0; i < BINS; ++i) chi += ((double)bins[i] - each) * ((double)bins[i] - each) / each;
        CHECK(gamma_q((BINS - 1) / 2.0, chi / 2) > P_LEAST, "tail at %g is not even: chi-square %g", (double)height,
              chi);
    }
    free(row);
}

TEST(flat_tail_at_18) { check_tail(-18.0f); }
TEST(flat_tail_at_30) { check_tail(-30.0f); }

int main(void) {
    RUN(chi_square_sees_errors);
    RUN(every_filter);
    RUN(large_vocabulary);
    RUN(tiny_temperature);
    RUN(groups_far_below);
    RUN(ties_share_evenly);
    RUN(flat_tail_at_18);
    RUN(flat_tail_at_30);
    return test_report("law");
}
