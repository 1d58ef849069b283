/* extra.c - checks of what a request asks for beyond the arrays of raffle_params, and of what a call is to report. */
#include "args.h"
#include "extra_rules.h"

/* A row or request (`what`) that is being checked. */
typedef struct row_check {
    const char *what;
    int64_t row, vocab;
    raffle_error *error;
} row_check;

#define REFUSE(k, ...) raffle_fail((k)->error, RAFFLE_E_ARGUMENT, (k)->row, __VA_ARGS__)

/* The count of a list, by its name, and whether the list is there. `most`: entries it may have. */
static raffle_status check_count(const row_check *k, const char *name, const char *count_name, const void *list, int32_t count,
                                 int64_t most) {
    long long row = (long long)k->row;
    if (extra_count_good(list, count, most)) return RAFFLE_OK;
    if (count < 0 || count > most)
        return REFUSE(k, "%s of %s %lld is %d: must be 0 to %lld", count_name, k->what, row, count, (long long)most);
    return REFUSE(k, "%s of %s %lld is NULL, but its count is %d", name, k->what, row, count);
}

/* A list of ids: there, in range, ascending. */
static raffle_status check_ids(const row_check *k, const char *name, const char *count_name, const int32_t *ids, int32_t count) {
    long long row = (long long)k->row;
    raffle_status status = check_count(k, name, count_name, ids, count, k->vocab);
    for (int32_t i = 0; !status && i < count; ++i) {
        if (!extra_id_good(ids[i], k->vocab))
            status = REFUSE(k, "%s[%d] of %s %lld is %d: must be 0 to %lld", name, i, k->what, row, ids[i], (long long)k->vocab - 1);
        else if (!extra_ascends(ids, i))
            status = REFUSE(k, "%s[%d] of %s %lld is %d after %d: ids must ascend", name, i, k->what, row, ids[i], ids[i - 1]);
    }
    return status;
}

static raffle_status check_bad_words(const row_check *k, const raffle_extra *e) {
    long long row = (long long)k->row;
    const int32_t *words = e->bad_words;
    raffle_status status = check_count(k, "bad_words", "bad_words_count", words, e->bad_words_count, RAFFLE_VOCAB_MAX);
    for (int32_t i = 0; !status && i < e->bad_words_count; ++i) {
        if (!extra_word_id_good(words[i], k->vocab))
            status = REFUSE(k, "bad_words[%d] of %s %lld is %d: must be -1 to %lld", i, k->what, row, words[i], (long long)k->vocab - 1);
        else if (extra_word_empty(words, i))
            status = REFUSE(k, "bad_words[%d] of %s %lld ends an empty word", i, k->what, row);
        else if (extra_word_open(words, i, e->bad_words_count))
            status = REFUSE(k, "bad_words of %s %lld do not end with -1", k->what, row);
    }
    return status;
}

static raffle_status check_lists(const row_check *k, const raffle_extra *e) {
    raffle_status status = RAFFLE_OK;
#define CHECK_LIST(ids, count)                                                                                         \
    if (!status) status = check_ids(k, #ids, #count, e->ids, e->count);
    EXTRA_LISTS(CHECK_LIST)
#undef CHECK_LIST
    if (!status) status = check_bad_words(k, e);
    if (status) return status;
    if (e->bias_count && !e->bias)
        return REFUSE(k, "bias of %s %lld is NULL, but its count is %d", k->what, (long long)k->row, e->bias_count);
    for (int32_t i = 0; i < e->bias_count; ++i)
        if (!extra_bias_good(e->bias[i]))
            return REFUSE(k, "bias[%d] of %s %lld is %g: must be finite or -inf", i, k->what, (long long)k->row, (double)e->bias[i]);
    return RAFFLE_OK;
}

static raffle_status check_numbers(const row_check *k, const raffle_extra *e) {
    long long row = (long long)k->row;
    if (extra_numbers_good(e)) return RAFFLE_OK;
    if (e->flags & ~(uint32_t)EXTRA_FLAGS) return REFUSE(k, "extra.flags of %s %lld has unknown bits: 0x%x", k->what, row, e->flags);
#define CHECK_FLOAT(field, least, most, words)                                                                         \
    if (e->field != e->field) return REFUSE(k, "%s of %s %lld is NaN", #field, k->what, row);                          \
    if (!extra_within(e->field, least, most))                                                                          \
        return REFUSE(k, "%s of %s %lld is %g: must be " words, #field, k->what, row, (double)e->field);
#define CHECK_WHOLE(field)                                                                                             \
    if (e->field < 0) return REFUSE(k, "%s of %s %lld is %d: must be 0 or more", #field, k->what, row, e->field);
    EXTRA_FLOATS(CHECK_FLOAT)
    EXTRA_WHOLES(CHECK_WHOLE)
#undef CHECK_FLOAT
#undef CHECK_WHOLE
    return RAFFLE_OK;
}

raffle_status raffle_check_extra(const call *call, int64_t row, int64_t slot, const char *what, raffle_error *error) {
    const raffle_extra *e = extra_of(&call->params, slot);
    const row_check k = {what, row, call->vocab, error};
    raffle_status status = check_numbers(&k, e);
    if (!status) status = check_lists(&k, e);
    if (status) return status;
    const char *user = call->params.state ? NULL : extra_history_user(e);
    if (user) return REFUSE(&k, "%s of %s %lld needs a history: params.state is NULL", user, what, (long long)row);
    return RAFFLE_OK;
}

static raffle_status check_report(const raffle_report *given, raffle_report *report, int64_t rows, int64_t vocab, raffle_error *error) {
    raffle_status status = TAKE_SINCE(offsetof(raffle_report, kept), report, given, raffle_report);
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
    status = raffle_check_stride(rows, report->all_stride, "report.all_stride", error);
    if (!status)
        status = raffle_check_kept_list(report->kept_list, &report->kept_list_stride, "report.kept_list_stride", rows, error);
    if (!status) status = raffle_check_kept(&report->kept_stride, "report.kept_stride", rows, vocab, error);
    return status;
}

raffle_status raffle_check_additions(const raffle_plan *plan, call *made, raffle_error *error) {
    const raffle_params *p = &made->params;
    raffle_status status = RAFFLE_OK;
    made->vocab = plan->desc.vocab;
    if (p->extra && !(plan->desc.flags & RAFFLE_PLAN_EXTRA))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.extra is set, but the plan lacks RAFFLE_PLAN_EXTRA");
    if (p->extra && p->extra_bytes != (int64_t)sizeof(raffle_extra))
        return raffle_fail(error, RAFFLE_E_STRUCT, -1, "params.extra_bytes is %lld: raffle_extra has %zu here",
                           (long long)p->extra_bytes, sizeof(raffle_extra));
    if (p->state) status = raffle_check_state(p->state, &made->state, &made->layout, error);
    if (status) return status;
    if (p->state && made->state.backend != plan->desc.backend)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.backend is not the plan's");
    if (p->state && made->state.device != plan->desc.device)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.device is %d: the plan's is %d", made->state.device, plan->desc.device);
    if (p->state && made->state.vocab != plan->desc.vocab)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.vocab is %lld: the plan's is %lld",
                           (long long)made->state.vocab, (long long)plan->desc.vocab);
    if (p->state && made->state.history_max > plan->desc.history_max)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.history_max is %lld: the plan's is %lld",
                           (long long)made->state.history_max, (long long)plan->desc.history_max);
    if (p->state && p->slots > made->state.slots)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.slots is %lld: the state has %lld", (long long)p->slots,
                           (long long)made->state.slots);
    if (made->result.report && !(plan->desc.flags & RAFFLE_PLAN_REPORT))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "result.report is set, but the plan lacks RAFFLE_PLAN_REPORT");
    return made->result.report ? check_report(made->result.report, &made->report, made->logits.rows, made->vocab, error) : RAFFLE_OK;
}
