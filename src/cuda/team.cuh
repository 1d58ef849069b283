/* team.cuh - whole rows read by the blocks of a cluster together, while one of them finishes the row.
 *
 * Whoever completes a row finishes it. Where its filters leave many tokens (wide.cuh), that takes readings of the whole row, and one
 * block alone is slow. The other blocks of its cluster, which have read parts of the same row, have nothing to do by then. In kernels of
 * teamed<type> they meet at the cluster's barrier; if one of them has a row to finish, it orders readings, of which each block does its
 * share and brings what it finds, until it dismisses them. The hardware starts the blocks of a cluster together; no other is waited for.
 *
 * In other kernels whoever finishes a row reads it alone, by the same functions. What there is to order, and how it is read, is in
 * wide_window.cuh. */
#ifndef RAFFLE_CUDA_TEAM_CUH
#define RAFFLE_CUDA_TEAM_CUH

#include "fast.cuh"

enum { TEAM = 8 }; /* blocks at most; as many as a cluster can have anywhere */

/* What a block of a team does before anything else, and before it looks whether it is the one that completes the row: then all have
 * begun, and know that nothing is ordered. */
template <class type> __device__ __forceinline__ void team_begin(work<type> &k) {
    if constexpr (type::TEAMED) {
        if (threadIdx.x == 0) k.order.what = ORDER_NONE;
        __syncwarp();
        cluster_arrive();
    }
}
template <class type> __device__ __forceinline__ void team_ready(const work<type> &) {
    if constexpr (type::TEAMED) cluster_wait();
}

/* What the blocks have written before, all of them see after. */
__device__ __forceinline__ void team_meet() {
    __syncwarp(); /* lanes arrive together */
    cluster_arrive();
    cluster_wait();
}

/* This block's share of [from, to). */
template <class type> __device__ __forceinline__ int2 team_share(const work<type> &, int from, int to) {
    if constexpr (type::TEAMED) {
        const int rank = cluster_rank(), team = cluster_blocks(), count = to - from;
        return make_int2(from + count * rank / team, from + count * (rank + 1) / team);
    }
    return make_int2(from, to);
}

/* The same place in the shared memory of the block that finishes the row; whether that is this one. */
template <class type, class place> __device__ __forceinline__ place *team_lead(const work<type> &k, place *own) {
    if constexpr (type::TEAMED) return cluster_place(own, k.order.lead);
    return own;
}
template <class type> __device__ __forceinline__ bool team_leads(const work<type> &k) {
    if constexpr (type::TEAMED) return cluster_rank() == k.order.lead;
    return true;
}

template <class type> static __device__ __noinline__ void team_read(work<type> *k, const row_order order); /* wide_window.cuh */

/* Has a reading done; by the block that finishes the row. */
template <class type> __device__ __forceinline__ void team_order_give(work<type> &k, row_order order) {
    __syncthreads(); /* what it needs is here */
    if constexpr (type::TEAMED) {
        enum { WORDS = sizeof order / sizeof(uint32_t) };
        order.lead = cluster_rank();
        if (threadIdx.x == 0) k.order = order;
        __syncthreads();
        const int to = (int)threadIdx.x / WORDS, word = (int)threadIdx.x % WORDS;
        if (to < cluster_blocks() && to != order.lead) *cluster_place((uint32_t *)&k.order + word, to) = ((const uint32_t *)&k.order)[word];
        team_meet();
    }
    team_read(&k, order);
    if constexpr (type::TEAMED) team_meet();
    else __syncthreads();
}

/* Lets the others go; by the block that has finished the row. It need not wait for them. */
template <class type> __device__ __forceinline__ void team_dismiss(work<type> &k) {
    if constexpr (type::TEAMED) {
        if (k.order.what != ORDER_NONE && (int)threadIdx.x < cluster_blocks() && (int)threadIdx.x != k.order.lead)
            cluster_place(&k.order, (int)threadIdx.x)->what = ORDER_NONE;
        __syncwarp();
        cluster_arrive();
    }
}

/* The other blocks: do what they are told until there is no more. */
template <class type> static __device__ __noinline__ void team_serve(work<type> *shared_k) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    if constexpr (type::TEAMED) {
        for (bool first = true;; first = false) {
            team_meet();
            if (k.order.what == ORDER_NONE) return;
            if (first) {
                for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) k.q.peak[g] = k.peak_far(g);
                __syncthreads();
            }
            team_read(&k, k.order);
            team_meet();
        }
    }
}

#endif
