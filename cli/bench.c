/* bench.c - raffle bench: each route per row, beside a plain maximum over the same row, in one run. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "text.h"

enum { REPEATS_MAX = 41, TRIES = 4, CALL_ROWS = 4, ISAS_MAX = 8 };

/* One way to spend time on rows: a route, or (route NULL) the maximum. */
typedef struct contest {
    const route *route;
    const runner *runner;
    max_function max;
    const pool *pool;
    raffle_dtype dtype;
    int64_t next;    /* row of the pool to go on with, out of cache */
    int calls;       /* per repetition, in cache: enough to be longer than the clock's grain */
    int every, rows; /* slow ones take part in every n-th repetition, with fewer rows out of cache */
    int samples;
    double us[PLACES][REPEATS_MAX]; /* [samples] microseconds per row */
} contest;

static volatile float max_sink; /* so that no maximum is optimised away */
static atomic_int bench_status; /* a raffle_status */

/* Samples or maximises `rows` rows of the pool from `first`, as worker `worker`. */
static void spend(const contest *c, int worker, int64_t first, int64_t rows) {
    static const int32_t zeros[CALL_ROWS];
    int32_t token[CALL_ROWS];
    if (!c->route) {
        for (int64_t i = 0; i < rows; ++i)
            max_sink = c->max(pool_row(c->pool, PEAKED, RAFFLE_F32, first + i), c->pool->vocab);
        return;
    }
    const uint64_t position = (uint64_t)first;
    const raffle_params params = settings_params(&c->route->settings, &position, zeros);
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    logits.data = pool_row(c->pool, c->route->shape, c->dtype, first);
    logits.rows = rows;
    result.token = token;
    const raffle_status status = runner_sample(c->runner, worker, &logits, &params, &result, 0, 1, NULL);
    if (status) atomic_store(&bench_status, (int)status);
}

/* The same row again and again; microseconds per row, the best of a few tries, which another program's turn on the core
 * does not reach. Every repetition takes another row: some are harder than others. */
static double time_in_cache(const contest *c) {
    const int64_t row = c->samples % c->pool->rows;
    const int tries = c->every == 1 ? TRIES : 1;
    double best = 0;
    spend(c, 0, row, 1);
    for (int n = 0; n < tries; ++n) {
        const double start = seconds_now();
        for (int i = 0; i < c->calls; ++i) spend(c, 0, row, 1);
        const double us = (seconds_now() - start) * 1e6 / c->calls;
        if (!n || us < best) best = us;
    }
    return best;
}

/* The next rows of the pool, which were last read a whole turn ago. */
static double time_out_of_cache(contest *c) {
    if (c->next + c->rows > c->pool->rows) c->next = 0;
    const double start = seconds_now();
    spend(c, 0, c->next, c->rows);
    const double us = (seconds_now() - start) * 1e6 / c->rows;
    c->next += c->rows;
    return us;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

/* A thread that samples rows of its own part of the pool until the time is up. */
typedef struct racer {
    const contest *contest;
    int index, count;
    double seconds;
    atomic_int *go;
    double rows_per_second;
} racer;

static void *race(void *given) {
    racer *const r = given;
    const int64_t rows = r->contest->pool->rows, step = r->contest->rows;
    int64_t row = rows * r->index / r->count, done = 0;
    while (!atomic_load(r->go)) {
    }
    const double start = seconds_now();
    double now = start;
    while (now - start < r->seconds) {
        if (row + step > rows) row = 0;
        spend(r->contest, r->index, row, step);
        row += step;
        done += step;
        now = seconds_now();
    }
    r->rows_per_second = (double)done / (now - start);
    return NULL;
}

static double race_all(const contest *c, int threads, double seconds) {
    pthread_t *const thread = malloc((size_t)threads * sizeof *thread);
    racer *const racers = malloc((size_t)threads * sizeof *racers);
    atomic_int go = 0;
    int started = 0;
    double sum = 0;
    while (thread && racers && started < threads) {
        const racer made = {c, started, threads, seconds, &go, 0};
        racers[started] = made;
        if (pthread_create(&thread[started], NULL, race, &racers[started])) break;
        ++started;
    }
    atomic_store(&go, 1);
    for (int i = 0; i < started; ++i) {
        pthread_join(thread[i], NULL);
        sum += racers[i].rows_per_second;
    }
    free(racers);
    free(thread);
    return started == threads ? sum : 0;
}

typedef struct bench {
    const options *options;
    int threads, repeats;
    double race_seconds;
    max_function max;
    table table;
    int done, total; /* groups of figures */
} bench;

static void report(bench *b, contest *contests, int64_t vocab, raffle_dtype dtype, raffle_isa isa) {
    contest *const max = &contests[ROUTES];
    double max_us[PLACES];
    for (int p = 0; p < PLACES; ++p) max_us[p] = median(max->us[p], max->samples);
    for (int i = 0; i < ROUTES; ++i) {
        contest *const c = &contests[i];
        figure f = {.route = c->route, .vocab = vocab, .dtype = dtype, .isa = isa, .threads = b->threads, .beside = "max"};
        double rates[3];
        for (int p = 0; p < PLACES; ++p) {
            f.us[p] = median(c->us[p], c->samples);
            f.max_us[p] = max_us[p];
        }
        for (int n = 0; n < 3; ++n) rates[n] = race_all(c, b->threads, b->race_seconds);
        f.rows_per_second[0] = 1e6 / f.us[OUT_OF_CACHE];
        f.rows_per_second[1] = median(rates, 3);
        progress_end();
        table_add(&b->table, &f);
    }
}

/* `next` is another place for each contest, so that none finds what the one before has just read. */
static void contest_start(contest *c, const bench *b, const route *taken, const runner *own, const pool *rows,
                          raffle_dtype dtype, int64_t next) {
    c->route = taken;
    c->runner = own;
    c->max = b->max;
    c->pool = rows;
    c->dtype = dtype;
    c->next = next;
    c->calls = c->every = 1;
    double once = time_in_cache(c);
    for (int i = 0; i < 2 && once > 2000; ++i) { /* slow, or only interrupted? */
        const double again = time_in_cache(c);
        if (again < once) once = again;
    }
    c->calls = once < 50 ? (int)(50 / once) + 1 : 1;
    c->every = once < 2000 ? 1 : b->repeats / 5;
    c->rows = once < 2000 ? CALL_ROWS : 1;
}

/* All routes for one size, type and instruction set. They take turns, so that noise hits all of them and the maximum.
 */
static exit_code measure(bench *b, const pool *rows, raffle_dtype dtype, raffle_isa isa) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    runner own;
    desc.dtype = (int32_t)dtype;
    desc.isa = (int32_t)isa;
    desc.vocab = rows->vocab;
    const exit_code code = runner_open(&own, &desc, b->threads);
    if (code) return code;
    contest *const contests = calloc(ROUTES + 1, sizeof *contests);
    if (!contests) {
        runner_close(&own);
        return complain("out of memory"), EXIT_MACHINE;
    }
    for (int i = 0; i <= ROUTES; ++i)
        contest_start(&contests[i], b, i < ROUTES ? &routes[i] : NULL, &own, rows, dtype,
                      rows->rows * i / (ROUTES + 1));
    for (int n = 0; n < b->repeats; ++n) {
        for (int i = 0; i <= ROUTES; ++i)
            if (n % contests[i].every == 0) contests[i].us[IN_CACHE][contests[i].samples] = time_in_cache(&contests[i]);
        for (int i = 0; i <= ROUTES; ++i)
            if (n % contests[i].every == 0)
                contests[i].us[OUT_OF_CACHE][contests[i].samples++] = time_out_of_cache(&contests[i]);
        progress("raffle bench:", (b->done + (double)n / b->repeats) / b->total);
    }
    report(b, contests, rows->vocab, dtype, isa);
    b->done++;
    free(contests);
    runner_close(&own);
    const raffle_status status = (raffle_status)atomic_load(&bench_status);
    return status ? (complain("%s", raffle_status_name(status)), EXIT_MACHINE) : EXIT_FINE;
}

static exit_code measure_all(bench *b) {
    static const int64_t usual[] = {32000, 128256, 151936, 262144}, few[] = {32000, 128256};
    const options *const o = b->options;
    const int64_t *const sizes = o->sizes_count ? o->sizes : o->quick ? few : usual;
    const int sizes_count = o->sizes_count ? o->sizes_count : o->quick ? 2 : 4;
    raffle_isa isas[ISAS_MAX];
    const int found = isas_of(o->isas, isas), first = o->quick && !o->isas ? found - 1 : 0;
    if (!found) return EXIT_MACHINE;
    b->total = sizes_count * 2 * (found - first);
    exit_code code = EXIT_FINE;
    for (int s = 0; s < sizes_count && !code; ++s) {
        pool rows;
        code = pool_open(&rows, sizes[s], o->quick);
        for (int i = found - 1; i >= first && !code; --i) {
            code = measure(b, &rows, RAFFLE_F32, isas[i]);
            if (!code) code = measure(b, &rows, RAFFLE_BF16, isas[i]);
            progress_end();
            if (!code) code = bench_softmax(&b->table, &rows, isas[i], b->repeats);
            if (!code) code = bench_verify(&rows, isas[i]);
            if (!code) code = bench_probs(&rows, isas[i]);
            if (!code) code = bench_request(&rows, isas[i]);
        }
        pool_close(&rows);
    }
    progress_end();
    return code;
}

exit_code command_bench(const options *o) {
    if (o->backend == RAFFLE_CUDA) return bench_device(o);
    const char *max_name;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bench b = {.options = o, .repeats = o->quick ? 15 : REPEATS_MAX, .race_seconds = o->quick ? 0.01 : 0.03};
    b.max = max_best(&max_name);
    b.threads = o->threads > 0 ? (int)o->threads : cores < 1 ? 1 : cores > 1024 ? 1024 : (int)cores;
    raffle_isa isas[ISAS_MAX];
    if (!isas_of(o->isas, isas)) return EXIT_MACHINE;
    exit_code code = table_open(&b.table, o->csv, max_name, b.threads, o->quick);
    if (code) return code;
    code = measure_all(&b);
    const exit_code closed = table_close(&b.table, o->csv);
    return code ? code : closed;
}
