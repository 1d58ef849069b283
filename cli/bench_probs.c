/* bench_probs.c - the part of raffle bench about rows of probabilities: each route beside the same route of the logits that they
 * were made of. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "bench.h"
#include "picture.h"
#include "text.h"

enum { ROWS = 8, REPEATS = 31, CALLS = 4 };

/* The softmax of the pool's first rows at a temperature. */
typedef struct probs_rows {
    const pool *pool;
    int64_t rows;
    float *probs[SHAPES]; /* [rows, vocab] */
} probs_rows;

static const float temperature = 0.8f; /* that of the routes */

static exit_code rows_open(probs_rows *r, const pool *pool, const runner *logits_runner) {
    const raffle_launch launch = runner_launch(logits_runner, 0);
    raffle_params params = raffle_params_init();
    const int32_t slots[ROWS] = {0};
    raffle_status status = RAFFLE_OK;
    *r = (probs_rows){.pool = pool, .rows = pool->rows < ROWS ? pool->rows : ROWS};
    params.slots = 1;
    params.slot = slots;
    params.temperature = &temperature;
    for (int s = 0; s < SHAPES && !status; ++s) {
        raffle_logits logits = raffle_logits_init();
        raffle_output output = raffle_output_init();
        if (posix_memalign((void **)&r->probs[s], 64, (size_t)(r->rows * pool->vocab) * sizeof(float))) r->probs[s] = NULL;
        if (!r->probs[s]) return complain("not enough memory to measure probabilities"), EXIT_MACHINE;
        logits.data = pool_row(pool, (shape)s, RAFFLE_F32, 0);
        logits.rows = r->rows;
        output.data = r->probs[s];
        output.dtype = RAFFLE_F32;
        status = raffle_softmax(logits_runner->plan, &logits, &params, &output, &launch, NULL);
    }
    return status ? (complain("raffle_softmax: %s", raffle_status_name(status)), EXIT_MACHINE) : EXIT_FINE;
}

/* Draws a row a few times; microseconds for one. */
static raffle_status time_row(const runner *run, const route *route, const float *row, int weights, uint64_t position, double *us) {
    settings s = route->settings;
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    int32_t token;
    if (weights && s.temperature == 0.0f) s.top_k = 1; /* greedy */
    raffle_params params = settings_params(&s, &position, NULL);
    if (weights) params.temperature = NULL;
    logits.data = row;
    logits.rows = 1;
    result.token = &token;
    raffle_status status = runner_sample(run, 0, &logits, &params, &result, 0, 1, NULL); /* into the cache */
    const double start = seconds_now();
    for (int i = 0; i < CALLS && !status; ++i) status = runner_sample(run, 0, &logits, &params, &result, 0, 1, NULL);
    *us = (seconds_now() - start) * 1e6 / CALLS;
    return status;
}

/* Medians of a route: from probabilities, from logits. They take turns. */
static raffle_status measure(const runner *probs, const runner *logits, const probs_rows *r, const route *route, double us[2]) {
    double times[2][REPEATS];
    for (int n = 0; n < REPEATS; ++n) {
        const int64_t row = n % r->rows;
        raffle_status status = time_row(probs, route, r->probs[route->shape] + row * r->pool->vocab, 1, (uint64_t)n, &times[0][n]);
        if (!status) status = time_row(logits, route, pool_row(r->pool, route->shape, RAFFLE_F32, row), 0, (uint64_t)n, &times[1][n]);
        if (status) return status;
    }
    for (int i = 0; i < 2; ++i) us[i] = median(times[i], REPEATS);
    return RAFFLE_OK;
}

static exit_code print_routes(const runner *probs, const runner *logits, const probs_rows *r, raffle_isa isa) {
    const picture plain = picture_of_stdout(0);
    putchar('\n');
    ink_start(&plain, INK_BOLD);
    printf("%-30s %7s %-4s %-6s | %9s | %20s %6s\n", "from probabilities", "vocab", "type", "isa", "us/row", "from logits, us", "ratio");
    ink_end(&plain, INK_BOLD);
    for (int i = 0; i < ROUTES; ++i) {
        double us[2];
        const raffle_status status = measure(probs, logits, r, &routes[i], us);
        if (status) return complain("raffle_sample: %s", raffle_status_name(status)), EXIT_MACHINE;
        printf("%-30s %7lld %-4s %-6s | %9.1f | %20.1f %6.2f\n", routes[i].name, (long long)r->pool->vocab, "f32",
               raffle_isa_name(isa), us[0], us[1], us[0] / us[1]);
    }
    return EXIT_FINE;
}

exit_code bench_probs(const pool *pool, raffle_isa isa) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    runner logits, probs;
    desc.vocab = pool->vocab;
    desc.isa = (int32_t)isa;
    exit_code code = runner_open(&logits, &desc, 1);
    if (code) return code;
    desc.input = RAFFLE_PROBS;
    code = runner_open(&probs, &desc, 1);
    if (!code) {
        probs_rows rows;
        code = rows_open(&rows, pool, &logits);
        if (!code) code = print_routes(&probs, &logits, &rows, isa);
        for (int s = 0; s < SHAPES; ++s) free(rows.probs[s]);
        runner_close(&probs);
    }
    runner_close(&logits);
    return code;
}
