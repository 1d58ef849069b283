/* half.h - f16 and bf16 to f32, exactly, and back, rounded to nearest even. */
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

/* For numbers and infinities, not NaN. */
RAFFLE_FN uint16_t bf16_of_float(float x) {
    uint32_t u = bits_of(x);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

RAFFLE_FN uint16_t f16_of_float(float x) {
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u, size = u & 0x7fffffffu;
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more round to infinity */
    if (size < 0x38800000u) { /* below 2^-14, subnormals: adding 1/2 leaves the right number of digits */
        uint32_t digits = bits_of(float_of(size) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | digits);
    }
    return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13));
}

#endif
