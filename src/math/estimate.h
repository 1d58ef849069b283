/* estimate.h - about what tokens weigh, in fewer operations than weigh.h needs, and how far off their sum can be. For the CPU:
 * top-p asks of the row's mass only whether the largest tokens hold their share of it, a draw which stretch holds some fraction of it,
 * and mostly that is the same for every mass the row can have. No result depends on an estimate: where it does not decide, the row is
 * weighed exactly. */
#ifndef RAFFLE_MATH_ESTIMATE_H
#define RAFFLE_MATH_ESTIMATE_H

#include "settle.h"
#include "weigh.h"

/* How tokens are estimated: 2^(x c - at), where `at` is the integer next to m c of some group's maximum m. */
typedef struct estimator {
    float c, at;
    float low; /* logits below count as this one: 60 powers of two below m. Not where v_power knows them (V_OPEN) */
} estimator;

/* The row's largest logit may be this many powers of two above m. */
#define ESTIMATE_REACH 96.0f

RAFFLE_FN estimator estimator_make(scale s, float m) {
    estimator e = {s.c, one_fma(m, s.c, MAGIC) - MAGIC, m - s.drop};
    return e;
}

/* 2^r, lowest coefficient first: r in [0, 1] where v_power takes the whole part of an exponent for itself, else in [-1/2, 1/2].
 * The relative error is 2.6e-6 before rounding, in both. */
#if V_OPEN
#define ESTIMATE_TERMS {0x1.00002cp+0f, 0x1.62d166p-1f, 0x1.ee798ap-3f, 0x1.aa13f0p-5f, 0x1.bb7cd4p-7f}
#else
#define ESTIMATE_TERMS {0x1.ffffe8p-1f, 0x1.62e0dcp-1f, 0x1.ec06dap-3f, 0x1.ca1440p-5f, 0x1.3997d6p-7f}
#endif

/* Makes of each x about 2^(x c - at). -inf becomes 0, or nearly; +inf and what is beyond the reach anything. NaN: NaN with V_OPEN,
 * else like -inf. */
RAFFLE_FN void v_estimates(vf *x, int count, const estimator *e) {
    const float k[5] = ESTIMATE_TERMS;
    const vf c = v_set(e->c);
    vf r[V_CHAINS], p[V_CHAINS];
#if V_OPEN
    for (int i = 0; i < count; ++i) x[i] = v_fms(x[i], c, v_set(e->at));
    for (int i = 0; i < count; ++i) r[i] = v_fraction(x[i]);
#else
    const vf magic = v_set(MAGIC - e->at);
    vf t[V_CHAINS];
    for (int i = 0; i < count; ++i) x[i] = v_max(x[i], v_set(e->low));
    for (int i = 0; i < count; ++i) t[i] = v_fma(x[i], c, magic);
    for (int i = 0; i < count; ++i) r[i] = v_fma(x[i], c, v_sub(magic, t[i]));
#endif
    for (int i = 0; i < count; ++i) p[i] = v_fma(v_set(k[4]), r[i], v_set(k[3]));
    for (int i = 0; i < count; ++i) p[i] = v_fma(p[i], r[i], v_set(k[2]));
    for (int i = 0; i < count; ++i) p[i] = v_fma(p[i], r[i], v_set(k[1]));
    for (int i = 0; i < count; ++i) p[i] = v_fma(p[i], r[i], v_set(k[0]));
#if V_OPEN
    for (int i = 0; i < count; ++i) x[i] = v_power(p[i], x[i]);
#else
    for (int i = 0; i < count; ++i) x[i] = v_scale(p[i], t[i]);
#endif
}

/* How far sums of estimates are off, each a part of at most `depth` additions of floats; what is added in double is exact by
 * comparison. row: the reference of the row's largest logit, `best`.
 *
 * A token's tickets are (1 - 2^-10) 2^(41 + 1/2 - row->exponent) 2^(x (c + c_low)), docs/determinism.md, and an estimate differs
 * from that by factors that are near 1. With u = 2^-24, D = (best - x) c the powers of two a token lies below the largest, and
 * U >= |best c - at|:
 *     polynomial            2.6e-6, and 2.5 u for its roundings and those of the coefficients
 *     x c - at, rounded     (D + U) u ln 2. V_OPEN: and its fraction, u. Else only that: less than u
 *     c_low left out        2^(x c_low) = 2^(best c_low) 2^-((best - x) c_low), |c_low| <= u c. The first factor all tokens have, the
 *                           second is off by D u ln 2
 *     addition              depth u
 *     exact weights         1.9e-7 off 2^(x (c + c_low)) at worst, themselves rounded to integers by 1/2 where the largest of 256 is
 *                           2^31, together 5.2 u
 *     tickets               of each group, less than one too few: 2^-40 of the mass for each group, the largest token having 2^40
 *     below `low`           estimates of 2^-60 for what holds no tickets: 2^31 of them are less than u
 * D is another one for each token, but on the average of a row, each token counting for what it weighs, at most the logarithm of
 * their number N to the base 2, L: a token D below the largest adds 2^-D (D - L) to the sum of what they are off beyond L, which is
 * at most 0.54 2^-L = 0.54 / N, all of them 0.54; and the largest itself, with D = 0, takes L from it.
 * So a sum is within 2.6e-6 + (10 + depth + U) u of its own and (2 L) u + 2^-40 groups of the row's, where ln 2 < 1 leaves something for
 * products of errors. */
RAFFLE_FN estimate_error estimate_off(int depth, const estimator *e, const ref *row, float best, int64_t vocab) {
    const double high = (double)best * (double)e->c, apart = high - (double)e->at;
    const int lengths = 64 - __builtin_clzll((uint64_t)vocab);
    estimate_error off = {1.0, 1.0};
    if (row->kind != REF_PLAIN || !(apart < (double)ESTIMATE_REACH && high > 64.0 - 0x1p12)) return off; /* NaN, too; or lower groups are TALL */
    off.own = 2.6e-6 + (10 + depth + (apart < 0.0 ? 1.0 : apart + 1.0)) * 0x1p-24;
    off.all = 2 * lengths * 0x1p-24 + (double)vocab * 0x1p-48;
    return off;
}

/* The same for sums of any tokens, not of whole groups; `all` is a part of whatever is summed in all, if the row's largest token is in
 * it. For what estimate_off says of the D of tokens holds for the tokens of any set that has the largest; and beyond that
 *     rounded weights       half a unit for each token, where the largest of 256 weighs 2^31: all together u of the row. (Of what is
 *                           above a value, where a group's largest always is, it is u of itself, which `own` has.)
 *     tickets               of each token, less than one too few: 2^-40 of the sum for each */
RAFFLE_FN estimate_error estimate_off_tokens(int depth, const estimator *e, const ref *row, float best, int64_t vocab) {
    estimate_error off = estimate_off(depth, e, row, best, vocab);
    off.all += 0x1p-24 + (double)vocab * 0x1p-40;
    return off;
}

/* Between which two numbers a row's mass lies. high 0: it is not known. */
typedef struct mass_range { uint64_t low, high; } mass_range;

/* The mass of a row whose estimates add up to `sum`. */
RAFFLE_FN mass_range mass_estimate(double sum, int depth, const estimator *e, scale s, const ref *row, float best, int64_t vocab) {
    const double unit = 0x1.69af63ee59bfep+41; /* (1 - 2^-10) sqrt(2) 2^41 */
    const double shift = (double)e->at - (double)row->exponent;
    const mass_range none = {0, 0};
    const estimate_error off = estimate_off(depth, e, row, best, vocab);
    if (!(off.own < 1.0 && sum < 0x1p126)) return none; /* NaN, too */
    const double power = double_of((uint64_t)(1023 + (int64_t)shift) << 52); /* 2^-97 or more: at - exponent */
    const double mass = sum * power * unit * (1.0 + (double)best * (double)s.c_low * 0.6931471805599453);
    if (!(mass < 0x1p62)) return none;
    const double by = off.own + off.all;
    const mass_range range = {(uint64_t)(mass * (1.0 - by)), (uint64_t)(mass * (1.0 + by)) + 1};
    return range;
}

#endif
