/* cuda_bf16.h - bfloat16, as far as raffle uses it. */
#ifndef RAFFLE_EMULATE_CUDA_BF16_H
#define RAFFLE_EMULATE_CUDA_BF16_H

#include "../device.h"

struct __nv_bfloat16 { uint16_t bits; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };

static inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) { return {bits}; }
static inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
static inline float __bfloat162float(__nv_bfloat16 h) { return __uint_as_float((uint32_t)h.bits << 16); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    const uint32_t bits = __float_as_uint(x);
    return {(uint16_t)(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
static inline float __low2float(__nv_bfloat162 h) { return __bfloat162float(h.x); }
static inline float __high2float(__nv_bfloat162 h) { return __bfloat162float(h.y); }

namespace emulate {
inline __nv_bfloat16 bfloat_max_nan(__nv_bfloat16 a, __nv_bfloat16 b) {
    const float x = __bfloat162float(a), y = __bfloat162float(b);
    if (x != x || y != y) return {0x7fff};
    return x == y ? (signbit(x) ? b : a) : x > y ? a : b;
}
inline __nv_bfloat16 bfloat_min(__nv_bfloat16 a, __nv_bfloat16 b) {
    const float x = __bfloat162float(a), y = __bfloat162float(b);
    if (x != x) return y != y ? __nv_bfloat16{0x7fff} : b;
    return y != y || x < y || (x == y && signbit(x)) ? a : b;
}
/* A number, if there is one. */
inline __nv_bfloat16 bfloat_max(__nv_bfloat16 a, __nv_bfloat16 b) {
    if (__bfloat162float(a) != __bfloat162float(a)) return b;
    return __bfloat162float(b) != __bfloat162float(b) ? a : bfloat_max_nan(a, b);
}
} // namespace emulate
static inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) { return {emulate::bfloat_max(a.x, b.x), emulate::bfloat_max(a.y, b.y)}; }
static inline __nv_bfloat162 __hmax2_nan(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {emulate::bfloat_max_nan(a.x, b.x), emulate::bfloat_max_nan(a.y, b.y)};
}
static inline __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {emulate::bfloat_min(a.x, b.x), emulate::bfloat_min(a.y, b.y)};
}
static inline unsigned __hge2_mask(__nv_bfloat162 a, __nv_bfloat162 b) {
    return (__low2float(a) >= __low2float(b) ? 0xffffu : 0) | (__high2float(a) >= __high2float(b) ? 0xffff0000u : 0);
}

#endif
