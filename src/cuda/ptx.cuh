/* ptx.cuh - the instructions that CUDA C has no word for. Where tests/emulate compiles the kernels for a CPU, what they mean
 * in plain C. */
#ifndef RAFFLE_CUDA_PTX_CUH
#define RAFFLE_CUDA_PTX_CUH

#include <stdint.h>

/* Maximum that is NaN if either is, and then the positive one, whose key is the largest. */
__device__ __forceinline__ float max_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800 && !defined(RAFFLE_EMULATE)
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
#else
    return a != a || b != b ? __uint_as_float(0x7fffffffu) : fmaxf(a, b);
#endif
}

/* Logits pass through once: they must not push the block's own data out of the first cache. */
__device__ __forceinline__ uint4 load_once(const uint4 *p) {
#if defined(RAFFLE_EMULATE)
    return *p;
#else
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
#endif
}

__device__ __forceinline__ void prefetch(const char *p) {
#if defined(RAFFLE_EMULATE)
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
#endif
}

/* Adds to a counter behind all that the block has written. Release is enough here: whoever comes last reads what others
 * wrote from the second cache (__ldcg), where all processors meet, and no GPU loads before the branch that leads there.
 * PTX's memory model would ask for an acquire, which empties the first cache, and with it every stack on the processor. */
__device__ __forceinline__ uint32_t count_arrived(uint32_t *counter, uint32_t more) {
#if defined(RAFFLE_EMULATE)
    return atomicAdd(counter, more);
#else
    uint32_t before;
    asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(more) : "memory");
    return before;
#endif
}

/* blockIdx, and gridDim.y as w. Read anew at each call: a compiler that knew them would keep them in registers. */
__device__ __forceinline__ uint4 block_place() {
    uint4 at;
#if defined(RAFFLE_EMULATE)
    at = make_uint4(blockIdx.x, blockIdx.y, blockIdx.z, gridDim.y);
#else
    asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%ctaid.y; mov.u32 %2, %%ctaid.z; mov.u32 %3, %%nctaid.y;"
                 : "=r"(at.x), "=r"(at.y), "=r"(at.z), "=r"(at.w));
#endif
    return at;
}

#endif
