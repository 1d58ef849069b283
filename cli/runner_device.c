/* runner_device.c - a batch in host memory, drawn on the GPU: there, enqueue, back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "input.h"
#include "runner.h"

enum { ALIGN = 256 };

/* The arrays of a batch. */
typedef enum array {
    LOGITS,
    SLOT,
    TEMPERATURE,
    TOP_P,
    MIN_P,
    TOP_K,
    SEED,
    POSITION,
    ALLOW,
    TOKEN,
    ROW_FLAGS,
    ARRAYS
} array;

/* All of them lie in one block of device memory. */
typedef struct batch {
    const void *host[ARRAYS]; /* NULL: absent, or written by the GPU */
    size_t bytes[ARRAYS];     /* 0: absent */
    size_t start[ARRAYS], size;
    void *block;
} batch;

static void batch_add(batch *b, array which, const void *host, size_t bytes) {
    b->host[which] = host;
    b->bytes[which] = bytes;
    b->start[which] = b->size;
    b->size += (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* A parameter of the batch, which may be absent. */
static void batch_add_maybe(batch *b, array which, const void *host, size_t bytes) {
    batch_add(b, which, host, host ? bytes : 0);
}

static void *batch_at(const batch *b, array which) {
    return b->bytes[which] ? (char *)b->block + b->start[which] : NULL;
}

static batch batch_of(const runner *r, const raffle_logits *logits, const raffle_params *p, int64_t draws) {
    batch b;
    const size_t rows = (size_t)logits->rows, slots = p->slots ? (size_t)p->slots : rows;
    const size_t words = p->allow_stride ? (size_t)p->allow_stride : (size_t)(r->desc.vocab + 31) / 32;
    memset(&b, 0, sizeof b);
    batch_add(&b, LOGITS, logits->data, rows * (size_t)r->desc.vocab * dtype_bytes((raffle_dtype)r->desc.dtype));
    batch_add_maybe(&b, SLOT, p->slot, rows * sizeof *p->slot);
    batch_add_maybe(&b, TEMPERATURE, p->temperature, slots * sizeof *p->temperature);
    batch_add_maybe(&b, TOP_P, p->top_p, slots * sizeof *p->top_p);
    batch_add_maybe(&b, MIN_P, p->min_p, slots * sizeof *p->min_p);
    batch_add_maybe(&b, TOP_K, p->top_k, slots * sizeof *p->top_k);
    batch_add(&b, SEED, p->seed, slots * sizeof *p->seed);
    batch_add(&b, POSITION, p->position, (slots + (size_t)draws - 1) * sizeof *p->position);
    batch_add_maybe(&b, ALLOW, p->allow, rows * words * sizeof *p->allow);
    batch_add(&b, TOKEN, NULL, rows * (size_t)draws * sizeof(int32_t));
    batch_add(&b, ROW_FLAGS, NULL, rows * sizeof(uint32_t));
    return b;
}

static raffle_status batch_put(batch *b, raffle_error *error) {
    raffle_status status = device_new(&b->block, b->size, error);
    for (int i = 0; i < ARRAYS && !status; ++i)
        if (b->host[i]) status = device_put(batch_at(b, (array)i), b->host[i], b->bytes[i], error);
    return status;
}

static raffle_status batch_draw(const batch *b, const runner *r, const raffle_logits *logits,
                                const raffle_params *params, int64_t draws, raffle_error *error) {
    raffle_logits there = *logits;
    raffle_params p = *params;
    raffle_result result = raffle_result_init();
    raffle_status status = RAFFLE_OK;
    there.data = batch_at(b, LOGITS);
    p.slot = batch_at(b, SLOT);
    p.temperature = batch_at(b, TEMPERATURE);
    p.top_p = batch_at(b, TOP_P);
    p.min_p = batch_at(b, MIN_P);
    p.top_k = batch_at(b, TOP_K);
    p.seed = batch_at(b, SEED);
    p.allow = batch_at(b, ALLOW);
    result.row_flags = batch_at(b, ROW_FLAGS);
    for (int64_t draw = 0; draw < draws && !status; ++draw) {
        p.position = (const uint64_t *)batch_at(b, POSITION) + draw;
        result.token = (int32_t *)batch_at(b, TOKEN) + draw * logits->rows;
        status = runner_enqueue(r, &there, &p, &result, error);
    }
    return status;
}

/* A GPU only flags rows with parameters out of range. The CPU has a sentence for them, before it works: here on a
 * vocabulary of one token. */
static raffle_status params_check(const raffle_params *params, int64_t rows, raffle_error *error) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_logits logits = raffle_logits_init();
    raffle_params p = *params;
    raffle_result result = raffle_result_init();
    raffle_status status = RAFFLE_E_MEMORY;
    runner cpu;
    desc.vocab = 1;
    error->status = (int32_t)status;
    snprintf(error->text, sizeof error->text, "out of memory");
    if (runner_open(&cpu, &desc, 1)) return status;
    float *const data = calloc((size_t)rows, sizeof *data);
    p.allow = NULL;
    p.allow_stride = 0;
    logits.data = data;
    logits.rows = rows;
    result.token = calloc((size_t)rows, sizeof *result.token);
    if (data && result.token) status = runner_sample(&cpu, 0, &logits, &p, &result, 0, 1, error);
    free(result.token);
    free(data);
    runner_close(&cpu);
    return status;
}

raffle_status runner_sample_device(const runner *r, const raffle_logits *logits, const raffle_params *params,
                                   int64_t draws, const raffle_result *result, raffle_error *error) {
    raffle_status status = params_check(params, logits->rows, error);
    if (status) return status;
    batch b = batch_of(r, logits, params, draws);
    status = batch_put(&b, error);
    if (!status) status = batch_draw(&b, r, logits, params, draws, error);
    if (!status) status = device_get(result->token, batch_at(&b, TOKEN), b.bytes[TOKEN], error);
    if (!status && result->row_flags)
        status = device_get(result->row_flags, batch_at(&b, ROW_FLAGS), b.bytes[ROW_FLAGS], error);
    device_free(b.block);
    return status;
}
