/* bench_device.c - raffle bench --backend cuda: a short look at each route beside a copy on the same GPU. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "device.h"
#include "input.h"
#include "picture.h"
#include "text.h"

enum { SIZES = 3, ROWS_MOST = 128, CALLS_MOST = 64, REPEATS_MOST = 41, WARM_UP = 2 };
static const int64_t batches[SIZES] = {1, 32, ROWS_MOST};
static const size_t logits_bytes = (size_t)256 << 20; /* of each shape: several times any L2 */

/* What a call reads and writes besides logits, as it lies in device memory. */
typedef struct call_arrays {
    settings settings[ROUTES];
    uint64_t position;
    int32_t slot[ROWS_MOST]; /* zeros: all rows use one entry */
    int32_t token[ROWS_MOST];
} call_arrays;

/* One size and type. */
typedef struct arena {
    FILE *csv; /* or NULL */
    runner runner;
    device_clock clock;
    int64_t rows, next; /* rows in device memory, and the one to go on with */
    size_t row_bytes;
    char *logits[SHAPES]; /* [rows, vocab], on the device */
    call_arrays *arrays;  /* on the device */
    void *scratch;        /* as much as one `logits`, on the device */
    int repeats;
    double bytes_per_us; /* read and written by a copy */
} arena;

static raffle_status arena_logits(arena *a, const pool *pool, raffle_dtype dtype, raffle_error *error) {
    raffle_status status = RAFFLE_OK;
    const size_t bytes = (size_t)a->rows * a->row_bytes;
    for (int s = 0; s < SHAPES && !status; ++s) {
        void *memory;
        status = device_new(&memory, bytes, error);
        a->logits[s] = memory;
        /* The pool may have fewer rows: then they come again, at other addresses. */
        for (int64_t row = 0; row < a->rows && !status; row += pool->rows) {
            const int64_t count = a->rows - row < pool->rows ? a->rows - row : pool->rows;
            status = device_put(a->logits[s] + (size_t)row * a->row_bytes, pool_row(pool, (shape)s, dtype, 0),
                                (size_t)count * a->row_bytes, error);
        }
    }
    return status ? status : device_new(&a->scratch, bytes, error);
}

static raffle_status arena_arrays(arena *a, raffle_error *error) {
    call_arrays host;
    void *memory;
    memset(&host, 0, sizeof host);
    for (int i = 0; i < ROUTES; ++i) host.settings[i] = routes[i].settings;
    raffle_status status = device_new(&memory, sizeof host, error);
    a->arrays = memory;
    if (!status) status = device_put(a->arrays, &host, sizeof host, error);
    return status ? status : device_clock_open(&a->clock, error);
}

static void arena_close(arena *a) {
    device_clock_close(&a->clock);
    device_free(a->scratch);
    device_free(a->arrays);
    for (int s = 0; s < SHAPES; ++s) device_free(a->logits[s]);
    runner_close(&a->runner);
}

/* The speed of a device-to-device copy, which reads and writes every byte. */
static raffle_status measure_copy(arena *a, raffle_error *error) {
    const size_t bytes = (size_t)a->rows * a->row_bytes;
    double us[REPEATS_MOST];
    raffle_status status = RAFFLE_OK;
    for (int n = -WARM_UP; n < a->repeats && !status; ++n) {
        status = device_clock_start(&a->clock, error);
        if (!status) status = device_copy(a->scratch, a->logits[PEAKED], bytes, error);
        if (!status) status = device_clock_stop(&a->clock, &us[n < 0 ? 0 : n], error);
    }
    if (!status) a->bytes_per_us = 2.0 * (double)bytes / median(us, a->repeats);
    return status;
}

/* One call over the next rows, which were last read a whole turn ago. */
static raffle_status call_next(arena *a, int route, int64_t rows, raffle_error *error) {
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    raffle_params params = settings_params(&routes[route].settings, &a->arrays->position, a->arrays->slot);
    const settings *const there = &a->arrays->settings[route];
    params.temperature = &there->temperature;
    params.top_p = &there->top_p;
    params.min_p = &there->min_p;
    params.top_k = &there->top_k;
    params.seed = &there->seed;
    if (a->next + rows > a->rows) a->next = 0;
    logits.data = a->logits[routes[route].shape] + (size_t)a->next * a->row_bytes;
    logits.rows = rows;
    result.token = a->arrays->token;
    a->next += rows;
    return runner_enqueue(&a->runner, &logits, &params, &result, error);
}

/* Microseconds per call: the median over repetitions of many launches in a row. */
static raffle_status measure_route(arena *a, int route, int64_t rows, double *per_call, raffle_error *error) {
    const int64_t turn = a->rows / rows, calls = turn < 16 ? 16 : turn < CALLS_MOST ? turn : CALLS_MOST;
    double us[REPEATS_MOST];
    raffle_status status = RAFFLE_OK;
    for (int n = -WARM_UP; n < a->repeats && !status; ++n) {
        status = device_clock_start(&a->clock, error);
        for (int64_t i = 0; i < calls && !status; ++i) status = call_next(a, route, rows, error);
        if (!status) status = device_clock_stop(&a->clock, &us[n < 0 ? 0 : n], error);
    }
    if (!status) *per_call = median(us, a->repeats) / (double)calls;
    return status;
}

static void print_head(const arena *a) {
    const picture plain = picture_of_stdout(0);
    printf("\ncopy: %.0f GB/s\n", a->bytes_per_us / 1e3);
    ink_start(&plain, INK_BOLD);
    printf("%-20s %7s %-4s", "route", "vocab", "type");
    for (int i = 0; i < SIZES; ++i) printf(" | %5s%-4lld us %7s %6s", "rows ", (long long)batches[i], "floor", "x");
    ink_end(&plain, INK_BOLD);
    putchar('\n');
}

static raffle_status measure_all(arena *a, raffle_error *error) {
    const long long vocab = (long long)a->runner.desc.vocab;
    const char *const type = dtype_names[a->runner.desc.dtype];
    raffle_status status = measure_copy(a, error);
    if (!status) print_head(a);
    for (int route = 0; route < ROUTES && !status; ++route) {
        printf("%-20s %7lld %-4s", routes[route].name, vocab, type);
        for (int i = 0; i < SIZES && !status; ++i) {
            const double floor = (double)batches[i] * (double)a->row_bytes / a->bytes_per_us;
            double us = 0;
            status = measure_route(a, route, batches[i], &us, error);
            if (status) break;
            printf(" | %12.2f %7.2f %6.2f", us, floor, us / floor);
            if (a->csv)
                fprintf(a->csv, "\"%s\",%lld,%s,%lld,%.3f,%.3f,%.3f\n", routes[route].name, vocab, type,
                        (long long)batches[i], us, floor, us / floor);
        }
        putchar('\n');
        fflush(stdout);
    }
    return status;
}

static exit_code bench_type(const options *o, FILE *csv, const pool *pool, raffle_dtype dtype, int first) {
    arena a = {.csv = csv, .repeats = o->quick ? 11 : REPEATS_MOST};
    const raffle_plan_desc desc = runner_desc(o, dtype, pool->vocab, ROWS_MOST);
    raffle_error error = raffle_error_init();
    const exit_code code = runner_open(&a.runner, &desc, 1);
    if (code) return code;
    if (first) {
        char about[160];
        raffle_plan_describe(a.runner.plan, about, sizeof about);
        about[strcspn(about, ",")] = 0;
        const unsigned version = raffle_version();
        printf("raffle %u.%u.%u, %s%s\n", version / 10000, version / 100 % 100, version % 100, about,
               o->quick ? ", quick" : "");
        printf(
            "us: microseconds per call, launched one after another, logits not in L2. floor: the time to read the\n"
            "logits once at the speed of a device-to-device copy. x: us / floor. Temperature 0.8.\n"
            "This is a short look: `make bench-cuda` measures in graphs, more sizes, warm and cold, against goals.\n");
    }
    a.row_bytes = (size_t)pool->vocab * dtype_bytes(dtype);
    a.rows = (int64_t)(logits_bytes / a.row_bytes);
    if (a.rows < 2 * ROWS_MOST) a.rows = 2 * ROWS_MOST;
    raffle_status status = arena_logits(&a, pool, dtype, &error);
    if (!status) status = arena_arrays(&a, &error);
    if (!status) status = measure_all(&a, &error);
    arena_close(&a);
    return status ? complain_of(&error) : EXIT_FINE;
}

exit_code bench_device(const options *o) {
    static const int64_t usual[] = {128256};
    static const raffle_dtype dtypes[] = {RAFFLE_F32, RAFFLE_BF16};
    const int64_t *const sizes = o->sizes_count ? o->sizes : usual;
    const int count = o->sizes_count ? o->sizes_count : 1;
    FILE *const csv = o->csv ? fopen(o->csv, "w") : NULL;
    if (o->csv && !csv) return complain("%s: %s", o->csv, strerror(errno)), EXIT_MACHINE;
    if (csv) fprintf(csv, "route,vocab,dtype,rows,us,floor_us,ratio\n");
    exit_code code = EXIT_FINE;
    for (int i = 0; i < count && !code; ++i) {
        pool pool;
        code = pool_open(&pool, sizes[i], o->quick);
        for (int t = 0; t < 2 && !code; ++t) code = bench_type(o, csv, &pool, dtypes[t], !i && !t);
        pool_close(&pool);
    }
    const int failed = csv && ferror(csv);
    if (csv && (fclose(csv) || failed)) {
        complain("%s: %s", o->csv, strerror(errno));
        if (!code) code = EXIT_MACHINE;
    }
    return code;
}
