/* cuda_fp16.h - half precision, as far as raffle uses it. */
#ifndef RAFFLE_EMULATE_CUDA_FP16_H
#define RAFFLE_EMULATE_CUDA_FP16_H

#include "../device.h"

struct __half { uint16_t bits; };
struct alignas(4) __half2 { __half x, y; };

static inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
static inline uint16_t __half_as_ushort(__half h) { return h.bits; }

static inline float __half2float(__half h) {
    const int exponent = h.bits >> 10 & 31, digits = h.bits & 0x3ff;
    const uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16;
    if (exponent == 31) return __uint_as_float(digits ? 0x7fffffffu : sign | 0x7f800000u);
    if (exponent) return __uint_as_float(sign | (uint32_t)(exponent + 112) << 23 | (uint32_t)digits << 13);
    return sign ? -(float)digits * 0x1p-24f : (float)digits * 0x1p-24f;
}

/* The multiple of the last digit's value that is nearest, even if two are. */
static inline __half __float2half_rn(float x) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs((double)x);
    if (x != x) return {0x7fff};
    if (size >= 65520.0) return {(uint16_t)(sign | 0x7c00)};
    const int exponent = size < 0x1p-14 ? -14 : ilogb(size);
    const double units = nearbyint(ldexp(size, 10 - exponent)); /* 1024 to 2048, below 1024 for subnormals */
    return {(uint16_t)(sign | ((exponent + 14) * 1024 + (int)units))};
}
static inline __half __float2half_ru(float x) {
    const __half near = __float2half_rn(x);
    if (!(__half2float(near) < x)) return near;
    return {(uint16_t)(near.bits & 0x8000 ? near.bits - 1 : near.bits + 1)};
}
static inline __half2 __half2half2(__half h) { return {h, h}; }
static inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
static inline float __low2float(__half2 h) { return __half2float(h.x); }
static inline float __high2float(__half2 h) { return __half2float(h.y); }

namespace emulate {
inline __half half_max_nan(__half a, __half b) {
    const float x = __half2float(a), y = __half2float(b);
    if (x != x || y != y) return {0x7fff};
    return x == y ? (signbit(x) ? b : a) : x > y ? a : b;
}
inline __half half_min(__half a, __half b) {
    const float x = __half2float(a), y = __half2float(b);
    if (x != x) return y != y ? __half{0x7fff} : b;
    return y != y || x < y || (x == y && signbit(x)) ? a : b;
}
} // namespace emulate
static inline __half2 __hmax2_nan(__half2 a, __half2 b) {
    return {emulate::half_max_nan(a.x, b.x), emulate::half_max_nan(a.y, b.y)};
}
static inline __half2 __hmin2(__half2 a, __half2 b) {
    return {emulate::half_min(a.x, b.x), emulate::half_min(a.y, b.y)};
}
static inline unsigned __hge2_mask(__half2 a, __half2 b) {
    return (__low2float(a) >= __low2float(b) ? 0xffffu : 0) | (__high2float(a) >= __high2float(b) ? 0xffff0000u : 0);
}

#endif
