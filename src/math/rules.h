/* rules.h - which stages a row has, by its parameters. */
#ifndef RAFFLE_MATH_RULES_H
#define RAFFLE_MATH_RULES_H

#include "row_types.h"
#include "weigh.h"

/* Filters behind all others: typical-p, epsilon and eta under RULE_SHAPE_LAST; XTC. */
enum { LATE_SHAPE = 1, LATE_XTC = 2 };

/* Top-p that keeps at least so much of the row is drawn by proposals: not more than two on the average. */
#define PROPOSE_FROM 0.5f

typedef struct rules {
    int greedy, top_k, top_p, min_p_first, min_p_last;
    int shape, typical, late; /* shape: top-n-sigma, epsilon, eta; late: LATE_SHAPE | LATE_XTC */
    int row_mass; /* top-p's share is one of the whole row */
    int proposes; /* the token is drawn from the whole row until top-p, the only filter, keeps it: row_propose (cut.h) */
    float filter_temperature;
} rules;

#if CUT_MORE
RAFFLE_FN int typical_on(const row_params *p) { return p->more.typical_p > 0.0f && p->more.typical_p < 1.0f; }
#endif

RAFFLE_FN rules rules_make(const row_params *p) {
    rules r;
    const int linear = p->temperature == LINEAR_TEMPERATURE;
    r.greedy = (p->temperature < GREEDY_BELOW && !linear) || p->top_k == 1 || p->top_p <= 0.0f;
    r.top_k = p->top_k > 1 && p->top_k < p->vocab;
    r.top_p = p->top_p < 1.0f;
    r.min_p_last = p->min_p > 0.0f && (p->flags & RULE_MIN_P_LAST);
    r.min_p_first = p->min_p > 0.0f && !r.min_p_last;
    r.shape = r.typical = r.late = 0;
#if CUT_MORE
    const int last = (p->flags & RULE_SHAPE_LAST) != 0, likely = p->more.epsilon > 0.0f || p->more.eta > 0.0f;
    r.shape = p->more.top_n_sigma > 0.0f || (likely && !last);
    r.typical = typical_on(p) && !last;
    if (last && (likely || typical_on(p))) r.late |= LATE_SHAPE;
    if (p->more.xtc_probability > 0.0f && p->more.xtc_threshold <= 0.5f) r.late |= LATE_XTC;
#endif
    r.row_mass = r.top_p && ((p->flags & RULE_TOP_P_JOINT) || !(r.top_k || r.min_p_first || r.shape || r.typical));
    r.filter_temperature = p->flags & RULE_FILTERS_FIRST && !linear ? 1.0f : p->temperature;
    r.proposes = r.top_p && p->top_p >= PROPOSE_FROM && !r.greedy && r.filter_temperature == p->temperature &&
                 !(r.top_k || r.min_p_first || r.min_p_last || r.shape || r.typical || r.late);
#if CUT_MORE
    r.proposes = r.proposes && p->more.keep_least <= 1;
#endif
#if BITS_GIVEN
    r.proposes = r.proposes && !p->bits;
#endif
    return r;
}

#endif
