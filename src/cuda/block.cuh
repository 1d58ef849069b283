/* block.cuh - reductions over a warp and over a block. All are integer sums, maxima and minima, so the order
 * in which lanes meet cannot matter. Results are the same in every thread. */
#ifndef RAFFLE_CUDA_BLOCK_CUH
#define RAFFLE_CUDA_BLOCK_CUH

#include <stdint.h>

enum { WARP = 32, BLOCK_THREADS = 256, BLOCK_WARPS = BLOCK_THREADS / WARP };
#define ALL_LANES 0xffffffffu

template <class integer> __device__ __forceinline__ integer warp_largest(integer x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(ALL_LANES, x);
#else
    for (int step = 16; step; step >>= 1) x = max(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
#endif
}
__device__ __forceinline__ uint32_t warp_max(uint32_t x) { return warp_largest(x); }
__device__ __forceinline__ int32_t warp_most(int32_t x) { return warp_largest(x); } /* signed */

__device__ __forceinline__ uint32_t warp_add(uint32_t x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL_LANES, x);
#else
    for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
#endif
}

/* The largest of 64-bit values. */
__device__ __forceinline__ uint64_t warp_max_wide(uint64_t x) {
    const uint32_t high = warp_max((uint32_t)(x >> 32)), low = warp_max((uint32_t)(x >> 32) == high ? (uint32_t)x : 0);
    return (uint64_t)high << 32 | low;
}

/* Sum over the lanes up to this one. */
template <class integer> __device__ __forceinline__ integer warp_through(integer x) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int step = 1; step < WARP; step <<= 1) {
        const integer other = __shfl_up_sync(ALL_LANES, x, step);
        if (lane >= step) x += other;
    }
    return x;
}

/* Sum of 64-bit values, three 32-bit sums of 22, 21 and 21 bits at a time: 32 of them cannot overflow. */
__device__ __forceinline__ uint64_t warp_add_wide(uint64_t x) {
    uint64_t low = warp_add((uint32_t)x & 0x3fffffu), middle = warp_add((uint32_t)(x >> 22) & 0x1fffffu);
    uint64_t high = warp_add((uint32_t)(x >> 43));
    return low + (middle << 22) + (high << 43);
}

/* Space for one value per warp. Functions below end with a barrier, so it can be used again at once. */
struct block_space {
    uint64_t of_warp[BLOCK_WARPS];
};

static __device__ __noinline__ uint64_t block_add(uint64_t x, block_space *space) {
    __builtin_assume(__isShared(space));
    x = warp_add_wide(x);
    if (threadIdx.x % WARP == 0) space->of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    uint64_t sum = 0;
    for (int i = 0; i < BLOCK_WARPS; ++i) sum += space->of_warp[i];
    __syncthreads();
    return sum;
}

/* The same for sums below 2^32. */
static __device__ __noinline__ uint32_t block_count(uint32_t x, block_space *space) {
    __builtin_assume(__isShared(space));
    x = warp_add(x);
    if (threadIdx.x % WARP == 0) space->of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    uint32_t sum = 0;
    for (int i = 0; i < BLOCK_WARPS; ++i) sum += (uint32_t)space->of_warp[i];
    __syncthreads();
    return sum;
}

static __device__ __noinline__ uint32_t block_max(uint32_t x, block_space *space) {
    __builtin_assume(__isShared(space));
    x = warp_max(x);
    if (threadIdx.x % WARP == 0) space->of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    uint32_t most = 0;
    for (int i = 0; i < BLOCK_WARPS; ++i) most = max(most, (uint32_t)space->of_warp[i]);
    __syncthreads();
    return most;
}

__device__ __forceinline__ uint32_t block_min(uint32_t x, block_space *space) { return ~block_max(~x, space); }

/* Sum of x over all threads before this one. */
static __device__ __noinline__ uint64_t block_before(uint64_t x, block_space *space) {
    __builtin_assume(__isShared(space));
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t through = x;
#pragma unroll 1
    for (int step = 1; step < WARP; step <<= 1) {
        uint64_t other = __shfl_up_sync(ALL_LANES, through, step);
        if (lane >= step) through += other;
    }
    if (lane == WARP - 1) space->of_warp[threadIdx.x / WARP] = through;
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < (int)threadIdx.x / WARP; ++i) through += space->of_warp[i];
    __syncthreads();
    return through - x;
}

#endif
