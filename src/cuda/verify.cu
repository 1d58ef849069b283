/* verify.cu - the kernels of raffle_verify for each dtype, and their launch. */
#include "device.cuh"

#include "vec_one.h"

#include "verify_rows.cuh"
#include "verify_walk.cuh"

template <class type, class draft> static cudaError_t launch(verify_args *a, int processors, cudaStream_t stream) {
    const int64_t rows = a->rows + (a->draft_data ? a->draft_rows : 0);
    void *parameters[] = {a};
    const dim3 grid = parts_grid(rows, a->groups, a->groups, processors, &a->part);
    cudaError_t code = cudaLaunchKernel(verify_rows_kernel<judged<type>, judged<draft>>, grid, dim3(BLOCK_THREADS), parameters, 0, stream);
    if (code != cudaSuccess) return code;
    /* Twice as many blocks a request as the GPU holds at once, if each has a group for every warp: not all requests have work. */
    const int64_t most = (a->groups + BLOCK_WARPS - 1) / BLOCK_WARPS, fair = (int64_t)processors * WALKS_PER_SM * 2 / a->requests;
    const int64_t parts = fair < 1 ? 1 : fair < most ? fair : most;
    a->walk_part = (int32_t)((a->groups + parts - 1) / parts);
    const unsigned blocks = (unsigned)((a->groups + a->walk_part - 1) / a->walk_part);
    return cudaLaunchKernel(verify_walk_kernel<type, draft>, dim3(blocks * (unsigned)a->requests), dim3(BLOCK_THREADS), parameters, 0, stream);
}

cudaError_t verify_launch(verify_args *a, int dtype, int processors, cudaStream_t stream) {
    typedef type_probs<type_f32> probs;
    if (dtype == RAFFLE_F32) return a->draft_probs ? launch<type_f32, probs>(a, processors, stream) : launch<type_f32, type_f32>(a, processors, stream);
    if (dtype == RAFFLE_F16) return a->draft_probs ? launch<type_f16, probs>(a, processors, stream) : launch<type_f16, type_f16>(a, processors, stream);
    return a->draft_probs ? launch<type_bf16, probs>(a, processors, stream) : launch<type_bf16, type_bf16>(a, processors, stream);
}
