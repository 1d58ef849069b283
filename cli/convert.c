#include "convert.h"

#include <string.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float f32_of_f16(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = (float)fraction * 0x1p-24f; /* zero and subnormals */
    return sign ? -small : small;
}

float f32_of_bf16(uint16_t half) { return float_of((uint32_t)half << 16); }

/* value >> shift, rounded to nearest, ties to even; shift is 1 to 31. */
static uint32_t shift_rounded(uint32_t value, unsigned shift) {
    const uint32_t half = 1u << (shift - 1), odd = value >> shift & 1;
    return (value + half - 1 + odd) >> shift;
}

uint16_t f16_of_f32(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000u) return sign | 0x7e00;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00; /* 65520 and up round to infinity */
    if (magnitude >= 0x38800000u) return (uint16_t)(sign | shift_rounded(magnitude - 0x38000000u, 13));
    const uint32_t exponent = magnitude >> 23; /* the result is subnormal: in steps of 2^-24 */
    if (exponent < 102) return sign;           /* below half a step */
    return (uint16_t)(sign | shift_rounded((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent));
}

uint16_t bf16_of_f32(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_rounded(bits, 16); /* the carry may run into infinity, as it should */
}
