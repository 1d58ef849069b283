/* runner_device.c - a batch in host memory, drawn from or written on the GPU: there, enqueue, back. */
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
    DATA, /* of rows that are written */
    KEPT,
    COUNT,
    EXTRA, /* the request's, and its lists in the order of extra_lists */
    BIAS_ID,
    BIAS,
    BANNED,
    ALLOWED,
    STOP,
    BREAKER,
    WORDS,
    STATE,
    CHOSEN, /* the report's, in the order of report_arrays */
    RANK,
    ENTROPY,
    TOP_TOKEN,
    TOP,
    ARRAYS
} array;

/* All of them lie in one block of device memory. */
typedef struct batch {
    const void *host[ARRAYS]; /* NULL: absent, or written by the GPU */
    size_t bytes[ARRAYS];     /* 0: absent */
    size_t start[ARRAYS], size;
    void *block;
    raffle_extra extra; /* as the GPU reads it */
    raffle_state state;
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

/* Pointers of a struct, told by their places in it; all of them have entries of 4 bytes. */
static void *pointer_at(const void *structure, size_t place) {
    void *pointer;
    memcpy(&pointer, (const char *)structure + place, sizeof pointer);
    return pointer;
}

static void pointer_set(void *structure, size_t place, void *pointer) {
    memcpy((char *)structure + place, &pointer, sizeof pointer);
}

#define LIST(pointer, count) {offsetof(raffle_extra, pointer), offsetof(raffle_extra, count)}
static const struct {
    size_t pointer, count;
} extra_lists[] = {LIST(bias_id, bias_count),       LIST(bias, bias_count), LIST(banned, banned_count),
                   LIST(allowed, allowed_count),    LIST(stop, stop_count), LIST(breaker, breaker_count),
                   LIST(bad_words, bad_words_count)};
enum { EXTRA_LISTS = sizeof extra_lists / sizeof *extra_lists };

static const size_t report_arrays[] = {offsetof(raffle_report, chosen), offsetof(raffle_report, rank),
                                       offsetof(raffle_report, entropy), offsetof(raffle_report, top_token),
                                       offsetof(raffle_report, top)};
enum { REPORT_ARRAYS = sizeof report_arrays / sizeof *report_arrays };

/* What the one request of a run asks for beyond the parameters, and what is to be told of `tokens` tokens. */
static void batch_add_request(batch *b, const raffle_params *p, const raffle_report *report, size_t tokens) {
    const raffle_extra none = {0};
    b->extra = p->extra ? *p->extra : none;
    batch_add_maybe(b, EXTRA, p->extra, sizeof *p->extra); /* batch_put has the image with pointers of the GPU */
    for (int i = 0; i < EXTRA_LISTS; ++i) {
        int32_t count;
        memcpy(&count, (const char *)&b->extra + extra_lists[i].count, sizeof count);
        batch_add_maybe(b, (array)(BIAS_ID + i), pointer_at(&b->extra, extra_lists[i].pointer), (size_t)count * 4);
    }
    if (p->state) b->state = *p->state;
    batch_add(b, STATE, p->state ? p->state->memory : NULL, p->state ? raffle_state_bytes(p->state) : 0);
    for (int i = 0; i < REPORT_ARRAYS; ++i) {
        const size_t each = CHOSEN + i < TOP_TOKEN ? 1 : report ? (size_t)report->top_count : 0;
        const void *const there = report ? pointer_at(report, report_arrays[i]) : NULL;
        batch_add(b, (array)(CHOSEN + i), NULL, there ? tokens * each * 4 : 0);
    }
}

static batch batch_of(const runner *r, const raffle_logits *logits, const raffle_params *p, int64_t draws,
                      const raffle_report *report) {
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
    batch_add_request(&b, p, report, rows * (size_t)draws);
    return b;
}

static raffle_status batch_put(batch *b, const runner *r, raffle_error *error) {
    raffle_status status = device_new(&b->block, b->size, error);
    for (int i = 0; i < EXTRA_LISTS; ++i) pointer_set(&b->extra, extra_lists[i].pointer, batch_at(b, (array)(BIAS_ID + i)));
    if (b->bytes[EXTRA]) b->host[EXTRA] = &b->extra;
    b->state.backend = RAFFLE_CUDA;
    b->state.device = r->desc.device;
    b->state.memory = batch_at(b, STATE);
    for (int i = 0; i < ARRAYS && !status; ++i)
        if (b->host[i]) status = device_put(batch_at(b, (array)i), b->host[i], b->bytes[i], error);
    return status;
}

/* The parameters where the GPU reads them, but for position. */
static raffle_params batch_params(const batch *b, const raffle_params *params) {
    raffle_params p = *params;
    p.slot = batch_at(b, SLOT);
    p.temperature = batch_at(b, TEMPERATURE);
    p.top_p = batch_at(b, TOP_P);
    p.min_p = batch_at(b, MIN_P);
    p.top_k = batch_at(b, TOP_K);
    p.seed = batch_at(b, SEED);
    p.allow = batch_at(b, ALLOW);
    p.extra = batch_at(b, EXTRA);
    p.state = b->bytes[STATE] ? &b->state : NULL;
    return p;
}

static raffle_status batch_draw(const batch *b, const runner *r, const raffle_logits *logits,
                                const raffle_params *params, int64_t draws, const raffle_report *told,
                                raffle_error *error) {
    raffle_logits there = *logits;
    raffle_params p = batch_params(b, params);
    raffle_result result = raffle_result_init();
    raffle_report report = told ? *told : raffle_report_init(), part;
    raffle_status status = RAFFLE_OK;
    there.data = batch_at(b, LOGITS);
    result.row_flags = batch_at(b, ROW_FLAGS);
    for (int i = 0; i < REPORT_ARRAYS; ++i) pointer_set(&report, report_arrays[i], batch_at(b, (array)(CHOSEN + i)));
    result.report = told ? &part : NULL;
    for (int64_t draw = 0; draw < draws && !status; ++draw) {
        p.position = (const uint64_t *)batch_at(b, POSITION) + draw;
        result.token = (int32_t *)batch_at(b, TOKEN) + draw * logits->rows;
        if (told) part = report_from(&report, draw * logits->rows);
        status = runner_enqueue(r, &there, &p, &result, error);
    }
    return status;
}

/* A GPU only flags rows with parameters out of range. The CPU has a sentence for them, before it works: here on a
 * vocabulary of one token. What a request asks for beyond them has been checked when it was read. */
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
    p.extra = NULL;
    p.extra_bytes = 0;
    p.state = NULL;
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
    batch b = batch_of(r, logits, params, draws, result->report);
    status = batch_put(&b, r, error);
    if (!status) status = batch_draw(&b, r, logits, params, draws, result->report, error);
    if (!status) status = device_get(result->token, batch_at(&b, TOKEN), b.bytes[TOKEN], error);
    if (!status && result->row_flags)
        status = device_get(result->row_flags, batch_at(&b, ROW_FLAGS), b.bytes[ROW_FLAGS], error);
    for (int i = 0; i < REPORT_ARRAYS && !status; ++i)
        if (b.bytes[CHOSEN + i])
            status = device_get(pointer_at(result->report, report_arrays[i]), batch_at(&b, (array)(CHOSEN + i)),
                                b.bytes[CHOSEN + i], error);
    device_free(b.block);
    return status;
}

raffle_status runner_write_device(const runner *r, const write_job *job, raffle_error *error) {
    const raffle_output *const o = &job->output;
    const size_t rows = (size_t)job->logits.rows, vocab = (size_t)r->desc.vocab;
    raffle_status status = params_check(&job->params, job->logits.rows, error);
    if (status) return status;
    batch b = batch_of(r, &job->logits, &job->params, 1, NULL);
    batch_add(&b, DATA, NULL, o->data ? rows * vocab * dtype_bytes((raffle_dtype)o->dtype) : 0);
    batch_add(&b, KEPT, NULL, o->kept ? rows * ((vocab + 31) / 32) * sizeof *o->kept : 0);
    batch_add(&b, COUNT, NULL, o->kept_count ? rows * sizeof *o->kept_count : 0);
    status = batch_put(&b, r, error);
    raffle_logits logits = job->logits;
    raffle_params params = batch_params(&b, &job->params);
    raffle_output output = *o;
    const raffle_launch launch = runner_launch(r, 0);
    logits.data = batch_at(&b, LOGITS);
    params.position = batch_at(&b, POSITION);
    output.data = batch_at(&b, DATA);
    output.kept = batch_at(&b, KEPT);
    output.kept_count = batch_at(&b, COUNT);
    output.row_flags = batch_at(&b, ROW_FLAGS);
    if (!status) status = (job->mask ? raffle_mask : raffle_softmax)(r->plan, &logits, &params, &output, &launch, error);
    const struct {
        array which;
        void *to;
    } back[] = {{DATA, o->data}, {KEPT, o->kept}, {COUNT, o->kept_count}, {ROW_FLAGS, o->row_flags}};
    for (int i = 0; i < 4 && !status; ++i)
        if (back[i].to && b.bytes[back[i].which])
            status = device_get(back[i].to, batch_at(&b, back[i].which), b.bytes[back[i].which], error);
    device_free(b.block);
    return status;
}
