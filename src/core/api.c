/* api.c - the public functions: check, then hand on to the plan's backend. */
#include <stdlib.h>
#include <string.h>

#include "args.h"

raffle_status raffle_plan_create(const raffle_plan_desc *desc, raffle_plan **plan, raffle_error *error) {
    raffle_plan made;
    memset(&made, 0, sizeof made);
    if (!plan) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "plan is NULL");
    *plan = NULL;
    raffle_status status = raffle_check_desc(desc, &made.desc, error);
    if (status) return status;
    made.backend = made.desc.backend == RAFFLE_CUDA ? &raffle_backend_cuda : &raffle_backend_cpu;
    status = made.backend->create(&made, error);
    if (status) return status;
    raffle_plan *kept = malloc(sizeof *kept);
    if (!kept) {
        made.backend->destroy(&made);
        return raffle_fail(error, RAFFLE_E_MEMORY, -1, "out of memory for a plan of %zu bytes", sizeof *kept);
    }
    *kept = made;
    *plan = kept;
    return RAFFLE_OK;
}

void raffle_plan_destroy(raffle_plan *plan) {
    if (plan) plan->backend->destroy(plan);
    free(plan);
}

size_t raffle_plan_workspace(const raffle_plan *plan) { return plan ? plan->workspace_bytes : 0; }

size_t raffle_plan_describe(const raffle_plan *plan, char *text, size_t bytes) {
    if (bytes && text) text[0] = 0;
    return plan ? plan->backend->describe(plan, text, text ? bytes : 0) : 0;
}

raffle_status raffle_sample(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                            const raffle_result *result, const raffle_launch *launch, raffle_error *error) {
    call call;
    if (!result) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "raffle_result is NULL");
    raffle_status status = raffle_check_call(plan, logits, params, result, launch, NEEDS_SEED, &call, error);
    return status ? status : plan->backend->sample(plan, &call, error);
}

raffle_status raffle_draft(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                           const raffle_result *result, const raffle_drafted *drafted, const raffle_launch *launch,
                           raffle_error *error) {
    call call;
    if (!result) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "raffle_result is NULL");
    raffle_status status = raffle_check_call(plan, logits, params, result, launch, NEEDS_SEED, &call, error);
    if (!status) status = raffle_check_drafted(plan, drafted, &call, error);
    return status ? status : plan->backend->sample(plan, &call, error);
}

static raffle_status write(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                           const raffle_output *output, const raffle_launch *launch, output_form form, raffle_error *error) {
    call call;
    raffle_status status = raffle_check_call(plan, logits, params, NULL, launch, 0, &call, error);
    if (!status) status = raffle_check_output(plan, output, form, &call, error);
    return status ? status : plan->backend->write(plan, &call, error);
}

raffle_status raffle_softmax(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                             const raffle_output *output, const raffle_launch *launch, raffle_error *error) {
    return write(plan, logits, params, output, launch, FORM_PROBABILITY, error);
}

raffle_status raffle_mask(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                          const raffle_output *output, const raffle_launch *launch, raffle_error *error) {
    return write(plan, logits, params, output, launch, FORM_LOGIT, error);
}

raffle_status raffle_explain(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params, int64_t row,
                             raffle_explanation *explanation, const raffle_launch *launch, raffle_error *error) {
    call call;
    raffle_status status = raffle_check_call(plan, logits, params, NULL, launch, NEEDS_SEED, &call, error);
    if (!status) status = raffle_check_explanation(explanation, error);
    if (status) return status;
    if (row < 0 || row >= call.logits.rows)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "row is %lld: the batch has %lld", (long long)row,
                           (long long)call.logits.rows);
    return plan->backend->explain(plan, &call, row, explanation, error);
}

raffle_status raffle_verify(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                            const raffle_drafts *drafts, const raffle_verified *verified, const raffle_launch *launch,
                            raffle_error *error) {
    verify_call call;
    raffle_status status = raffle_check_verify(plan, logits, params, drafts, verified, launch, &call, error);
    return status ? status : plan->backend->verify(plan, &call, error);
}

uint32_t raffle_version(void) {
    return RAFFLE_VERSION_MAJOR * 10000 + RAFFLE_VERSION_MINOR * 100 + RAFFLE_VERSION_PATCH;
}

const char *raffle_status_name(raffle_status status) {
    switch (status) {
    case RAFFLE_OK: return "RAFFLE_OK";
    case RAFFLE_E_ARGUMENT: return "RAFFLE_E_ARGUMENT";
    case RAFFLE_E_STRUCT: return "RAFFLE_E_STRUCT";
    case RAFFLE_E_UNSUPPORTED: return "RAFFLE_E_UNSUPPORTED";
    case RAFFLE_E_WORKSPACE: return "RAFFLE_E_WORKSPACE";
    case RAFFLE_E_MEMORY: return "RAFFLE_E_MEMORY";
    case RAFFLE_E_DEVICE: return "RAFFLE_E_DEVICE";
    }
    return "unknown status";
}
