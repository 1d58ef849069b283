/* bench_softmax.c - the part of raffle bench about rows that are written: softmax and masks, beside a copy of the row.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "text.h"

enum { REPEATS_MAX = 64, TRIES = 4, COLD_ROWS = 4 };

typedef raffle_status (*write_function)(const raffle_plan *, const raffle_logits *, const raffle_params *,
                                        const raffle_output *, const raffle_launch *, raffle_error *);

typedef struct law_route {
    route route;
    write_function write; /* NULL: the copy */
    uint32_t flags;
} law_route;

static const law_route law_routes[] = {
    {{"copy", PEAKED, {0.8f, 1.0f, 0.0f, 0, 0, 7}, 0}, NULL, 0},
    {{"softmax", PEAKED, {0.8f, 1.0f, 0.0f, 0, 0, 7}, 2.5}, raffle_softmax, 0},
    {{"log-softmax", PEAKED, {0.8f, 1.0f, 0.0f, 0, 0, 7}, 2.5}, raffle_softmax, RAFFLE_LOG},
    {{"renorm k 50, p 0.9", PEAKED, {0.8f, 0.9f, 0.0f, 50, 0, 7}, 0}, raffle_softmax, 0},
    {{"mask k 50, p 0.9", PEAKED, {0.8f, 0.9f, 0.0f, 50, 0, 7}, 0}, raffle_mask, 0},
};
enum { LAW_ROUTES = sizeof law_routes / sizeof *law_routes };

/* The rows that are read, and as much room to write. */
typedef struct law_bench {
    const pool *pool;
    runner runner;
    raffle_dtype dtype;
    float *to; /* [rows, vocab] */
    copy_function copy;
    raffle_status status;
} law_bench;

static void spend(law_bench *b, const law_route *route, int64_t row, int64_t rows) {
    static const int32_t zeros[COLD_ROWS];
    const uint64_t position = 0;
    const int64_t vocab = b->pool->vocab;
    if (!route->write) {
        for (int64_t i = row; i < row + rows; ++i)
            b->copy(b->to + i * vocab, pool_row(b->pool, PEAKED, RAFFLE_F32, i), vocab);
        return;
    }
    const raffle_params params = settings_params(&route->route.settings, &position, zeros);
    const raffle_launch launch = runner_launch(&b->runner, 0);
    raffle_logits logits = raffle_logits_init();
    raffle_output output = raffle_output_init();
    logits.data = pool_row(b->pool, route->route.shape, b->dtype, row);
    logits.rows = rows;
    output.flags = route->flags;
    output.data = b->to + row * vocab;
    const raffle_status status = route->write(b->runner.plan, &logits, &params, &output, &launch, NULL);
    if (status) b->status = status;
}

/* The same row again and again: the best of a few tries. */
static double time_in_cache(law_bench *b, const law_route *route, int64_t row) {
    const int calls = 1 + (int)(65536 / b->pool->vocab); /* longer than the clock's grain */
    double best = 0;
    spend(b, route, row, 1);
    for (int n = 0; n < TRIES; ++n) {
        const double start = seconds_now();
        for (int i = 0; i < calls; ++i) spend(b, route, row, 1);
        const double us = (seconds_now() - start) * 1e6 / calls;
        if (!n || us < best) best = us;
    }
    return best;
}

/* Rows that were last touched a whole turn ago. */
static double time_out_of_cache(law_bench *b, const law_route *route, int64_t row) {
    const double start = seconds_now();
    spend(b, route, row, COLD_ROWS);
    return (seconds_now() - start) * 1e6 / COLD_ROWS;
}

static void measure(law_bench *b, table *table, raffle_isa isa, int repeats) {
    static double us[LAW_ROUTES][PLACES][REPEATS_MAX];
    const int64_t turns = b->pool->rows / COLD_ROWS;
    for (int n = 0; n < repeats; ++n) {
        for (int i = 0; i < LAW_ROUTES; ++i) us[i][IN_CACHE][n] = time_in_cache(b, &law_routes[i], n % b->pool->rows);
        for (int i = 0; i < LAW_ROUTES;
             ++i) /* each from another place, so that none finds what the last has just read */
            us[i][OUT_OF_CACHE][n] =
                time_out_of_cache(b, &law_routes[i], (n + turns * i / LAW_ROUTES) % turns * COLD_ROWS);
    }
    double copy[PLACES];
    for (int p = 0; p < PLACES; ++p) copy[p] = median(us[0][p], repeats);
    for (int i = 1; i < LAW_ROUTES; ++i) {
        figure f = {.route = &law_routes[i].route,
                    .vocab = b->pool->vocab,
                    .dtype = b->dtype,
                    .isa = isa,
                    .threads = 1,
                    .beside = "copy"};
        for (int p = 0; p < PLACES; ++p) {
            f.us[p] = median(us[i][p], repeats);
            f.max_us[p] = copy[p];
        }
        f.rows_per_second[0] = 1e6 / f.us[OUT_OF_CACHE];
        table_add(table, &f);
    }
}

exit_code bench_softmax(table *table, const pool *pool, raffle_isa isa, int repeats) {
    law_bench b = {.pool = pool, .copy = copy_best()};
    const size_t bytes = (size_t)(pool->rows * pool->vocab) * sizeof *b.to;
    exit_code code = EXIT_FINE;
    if (repeats > REPEATS_MAX) repeats = REPEATS_MAX;
    if (posix_memalign((void **)&b.to, 64, bytes)) return complain("out of memory for %zu bytes", bytes), EXIT_MACHINE;
    memset(b.to, 0, bytes); /* so that no page is new when it is timed */
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16 && !code; dtype += RAFFLE_BF16) {
        raffle_plan_desc desc = raffle_plan_desc_init();
        desc.vocab = pool->vocab;
        desc.isa = (int32_t)isa;
        desc.dtype = dtype;
        b.dtype = (raffle_dtype)dtype;
        code = runner_open(&b.runner, &desc, 1);
        if (code) break;
        measure(&b, table, isa, repeats);
        runner_close(&b.runner);
        if (b.status) code = (complain("raffle_softmax: %s", raffle_status_name(b.status)), EXIT_MACHINE);
    }
    free(b.to);
    return code;
}
