/* wide.h - unsigned integers of 192 bits, for products of tickets and masses. Results are modulo 2^192; callers know
 * that theirs are below. */
#ifndef RAFFLE_MATH_WIDE_H
#define RAFFLE_MATH_WIDE_H

#include "scalar.h"

typedef struct wide { uint64_t word[3]; } wide; /* lowest first */

RAFFLE_FN wide wide_of(uint64_t a) {
    wide made = {{a, 0, 0}};
    return made;
}

/* As a double, within 2^-51 of it. */
RAFFLE_FN double wide_near(wide a) { return (double)a.word[0] + (double)a.word[1] * 0x1p64 + (double)a.word[2] * 0x1p128; }

RAFFLE_FN int wide_is_zero(wide a) { return !(a.word[0] | a.word[1] | a.word[2]); }

RAFFLE_FN int wide_less(wide a, wide b) {
    if (a.word[2] != b.word[2]) return a.word[2] < b.word[2];
    if (a.word[1] != b.word[1]) return a.word[1] < b.word[1];
    return a.word[0] < b.word[0];
}

RAFFLE_FN wide wide_add(wide a, wide b) {
    wide sum;
    sum.word[0] = a.word[0] + b.word[0];
    uint64_t carry = sum.word[0] < a.word[0], middle = a.word[1] + carry;
    sum.word[1] = middle + b.word[1];
    carry = (middle < carry) + (sum.word[1] < middle); /* at most one of the two */
    sum.word[2] = a.word[2] + b.word[2] + carry;
    return sum;
}

RAFFLE_FN wide wide_subtract(wide a, wide b) {
    wide rest;
    rest.word[0] = a.word[0] - b.word[0];
    uint64_t borrow = a.word[0] < b.word[0], middle = a.word[1] - borrow;
    rest.word[1] = middle - b.word[1];
    borrow = (a.word[1] < borrow) + (middle < b.word[1]);
    rest.word[2] = a.word[2] - b.word[2] - borrow;
    return rest;
}

RAFFLE_FN wide wide_multiply(wide a, uint64_t b) {
    wide low = {{a.word[0] * b, a.word[1] * b, a.word[2] * b}};
    wide high = {{0, mul_high(a.word[0], b), mul_high(a.word[1], b)}};
    return wide_add(low, high);
}

/* floor(a * b / 2^64). */
RAFFLE_FN wide wide_multiply_high(wide a, uint64_t b) {
    wide low = {{a.word[1] * b, a.word[2] * b, 0}}; /* a.word[0] * b adds only its upper half, which carries nothing else */
    wide high = {{mul_high(a.word[0], b), mul_high(a.word[1], b), mul_high(a.word[2], b)}};
    return wide_add(low, high);
}

/* floor(a * (high * 2^64 + low) / 2^128): a's share of a fraction of 128 bits. */
RAFFLE_FN wide wide_share(wide a, uint64_t high, uint64_t low) {
    /* a * low / 2^64 may be rounded down first: what that drops is below 1, and a * high is a whole number. */
    wide part = wide_multiply_high(a, low);
    uint64_t first = a.word[0] * high; /* the lowest word of a * high, which only carries */
    wide carried = {{part.word[1], part.word[2], 0}};
    carried = wide_add(carried, wide_of(first + part.word[0] < first));
    return wide_add(wide_multiply_high(a, high), carried);
}

#endif
