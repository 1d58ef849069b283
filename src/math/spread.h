/* spread.h - how the logits of a row are spread: entropy, standard deviation, distance from the typical. Sums are of
 * integers, the rest is in double by fixed sequences. docs/determinism.md, section 6. */
#ifndef RAFFLE_MATH_SPREAD_H
#define RAFFLE_MATH_SPREAD_H

#include "cut_types.h"
#include "probability.h"

/* (best - x) / T: how far a token is below the best, in nats. Not for NaN; -inf is infinitely far. */
RAFFLE_FN double distance_of(const weighing *w, float temperature, float x) {
    if (x == w->best) return 0.0;
    if (w->scale.flat && x > MINUS_INF && w->best < PLUS_INF) return 0.0;
    return ((double)w->best - (double)x) / (double)temperature;
}

/* A token's part in the entropy: tickets times distance, rounded to the nearest integer. Below 2^42. */
RAFFLE_FN uint64_t surprise_of(const weighing *w, float temperature, float x, uint64_t tickets) {
    if (!tickets) return 0;
    return bits_of_double((double)tickets * distance_of(w, temperature, x) + 0x1p52) & 0xfffffffffffffull;
}

/* How far a logit is from the typical one, in logits; never -0, whose bits would sort behind all others. */
RAFFLE_FN float typical_distance(float x, float center) { return float_of(bits_of(x - center) & 0x7fffffffu); }

/* The square root of a double that is 0 or at least 2^-500, to about its last bit: Newton's rule from a first guess
 * that halves the exponent. */
RAFFLE_FN double square_root(double x) {
    if (!(x > 0.0)) return 0.0;
    double y = double_of((bits_of_double(x) >> 1) + 0x1ff8000000000000ull);
    for (int i = 0; i < 5; ++i) y = 0.5 * (y + x / y);
    return y;
}

/* Sums over the finite logits of a row, of their distances from the best in units of 2^-scale: at most 2^21 each. */
typedef struct moments {
    uint64_t count, sum, squares;
} moments;

/* The unit of moments for a row from `least` to `best`, both finite, as the power of two to multiply by. */
RAFFLE_FN double moments_scale(float best, float least) {
    double widest = (double)best - (double)least;
    if (!(widest > 0.0)) return 1.0;
    int exponent = (int)(bits_of_double(widest) >> 52) - 1023;
    return double_of((uint64_t)(1023 + 20 - exponent) << 52);
}

RAFFLE_FN uint64_t moments_term(float best, float x, double scale) {
    return bits_of_double(((double)best - (double)x) * scale + 0x1p52) & 0xfffffffffffffull;
}

RAFFLE_FN double standard_deviation(const moments *m, double scale) {
    double mean = (double)m->sum / (double)m->count;
    double variance = (double)m->squares / (double)m->count - mean * mean;
    return square_root(variance) / scale;
}

#endif
