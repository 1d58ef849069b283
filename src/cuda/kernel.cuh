/* kernel.cuh - the kernel of raffle_sample. */
#ifndef RAFFLE_CUDA_KERNEL_CUH
#define RAFFLE_CUDA_KERNEL_CUH

#include "fast.cuh"

/* 128 registers a thread. With three blocks and 80 registers the loop below spills, which costs more than it brings. */
enum { BLOCKS_PER_SM = 2 };

/* Everything a launch needs, passed by value. Pointers are device memory; layouts as in raffle.h. */
struct sample_args {
    const char *logits;
    int64_t rows, row_stride, vocab, slots;
    int32_t groups;
    int64_t share, share_more; /* groups per block, and how many blocks take one more */
    const int32_t *slot;
    const float *temperature, *top_p, *min_p;
    const int32_t *top_k;
    const uint64_t *seed, *position;
    const uint32_t *allow;
    int64_t allow_stride;
    uint32_t flags;
    int32_t empty_token;
    int32_t *token;
    uint32_t *row_flags;
    /* workspace */
    float *peak;        /* [rows, groups * PIECES] */
    uint64_t *mass;     /* [rows, groups] */
    uint32_t *done;     /* [rows] groups read so far; 0 between calls */
    uint32_t *nan_seen; /* [rows] 0 between calls */
};

/* A row's parameters, and what its first reading has to leave behind for them. */
struct route {
    row_params params;
    bool valid, pieces, weights;
    scale weigh_scale;
};

__device__ __forceinline__ route route_make(const sample_args &a, int64_t row) {
    route made;
    row_params *p = &made.params;
    const int64_t slot = a.slot ? a.slot[row] : row;
    made.valid = slot >= 0 && slot < a.slots;
    made.pieces = made.weights = false;
    if (!made.valid) return made;
    p->temperature = a.temperature ? a.temperature[slot] : 1.0f;
    p->top_p = a.top_p ? a.top_p[slot] : 1.0f;
    p->min_p = a.min_p ? a.min_p[slot] : 0.0f;
    p->top_k = a.top_k ? a.top_k[slot] : 0;
    p->seed = a.seed[slot];
    p->position = a.position[slot];
    p->draft_step = 0;
    p->flags = a.flags;
    p->vocab = a.vocab;
    made.valid = p->temperature >= 0.0f && p->top_p == p->top_p && p->min_p == p->min_p;
    const rules r = rules_make(p);
    const bool filters = r.top_k || r.top_p || r.min_p_first || r.min_p_last;
    made.pieces = !r.greedy && filters;
    made.weights = !r.greedy && (!filters || r.row_mass);
    if (made.weights) made.weigh_scale = scale_make(filters ? r.filter_temperature : p->temperature);
    return made;
}

template <class type> __device__ __forceinline__ device_row row_make(const sample_args &a, int64_t row) {
    device_row r;
    r.logits = a.logits + row * a.row_stride * type::BYTES;
    r.allow = a.allow ? a.allow + row * a.allow_stride : nullptr;
    r.vocab = a.vocab;
    r.aligned = (uintptr_t)r.logits % 16 == 0;
    return r;
}

/* ---- the first reading ----------------------------------------------------------------------------- */

/* What the first reading leaves of each group: its maximum; the maxima of its pieces; the sum of its weights. */
struct records {
    bool pieces, weights;
    scale by;       /* of the weights */
    float *peak;    /* [groups], or [groups, PIECES] if pieces */
    uint64_t *mass; /* [groups] */
};

/* The record of a group whose logits are in the lanes of a warp, where `most` is each lane's maximum. It is wrong,
 * and true is returned, if there is a NaN or a reference that is not PLAIN: rare, and left to group_record. */
template <bool pieces, bool weights>
__device__ __forceinline__ bool record_make(const records &to, int g, const float x[LANE_TOKENS], float most) {
    const int lane = threadIdx.x % WARP;
    if (pieces) {
        float piece = most;
#pragma unroll
        for (int step = 1; step < PIECE_LANES; step <<= 1)
            piece = max_or_nan(piece, __shfl_xor_sync(ALL_LANES, piece, step));
        if (lane % PIECE_LANES == 0) __stcg(to.peak + g * PIECES + lane / PIECE_LANES, piece);
        if (!weights) return most != most;
    }
    const float peak = float_of_order(warp_max(order_of(most))); /* a NaN is the largest key */
    if (!pieces && lane == 0) __stcg(to.peak + g, peak);
    if (!weights) return peak != peak;
    const ref f = ref_make_near(to.by, peak);
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) sum += v_round(v_weight(x[j], &f, 0));
    sum = group_sum(sum);
    if (lane == 0) __stcg(to.mass + g, sum);
    return !ref_is_near(to.by, peak);
}

/* Whole groups g, g + 8, ... of an aligned row without a mask: the loop that most logits go through. A function of
 * its own that calls no other, so that all registers are its own and loads stay in flight. */
template <class type, bool pieces, bool weights>
__device__ __forceinline__ bool groups_stream(const char *logits, int first, int last, const records to) {
    enum { BATCH = (weights ? 4 : 8) / type::BYTES, STEP = GROUP * type::BYTES * BLOCK_WARPS };
    const int lane = threadIdx.x % WARP;
    const int end = __shfl_sync(ALL_LANES, last, 0); /* tells the compiler that a warp stays together */
    int g = __shfl_sync(ALL_LANES, first, 0);
    const char *at = logits + g * (int64_t)GROUP * type::BYTES;
    lane_raw<type> raw[BATCH];
    bool rare = false;
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
        if (g + i * BLOCK_WARPS < end) raw[i] = raw_load<type>(at + i * STEP, true, lane);
    for (; g < end; g += BATCH * BLOCK_WARPS, at += BATCH * STEP) {
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int now = g + i * BLOCK_WARPS;
            if (now >= end) break;
            const float most = raw_peak(raw[i]);
            float x[LANE_TOKENS];
            raw_values(raw[i], x);
            if (now + BATCH * BLOCK_WARPS < end) raw[i] = raw_load<type>(at + (i + BATCH) * STEP, true, lane);
            rare |= record_make<pieces, weights>(to, now, x, most);
        }
    }
    return rare;
}

/* The same for masked and misaligned rows. */
template <class type>
static __device__ __noinline__ bool groups_stream_any(const device_row &given, int g, int end, const records to) {
    const device_row row = given;
    const int lane = threadIdx.x % WARP;
    bool rare = false;
    for (; g < end; g += BLOCK_WARPS) {
        float x[LANE_TOKENS];
        if (g + PREFETCH * BLOCK_WARPS < end) group_prefetch<type>(row, g + PREFETCH * BLOCK_WARPS, lane);
        raw_values(raw_load<type>(group_at<type>(row, g), row.aligned, lane), x);
        if (row.allow) lane_mask(lane_allow<type>(row, g, lane), x);
        const float most = lane_peak(x);
        if (__all_sync(ALL_LANES, most == MINUS_INF)) { /* all masked: common, and the weights would be rare */
            if (to.weights && lane == 0) __stcg(to.mass + g, (uint64_t)0);
            if (to.pieces) record_make<true, false>(to, g, x, most);
            else record_make<false, false>(to, g, x, most);
            continue;
        }
        if (!to.weights) rare |= to.pieces ? record_make<true, false>(to, g, x, most) : record_make<false, false>(to, g, x, most);
        else if (to.pieces) rare |= record_make<true, true>(to, g, x, most);
        else rare |= record_make<false, true>(to, g, x, most);
    }
    return rare;
}

/* Any group, with all that can happen. Returns whether it has a NaN. */
template <class type> static __device__ __noinline__ bool group_record(const device_row &row, int g, const records to) {
    const int lane = threadIdx.x % WARP;
    float x[LANE_TOKENS], most = MINUS_INF;
    bool nan = false;
    lane_read<type>(row, g, lane, x);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        nan |= x[j] != x[j];
        most = v_max(x[j], most);
    }
    if (to.pieces) record_make<true, false>(to, g, x, most);
    else record_make<false, false>(to, g, x, most);
    if (to.weights) {
        const float peak = float_of_order(warp_max(order_of(most)));
        const ref f = ref_make(to.by, peak);
        uint64_t sum = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) sum += weigh_any(x[j], f);
        sum = group_sum(sum);
        if (lane == 0) to.mass[g] = peak > MINUS_INF ? sum : 0;
    }
    return __any_sync(ALL_LANES, nan);
}

/* Groups [first, end) of a row, the warps of the block taking turns. Returns whether there was a NaN. */
template <class type>
__device__ __forceinline__ bool groups_read(const device_row &row, int first, int end, const records &to) {
    const int whole = min(end, (int)(row.vocab / GROUP)), start = first + threadIdx.x / WARP;
    bool rare, nan = false;
    if (to.weights && to.by.flat) rare = true;
    else if (!row.aligned || row.allow) rare = groups_stream_any<type>(row, start, whole, to);
    else if (!to.weights && !to.pieces) rare = groups_stream<type, false, false>(row.logits, start, whole, to);
    else if (!to.weights) rare = groups_stream<type, true, false>(row.logits, start, whole, to);
    else if (!to.pieces) rare = groups_stream<type, false, true>(row.logits, start, whole, to);
    else rare = groups_stream<type, true, true>(row.logits, start, whole, to);
    /* The partial group at the end, and once more the groups of a warp that met something rare. */
    rare = __any_sync(ALL_LANES, rare);
    for (int g = start; g < end; g += BLOCK_WARPS)
        if (rare || g >= whole) nan |= group_record<type>(row, g, to);
    return nan;
}

/* ---- finishing a row ------------------------------------------------------------------------------- */

/* What fast_finish leaves: every parameter and every row. */
template <class type> static __device__ __noinline__ int32_t row_finish(work<type> *k) {
    __builtin_assume(__isShared(k));
    return row_answer(k, &k->params, k->row_best).token;
}

__device__ __forceinline__ uint32_t count_arrived(uint32_t *counter, uint32_t more) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(more) : "memory");
    return before;
}

/* Blocks share all groups of all rows evenly. Whoever completes a row finishes it; nobody waits. */
template <class type> __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM) sample_kernel(const __grid_constant__ sample_args a) {
    __shared__ work<type> k;
    __shared__ bool last;
    int64_t at = a.share * blockIdx.x + min((int64_t)blockIdx.x, a.share_more);
    const int64_t stop = at + a.share + (blockIdx.x < a.share_more);
    int64_t row = at >> 32 ? at / a.groups : (uint32_t)at / (uint32_t)a.groups;
    int first = (int)(at - row * a.groups);
    for (; at < stop; ++row, first = 0) {
        const int count = (int)min((int64_t)(a.groups - first), stop - at);
        const device_row logits = row_make<type>(a, row);
        const int ahead = first + threadIdx.x / WARP; /* on its way while the parameters are looked up */
        if (ahead < first + count) group_prefetch<type>(logits, ahead, threadIdx.x % WARP);
        const route route = route_make(a, row);
        const records to = {route.pieces, route.weights, route.weigh_scale, a.peak + row * a.groups * PIECES,
                            a.mass + row * a.groups};
        if (threadIdx.x == 0) {
            k.row = logits;
            k.groups = a.groups;
            k.params = route.params;
            k.valid = route.valid;
            k.has_pieces = route.pieces;
            k.peak = to.peak;
            k.mass = to.mass;
            k.state = route.weights ? MASS_WEIGHTS : MASS_OTHER;
            k.mass_scale = route.weigh_scale;
        }
        if (route.valid && groups_read<type>(logits, first, first + count, to) && threadIdx.x % WARP == 0)
            atomicOr(a.nan_seen + row, 1u);
        __syncthreads();
        if (threadIdx.x == 0) {
            /* Releases the block's records, and acquires those of the blocks that came before. */
            last = count_arrived(a.done + row, (uint32_t)count) + (uint32_t)count == (uint32_t)a.groups;
        }
        __syncthreads();
        at += count;
        if (!last) continue;
        uint32_t flags = RAFFLE_ROW_ARGUMENT;
        int32_t token = RULE_NO_TOKEN;
        if (k.valid) {
            flags = __ldcg(a.nan_seen + row) ? RULE_ROW_NAN : 0;
            k.begin();
            if (!fast_finish(k, &token)) token = row_finish(&k);
            if (k.row_best == PLUS_INF) flags |= RULE_ROW_INF;
            if (k.row_best == MINUS_INF) {
                flags |= RULE_ROW_EMPTY;
                token = a.empty_token;
            }
        }
        if (threadIdx.x == 0) {
            a.token[row] = token;
            if (a.row_flags) a.row_flags[row] = flags;
            a.done[row] = a.nan_seen[row] = 0; /* ready for the next call */
        }
        __syncthreads();
    }
}

#endif
