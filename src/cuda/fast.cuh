/* fast.cuh - finishing a row the short way. Most rows are greedy, unfiltered, or left with at most 512 candidates:
 * two for each thread of the block. These are finished here, in one piece of code without calls or a stack, because
 * a row's latency is what counts; all else goes through cut.h, which gives the same tokens. */
#ifndef RAFFLE_CUDA_FAST_CUH
#define RAFFLE_CUDA_FAST_CUH

#include "finish.cuh"

/* Inlined twins of the reductions in block.cuh; `space` must not be in use. */
__device__ __forceinline__ uint64_t fast_sum(uint64_t x, block_space &space) {
    x = warp_add_wide(x);
    if (threadIdx.x % WARP == 0) space.of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) x += space.of_warp[i];
    __syncthreads();
    return x;
}

/* Sum over the threads before this one, and over all. */
__device__ __forceinline__ uint64_t fast_before(uint64_t x, block_space &space, uint64_t *total) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint64_t before = x;
#pragma unroll
    for (int step = 1; step < WARP; step <<= 1) {
        const uint64_t other = __shfl_up_sync(ALL_LANES, before, step);
        if (lane >= step) before += other;
    }
    if (lane == WARP - 1) space.of_warp[warp] = before;
    before -= x;
    __syncthreads();
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) {
        if (i < warp) before += space.of_warp[i];
        sum += space.of_warp[i];
    }
    *total = sum;
    __syncthreads();
    return before;
}

template <class type> __device__ __forceinline__ float fast_token(const work<type> &k, int g) {
    return token_read_inline<type>(k.row, g * (int64_t)GROUP + threadIdx.x);
}

/* The lowest id with the row's maximum. */
template <class type> __device__ __forceinline__ int32_t fast_greedy(work<type> &k) {
    const bool equal = fast_token(k, k.best_group) == k.row_best;
    const uint32_t lanes = __ballot_sync(ALL_LANES, equal);
    if (threadIdx.x % WARP == 0) k.piece[threadIdx.x / WARP] = lanes;
    __syncthreads();
    int32_t id = k.best_group * GROUP;
    for (int i = 0; i < BLOCK_WARPS; ++i, id += WARP)
        if (k.piece[i]) return id + __ffs(k.piece[i]) - 1;
    return RULE_NO_TOKEN; /* not reached: the group has it */
}

/* The mass of the row from the sums of the first reading, where all references are near; makes them tickets. */
template <class type> __device__ __forceinline__ uint64_t fast_mass(work<type> &k, const ref &best, uint64_t *before) {
    uint64_t own = 0, total;
    for (int g = k.run_first(threadIdx.x); g < k.run_first(threadIdx.x + 1); ++g) {
        const float m = k.peak_near[g];
        const uint32_t below = (uint32_t)best.exponent - (uint32_t)ref_make_near(k.mass_scale, m).exponent;
        const uint64_t tickets = m > MINUS_INF ? tickets_of(k.mass_near[g], below) : 0;
        k.mass_near[g] = tickets;
        own += tickets;
    }
    *before = fast_before(own, k.block, &total);
    if (threadIdx.x == 0) {
        k.state = MASS_TICKETS;
        k.total = total;
    }
    __syncthreads();
    return total;
}

/* The draw without filters: first the group, then the token in it. */
template <class type>
__device__ __forceinline__ int32_t fast_whole(work<type> &k, const ref &best, uint64_t bits) {
    uint64_t before, total;
    const uint64_t ticket = mul_high(bits, fast_mass(k, best, &before));
    uint64_t left = ticket - before;
    if (ticket >= before)
        for (int g = k.run_first(threadIdx.x); g < k.run_first(threadIdx.x + 1); ++g) {
            const uint64_t held = k.mass_near[g];
            if (left < held) {
                k.group = g;
                k.rest = left;
                break;
            }
            left -= held;
        }
    __syncthreads();
    const int g = k.group;
    const ref f = ref_make_near(k.mass_scale, k.peak_near[g]);
    const uint64_t unit = weight_of(k.rest, (uint32_t)best.exponent - (uint32_t)f.exponent);
    const uint32_t weight = v_round(v_weight(fast_token(k, g), &f, 0));
    before = fast_before(weight, k.block, &total);
    if (unit >= before && unit - before < weight) k.token = g * GROUP + (int)threadIdx.x;
    __syncthreads();
    return k.token;
}

enum { OWN = 2, FAST_MAX = OWN * BLOCK_THREADS }; /* candidates of a thread, of a row */
enum { KEYS_OWN = KEYS_MAX / BLOCK_THREADS };       /* maxima of pieces that a thread holds */

/* A value that at least `wanted` pieces reach, from the upper halves of their keys. Each round tries seven values. */
template <class type>
__device__ __forceinline__ float fast_bound(work<type> &k, const uint32_t key[KEYS_OWN], uint32_t wanted) {
    enum { TRIED = 7 };
    uint32_t least = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < KEYS_OWN; ++i)
        if (key[i]) least = min(least, key[i]);
    least = ~warp_max(~least);
    if (threadIdx.x % WARP == 0) k.block.of_warp[threadIdx.x / WARP] = least;
    if (threadIdx.x < TRIED) k.found[0][threadIdx.x] = k.found[1][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) least = min(least, (uint32_t)k.block.of_warp[i]);
    uint32_t low = least >> 16, high = (order_of(k.row_best) >> 16) + 1; /* `wanted` keys are >= low, fewer >= high */
    for (int round = 0; high - low > 1; round ^= 1) {
        const uint32_t span = high - low;
        uint32_t *found = k.found[round];
#pragma unroll
        for (int j = 0; j < TRIED; ++j) {
            const uint32_t edge = (low + max(1u, span * (j + 1) / (TRIED + 1))) << 16;
            uint32_t count = 0;
#pragma unroll
            for (int i = 0; i < KEYS_OWN; ++i) count += key[i] >= edge;
            count = warp_add(count);
            if (threadIdx.x % WARP == 0) atomicAdd(found + j, count);
        }
        __syncthreads();
        uint32_t next_low = low, next_high = high;
#pragma unroll
        for (int j = 0; j < TRIED; ++j) {
            const uint32_t tried = low + max(1u, span * (j + 1) / (TRIED + 1));
            if (found[j] >= wanted) next_low = max(next_low, tried);
            else next_high = min(next_high, tried);
        }
        low = next_low;
        high = next_high;
        __syncthreads();
        if (threadIdx.x < TRIED) found[threadIdx.x] = 0; /* for the round after the next, which has a barrier before */
    }
    return float_of_order(low << 16);
}

/* Lists the lane's tokens that reach the bound. */
template <class type>
__device__ __forceinline__ void fast_append(work<type> &k, int g, int lane, const float x[LANE_TOKENS], float bound) {
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        if (!(x[j] >= bound)) continue;
        const uint32_t slot = atomicAdd(&k.count, 1u);
        if (slot >= FAST_MAX) continue;
        k.list_x[slot] = x[j];
        k.list_id[slot] = (int32_t)lane_id<type>(k.row, g, lane, j);
    }
}

/* Gathers the tokens >= bound by reading the pieces that have any; false if they are too many. Eight lanes read a
 * piece, and two pieces each before they look at them. */
template <class type>
__device__ __forceinline__ bool fast_gather(work<type> &k, const uint32_t key[KEYS_OWN], float bound) {
    enum { TEAMS = BLOCK_THREADS / PIECE_LANES, AT_ONCE = 2 };
    const uint32_t edge = order_of(bound);
#pragma unroll
    for (int i = 0; i < KEYS_OWN; ++i) {
        if (key[i] < edge) continue;
        const uint32_t slot = atomicAdd(&k.pieces, 1u);
        if (slot < PIECES_MAX) k.piece[slot] = threadIdx.x + i * BLOCK_THREADS;
    }
    __syncthreads();
    const uint32_t pieces = k.pieces;
    const int whole = (int)(k.row.vocab / GROUP);
    if (pieces > PIECES_MAX) return false;
    for (uint32_t i = threadIdx.x / PIECE_LANES; i < pieces; i += TEAMS * AT_ONCE) {
        lane_raw<type> raw[AT_ONCE];
        uint32_t allowed[AT_ONCE];
        int g[AT_ONCE], lane[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const uint32_t piece = i + j * TEAMS < pieces ? k.piece[i + j * TEAMS] : 0;
            g[j] = (int)(piece / PIECES);
            lane[j] = piece % PIECES * PIECE_LANES + threadIdx.x % PIECE_LANES;
            allowed[j] = 0xffu;
            if (g[j] < whole) {
                raw[j] = raw_load<type>(group_at<type>(k.row, g[j]), k.row.aligned, lane[j]);
                if (k.row.allow) allowed[j] = lane_allow<type>(k.row, g[j], lane[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            if (i + j * TEAMS >= pieces) continue;
            float x[LANE_TOKENS];
            raw_values(raw[j], x);
            if (g[j] >= whole) { /* the partial group at the end */
#pragma unroll
                for (int t = 0; t < LANE_TOKENS; ++t)
                    x[t] = token_read_inline<type>(k.row, lane_id<type>(k.row, g[j], lane[j], t));
            } else {
                lane_mask(allowed[j], x);
            }
            fast_append(k, g[j], lane[j], x, bound);
        }
    }
    __syncthreads();
    return k.count <= FAST_MAX;
}

/* Filters with few survivors. False, with nothing decided, if there are too many. */
template <class type>
__device__ __forceinline__ bool fast_filtered(work<type> &k, const rules &r, const ref &best, scale s, uint64_t bits) {
    const row_params p = k.params;
    const int n = k.groups * PIECES;
    const bool min_p = r.min_p_first || r.min_p_last, min_p_only = min_p && !r.top_k && !r.top_p;
    const float low = min_p ? min_p_low(&p, &r, k.row_best) : MINUS_INF;
    if (n > KEYS_MAX || low == -FLT_MAX || (p.flags & RULE_TOP_K_EXACT) || r.filter_temperature != p.temperature) return false;
    uint32_t key[KEYS_OWN];
#pragma unroll
    for (int i = 0; i < KEYS_OWN; ++i) {
        const int at = threadIdx.x + i * BLOCK_THREADS;
        key[i] = at < n ? __float_as_uint(__ldcg(k.peak + at)) : 0;
    }
#pragma unroll
    for (int i = 0; i < KEYS_OWN; ++i)
        key[i] = threadIdx.x + i * BLOCK_THREADS < n ? order_of(__uint_as_float(key[i])) : 0; /* 0 is no float's key */
    if (threadIdx.x == 0) k.count = k.pieces = 0;
    uint64_t mass = 0, unused;
    if (r.row_mass) mass = fast_mass(k, best, &unused); /* ends with a barrier */
    else __syncthreads();
    /* Everything that can stay is at or above the bound. */
    const int wanted = r.top_k ? p.top_k : TOP_P_FIRST;
    float bound = MINUS_INF;
    if (wanted <= n && (r.top_k || (r.top_p && !r.min_p_first))) bound = fast_bound(k, key, wanted);
    if ((r.min_p_first || min_p_only) && low > bound) bound = low;
    if (!(bound > -FLT_MAX) || !fast_gather(k, key, bound)) return false;

    const uint32_t count = k.count;
    float x[OWN];
    uint64_t tickets[OWN], larger_tickets[OWN];
    uint32_t larger[OWN];
    bool kept[OWN];
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const uint32_t own = threadIdx.x + j * BLOCK_THREADS;
        kept[j] = own < count;
        x[j] = MINUS_INF;
        tickets[j] = larger_tickets[j] = larger[j] = 0;
        if (!kept[j]) continue;
        x[j] = k.list_x[own];
        const ref f = ref_make_near(s, k.peak_near[k.list_id[own] / GROUP]);
        tickets[j] = tickets_of(v_round(v_weight(x[j], &f, 0)), (uint32_t)best.exponent - (uint32_t)f.exponent);
    }
#pragma unroll
    for (int j = 0; j < OWN; ++j)
        if (kept[j]) k.list_t[threadIdx.x + j * BLOCK_THREADS] = tickets[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        if (j * BLOCK_THREADS + threadIdx.x / WARP * WARP >= count) continue; /* the whole warp has none */
#pragma unroll 8
        for (uint32_t i = 0; i < count; ++i) {
            const bool above = k.list_x[i] > x[j];
            larger[j] += above;
            larger_tickets[j] += above ? k.list_t[i] : 0;
        }
    }
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        kept[j] = kept[j] && (!r.top_k || larger[j] < (uint32_t)p.top_k);
        sum += kept[j] ? tickets[j] : 0;
    }
    if (r.top_p) {
        sum = fast_sum(sum, k.block);
        const uint64_t target = share_of(p.top_p, r.row_mass ? mass : sum);
        /* Without top-k or min-p the list is only the upper part of the row: it must hold the threshold. */
        if (!r.top_k && !r.min_p_first && sum < target) return false;
#pragma unroll
        for (int j = 0; j < OWN; ++j) kept[j] = kept[j] && larger_tickets[j] < target;
    } else {
        __syncthreads(); /* all have read the tickets that change now */
    }
    sum = 0;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const uint32_t own = threadIdx.x + j * BLOCK_THREADS;
        if (!kept[j] || (r.min_p_last && !(x[j] >= low))) tickets[j] = 0;
        if (own < count) k.list_t[own] = tickets[j];
        sum += tickets[j];
    }
    const uint64_t ticket = mul_high(bits, fast_sum(sum, k.block));
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        if (!tickets[j]) continue;
        const int32_t id = k.list_id[threadIdx.x + j * BLOCK_THREADS];
        uint64_t before = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < count; ++i) before += k.list_id[i] < id ? k.list_t[i] : 0;
        if (ticket >= before && ticket - before < tickets[j]) k.token = id;
    }
    __syncthreads();
    return true;
}

/* Finishes a row whose records are fetched, if it is of the usual kind. The token is in *token. */
template <class type> __device__ __forceinline__ bool fast_finish(work<type> &k, int32_t *token) {
    const rules r = rules_make(&k.params);
    if (k.row_best == MINUS_INF || k.groups > PEAKS_MAX) return false;
    if (r.greedy) {
        *token = fast_greedy(k);
        return true;
    }
    const scale s = k.state == MASS_WEIGHTS ? k.mass_scale : scale_make(k.params.temperature);
    /* References of groups that matter must be near as well: their maxima lie between the row's and drop below. */
    if (s.flat || !ref_is_near(s, k.row_best) || !k.all_near) return false;
    const uint64_t bits = philox_bits(k.params.seed, k.params.position, STREAM_TARGET);
    const ref best = ref_make_near(s, k.row_best);
    if (!(r.top_k || r.top_p || r.min_p_first || r.min_p_last)) {
        *token = fast_whole(k, best, bits);
        return true;
    }
    const bool done = fast_filtered(k, r, best, s, bits);
    *token = k.token;
    return done;
}

#endif
