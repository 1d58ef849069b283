/* probability.h - weights and tickets to probabilities, their logarithms and entropy. Written over the operations of a vec_*.h
 * that must be included before. docs/determinism.md, section 8, defines each step. */
#ifndef RAFFLE_MATH_PROBABILITY_H
#define RAFFLE_MATH_PROBABILITY_H

#include "logarithm.h"
#include "weigh.h"

/* ---- probabilities --------------------------------------------------------------------------------- */

/* A reference for floats instead of integers: tokens down to 2^-130 of its maximum keep all their digits. The weights
 * between this floor and the usual one round to 0, so sums of integers stay what they are. */
#define DEEPER 2.1875f /* times the usual drop: 130.9 powers of two. Floats are normal down to 2^-126 */
RAFFLE_FN ref ref_deep(ref f, scale s, float m) {
    const float drop = s.drop * DEEPER;
    if (f.kind == REF_PLAIN) f.low = m - drop;
    if (f.kind == REF_TALL) f.low = -drop;
    return f;
}

/* What makes probabilities of a group's weights: their quotient by the mass they share. */
typedef struct portion {
    float factor, factor_low; /* 2^41 / mass, as a sum */
    float least;              /* weights below are probabilities below 2^-126, and 0 */
    float smallest;           /* 2^-126 in units of the product */
    float shift;              /* MAGIC + the exponent that the product still lacks */
    int none;                 /* all probabilities are 0 */
} portion;

/* Of the row's best group, out of the mass of all that is kept. */
RAFFLE_FN portion portion_make(uint64_t mass) {
    const double whole = (double)mass, q = 0x1p41 / whole;
    portion p;
    p.factor = (float)q;
    p.factor_low = (float)(q - (double)p.factor);
    p.least = (float)(whole * 0x1.fffep-137); /* 2^-95 / q, and a little less: it must not lose a normal number */
    p.smallest = 0x1p-95f;
    p.shift = MAGIC - (float)WEIGHT_BITS;
    p.none = 0;
    return p;
}

/* Of a group `distance` powers of two below. */
RAFFLE_FN portion portion_below(portion p, uint32_t distance) {
    const uint32_t d = distance < 127 ? distance : 126;
    const float power = float_of((127 + d) << 23);
    p.none = distance != d;
    p.least = p.least * power;
    p.smallest = p.smallest * power;
    p.shift = p.shift - (float)d;
    return p;
}

/* Weights become probabilities. Small ones are set aside before the products: those would be subnormal, and slow. */
RAFFLE_FN vf v_portion(vf weight, const portion *p) {
    vm some = v_ge(weight, v_set(p->least));
    weight = v_select(some, weight, v_set(1.0f));
    vf share = v_fma(weight, v_set(p->factor), v_mul(weight, v_set(p->factor_low)));
    share = v_scale(v_max(share, v_set(p->smallest)), v_set(p->shift));
    return v_select(some, share, v_set(0.0f));
}

/* Where no probability is small, two operations are enough. That is so if no weight of a group is below NEAR_WEIGHT and the
 * group lies at most portion_reach below the best: then none of the numbers on the way is subnormal, and a power of
 * two taken out of the factors beforehand leaves every digit where it was. */
#define NEAR_WEIGHT 0x1p-9f

/* A group with maximum m that has no token below this has no weight below that: under a PLAIN and under a LINEAR reference. */
RAFFLE_FN float near_low(scale s, float m) { return s.linear ? m * 0x1p-39f : m - s.drop * 0.66f; }

RAFFLE_FN uint32_t portion_reach(const portion *p) {
    const int32_t low = (int32_t)(bits_of(p->factor_low) >> 23 & 0xff) - 127; /* its power of two; -127: it is 0 */
    return low == -127 || low > -25 ? 60 : (uint32_t)(low + 85);
}

RAFFLE_FN portion portion_near(portion p, uint32_t distance) {
    const float power = float_of((127 - WEIGHT_BITS - distance) << 23);
    p.factor = p.factor * power;
    p.factor_low = p.factor_low * power;
    return p;
}

RAFFLE_FN vf v_portion_near(vf weight, const portion *p) {
    return v_fma(weight, v_set(p->factor), v_mul(weight, v_set(p->factor_low)));
}

/* ---- logarithms ------------------------------------------------------------------------------------ */

/* ln p = (x - M) / T - ln(sum of exp((x - M) / T)), M the row's largest logit: a line in x - M. */
typedef struct log_line {
    float base;             /* M */
    float slope, slope_low; /* 1 / T, as a sum */
    float level, level_low; /* the logarithm of the sum, as a sum */
} log_line;

/* ln(sum of exp((x - M) / T)): the mass of all that is kept in units of M's own weight. `row` is the reference of M. */
RAFFLE_FN double log_level(float best, const ref *row, uint64_t mass) {
    const double unit = (double)v_first(v_weight_any(v_set(best), row)) * (double)(1 << TICKET_BITS);
    return natural_log((double)mass / unit);
}

/* Under REF_STEP kept tokens share alike. */
RAFFLE_FN log_line log_line_make(float temperature, float best, const ref *row, uint64_t mass) {
    const double slope = row->kind == REF_STEP ? 0.0 : 1.0 / (double)temperature;
    const double level = log_level(best, row, mass);
    log_line l;
    l.base = best;
    l.slope = (float)slope;
    l.slope_low = (float)(slope - (double)l.slope);
    l.level = (float)level;
    l.level_low = (float)(level - (double)l.level);
    return l;
}

/* For x <= M; never above 0, never NaN. */
RAFFLE_FN vf v_log(vf x, const log_line *l) {
    vf zero = v_set(0.0f), down = v_max(v_sub(x, v_set(l->base)), v_set(-FLT_MAX));
    vf high = v_fma(down, v_set(-l->slope), v_set(l->level));
    vf low = v_fma(down, v_set(-l->slope_low), v_set(l->level_low));
    return v_sub(zero, v_max(v_add(high, low), zero));
}

#if !defined(__CUDACC__)
/* The same bits in 6 operations, and -inf for -inf, where M < NEAR_BEST: no difference is below -FLT_MAX then but that of -inf. With
 * every sign turned each step rounds to the same number, and there is no minus at the end. Not for NaN. */
#define NEAR_BEST 0x1p100f
RAFFLE_FN vf v_log_near(vf x, const log_line *l) {
    const vf down = v_sub(x, v_set(l->base));
    const vf high = v_fma(down, v_set(l->slope), v_set(-l->level));
    const vf low = v_fma(v_max(down, v_set(-FLT_MAX)), v_set(l->slope_low), v_set(-l->level_low));
    return v_min(v_add(high, low), v_set(0.0f));
}
#endif

/* The logarithm of a token that is kept; `row` is the reference of M. */
RAFFLE_FN vf v_log_kept(vf x, const ref *row, const log_line *line) {
    if (row->kind != REF_STEP) return v_log(x, line);
    return v_select(v_ge(x, v_set(row->base)), v_set(0.0f - line->level), v_set(MINUS_INF));
}

/* The logarithm of the share that a weight x has of the mass, under LINEAR; `row` is the reference of the largest weight. */
RAFFLE_FN float log_weight(float x, const ref *row, uint64_t mass) {
    const double held = (double)x * (double)row->base * (double)row->gain * (double)(1 << TICKET_BITS);
    const float log = held > 0.0 ? (float)natural_log(held / (double)mass) : MINUS_INF;
    return log > 0.0f ? 0.0f : log;
}

/* ---- entropy --------------------------------------------------------------------------------------- */

/* -p ln p in units of 2^-48, rounded: sums of these have no order. A token that is not kept has p = 0. */
RAFFLE_FN uint64_t entropy_term(float p, float log) {
    const double y = p > 0.0f ? (double)log : 0.0;
    return (uint64_t)(-((double)p * y) * 0x1p48 + 0.5);
}
RAFFLE_FN float entropy_of(uint64_t sum) { return (float)((double)sum * 0x1p-48); }

#endif
