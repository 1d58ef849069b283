/* report.c - what a call tells about each row beside its token: log-probabilities, ranks, entropy, the kept set. The maxima of the
 * row's groups are in the scratch, and mostly the mass that a logarithm needs too: then the few groups that hold the
 * answers are all that is read. A mass that is not there costs one reading of the row. */
#include <limits.h>
#include <string.h>

#include "args.h"
#include "run.h"

#include "vec_one.h"

#include "cut_types.h"
#include "probability.h"

#define NOT_A_NUMBER (__builtin_nanf(""))

/* A row at the point of the report. */
typedef struct view {
    const cpu_table *table;
    const cpu_scratch *scratch;
    cpu_row row;
    int dtype, empty;
    answer told;
    cut kept;
    weighing by; /* not for an empty row, */
    log_line line; /* nor for a greedy one */
} view;

/* ---- which row is shown ---------------------------------------------------------------------------------- */

/* Whether the point shows the logits that the row was sampled from, if without filters and at another temperature. */
static int shows_sampled(int point, const cpu_row *raw, const cpu_row *row) {
    return point == RAFFLE_TEMPERED || (row->logits == raw->logits && !row->allow);
}

/* At which temperature, at the points before the filters. */
static float temperature_at(int point, const cpu_row *row) {
    return point == RAFFLE_RAW || row->params.temperature < GREEDY_BELOW ? 1.0f : row->params.temperature;
}

void raffle_report_expect(const raffle_report *r, const cpu_row *raw, cpu_row *row) {
    if (r->point != RAFFLE_FILTERED && shows_sampled(r->point, raw, row)) row->weigh_at = temperature_at(r->point, row);
}

/* The row before its filters: v->row, and v->told as if it had been sampled. */
static void view_unfiltered(view *v, int point, const cpu_row *raw, const cpu_row *row, const answer *drawn, int raw_dtype) {
    const int sampled = shows_sampled(point, raw, row);
    if (!sampled) {
        v->row = *raw;
        v->row.allow = NULL;
        v->dtype = raw_dtype;
    }
    v->row = raffle_row_unfiltered(&v->row);
    v->row.params.temperature = temperature_at(point, row);
    uint64_t mass = 0;
    if (sampled && !drawn->capped && !v->empty) /* maxima up to a cap would be others */
        mass = v->table->weighed(row, v->scratch, v->row.params.temperature, peaks_largest(v->scratch->peak, v->scratch->groups));
    if (mass) {
        const answer whole = {.row_flags = drawn->row_flags, .threshold = -FLT_MAX, .tie_last = INT32_MAX, .draw_tickets = mass, .whole = 1};
        v->told = whole;
    } else {
        v->told = v->table->sample[v->dtype](&v->row, v->scratch);
    }
}

/* ---- what is told of tokens ---------------------------------------------------------------------------------- */

/* A token's logit, if it is kept; else -inf. */
static float logit_of(const view *v, int32_t id) {
    float x[GROUP];
    v->table->group(&v->row, v->dtype, id / GROUP, x);
    return cut_keeps(v->kept, x[id % GROUP], id) ? x[id % GROUP] : MINUS_INF;
}

static float log_of(const view *v, float x) {
    if (x == MINUS_INF) return MINUS_INF;
    return v->told.greedy ? 0.0f : v_log_kept(x, &v->by.row, &v->line);
}

/* 1 + the kept tokens above x. */
static int32_t rank_of(const view *v, float x) {
    const cut c = v->kept;
    int32_t above = 0;
    for (int64_t g = 0; g < v->scratch->groups; ++g) {
        float y[GROUP];
        if (!(v->scratch->peak[g] > x && v->scratch->peak[g] >= c.low)) continue;
        v->table->group(&v->row, v->dtype, g, y);
        for (int j = 0; j < GROUP; ++j) above += (y[j] > x) & cut_keeps_branchless(c, y[j], (int32_t)g * GROUP + j);
    }
    return above + 1;
}

/* The largest so far, the least of them first: a heap, ordered by logit and, among equal ones, by id. */
typedef struct best_few {
    int32_t count, room;
    struct entry { float x; int32_t id; } entry[RAFFLE_TOP_MAX];
} best_few;

static int comes_after(struct entry a, struct entry b) { return a.x < b.x || (a.x == b.x && a.id > b.id); }

/* Puts an entry where the first one was. */
static void few_sink(best_few *f, struct entry e) {
    int32_t at = 0;
    for (int32_t child = 1; child < f->count; child = 2 * at + 1) {
        if (child + 1 < f->count && comes_after(f->entry[child + 1], f->entry[child])) ++child;
        if (!comes_after(f->entry[child], e)) break;
        f->entry[at] = f->entry[child];
        at = child;
    }
    f->entry[at] = e;
}

/* Adds an entry, in place of the least if there is no room. */
static void few_add(best_few *f, float x, int32_t id) {
    const struct entry e = {x, id};
    int32_t at = f->count;
    if (f->count == f->room) {
        if (comes_after(f->entry[0], e)) few_sink(f, e);
        return;
    }
    for (++f->count; at > 0 && comes_after(e, f->entry[(at - 1) / 2]); at = (at - 1) / 2) f->entry[at] = f->entry[(at - 1) / 2];
    f->entry[at] = e;
}

/* The `count` largest, in order; behind the last, RAFFLE_NO_TOKEN. They are in the `count` groups with the largest maxima, as
 * each of these holds one that is kept, if any does; and of equal ones the first. Groups of a patch whose maximum reaches kept.low
 * are made, so what is compared here is exact. */
static void top_of(const view *v, int32_t count, int32_t *token, float *log) {
    const cpu_scratch *s = v->scratch;
    best_few f, groups;
    f.count = groups.count = 0;
    f.room = groups.room = count;
    groups.entry[0].x = MINUS_INF;
    for (int64_t g = 0; !v->empty && g < s->groups; ++g) few_add(&groups, s->peak[g], (int32_t)g);
    const float last = groups.count == count ? groups.entry[0].x : MINUS_INF, bound = last > v->kept.low ? last : v->kept.low;
    for (int32_t n = groups.count - 1; n >= 0; --n) { /* the largest are not the first */
        float x[GROUP + PEAK_PAD];
        int32_t id[GROUP + PEAK_PAD];
        const float peak = groups.entry[n].x;
        if (!(peak >= bound) || (f.count == count && peak < f.entry[0].x)) continue;
        const int found = v->table->group_from(&v->row, v->dtype, groups.entry[n].id, bound, x, id);
        for (int j = 0; j < found; ++j)
            if (cut_keeps(v->kept, x[j], id[j])) few_add(&f, x[j], id[j]);
    }
    for (int32_t n = f.count; n < count; ++n) {
        if (token) token[n] = RAFFLE_NO_TOKEN;
        if (log) log[n] = NOT_A_NUMBER;
    }
    while (f.count) { /* the least of those that are left is the last */
        const struct entry e = f.entry[0];
        const int32_t n = --f.count;
        few_sink(&f, f.entry[n]);
        if (token) token[n] = e.id;
        if (log) log[n] = log_of(v, e.x);
    }
}

static void tell_all(const view *v, float *to) {
    const cpu_target target = {.data = (char *)to, .dtype = RAFFLE_F32, .form = FORM_LOG};
    if (v->row.patch) v->table->make_from(&v->row, v->scratch, MINUS_INF);
    if (!v->empty) v->table->write[v->dtype](&v->row, v->scratch, &v->told, &target);
    for (int64_t id = 0; v->empty && id < v->row.params.vocab; ++id) to[id] = NOT_A_NUMBER;
}

static void tell(const raffle_report *r, const view *v, int64_t i, int32_t token) {
    const int any = token >= 0 && !v->empty;
    const float x = any && (r->chosen || r->rank) ? logit_of(v, token) : MINUS_INF;
    if (r->chosen) r->chosen[i] = any ? log_of(v, x) : NOT_A_NUMBER;
    if (r->rank) r->rank[i] = any ? rank_of(v, x) : 0;
    if (r->entropy && v->row.patch) v->table->make_from(&v->row, v->scratch, v->kept.low);
    if (r->entropy) r->entropy[i] = v->empty ? NOT_A_NUMBER : v->table->entropy(&v->row, v->dtype, v->scratch, &v->told);
    if (r->top_count)
        top_of(v, r->top_count, r->top_token ? r->top_token + i * r->top_count : NULL, r->top ? r->top + i * r->top_count : NULL);
    for (int64_t n = i * r->given_count; n < (i + 1) * r->given_count; ++n) {
        const int32_t id = r->given[n];
        const int good = id >= 0 && id < v->row.params.vocab && !v->empty;
        const float y = good ? logit_of(v, id) : MINUS_INF;
        if (r->given_logprob) r->given_logprob[n] = good ? log_of(v, y) : NOT_A_NUMBER;
        if (r->given_rank) r->given_rank[n] = good ? rank_of(v, y) : 0;
    }
    if (r->all) tell_all(v, r->all + i * r->all_stride);
}

/* ---- the kept set -------------------------------------------------------------------------------------------------- */

static int wants_kept(const raffle_report *r) { return r->kept || r->kept_list || r->kept_count; }

/* Of the row that was sampled, while its scratch is as the draw has left it: groups of a patch that reach the threshold are made. */
static void tell_kept(const cpu_table *table, const raffle_report *r, int64_t i, const cpu_row *row, int dtype, const answer *drawn,
                      const cpu_scratch *scratch) {
    const cpu_target target = {
        .form = FORM_LOGIT,
        .kept = r->kept ? r->kept + i * r->kept_stride : NULL,
        .list = r->kept_list ? r->kept_list + i * r->kept_list_stride : NULL,
        .list_max = r->kept_list_stride,
        .count = r->kept_count ? r->kept_count + i : NULL,
    };
    table->write[dtype](row, scratch, drawn, &target);
}

static void tell_none_kept(const raffle_report *r, int64_t i, int64_t vocab) {
    if (r->kept) memset(r->kept + i * r->kept_stride, 0, (size_t)((vocab + 31) / 32) * sizeof *r->kept);
    if (r->kept_count) r->kept_count[i] = 0;
}

void raffle_report_nothing(const raffle_plan *plan, const raffle_report *r, int64_t i) {
    view v = {.empty = 1, .row.params.vocab = plan->desc.vocab};
    tell(r, &v, i, RAFFLE_NO_TOKEN);
    tell_none_kept(r, i, plan->desc.vocab);
}

void raffle_row_report(const raffle_plan *plan, const raffle_report *r, int64_t i, const cpu_row *raw, const cpu_row *row,
                       int dtype, const answer *drawn, const cpu_scratch *scratch) {
    if (wants_kept(r)) tell_kept(plan->state, r, i, row, dtype, drawn, scratch);
    view v = {.table = plan->state, .scratch = scratch, .row = *row, .dtype = dtype, .told = *drawn};
    v.empty = (drawn->row_flags & RAFFLE_ROW_EMPTY) != 0;
    if (r->point != RAFFLE_FILTERED) view_unfiltered(&v, r->point, raw, row, drawn, plan->desc.dtype);
    v.empty = (v.told.row_flags & RAFFLE_ROW_EMPTY) != 0;
    v.kept = cut_of(&v.told);
    if (!v.empty && !v.told.greedy) {
        v.by = weighing_make(v.row.params.temperature, peaks_largest(scratch->peak, scratch->groups));
        v.line = log_line_make(v.row.params.temperature, v.by.best, &v.by.row, v.told.draw_tickets);
    }
    tell(r, &v, i, drawn->token);
}
