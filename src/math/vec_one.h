/* vec_one.h - the vector operations for one lane: portable C, and CUDA. The comments here define each
 * operation; the other vec_*.h files implement the same for more lanes. */
#ifndef RAFFLE_MATH_VEC_H
#define RAFFLE_MATH_VEC_H

#include "half.h"
#include "scalar.h"

#define V_ISA_NAME one
#define V_LANES 1

typedef float vf;    /* lanes of f32 */
typedef uint32_t vu; /* lanes of u32 */
typedef int vm;      /* a lane mask */

RAFFLE_FN vf v_set(float x) { return x; }
RAFFLE_FN float v_first(vf a) { return a; }
RAFFLE_FN vf v_add(vf a, vf b) { return a + b; }
RAFFLE_FN vf v_sub(vf a, vf b) { return a - b; }
RAFFLE_FN vf v_mul(vf a, vf b) { return a * b; }
RAFFLE_FN vf v_fma(vf a, vf b, vf c) { return one_fma(a, b, c); }

/* The larger; b if a is NaN. Which zero comes of -0 and +0 is open: callers must not care. */
RAFFLE_FN vf v_max(vf a, vf b) {
#if defined(__CUDA_ARCH__)
    return fmaxf(a, b);
#else
    return a > b ? a : b;
#endif
}

/* a * 2^n, where t = n + 1.5 * 2^23 and a and the result are normal: adds n to the exponent bits. */
RAFFLE_FN vf v_scale(vf a, vf t) { return float_of(bits_of(a) + (bits_of(t) << 23)); }

/* 0 <= a < 2^32 to the nearest integer, ties to even. */
RAFFLE_FN vu v_round(vf a) {
#if defined(__CUDA_ARCH__)
    return __float2uint_rn(a);
#else
    return (vu)bits_of_double((double)a + 0x1p52); /* the sum's low bits are the integer */
#endif
}

/* Lanes of u set where the mask is, zero elsewhere. */
RAFFLE_FN vu v_where(vm m, vu a) { return m ? a : 0; }
RAFFLE_FN vu v_set_u(uint32_t a) { return a; }
RAFFLE_FN vm v_ge(vf a, vf b) { return a >= b; } /* false if either is NaN */

#if !defined(__CUDACC__) /* from here on: what only src/cpu/rows.c uses */

RAFFLE_FN vf v_load_f32(const void *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}
RAFFLE_FN vf v_load_f16(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return float_of_f16(h);
}
RAFFLE_FN vf v_load_bf16(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return float_of_bf16(h);
}
RAFFLE_FN void v_store(float *p, vf a) { *p = a; }
RAFFLE_FN void v_store_u(uint32_t *p, vu a) { *p = a; }

RAFFLE_FN vf v_min(vf a, vf b) { return a < b ? a : b; } /* the smaller; b if a is NaN */
RAFFLE_FN float v_peak(vf a) { return a; }               /* the largest lane; no lane is NaN */
RAFFLE_FN vm v_gt(vf a, vf b) { return a > b; }
RAFFLE_FN vm v_eq(vf a, vf b) { return a == b; }
RAFFLE_FN vm v_nan(vf a, vf b) { return a != a || b != b; } /* where either is NaN */
RAFFLE_FN vm v_and(vm a, vm b) { return a & b; }
RAFFLE_FN vm v_or(vm a, vm b) { return a | b; }
RAFFLE_FN vm v_none(void) { return 0; }
RAFFLE_FN vf v_select(vm m, vf a, vf b) { return m ? a : b; }
RAFFLE_FN uint32_t v_bits(vm m) { return (uint32_t)m; } /* lane i as bit i */
RAFFLE_FN vm v_mask(uint32_t bits) { return bits & 1; }  /* bit i to lane i; higher bits are ignored */
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return n < 32 ? a >> n : 0; }

/* A sum of u32 lanes in 64 bits. */
typedef uint64_t vsum;
RAFFLE_FN vsum v_sum_zero(void) { return 0; }
RAFFLE_FN vsum v_sum_add(vsum s, vu a) { return s + a; }
RAFFLE_FN uint64_t v_sum_total(vsum s) { return s; }

#endif
#endif
