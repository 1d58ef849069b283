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
} report_row;

static inline report_row report_row_make(const oracle_case *c, int point) {
    raffle_extra own;
    oracle_case at = report_case(*c, point, &own);
    oracle_answer drawn = oracle_sample(c, NULL, NULL);
    size_t vocab = (size_t)c->vocab;
    report_row r = {.vocab = c->vocab, .token = drawn.row_flags & RAFFLE_ROW_EMPTY ? -1 : drawn.token};
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
}

/* The same bits, or both NaN. */
static inline int report_same(float a, float b) { return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)); }

/* Whether this is the log-probability and the rank of an id, which may be any number. */
static inline int report_id_is(const report_row *r, int32_t id, float log, int32_t rank) {
    const int inside = id >= 0 && id < r->vocab && !r->empty;
    int32_t right = inside;
    for (int64_t other = 0; inside && other < r->vocab; ++other) right += r->x[other] > r->x[id];
    return rank == right && report_same(log, inside ? r->log[id] : NAN);
}

/* Whether these are the likeliest: the next in order, looked for again and again. */
static inline int report_top_is(const report_row *r, const int32_t *token, const float *log, int32_t count) {
    for (int32_t n = 0; n < count; ++n) {
        int32_t best = -1;
        for (int64_t id = 0; id < r->vocab && !r->empty; ++id) {
            int taken = 0;
            for (int32_t m = 0; m < n; ++m) taken |= token[m] == id;
            if (!taken && r->x[id] > -INFINITY && (best < 0 || r->x[id] > r->x[best])) best = (int32_t)id;
        }
        if (token[n] != best || !report_same(log[n], best < 0 ? NAN : r->log[best])) return 0;
    }
    return 1;
}

#endif
