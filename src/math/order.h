/* order.h - floats as unsigned integers that sort the same way. */
#ifndef RAFFLE_MATH_ORDER_H
#define RAFFLE_MATH_ORDER_H

#include "scalar.h"

/* Monotone for everything but NaN, and dense: neighbouring floats have neighbouring keys, -0 and +0 the same. */
RAFFLE_FN uint32_t order_of(float x) {
    uint32_t u = bits_of(x);
    return u & 0x80000000u ? 0u - u : u | 0x80000000u;
}

RAFFLE_FN float float_of_order(uint32_t key) { return float_of(key & 0x80000000u ? key & 0x7fffffffu : 0u - key); }

RAFFLE_FN float just_below(float x) { return float_of_order(order_of(x) - 1); }
RAFFLE_FN float just_above(float x) { return float_of_order(order_of(x) + 1); }

/* The smallest float >= x: comparing floats with it is comparing them with x. */
RAFFLE_FN float float_at_least(double x) {
    if (!(x > -(double)FLT_MAX)) return x == -(double)FLT_MAX ? -FLT_MAX : MINUS_INF;
    float f = (float)x;
    return (double)f < x ? just_above(f) : f;
}

#endif
