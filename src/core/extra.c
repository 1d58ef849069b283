/* extra.c - checks of what a request asks for beyond the arrays of raffle_params, and of what a call is to report. */
#include "args.h"

enum { EXTRA_FLAGS = RAFFLE_TOP_P_JOINT | RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST | RAFFLE_TOP_K_EXACT |
                     RAFFLE_EMPTY_IS_ZERO | RAFFLE_REPETITION_OUTPUT | RAFFLE_COUNT_PROMPT };

/* A row that is being checked. */
typedef struct row_check {
    int64_t row, vocab;
    raffle_error *error;
} row_check;

#define REFUSE(k, ...) raffle_fail((k)->error, RAFFLE_E_ARGUMENT, (k)->row, __VA_ARGS__)

/* A list of ids: there, in range, ascending. `most`: entries it may have. */
static raffle_status check_ids(const row_check *k, const char *name, const int32_t *ids, int32_t count, int64_t most) {
    long long row = (long long)k->row;
    if (count < 0 || count > most)
        return REFUSE(k, "%s_count of row %lld is %d: must be 0 to %lld", name, row, count, (long long)most);
    if (count && !ids) return REFUSE(k, "%s of row %lld is NULL, but its count is %d", name, row, count);
    for (int32_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || ids[i] >= k->vocab)
            return REFUSE(k, "%s[%d] of row %lld is %d: must be 0 to %lld", name, i, row, ids[i], (long long)k->vocab - 1);
        if (i && ids[i] <= ids[i - 1])
            return REFUSE(k, "%s[%d] of row %lld is %d after %d: ids must ascend", name, i, row, ids[i], ids[i - 1]);
    }
    return RAFFLE_OK;
}

static raffle_status check_bad_words(const row_check *k, const raffle_extra *e) {
    long long row = (long long)k->row;
    if (e->bad_words_count < 0 || e->bad_words_count > RAFFLE_VOCAB_MAX)
        return REFUSE(k, "bad_words_count of row %lld is %d: must be 0 to %d", row, e->bad_words_count, RAFFLE_VOCAB_MAX);
    if (e->bad_words_count && !e->bad_words)
        return REFUSE(k, "bad_words of row %lld is NULL, but its count is %d", row, e->bad_words_count);
    for (int32_t i = 0, word = 0; i < e->bad_words_count; ++i) { /* word: ids so far */
        int32_t id = e->bad_words[i];
        if (id < -1 || id >= k->vocab)
            return REFUSE(k, "bad_words[%d] of row %lld is %d: must be -1 to %lld", i, row, id, (long long)k->vocab - 1);
        word = id < 0 ? 0 : word + 1;
        if (id < 0 && (i == 0 || e->bad_words[i - 1] < 0)) return REFUSE(k, "bad_words[%d] of row %lld ends an empty word", i, row);
        if (i == e->bad_words_count - 1 && word) return REFUSE(k, "bad_words of row %lld do not end with -1", row);
    }
    return RAFFLE_OK;
}

static raffle_status check_lists(const row_check *k, const raffle_extra *e) {
    raffle_status status = check_ids(k, "bias_id", e->bias_id, e->bias_count, k->vocab);
    if (!status) status = check_ids(k, "banned", e->banned, e->banned_count, k->vocab);
    if (!status) status = check_ids(k, "allowed", e->allowed, e->allowed_count, k->vocab);
    if (!status) status = check_ids(k, "stop", e->stop, e->stop_count, k->vocab);
    if (!status) status = check_ids(k, "breaker", e->breaker, e->breaker_count, k->vocab);
    if (!status) status = check_bad_words(k, e);
    if (status) return status;
    if (e->bias_count && !e->bias) return REFUSE(k, "bias of row %lld is NULL, but its count is %d", (long long)k->row, e->bias_count);
    for (int32_t i = 0; i < e->bias_count; ++i)
        if (!(e->bias[i] < __builtin_inff()))
            return REFUSE(k, "bias[%d] of row %lld is %g: must be finite or -inf", i, (long long)k->row, (double)e->bias[i]);
    return RAFFLE_OK;
}

static raffle_status check_filters(const row_check *k, const raffle_extra *e) {
    const struct { const char *name; float value; } filter[] = {
        {"top_n_sigma", e->top_n_sigma},         {"epsilon", e->epsilon},
        {"eta", e->eta},                         {"typical_p", e->typical_p},
        {"xtc_probability", e->xtc_probability}, {"xtc_threshold", e->xtc_threshold},
    };
    for (size_t i = 0; i < sizeof filter / sizeof *filter; ++i)
        if (filter[i].value != filter[i].value) return REFUSE(k, "%s of row %lld is NaN", filter[i].name, (long long)k->row);
    if (e->keep_least < 0) return REFUSE(k, "keep_least of row %lld is %d: must be 0 or more", (long long)k->row, e->keep_least);
    return RAFFLE_OK;
}

static raffle_status check_penalties(const row_check *k, const raffle_extra *e) {
    long long row = (long long)k->row;
    if (e->repetition != 0.0f && !(e->repetition > 0.0f && e->repetition <= 1e9f))
        return REFUSE(k, "repetition of row %lld is %g: must be above 0, up to 1e9", row, (double)e->repetition);
    if (!(e->frequency >= -1e9f && e->frequency <= 1e9f))
        return REFUSE(k, "frequency of row %lld is %g: must be -1e9 to 1e9", row, (double)e->frequency);
    if (!(e->presence >= -1e9f && e->presence <= 1e9f))
        return REFUSE(k, "presence of row %lld is %g: must be -1e9 to 1e9", row, (double)e->presence);
    if (!(e->dry_multiplier >= 0.0f && e->dry_multiplier <= 1e9f))
        return REFUSE(k, "dry_multiplier of row %lld is %g: must be 0 to 1e9", row, (double)e->dry_multiplier);
    if (e->dry_base != 0.0f && !(e->dry_base >= 1.0f && e->dry_base <= 1e9f))
        return REFUSE(k, "dry_base of row %lld is %g: must be 1 to 1e9", row, (double)e->dry_base);
    const struct { const char *name; int32_t value; } whole[] = {
        {"penalty_window", e->penalty_window}, {"no_repeat_ngram", e->no_repeat_ngram}, {"dry_allowed", e->dry_allowed},
        {"dry_range", e->dry_range},           {"min_tokens", e->min_tokens},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; ++i)
        if (whole[i].value < 0) return REFUSE(k, "%s of row %lld is %d: must be 0 or more", whole[i].name, row, whole[i].value);
    return RAFFLE_OK;
}

/* The first field that needs a history, or NULL. */
static const char *history_user(const raffle_extra *e) {
    if (e->repetition != 0.0f && e->repetition != 1.0f) return "repetition";
    if (e->frequency != 0.0f) return "frequency";
    if (e->presence != 0.0f) return "presence";
    if (e->no_repeat_ngram) return "no_repeat_ngram";
    if (e->dry_multiplier != 0.0f) return "dry_multiplier";
    if (e->min_tokens) return "min_tokens";
    return e->bad_words_count ? "bad_words" : NULL;
}

raffle_status raffle_check_extra(const call *call, int64_t row, int64_t slot, raffle_error *error) {
    const raffle_extra *e = extra_of(&call->params, slot);
    const row_check k = {row, call->vocab, error};
    if (e->flags & ~(uint32_t)EXTRA_FLAGS) return REFUSE(&k, "extra.flags of row %lld has unknown bits: 0x%x", (long long)row, e->flags);
    raffle_status status = check_penalties(&k, e);
    if (!status) status = check_filters(&k, e);
    if (!status) status = check_lists(&k, e);
    if (status) return status;
    const char *user = call->params.state ? NULL : history_user(e);
    if (user) return REFUSE(&k, "%s of row %lld needs a history: params.state is NULL", user, (long long)row);
    return RAFFLE_OK;
}

static raffle_status check_report(const raffle_report *given, raffle_report *report, int64_t rows, int64_t vocab, raffle_error *error) {
    raffle_status status = TAKE(report, given, raffle_report);
    if (status) return status;
    if (report->point < RAFFLE_RAW || report->point > RAFFLE_FILTERED)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "report.point is %d: not a raffle_point", report->point);
    if (report->top_count < 0 || report->top_count > RAFFLE_TOP_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "report.top_count is %d: must be 0 to %d", report->top_count, RAFFLE_TOP_MAX);
    if (report->top_count && !report->top_token && !report->top)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "report.top_token and top are NULL, but top_count is %d", report->top_count);
    if (report->given_count < 0 || (report->given_count && !report->given))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "report.given_count is %d, and given %s", report->given_count,
                           report->given ? "is set" : "is NULL");
    if (report->all_stride < 0 || (report->all_stride && report->all_stride < vocab))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "report.all_stride is %lld: a row has %lld tokens",
                           (long long)report->all_stride, (long long)vocab);
    if (!report->all_stride) report->all_stride = vocab;
    return raffle_check_stride(rows, report->all_stride, "report.all_stride", error);
}

raffle_status raffle_check_additions(const raffle_plan *plan, call *made, raffle_error *error) {
    const raffle_params *p = &made->params;
    raffle_status status = RAFFLE_OK;
    made->vocab = plan->desc.vocab;
    if (p->extra && !(plan->desc.flags & RAFFLE_PLAN_EXTRA))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.extra is set, but the plan lacks RAFFLE_PLAN_EXTRA");
    if (p->extra && p->extra_bytes != (int64_t)sizeof(raffle_extra))
        return raffle_fail(error, RAFFLE_E_STRUCT, -1, "extra_bytes is %lld: raffle_extra has %zu here",
                           (long long)p->extra_bytes, sizeof(raffle_extra));
    if (p->state) status = raffle_check_state(p->state, &made->state, &made->layout, error);
    if (status) return status;
    if (p->state && made->state.backend != plan->desc.backend)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.backend is not the plan's");
    if (p->state && made->state.vocab != plan->desc.vocab)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.vocab is %lld: the plan's is %lld",
                           (long long)made->state.vocab, (long long)plan->desc.vocab);
    if (p->state && made->state.history_max > plan->desc.history_max)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.history_max is %lld: the plan's is %lld",
                           (long long)made->state.history_max, (long long)plan->desc.history_max);
    if (p->state && p->slots > made->state.slots)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "slots is %lld: the state has %lld", (long long)p->slots,
                           (long long)made->state.slots);
    if (made->result.report && !(plan->desc.flags & RAFFLE_PLAN_REPORT))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "result.report is set, but the plan lacks RAFFLE_PLAN_REPORT");
    return made->result.report ? check_report(made->result.report, &made->report, made->logits.rows, made->vocab, error) : RAFFLE_OK;
}
