/* report_row.h - what a raffle_report must tell about one row, out of the oracle. */
#ifndef RAFFLE_TESTS_REPORT_ROW_H
#define RAFFLE_TESTS_REPORT_ROW_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle.h"

/* What a row is at a point. The extra lives in *own. */
static inline oracle_case report_case(oracle_case c, int point, raffle_extra *own) {
    if (point == RAFFLE_FILTERED) return c;
    if (c.extra) {
        *own = *c.extra;
        own->top_n_sigma = own->epsilon = own->eta = own->typical_p = own->xtc_probability = 0;
        own->keep_least = 0;
        c.extra = own;
    }
    if (point == RAFFLE_RAW) c.extra = NULL, c.allow = NULL, c.temperature = 1;
    if (c.temperature < 1e-5f) c.temperature = 1;
    c.top_k = 0;
    c.top_p = 1;
    c.min_p = 0;
    return c;
}

/* A row at a point: its logits with -inf where a token is out, log-probabilities and entropy. */
typedef struct report_row {
    int64_t vocab;
    int empty;
    int32_t token; /* what was drawn, or -1 */
    float *x, *log, entropy;
    uint8_t *kept; /* which tokens it could have been, whatever the point */
} report_row;

static inline report_row report_row_make(const oracle_case *c, int point) {
    raffle_extra own;
    oracle_case at = report_case(*c, point, &own);
    size_t vocab = (size_t)c->vocab;
    report_row r = {.vocab = c->vocab, .kept = malloc(vocab)};
    oracle_answer drawn = oracle_sample(c, r.kept, NULL);
    r.token = drawn.row_flags & RAFFLE_ROW_EMPTY ? -1 : drawn.token;
    float *p = malloc(vocab * 4);
    uint8_t *kept = malloc(vocab);
    uint64_t entropy = 0;
    r.x = malloc(vocab * 4);
    r.log = malloc(vocab * 4);
    r.empty = (oracle_sample(&at, kept, NULL).row_flags & RAFFLE_ROW_EMPTY) != 0;
    oracle_probabilities(&at, 1, r.log);
    oracle_probabilities(&at, 0, p);
    oracle_logits(&at, r.x);
    for (int64_t id = 0; id < c->vocab; ++id) {
        if (!kept[id]) r.x[id] = -INFINITY;
        if (p[id] > 0) entropy += (uint64_t)(-((double)p[id] * (double)r.log[id]) * 0x1p48 + 0.5);
        if (r.empty) r.log[id] = NAN;
    }
    r.entropy = r.empty ? NAN : (float)((double)entropy * 0x1p-48);
    free(kept);
    free(p);
    return r;
}

static inline void report_row_free(report_row *r) {
    free(r->x);
    free(r->log);
    free(r->kept);
}

/* Of which no token was drawn. */
static inline void report_row_clear(report_row *r) {
    r->empty = 1;
    r->entropy = NAN;
    memset(r->kept, 0, (size_t)r->vocab);
}

/* The same bits, or both NaN. */
static inline int report_same(float a, float b) { return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)); }

/* The log-probability and the rank of an id, which may be any number. */
static inline float report_log(const report_row *r, int32_t id) { return id >= 0 && id < r->vocab && !r->empty ? r->log[id] : NAN; }
static inline int32_t report_rank(const report_row *r, int32_t id) {
    const int inside = id >= 0 && id < r->vocab && !r->empty;
    int32_t rank = inside;
    for (int64_t other = 0; inside && other < r->vocab; ++other) rank += r->x[other] > r->x[id];
    return rank;
}
static inline int report_id_is(const report_row *r, int32_t id, float log, int32_t rank) {
    return rank == report_rank(r, id) && report_same(log, report_log(r, id));
}

typedef struct report_entry {
    float x;
    int32_t id;
} report_entry;
static inline int report_order(const void *left, const void *right) { /* the likeliest first, of equal ones the lowest id */
    const report_entry *a = (const report_entry *)left, *b = (const report_entry *)right;
    return a->x > b->x ? -1 : a->x < b->x ? 1 : a->id < b->id ? -1 : a->id > b->id;
}

/* Whether these are the likeliest, in order. Either array may be NULL. */
static inline int report_top_is(const report_row *r, const int32_t *token, const float *log, int32_t count) {
    report_entry *entry = (report_entry *)malloc((size_t)r->vocab * sizeof *entry);
    int32_t entries = 0;
    int good = 1;
    for (int64_t id = 0; id < r->vocab && !r->empty; ++id) {
        const report_entry e = {r->x[id], (int32_t)id};
        if (e.x > -INFINITY) entry[entries++] = e;
    }
    qsort(entry, (size_t)entries, sizeof *entry, report_order);
    for (int32_t n = 0; n < count; ++n) {
        const int32_t right = n < entries ? entry[n].id : -1;
        good = good && (!token || token[n] == right) && (!log || report_same(log[n], report_log(r, right)));
    }
    free(entry);
    return good;
}

enum { REPORT_POISON = 0x7f }; /* bytes of arrays of a kept set before a call */

/* Whether the kept set of result i is this row's, in its three forms, and no word behind its own was written. Strides are set. */
static inline int report_kept_is(const report_row *r, const raffle_report *told, int64_t i) {
    const int64_t words = (r->vocab + 31) / 32;
    int64_t count = 0;
    int good = 1;
    uint32_t untouched;
    memset(&untouched, REPORT_POISON, sizeof untouched);
    for (int64_t id = 0; id < words * 32; ++id) {
        const int kept = id < r->vocab && r->kept[id];
        if (told->kept) good = good && (int)(told->kept[i * told->kept_stride + id / 32] >> (id % 32) & 1) == kept;
        if (kept && told->kept_list && count < told->kept_list_stride)
            good = good && told->kept_list[i * told->kept_list_stride + count] == id;
        count += kept;
    }
    if (told->kept_count) good = good && told->kept_count[i] == count;
    for (int64_t n = words; told->kept && n < told->kept_stride; ++n)
        good = good && told->kept[i * told->kept_stride + n] == untouched;
    return good;
}

/* Whether a report tells of its result i what is right for `token`, which came from this row; parts that are NULL tell nothing. */
static inline int report_is(const report_row *r, const raffle_report *told, int64_t i, int32_t token) {
    const int64_t top = i * told->top_count, all = i * (told->all_stride ? told->all_stride : r->vocab);
    int good = (!told->chosen || report_same(told->chosen[i], report_log(r, token))) && (!told->rank || told->rank[i] == report_rank(r, token)) &&
               (!told->entropy || report_same(told->entropy[i], r->entropy));
    if (told->top_count)
        good = good && report_top_is(r, told->top_token ? told->top_token + top : NULL, told->top ? told->top + top : NULL, told->top_count);
    for (int64_t n = i * told->given_count; n < (i + 1) * told->given_count; ++n) {
        good = good && (!told->given_logprob || report_same(told->given_logprob[n], report_log(r, told->given[n])));
        good = good && (!told->given_rank || told->given_rank[n] == report_rank(r, told->given[n]));
    }
    for (int64_t id = 0; told->all && id < r->vocab; ++id) good = good && report_same(told->all[all + id], r->log[id]);
    return good && report_kept_is(r, told, i);
}

#endif
