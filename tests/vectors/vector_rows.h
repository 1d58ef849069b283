/* vector_rows.h - the rows that vectors.txt names, bit for bit the same in every language and on every machine:
 * integers, and float operations that are exact. C99, C++ and CUDA host code. */
#ifndef RAFFLE_TESTS_VECTOR_ROWS_H
#define RAFFLE_TESTS_VECTOR_ROWS_H

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define VECTOR_FN static __attribute__((unused))
#else
#define VECTOR_FN static
#endif

/* raffle_dtype's values, so that this header needs no other. */
enum { VECTOR_F32 = 0, VECTOR_F16 = 1, VECTOR_BF16 = 2 };

/* Splitmix64 as a function of (seed, index). */
VECTOR_FN uint64_t vector_hash(uint64_t seed, uint64_t index) {
    uint64_t z = seed * 0xD1342543DE82EF95ull + (index + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

VECTOR_FN float vector_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

VECTOR_FN uint32_t vector_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* count * 2^exponent, exact for |count| < 2^24 and exponents that keep it normal. */
VECTOR_FN float vector_scaled(int64_t count, int exponent) {
    return (float)count * vector_float((uint32_t)(127 + exponent) << 23);
}

/* f32 to bf16 and f16, to nearest even; overflow gives infinity, NaN stays NaN. */
VECTOR_FN uint16_t vector_bf16(uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

VECTOR_FN uint16_t vector_f16(uint32_t bits) {
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu, exponent = size >> 23, digits, shift, half;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
    if (exponent >= 143) return (uint16_t)(sign | 0x7c00u); /* 2^16 and above, infinity */
    if (exponent < 102) return (uint16_t)sign;              /* below half of the smallest, 2^-25 */
    /* digits * 2^-shift counts units of f16's last place; a carry into the exponent is the right answer. */
    digits = (size & 0x7fffffu) | 0x800000u;
    shift = exponent < 113 ? 126 - exponent : 13;
    half = digits >> shift;
    if (exponent >= 113) half = half - 0x400u + ((exponent - 112) << 10);
    digits &= (1u << shift) - 1;
    if (digits > 1u << (shift - 1) || (digits == 1u << (shift - 1) && half & 1u)) ++half;
    return (uint16_t)(sign | half);
}

VECTOR_FN void vector_store(void *row, int dtype, int64_t i, uint32_t f32_bits) {
    if (dtype == VECTOR_F32) {
        memcpy((char *)row + i * 4, &f32_bits, 4);
    } else {
        uint16_t h = dtype == VECTOR_F16 ? vector_f16(f32_bits) : vector_bf16(f32_bits);
        memcpy((char *)row + i * 2, &h, 2);
    }
}

/* The lowest finite value of a dtype, as f32. */
VECTOR_FN uint32_t vector_lowest(int dtype) {
    return dtype == VECTOR_F32 ? 0xff7fffffu : dtype == VECTOR_F16 ? 0xc77fe000u : 0xff7f0000u;
}

/* A bell of sd about 2.45 out of four 16-bit uniforms: an integer below 2^22 in steps of 2^-18. */
VECTOR_FN float vector_bell(uint64_t h) {
    int64_t sum =
        (int64_t)(h & 0xffff) + (int64_t)(h >> 16 & 0xffff) + (int64_t)(h >> 32 & 0xffff) + (int64_t)(h >> 48);
    return vector_scaled((sum - 131070) * 17, -18);
}

VECTOR_FN uint32_t vector_normal(uint64_t seed, int64_t i) {
    return vector_bits(vector_bell(vector_hash(seed, (uint64_t)i)));
}

/* Subnormals of the dtype itself, and zeros of both signs. */
VECTOR_FN uint32_t vector_tiny(uint64_t h, int dtype) {
    uint32_t sign = (uint32_t)(h & 1) << 31, fraction = (uint32_t)(h >> 8 & 0x7fffffu) >> (h >> 32) % 24;
    if (h >> 40 & 1) fraction = 0;
    if (dtype == VECTOR_F16) return sign | vector_bits(vector_scaled((int64_t)(fraction >> 13), -24));
    return sign | (dtype == VECTOR_F32 ? fraction : fraction & 0x7f0000u);
}

VECTOR_FN uint32_t vector_huge(uint64_t h, int dtype) {
    uint32_t exponent = 127 + (uint32_t)(h >> 32) % (dtype == VECTOR_F16 ? 16u : 100u); /* up to 2^99 < 1e30 */
    return (uint32_t)(h & 1) << 31 | exponent << 23 |
           ((uint32_t)(h >> 8) & (dtype == VECTOR_F16 ? 0x7fe000u : 0x7fffffu));
}

VECTOR_FN uint32_t vector_nan(uint64_t h) {
    return (uint32_t)(h & 1) << 31 | 0x7fc00000u | ((uint32_t)(h >> 8) & 0x3fffffu);
}

/* One token of a row, as f32 bits. Tokens that stand out (`normal`'s twenty) are added by vector_row_make. */
VECTOR_FN uint32_t vector_token(const char *kind, uint64_t seed, int64_t vocab, int dtype, int64_t i) {
    const uint32_t minus_inf = 0xff800000u, plus_inf = 0x7f800000u;
    uint64_t h = vector_hash(seed, (uint64_t)i), row = vector_hash(seed, 0xfeedull);
    if (!strcmp(kind, "flat")) return vector_bits(vector_scaled((int64_t)(h & 0xfff), -16));
    if (!strcmp(kind, "constant")) return vector_bits(vector_scaled((int64_t)(row % 401) - 200, -2));
    if (!strcmp(kind, "two")) return h & 7 ? vector_bits(vector_scaled(-(int64_t)(row % 64), -2)) : 0x3f800000u;
    if (!strcmp(kind, "ascending")) return vector_bits(vector_scaled(i - vocab / 2, -11));
    if (!strcmp(kind, "descending")) return vector_bits(vector_scaled(vocab / 2 - i, -11));
    if (!strcmp(kind, "spiky"))
        return (uint64_t)i % 256 == vector_hash(seed, (uint64_t)i / 256 + 77) % 256
                   ? vector_bits(vector_scaled((int64_t)(h & 0xfff), -10))
                   : vector_bits(vector_scaled(-(int64_t)(h & 0x3ff) - 18 * 1024, -10));
    if (!strcmp(kind, "ties")) return vector_bits(vector_scaled((int64_t)(h % 5) - 2, (int)(row % 4) - 2));
    if (!strcmp(kind, "tiny")) return vector_tiny(h, dtype);
    if (!strcmp(kind, "huge")) return vector_huge(h, dtype);
    if (!strcmp(kind, "narrow")) return 0x3f800000u + (uint32_t)(h & 7);
    if (!strcmp(kind, "nan") && h % 61 == 0) return vector_nan(h >> 8);
    if (!strcmp(kind, "inf") && h % 61 == 0) return h >> 8 & 1 || row & 1 ? minus_inf : plus_inf;
    if (!strcmp(kind, "masked") && h % 101) return h >> 8 & 1 ? minus_inf : vector_lowest(dtype);
    if (!strcmp(kind, "empty")) return h % 3 || row & 1 ? minus_inf : vector_nan(h >> 8);
    return vector_normal(seed, i); /* normal, peaked, and the rest of nan, inf, masked */
}

/* Writes vocab values of dtype (raffle_dtype) to row. Kinds:
 *   normal      a bell of sd 2.45 and about 20 tokens 8 to 12 higher: like a language model's
 *   peaked      the bell, one token 25 to 41 higher       flat        0 to 1/16
 *   constant    one value                                 two         two values
 *   ascending, descending   steps of 2^-11                spiky       one spike in 256 tokens, the rest 18 lower
 *   ties        five values                               tiny        subnormals, -0, +0
 *   huge        up to 2^100 (f16: 2^16), both signs       nan, inf    the bell with some NaN, with some infinities
 *   masked      1 in 101 finite, else -inf or the lowest  empty       only -inf and NaN
 *   narrow      eight neighbours of 1 */
VECTOR_FN void vector_row_make(const char *kind, uint64_t seed, int64_t vocab, int dtype, void *row) {
    int64_t i;
    for (i = 0; i < vocab; ++i) vector_store(row, dtype, i, vector_token(kind, seed, vocab, dtype, i));
    if (!strcmp(kind, "peaked")) {
        uint64_t h = vector_hash(seed, 0xabcdull);
        vector_store(row, dtype, (int64_t)(h % (uint64_t)vocab),
                     vector_bits(vector_scaled(25 * 16 + (int64_t)(h >> 56), -4)));
    }
    if (strcmp(kind, "normal") && strcmp(kind, "nan") && strcmp(kind, "inf")) return;
    for (i = 0; i < 20; ++i) {
        uint64_t h = vector_hash(seed, (uint64_t)i + 0xabcd00ull);
        if (vocab < 256 && i >= 2) break;
        if (!strcmp(kind, "inf") && i % 2) continue;
        vector_store(row, dtype, (int64_t)((h >> 24) % (uint64_t)vocab),
                     vector_bits(vector_scaled(8 * 4096 + (int64_t)(h & 0x3fff), -12)));
    }
}

/* Writes (vocab + 31) / 32 words: bits of 1/2, 1/4, 3/4 or 1/16 of the tokens, by seed. Bits past vocab are noise. */
VECTOR_FN void vector_allow_make(uint64_t seed, int64_t vocab, uint32_t *words) {
    int64_t i;
    for (i = 0; i < (vocab + 31) / 32; ++i) {
        uint64_t a = vector_hash(seed, (uint64_t)i * 2), b = vector_hash(seed, (uint64_t)i * 2 + 1);
        uint32_t low = (uint32_t)a, high = (uint32_t)(a >> 32);
        if (seed % 4 == 0) words[i] = low;
        if (seed % 4 == 1) words[i] = low & high;
        if (seed % 4 == 2) words[i] = low | high;
        if (seed % 4 == 3) words[i] = low & high & (uint32_t)b & (uint32_t)(b >> 32);
    }
}

#endif
