/* fast_gather.cuh - the candidates of a filtered row: a bound that as many tokens reach as can stay, and all tokens that do. */
#ifndef RAFFLE_CUDA_FAST_GATHER_CUH
#define RAFFLE_CUDA_FAST_GATHER_CUH

#include "fast_scale.cuh"

/* The highest bin such that at least `wanted` keys are in it or above; of it and of those above, how many. Every warp
 * does this for itself: 32 lanes with 8 bins each, the first lane with the highest. */
__device__ __forceinline__ bool fast_bin(const uint32_t bins[BINS], uint32_t wanted, uint32_t *bin, uint32_t *inside,
                                         uint32_t *above) {
    enum { PER = BINS / WARP };
    const int lane = threadIdx.x % WARP;
    const uint4 *own_bins = (const uint4 *)(bins + (WARP - 1 - lane) * PER), a = own_bins[0], b = own_bins[1];
    const uint32_t count[PER] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    uint32_t through = 0;
#pragma unroll
    for (int i = 0; i < PER; ++i) through += count[i];
    uint32_t larger = through, at = 0, here = 0, before = 0;
    through = warp_through(through);
    const uint32_t lanes = __ballot_sync(ALL_LANES, through >= wanted);
    if (!lanes) return false;
    larger = through - larger;
#pragma unroll
    for (int i = PER - 1; i >= 0; --i) {
        if (larger < wanted) {
            at = (uint32_t)i;
            here = count[i];
            before = larger;
        }
        larger += count[i];
    }
    const int from = __ffs(lanes) - 1;
    *bin = (uint32_t)(WARP - 1 - from) * PER + __shfl_sync(ALL_LANES, at, from);
    *inside = __shfl_sync(ALL_LANES, here, from);
    *above = __shfl_sync(ALL_LANES, before, from);
    return true;
}

/* Where a token lies on an axis that bins cut evenly: a logit as it is, a weight by about its logarithm, which its bits are. What is
 * no weight lies below all others. */
template <int linear> __device__ __forceinline__ float axis_of(float x) { return !linear ? x : x > 0.0f ? (float)bits_of(x) : MINUS_INF; }
/* A value that lies there: of weights, no more than the least of those that do, which are up to 64 bits from there. */
template <int linear> __device__ __forceinline__ float axis_value(float at) {
    return linear ? float_of((uint32_t)fmaxf(at - 128.0f, 1.0f)) : at;
}

/* A value that at least `wanted` of n maxima reach, and as few more as can be had cheaply; so as many tokens do.
 * MINUS_INF if there are not so many maxima. Bins cut the range of values evenly, then the bin that holds the value
 * again if it holds many. How exactly a bin's edges fall does not matter: rounding keeps the order of two values. */
template <int linear>
__device__ __forceinline__ float fast_bound(quick &q, const float *peak, int n, uint32_t wanted, float least_peak, float best) {
    enum { ROUNDS = 4, SLACK = 48 };
    float low = axis_of<linear>(least_peak), high = axis_of<linear>(best);
    for (int round = 0;; ++round) {
        float scale = __fdividef(BINS - 1, high - low);
        if (!(scale < FLT_MAX)) scale = 0.0f;
        if (threadIdx.x < BINS) q.bins[threadIdx.x] = 0;
        __syncthreads();
#pragma unroll 1
        for (int i = 4 * threadIdx.x; i < n; i += 4 * BLOCK_THREADS) {
            const float4 p = *(const float4 *)(peak + i);
            const float x[4] = {axis_of<linear>(p.x), axis_of<linear>(p.y), axis_of<linear>(p.z), axis_of<linear>(p.w)};
#pragma unroll
            for (int j = 0; j < 4; ++j)
                add_if(i + j < n && x[j] >= low && x[j] <= high, q.bins + min(BINS - 1, (int)((x[j] - low) * scale)), 1u);
        }
        __syncthreads();
        uint32_t bin, inside, above, least = 0xffffffffu, most = 0;
        if (!fast_bin(q.bins, wanted, &bin, &inside, &above)) return MINUS_INF;
        if (scale == 0.0f) return axis_value<linear>(low);
        if (above + inside <= wanted + SLACK || round == ROUNDS - 1) /* the bin's edge, less what rounding can do */
            return axis_value<linear>(fmaxf(low, low + __fdividef((float)bin, scale) - (fabsf(low) + fabsf(high)) * 0x1p-20f));
#pragma unroll 1
        for (int i = threadIdx.x; i < n; i += BLOCK_THREADS) {
            const float x = axis_of<linear>(peak[i]);
            if (!(x >= low && x <= high) || min(BINS - 1, (int)((x - low) * scale)) != (int)bin) continue;
            least = min(least, order_of(x));
            most = max(most, order_of(x));
        }
        fast_range(&least, &most, q.space[4 + round]);
        low = float_of_order(least);
        high = float_of_order(most);
        wanted -= above;
    }
}

__device__ __forceinline__ void gather_one(quick &q, float x, int32_t id) {
    const uint32_t slot = atomicAdd(&q.count, 1u);
    if (slot >= CANDIDATES) return;
    q.order[slot] = order_of(x);
    q.id[slot] = id;
}

enum { GATHER_TEAMS = BLOCK_THREADS / PIECE_LANES }; /* each reads a piece */

#if CUT_MORE
/* Notes edited tokens of a lane, eight bits for each of the pieces that it has read from the list's `at` on; few lanes have any. */
template <class type> __device__ __forceinline__ void edits_note(quick &q, uint32_t at, uint32_t edits) {
#pragma unroll 1
    for (; edits; edits &= edits - 1) {
        const int bit = __ffs(edits) - 1;
        const uint32_t piece = q.list[at + bit / LANE_TOKENS * GATHER_TEAMS], slot = atomicAdd(&q.edits, 1u);
        const int lane = (int)(piece % PIECES * PIECE_LANES + threadIdx.x % PIECE_LANES);
        if (slot < EDITED) q.edited[slot] = (int32_t)(piece / PIECES * GROUP) + lane_token<type>(true, lane, bit % LANE_TOKENS);
    }
}

#endif

/* The pieces of a row that is not aligned, token by token. */
template <class type> __device__ __forceinline__ void gather_loose(work<type> &k, float bound) {
    enum { TOKENS = GROUP / PIECES };
#pragma unroll(type::REQUESTED ? 4 : 1)
    for (uint32_t i = threadIdx.x; i < k.q.list_length * TOKENS; i += BLOCK_THREADS) {
        const uint32_t piece = k.q.list[i / TOKENS];
        const int lane = (int)(piece % PIECES * PIECE_LANES + i % PIECE_LANES);
        const int64_t id = lane_id<type>(k.row, (int)(piece / PIECES), lane, (int)(i % TOKENS / PIECE_LANES));
        const float x = token_read_inline<type>(k.row, id);
        if (x >= bound) gather_one(k.q, x, (int32_t)id);
    }
}

/* Lists the tokens of the listed pieces that reach the bound. Eight lanes read a piece, and several pieces before they look at them.
 * `edited`: tokens that are edited are noted instead. */
template <class type, bool edited> __device__ __forceinline__ void gather_pieces(work<type> &k, float bound) {
    enum { TEAMS = GATHER_TEAMS, AT_ONCE = 8 / type::BYTES };
    quick &q = k.q;
    const uint32_t length = q.list_length;
    const auto place_of = [&](uint32_t n) { return q.list[n] * PIECE_LANES + threadIdx.x % PIECE_LANES; }; /* group * WARP + lane */
#pragma unroll 1
    for (uint32_t at = threadIdx.x / PIECE_LANES; at < length; at += TEAMS * AT_ONCE) {
        lane_raw<type> raw[AT_ONCE];
        uint32_t may[AT_ONCE], chosen = 0; /* chosen: eight bits of each */
#if CUT_MORE
        uint32_t patched[AT_ONCE], edits = 0;
#endif
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            may[i] = 0;
            /* Behind calls, as in kernels of requests, a load under a condition would be waited for (groups_visit). */
            if (!type::REQUESTED && at + i * TEAMS >= length) continue;
            const uint32_t place = place_of(min(at + i * TEAMS, length - 1));
            raw[i] = raw_load<type>(group_at<type>(k.row, place / WARP), true, place % WARP);
            may[i] = k.row.allow ? lane_bits<type>(k.row.allow + place / WARP * GROUP_WORDS, true, place % WARP) : 0xffu;
#if CUT_MORE
            patched[i] = edited ? lane_bits<type>(k.row.patch + place / WARP * PATCH_WORDS, true, place % WARP) : 0;
#endif
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (at + i * TEAMS >= length) may[i] = 0;
#if CUT_MORE
            edits |= (patched[i] & may[i]) << i * LANE_TOKENS;
            may[i] &= ~patched[i];
#endif
            chosen |= (raw_reach(raw[i], bound) & may[i]) << i * LANE_TOKENS;
        }
#if CUT_MORE
        if (edited) edits_note<type>(q, at, edits);
#endif
        uint32_t slot = chosen ? atomicAdd(&q.count, (uint32_t)__popc(chosen)) : 0;
#pragma unroll 1
        for (; chosen && slot < CANDIDATES; chosen &= chosen - 1, ++slot) {
            const int bit = __ffs(chosen) - 1, piece = bit / LANE_TOKENS;
            const uint32_t place = place_of(at + piece * TEAMS);
            lane_raw<type> own = raw[0];
#pragma unroll
            for (int i = 1; i < AT_ONCE; ++i)
                if (piece == i) own = raw[i];
            q.order[slot] = order_of(raw_value<type>(own, bit % LANE_TOKENS));
            q.id[slot] = (int32_t)(place / WARP * GROUP) + lane_token<type>(true, place % WARP, bit % LANE_TOKENS);
        }
    }
}

#if CUT_MORE
/* The same of an edited row. The noted tokens are looked up all at once. */
template <class type> static __device__ __noinline__ void gather_edited(work<type> *k, float bound) {
    __builtin_assume(__isShared(k));
    quick &q = k->q;
    gather_pieces<type, true>(*k, bound);
    __syncthreads();
    if (threadIdx.x == 0 && q.edits > EDITED) q.count = CANDIDATES + 1; /* too many */
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < q.edits && q.edits <= EDITED; i += BLOCK_THREADS) {
        const int32_t id = q.edited[i];
        float x;
        if (token_edited(k->row, id, &x) && x >= bound) gather_one(q, x, id);
    }
}
#endif

/* Lists the tokens that reach the bound by reading the pieces that have any; false if they are too many. */
template <class type> __device__ __forceinline__ bool fast_gather(work<type> &k, float bound) {
    quick &q = k.q;
    const int whole = (int)(k.row.vocab / GROUP);
    uint32_t has = 0;
#pragma unroll
    for (int i = 0; i < OWN_GROUPS; ++i) {
        const int g = threadIdx.x + i * BLOCK_THREADS;
        if (g >= whole) break;
        const float4 p = q.pieces4[g];
        has |= ((p.x >= bound) | (p.y >= bound) << 1 | (p.z >= bound) << 2 | (p.w >= bound) << 3) << (i * PIECES);
    }
    if (has) {
        uint32_t slot = atomicAdd(&q.list_length, (uint32_t)__popc(has));
        for (; has && slot < QUICK_PIECES; has &= has - 1, ++slot) {
            const uint32_t i = (uint32_t)__ffs(has) - 1;
            q.list[slot] = (threadIdx.x + i / PIECES * BLOCK_THREADS) * PIECES + i % PIECES;
        }
    }
    __syncthreads();
    if (q.list_length > QUICK_PIECES) return false;
    if (!k.row.aligned) gather_loose(k, bound);
#if CUT_MORE
    else if (k.row.patch) gather_edited(&k, bound);
#endif
    else gather_pieces<type, false>(k, bound);
    if (whole < k.groups && q.peak[whole] >= bound) { /* the partial group at the end: a token each */
        const int id = whole * GROUP + (int)threadIdx.x;
        const float x = threadIdx.x < GROUP ? token_read_inline<type>(k.row, id) : MINUS_INF;
        if (x >= bound) gather_one(q, x, id);
    }
    __syncthreads();
    return q.count <= CANDIDATES;
}

#endif
