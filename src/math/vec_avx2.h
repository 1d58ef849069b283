/* vec_avx2.h - the operations of vec_one.h for 8 lanes: AVX2, FMA, F16C. */
#ifndef RAFFLE_MATH_VEC_H
#define RAFFLE_MATH_VEC_H

#include <immintrin.h>

#include "half.h"
#include "scalar.h"

#define V_ISA_NAME avx2
#define V_LANES 8
#define V_CHAINS 4
#define V_OPEN 0
#define V_ROUGH 0

typedef __m256 vf;
typedef __m256i vu;
typedef __m256 vm; /* all bits of a lane set or clear */

RAFFLE_FN vf v_set(float x) { return _mm256_set1_ps(x); }
RAFFLE_FN float v_first(vf a) { return _mm256_cvtss_f32(a); }
RAFFLE_FN vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
RAFFLE_FN vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
RAFFLE_FN vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
RAFFLE_FN vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
RAFFLE_FN vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
RAFFLE_FN vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
RAFFLE_FN vf v_scale(vf a, vf t) {
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n));
}
/* The conversion is signed and makes 2^31 of anything larger; what is missing then is added. */
RAFFLE_FN vu v_round(vf a) {
    __m256 more = _mm256_max_ps(_mm256_sub_ps(a, _mm256_set1_ps(0x1p31f)), _mm256_setzero_ps());
    return _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(more));
}
RAFFLE_FN vu v_where(vm m, vu a) { return _mm256_and_si256(_mm256_castps_si256(m), a); }
RAFFLE_FN vu v_set_u(uint32_t a) { return _mm256_set1_epi32((int)a); }
RAFFLE_FN vm v_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }

/* The empty statement keeps gcc from reading memory again for every use of what was read. */
RAFFLE_FN vf v_load_f32(const void *p) {
    __m256 a = _mm256_loadu_ps(p);
    __asm__("" : "+x"(a));
    return a;
}
RAFFLE_FN vf v_load_four(const float *p) { return _mm256_broadcast_ps((const __m128 *)p); }
RAFFLE_FN vf v_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
RAFFLE_FN vf v_load_bf16(const void *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
RAFFLE_FN void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
RAFFLE_FN void v_store_u(uint32_t *p, vu a) { _mm256_storeu_si256((__m256i *)p, a); }
RAFFLE_FN void v_store_f16(void *p, vf a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
RAFFLE_FN void v_store_bf16(void *p, vf a) {
    __m256i u = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1)));
}

RAFFLE_FN float v_peak(vf a) {
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
RAFFLE_FN vm v_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
RAFFLE_FN vm v_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
RAFFLE_FN vm v_numbers(vm m, vf a, vf b) { return _mm256_and_ps(m, _mm256_cmp_ps(a, b, _CMP_ORD_Q)); }
RAFFLE_FN vm v_and(vm a, vm b) { return _mm256_and_ps(a, b); }
RAFFLE_FN vm v_without(vm a, vm b) { return _mm256_andnot_ps(b, a); }
RAFFLE_FN vm v_within(vf a, vf low, vf high) { return v_and(v_gt(a, low), _mm256_cmp_ps(a, high, _CMP_LE_OQ)); }
RAFFLE_FN vf v_add_where(vm m, vf a, vf b) { return v_add(a, _mm256_and_ps(m, b)); }
RAFFLE_FN vu v_add_where_u(vm m, vu a, vu b) { return _mm256_add_epi32(a, v_where(m, b)); }
RAFFLE_FN vf v_nearer(vf least, vf a, vf at) { return _mm256_min_ps(_mm256_andnot_ps(v_set(-0.0f), v_sub(a, at)), least); }
RAFFLE_FN vm v_every(void) { return _mm256_castsi256_ps(_mm256_set1_epi32(-1)); }
RAFFLE_FN vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
RAFFLE_FN uint32_t v_bits(vm m) { return (uint32_t)_mm256_movemask_ps(m); }
RAFFLE_FN vm v_mask(uint32_t bits) {
    __m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), one), one));
}
/* The word goes to all lanes straight from memory, and each looks at its own bit. What is not allowed becomes NaN for v_max. */
#define BITS8(n) 1u << (n), 2u << (n), 4u << (n), 8u << (n), 16u << (n), 32u << (n), 64u << (n), 128u << (n)
static const uint32_t bit_of_lane[32] = {BITS8(0), BITS8(8), BITS8(16), BITS8(24)};
RAFFLE_FN __m256i lane_bits(int64_t i) { return _mm256_loadu_si256((const __m256i *)(bit_of_lane + (uint64_t)i % 32)); }
RAFFLE_FN __m256i bits_allowed(const uint32_t *allow, int64_t i) {
    return _mm256_and_si256(_mm256_set1_epi32((int)allow[(uint64_t)i / 32]), lane_bits(i));
}
RAFFLE_FN vm v_allowed(const uint32_t *allow, int64_t i) {
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits_allowed(allow, i), lane_bits(i)));
}
RAFFLE_FN vf v_max_allowed(vf a, vf b, const uint32_t *allow, int64_t i) {
    __m256i forbidden = _mm256_cmpeq_epi32(bits_allowed(allow, i), _mm256_setzero_si256());
    return v_max(_mm256_or_ps(a, _mm256_castsi256_ps(forbidden)), b);
}
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return _mm256_srlv_epi32(a, _mm256_set1_epi32((int)n)); }

RAFFLE_FN void v_load_pair_bf16(const void *p, vf *a, vf *b) {
    __m256i both = _mm256_castps_si256(v_load_f32(p));
    *a = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    *b = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32((int)0xffff0000)));
}

/* Four vectors folded to one lane each: halves of two side by side, pairs of lanes, then single lanes. */
#define FOLD_FOUR(name, op)                                                                                            \
    RAFFLE_FN __m128 name(vf a, vf b, vf c, vf d) {                                                                    \
        vf ab = op(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));                            \
        vf cd = op(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));                            \
        vf q = op(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));                                   \
        q = op(q, _mm256_permute_ps(q, 0xb1)); /* a a c c, b b d d */                                                  \
        return _mm_blend_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1), 0xa);                              \
    }
RAFFLE_FN vu v_add_u(vu a, vu b) { return _mm256_add_epi32(a, b); }
RAFFLE_FN vf as_f(vu a) { return _mm256_castsi256_ps(a); }
RAFFLE_FN vf add_bits(vf a, vf b) { return as_f(v_add_u(_mm256_castps_si256(a), _mm256_castps_si256(b))); }
FOLD_FOUR(fold_max, v_max)
FOLD_FOUR(fold_add, v_add)
FOLD_FOUR(fold_add_bits, add_bits)
RAFFLE_FN void v_store_peaks(float *p, vf a, vf b, vf c, vf d) { _mm_storeu_ps(p, fold_max(a, b, c, d)); }
RAFFLE_FN void v_store_totals(float *p, vf a, vf b, vf c, vf d) { _mm_storeu_ps(p, fold_add(a, b, c, d)); }
RAFFLE_FN void v_store_totals_u(uint32_t *p, vu a, vu b, vu c, vu d) {
    _mm_storeu_si128((__m128i *)p, _mm_castps_si128(fold_add_bits(as_f(a), as_f(b), as_f(c), as_f(d))));
}

RAFFLE_FN void v_store_fourths(float *peak, const float *part) {
    vf low = _mm256_loadu_ps(part), high = _mm256_loadu_ps(part + 8);
    vf q = v_max(_mm256_shuffle_ps(low, high, 0x44), _mm256_shuffle_ps(low, high, 0xee)); /* low low high high, by halves */
    q = v_max(q, _mm256_permute_ps(q, 0xb1));
    _mm_storeu_ps(peak, _mm256_castps256_ps128(_mm256_permutevar8x32_ps(q, _mm256_setr_epi32(0, 4, 2, 6, 0, 4, 2, 6))));
}

/* For each mask the lanes that are set, as bytes, lowest first: where packed lanes come from. */
#define LANE(m, i) (((m) >> (i)) & 1 ? (uint64_t)(i) << 8 * __builtin_popcount((m) & ((1u << (i)) - 1)) : 0)
#define LANES(m) LANE(m, 0) | LANE(m, 1) | LANE(m, 2) | LANE(m, 3) | LANE(m, 4) | LANE(m, 5) | LANE(m, 6) | LANE(m, 7)
#define LANES4(m) LANES(m), LANES(m + 1u), LANES(m + 2u), LANES(m + 3u)
#define LANES16(m) LANES4(m), LANES4(m + 4u), LANES4(m + 8u), LANES4(m + 12u)
#define LANES64(m) LANES16(m), LANES16(m + 16u), LANES16(m + 32u), LANES16(m + 48u)

static const uint64_t packed_lanes[256] = {LANES64(0u), LANES64(64u), LANES64(128u), LANES64(192u)};

RAFFLE_FN __m256i packed_from(uint32_t bits) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)&packed_lanes[bits]));
}
RAFFLE_FN int v_pack(float *x, int32_t *id, vf a, int32_t first, vm m) {
    uint32_t bits = v_bits(m);
    __m256i from = packed_from(bits);
    _mm256_storeu_ps(x, _mm256_permutevar8x32_ps(a, from));
    _mm256_storeu_si256((__m256i *)id, _mm256_add_epi32(_mm256_set1_epi32(first), from));
    return __builtin_popcount(bits);
}

RAFFLE_FN vf v_gather(const float *p, vu i) { return _mm256_i32gather_ps(p, i, 4); }
RAFFLE_FN vu v_load_u(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
RAFFLE_FN vu v_sub_u(vu a, vu b) { return _mm256_sub_epi32(a, b); }
RAFFLE_FN __m256i shifted(__m128i a, uint32_t left, __m128i right) {
    __m256i up = _mm256_sll_epi64(_mm256_cvtepu32_epi64(a), _mm_cvtsi32_si128((int)left));
    return _mm256_srlv_epi64(up, _mm256_cvtepu32_epi64(right));
}
RAFFLE_FN void v_store_shifted(uint64_t *p, vu a, uint32_t left, vu right) {
    __m256i low = shifted(_mm256_castsi256_si128(a), left, _mm256_castsi256_si128(right));
    __m256i high = shifted(_mm256_extracti128_si256(a, 1), left, _mm256_extracti128_si256(right, 1));
    _mm256_storeu_si256((__m256i *)p, low);
    _mm256_storeu_si256((__m256i *)(p + 4), high);
}

RAFFLE_FN int v_lead_below(const int32_t *p, int32_t bound) {
    __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(bound), _mm256_loadu_si256((const __m256i *)p));
    return __builtin_ctz(~v_bits(_mm256_castsi256_ps(below)));
}
RAFFLE_FN void v_store_wide(uint64_t *p, vu a, uint32_t left) {
    __m128i n = _mm_cvtsi32_si128((int)left);
    __m256i low = _mm256_cvtepu32_epi64(_mm256_castsi256_si128(a));
    __m256i high = _mm256_cvtepu32_epi64(_mm256_extracti128_si256(a, 1));
    _mm256_storeu_si256((__m256i *)p, _mm256_sll_epi64(low, n));
    _mm256_storeu_si256((__m256i *)(p + 4), _mm256_sll_epi64(high, n));
}

RAFFLE_FN vu v_bits_of(vf a) { return _mm256_castps_si256(a); }
RAFFLE_FN vf v_max_bits(vf a, vf b) { return as_f(_mm256_max_epu32(v_bits_of(a), v_bits_of(b))); }

/* The signed conversion makes 2^31 of what is larger. What is missing then is counted apart: from 2^31 to 2^32, each
 * step of a float's bits is worth 256. (The bits of 2^31 itself, which the others add, vanish modulo 2^24.) */
typedef struct vcount { vu most, over; } vcount;
RAFFLE_FN vcount v_count_add(vcount sum, vf a) {
    vcount more = {v_add_u(sum.most, _mm256_cvtps_epi32(a)),
                   v_add_u(sum.over, v_bits_of(_mm256_max_ps(a, _mm256_set1_ps(0x1p31f))))};
    return more;
}
RAFFLE_FN vu v_count_low(vcount sum) { return v_add_u(sum.most, _mm256_slli_epi32(sum.over, 8)); }

RAFFLE_FN uint32_t v_total_u(vu a) {
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
RAFFLE_FN float v_total(vf a) {
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

#endif
