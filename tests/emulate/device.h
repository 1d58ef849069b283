/* device.h - the words, types and functions of CUDA's device code, for a host compiler. What concerns one thread is written
 * here; what threads do together is in block.cpp, and knows the line it was called from. */
#ifndef RAFFLE_EMULATE_DEVICE_H
#define RAFFLE_EMULATE_DEVICE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmath> /* before fmaxf and the like become macros, as all of the library's headers that use them */
#include <functional>
#include <type_traits>
#include <utility>

using std::signbit;

/* ---- words ---------------------------------------------------------------------------------------------- */

/* nvcc keeps the device code of each file to itself, so functions of the same name may differ between files. To a linker
 * they must not have the same name. */
#if !defined(EMULATE_FILE)
#define EMULATE_FILE "other"
#endif
/* Compilers leave the tag out of templates' names, so types that most of them have to do with are of their file, too. */
#if !defined(EMULATE_TAG)
#define EMULATE_TAG other
#endif
#define EMULATE_PASTE(name, tag) name##_##tag
#define EMULATE_NAME(name, tag) EMULATE_PASTE(name, tag)
#define type_f32 EMULATE_NAME(type_f32, EMULATE_TAG)
#define type_f16 EMULATE_NAME(type_f16, EMULATE_TAG)
#define type_bf16 EMULATE_NAME(type_bf16, EMULATE_TAG)
#define device_row EMULATE_NAME(device_row, EMULATE_TAG)
#define row_request EMULATE_NAME(row_request, EMULATE_TAG)
#define slot_said EMULATE_NAME(slot_said, EMULATE_TAG)
#define __device__ __attribute__((abi_tag(EMULATE_FILE)))
#define __global__ __attribute__((abi_tag(EMULATE_FILE)))
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ /* empty: system headers use the word themselves */
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(bytes) alignas(bytes)
/* Inside a function this is static as well: one copy for each host thread, and a host thread runs one block at a time. */
#define __shared__ thread_local

/* What nvcc is told, is checked here. */
#define __builtin_assume(condition) emulate::promised((condition), #condition, __FILE__, __LINE__)

/* ---- types ---------------------------------------------------------------------------------------------- */

#define EMULATE_VECTORS(name, type, align2, align4)                                                                    \
    struct name##1 { type x; };                                                                                        \
    struct alignas(align2) name##2 { type x, y; };                                                                     \
    struct name##3 { type x, y, z; };                                                                                  \
    struct alignas(align4) name##4 { type x, y, z, w; };                                                               \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                            \
    static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                 \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATE_VECTORS(char, signed char, 2, 4)
EMULATE_VECTORS(uchar, unsigned char, 2, 4)
EMULATE_VECTORS(short, short, 4, 8)
EMULATE_VECTORS(ushort, unsigned short, 4, 8)
EMULATE_VECTORS(int, int, 8, 16)
EMULATE_VECTORS(uint, unsigned, 8, 16)
EMULATE_VECTORS(float, float, 8, 16)
EMULATE_VECTORS(longlong, long long, 16, 16)
EMULATE_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATE_VECTORS(double, double, 16, 16)
#undef EMULATE_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* Of the thread that runs. Not const: they change whenever another thread goes on. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- threads together ------------------------------------------------------------------------------------- */

namespace emulate {

template <class type> struct same { typedef type as; };

enum meeting {
    MEET_SYNC, MEET_SHFL, MEET_SHFL_UP, MEET_SHFL_DOWN, MEET_SHFL_XOR, MEET_BALLOT, MEET_ANY, MEET_ALL, MEET_ADD, MEET_MIN,
    MEET_MAX, MEET_MIN_SIGNED, MEET_MAX_SIGNED, MEET_AND, MEET_OR, MEET_XOR, MEET_MATCH_ANY, MEET_MATCH_ALL,
    MEET_BLOCK, MEET_BLOCK_OR, MEET_BLOCK_AND, MEET_BLOCK_COUNT, MEET_CLUSTER, MEET_BARRIER
};

/* Waits for the lanes of `mask` to come to the same line with the same mask. */
uint64_t warp_meet(meeting what, uint32_t mask, uint64_t value, int lane, int width, const char *file, int line);
/* Waits for all threads of the block that have not returned. */
int block_meet(meeting what, int value, const char *file, int line);
/* A place at which another thread may go on, if the order is shuffled. */
void pause();
bool is_shared(const void *p);
void promised(bool holds, const char *condition, const char *file, int line);

template <class type> uint64_t word_of(type x) {
    static_assert(sizeof x <= 8, "lanes exchange at most 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &x, sizeof x);
    return word;
}
template <class type> type of_word(uint64_t word) {
    type x;
    memcpy(&x, &word, sizeof x);
    return x;
}

} // namespace emulate

#define EMULATE_LINE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(EMULATE_LINE) { emulate::block_meet(emulate::MEET_BLOCK, 0, file, line); }
static inline int __syncthreads_or(int x, EMULATE_LINE) { return emulate::block_meet(emulate::MEET_BLOCK_OR, x, file, line); }
static inline int __syncthreads_and(int x, EMULATE_LINE) { return emulate::block_meet(emulate::MEET_BLOCK_AND, x, file, line); }
static inline int __syncthreads_count(int x, EMULATE_LINE) {
    return emulate::block_meet(emulate::MEET_BLOCK_COUNT, x, file, line);
}

static inline void __syncwarp(uint32_t mask = 0xffffffffu, EMULATE_LINE) {
    emulate::warp_meet(emulate::MEET_SYNC, mask, 0, 0, 32, file, line);
}
#define EMULATE_SHFL(name, what, number)                                                                               \
    template <class type> static inline type name(uint32_t mask, type x, number lane, int width = 32, EMULATE_LINE) {  \
        return emulate::of_word<type>(                                                                                 \
            emulate::warp_meet(emulate::what, mask, emulate::word_of(x), (int)lane, width, file, line));               \
    }
EMULATE_SHFL(__shfl_sync, MEET_SHFL, int)
EMULATE_SHFL(__shfl_up_sync, MEET_SHFL_UP, unsigned)
EMULATE_SHFL(__shfl_down_sync, MEET_SHFL_DOWN, unsigned)
EMULATE_SHFL(__shfl_xor_sync, MEET_SHFL_XOR, int)
#undef EMULATE_SHFL
#define EMULATE_WARP(result, name, what, given)                                                                        \
    static inline result name(uint32_t mask, given x, EMULATE_LINE) {                                                  \
        return (result)emulate::warp_meet(emulate::what, mask, emulate::word_of(x), 0, 32, file, line);                \
    }
EMULATE_WARP(uint32_t, __ballot_sync, MEET_BALLOT, int)
EMULATE_WARP(int, __any_sync, MEET_ANY, int)
EMULATE_WARP(int, __all_sync, MEET_ALL, int)
EMULATE_WARP(uint32_t, __reduce_add_sync, MEET_ADD, uint32_t)
EMULATE_WARP(uint32_t, __reduce_min_sync, MEET_MIN, uint32_t)
EMULATE_WARP(uint32_t, __reduce_max_sync, MEET_MAX, uint32_t)
EMULATE_WARP(int32_t, __reduce_add_sync, MEET_ADD, int32_t)
EMULATE_WARP(int32_t, __reduce_min_sync, MEET_MIN_SIGNED, int32_t)
EMULATE_WARP(int32_t, __reduce_max_sync, MEET_MAX_SIGNED, int32_t)
EMULATE_WARP(uint32_t, __reduce_and_sync, MEET_AND, uint32_t)
EMULATE_WARP(uint32_t, __reduce_or_sync, MEET_OR, uint32_t)
EMULATE_WARP(uint32_t, __reduce_xor_sync, MEET_XOR, uint32_t)
#undef EMULATE_WARP
template <class type> static inline uint32_t __match_any_sync(uint32_t mask, type x, EMULATE_LINE) {
    return (uint32_t)emulate::warp_meet(emulate::MEET_MATCH_ANY, mask, emulate::word_of(x), 0, 32, file, line);
}
template <class type> static inline uint32_t __match_all_sync(uint32_t mask, type x, int *all, EMULATE_LINE) {
    const uint32_t lanes = (uint32_t)emulate::warp_meet(emulate::MEET_MATCH_ALL, mask, emulate::word_of(x), 0, 32, file, line);
    *all = lanes != 0;
    return lanes;
}

/* Of src/cuda/ptx.cuh, which says what they are. */
int cluster_rank();
int cluster_blocks();
int cluster_id();
void cluster_arrive(EMULATE_LINE);
static inline void cluster_arrive_bare(EMULATE_LINE) { cluster_arrive(file, line); }
void cluster_wait(EMULATE_LINE);
void barrier_make(uint64_t *barrier);
void barriers_made();
void barrier_expect(uint64_t *barrier, uint32_t bytes);
void barrier_wait(uint64_t *barrier, EMULATE_LINE);
void barrier_wait_cluster(uint64_t *barrier, EMULATE_LINE);
void copy_ask(void *to, const void *from, uint32_t bytes, uint64_t *barrier);
void *cluster_place_of(void *own, int rank);
template <class type> static inline type *cluster_place(type *own, int rank) { return (type *)cluster_place_of((void *)own, rank); }
void store_remote(uint64_t *place, uint64_t *barrier, int to, uint64_t value);

/* ---- memory: one host thread runs at a time, so order is no matter -------------------------------------------- */

static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) { emulate::pause(); }
static inline bool __isShared(const void *p) { return emulate::is_shared(p); }
static inline bool __isGlobal(const void *p) { return !emulate::is_shared(p); }

#define EMULATE_LOAD(name)                                                                                             \
    template <class type> static inline type name(const type *p) { return *p; }
EMULATE_LOAD(__ldg)
EMULATE_LOAD(__ldca)
EMULATE_LOAD(__ldcg)
EMULATE_LOAD(__ldcs)
EMULATE_LOAD(__ldlu)
EMULATE_LOAD(__ldcv)
#undef EMULATE_LOAD
#define EMULATE_STORE(name)                                                                                            \
    template <class type> static inline void name(type *p, typename emulate::same<type>::as x) { *p = x; }
EMULATE_STORE(__stwb)
EMULATE_STORE(__stcg)
EMULATE_STORE(__stcs)
EMULATE_STORE(__stwt)
#undef EMULATE_STORE

#define EMULATE_ATOMIC(name, result)                                                                                   \
    template <class type> static inline type name(type *p, typename emulate::same<type>::as x) {                       \
        emulate::pause();                                                                                              \
        const type old = *p;                                                                                           \
        *p = result;                                                                                                   \
        return old;                                                                                                    \
    }
EMULATE_ATOMIC(atomicAdd, old + x)
EMULATE_ATOMIC(atomicSub, old - x)
EMULATE_ATOMIC(atomicMin, x < old ? x : old)
EMULATE_ATOMIC(atomicMax, x > old ? x : old)
EMULATE_ATOMIC(atomicAnd, old & x)
EMULATE_ATOMIC(atomicOr, old | x)
EMULATE_ATOMIC(atomicXor, old ^ x)
EMULATE_ATOMIC(atomicExch, x)
EMULATE_ATOMIC(atomicInc, old >= x ? 0 : old + 1)
EMULATE_ATOMIC(atomicDec, old == 0 || old > x ? x : old - 1)
#undef EMULATE_ATOMIC
template <class type>
static inline type atomicCAS(type *p, typename emulate::same<type>::as expected, typename emulate::same<type>::as x) {
    emulate::pause();
    const type old = *p;
    if (old == expected) *p = x;
    return old;
}

/* ---- numbers ------------------------------------------------------------------------------------------------ */

static inline uint32_t __float_as_uint(float x) { return (uint32_t)emulate::word_of(x); }
static inline int32_t __float_as_int(float x) { return (int32_t)emulate::word_of(x); }
static inline float __uint_as_float(uint32_t x) { return emulate::of_word<float>(x); }
static inline float __int_as_float(int32_t x) { return emulate::of_word<float>((uint32_t)x); }
static inline long long __double_as_longlong(double x) { return (long long)emulate::word_of(x); }
static inline double __longlong_as_double(long long x) { return emulate::of_word<double>((uint64_t)x); }

static inline int __popc(uint32_t x) { return __builtin_popcount(x); }
static inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
static inline int __ffs(uint32_t x) { return __builtin_ffs((int)x); }
static inline int __ffsll(uint64_t x) { return __builtin_ffsll((long long)x); }
static inline int __clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(uint64_t x) { return x ? __builtin_clzll(x) : 64; }
static inline uint32_t __brev(uint32_t x) {
    uint32_t r = 0;
    for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b >> 64); }
static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t n) {
    return (uint32_t)((((uint64_t)high << 32 | low) << (n & 31)) >> 32);
}
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t n) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (n & 31));
}
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t s) {
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int i = 0; i < 4; ++i) r |= (uint32_t)(both >> (s >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}

static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline double __ddiv_rn(double a, double b) { return a / b; }
/* A GPU may be two units off, and gives 0 for large divisors: no result may depend on it. */
static inline float __fdividef(float a, float b) { return fabsf(b) > 0x1p126f && fabsf(b) < INFINITY ? 0.0f * a : a / b; }

/* To integers: GPUs saturate, and make 0 of NaN. */
namespace emulate {
template <class type> type saturate(double x, double least, double most) {
    return x != x ? 0 : x <= least ? (type)least : x >= most ? (type)most : (type)x;
}
} // namespace emulate
static inline uint32_t __float2uint_rn(float x) { return emulate::saturate<uint32_t>(nearbyint(x), 0.0, 4294967295.0); }
static inline uint32_t __float2uint_rz(float x) { return emulate::saturate<uint32_t>(trunc(x), 0.0, 4294967295.0); }
static inline uint32_t __float2uint_rd(float x) { return emulate::saturate<uint32_t>(floor(x), 0.0, 4294967295.0); }
static inline uint32_t __float2uint_ru(float x) { return emulate::saturate<uint32_t>(ceil(x), 0.0, 4294967295.0); }
static inline unsigned long long __float2ull_rz(float x) { return emulate::saturate<unsigned long long>(trunc(x), 0.0, 18446744073709549568.0); }
static inline int __float2int_rn(float x) { return emulate::saturate<int>(nearbyint(x), -2147483648.0, 2147483647.0); }
static inline int __float2int_rz(float x) { return emulate::saturate<int>(trunc(x), -2147483648.0, 2147483647.0); }
static inline int __float2int_rd(float x) { return emulate::saturate<int>(floor(x), -2147483648.0, 2147483647.0); }
static inline int __float2int_ru(float x) { return emulate::saturate<int>(ceil(x), -2147483648.0, 2147483647.0); }
static inline float __uint2float_rn(uint32_t x) { return (float)x; }
static inline float __int2float_rn(int x) { return (float)x; }

/* A number if there is one, and +0 above -0. */
namespace emulate {
template <class type> type larger(type a, type b) {
    return a != a ? b : b != b ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}
template <class type> type smaller(type a, type b) {
    return a != a ? b : b != b ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}
} // namespace emulate
#define fmaxf(a, b) emulate::larger<float>(a, b)
#define fminf(a, b) emulate::smaller<float>(a, b)
#define fmax(a, b) emulate::larger<double>(a, b)
#define fmin(a, b) emulate::smaller<double>(a, b)

template <class a_type, class b_type> static inline typename std::common_type<a_type, b_type>::type max(a_type a, b_type b) {
    typedef typename std::common_type<a_type, b_type>::type both;
    if constexpr (std::is_floating_point<both>::value) return emulate::larger<both>(a, b);
    else return (both)a > (both)b ? (both)a : (both)b;
}
template <class a_type, class b_type> static inline typename std::common_type<a_type, b_type>::type min(a_type a, b_type b) {
    typedef typename std::common_type<a_type, b_type>::type both;
    if constexpr (std::is_floating_point<both>::value) return emulate::smaller<both>(a, b);
    else return (both)a < (both)b ? (both)a : (both)b;
}

#endif
