/* logarithm.h - natural logarithm of a positive, finite double, as a fixed sequence of correctly rounded
 * operations: the same bits everywhere, within 4e-16 relative. */
#ifndef RAFFLE_MATH_LOGARITHM_H
#define RAFFLE_MATH_LOGARITHM_H

#include "scalar.h"

RAFFLE_FN double natural_log(double x) {
    /* x = m * 2^k with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh((m - 1) / (m + 1)). */
    uint64_t bits = bits_of_double(x) - 0x3fe6a09e667f3bcdull; /* minus sqrt(1/2) */
    int64_t k = (int64_t)bits >> 52;
    double m = double_of((bits & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
    double s = (m - 1.0) / (m + 1.0), z = s * s, sum = 1.0 / 23.0;
    for (int odd = 21; odd >= 3; odd -= 2) sum = sum * z + 1.0 / (double)odd;
    return (double)k * 0.6931471805599453 + (2.0 * s + 2.0 * s * z * sum);
}

#endif
