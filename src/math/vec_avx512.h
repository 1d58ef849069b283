/* vec_avx512.h - the operations of vec_one.h for 16 lanes: AVX-512 F, BW, DQ, VL. */
#ifndef RAFFLE_MATH_VEC_H
#define RAFFLE_MATH_VEC_H

#include <immintrin.h>

#include "half.h"
#include "scalar.h"

#define V_ISA_NAME avx512
#define V_LANES 16
#define V_CHAINS 8
#define V_OPEN 1
#define V_ROUGH 1

typedef __m512 vf;
typedef __m512i vu;
typedef __mmask16 vm;

RAFFLE_FN vf v_set(float x) { return _mm512_set1_ps(x); }
RAFFLE_FN float v_first(vf a) { return _mm512_cvtss_f32(a); }
RAFFLE_FN vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
RAFFLE_FN vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
RAFFLE_FN vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
RAFFLE_FN vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
RAFFLE_FN vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
RAFFLE_FN vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
RAFFLE_FN vf v_scale(vf a, vf t) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), n));
}
RAFFLE_FN vf v_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }   /* a b - c */
RAFFLE_FN vf v_power(vf a, vf n) { return _mm512_scalef_ps(a, n); } /* a 2^floor(n), rounded once */
RAFFLE_FN vf v_fraction(vf a) { return _mm512_reduce_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); } /* a - floor(a); 0 of infinities */
/* Whether results below 2^-126 become 0 from here on, which costs less than making them. */
RAFFLE_FN void v_flush(int on) { _MM_SET_FLUSH_ZERO_MODE(on ? _MM_FLUSH_ZERO_ON : _MM_FLUSH_ZERO_OFF); }
RAFFLE_FN vu v_round(vf a) { return _mm512_cvtps_epu32(a); }
RAFFLE_FN vu v_where(vm m, vu a) { return _mm512_maskz_mov_epi32(m, a); }
RAFFLE_FN vu v_set_u(uint32_t a) { return _mm512_set1_epi32((int)a); }
RAFFLE_FN vm v_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

/* The empty statement keeps gcc from reading memory again for every use of what was read. */
RAFFLE_FN vf v_load_f32(const void *p) {
    __m512 a = _mm512_loadu_ps(p);
    __asm__("" : "+v"(a));
    return a;
}
RAFFLE_FN vf v_load_four(const float *p) { return _mm512_broadcast_f32x4(_mm_loadu_ps(p)); }
RAFFLE_FN vf v_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
RAFFLE_FN vf v_load_bf16(const void *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
RAFFLE_FN void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
RAFFLE_FN void v_store_u(uint32_t *p, vu a) { _mm512_storeu_si512(p, a); }
RAFFLE_FN void v_store_f16(void *p, vf a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
RAFFLE_FN void v_store_bf16(void *p, vf a) {
    __m512i u = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16)));
}

RAFFLE_FN float v_peak(vf a) { return _mm512_reduce_max_ps(a); }
RAFFLE_FN vm v_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
RAFFLE_FN vm v_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
RAFFLE_FN vm v_numbers(vm m, vf a, vf b) { return _mm512_mask_cmp_ps_mask(m, a, b, _CMP_ORD_Q); }
RAFFLE_FN vm v_and(vm a, vm b) { return (vm)(a & b); }
RAFFLE_FN vm v_without(vm a, vm b) { return (vm)(a & ~b); }
RAFFLE_FN vm v_within(vf a, vf low, vf high) { return _mm512_mask_cmp_ps_mask(v_gt(a, low), a, high, _CMP_LE_OQ); }
RAFFLE_FN vf v_add_where(vm m, vf a, vf b) { return _mm512_mask_add_ps(a, m, a, b); }
RAFFLE_FN vu v_add_where_u(vm m, vu a, vu b) { return _mm512_mask_add_epi32(a, m, a, b); }
RAFFLE_FN vf v_nearer(vf least, vf a, vf at) { return _mm512_range_ps(v_sub(a, at), least, 0xa); } /* 0xa: smaller size, no sign */
RAFFLE_FN vm v_every(void) { return 0xffff; }
RAFFLE_FN vf v_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
RAFFLE_FN uint32_t v_bits(vm m) { return m; }
RAFFLE_FN vm v_mask(uint32_t bits) { return (vm)bits; }
RAFFLE_FN vm v_allowed(const uint32_t *allow, int64_t i) {
    vm m;
    memcpy(&m, (const char *)allow + (uint64_t)i / 8, sizeof m);
    return m;
}
RAFFLE_FN vf v_max_allowed(vf a, vf b, const uint32_t *allow, int64_t i) {
    return _mm512_mask_max_ps(b, v_allowed(allow, i), a, b);
}
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return _mm512_srlv_epi32(a, _mm512_set1_epi32((int)n)); }

RAFFLE_FN void v_load_pair_bf16(const void *p, vf *a, vf *b) {
    __m512i both = _mm512_castps_si512(v_load_f32(p));
    *a = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *b = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
}
/* The same in order, in one operation a vector, not two: each lane takes its upper 16 bits from where they are. */
RAFFLE_FN void v_load_order_bf16(const void *p, vf *a, vf *b) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), first = _mm512_slli_epi32(lane, 16);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(16 << 16));
    const __m512i both = _mm512_castps_si512(v_load_f32(p));
    *a = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, first, both));
    *b = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, second, both));
}
/* The same with anything in the lower 16 bits of each lane, so that infinities may be NaN. v_smooth_bf16 clears them, and
 * keeps the order of numbers: the largest of rough numbers, made smooth, is the largest. */
RAFFLE_FN void v_load_rough_bf16(const void *p, vf *a, vf *b) {
    *b = v_load_f32(p);
    *a = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(*b), 16));
}
RAFFLE_FN vf v_smooth_bf16(vf a) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32((int)0xffff0000)));
}

/* v_load_pair_bf16, but -inf where a word of a mask does not allow a token. */
RAFFLE_FN void v_load_allowed_bf16(const void *p, uint32_t allowed, vf *a, vf *b) {
    __m512i both = _mm512_mask_blend_epi16(allowed, _mm512_set1_epi16((short)0xff80), _mm512_loadu_si512(p));
    *a = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *b = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
}

/* Four vectors folded to one lane each: halves of two side by side, quarters of four, then each quarter in itself. */
#define FOLD_FOUR(name, op)                                                                                            \
    RAFFLE_FN __m128 name(vf a, vf b, vf c, vf d) {                                                                    \
        vf ab = op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));                                \
        vf cd = op(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));                                \
        vf q = op(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));                             \
        q = op(q, _mm512_permute_ps(q, 0x4e));                                                                         \
        q = op(q, _mm512_permute_ps(q, 0xb1));                                                                         \
        return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, q));                                            \
    }
RAFFLE_FN vu v_add_u(vu a, vu b) { return _mm512_add_epi32(a, b); }
RAFFLE_FN vf as_f(vu a) { return _mm512_castsi512_ps(a); }
RAFFLE_FN vf add_bits(vf a, vf b) { return as_f(v_add_u(_mm512_castps_si512(a), _mm512_castps_si512(b))); }
FOLD_FOUR(fold_max, v_max)
FOLD_FOUR(fold_add, v_add)
FOLD_FOUR(fold_add_bits, add_bits)
RAFFLE_FN void v_store_peaks(float *p, vf a, vf b, vf c, vf d) { _mm_storeu_ps(p, fold_max(a, b, c, d)); }
RAFFLE_FN void v_store_totals(float *p, vf a, vf b, vf c, vf d) { _mm_storeu_ps(p, fold_add(a, b, c, d)); }
RAFFLE_FN void v_store_totals_u(uint32_t *p, vu a, vu b, vu c, vu d) {
    _mm_storeu_si128((__m128i *)p, _mm_castps_si128(fold_add_bits(as_f(a), as_f(b), as_f(c), as_f(d))));
}

RAFFLE_FN void v_store_fourths(float *peak, const float *part) {
    vf q = _mm512_loadu_ps(part);
    q = v_max(q, _mm512_permute_ps(q, 0x4e));
    q = v_max(q, _mm512_permute_ps(q, 0xb1));
    _mm_storeu_ps(peak, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, q)));
}

/* Short stores where they suffice: long ones mostly cross a cache line. */
RAFFLE_FN int v_pack(float *x, int32_t *id, vf a, int32_t first, vm m) {
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 packed = _mm512_maskz_compress_ps(m, a);
    __m512i ids = _mm512_maskz_compress_epi32(m, _mm512_add_epi32(_mm512_set1_epi32(first), lane));
    int count = __builtin_popcount(m);
    _mm_storeu_ps(x, _mm512_castps512_ps128(packed));
    _mm_storeu_si128((__m128i *)id, _mm512_castsi512_si128(ids));
    if (count > 4) {
        _mm512_storeu_ps(x, packed);
        _mm512_storeu_si512(id, ids);
    }
    return count;
}

RAFFLE_FN vf v_gather(const float *p, vu i) { return _mm512_i32gather_ps(i, p, 4); }
RAFFLE_FN vu v_load_u(const void *p) { return _mm512_loadu_si512(p); }
RAFFLE_FN vu v_sub_u(vu a, vu b) { return _mm512_sub_epi32(a, b); }
RAFFLE_FN __m512i shifted(__m256i a, uint32_t left, __m256i right) {
    __m512i up = _mm512_sll_epi64(_mm512_cvtepu32_epi64(a), _mm_cvtsi32_si128((int)left));
    return _mm512_srlv_epi64(up, _mm512_cvtepu32_epi64(right));
}
RAFFLE_FN void v_store_shifted(uint64_t *p, vu a, uint32_t left, vu right) {
    _mm512_storeu_si512(p, shifted(_mm512_castsi512_si256(a), left, _mm512_castsi512_si256(right)));
    _mm512_storeu_si512(p + 8, shifted(_mm512_extracti64x4_epi64(a, 1), left, _mm512_extracti64x4_epi64(right, 1)));
}

RAFFLE_FN int v_lead_below(const int32_t *p, int32_t bound) {
    return __builtin_ctz(~(uint32_t)_mm512_cmplt_epi32_mask(_mm512_loadu_si512(p), _mm512_set1_epi32(bound)));
}
RAFFLE_FN void v_store_wide(uint64_t *p, vu a, uint32_t left) {
    __m128i n = _mm_cvtsi32_si128((int)left);
    _mm512_storeu_si512(p, _mm512_sll_epi64(_mm512_cvtepu32_epi64(_mm512_castsi512_si256(a)), n));
    _mm512_storeu_si512(p + 8, _mm512_sll_epi64(_mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(a, 1)), n));
}

RAFFLE_FN vu v_bits_of(vf a) { return _mm512_castps_si512(a); }
RAFFLE_FN vf v_max_bits(vf a, vf b) { return as_f(_mm512_max_epu32(v_bits_of(a), v_bits_of(b))); }

typedef vu vcount;
RAFFLE_FN vcount v_count_add(vcount sum, vf a) { return v_add_u(sum, v_round(a)); }
RAFFLE_FN vu v_count_low(vcount sum) { return sum; }

RAFFLE_FN uint32_t v_total_u(vu a) { /* not _mm512_reduce_add_epi32: gcc adds its last two lanes as int */
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
RAFFLE_FN float v_total(vf a) { return _mm512_reduce_add_ps(a); }

#endif
