/* vec_neon.h - the operations of vec_one.h for 4 lanes: AArch64 Advanced SIMD. */
#ifndef RAFFLE_MATH_VEC_H
#define RAFFLE_MATH_VEC_H

#include <arm_neon.h>

#include "half.h"
#include "scalar.h"

#define V_ISA_NAME neon
#define V_LANES 4
#define V_CHAINS 8
#define V_OPEN 0
#define V_ROUGH 0

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
RAFFLE_FN vf v_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
RAFFLE_FN vf v_scale(vf a, vf t) {
    uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(t), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), n));
}
RAFFLE_FN vu v_round(vf a) { return vcvtnq_u32_f32(a); }
RAFFLE_FN vu v_where(vm m, vu a) { return vandq_u32(m, a); }
RAFFLE_FN vu v_set_u(uint32_t a) { return vdupq_n_u32(a); }
RAFFLE_FN vm v_ge(vf a, vf b) { return vcgeq_f32(a, b); }

RAFFLE_FN vf v_load_f32(const void *p) { return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p)); }
RAFFLE_FN vf v_load_four(const float *p) { return v_load_f32(p); }
RAFFLE_FN vf v_load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)p))); }
RAFFLE_FN vf v_load_bf16(const void *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8((const uint8_t *)p)), 16));
}
RAFFLE_FN void v_store(float *p, vf a) { vst1q_f32(p, a); }
RAFFLE_FN void v_store_u(uint32_t *p, vu a) { vst1q_u32(p, a); }
RAFFLE_FN void v_store_f16(void *p, vf a) { vst1_u8((uint8_t *)p, vreinterpret_u8_f16(vcvt_f16_f32(a))); }
RAFFLE_FN void v_store_bf16(void *p, vf a) {
    uint32x4_t u = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    u = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
    vst1_u8((uint8_t *)p, vreinterpret_u8_u16(vshrn_n_u32(u, 16)));
}

RAFFLE_FN float v_peak(vf a) { return vmaxvq_f32(a); }
RAFFLE_FN vm v_gt(vf a, vf b) { return vcgtq_f32(a, b); }
RAFFLE_FN vm v_eq(vf a, vf b) { return vceqq_f32(a, b); }
RAFFLE_FN vm v_numbers(vm m, vf a, vf b) { return vandq_u32(m, vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b))); }
RAFFLE_FN vm v_and(vm a, vm b) { return vandq_u32(a, b); }
RAFFLE_FN vm v_without(vm a, vm b) { return vbicq_u32(a, b); }
RAFFLE_FN vm v_within(vf a, vf low, vf high) { return vandq_u32(vcgtq_f32(a, low), vcleq_f32(a, high)); }
RAFFLE_FN vu v_add_where_u(vm m, vu a, vu b) { return vaddq_u32(a, vandq_u32(m, b)); }
RAFFLE_FN vf v_nearer(vf least, vf a, vf at) { return vminnmq_f32(vabdq_f32(a, at), least); }
RAFFLE_FN vf v_add_where(vm m, vf a, vf b) { return v_add(a, vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(b)))); }
RAFFLE_FN vm v_every(void) { return vdupq_n_u32(0xffffffff); }
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
RAFFLE_FN vm v_allowed(const uint32_t *allow, int64_t i) { return v_mask(allow[(uint64_t)i / 32] >> i % 32); }
RAFFLE_FN vf v_max_allowed(vf a, vf b, const uint32_t *allow, int64_t i) {
    return vbslq_f32(vandq_u32(v_allowed(allow, i), vcgtq_f32(a, b)), a, b);
}
RAFFLE_FN vu v_shift(vu a, uint32_t n) { return n < 32 ? vshlq_u32(a, vdupq_n_s32(-(int32_t)n)) : vdupq_n_u32(0); }

RAFFLE_FN void v_load_pair_bf16(const void *p, vf *a, vf *b) {
    uint16x8_t both = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
    *a = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(both), 16));
    *b = vreinterpretq_f32_u32(vshll_high_n_u16(both, 16));
}

RAFFLE_FN void v_store_peaks(float *p, vf a, vf b, vf c, vf d) {
    vst1q_f32(p, vpmaxq_f32(vpmaxq_f32(a, b), vpmaxq_f32(c, d)));
}

RAFFLE_FN void v_store_fourths(float *peak, const float *part) {
    v_store_peaks(peak, vld1q_f32(part), vld1q_f32(part + 4), vld1q_f32(part + 8), vld1q_f32(part + 12));
}

RAFFLE_FN void v_store_totals(float *p, vf a, vf b, vf c, vf d) {
    vst1q_f32(p, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}
RAFFLE_FN void v_store_totals_u(uint32_t *p, vu a, vu b, vu c, vu d) {
    vst1q_u32(p, vpaddq_u32(vpaddq_u32(a, b), vpaddq_u32(c, d)));
}

RAFFLE_FN int v_pack(float *x, int32_t *id, vf a, int32_t first, vm m) {
    float lanes[V_LANES];
    int count = 0;
    v_store(lanes, a);
    for (uint32_t bits = v_bits(m); bits; bits &= bits - 1, ++count) {
        x[count] = lanes[__builtin_ctz(bits)];
        id[count] = first + __builtin_ctz(bits);
    }
    return count;
}

RAFFLE_FN vf v_gather(const float *p, vu i) {
    float lanes[V_LANES] = {p[vgetq_lane_u32(i, 0)], p[vgetq_lane_u32(i, 1)], p[vgetq_lane_u32(i, 2)],
                            p[vgetq_lane_u32(i, 3)]};
    return vld1q_f32(lanes);
}
RAFFLE_FN vu v_load_u(const void *p) { return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)p)); }
RAFFLE_FN vu v_sub_u(vu a, vu b) { return vsubq_u32(a, b); }
RAFFLE_FN void v_store_shifted(uint64_t *p, vu a, uint32_t left, vu right) {
    int64x2_t up = vdupq_n_s64((int64_t)left);
    int32x4_t down = vnegq_s32(vreinterpretq_s32_u32(vminq_u32(right, vdupq_n_u32(64))));
    vst1q_u64(p, vshlq_u64(vshlq_u64(vmovl_u32(vget_low_u32(a)), up), vmovl_s32(vget_low_s32(down))));
    vst1q_u64(p + 2, vshlq_u64(vshlq_u64(vmovl_high_u32(a), up), vmovl_high_s32(down)));
}

RAFFLE_FN int v_lead_below(const int32_t *p, int32_t bound) {
    return __builtin_ctz(~v_bits(vcltq_s32(vld1q_s32(p), vdupq_n_s32(bound))));
}
RAFFLE_FN void v_store_wide(uint64_t *p, vu a, uint32_t left) {
    int64x2_t n = vdupq_n_s64((int64_t)left);
    vst1q_u64(p, vshlq_u64(vmovl_u32(vget_low_u32(a)), n));
    vst1q_u64(p + 2, vshlq_u64(vmovl_high_u32(a), n));
}

RAFFLE_FN vu v_add_u(vu a, vu b) { return vaddq_u32(a, b); }
RAFFLE_FN vu v_bits_of(vf a) { return vreinterpretq_u32_f32(a); }
RAFFLE_FN vf v_max_bits(vf a, vf b) { return vreinterpretq_f32_u32(vmaxq_u32(v_bits_of(a), v_bits_of(b))); }

typedef vu vcount;
RAFFLE_FN vcount v_count_add(vcount sum, vf a) { return v_add_u(sum, v_round(a)); }
RAFFLE_FN vu v_count_low(vcount sum) { return sum; }

RAFFLE_FN uint32_t v_total_u(vu a) { return vaddvq_u32(a); }
RAFFLE_FN float v_total(vf a) { return vaddvq_f32(a); }

#endif
