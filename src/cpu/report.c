/* report.c - what a call tells about each row beside its token: log-probabilities, ranks, entropy. The row is written
 * as raffle_softmax writes it, at the point that was asked for, and read off: one definition of a log-probability. */
#include "args.h"
#include "run.h"

#include "vec_one.h"

#include "cut_types.h"

#define NOT_A_NUMBER (__builtin_nanf(""))

/* A row at the point of the report. */
typedef struct view {
    const float *x, *log; /* [vocab] its logits, those that are out -inf, and their log-probabilities */
    int64_t vocab;
    int empty;
} view;

static int larger(const view *v, int32_t a, int32_t b) { return v->x[a] > v->x[b] || (v->x[a] == v->x[b] && a < b); }

static int32_t rank_of(const view *v, int32_t token) {
    int32_t above = 0;
    for (int64_t i = 0; i < v->vocab; ++i) above += v->x[i] > v->x[token];
    return above + 1;
}

/* The `count` largest, in order; behind the last, RAFFLE_NO_TOKEN. */
static void top_of(const view *v, int32_t count, int32_t *token, float *log) {
    int32_t best[RAFFLE_TOP_MAX], found = 0;
    for (int64_t i = 0; i < v->vocab && !v->empty; ++i) {
        int32_t id = (int32_t)i, at = found;
        if (v->x[i] == MINUS_INF || (found == count && !larger(v, id, best[count - 1]))) continue;
        if (found < count) ++found;
        else at = count - 1;
        for (; at > 0 && larger(v, id, best[at - 1]); --at) best[at] = best[at - 1];
        best[at] = id;
    }
    for (int32_t n = 0; n < count; ++n) {
        if (token) token[n] = n < found ? best[n] : RAFFLE_NO_TOKEN;
        if (log) log[n] = n < found ? v->log[best[n]] : NOT_A_NUMBER;
    }
}

/* The sum of -p ln p, each in units of 2^-48, so that no order matters. */
static float entropy_of(const view *v, const float *probability) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < v->vocab; ++i)
        if (probability[i] > 0.0f)
            sum += (uint64_t)(-((double)probability[i] * (double)v->log[i]) * 0x1p48 + 0.5);
    return (float)((double)sum * 0x1p-48);
}

/* The row that the point shows; `told` is its answer. Its dtype is returned. */
static int row_at(const raffle_plan *plan, const call *call, int64_t i, const cpu_row *row, int dtype,
                  const cpu_scratch *scratch, cpu_row *shown, answer *told) {
    const cpu_table *table = plan->state;
    if (call->report.point == RAFFLE_FILTERED) {
        *shown = *row;
        return dtype;
    }
    *shown = *row;
    if (call->report.point == RAFFLE_RAW) {
        *shown = raffle_row_of(plan, call, i);
        shown->allow = NULL;
        shown->params.temperature = 1.0f;
        dtype = plan->desc.dtype;
    }
    *shown = raffle_row_unfiltered(shown);
    if (shown->params.temperature < GREEDY_BELOW) shown->params.temperature = 1.0f;
    *told = table->sample[dtype](shown, scratch);
    return dtype;
}

static void tell(const raffle_report *r, const view *v, int64_t i, int32_t token, const float *probability) {
    const int any = token >= 0 && !v->empty;
    if (r->chosen) r->chosen[i] = any ? v->log[token] : NOT_A_NUMBER;
    if (r->rank) r->rank[i] = any ? rank_of(v, token) : 0;
    if (r->entropy) r->entropy[i] = v->empty ? NOT_A_NUMBER : entropy_of(v, probability);
    if (r->top_count)
        top_of(v, r->top_count, r->top_token ? r->top_token + i * r->top_count : NULL, r->top ? r->top + i * r->top_count : NULL);
    for (int64_t n = i * r->given_count; n < (i + 1) * r->given_count; ++n) {
        const int32_t id = r->given[n];
        const int good = id >= 0 && id < v->vocab && !v->empty;
        if (r->given_logprob) r->given_logprob[n] = good ? v->log[id] : NOT_A_NUMBER;
        if (r->given_rank) r->given_rank[n] = good ? rank_of(v, id) : 0;
    }
    for (int64_t id = 0; r->all && id < v->vocab; ++id) r->all[i * r->all_stride + id] = v->empty ? NOT_A_NUMBER : v->log[id];
}

void raffle_row_report(const raffle_plan *plan, const call *call, int64_t i, const cpu_row *row, int dtype, const answer *drawn,
                       const cpu_scratch *scratch, const edit_scratch *s) {
    const cpu_table *table = plan->state;
    cpu_row shown;
    answer told = *drawn;
    dtype = row_at(plan, call, i, row, dtype, scratch, &shown, &told);
    cpu_target to = {.data = (char *)s->log, .dtype = RAFFLE_F32, .form = FORM_LOG};
    table->write[dtype](&shown, scratch, &told, &to);
    if (call->report.entropy) {
        to.data = (char *)s->probability;
        to.form = FORM_PROBABILITY;
        table->write[dtype](&shown, scratch, &told, &to);
    }
    table->copy[dtype](&shown, s->logit);
    const cut kept = cut_of(&told);
    view v = {s->logit, s->log, shown.params.vocab, (told.row_flags & RAFFLE_ROW_EMPTY) != 0};
    for (int64_t id = 0; id < v.vocab; ++id)
        if (v.empty || !cut_keeps(kept, s->logit[id], id)) s->logit[id] = MINUS_INF;
    tell(&call->report, &v, i, drawn->token, s->probability);
}
