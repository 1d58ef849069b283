/* match.h - one batch on both sides: a CPU plan and a CUDA plan, the same rows and parameters, and the comparison. */
#ifndef RAFFLE_TESTS_MATCH_H
#define RAFFLE_TESTS_MATCH_H

#include "gpu.h"

#include "../common/batch.h"
#include "../common/pick.h"
#include "../common/weight_rows.h"

enum { ROWS_MAX = 8704, ROWS_GUARD = 64, SPACE_GUARD = 4096, POISON = 0x5a, STOP_AFTER = 20 };

/* Parameters of all slots: one copy brings them to the GPU. */
typedef struct controls {
    uint64_t seed[ROWS_MAX], position[ROWS_MAX];
    float temperature[ROWS_MAX], top_p[ROWS_MAX], min_p[ROWS_MAX];
    int32_t top_k[ROWS_MAX], slot[ROWS_MAX];
} controls;

/* Results, poisoned before a call; entries behind the batch must stay so. */
typedef struct answers {
    int32_t token[ROWS_MAX + ROWS_GUARD];
    uint32_t row_flags[ROWS_MAX + ROWS_GUARD];
    uint64_t advanced[ROWS_MAX + ROWS_GUARD];
} answers;

/* Which arrays a call gets; those left out are NULL. */
enum { HAS_SLOT = 1, HAS_TEMPERATURE = 2, HAS_TOP_P = 4, HAS_MIN_P = 8, HAS_TOP_K = 16, HAS_ALLOW = 32 };
enum { HAS_FLAGS = 64 }; /* of the results: row_flags */
enum { HAS_USUAL = HAS_TEMPERATURE | HAS_TOP_P | HAS_MIN_P | HAS_TOP_K | HAS_FLAGS };

typedef struct match {
    int dtype, input; /* input: raffle_input */
    int64_t vocab, rows_max;
    raffle_plan *cpu, *gpu;
    void *cpu_space[CREW_MAX];
    char *space; /* the CUDA workspace, a guard behind it */
    size_t space_bytes;
    /* rows */
    char *host, *device; /* the memory around them */
    size_t bytes;
    int64_t rows, stride, first; /* elements; row 0 is at element `first` */
    const char *kind[ROWS_MAX];
    uint64_t row_seed[ROWS_MAX];
    const int32_t *index, *device_index; /* row_index, or NULL: then `rows` are results, and there are so many rows: */
    int64_t data_rows;
    /* parameters */
    uint32_t flags;
    unsigned has;
    int64_t slots, allow_stride;
    controls *control, *device_control;
    uint32_t *allow, *device_allow;
    size_t allow_bytes;
    /* results */
    answers *got, *wanted, *device_answers;
    const raffle_report *cpu_report, *gpu_report; /* or NULL */
    cudaStream_t stream;
} match;

/* ---- plans ---- */

/* plan_flags: RAFFLE_PLAN_REPORT ... */
static inline match *match_make_of(int dtype, int64_t vocab, int64_t rows_max, int plan_flags, int input) {
    match *m = (match *)calloc(1, sizeof *m);
    if (!m) abort();
    m->dtype = dtype;
    m->input = input;
    m->vocab = vocab;
    m->rows_max = rows_max;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.dtype = dtype;
    desc.vocab = vocab;
    desc.flags = plan_flags;
    desc.input = input;
    MUST(raffle_plan_create(&desc, &m->cpu, &must_error));
    desc.backend = RAFFLE_CUDA;
    desc.rows_max = rows_max;
    MUST(raffle_plan_create(&desc, &m->gpu, &must_error));
    for (int i = 0; i < CREW_MAX; ++i) m->cpu_space[i] = host_alloc(raffle_plan_workspace(m->cpu));
    m->space_bytes = raffle_plan_workspace(m->gpu);
    m->space = (char *)gpu_alloc(m->space_bytes + SPACE_GUARD);
    gpu_fill(m->space, 0, m->space_bytes);
    gpu_fill(m->space + m->space_bytes, POISON, SPACE_GUARD);
    m->control = (controls *)calloc(1, sizeof(controls));
    m->device_control = (controls *)gpu_alloc(sizeof(controls));
    m->got = (answers *)host_alloc(sizeof(answers));
    m->wanted = (answers *)host_alloc(sizeof(answers));
    m->device_answers = (answers *)gpu_alloc(sizeof(answers));
    m->has = HAS_USUAL;
    CUDA(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking));
    CUDA(cudaDeviceSynchronize());
    return m;
}

static inline match *match_make_for(int dtype, int64_t vocab, int64_t rows_max, int plan_flags) {
    return match_make_of(dtype, vocab, rows_max, plan_flags, RAFFLE_LOGITS);
}
static inline match *match_make(int dtype, int64_t vocab, int64_t rows_max) { return match_make_for(dtype, vocab, rows_max, 0); }
/* Rows are probabilities: see match_fill_weights. */
static inline match *match_probs(int dtype, int64_t vocab, int64_t rows_max) { return match_make_of(dtype, vocab, rows_max, 0, RAFFLE_PROBS); }

static inline void match_drop_rows(match *m) {
    free(m->host);
    free(m->allow);
    CUDA(cudaFree(m->device));
    CUDA(cudaFree(m->device_allow));
    m->host = m->device = NULL;
    m->allow = m->device_allow = NULL;
}

static inline void match_free(match *m) {
    match_drop_rows(m);
    raffle_plan_destroy(m->cpu);
    raffle_plan_destroy(m->gpu);
    for (int i = 0; i < CREW_MAX; ++i) free(m->cpu_space[i]);
    CUDA(cudaFree(m->space));
    CUDA(cudaFree(m->device_control));
    CUDA(cudaFree(m->device_answers));
    CUDA(cudaStreamDestroy(m->stream));
    free(m->control);
    free(m->got);
    free(m->wanted);
    free(m);
}

/* ---- rows ---- */

/* Memory for rows `step` elements apart, the first `offset` elements behind an aligned address; backwards: row 0
 * is the last in memory. Everything around rows is larger than any of their logits. */
static inline void match_layout(match *m, int64_t rows, int64_t step, int64_t offset, int backwards) {
    match_drop_rows(m);
    m->rows = m->slots = rows;
    m->stride = backwards ? -step : step;
    m->first = offset + (backwards ? (rows - 1) * step : 0);
    m->bytes = (size_t)(offset + (rows - 1) * step + m->vocab + 64) * (size_t)element_bytes(m->dtype);
    m->host = (char *)host_alloc(m->bytes);
    memset(m->host, 0x7f, m->bytes);
    m->device = (char *)gpu_alloc(m->bytes);
    m->allow_stride = (m->vocab + 31) / 32 + rows % 3;
    m->allow_bytes = (size_t)(rows * m->allow_stride) * 4;
    m->allow = (uint32_t *)host_alloc(m->allow_bytes);
    m->device_allow = (uint32_t *)gpu_alloc(m->allow_bytes);
}

static inline char *match_row(const match *m, int64_t row) {
    return m->host + (m->first + row * m->stride) * element_bytes(m->dtype);
}

static inline void match_fill_some(void *given, int member, int members) {
    const match *m = (const match *)given;
    for (int64_t i = member; i < m->rows; i += members)
        if (m->kind[i]) vector_row_make(m->kind[i], m->row_seed[i], m->vocab, m->dtype, match_row(m, i));
}

/* Makes the rows that m->kind and m->row_seed name. */
static inline void match_fill(match *m) { crew_run(match_fill_some, m); }

static inline void match_fill_any(match *m, test_random *r) {
    for (int64_t i = 0; i < m->rows; ++i) {
        m->kind[i] = row_kinds[(i + (i / ROW_KINDS) * 5) % ROW_KINDS];
        m->row_seed[i] = random_bits(r) >> 40;
    }
    match_fill(m);
}

static inline void match_weights_part(void *given, int member, int members) {
    const match *m = (const match *)given;
    for (int64_t i = member; i < m->rows; i += members)
        for (int64_t t = 0; t < m->vocab; ++t)
            vector_store(match_row(m, i), m->dtype, t, float_bits(weight_at(m->kind[i], m->row_seed[i], m->vocab, t)));
}

/* Rows of probabilities and other weights. */
static inline void match_fill_weights(match *m, test_random *r) {
    for (int64_t i = 0; i < m->rows; ++i) {
        m->kind[i] = weight_kinds[random_below(r, WEIGHT_KINDS)];
        m->row_seed[i] = random_bits(r) >> 40;
    }
    crew_run(match_weights_part, m);
}

/* Rows of every kind, laid out in one of these ways. */
enum { TIGHT, ALIGNED_BACKWARDS, ODD, ODD_BACKWARDS, OVERLAPPING, LAYOUTS };

static inline void match_lay_out(match *m, int layout, int64_t rows, test_random *r) {
    const int64_t aligned = (m->vocab + 7) / 8 * 8 + 8 * random_below(r, 3), odd = m->vocab + 1 + random_below(r, 69);
    if (layout == TIGHT) match_layout(m, rows, m->vocab, 0, 0);
    if (layout == ALIGNED_BACKWARDS) match_layout(m, rows, aligned, 8 * random_below(r, 4), 1);
    if (layout == ODD) match_layout(m, rows, odd | 1, random_below(r, 64), 0);
    if (layout == ODD_BACKWARDS) match_layout(m, rows, odd, 1 + random_below(r, 7), 1);
    if (layout != OVERLAPPING) {
        match_fill_any(m, r);
        return;
    }
    /* Every row is the one before, moved by a few tokens. */
    const char *kind = row_kinds[random_below(r, ROW_KINDS)];
    const int64_t step = random_below(r, 2) ? 8 : 1 + random_below(r, 5);
    match_layout(m, rows, step, 0, 0);
    vector_row_make(kind, 1, m->vocab + (rows - 1) * step, m->dtype, m->host);
    for (int64_t i = 0; i < rows; ++i) {
        m->kind[i] = kind;
        m->row_seed[i] = 0;
    }
}

/* Copies go through the match's stream: what follows on it sees them. */
static inline void match_send_rows(match *m) {
    CUDA(cudaMemcpyAsync(m->device, m->host, m->bytes, cudaMemcpyHostToDevice, m->stream));
}

static inline void match_allow_some(void *given, int member, int members) {
    const match *m = (const match *)given;
    for (int64_t i = member; i < m->rows; i += members) {
        uint32_t *words = m->allow + i * m->allow_stride;
        uint64_t seed = vector_hash(m->control->seed[0], (uint64_t)i) >> 40;
        vector_allow_make(seed, m->vocab, words);
        if (seed % 97 == 0) memset(words, 0, (size_t)((m->vocab + 31) / 32) * 4); /* nothing allowed */
    }
}

/* Fresh masks, by the seed of slot 0, on both sides. */
static inline void match_mask(match *m) {
    memset(m->allow, 0xff, m->allow_bytes);
    crew_run(match_allow_some, m);
    CUDA(cudaMemcpyAsync(m->device_allow, m->allow, m->allow_bytes, cudaMemcpyHostToDevice, m->stream));
}

/* ---- parameters ---- */

static inline void match_pick(match *m, test_random *r) {
    controls *c = m->control;
    for (int64_t s = 0; s < m->slots; ++s) {
        c->temperature[s] = pick_temperature(r);
        c->top_k[s] = pick_top_k(r, m->vocab);
        c->top_p[s] = pick_top_p(r);
        c->min_p[s] = pick_min_p(r);
        c->seed[s] = random_bits(r);
        c->position[s] = random_bits(r) >> random_below(r, 64);
    }
    for (int64_t i = 0; i < m->rows; ++i) c->slot[i] = (int32_t)random_below(r, m->slots);
}

/* Slots in any order, none twice: there must be as many as rows. */
static inline void match_shuffle_slots(match *m, test_random *r) {
    int32_t *slot = m->control->slot;
    for (int64_t i = 0; i < m->rows; ++i) { /* row i takes the place of an earlier one, which moves to a slot of its own */
        const int64_t j = random_below(r, i + 1);
        slot[i] = slot[j];
        slot[j] = (int32_t)(i + m->slots - m->rows);
    }
}

/* Of seeds and positions: a graph keeps them, so they are the same for all calls. */
static inline uint64_t match_seed_offset(const match *m) { return (uint64_t)m->vocab * 0x9e3779b97f4a7c15u; }
static inline uint64_t match_position_offset(const match *m) { return (uint64_t)m->vocab % 3 ? (uint64_t)m->vocab << 29 : 0; }

/* The parameters as a call sees them; `c` and `allow` are host or device addresses. */
static inline raffle_params match_params(const match *m, const controls *c, const uint32_t *allow) {
    raffle_params p = raffle_params_init();
    p.flags = m->flags;
    p.slots = m->slots;
    p.slot = m->has & HAS_SLOT ? c->slot : NULL;
    p.temperature = m->has & HAS_TEMPERATURE ? c->temperature : NULL;
    p.top_p = m->has & HAS_TOP_P ? c->top_p : NULL;
    p.min_p = m->has & HAS_MIN_P ? c->min_p : NULL;
    p.top_k = m->has & HAS_TOP_K ? c->top_k : NULL;
    p.seed = c->seed;
    p.position = c->position;
    p.seed_offset = match_seed_offset(m);
    p.position_offset = match_position_offset(m);
    p.allow = m->has & HAS_ALLOW ? allow : NULL;
    p.allow_stride = m->allow_stride;
    return p;
}

/* ---- runs ---- */

static inline void match_cpu_part(void *given, int member, int members) {
    match *m = (match *)given;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = m->cpu_space[member];
    launch.workspace_bytes = raffle_plan_workspace(m->cpu);
    launch.part = member;
    launch.parts = members;
    raffle_params params = match_params(m, m->control, m->allow);
    raffle_logits logits = raffle_logits_init();
    logits.data = m->host + m->first * element_bytes(m->dtype);
    logits.rows = m->rows;
    logits.row_stride = m->stride;
    logits.row_index = m->index;
    logits.data_rows = m->data_rows;
    raffle_result result = raffle_result_init();
    result.token = m->wanted->token;
    result.row_flags = m->wanted->row_flags;
    result.report = m->cpu_report;
    raffle_error error = raffle_error_init();
    if (raffle_sample(m->cpu, &logits, &params, &result, &launch, &error)) {
        printf("the CPU says: %s\n", error.text);
        abort();
    }
}

static inline void match_run_cpu(match *m) { crew_run(match_cpu_part, m); }

/* Counts the rows of each slot, and returns whether calls advance them: each must be one row's alone. */
static inline int match_advances(const match *m, uint16_t *rows_of) {
    int alone = 1;
    memset(rows_of, 0, (ROWS_MAX + ROWS_GUARD) * sizeof *rows_of);
    for (int64_t row = 0; row < m->rows; ++row) {
        const int64_t slot = m->has & HAS_SLOT ? m->control->slot[row] : row;
        if (slot >= 0 && slot < m->slots && ++rows_of[slot] > 1) alone = 0;
    }
    return alone;
}

/* Rows [from, from + rows) with the parameters in device memory; slots say which are theirs unless from is 0. */
static inline raffle_status match_call(const match *m, int64_t from, int64_t rows, cudaStream_t stream,
                                       raffle_error *error) {
    raffle_params params = match_params(m, m->device_control, m->device_allow + from * m->allow_stride);
    if (params.slot) params.slot += from;
    raffle_logits logits = raffle_logits_init();
    logits.data = m->device + (m->first + from * m->stride) * element_bytes(m->dtype);
    logits.rows = rows;
    logits.row_stride = m->stride;
    logits.row_index = m->device_index;
    logits.data_rows = m->data_rows;
    uint16_t rows_of[ROWS_MAX + ROWS_GUARD];
    raffle_result result = raffle_result_init();
    result.token = m->device_answers->token;
    result.row_flags = m->has & HAS_FLAGS ? m->device_answers->row_flags : NULL;
    result.report = m->gpu_report;
    result.advance = match_advances(m, rows_of) ? m->device_answers->advanced : NULL;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = m->space;
    launch.workspace_bytes = m->space_bytes;
    launch.stream = stream;
    return raffle_sample(m->gpu, &logits, &params, &result, &launch, error);
}

static inline void match_send_controls(match *m) {
    CUDA(cudaMemcpyAsync(m->device_control, m->control, sizeof(controls), cudaMemcpyHostToDevice, m->stream));
    CUDA(cudaMemsetAsync(m->device_answers, POISON, sizeof(answers), m->stream));
}

static inline void match_fetch(match *m) {
    CUDA(cudaMemcpyAsync(m->got, m->device_answers, sizeof(answers), cudaMemcpyDeviceToHost, m->stream));
    CUDA(cudaStreamSynchronize(m->stream));
}

static inline void match_run_gpu(match *m) {
    match_send_controls(m);
    MUST(match_call(m, 0, m->rows, m->stream, &must_error));
    match_fetch(m);
    uint16_t rows_of[ROWS_MAX + ROWS_GUARD];
    const int advances = match_advances(m, rows_of);
    for (int64_t i = 0; i < ROWS_MAX + ROWS_GUARD; ++i)
        CHECK_EQ(m->got->advanced[i] - POISON * 0x0101010101010101u, (uint64_t)(advances ? rows_of[i] : 0));
}

/* ---- the comparison ---- */

static inline int match_hopeless(void) { return test_state.failures > STOP_AFTER; }

static inline int64_t match_source(const match *m, int64_t row) { return m->index ? m->index[row] : row; }

static inline oracle_case match_case(const match *m, int64_t row) {
    const controls *c = m->control;
    int64_t s = m->has & HAS_SLOT ? c->slot[row] : row;
    oracle_case made = {.row = match_row(m, match_source(m, row)),
                        .dtype = m->dtype,
                        .input = m->input,
                        .vocab = m->vocab,
                        .allow = m->has & HAS_ALLOW ? m->allow + row * m->allow_stride : NULL,
                        .temperature = m->has & HAS_TEMPERATURE ? c->temperature[s] : 1.0f,
                        .top_p = m->has & HAS_TOP_P ? c->top_p[s] : 1.0f,
                        .min_p = m->has & HAS_MIN_P ? c->min_p[s] : 0.0f,
                        .top_k = m->has & HAS_TOP_K ? c->top_k[s] : 0,
                        .flags = m->flags,
                        .seed = c->seed[s] + match_seed_offset(m),
                        .position = c->position[s] + match_position_offset(m)};
    return made;
}

static inline void match_print(const match *m, int64_t row) {
    oracle_case c = match_case(m, row);
    oracle_answer a = oracle_sample(&c, NULL, NULL);
    const int64_t from = match_source(m, row);
    printf("    row %lld of %lld: %s %llu vocab %lld %s T %a k %d p %a min_p %a flags %u allow %d seed %llu "
           "position %llu stride %lld first %lld; the oracle: token %d flags %u kept %lld threshold %a\n",
           (long long)row, (long long)m->rows, m->kind[from] ? m->kind[from] : "-", (unsigned long long)m->row_seed[from],
           (long long)m->vocab, dtype_names[m->dtype], (double)c.temperature, c.top_k, (double)c.top_p, (double)c.min_p,
           c.flags, c.allow != NULL, (unsigned long long)c.seed, (unsigned long long)c.position, (long long)m->stride,
           (long long)m->first, a.token, a.row_flags, (long long)a.kept_count, (double)a.threshold);
}

/* Results [0, rows) must be those of rows [from, from + rows), and nothing behind them was written. */
static inline void match_check(const match *m, int64_t from, int64_t rows, const char *how) {
    for (int64_t i = 0; i < rows; ++i) {
        int32_t token = m->wanted->token[from + i];
        uint32_t flags = m->has & HAS_FLAGS ? m->wanted->row_flags[from + i] : POISON * 0x01010101u;
        if (test_note(m->got->token[i] == token && m->got->row_flags[i] == flags)) {
            printf("%s: %s: GPU token %d flags %u, CPU token %d flags %u\n", test_state.name, how, m->got->token[i],
                   m->got->row_flags[i], token, flags);
            match_print(m, from + i);
        }
    }
    int64_t touched = 0;
    for (int64_t i = rows; i < ROWS_MAX + ROWS_GUARD; ++i)
        touched += m->got->token[i] != POISON * 0x01010101 || m->got->row_flags[i] != POISON * 0x01010101u;
    CHECK(!touched, "%s wrote %lld results behind the batch", how, (long long)touched);
}

/* Draws the batch on both, and checks it. */
static inline void match_compare(match *m, const char *how) {
    match_run_gpu(m);
    match_run_cpu(m);
    match_check(m, 0, m->rows, how);
}

/* The workspace is ready for the next call (run.cu keeps its counters, which must be zero, at the end of it), and
 * nothing behind it was written. */
static inline void match_check_space(const match *m, const char *how) {
    size_t counters = ((size_t)m->rows_max * 16 + 63) / 64 * 64, bytes = counters + SPACE_GUARD;
    unsigned char *tail = (unsigned char *)host_alloc(bytes);
    CUDA(cudaMemcpy(tail, m->space + m->space_bytes - counters, bytes, cudaMemcpyDeviceToHost));
    size_t dirty = 0, touched = 0;
    for (size_t i = 0; i < counters; ++i) dirty += tail[i] != 0;
    for (size_t i = counters; i < bytes; ++i) touched += tail[i] != POISON;
    CHECK(!dirty, "%s left %zu bytes of counters that are not zero", how, dirty);
    CHECK(!touched, "%s wrote %zu bytes behind the workspace", how, touched);
    free(tail);
}

/* ---- the oracle, for some rows ---- */

typedef struct oracle_batch {
    const match *m;
    int64_t count, row[64];
    oracle_answer answer[64];
} oracle_batch;

static inline void match_oracle_some(void *given, int member, int members) {
    oracle_batch *b = (oracle_batch *)given;
    for (int64_t i = member; i < b->count; i += members) {
        oracle_case c = match_case(b->m, b->row[i]);
        b->answer[i] = oracle_sample(&c, NULL, NULL);
    }
}

/* Compares the GPU's results of `count` rows (at most 64) with the oracle's. */
static inline void match_check_oracle(const match *m, int64_t count, test_random *r) {
    oracle_batch b;
    b.m = m;
    b.count = count;
    for (int64_t i = 0; i < count; ++i) b.row[i] = random_below(r, m->rows);
    crew_run(match_oracle_some, &b);
    for (int64_t i = 0; i < count; ++i) {
        int64_t row = b.row[i];
        uint32_t flags = m->has & HAS_FLAGS ? b.answer[i].row_flags : POISON * 0x01010101u;
        if (test_note(m->got->token[row] == b.answer[i].token && m->got->row_flags[row] == flags)) {
            printf("%s: GPU token %d flags %u, not the oracle's\n", test_state.name, m->got->token[row],
                   m->got->row_flags[row]);
            match_print(m, row);
        }
    }
}

#endif
