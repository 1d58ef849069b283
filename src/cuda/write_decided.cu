/* write_decided.cu - raffle_softmax and raffle_mask of logits with filters or a raffle_extra. The first launch prepares, reads and cuts
 * each row by the loops of raffle_sample, and leaves a verdict where that leaves a token; the kernels of write.cuh then write the row
 * out of the logits and of what was edited. Groups that keep nothing are not read again: their maxima say so. */
#define CUT_MORE 1

#include "device.cuh"

#include "vec_one.h"

#include "kernel.cuh"
#include "write.cuh"

extern const size_t verdict_decided_bytes = sizeof(verdict);

/* Leaves what a row keeps (verdict_make), and its state ready for the next call. By one thread. */
template <class type>
__device__ __forceinline__ void verdict_leave(const sample_args &a, const work<type> &k, const answer &told, float best, uint32_t flags) {
    verdict v = verdict_make(told, best, flags);
    v.row = k.row;
    v.temperature = k.params.temperature;
    v.pieces = k.to.pieces;
    a.verdicts[part_make(a).row] = v;
    row_close(a, part_make(a).row);
}

/* The grid of sample_kernel. Whoever completes a row decides what it keeps. */
template <class type> __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM) decide_kernel(const __grid_constant__ sample_args a) {
    __shared__ more_work<type> k;
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

#define TYPES(kernel) kernel(type_f32), kernel(type_f16), kernel(type_bf16)
#define DECIDE(type) decide_kernel<requested<type>>
#define KERNELS(type) {write_kernel<requested<type>>, list_kernel<requested<type>>}
extern const sample_function decide_kernels[3] = {TYPES(DECIDE)};
extern const row_kernels row_kernels_decided[3] = {TYPES(KERNELS)};
