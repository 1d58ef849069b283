/* weigh.h - logits to integer weights and tickets. Written over the operations of a vec_*.h that must be
 * included before. docs/determinism.md defines each step. */
#ifndef RAFFLE_MATH_WEIGH_H
#define RAFFLE_MATH_WEIGH_H

#include "order.h"
#include "row_types.h"
#include "scalar.h"

enum {
    GROUP = 256,          /* tokens [256 g, 256 g + 255] are weighed against their own maximum */
    GROUP_SHIFT = 8,      /* its power of two */
    STRETCH = 8, STRETCH_TOKENS = STRETCH * GROUP, /* groups [8 h, 8 h + 7]: what a draw decides for first */
    WEIGHT_BITS = 31,     /* a group's largest weight is between 0.999 * 2^31 and 2^32 */
    TICKET_BITS = 10,     /* tickets carry this many bits below a weight of the row's best group */
    STEP_EXPONENT = (1 << 30) + (1 << 10) /* exponent of references beyond the range of the others */
};

#define MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, ties to even */
#define HALF_STEP_INVERSE 0x1.6a647ep-1f /* 1 / v_exp2(0.5) */
#define GREEDY_BELOW 1e-5f
#define FLAT_FROM 0x1p100f /* temperatures from here on are +inf: every allowed token weighs the same */

/* ---- temperature -> scale ---------------------------------------------------------------------- */

/* log2(e) / temperature as c + c_low, and the distance below a reference at which nothing is left. */
typedef struct scale { float c, c_low, drop; int flat, linear; } scale;

RAFFLE_FN scale scale_make(float temperature) {
    scale s = {0.0f, 0.0f, 0.0f, 1, temperature == LINEAR_TEMPERATURE};
    if (s.linear || !(temperature < FLAT_FROM)) return s;
    double q = 1.4426950408889634 / (double)temperature;
    s.c = (float)q;
    s.c_low = (float)(q - (double)s.c);
    s.drop = temperature * 41.5f; /* 60 powers of two */
    s.flat = 0;
    return s;
}

/* ---- maximum -> reference ----------------------------------------------------------------------- */

/* How the tokens below a maximum m are weighed. Three kinds, so that every finite logit is exact at
 * every temperature below FLAT_FROM:
 *   PLAIN  |m c| < 2^12: x c is split into integer and fraction as it stands.
 *   TALL   beyond, below 2^30: the difference x - m is (it is exact there), times the gain 2^fraction(m c).
 *   STEP   beyond that two different floats are 2^64 apart in weight, and +inf is +inf: tokens >= the
 *          base weigh the same and all others nothing. Temperature +inf is the same with the lowest base.
 *   LINEAR a scale that is linear: values times a power of two, in two factors because one may be beyond f32. */
enum { REF_PLAIN = 0, REF_TALL = 1, REF_STEP = 2, REF_LINEAR = 3 };
typedef struct ref {
    int kind;
    int32_t exponent; /* weights are in units of 2^(exponent - WEIGHT_BITS) */
    float c, c_low;
    float magic;      /* MAGIC + what the exponent adds */
    float base, gain; /* what TALL subtracts and multiplies by; what STEP compares with; the factors of LINEAR */
    float low;        /* a logit (TALL: a difference) below weighs nothing */
} ref;

/* The formulas are written for `count` vectors side by side, each step for all of them before the next: the steps
 * of one vector wait for each other. `count` is a compile-time constant, at most V_CHAINS. */
#ifndef V_CHAINS
#define V_CHAINS 1
#endif

/* 2^r for r in [0, 1], less one part in 1024 so that it stays below 2: a factor that all weights share.
 * Monotone: every step is. Coefficients, lowest first, and their error: dev/exp2. */
#define EXP2_TERMS {0x1.ff8p-1f, 0x1.628bfcp-1f, 0x1.eb6136p-3f, 0x1.c8a060p-5f, 0x1.275f9cp-7f, 0x1.e858d2p-10f}
enum { EXP2_COUNT = 6 };

/* k[EXP2_COUNT] are the coefficients, or all of them times one power of two. */
RAFFLE_FN void v_polynomials(vf *p, const vf *r, int count, const vf *k) {
    for (int i = 0; i < count; ++i) p[i] = v_fma(k[5], r[i], k[4]);
    for (int i = 0; i < count; ++i) p[i] = v_fma(p[i], r[i], k[3]);
    for (int i = 0; i < count; ++i) p[i] = v_fma(p[i], r[i], k[2]);
    for (int i = 0; i < count; ++i) p[i] = v_fma(p[i], r[i], k[1]);
    for (int i = 0; i < count; ++i) p[i] = v_fma(p[i], r[i], k[0]);
}

RAFFLE_FN void v_exp2s(vf *p, const vf *r, int count) {
    const float term[EXP2_COUNT] = EXP2_TERMS;
    vf k[EXP2_COUNT];
    for (int i = 0; i < EXP2_COUNT; ++i) k[i] = v_set(term[i]);
    v_polynomials(p, r, count, k);
}

RAFFLE_FN vf v_exp2(vf r) {
    vf p;
    v_exp2s(&p, &r, 1);
    return p;
}

/* Whether the reference is PLAIN, for a scale that is not flat. */
RAFFLE_FN int ref_is_near(scale s, float m) {
    float p = m * s.c;
    return (p < 0.0f ? -p : p) < 0x1p12f;
}

/* The reference if it is PLAIN. */
RAFFLE_FN ref ref_make_near(scale s, float m) {
    ref f = {REF_PLAIN, 0, s.c, s.c_low, 0.0f, 0.0f, 1.0f, m - s.drop};
    float t = one_fma(m, s.c, MAGIC);
    f.exponent = (int32_t)(bits_of(t) - bits_of(MAGIC));
    f.magic = (MAGIC + (float)WEIGHT_BITS) - (t - MAGIC);
    return f;
}

/* The reference of weights that are given: 2^exponent <= m. */
RAFFLE_FN ref ref_make_linear(float m) {
    ref f = {REF_LINEAR, 0, 0.0f, 0.0f, 0.0f, 1.0f, 1.0f, 0.0f};
    if (m < 0x1p-62f) f.base = 0x1p64f;
    int32_t exponent = (int32_t)(bits_of(m * f.base) >> 23 & 0xff) - 127;
    f.gain = float_of((uint32_t)(127 + WEIGHT_BITS - exponent) << 23);
    f.exponent = exponent - (m < 0x1p-62f ? 64 : 0);
    return f;
}

RAFFLE_FN ref ref_make(scale s, float m) {
    ref f = ref_make_near(s, m);
    if (s.linear && m < PLUS_INF) return ref_make_linear(m);
    if (!s.flat && ref_is_near(s, m)) return f;
    float p = m * s.c;
    if (s.flat || !(p < 0x1p30f) || !(p > -0x1p30f)) {
        int flat = s.flat && m < PLUS_INF;
        f.kind = REF_STEP;
        f.base = flat ? -FLT_MAX : m;
        f.exponent = flat ? 0 : m > 0.0f ? STEP_EXPONENT : -STEP_EXPONENT;
    } else {
        double exact = (double)m * (double)s.c + (double)m * (double)s.c_low;
        double whole = (exact + 0x1.8p52) - 0x1.8p52;
        f.kind = REF_TALL;
        f.exponent = (int32_t)whole;
        f.magic = MAGIC + (float)WEIGHT_BITS;
        f.base = m;
        f.low = -s.drop;
        f.gain = v_first(v_exp2(v_set((float)(exact - whole) + 0.5f))) * HALF_STEP_INVERSE;
    }
    return f;
}

/* ---- logit -> weight ---------------------------------------------------------------------------- */

/* Makes of each x 2^(x c) in the reference's units, as a float, for x <= the reference's maximum. Not for REF_STEP.
 * `tall` is a compile-time constant at every call; for REF_PLAIN both give the same bits.
 * x c = n + r - 1/2: n is an integer for the exponent, r in [0, 1] for the polynomial. */
RAFFLE_FN void v_weights_of(vf *x, int count, vf c, vf c_low, vf magic, vf gain, int tall) {
    vf t[V_CHAINS], r[V_CHAINS];
    for (int i = 0; i < count; ++i) t[i] = v_fma(x[i], c, magic); /* n + magic, n the nearest integer to x c */
    for (int i = 0; i < count; ++i) r[i] = v_fma(x[i], c, v_sub(magic, t[i])); /* x c - n: small, so nothing is lost */
    for (int i = 0; i < count; ++i) r[i] = v_add(r[i], v_fma(x[i], c_low, v_set(0.5f)));
    v_exp2s(x, r, count);
    for (int i = 0; i < count; ++i) {
        if (tall) x[i] = v_mul(x[i], gain);
        x[i] = v_scale(x[i], t[i]);
    }
}

RAFFLE_FN void v_weights(vf *x, int count, const ref *f, int tall) {
    for (int i = 0; i < count; ++i) {
        if (tall) x[i] = v_sub(x[i], v_set(f->base));
        x[i] = v_max(x[i], v_set(f->low)); /* -inf and NaN end here */
    }
    v_weights_of(x, count, v_set(f->c), v_set(f->c_low), v_set(f->magic), v_set(f->gain), tall);
}

RAFFLE_FN vf v_weight(vf x, const ref *f, int tall) {
    v_weights(&x, 1, f, tall);
    return x;
}

/* The weight of each lane before it is rounded, under any reference. */
RAFFLE_FN vf v_weight_any(vf x, const ref *f) {
    if (f->kind == REF_PLAIN) return v_weight(x, f, 0);
    if (f->kind == REF_TALL) return v_weight(x, f, 1);
    if (f->kind == REF_LINEAR) return v_max(v_mul(v_mul(x, v_set(f->base)), v_set(f->gain)), v_set(0.0f));
    return v_select(v_ge(x, v_set(f->base)), v_set(0x1p31f), v_set(0.0f));
}

/* The integer weight of each lane under any reference. */
RAFFLE_FN vu v_weigh(vf x, const ref *f) {
    if (f->kind == REF_STEP) return v_where(v_ge(x, v_set(f->base)), v_set_u(1u << WEIGHT_BITS));
    return v_round(v_weight_any(x, f));
}

/* ---- weight -> tickets ---------------------------------------------------------------------------- */

/* How far a group with maximum m and reference f lies below the row's best, with maximum `best` and
 * reference `row`, in powers of two. */
RAFFLE_FN uint32_t ref_distance(const ref *row, float best, const ref *f, float m) {
    if (row->kind == REF_STEP && row->base == best && m < best) return UINT32_MAX;
    return (uint32_t)row->exponent - (uint32_t)f->exponent;
}

/* The same where 64 is as good as more: such a group holds no tickets. */
RAFFLE_FN uint32_t ref_below(const ref *row, float best, const ref *f, float m) {
    uint32_t below = ref_distance(row, best, f, m);
    return below < 64 ? below : 64;
}

/* Tickets of a weight, or of a sum of weights (below 2^40), `below` under the row's best. */
RAFFLE_FN uint64_t tickets_of(uint64_t weight, uint32_t below) {
    return below < 64 ? (weight << TICKET_BITS) >> below : 0;
}

/* The weight that holds ticket number `ticket` of a group: < the weight whose tickets are > `ticket`. */
RAFFLE_FN uint64_t weight_of(uint64_t ticket, uint32_t below) { return (ticket << below) >> TICKET_BITS; }

#endif
