/* bench.h - the parts of raffle bench. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>

#include "runner.h"

/* ---- bench_max.c: the yardsticks --------------------------------------------------------------- */

typedef float (*max_function)(const float *row, int64_t vocab);
/* The fastest plain maximum this machine has, and its name. */
max_function max_best(const char **name);
typedef void (*copy_function)(float *to, const float *row, int64_t vocab);
copy_function copy_best(void); /* with the same instructions */

/* ---- bench_rows.c: what is measured ------------------------------------------------------------ */

typedef enum shape { PEAKED = 0, FLAT = 1, SHAPES = 2 } shape;

typedef struct route {
    const char *name;
    shape shape;
    settings settings;
    double target; /* the goal of docs/speed.md: ratio to the maximum, row in cache, AVX-512 */
} route;
enum { ROUTES = 7 };
extern const route routes[ROUTES];
double route_target(const route *route, raffle_isa isa); /* 0: none */

/* Rows of one size: more of them than the last level of cache holds, so that a turn over all finds none there. */
typedef struct pool {
    int64_t vocab, rows;
    float *f32[SHAPES];     /* [rows, vocab] */
    uint16_t *bf16[SHAPES]; /* [rows, vocab] */
} pool;
exit_code pool_open(pool *pool, int64_t vocab, int quick);
void pool_close(pool *pool);
const void *pool_row(const pool *pool, shape shape, raffle_dtype dtype, int64_t row);

/* ---- bench.c, bench_device.c -------------------------------------------------------------------- */

double median(double *values, int count); /* sorts them */
/* raffle bench --backend cuda. */
exit_code bench_device(const options *options);

/* ---- bench_softmax.c: rows that are written ------------------------------------------------------- */

typedef struct table table;
/* Measures raffle_softmax and raffle_mask over rows of the pool, beside a copy of each row. */
exit_code bench_softmax(table *table, const pool *pool, raffle_isa isa, int repeats);

/* ---- bench_verify.c: speculative decoding ---------------------------------------------------------- */

/* Measures raffle_verify over rows of the pool and prints it. */
exit_code bench_verify(const pool *pool, raffle_isa isa);

/* ---- bench_probs.c: rows of probabilities ----------------------------------------------------------- */

/* Measures each route of rows of probabilities beside the same route of logits, and prints it. */
exit_code bench_probs(const pool *pool, raffle_isa isa);

/* ---- bench_request.c: everything a request can ask for ---------------------------------------------- */

/* Measures a row with masks, bias, penalties and log-probabilities beside the same row without, and prints it. */
exit_code bench_request(const pool *pool, raffle_isa isa);

/* ---- bench_table.c: what is told --------------------------------------------------------------- */

typedef enum place { IN_CACHE = 0, OUT_OF_CACHE = 1, PLACES = 2 } place;

typedef struct figure {
    const route *route;
    int64_t vocab;
    raffle_dtype dtype;
    raffle_isa isa;
    int threads;
    const char *beside;                /* what max_us is: "max", or "copy" */
    double us[PLACES], max_us[PLACES]; /* per row, one thread */
    double rows_per_second[2];         /* out of cache: one thread, all threads; 0: not measured */
} figure;

struct table {
    FILE *csv; /* or NULL */
    const char *max_name, *last_beside;
    int64_t last_vocab;
    raffle_isa last_isa;
    raffle_dtype last_dtype;
    int lines, missed, targets; /* figures above their target, figures with one */
};
exit_code table_open(table *table, const char *csv, const char *max_name, int threads, int quick);
void table_add(table *table, const figure *figure);
exit_code table_close(table *table, const char *csv);

#endif
