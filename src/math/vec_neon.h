/* vec_neon.h - the operations of vec_one.h for 4 lanes: AArch64 Advanced SIMD. */
#ifndef RAFFLE_MATH_VEC_H
#define RAFFLE_MATH_VEC_H

#include <arm_neon.h>

#include "half.h"
#include "scalar.h"

#define V_ISA_NAME neon
#define V_LANES 4

typedef float32x4_t vf;
typedef uint32x4_t vu;
typedef uint32x4_t vm; /* all bits of a lane set or clear */

RAFFLE_FN vf v_set(float x) { return vdupq_n_f32(x); }
RAFFLE_FN float v_first(vf a) { return vgetq_lane_f32(a, 0); }
RAFFLE_FN vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
RAFFLE_FN vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
RAFFLE_FN vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
RAFFLE_FN vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
RAFFLE_FN vf v_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
RAFFLE_FN vf v_scale(vf a, vf t) {
    uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(t), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), n));
}
RAFFLE_FN vu v_round(vf a) { return vcvtnq_u32_f32(a); }
RAFFLE_FN vu v_where(vm m, vu a) { return vandq_u32(m, a); }
RAFFLE_FN vu v_set_u(uint32_t a) { return vdupq_n_u32(a); }
RAFFLE_FN vm v_ge(vf a, vf b) { return vcgeq_f32(a, b); }

RAFFLE_FN vf v_load_f32(const void *p) { return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p)); }
RAFFLE_FN vf v_load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)p))); }
RAFFLE_FN vf v_load_bf16(const void *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8((const uint8_t *)p)), 16));
}
RAFFLE_FN void v_store(float *p, vf a) { vst1q_f32(p, a); }
RAFFLE_FN void v_store_u(uint32_t *p, vu a) { vst1q_u32(p, a); }

RAFFLE_FN vf v_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
RAFFLE_FN float v_peak(vf a) { return vmaxvq_f32(a); }
RAFFLE_FN vm v_gt(vf a, vf b) { return vcgtq_f32(a, b); }
RAFFLE_FN vm v_eq(vf a, vf b) { return vceqq_f32(a, b); }
RAFFLE_FN vm v_nan(vf a, vf b) { return vmvnq_u32(vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b))); }
RAFFLE_FN vm v_and(vm a, vm b) { return vandq_u32(a, b); }
RAFFLE_FN vm v_or(vm a, vm b) { return vorrq_u32(a, b); }
RAFFLE_FN vm v_none(void) { return vdupq_n_u32(0); }
RAFFLE_FN vf v_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
RAFFLE_FN uint32_t v_bits(vm m) {
    const uint32_t bit[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}
RAFFLE_FN vm v_mask(uint32_t bits) {
    const uint32_t bit[4] = {1, 2, 4, 8};
    uint32x4_t one = vld1q_u32(bit);
    return vtstq_u32(vdupq_n_u32(bits), one);
}
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return n < 32 ? vshlq_u32(a, vdupq_n_s32(-(int32_t)n)) : vdupq_n_u32(0); }

typedef uint64x2_t vsum;
RAFFLE_FN vsum v_sum_zero(void) { return vdupq_n_u64(0); }
RAFFLE_FN vsum v_sum_add(vsum s, vu a) { return vpadalq_u32(s, a); }
RAFFLE_FN uint64_t v_sum_total(vsum s) { return vaddvq_u64(s); }

#endif
