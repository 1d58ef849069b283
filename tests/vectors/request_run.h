/* request_run.h - runs a line of requests.txt through the library, with the public header alone. */
#ifndef RAFFLE_TESTS_REQUEST_RUN_H
#define RAFFLE_TESTS_REQUEST_RUN_H

#include "request_file.h"
#include "vector_rows.h"

/* A line's row, mask and memory for the call. */
typedef struct request_memory {
    void *row, *workspace;
    uint32_t *allow;
    float *value; /* [vocab] */
    raffle_state state;
} request_memory;

static inline void *request_aligned(size_t bytes) {
    const size_t align = RAFFLE_WORKSPACE_ALIGN;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static inline raffle_status request_memory_make(request_memory *m, const request_vector *v, const raffle_plan *plan,
                                                raffle_error *error) {
    raffle_tokens tokens = raffle_tokens_init();
    const int32_t output = v->length - v->prompt;
    m->row = malloc((size_t)v->vocab * 4);
    m->allow = malloc((size_t)(v->vocab + 31) / 32 * 4);
    m->value = malloc((size_t)v->vocab * 4);
    m->workspace = request_aligned(raffle_plan_workspace(plan));
    m->state = raffle_state_init();
    m->state.slots = 1;
    m->state.history_max = 2 * REQUEST_LIST_MAX;
    m->state.vocab = v->vocab;
    m->state.memory = request_aligned(raffle_state_bytes(&m->state));
    if (!m->row || !m->allow || !m->value || !m->workspace || !m->state.memory) return RAFFLE_E_MEMORY;
    vector_row_make(v->kind, v->row_seed, v->vocab, v->dtype, m->row);
    vector_allow_make(v->allow_seed, v->vocab, m->allow);
    tokens.rows = 1;
    tokens.stride = 2 * REQUEST_LIST_MAX;
    tokens.token = v->history;
    tokens.count = &v->prompt;
    raffle_status status = raffle_state_clear(&m->state, NULL, error);
    if (!status) status = raffle_state_prompt(&m->state, &tokens, error);
    tokens.token = v->history + v->prompt;
    tokens.count = &output;
    return status ? status : raffle_state_accept(&m->state, &tokens, error);
}

static inline void request_memory_free(request_memory *m) {
    free(m->row);
    free(m->allow);
    free(m->value);
    free(m->workspace);
    free(m->state.memory);
}

/* The call that a line is of. */
static inline raffle_params request_params(const request_vector *v, const request_memory *m) {
    raffle_params params = raffle_params_init();
    params.flags = v->flags, params.temperature = &v->temperature, params.top_k = &v->top_k, params.top_p = &v->top_p;
    params.min_p = &v->min_p, params.seed = &v->seed, params.position = &v->position;
    params.allow = v->allow_seed ? m->allow : NULL;
    params.extra = &v->extra, params.extra_bytes = sizeof v->extra, params.state = &m->state;
    return params;
}

/* raffle_sample of a plan, in whatever way. */
typedef raffle_status (*request_sample)(const void *plan, const raffle_logits *, const raffle_params *, const raffle_result *,
                                        raffle_error *);

/* Samples with a report at each point. *same: all is as the line says. */
static inline raffle_status request_compare_told(const request_vector *v, const request_memory *m, request_sample sample,
                                                 const void *plan, int *same, raffle_error *error) {
    raffle_logits logits = raffle_logits_init();
    const raffle_params params = request_params(v, m);
    raffle_status status = RAFFLE_OK;
    logits.data = m->row, logits.rows = 1;
    for (int point = RAFFLE_RAW; point <= RAFFLE_FILTERED && !status; ++point) {
        float chosen = 0, entropy = 0;
        int32_t token = -2, rank = -1;
        uint32_t row_flags = 0;
        raffle_result result = raffle_result_init();
        raffle_report report = raffle_report_init();
        report.point = point, report.chosen = &chosen, report.rank = &rank, report.entropy = &entropy;
        result.token = &token, result.row_flags = &row_flags, result.report = &report;
        status = sample(plan, &logits, &params, &result, error);
        const request_told *t = &v->told[point];
        *same &= token == v->token && row_flags == v->row_flags && request_bits(chosen) == t->chosen &&
                 rank == t->rank && request_bits(entropy) == t->entropy;
    }
    return status;
}

/* A plan of the CPU and its workspace. */
typedef struct request_plan {
    const raffle_plan *plan;
    raffle_launch launch;
} request_plan;

static inline raffle_status request_sample_cpu(const void *plan, const raffle_logits *logits, const raffle_params *params,
                                               const raffle_result *result, raffle_error *error) {
    const request_plan *p = plan;
    return raffle_sample(p->plan, logits, params, result, &p->launch, error);
}

/* The same, and writes the law. */
static inline raffle_status request_compare(const request_vector *v, const request_memory *m, const raffle_plan *plan,
                                            int *same, raffle_error *error) {
    raffle_logits logits = raffle_logits_init();
    const raffle_params params = request_params(v, m);
    raffle_launch launch = raffle_launch_init();
    launch.workspace = m->workspace, launch.workspace_bytes = raffle_plan_workspace(plan);
    logits.data = m->row, logits.rows = 1;
    const request_plan cpu = {plan, launch};
    raffle_status status = request_compare_told(v, m, request_sample_cpu, &cpu, same, error);
    for (int log = 0; log < 2 && !status; ++log) {
        raffle_output output = raffle_output_init();
        output.data = m->value;
        output.flags = log ? RAFFLE_LOG : 0;
        status = raffle_softmax(plan, &logits, &params, &output, &launch, error);
        *same &= request_hash(m->value, v->vocab) == (log ? v->log : v->law);
    }
    return status;
}

/* The plan that a line needs. */
static inline raffle_plan_desc request_desc_of(const request_vector *v) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.dtype = v->dtype;
    desc.vocab = v->vocab;
    desc.flags = RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT;
    desc.history_max = 2 * REQUEST_LIST_MAX;
    return desc;
}

static inline raffle_status request_run(const request_vector *v, raffle_isa isa, int *same, raffle_error *error) {
    raffle_plan_desc desc = request_desc_of(v);
    raffle_plan *plan;
    request_memory memory = {0};
    desc.isa = (int32_t)isa;
    *same = 1;
    raffle_status status = raffle_plan_create(&desc, &plan, error);
    if (status) return status;
    status = request_memory_make(&memory, v, plan, error);
    if (!status) status = request_compare(v, &memory, plan, same, error);
    request_memory_free(&memory);
    raffle_plan_destroy(plan);
    return status;
}

#endif
