/* vec_avx512.h - the operations of vec_one.h for 16 lanes: AVX-512 F, BW, DQ, VL. */
#ifndef RAFFLE_MATH_VEC_H
#define RAFFLE_MATH_VEC_H

#include <immintrin.h>

#include "half.h"
#include "scalar.h"

#define V_ISA_NAME avx512
#define V_LANES 16

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
RAFFLE_FN vf v_scale(vf a, vf t) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), n));
}
RAFFLE_FN vu v_round(vf a) { return _mm512_cvtps_epu32(a); }
RAFFLE_FN vu v_where(vm m, vu a) { return _mm512_maskz_mov_epi32(m, a); }
RAFFLE_FN vu v_set_u(uint32_t a) { return _mm512_set1_epi32((int)a); }
RAFFLE_FN vm v_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

RAFFLE_FN vf v_load_f32(const void *p) { return _mm512_loadu_ps(p); }
RAFFLE_FN vf v_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
RAFFLE_FN vf v_load_bf16(const void *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
RAFFLE_FN void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
RAFFLE_FN void v_store_u(uint32_t *p, vu a) { _mm512_storeu_si512(p, a); }

RAFFLE_FN vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
RAFFLE_FN float v_peak(vf a) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
RAFFLE_FN vm v_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
RAFFLE_FN vm v_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
RAFFLE_FN vm v_nan(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
RAFFLE_FN vm v_and(vm a, vm b) { return _kand_mask16(a, b); }
RAFFLE_FN vm v_or(vm a, vm b) { return _kor_mask16(a, b); }
RAFFLE_FN vm v_none(void) { return 0; }
RAFFLE_FN vf v_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
RAFFLE_FN uint32_t v_bits(vm m) { return m; }
RAFFLE_FN vm v_mask(uint32_t bits) { return (vm)bits; }
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128((int)n)); }

typedef struct vsum { __m512i even, odd; } vsum;
RAFFLE_FN vsum v_sum_zero(void) {
    vsum s = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    return s;
}
RAFFLE_FN vsum v_sum_add(vsum s, vu a) {
    s.even = _mm512_add_epi64(s.even, _mm512_and_si512(a, _mm512_set1_epi64(0xffffffff)));
    s.odd = _mm512_add_epi64(s.odd, _mm512_srli_epi64(a, 32));
    return s;
}
RAFFLE_FN uint64_t v_sum_total(vsum s) { return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(s.even, s.odd)); }

#endif
