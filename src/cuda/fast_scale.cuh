/* fast_scale.cuh - what all ways to finish a row short of cut.h share: sums over the block, and tickets of a row whose groups have
 * the usual reference. */
#ifndef RAFFLE_CUDA_FAST_SCALE_CUH
#define RAFFLE_CUDA_FAST_SCALE_CUH

#include "finish.cuh"

/* The thread's warp, asked for anew: an offset that the reading has, too, would be kept for the finish all along, on the stack. */
__device__ __forceinline__ uint32_t warp_own() { return thread_again() / WARP; }

/* Each reduction has a row of q.space. Between two uses of one there is a barrier, so nobody waits for it to be free. */
__device__ __forceinline__ uint64_t fast_sum(uint64_t x, uint64_t of_warp[BLOCK_WARPS]) {
    x = warp_add_wide(x);
    if (threadIdx.x % WARP == 0) of_warp[warp_own()] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) x += of_warp[i];
    return x;
}

/* The largest `high` and the smallest `low`. */
__device__ __forceinline__ void fast_range(uint32_t *low, uint32_t *high, uint64_t of_warp[BLOCK_WARPS]) {
    const uint32_t most = warp_max(*high), least = warp_max(~*low);
    if (threadIdx.x % WARP == 0) of_warp[warp_own()] = (uint64_t)least << 32 | most;
    __syncthreads();
    *low = *high = 0;
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) {
        *high = max(*high, (uint32_t)of_warp[i]);
        *low = max(*low, (uint32_t)(of_warp[i] >> 32));
    }
    *low = ~*low;
}

/* Sum over the threads before this one, and over all. In two steps, with a barrier between them: several sums can share it. */
__device__ __forceinline__ uint64_t before_in_warp(uint64_t x, uint64_t of_warp[BLOCK_WARPS]) {
    const uint64_t through = warp_through(x);
    if (threadIdx.x % WARP == WARP - 1) of_warp[warp_own()] = through;
    return through - x;
}
__device__ __forceinline__ uint64_t before_in_block(uint64_t in_warp, const uint64_t of_warp[BLOCK_WARPS], uint64_t *total) {
    const int warp = threadIdx.x / WARP;
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) {
        if (i < warp) in_warp += of_warp[i];
        sum += of_warp[i];
    }
    *total = sum;
    return in_warp;
}
__device__ __forceinline__ uint64_t fast_before(uint64_t x, uint64_t of_warp[BLOCK_WARPS], uint64_t *total) {
    x = before_in_warp(x, of_warp);
    __syncthreads();
    return before_in_block(x, of_warp, total);
}

/* ---- the row's best, and tickets ---------------------------------------------------------------------- */

/* How a row is weighed whose groups that can hold tickets all have the usual reference. `linear` is the LINEAR of its type. */
template <int linear> struct fast_scale {
    scale by;
    float best;
    int32_t exponent; /* of the best group */
};

template <int linear> __device__ __forceinline__ bool fast_scale_make(scale by, float best, fast_scale<linear> *s) {
    s->best = best;
    s->by = by;
    s->exponent = ref_usual<linear>(by, best).exponent;
    return weights_hold<linear>(by, best);
}

/* That of the draw, where filters have another. */
template <class type> __device__ __forceinline__ fast_scale<type::LINEAR> fast_scale_draw(const work<type> &k, float best) {
    fast_scale<type::LINEAR> s;
    fast_scale_make(k.by, best, &s);
    return s;
}

/* Tickets of a weight in a group with maximum m. */
template <int linear> __device__ __forceinline__ uint64_t fast_tickets(const fast_scale<linear> &s, float m, uint64_t weight) {
    const uint32_t below = (uint32_t)s.exponent - (uint32_t)ref_usual<linear>(s.by, m).exponent;
    return linear || m >= s.best - s.by.drop ? tickets_of(weight, below) : 0;
}

/* A group with maximum m, of a row that is weighed by usual references. `most`: right is no more. */
template <int linear>
__device__ __forceinline__ group_ref group_ref_near(const fast_scale<linear> &s, float m, uint32_t most = UINT32_MAX) {
    group_ref g;
    g.ref = ref_usual<linear>(s.by, m);
    g.below = (uint32_t)s.exponent - (uint32_t)g.ref.exponent;
    g.left = g.below < TICKET_BITS ? TICKET_BITS - g.below : 0;
    g.right = g.below > TICKET_BITS ? min(g.below - TICKET_BITS, most) : 0;
    return g;
}

/* Which share of a range of `all` tickets, 2^right weights each, the weights from `before` on hold. */
__device__ __forceinline__ uint64_t tickets_share(uint64_t before, uint32_t weight, uint32_t right, uint64_t all) {
    const uint64_t unit = (1ull << right) - 1;
    return min((before + weight + unit) >> right, all) - min((before + unit) >> right, all);
}

#endif
