/* powers.cu - how far off the instruction is that estimates are made with (power_about), for estimate.c. */
#include "vec_one.h"

#include "group.cuh"

extern "C" cudaError_t powers_off(double *most, unsigned step, cudaStream_t stream);

/* The largest error of 2^x for x from -126 to 3/4, as a part of it: of every `step`-th float. */
static __global__ void powers_kernel(double *most, unsigned step) {
    const uint64_t below = 0x42fc0000u + 1ull, above = 0x3f400000u + 1ull; /* floats from -0 down, and from 0 up */
    const uint64_t threads = (uint64_t)gridDim.x * BLOCK_THREADS, own = (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
    double off = 0.0;
    for (uint64_t i = own * step; i < below + above; i += threads * step) {
        const float x = float_of((uint32_t)(i < below ? 0x80000000u + i : i - below));
        off = fmax(off, fabs((double)power_about(x) / exp2((double)x) - 1.0));
    }
    atomicMax((unsigned long long *)most, (unsigned long long)__double_as_longlong(off));
}

cudaError_t powers_off(double *most, unsigned step, cudaStream_t stream) {
    void *arguments[] = {&most, &step};
    return cudaLaunchKernel(powers_kernel, dim3(1024), dim3(BLOCK_THREADS), arguments, 0, stream);
}
