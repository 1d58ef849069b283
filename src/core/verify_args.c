/* verify_args.c - the checks of raffle_verify. */
#include <string.h>

#include "args.h"

static raffle_status check_method(const raffle_drafts *d, raffle_error *error) {
    const int known = d->logits || d->probabilities; /* how the drafts were chosen */
    const int thresholds = d->threshold_single != 0.0f || d->threshold_sum != 0.0f;
    if (d->method < RAFFLE_REJECTION || d->method > RAFFLE_SYNTHETIC)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.method is %d: not a raffle_method", d->method);
    if (d->logits && d->probabilities)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts has both logits and probabilities: give one of them");
    if (d->logits && !d->params)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.params is NULL: say what drafts.logits were sampled with");
    if (d->params && !d->logits) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.params is set without drafts.logits");
    if (known && d->parent)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "drafts.parent is set: trees have no draft logits or probabilities");
    if (known && d->method != RAFFLE_REJECTION && d->method != RAFFLE_BLOCK)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "drafts.%s is set: RAFFLE_%s does not use it",
                           d->logits ? "logits" : "probabilities", d->method == RAFFLE_MATCH ? "MATCH" : "SYNTHETIC");
    const int accepts = d->method != RAFFLE_MATCH, recovers = accepts && d->method != RAFFLE_SYNTHETIC;
    if ((d->accept_bits && !accepts) || (d->recover_bits && !recovers))
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "drafts.%s is set: RAFFLE_%s does not use it",
                           d->accept_bits && !accepts ? "accept_bits" : "recover_bits", accepts ? "SYNTHETIC" : "MATCH");
    if (d->parent && d->method == RAFFLE_BLOCK)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "drafts.parent is set: RAFFLE_BLOCK needs chains");
    if (thresholds && (known || d->method != RAFFLE_REJECTION))
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1,
                           "threshold_single or threshold_sum is set: only for RAFFLE_REJECTION of tokens alone");
    if (!(d->threshold_single >= 0.0f && d->threshold_single <= 1.0f))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "threshold_single is %g: must be 0 to 1", (double)d->threshold_single);
    if (!(d->threshold_sum >= 0.0f && d->threshold_sum <= 1.0f))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "threshold_sum is %g: must be 0 to 1", (double)d->threshold_sum);
    if (!(d->rate >= 0.0f && d->rate <= 1.0f) || (d->rate != 0.0f && d->method != RAFFLE_SYNTHETIC))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "rate is %g: must be 0 to 1, and 0 but for RAFFLE_SYNTHETIC",
                           (double)d->rate);
    if (d->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_drafts.reserved is not 0");
    return RAFFLE_OK;
}

/* As many rows as drafts and requests. */
static raffle_status check_shape(verify_call *c, raffle_error *error) {
    const raffle_drafts *d = &c->drafts;
    const int64_t rows = c->target.logits.rows;
    int64_t wanted = 0;
    if (d->requests < 0 || d->requests > INT32_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.requests is %lld: must be 0 to 2147483647",
                           (long long)d->requests);
    if (d->each < 0 || (d->each && d->first))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.each is %lld: must be 0 or more, and 0 if first is set",
                           (long long)d->each);
    if (rows > INT32_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "logits.rows is %lld: at most 2147483647 can be verified", (long long)rows);
    c->draft_rows = rows - d->requests;
    if (!d->first && (__builtin_mul_overflow(d->requests, d->each, &wanted) || wanted > INT32_MAX))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.each is %lld: too large for %lld requests", (long long)d->each,
                           (long long)d->requests);
    if (!d->first && c->draft_rows != wanted)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "logits.rows is %lld: %lld requests with %lld drafts each have %lld",
                           (long long)rows, (long long)d->requests, (long long)d->each, (long long)(wanted + d->requests));
    if (c->draft_rows < 0)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "logits.rows is %lld: %lld requests have a row each, at least",
                           (long long)rows, (long long)d->requests);
    if (c->draft_rows && !d->token) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.token is NULL");
    return RAFFLE_OK;
}

static raffle_status take_distribution(const raffle_plan *plan, verify_call *c, raffle_error *error) {
    raffle_status status = RAFFLE_OK;
    int64_t rows = c->draft_rows;
    c->has_logits = c->drafts.logits != NULL;
    c->has_probabilities = c->drafts.probabilities != NULL;
    if (c->has_logits) {
        status = TAKE_LOGITS(&c->draft_logits, c->drafts.logits);
        if (!status) status = TAKE_PARAMS(&c->draft_params, c->drafts.params);
        if (!status) status = raffle_check_logits(plan, &c->draft_logits, "drafts.logits", error);
        if (!status) status = raffle_check_params(plan, &c->draft_params, c->drafts.requests, rows, "drafts.params", error);
        if (!status) rows = c->draft_logits.rows;
    }
    if (c->has_probabilities) {
        raffle_probabilities *p = &c->draft_probabilities;
        status = TAKE(p, c->drafts.probabilities, raffle_probabilities);
        if (status) return status;
        if (p->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_probabilities.reserved is not 0");
        if (p->rows && !p->data) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.probabilities.data is NULL");
        if (plan->desc.backend == RAFFLE_CUDA && (uintptr_t)p->data % 4)
            return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.probabilities.data is not aligned to its elements, as CUDA needs it");
        if (!p->row_stride) p->row_stride = plan->desc.vocab;
        rows = p->rows;
        status = raffle_check_stride(rows, p->row_stride, "drafts.probabilities.row_stride", error);
    }
    if (!status && rows != c->draft_rows)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafts.%s.rows is %lld: the batch has %lld drafts",
                           c->has_logits ? "logits" : "probabilities", (long long)rows, (long long)c->draft_rows);
    return status;
}

/* A history goes on with at most so many drafts. */
static raffle_status check_count(int64_t request, int64_t count, raffle_error *error) {
    if (count <= TAIL_MAX) return RAFFLE_OK;
    return raffle_fail(error, RAFFLE_E_ARGUMENT, request, "request %lld has %lld drafts: with a state at most %d", (long long)request,
                       (long long)count, TAIL_MAX);
}

/* What later versions added: extra, state and report. */
static raffle_status check_later_fields(const raffle_plan *plan, verify_call *c, raffle_error *error) {
    call draft = {.params = c->draft_params};
    const raffle_params *p = &c->target.params, *q = &c->draft_params;
    if (c->drafts.requests && c->drafts.each && (p->state || q->state)) {
        raffle_status wrong = check_count(0, c->drafts.each, error);
        if (wrong) return wrong;
    }
    c->target.result.report = c->verified.report;
    raffle_status status = raffle_check_additions(plan, &c->target, error);
    raffle_error own = raffle_error_init(); /* whose sentences speak of params */
    if (!status && (status = raffle_check_additions(plan, &draft, &own))) raffle_fail(error, status, own.row, "drafts: %s", own.text);
    c->draft_state = draft.state;
    c->draft_layout = draft.layout;
    return status;
}

raffle_status raffle_check_verify(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                  const raffle_drafts *drafts, const raffle_verified *verified,
                                  const raffle_launch *launch, verify_call *c, raffle_error *error) {
    if (!plan) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "plan is NULL");
    memset(c, 0, sizeof *c);
    raffle_status status = TAKE_LOGITS(&c->target.logits, logits);
    if (!status) status = TAKE_PARAMS(&c->target.params, params);
    if (!status) status = TAKE_SINCE(offsetof(raffle_drafts, draw_bits), &c->drafts, drafts, raffle_drafts);
    if (!status) status = TAKE_SINCE(offsetof(raffle_verified, report), &c->verified, verified, raffle_verified);
    if (!status) status = TAKE(&c->target.launch, launch, raffle_launch);
    if (!status) status = raffle_check_logits(plan, &c->target.logits, "logits", error);
    if (!status) status = check_method(&c->drafts, error);
    if (!status) status = check_shape(c, error);
    const int64_t rows = c->target.logits.rows, requests = c->drafts.requests;
    const raffle_params *p = &c->target.params;
    if (!status) status = raffle_check_params(plan, &c->target.params, requests, rows, "params", error);
    if (!status) status = take_distribution(plan, c, error);
    if (status) return status;
    const raffle_params *q = &c->draft_params;
    if (p->draft_step || q->draft_step)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%sparams.draft_step is set: raffle_verify draws no drafts",
                           p->draft_step ? "" : "drafts.");
    const int offset = p->seed_offset || p->position_offset;
    if (offset || q->seed_offset || q->position_offset)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%sparams: seed_offset or position_offset is set: raffle_verify takes none",
                           offset ? "" : "drafts.");
    if (plan->desc.input != RAFFLE_LOGITS)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "input of the plan is probabilities: raffle_verify needs target logits");
    if (c->target.logits.row_index || c->draft_logits.row_index)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "%slogits.row_index is set: raffle_verify takes rows in their order",
                           c->target.logits.row_index ? "" : "drafts.");
    if (c->verified.reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_verified.reserved is not 0");
    if (rows && !p->seed) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.seed is NULL");
    if (rows && !p->position) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.position is NULL");
    if (rows && !c->verified.token) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "verified.token is NULL");
    if (rows && !c->verified.accepted) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "verified.accepted is NULL");
    status = check_later_fields(plan, c, error);
    return status ? status : raffle_check_launch(plan, &c->target, requests, error);
}

call raffle_draft_call(const verify_call *c) {
    call made = {.params = c->draft_params, .state = c->draft_state, .layout = c->draft_layout, .vocab = c->target.vocab,
                 .row_first = c->target.row_first, .row_end = c->target.row_end};
    return made;
}

/* What each request asks for beyond the arrays, of the target and of its drafts. */
static raffle_status check_extras(const verify_call *c, raffle_error *error) {
    const call draft = raffle_draft_call(c);
    raffle_status status = RAFFLE_OK;
    for (int64_t r = 0; c->target.params.extra && !status && r < c->drafts.requests; ++r)
        status = raffle_check_extra(&c->target, r, slot_of(&c->target.params, r), "request", error);
    for (int64_t r = 0; draft.params.extra && !status && r < c->drafts.requests; ++r) {
        const int64_t slot = slot_of(&draft.params, r);
        raffle_error own = raffle_error_init();
        status = raffle_check_extra(&draft, r, slot, "request", &own);
        if (status) return raffle_fail(error, status, r, "drafts.params: %s", own.text);
        if (extra_of(&draft.params, slot)->xtc_probability > 0.0f)
            return raffle_fail(error, RAFFLE_E_UNSUPPORTED, r,
                               "drafts.params: xtc_probability of request %lld is set: XTC has no fixed law",
                               (long long)r);
    }
    return status;
}

raffle_status raffle_check_drafts(const raffle_plan *plan, const verify_call *c, raffle_error *error) {
    const raffle_drafts *d = &c->drafts;
    const int said = c->target.params.state || c->draft_params.state;
    for (int64_t r = 0; d->first && r <= d->requests; ++r) {
        const int64_t least = r == d->requests ? c->draft_rows : r ? d->first[r - 1] : 0, most = r ? c->draft_rows : 0;
        if (d->first[r] < least || d->first[r] > most)
            return raffle_fail(error, RAFFLE_E_ARGUMENT, r < d->requests ? r : r - 1, "drafts.first[%lld] is %d: must be %lld to %lld",
                               (long long)r, d->first[r], (long long)least, (long long)most);
    }
    for (int64_t r = 0; r < d->requests; ++r) {
        const int64_t first = draft_first(d, r), count = draft_first(d, r + 1) - first;
        raffle_status status = said ? check_count(r, count, error) : RAFFLE_OK;
        if (status) return status;
        for (int64_t i = 0; i < count; ++i) {
            const int32_t token = d->token[first + i];
            if (token < RAFFLE_NO_TOKEN || token >= plan->desc.vocab)
                return raffle_fail(error, RAFFLE_E_ARGUMENT, r, "draft %lld of request %lld is %d: must be -1 to %lld",
                                   (long long)i, (long long)r, token, (long long)plan->desc.vocab - 1);
            if (d->parent && (d->parent[first + i] < -1 || d->parent[first + i] >= i))
                return raffle_fail(error, RAFFLE_E_ARGUMENT, r, "parent of draft %lld of request %lld is %d: must be -1 to %lld",
                                   (long long)i, (long long)r, d->parent[first + i], (long long)i - 1);
        }
    }
    return check_extras(c, error);
}
