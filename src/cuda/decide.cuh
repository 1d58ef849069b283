/* decide.cuh - what rows keep that raffle_softmax and raffle_mask write behind filters: they are read and cut by the loops of
 * raffle_sample, and leave a verdict where that leaves a token. */
#ifndef RAFFLE_CUDA_DECIDE_CUH
#define RAFFLE_CUDA_DECIDE_CUH

#include "kernel.cuh"
#include "write.cuh"

/* Leaves what a row keeps (verdict_make), and its state ready for the next call. By one thread. */
template <class type>
__device__ __forceinline__ void verdict_leave(const sample_args &a, const work<type> &k, const answer &told, float best, uint32_t flags) {
    verdict v = verdict_make(told, best, flags);
    v.pieces = k.to.pieces;
#if CUT_MORE
    v.row = k.row;
    v.temperature = k.params.temperature;
#endif
    a.verdicts[part_make(a).row] = v;
    row_close(a, part_make(a).row);
}

/* The grid of sample_kernel. Whoever completes a row decides what it keeps. */
template <class type> __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM) decide_kernel(const __grid_constant__ sample_args a) {
    __shared__ kernel_work<type> k;
    __shared__ bool last;
    if (part_make(a).row >= a.rows) return;
    previous_wait();
    const bool nan = part_read<type>(a, &k);
    next_start();
    if (threadIdx.x == 0) {
        const block_part p = part_make(a);
        row_state *state = a.state + p.row;
        last = row_arrive(state, &k, p.end - p.first, nan);
        if (last && (k.to.greedy || !k.valid)) {
            const uint64_t most = __ldcg(&state->best);
            const float best = k.valid ? key_logit(most) : __int_as_float(0x7fffffff);
            const answer told = {key_token(most), 0, 1, best, key_token(most), 0, 0, 0, 0.0f, 0};
            verdict_leave(a, k, told, best, row_flags_of(k, best));
        }
    }
    if (k.to.greedy || !k.valid) return;
    if (threadIdx.x == WARP) job_prepare(&k);
    if (threadIdx.x == 2 * WARP) k.asks = ASKS_KEPT;
    __syncthreads();
    if (!last) return;
    float most, best;
    row_draw(k, &most); /* its token is not told */
    __syncthreads();
    best = most;
    if (most > MINUS_INF && k.told.capped) { /* by XTC, which has lowered the records */
        k.begin();
        best = k.row_best;
    }
    if (threadIdx.x == 0) verdict_leave(a, k, k.told, best, row_flags_of(k, most));
}

#endif
