/* half.h - f16 and bf16 to f32, exactly. */
#ifndef RAFFLE_MATH_HALF_H
#define RAFFLE_MATH_HALF_H

#include "scalar.h"

RAFFLE_FN float float_of_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

RAFFLE_FN float float_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13); /* inf, NaN */
    if (rest >= 0x400u) return float_of(sign | ((rest << 13) + 0x38000000u));
    float subnormal = (float)rest * 0x1p-24f; /* rest has 10 bits: exact */
    return float_of(sign | bits_of(subnormal));
}

#endif
