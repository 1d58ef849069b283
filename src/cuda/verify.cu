/* verify.cu - the kernels of raffle_verify for each dtype, and their launch. */
#include <cuda_runtime.h>

#include "raffle/raffle.h"

#include "vec_one.h"

#include "verify.cuh"

template <class type> static cudaError_t launch(const verify_args *a, cudaStream_t stream) {
    const int64_t rows = a->rows + (a->draft_logits ? a->draft_rows : 0);
    void *parameters[] = {(void *)a};
    cudaError_t code = cudaLaunchKernel((const void *)verify_rows_kernel<type>, dim3((unsigned)rows), dim3(BLOCK_THREADS), parameters, 0, stream);
    if (code != cudaSuccess) return code;
    return cudaLaunchKernel((const void *)verify_walk_kernel<type>, dim3((unsigned)a->requests), dim3(BLOCK_THREADS), parameters, 0, stream);
}

cudaError_t verify_launch(const verify_args *a, int dtype, cudaStream_t stream) {
    if (dtype == RAFFLE_F32) return launch<type_f32>(a, stream);
    return dtype == RAFFLE_F16 ? launch<type_f16>(a, stream) : launch<type_bf16>(a, stream);
}
