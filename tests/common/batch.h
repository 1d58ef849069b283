/* batch.h - a batch of made rows with parameters, and ways to run it through the library. */
#ifndef RAFFLE_TESTS_BATCH_H
#define RAFFLE_TESTS_BATCH_H

#include <stdint.h>
#include <stdlib.h>

#include "raffle/raffle.h"

#include "../oracle/oracle.h"
#include "../vectors/vector_rows.h"
#include "test.h"

enum { BATCH_ROWS_MAX = 64, ISA_COUNT = 4, GUARD = 0x5a };

static const raffle_isa every_isa[ISA_COUNT] = {RAFFLE_ISA_SCALAR, RAFFLE_ISA_AVX2, RAFFLE_ISA_AVX512, RAFFLE_ISA_NEON};
static const char *const dtype_names[3] = {"f32", "f16", "bf16"};
static const char *const row_kinds[] = {"normal",     "peaked", "flat",  "constant", "two",  "ascending",
                                        "descending", "spiky",  "ties",  "tiny",     "huge", "nan",
                                        "inf",        "masked", "empty", "narrow"};
enum { ROW_KINDS = sizeof row_kinds / sizeof *row_kinds };

static inline int64_t element_bytes(int dtype) { return dtype == RAFFLE_F32 ? 4 : 2; }

static inline void *test_alloc(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) abort();
    return p;
}

/* A plan with a workspace. */
typedef struct runner {
    raffle_plan *plan;
    raffle_launch launch;
} runner;

static inline runner runner_open(const raffle_plan_desc *desc) {
    runner r = {NULL, raffle_launch_init()};
    raffle_error error = raffle_error_init();
    if (raffle_plan_create(desc, &r.plan, &error)) {
        fprintf(stderr, "raffle_plan_create: %s\n", error.text);
        abort();
    }
    r.launch.workspace_bytes = raffle_plan_workspace(r.plan);
    r.launch.workspace = test_alloc(r.launch.workspace_bytes);
    memset(r.launch.workspace, 0xa7, r.launch.workspace_bytes);
    return r;
}

static inline runner runner_make_for(int dtype, int64_t vocab, raffle_isa isa, int flags, int64_t history_max) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.dtype = dtype;
    desc.vocab = vocab;
    desc.isa = isa;
    desc.flags = flags;
    desc.history_max = history_max;
    return runner_open(&desc);
}

static inline runner runner_make(int dtype, int64_t vocab, raffle_isa isa) {
    return runner_make_for(dtype, vocab, isa, 0, 0);
}

static inline void runner_free(runner r) {
    raffle_plan_destroy(r.plan);
    free(r.launch.workspace);
}

/* Rows of one shape. Slot s holds row s's parameters; runs may visit rows in another order through `slot`. */
typedef struct batch {
    int64_t vocab, rows, stride, words;
    int dtype;
    uint32_t flags;
    char *memory, *data; /* data: anywhere in memory, any alignment */
    const char *kind[BATCH_ROWS_MAX];
    uint64_t row_seed[BATCH_ROWS_MAX];
    float temperature[BATCH_ROWS_MAX], top_p[BATCH_ROWS_MAX], min_p[BATCH_ROWS_MAX];
    int32_t top_k[BATCH_ROWS_MAX];
    uint64_t seed[BATCH_ROWS_MAX], position[BATCH_ROWS_MAX];
    uint32_t *allow; /* [rows, words] or NULL */
    raffle_extra *extra;       /* [rows] or NULL, as below */
    const raffle_state *state; /* its slot i has row i's history */
    oracle_answer wanted[BATCH_ROWS_MAX];
} batch;

static inline const void *batch_row(const batch *b, int64_t row) {
    return b->data + row * b->stride * element_bytes(b->dtype);
}

/* Memory for the rows; everything between and around them is +inf and NaN, which must never be seen. */
static inline void batch_alloc(batch *b, int64_t rows, int64_t vocab, int dtype, int64_t padding,
                               int64_t offset_bytes) {
    int64_t bytes;
    b->rows = rows;
    b->vocab = vocab;
    b->dtype = dtype;
    b->stride = vocab + padding;
    b->words = (vocab + 31) / 32;
    b->allow = NULL;
    b->extra = NULL;
    b->state = NULL;
    bytes = (rows * b->stride + 64) * element_bytes(dtype) + offset_bytes;
    b->memory = test_alloc((size_t)bytes);
    b->data = b->memory + offset_bytes;
    memset(b->memory, 0x7f, (size_t)bytes);
    for (int64_t i = 0; i < (bytes - offset_bytes) / element_bytes(dtype); ++i)
        if (i % 3) vector_store(b->data, dtype, i, 0x7f800000u);
}

/* Masks of most tokens, without some whole groups; every third row has one of few. */
static inline void batch_allow(batch *b, test_random *r) {
    b->allow = malloc((size_t)(b->rows * b->words) * 4);
    for (int64_t i = 0; i < b->rows * b->words; ++i) {
        b->allow[i] = (uint32_t)(random_bits(r) | random_bits(r));
        if (i / 8 % 11 == 5) b->allow[i] = 0; /* a whole group */
        if (i / b->words % 3 == 2) b->allow[i] = random_below(r, 50) ? 0 : 1u << random_below(r, 32);
    }
}

static inline void batch_free(batch *b) {
    free(b->memory);
    free(b->allow);
}

static inline oracle_case batch_case(const batch *b, int64_t row) {
    oracle_case c = {.row = batch_row(b, row),
                     .dtype = b->dtype,
                     .vocab = b->vocab,
                     .allow = b->allow ? b->allow + row * b->words : NULL,
                     .temperature = b->temperature[row],
                     .top_p = b->top_p[row],
                     .min_p = b->min_p[row],
                     .top_k = b->top_k[row],
                     .flags = b->flags,
                     .seed = b->seed[row],
                     .position = b->position[row]};
    if (b->extra) c.extra = &b->extra[row];
    if (b->state) c.history = raffle_state_history(b->state, row, &c.prompt_length, &c.history_length);
    return c;
}

static inline void batch_ask_oracle(batch *b) {
    for (int64_t i = 0; i < b->rows; ++i) {
        oracle_case c = batch_case(b, i);
        b->wanted[i] = oracle_sample(&c, NULL, NULL);
    }
}

static inline raffle_logits batch_logits(const batch *b) {
    raffle_logits logits = raffle_logits_init();
    logits.data = b->data;
    logits.rows = b->rows;
    logits.row_stride = b->stride;
    return logits;
}

static inline raffle_params batch_params(const batch *b) {
    raffle_params p = raffle_params_init();
    p.flags = b->flags;
    p.slots = b->rows;
    p.temperature = b->temperature;
    p.top_p = b->top_p;
    p.min_p = b->min_p;
    p.top_k = b->top_k;
    p.seed = b->seed;
    p.position = b->position;
    p.allow = b->allow;
    p.extra = b->extra;
    p.extra_bytes = b->extra ? (int64_t)sizeof *b->extra : 0;
    p.state = b->state;
    return p;
}

static inline void batch_print(const batch *b, int64_t i) {
    printf("    row %lld: %s %llu vocab %lld %s T %a k %d p %a min_p %a flags %u allow %d seed %llu position %llu\n",
           (long long)i, b->kind[i], (unsigned long long)b->row_seed[i], (long long)b->vocab, dtype_names[b->dtype],
           (double)b->temperature[i], b->top_k[i], (double)b->top_p[i], (double)b->min_p[i], b->flags, b->allow != NULL,
           (unsigned long long)b->seed[i], (unsigned long long)b->position[i]);
}

/* Results, poisoned before the call and guarded behind it. */
typedef struct outputs {
    int32_t token[BATCH_ROWS_MAX + 8];
    uint32_t row_flags[BATCH_ROWS_MAX + 8];
    raffle_result result;
} outputs;

static inline void outputs_poison(outputs *o) {
    memset(o->token, GUARD, sizeof o->token);
    memset(o->row_flags, GUARD, sizeof o->row_flags);
    o->result = raffle_result_init();
    o->result.token = o->token;
    o->result.row_flags = o->row_flags;
}

/* Result i must be batch row order[i]'s (NULL: row i's), bit for bit, and nothing behind the last was written. */
static inline void outputs_check(const outputs *o, const batch *b, const int32_t *order, const char *how) {
    for (int64_t i = 0; i < b->rows; ++i) {
        int64_t row = order ? order[i] : i;
        const oracle_answer *w = &b->wanted[row];
        if (test_note(o->token[i] == w->token && o->row_flags[i] == w->row_flags)) {
            printf("%s: %s: token %d flags %u, oracle %d flags %u\n", test_state.name, how, o->token[i],
                   o->row_flags[i], w->token, w->row_flags);
            batch_print(b, row);
        }
    }
    int32_t guard;
    memset(&guard, GUARD, sizeof guard);
    for (int64_t i = b->rows; i < b->rows + 8; ++i)
        CHECK(o->token[i] == guard && o->row_flags[i] == (uint32_t)guard, "%s wrote behind its results", how);
}

#endif
