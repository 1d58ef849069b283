/* read.cuh - the first reading of a row (`weigh`): a block reads its share of the groups once and leaves a record
 * of each. What a record holds depends on what the row's parameters need:
 *
 *   greedy          nothing; the block keeps its best token
 *   no filter       the group's maximum and the sum of its weights
 *   top-k, min-p    the maxima of its four pieces
 *   top-p           both
 *   (a temperature that makes all tokens equal: maxima only, whoever finishes the row weighs it)
 *
 * Loads are asked for before the parameters are known: every route reads the same bytes. */
#ifndef RAFFLE_CUDA_READ_CUH
#define RAFFLE_CUDA_READ_CUH

#include "group.cuh"

#include "cut.h"
#if CUT_MORE
#include "slot.cuh"
#endif

enum { PREFETCH = 3 }; /* groups that a warp asks for ahead of time where it does not hold loads in flight */

/* Where a row's records go, and how its weights are made. */
struct records {
    bool greedy, pieces, weights;
    scale by;       /* of the weights */
    float *peak;    /* [groups], or [groups, PIECES] if pieces */
    uint64_t *mass; /* [groups] */
};

#if CUT_MORE
/* What a request asks for beyond row_params, and where its row's edits go: see edit.cuh. */
struct row_request {
    raffle_extra extra; /* of zero bytes if the call has none */
    slot_said said;     /* the history; empty if there is none */
    const uint32_t *allow; /* the caller's mask, or NULL */
    uint32_t *mask, *patch; /* [words] */
    float *overlay;         /* [vocab] */
    bool prepares; /* the record is not all zero: there is something to check, perhaps to edit */
    bool lost;     /* it looks back, but there is no history */
    bool near;     /* the part's edits are in shared memory */
};
#endif

/* One row: where it is, what is asked of it, and what its first reading leaves. */
struct row_job {
    device_row row;
    row_params params;
    bool valid; /* they are in range */
    int groups;
    records to;
    /* What is worked out while the row's arrival is under way. */
    struct rules rules;
    scale by;           /* of the draw */
    double min_p_reach; /* if there is min-p */
    uint64_t bits;      /* random */
    uint64_t best_of_warp[BLOCK_WARPS]; /* greedy: each warp's best token */
#if CUT_MORE
    row_request request;
#endif
};

/* What a row of requested<type> has beside, for its report; a part of `work`. */
template <int requested> struct row_wish {};
template <> struct row_wish<1> {
    records shown;     /* of the row at the report's point */
    bool also;         /* shown.mass is an array of its own: the first reading weighs each group twice */
    bool apart;        /* the point shows another row than is sampled: without mask and edits */
    uint32_t top_first; /* likeliest tokens that fast.cuh's candidates should hold for the report */
    bool listed;       /* fast.cuh's candidates are all tokens from the least of them up, and are still there */
    float best;        /* the largest logit of the row that was sampled */
    uint64_t shown_mass; /* the mass at the report's point, if the draw has found it; else 0 */
};
/* And of a type that is TOLD. */
template <int wanted> struct row_told {};
template <> struct row_told<1> {
    answer told; /* what was drawn */
};
template <class type> struct work;

/* Tokens as integers: the larger is better, of equal logits the lowest id; 0 is none. */
__device__ __forceinline__ uint64_t token_key(float x, int64_t id) { return (uint64_t)order_of(x) << 32 | (uint32_t)~id; }
__device__ __forceinline__ float key_logit(uint64_t key) { return key ? float_of_order((uint32_t)(key >> 32)) : MINUS_INF; }
__device__ __forceinline__ int32_t key_token(uint64_t key) { return (int32_t)~(uint32_t)key; }

/* ---- one group ---------------------------------------------------------------------------------------- */

/* The sum of a group's weights, of which `peak` is the largest logit. Weights are those of a PLAIN reference; where the
 * group's is not, whoever finishes the row knows, and does not use them. */
__device__ __forceinline__ void record_weigh(const records &to, int g, const float x[LANE_TOKENS], float peak) {
    const ref f = ref_make_near(to.by, peak);
    const uint64_t sum = group_sum(lane_weigh(x, f));
    if (threadIdx.x % WARP == 0) __stcg(to.mass + g, sum);
}

/* Leaves the maxima of a group, `most` being each lane's. Returns the group's, if there are weights. */
template <bool pieces, bool weights> __device__ __forceinline__ float record_peaks(const records &to, int g, float most) {
    const int lane = threadIdx.x % WARP;
    if (pieces) {
        float piece = most;
#pragma unroll
        for (int step = 1; step < PIECE_LANES; step <<= 1)
            piece = max_or_nan(piece, __shfl_xor_sync(ALL_LANES, piece, step));
        if (lane % PIECE_LANES == 0) __stcg(to.peak + g * PIECES + lane / PIECE_LANES, piece);
        if (!weights) return MINUS_INF;
    }
    const float peak = float_of_order(warp_max(order_of(most))); /* a NaN is the largest key */
    if (!pieces && lane == 0) __stcg(to.peak + g, peak);
    return peak;
}

/* Leaves the record of a group whose logits are in the lanes of a warp, `most` being each lane's maximum. It is
 * wrong if there is a NaN: rare, and done again by groups_redo. Returns the group's maximum, if there are weights. */
template <bool pieces, bool weights>
__device__ __forceinline__ float record_make(const records &to, int g, const float x[LANE_TOKENS], float most) {
    const float peak = record_peaks<pieces, weights>(to, g, most);
    if (weights) record_weigh(to, g, x, peak);
    return peak;
}

/* ---- many groups -------------------------------------------------------------------------------------- */

/* A warp's loads in flight: its next groups g, g + 8, ... of an aligned row without a mask. */
template <class type, int groups = 8 / type::BYTES> struct flight {
    enum { GROUPS = groups, STEP = GROUP * type::BYTES * BLOCK_WARPS };
    lane_raw<type> raw[GROUPS];
    const char *at; /* the lane's tokens in the first of them */
    int g, end;

    __device__ __forceinline__ void load(int i, int ahead) {
        lane_raw<type> next; /* left open where there is no such group: it is not looked at */
        if (g + (i + ahead) * BLOCK_WARPS < end) next = raw_load<type>(at + (i + ahead) * STEP, true, 0);
        raw[i] = next;
    }
    __device__ __forceinline__ void start(const char *logits, int first, int last) {
        end = __shfl_sync(ALL_LANES, last, 0); /* tells the compiler that a warp stays together */
        g = __shfl_sync(ALL_LANES, first, 0);
        at = logits + g * (int64_t)GROUP * type::BYTES + threadIdx.x % WARP * 16;
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) load(i, 0);
    }
    __device__ __forceinline__ void advance() {
        g += GROUPS * BLOCK_WARPS;
        at += GROUPS * STEP;
    }
};

/* The loop that most logits go through. `also`: weighs each group once more, for `shown`. Returns whether there was a NaN. */
template <class type, bool pieces, bool weights, bool also = false>
__device__ __forceinline__ bool groups_weigh(flight<type> &f, const records &to, const records &shown) {
    enum { GROUPS = flight<type>::GROUPS };
    float all = MINUS_INF;
    for (; f.g < f.end; f.advance()) {
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            const int now = f.g + i * BLOCK_WARPS;
            if (now >= f.end) break;
            const float most = raw_peak(f.raw[i]);
            float x[LANE_TOKENS];
            if (weights) raw_values(f.raw[i], x);
            f.load(i, GROUPS);
            const float peak = record_make<pieces, weights>(to, now, x, most);
            if (also) record_weigh(shown, now, x, peak);
            all = max_or_nan(all, most);
        }
    }
    return all != all;
}

/* Leaves a warp's best token, or the better of it and the one it left before. */
__device__ __forceinline__ void warp_best(row_job *k, uint64_t of_lane, bool before) {
    const uint32_t order = warp_max((uint32_t)(of_lane >> 32));
    const uint32_t id = warp_max((uint32_t)(of_lane >> 32) == order ? (uint32_t)of_lane : 0);
    if (threadIdx.x % WARP) return;
    uint64_t *best = k->best_of_warp + threadIdx.x / WARP;
    *best = max(before ? *best : 0, (uint64_t)order << 32 | id);
}

/* groups_weigh for greedy rows: each lane remembers the tokens that hold its best. */
template <class type> __device__ __forceinline__ bool groups_best(flight<type> &f, row_job *k) {
    enum { GROUPS = flight<type>::GROUPS };
    const int lane = threadIdx.x % WARP;
    lane_raw<type> kept;
    float all = MINUS_INF, most_kept = MINUS_INF;
    int g_kept = -1;
    for (; f.g < f.end; f.advance()) {
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            const int now = f.g + i * BLOCK_WARPS;
            if (now >= f.end) break;
            const float most = raw_peak(f.raw[i]);
            all = max_or_nan(all, most);
            if (most > most_kept) {
                most_kept = most;
                g_kept = now;
                kept = f.raw[i];
            }
            f.load(i, GROUPS);
        }
    }
    uint64_t best = 0;
    if (g_kept >= 0) {
        float x[LANE_TOKENS];
        int first = 0;
        raw_values(kept, x);
#pragma unroll
        for (int j = LANE_TOKENS - 1; j >= 0; --j)
            if (x[j] == most_kept) first = j;
        best = token_key(most_kept, g_kept * (int64_t)GROUP + lane_token<type>(true, lane, first));
    }
    warp_best(k, best, false);
    return all != all;
}

/* Groups g, g + 8, ... below `end`, whatever they are, NaN counting as -inf: rows that are masked or misaligned, the
 * partial group at the end, and groups that have a NaN. `before`: others are done. Returns
 * whether there was a NaN. Arguments are few and in shared memory: what a call needs on the stack, every thread puts
 * there, whether it calls or not. */
template <class type> static __device__ __noinline__ bool groups_redo(row_job *k, int g, int end, bool before) {
    __builtin_assume(__isShared(k));
    const device_row row = k->row;
    const records to = k->to;
    const int lane = threadIdx.x % WARP;
    uint64_t best = 0;
    bool nan = false;
    for (; g < end; g += BLOCK_WARPS) {
        float x[LANE_TOKENS], most = MINUS_INF;
        if (g + PREFETCH * BLOCK_WARPS < end) group_prefetch<type>(row, g + PREFETCH * BLOCK_WARPS, lane);
        lane_read<type>(row, g, lane, x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            nan |= x[j] != x[j];
            x[j] = v_max(x[j], MINUS_INF);
            most = v_max(x[j], most);
            if (to.greedy) best = max(best, token_key(x[j], lane_id<type>(row, g, lane, j)));
        }
        if (to.greedy) continue;
        float peak = MINUS_INF;
        if (!to.weights) record_make<true, false>(to, g, x, most);
        else if (to.pieces) peak = record_make<true, true>(to, g, x, most);
        else peak = record_make<false, true>(to, g, x, most);
        if constexpr (type::REQUESTED) {
            const work<type> *wish = static_cast<work<type> *>(k);
            if (wish->also) record_weigh(wish->shown, g, x, peak);
        }
    }
    if (to.greedy) warp_best(k, best, before);
    return nan;
}

/* The whole groups of a warp. */
template <class type> __device__ __forceinline__ bool groups_first(row_job *k, flight<type> &f) {
    const records to = k->to;
    if constexpr (type::REQUESTED) {
        const work<type> *wish = static_cast<work<type> *>(k);
        const records shown = wish->shown;
        if (wish->also) return groups_weigh<type, true, true, true>(f, to, shown);
    }
    if (to.greedy) return groups_best<type>(f, k);
    if (!to.weights) return groups_weigh<type, true, false>(f, to, to);
    if (!to.pieces) return groups_weigh<type, false, true>(f, to, to);
    return groups_weigh<type, true, true>(f, to, to);
}

/* A block's part of a row, its warps taking turns. `f` has been started if the row is `plain`; `rest` says which groups,
 * from the warp's first to the end, if the loops below leave any. Returns whether there was a NaN. */
template <class type, class range> __device__ __forceinline__ bool groups_read(row_job *k, flight<type> &f, bool plain, range rest) {
    bool again = true;
    int whole = 0;
    if (plain) {
        again = __any_sync(ALL_LANES, groups_first<type>(k, f)); /* there was a NaN */
        whole = f.end;
    }
    const int2 groups = rest();
    int g = groups.x;
    if (!again && g < whole) g += (whole - g + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS;
    if (g >= groups.y) return false;
    return groups_redo<type>(k, g, groups.y, !again);
}

#endif
