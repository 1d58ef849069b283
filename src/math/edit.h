/* edit.h - how a request edits a logit: each formula as a fixed sequence of correctly rounded operations. A token
 * that is out (-inf or NaN) stays what it is. docs/determinism.md, section 1. */
#ifndef RAFFLE_MATH_EDIT_H
#define RAFFLE_MATH_EDIT_H

#include "scalar.h"

enum { DRY_LENGTH_MAX = 64 }; /* longer repetitions count as this long */

typedef struct penalties {
    float repetition, frequency, presence; /* 1, 0, 0: off */
} penalties;

RAFFLE_FN int edit_out(float x) { return !(x > MINUS_INF); }

RAFFLE_FN float edit_bias(float x, float bias) {
    if (edit_out(x)) return x;
    return bias == MINUS_INF ? MINUS_INF : x + bias;
}

/* `seen`: whether repetition counts the token as said; `count`: how often frequency and presence do. */
RAFFLE_FN float edit_penalise(float x, const penalties *p, int seen, uint32_t count) {
    if (edit_out(x)) return x;
    if (seen && p->repetition != 1.0f) x = x > 0.0f ? x / p->repetition : x * p->repetition;
    if (count) {
        if (p->frequency != 0.0f) x = x - (float)count * p->frequency;
        if (p->presence != 0.0f) x = x - p->presence;
    }
    return x;
}

/* What DRY takes off the logit of a token that would make a repetition of `length` tokens one longer. The power is
 * made by squaring, lowest bit of the exponent first, in double. */
RAFFLE_FN float dry_penalty(float multiplier, float base, int32_t length, int32_t allowed) {
    double power = (double)multiplier, square = (double)base;
    for (uint32_t left = (uint32_t)(length - allowed); left; left >>= 1) {
        if (left & 1) power = power * square;
        square = square * square;
    }
    return power < (double)FLT_MAX ? (float)power : FLT_MAX;
}

RAFFLE_FN float edit_dry(float x, float penalty) { return edit_out(x) ? x : x - penalty; }

#endif
