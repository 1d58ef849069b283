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
RAFFLE_FN vf v_select(vm m, vf a, vf b) { return m ? a : b; }

#if !defined(__CUDACC__) /* from here on: what only src/cpu/rows.c uses */

#define V_OPEN 0   /* whether there are v_power, v_fraction, v_fms and v_flush: see weigh_blocks.h, estimate.h */
#define V_ROUGH 0  /* whether there are v_load_rough_bf16, v_smooth_bf16, v_load_allowed_bf16 and v_load_order_bf16: see vec_avx512.h */
#define V_CHAINS 2 /* vectors weighed side by side: as many as the registers allow; even, and divides GROUP / V_LANES */

RAFFLE_FN vf v_min(vf a, vf b) { return a < b ? a : b; } /* b, too, if a is NaN or they are equal */

RAFFLE_FN vf v_load_f32(const void *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}
RAFFLE_FN vf v_load_four(const float *p) { return v_load_f32(p); } /* p[4], or p[V_LANES] if that is less; other lanes hold any of them */
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
/* Rounded to nearest even, to any address; no lane is NaN. */
RAFFLE_FN void v_store_f16(void *p, vf a) {
    uint16_t h = f16_of_float(a);
    memcpy(p, &h, sizeof h);
}
RAFFLE_FN void v_store_bf16(void *p, vf a) {
    uint16_t h = bf16_of_float(a);
    memcpy(p, &h, sizeof h);
}

RAFFLE_FN float v_peak(vf a) { return a; } /* the largest lane; no lane is NaN */
RAFFLE_FN vm v_gt(vf a, vf b) { return a > b; }
RAFFLE_FN vm v_eq(vf a, vf b) { return a == b; }
RAFFLE_FN vm v_numbers(vm m, vf a, vf b) { return m & (a == a) & (b == b); } /* m, less where a or b is NaN */
RAFFLE_FN vm v_and(vm a, vm b) { return a & b; }
RAFFLE_FN vm v_without(vm a, vm b) { return a & !b; }
RAFFLE_FN vm v_within(vf a, vf low, vf high) { return (a > low) & (a <= high); }
RAFFLE_FN vf v_add_where(vm m, vf a, vf b) { return m ? a + b : a; } /* b is not NaN */
RAFFLE_FN vu v_add_where_u(vm m, vu a, vu b) { return m ? a + b : a; }
/* The smaller of `least`, which is not below 0, and |a - at|. NaN in a counts as nothing. */
RAFFLE_FN vf v_nearer(vf least, vf a, vf at) {
    float apart = a > at ? a - at : at - a;
    return apart < least ? apart : least;
}
RAFFLE_FN vm v_every(void) { return 1; }
RAFFLE_FN uint32_t v_bits(vm m) { return (uint32_t)m; } /* lane i as bit i */
RAFFLE_FN vm v_mask(uint32_t bits) { return bits & 1; }  /* bit i to lane i; higher bits are ignored */

/* Which of tokens i and up, i a multiple of V_LANES, a mask of 32 tokens a word allows; and the larger of a and b where it allows a, else
 * b. As for v_max, NaN in a counts as nothing. */
RAFFLE_FN vm v_allowed(const uint32_t *allow, int64_t i) { return v_mask(allow[(uint64_t)i / 32] >> i % 32); }
RAFFLE_FN vf v_max_allowed(vf a, vf b, const uint32_t *allow, int64_t i) { return v_allowed(allow, i) ? v_max(a, b) : b; }
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return n < 32 ? a >> n : 0; }

/* 2 V_LANES tokens in any order. */
RAFFLE_FN void v_load_pair_bf16(const void *p, vf *a, vf *b) {
    *a = v_load_bf16(p);
    *b = v_load_bf16((const char *)p + 2);
}

/* The largest lane, the sum of the lanes (floats in any order, integers modulo 2^32), of each of four vectors. */
#define STORE_FOUR(name, lane)                                                                                         \
    RAFFLE_FN void name(lane *p, lane a, lane b, lane c, lane d) { p[0] = a, p[1] = b, p[2] = c, p[3] = d; }
STORE_FOUR(v_store_peaks, float)
STORE_FOUR(v_store_totals, float)
STORE_FOUR(v_store_totals_u, uint32_t)

/* The largest of each four of part[16] to peak[4]. */
RAFFLE_FN void v_store_fourths(float *peak, const float *part) {
    for (int i = 0; i < 4; ++i) {
        float a = part[4 * i] > part[4 * i + 1] ? part[4 * i] : part[4 * i + 1];
        float b = part[4 * i + 2] > part[4 * i + 3] ? part[4 * i + 2] : part[4 * i + 3];
        peak[i] = a > b ? a : b;
    }
}

/* Writes the lanes of a that are in m, and first + their number, side by side; returns how many. May
 * write anything behind them, up to V_LANES in all. */
RAFFLE_FN int v_pack(float *x, int32_t *id, vf a, int32_t first, vm m) {
    *x = a;
    *id = first;
    return m;
}

/* p[lane of i]. */
RAFFLE_FN vf v_gather(const float *p, vu i) { return p[i]; }
RAFFLE_FN vu v_load_u(const void *p) {
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}
RAFFLE_FN vu v_sub_u(vu a, vu b) { return a - b; }
/* (lane of a << left) >> lane of right; 0 where that is 64 or more. */
RAFFLE_FN void v_store_shifted(uint64_t *p, vu a, uint32_t left, vu right) {
    *p = right < 64 ? (uint64_t)a << left >> right : 0;
}

/* How many of V_LANES integers come before the first that is not below the bound. */
RAFFLE_FN int v_lead_below(const int32_t *p, int32_t bound) { return *p < bound; }
RAFFLE_FN void v_store_wide(uint64_t *p, vu a, uint32_t left) { *p = (uint64_t)a << left; }

RAFFLE_FN vu v_add_u(vu a, vu b) { return a + b; }
RAFFLE_FN vu v_bits_of(vf a) { return bits_of(a); }
/* The one with the larger bits, as an unsigned number: of numbers that are not negative the larger, else a negative one or NaN. */
RAFFLE_FN vf v_max_bits(vf a, vf b) { return bits_of(a) > bits_of(b) ? a : b; }

/* A sum of rounded weights modulo 2^32, starting at zero. */
typedef vu vcount;
RAFFLE_FN vcount v_count_add(vcount sum, vf a) { return sum + v_round(a); }
RAFFLE_FN vu v_count_low(vcount sum) { return sum; }

RAFFLE_FN uint32_t v_total_u(vu a) { return a; } /* the sum of all lanes, modulo 2^32 */
RAFFLE_FN float v_total(vf a) { return a; }      /* the sum of all lanes, in any order */

#endif
#endif
