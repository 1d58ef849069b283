/* vec_avx2.h - the operations of vec_one.h for 8 lanes: AVX2, FMA, F16C. */
#ifndef RAFFLE_MATH_VEC_H
#define RAFFLE_MATH_VEC_H

#include <immintrin.h>

#include "half.h"
#include "scalar.h"

#define V_ISA_NAME avx2
#define V_LANES 8

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
RAFFLE_FN vf v_scale(vf a, vf t) {
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n));
}
/* The conversion is signed: values from 2^31 on are integers already, so they go through it less 2^31. */
RAFFLE_FN vu v_round(vf a) {
    __m256 half = _mm256_set1_ps(0x1p31f), big = _mm256_cmp_ps(a, half, _CMP_GE_OQ);
    __m256i low = _mm256_cvtps_epi32(_mm256_sub_ps(a, _mm256_and_ps(big, half)));
    return _mm256_xor_si256(low, _mm256_slli_epi32(_mm256_castps_si256(big), 31));
}
RAFFLE_FN vu v_where(vm m, vu a) { return _mm256_and_si256(_mm256_castps_si256(m), a); }
RAFFLE_FN vu v_set_u(uint32_t a) { return _mm256_set1_epi32((int)a); }
RAFFLE_FN vm v_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }

RAFFLE_FN vf v_load_f32(const void *p) { return _mm256_loadu_ps(p); }
RAFFLE_FN vf v_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
RAFFLE_FN vf v_load_bf16(const void *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
RAFFLE_FN void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
RAFFLE_FN void v_store_u(uint32_t *p, vu a) { _mm256_storeu_si256((__m256i *)p, a); }

RAFFLE_FN vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
RAFFLE_FN float v_peak(vf a) {
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
RAFFLE_FN vm v_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
RAFFLE_FN vm v_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
RAFFLE_FN vm v_nan(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
RAFFLE_FN vm v_and(vm a, vm b) { return _mm256_and_ps(a, b); }
RAFFLE_FN vm v_or(vm a, vm b) { return _mm256_or_ps(a, b); }
RAFFLE_FN vm v_none(void) { return _mm256_setzero_ps(); }
RAFFLE_FN vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
RAFFLE_FN uint32_t v_bits(vm m) { return (uint32_t)_mm256_movemask_ps(m); }
RAFFLE_FN vm v_mask(uint32_t bits) {
    __m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), one), one));
}
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128((int)n)); }

typedef struct vsum { __m256i even, odd; } vsum;
RAFFLE_FN vsum v_sum_zero(void) {
    vsum s = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    return s;
}
RAFFLE_FN vsum v_sum_add(vsum s, vu a) {
    s.even = _mm256_add_epi64(s.even, _mm256_blend_epi32(a, _mm256_setzero_si256(), 0xaa));
    s.odd = _mm256_add_epi64(s.odd, _mm256_srli_epi64(a, 32));
    return s;
}
RAFFLE_FN uint64_t v_sum_total(vsum s) {
    uint64_t lane[4];
    _mm256_storeu_si256((__m256i *)lane, _mm256_add_epi64(s.even, s.odd));
    return lane[0] + lane[1] + lane[2] + lane[3];
}

#endif
