/* scalar.h - what every formula stands on: bit casts, a correctly rounded fma, wide multiplication.
 * Compiles as C11 and as CUDA device code. */
#ifndef RAFFLE_MATH_SCALAR_H
#define RAFFLE_MATH_SCALAR_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define RAFFLE_FN static __device__ __forceinline__
#elif !defined(RAFFLE_FN) /* a build with sanitizers defines it: see cmake/flags.cmake */
#define RAFFLE_FN static inline __attribute__((always_inline, unused))
#endif

#define MINUS_INF (-__builtin_inff())
#define PLUS_INF (__builtin_inff())

RAFFLE_FN uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
#endif
}

RAFFLE_FN float float_of(uint32_t u) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(u);
#else
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
#endif
}

RAFFLE_FN uint64_t bits_of_double(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

RAFFLE_FN double double_of(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* a * b + c, rounded once. Machines without the instruction add the exact product in double, rounding
 * to odd (the last bit remembers that something was lost), so that the second rounding is the right one. */
RAFFLE_FN float one_fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#elif (defined(__FMA__) || defined(__aarch64__)) && !defined(RAFFLE_SOFT_FMA)
    return __builtin_fmaf(a, b, c);
#else
    double product = (double)a * (double)b, addend = (double)c;
    double sum = product + addend;
    double moved = sum - product;
    double lost = (product - (sum - moved)) + (addend - moved);
    uint64_t bits = bits_of_double(sum);
    int finite = (bits >> 52 & 0x7ff) != 0x7ff;
    if (finite && lost != 0.0 && !(bits & 1)) bits = (lost > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
    return (float)double_of(bits);
#endif
}

/* The upper 64 bits of a 64 x 64 bit product. */
RAFFLE_FN uint64_t mul_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
    return __umul64hi(a, b);
#else
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)a * b >> 64);
#endif
}

#endif
