/* cluster.cuh - raffle_softmax without filters, in one launch: a cluster of blocks reads a row once, keeps its weights in shared
 * memory, agrees on the row's maximum and mass, and writes it. Compute capability 9.0 and newer.
 *
 * A warp has `per` units of the row, one behind the other: a unit is four groups, each of them in the hands of eight lanes. So a
 * lane has 32 tokens of a group at a time, and what is done once a group is done for four groups at once.
 *
 *   look       every warp finds the largest logit of its groups
 *   weigh      every warp makes weights of its logits, in their place in shared memory, and a note of each group
 *   write      every warp makes probabilities of its weights
 *
 * One warp more has no units, the head: it looks up the row's parameters while the others look, tells the other blocks the
 * largest logit of its block while the others weigh, and then the tickets that the block's groups hold. These are long
 * chains of few instructions; in a warp that has units too, all others would wait for it twice.
 *
 * Blocks wait for nothing but the two messages of each block of their cluster; the first is on its way while they weigh. What
 * the loops for many do not do (masks, misaligned rows, NaN, references that are not PLAIN, greedy rows) is done by short loops
 * without calls: what a call needs, every thread would put on the stack. */
#ifndef RAFFLE_CUDA_CLUSTER_CUH
#define RAFFLE_CUDA_CLUSTER_CUH

#include "cluster_groups.cuh"

/* The block's shared memory beside weights and notes. */
struct cluster_space {
    uint64_t landed[CLUSTER_WARPS]; /* barriers that complete when a warp's logits are here */
    uint64_t told[2];               /* when all blocks have told their maxima, their tickets */
    uint64_t box[2][CLUSTER_MOST];  /* what they told: the key of the first group with the largest logit; tickets and MASS_NAN */
    cluster_row row;
    cluster_verdict verdict;
};

/* Bytes of dynamic shared memory of a block whose warps have `per` units each: | weights | notes | */
static inline size_t cluster_memory(int64_t warps, int64_t per) {
    return (size_t)(warps * per * UNIT) * (GROUP * sizeof(float) + sizeof(cluster_note));
}

#if __CUDA_ARCH__ >= 900

/* ---- messages -------------------------------------------------------------------------------------------- */

/* The sum of the lanes' tickets, with MASS_NAN if one has it. */
__device__ __forceinline__ uint64_t warp_held(uint64_t own) {
    return warp_add_wide(own & ~MASS_NAN) | (__any_sync(ALL_LANES, own >> 63) ? MASS_NAN : 0);
}

/* What the lanes of the heads of all blocks have together, to each of them. Kind 0: the largest key, 1: tickets. A block tells all,
 * itself too, and hears what all have told. */
__device__ __forceinline__ uint64_t heads_agree(cluster_space *s, int kind, uint64_t own) {
    const int lane = threadIdx.x % WARP, blocks = cluster_blocks();
    const uint64_t message = kind == 0 ? warp_max_wide(own) : warp_held(own);
    if (blocks == 1) return message;
    if (lane == 0) barrier_expect(&s->told[kind], blocks * (uint32_t)sizeof message);
    if (lane < blocks) store_remote(&s->box[kind][cluster_rank()], &s->told[kind], lane, message);
    barrier_wait_cluster(&s->told[kind]);
    const uint64_t heard = lane < blocks ? *(volatile uint64_t *)&s->box[kind][lane] : 0;
    return kind == 0 ? warp_max_wide(heard) : warp_held(heard);
}

/* ---- decide ------------------------------------------------------------------------------------------------ */

/* A row's parameters, by one thread. */
template <class type> __device__ __forceinline__ void row_prepare(const write_args &a, int64_t row, cluster_row *k) {
    k->valid = write_params(a, row, &k->temperature);
    if (!k->valid) k->temperature = 1.0f;
    k->greedy = k->temperature < GREEDY_BELOW && k->temperature != LINEAR_TEMPERATURE;
    k->by = scale_make(k->greedy ? 1.0f : k->temperature);
    k->row = k->valid ? write_row<type>(a, row) : device_row(); /* without a token */
    k->plain = k->valid && !k->greedy && k->by.flat == type::LINEAR && a.readable;
}

/* The groups of a block: their numbers, and notes of them. */
struct cluster_notes {
    int first, count;
    const cluster_note *note;
};
__device__ __forceinline__ cluster_notes notes_of(const write_args &a, int per, const float4 *shared) {
    const int groups = ((int)blockDim.x / WARP - 1) * per * UNIT;
    cluster_notes n;
    n.first = cluster_rank() * groups;
    n.count = max(0, min(groups, a.groups - n.first));
    n.note = (const cluster_note *)(shared + groups * GROUP_FLOAT4S);
    return n;
}

/* By the head, when all have looked: agrees with the other blocks on the row's best. */
__device__ __forceinline__ void row_best(cluster_space *s, const cluster_notes &n) {
    const int lane = threadIdx.x % WARP;
    uint64_t own = 0;
#pragma unroll 1
    for (int i = lane; i < n.count; i += WARP) own = max(own, token_key(n.note[i].peak, n.first + i));
    const uint64_t key = heads_agree(s, 0, own);
    if (lane) return;
    s->verdict.best = key_logit(key);
    s->verdict.group = key_token(key);
    s->verdict.row = ref_make(s->row.by, key_logit(key));
}

/* By the head, when all have weighed: agrees with the other blocks on the row's mass. */
__device__ __forceinline__ void row_decide(const write_args &a, cluster_space *s, const cluster_notes &of, int64_t row) {
    const int lane = threadIdx.x % WARP;
    const bool valid = s->row.valid, draws = valid && !s->row.greedy;
    cluster_verdict &v = s->verdict;
    const float best = v.best;
    const ref of_row = v.row;
    uint64_t own = 0;
#pragma unroll 1
    for (int i = lane; i < of.count; i += WARP) {
        const cluster_note n = of.note[i];
        ref f = ref();
        f.exponent = n.exponent;
        const uint32_t below = ref_below(&of_row, best, &f, n.peak);
        if (draws && n.peak > MINUS_INF) own += tickets_of((uint64_t)(n.sum_high & ~(NOTE_NAN | NOTE_NEAR)) << 32 | n.sum_low, below);
        if (n.sum_high & NOTE_NAN) own |= MASS_NAN;
    }
    const uint64_t held = heads_agree(s, 1, own), mass = held & ~MASS_NAN;
    if (lane) return;
    v.mass = mass;
    v.of_best = portion_make(mass ? mass : 1);
    v.reach = portion_reach(&v.of_best);
    if (a.form == FORM_LOG && draws && mass) v.line = log_line_make(s->row.temperature, best, &of_row, mass);
    if (a.row_flags && cluster_rank() == 0) a.row_flags[row] = valid ? flags_of(best, held >> 63) : RAFFLE_ROW_ARGUMENT;
}

/* By the warps that have units: the loop that suits the row and its place. */
__device__ __forceinline__ void row_write(const write_args &a, const cluster_part &p, const cluster_verdict &v, bool greedy, int64_t row) {
    const bool f32 = a.dtype == RAFFLE_F32, logs = a.form == FORM_LOG;
    char *const to = a.data + row * a.data_stride * (f32 ? 4 : 2);
    const bool wide = (uintptr_t)to % 16 == 0 && ((uint32_t)a.vocab & (f32 ? 3 : 7)) == 0;
    if (!wide || greedy || (logs && (v.row.kind == REF_STEP || v.row.kind == REF_LINEAR))) groups_write_rare(a, p, v, greedy, to);
    else if (f32) logs ? groups_write<RAFFLE_F32, true>(a, p, v, to) : groups_write<RAFFLE_F32, false>(a, p, v, to);
    else if (a.dtype == RAFFLE_F16) logs ? groups_write<RAFFLE_F16, true>(a, p, v, to) : groups_write<RAFFLE_F16, false>(a, p, v, to);
    else logs ? groups_write<RAFFLE_BF16, true>(a, p, v, to) : groups_write<RAFFLE_BF16, false>(a, p, v, to);
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------------------- */

/* Grid: a cluster for each row. `per` units a warp. */
template <class type>
__global__ void __launch_bounds__(CLUSTER_THREADS) cluster_kernel(const __grid_constant__ write_args a, const int per) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ float4 shared[]; /* cluster_memory */
    __shared__ cluster_space s;
    const cluster_part p = part_of(a, per, shared);
    const int row = cluster_id(), lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    bool asked = false;
    if (last_warp() && lane == 0) {
        barrier_make(&s.told[0]);
        barrier_make(&s.told[1]);
        barriers_made();
    } else if (lane == 0) {
        barrier_make(&s.landed[warp]);
        barriers_made();
        previous_wait();
        asked = part_ask<type>(a, p, row, &s.landed[warp]);
    }
    cluster_arrive_bare(); /* this warp's barriers are made */
    previous_wait();
    if (last_warp() && lane == 0) row_prepare<type>(a, row, &s.row);
    if (__shfl_sync(ALL_LANES, asked, 0)) {
        part_fill<type>(a, p);
        __syncwarp();
        barrier_wait(&s.landed[warp]);
        groups_look<type>(p);
    }
    cluster_wait(); /* the barriers of all blocks are made */
    __syncthreads();
    const bool plain = s.row.plain;
    if (!plain) { /* all blocks of the row agree on that */
        groups_keep<type>(p, s.row, ~0u);
        __syncthreads();
    }
    if (last_warp()) {
        row_best(&s, notes_of(a, per, shared));
    } else {
        uint32_t rare = ~0u;
        if (plain) rare = a.form == FORM_LOG ? groups_weigh<type, true>(p, s.row.by) : groups_weigh<type, false>(p, s.row.by);
        if (rare) {
            __syncwarp(); /* lanes store where others have stored */
            if (plain) groups_keep<type>(p, s.row, rare);
            __syncwarp();
            groups_rare(a, p, s.row, rare);
        }
    }
    __syncthreads();
    next_start(); /* any earlier, its blocks would be in the way of these */
    if (last_warp()) row_decide(a, &s, notes_of(a, per, shared), row);
    __syncthreads();
    row_write(a, p, s.verdict, s.row.greedy, row); /* of the head: nothing */
#endif
}

#endif
