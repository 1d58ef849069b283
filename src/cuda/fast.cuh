/* fast.cuh - finishing a row the short way. Most rows are unfiltered or left with at most 512 candidates. These are
 * finished here, in one piece of code without calls or a stack, because a row's latency is what counts; all else
 * goes through wide.cuh or cut.h, which give the same tokens. Loops are short and not unrolled where they can be: code that runs
 * once waits for its instructions more than for anything else. */
#ifndef RAFFLE_CUDA_FAST_CUH
#define RAFFLE_CUDA_FAST_CUH

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

/* Which share of a range of `all` tickets, 2^right weights each, the weights from `before` on hold. */
__device__ __forceinline__ uint64_t tickets_share(uint64_t before, uint32_t weight, uint32_t right, uint64_t all) {
    const uint64_t unit = (1ull << right) - 1;
    return min((before + weight + unit) >> right, all) - min((before + unit) >> right, all);
}

/* ---- no filter ---------------------------------------------------------------------------------------- */

/* Whether the stretch that holds the tickets from `start` to before `end` holds the draw, whatever the estimates that say so are off. */
__device__ __forceinline__ bool whole_settles(uint64_t bits, uint64_t start, uint64_t end, uint64_t total) {
    return draw_settles((double)bits * 0x1p-64, (double)start, (double)end, (double)total, ESTIMATE_ERROR);
}

/* Answers for the token that a row is asked for, of which thread i has the logit of its group's i-th, and whose maximum is `peak`. By all
 * threads, before the barrier of the row's own sums and behind it. */
struct whole_asked {
    ref reference;
    uint32_t weight;
    uint64_t lower;
};
template <class type>
__device__ __forceinline__ whole_asked asked_begin(work<type> &k, const fast_scale<type::LINEAR> &s, float peak, float logit) {
    whole_asked a;
    a.reference = ref_usual<type::LINEAR>(s.by, peak);
    a.weight = weigh_usual<type::LINEAR>(logit, a.reference);
    a.lower = before_in_warp(a.weight, k.q.space[3]);
    return a;
}
template <class type>
__device__ __forceinline__ void asked_end(work<type> &k, const fast_scale<type::LINEAR> &s, float peak, const whole_asked &a) {
    uint64_t all, held = 0;
    const uint64_t lower = before_in_block(a.lower, k.q.space[3], &all);
    const uint32_t below = (uint32_t)s.exponent - (uint32_t)a.reference.exponent, right = below > TICKET_BITS ? below - TICKET_BITS : 0;
    if (type::LINEAR || peak >= s.best - s.by.drop)
        held = right ? tickets_share(lower, a.weight, right, all >> right) : tickets_of(a.weight, below);
    if ((int)threadIdx.x == k.ask.token % GROUP) *k.ask.tickets = held;
}

/* The draw in a stretch whose groups are estimated: a warp weighs one. Leaves q.token. */
template <class type> __device__ __forceinline__ void stretch_draw(work<type> &k, const fast_scale<type::LINEAR> &s, int first) {
    quick &q = k.q;
    const int warp = (int)warp_own(), g = first + warp;
    const float m = __ldcg(k.to.peak + min(g, k.groups - 1));
    const int64_t id = g * (int64_t)GROUP + threadIdx.x % WARP * LANE_TOKENS;
    float x[LANE_TOKENS];
    uint32_t weight[LANE_TOKENS];
    uint64_t own = 0;
    run_read<type>(k.row, id, x);
    const ref f = ref_usual<type::LINEAR>(s.by, m);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) own += weight[j] = weigh_usual<type::LINEAR>(x[j], f);
    const uint64_t through = warp_through(own), all = __shfl_sync(ALL_LANES, through, WARP - 1);
    if (threadIdx.x % WARP == 0) q.space[2][warp] = g < k.groups ? fast_tickets(s, m, all) : 0;
    __syncthreads();
    uint64_t before = 0, total = 0;
#pragma unroll
    for (int i = 0; i < STRETCH; ++i) {
        if (i < warp) before += q.space[2][i];
        total += q.space[2][i];
    }
    const uint64_t ticket = mul_high(k.bits.high, total);
    if (ticket >= before && ticket - before < q.space[2][warp]) {
        uint64_t left = weight_of(ticket - before, (uint32_t)s.exponent - (uint32_t)f.exponent);
        if (left < through && left >= through - own) {
            left -= through - own;
            int token = 0;
#pragma unroll
            for (int j = 0; j + 1 < LANE_TOKENS; ++j)
                if (token == j && left >= weight[j]) left -= weight[j], token = j + 1;
            q.token = (int32_t)id + token;
        }
    }
    __syncthreads();
}
static_assert((int)STRETCH == (int)BLOCK_WARPS && (int)QUICK_GROUPS <= (int)STRETCH * (int)BLOCK_THREADS, "a warp for a group, a thread for a stretch");

/* What a row without filters is asked for: a token's group's maximum, and of its tokens this thread's. */
struct whole_ask {
    bool asked;
    float peak, logit;
};

/* Finds where the draw falls: the stretch (q.group is its first group) if groups are estimated, and if that settles it; else the group, its
 * maximum (q.peak[0]) and the ticket in it (q.rest). Thread i has groups [i n, i n + n), n a power of two, so that the lanes of a stretch are
 * neighbours. No load stands under a condition that is its own: it would be waited for. False if weights do not hold. */
template <int n, class type>
__device__ __forceinline__ bool whole_find(work<type> &k, const whole_ask &ask, fast_scale<type::LINEAR> *s, float *best) {
    enum { LANES = STRETCH / n };
    quick &q = k.q;
    const int first = (int)threadIdx.x * n, lane = threadIdx.x % WARP;
    float m[n];
    uint64_t held[n], own = 0, total;
    uint32_t most = order_of(MINUS_INF), unused = 0;
#pragma unroll
    for (int i = 0; i < n; ++i) held[i] = __ldcg(k.to.mass + min(first + i, k.groups - 1));
    if (type::REQUESTED && k.to.pieces) {
#pragma unroll
        for (int i = 0; i < n; ++i) m[i] = pieces_most(__ldcg((const float4 *)k.to.peak + min(first + i, k.groups - 1)));
    } else {
#pragma unroll
        for (int i = 0; i < n; ++i) m[i] = __ldcg(k.to.peak + min(first + i, k.groups - 1));
    }
#pragma unroll
    for (int i = 0; i < n; ++i) most = max(most, order_of(m[i]));
    fast_range(&unused, &most, q.space[0]);
    *best = float_of_order(most);
    if (!fast_scale_make(k.by, *best, s)) return false;
#pragma unroll
    for (int i = 0; i < n; ++i) own += held[i] = first + i < k.groups ? fast_tickets(*s, m[i], held[i]) : 0;
    uint64_t before = before_in_warp(own, q.space[1]);
    whole_asked answer;
    if constexpr (type::ASKED)
        if (ask.asked) answer = asked_begin(k, *s, ask.peak, ask.logit);
    __syncthreads();
    before = before_in_block(before, q.space[1], &total);
    if (threadIdx.x == 0) k.tell(-FLT_MAX, total, 1);
    if constexpr (type::ASKED) {
        if (ask.asked) asked_end(k, *s, ask.peak, answer);
        if (threadIdx.x == 0) k.ask.done = true;
    }
    const uint64_t ticket = mul_high(k.bits.low, total);
    const uint64_t start = __shfl_sync(ALL_LANES, before, lane & -LANES); /* of the stretch, and its end */
    const uint64_t end = __shfl_sync(ALL_LANES, before + own, lane | (LANES - 1));
    if (ticket < start || ticket >= end) return true;
    if (type::ABOUT && k.to.about) {
        if (lane % LANES == 0 && whole_settles(k.bits.low, start, end, total)) q.group = first;
        return true;
    }
    uint64_t left = start + mul_high(k.bits.high, end - start);
    if (left < before || left - before >= own) return true;
    left -= before;
    int at = 0;
#pragma unroll
    for (int i = 0; i + 1 < n; ++i)
        if (at == i && left >= held[i]) left -= held[i], at = i + 1;
    q.group = first + at;
    q.rest = left;
#pragma unroll
    for (int i = 0; i < n; ++i)
        if (at == i) q.peak[0] = m[i];
    return true;
}

/* The token of group q.group that holds ticket q.rest of it: a thread for each. Leaves q.token. */
template <class type> __device__ __forceinline__ void group_draw(work<type> &k, const fast_scale<type::LINEAR> &s) {
    quick &q = k.q;
    const ref f = ref_usual<type::LINEAR>(s.by, q.peak[0]);
    const int64_t id = q.group * (int64_t)GROUP + threadIdx.x;
    const uint64_t unit = weight_of(q.rest, (uint32_t)s.exponent - (uint32_t)f.exponent);
    uint32_t weight = 0;
    uint64_t unused;
    if (threadIdx.x < GROUP) weight = weigh_usual<type::LINEAR>(token_read_inline<type>(k.row, id), f);
    const uint64_t before = fast_before(weight, q.space[2], &unused);
    if (unit >= before && unit - before < weight) q.token = (int32_t)id;
    __syncthreads();
}

/* The draw without filters. Answers what a row is asked for on the way. False if weights do not hold, or estimates do not settle it. */
template <class type> __device__ __forceinline__ bool fast_whole(work<type> &k, float *best, int32_t *token) {
    quick &q = k.q;
    whole_ask ask = {false, MINUS_INF, MINUS_INF};
    if constexpr (type::ASKED) {
        ask.asked = k.ask.token >= 0;
        if (ask.asked) {
            ask.peak = __ldcg(k.to.peak + k.ask.token / GROUP);
            ask.logit = token_read_inline<type>(k.row, k.ask.token / GROUP * GROUP + (int)threadIdx.x);
        }
    }
    if (threadIdx.x == 0) {
        q.token = RULE_NO_TOKEN; /* logits that change under the kernel may leave a ticket without a holder */
        q.group = -1;
    }
    fast_scale<type::LINEAR> s;
    bool holds;
    if (k.groups <= 2 * BLOCK_THREADS) holds = whole_find<2>(k, ask, &s, best);
    else if (k.groups <= 4 * BLOCK_THREADS) holds = whole_find<4>(k, ask, &s, best);
    else holds = whole_find<STRETCH>(k, ask, &s, best);
    if (!holds) return false;
    *token = RULE_NO_TOKEN;
    if constexpr (type::ASKED)
        if (!k.ask.draws) return true;
    __syncthreads();
    if (q.group < 0) return !type::ABOUT || !k.to.about;
    if (type::ABOUT && k.to.about) stretch_draw(k, s, q.group);
    else group_draw(k, s);
    *token = q.token;
    return true;
}

/* ---- filters with few survivors -------------------------------------------------------------------------- */

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

/* ---- candidates, without an order --------------------------------------------------------------------- */

/* The tickets of a candidate. */
template <int linear>
__device__ __forceinline__ uint64_t candidate_tickets(const quick &q, const fast_scale<linear> &s, float x, int32_t id) {
    const float m = q.peak[id / GROUP];
    return fast_tickets(s, m, weigh_usual<linear>(x, ref_usual<linear>(s.by, m)));
}

/* A thread's candidates; those it does not have are of order 0, which no logit has, and without tickets. */
enum { OWN_CANDIDATES = CANDIDATES / BLOCK_THREADS };
struct candidates {
    uint32_t order[OWN_CANDIDATES];
    int32_t id[OWN_CANDIDATES];
    uint64_t tickets[OWN_CANDIDATES];
};
template <int linear>
__device__ __forceinline__ candidates candidates_load(const quick &q, uint32_t count, const fast_scale<linear> &s) {
    candidates c;
#pragma unroll
    for (int j = 0; j < OWN_CANDIDATES; ++j) {
        const uint32_t own = threadIdx.x + j * BLOCK_THREADS;
        c.order[j] = own < count ? q.order[own] : 0;
        c.id[j] = own < count ? q.id[own] : 0;
    }
#pragma unroll
    for (int j = 0; j < OWN_CANDIDATES; ++j) {
        c.tickets[j] = candidate_tickets(q, s, c.order[j] ? float_of_order(c.order[j]) : MINUS_INF, c.id[j]);
    }
    return c;
}

/* A sum of candidates: how many, and their tickets. */
struct amount {
    uint32_t many;
    uint64_t tickets;
};

/* Makes the memory of selections empty, for all of a row's. A barrier has to follow. */
__device__ __forceinline__ void select_begin(quick &q) {
    uint32_t *const sum = &q.select_by[0][0][0];
#pragma unroll
    for (int i = 0; i < (int)(sizeof q.select_by / sizeof *sum); i += BLOCK_THREADS) sum[i + threadIdx.x] = 0;
    if (threadIdx.x < SELECTIONS) q.select_length[threadIdx.x] = 0;
}

/* What is to be selected: the smallest key up to which candidates reach a target, as a number of them or of their tickets. Keys are
 * about in [least, most]. */
struct selection {
    int nth, by;          /* of the row's, each with a list of its own; which of its sums */
    uint32_t least, most;
    bool counts;          /* the target is a number of candidates */
    bool added;           /* the candidates are in the sums */
    bool few;             /* they are at most WARP: without sums */
};

/* Selects among candidates that are `live`. target_of(tickets of all of them) is the target. False if they do not reach it. *up_to:
 * tickets of those with keys up to the one that is found, and how many these can be at most. First by bins of keys, then among those
 * of the bin that holds it, every warp for itself. If these are many, as equals are, their range is cut into bins again. How exactly a
 * bin's edges fall does not matter: rounding keeps the order of two keys. Tickets are below 2^42 and added in two parts, because
 * 64-bit sums in shared memory are a loop. */
template <class function>
__device__ __forceinline__ bool fast_select(quick &q, selection w, const uint32_t key[OWN_CANDIDATES],
                                            const uint64_t tickets[OWN_CANDIDATES], bool live[OWN_CANDIDATES], function target_of,
                                            uint32_t *found, amount *up_to) {
    enum { PER = SELECT_BINS / WARP, PART_BITS = 21 };
    const uint32_t lane = threadIdx.x % WARP;
    uint32_t(*sum)[SELECT_BINS] = q.select_by[w.by];
    select_list &list = w.nth ? q.select_more[w.nth - 1] : q.select_first;
    uint64_t target = 0;
    amount above = {0, 0}; /* in bins before the one that holds it */
    for (bool first = true;; first = false) {
        if (!w.few) {
            const float scale = __fdividef(SELECT_BINS, (float)(w.most - w.least + 1));
            uint32_t bin[OWN_CANDIDATES];
#pragma unroll
            for (int j = 0; j < OWN_CANDIDATES; ++j) {
                bin[j] = (uint32_t)fminf((float)(key[j] - w.least) * scale, SELECT_BINS - 1);
                if (w.added) continue;
                add_if(live[j], sum[0] + bin[j], 1);
                add_if(live[j], sum[1] + bin[j], (uint32_t)tickets[j] & ((1u << PART_BITS) - 1));
                add_if(live[j], sum[2] + bin[j], (uint32_t)(tickets[j] >> PART_BITS));
            }
            if (!w.added) __syncthreads();
            const uint4 counts = ((const uint4 *)sum[0])[lane], lows = ((const uint4 *)sum[1])[lane], highs = ((const uint4 *)sum[2])[lane];
            const uint32_t many[PER] = {counts.x, counts.y, counts.z, counts.w};
            const uint64_t held[PER] = {lows.x + ((uint64_t)highs.x << PART_BITS), lows.y + ((uint64_t)highs.y << PART_BITS),
                                        lows.z + ((uint64_t)highs.z << PART_BITS), lows.w + ((uint64_t)highs.w << PART_BITS)};
            amount with = {many[0] + many[1] + many[2] + many[3], held[0] + held[1] + held[2] + held[3]}, before = with;
            with.many = warp_through(with.many);
            with.tickets = warp_through(with.tickets);
            if (first) {
                const uint64_t all = __shfl_sync(ALL_LANES, with.tickets, WARP - 1);
                target = target_of(all);
                if (!w.counts && (all < target || !target)) return false;
            }
            const uint32_t reach = __ballot_sync(ALL_LANES, (w.counts ? with.many : with.tickets) >= target);
            before = with = amount{with.many - before.many, with.tickets - before.tickets};
            uint32_t at = lane * PER;
#pragma unroll
            for (int i = 0; i + 1 < PER; ++i) {
                with = amount{with.many + many[i], with.tickets + held[i]};
                if ((w.counts ? with.many : with.tickets) < target) before = with, at = lane * PER + i + 1;
            }
            const int from = reach ? __ffs(reach) - 1 : WARP - 1;
            at = __shfl_sync(ALL_LANES, at, from);
            before = amount{__shfl_sync(ALL_LANES, before.many, from), __shfl_sync(ALL_LANES, before.tickets, from)};
            target -= w.counts ? before.many : before.tickets;
            above = amount{above.many + before.many, above.tickets + before.tickets};
#pragma unroll
            for (int j = 0; j < OWN_CANDIDATES; ++j) live[j] = live[j] && bin[j] == at;
        }
#pragma unroll
        for (int j = 0; j < OWN_CANDIDATES; ++j) {
            if (!live[j]) continue;
            const uint32_t slot = atomicAdd(q.select_length + w.nth, 1u);
            list.key[slot] = key[j];
            list.tickets[slot] = tickets[j];
        }
        __syncthreads();
        const uint32_t length = q.select_length[w.nth];
        if (w.few && length > WARP) return false; /* logits that change under the kernel: they are not few, and there are no bins to cut */
        if (length <= WARP) {
            const uint32_t own = lane < length ? list.key[lane] : 0xffffffffu;
            if (w.few) target = target_of(warp_add_wide(lane < length ? list.tickets[lane] : 0));
            amount with = {0, 0};
#pragma unroll 4
            for (uint32_t i = 0; i < length; ++i)
                if (list.key[i] <= own) with = amount{with.many + 1, with.tickets + list.tickets[i]};
            const bool reached = lane < length && (w.counts ? with.many : with.tickets) >= target;
            *found = ~warp_max(reached ? ~own : 0);
            const uint32_t holds = __ballot_sync(ALL_LANES, reached && own == *found);
            *up_to = amount{above.many + length, above.tickets + __shfl_sync(ALL_LANES, with.tickets, holds ? __ffs(holds) - 1 : 0)};
            return holds;
        }
        uint64_t all = 0;
        w.most = w.least = 0;
#pragma unroll 1
        for (uint32_t i = lane; i < length; i += WARP) {
            w.most = max(w.most, list.key[i]);
            w.least = max(w.least, ~list.key[i]);
            all += list.tickets[i];
        }
        w.most = warp_max(w.most);
        *found = w.least = ~warp_max(w.least);
        *up_to = amount{above.many + length, above.tickets + warp_add_wide(all)};
        if (w.least == w.most) return true;
        w.added = false;
        sum = q.select_again;
        __syncthreads();
        for (int i = threadIdx.x; i < SELECT_PARTS * SELECT_BINS; i += BLOCK_THREADS) *(sum[0] + i) = 0;
        if (threadIdx.x == 0) q.select_length[w.nth] = 0;
        __syncthreads();
    }
}

/* Top-k of exactly `most`: the last id of the candidates equal to `low`, the value of the last of them, that is among them. Bit by bit:
 * ids below it are too few. */
__device__ __forceinline__ int32_t tie_select(const candidates &c, uint32_t low, uint32_t most) {
    const auto count = [&](auto is) {
        int sum = 0;
#pragma unroll
        for (int j = 0; j < OWN_CANDIDATES; ++j) sum += __syncthreads_count(is(j));
        return (uint32_t)sum;
    };
    const uint32_t larger = count([&](int j) { return c.order[j] > low; });
    int32_t last = 0;
#pragma unroll 1
    for (int32_t bit = RAFFLE_VOCAB_MAX / 2; bit; bit /= 2)
        if (larger + count([&](int j) { return c.order[j] == low && c.id[j] < last + bit; }) < most) last += bit;
    return last;
}

/* Whether of tokens equal to the k-th largest only the first stay. */
__device__ __forceinline__ bool top_k_exact(const row_job &k) { return k.rules.top_k && k.params.flags & RULE_TOP_K_EXACT; }

/* The token that is drawn in the stretch of `token`, of candidates from `low` on, those equal to it up to id tie_last: mostly itself, the
 * only one there. A function of its own, and what it needs looked up again: what is kept for it would be kept on the stack. */
template <class type>
static __device__ __noinline__ int32_t many_within(work<type> *shared_k, int32_t token, uint32_t low, int32_t tie_last, float best) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    quick &q = k.q;
    select_list &list = q.select_first; /* whose selection is done */
    const fast_scale<type::LINEAR> s = fast_scale_draw(k, best);
    for (uint32_t i = threadIdx.x; i < q.count; i += BLOCK_THREADS) {
        const uint32_t order = q.order[i];
        const int32_t id = q.id[i];
        if (id / STRETCH_TOKENS != token / STRETCH_TOKENS || !(order > low || (order == low && id <= tie_last))) continue;
        const uint32_t slot = atomicAdd(&q.within, 1u);
        list.key[slot] = (uint32_t)id;
        list.tickets[slot] = candidate_tickets(q, s, float_of_order(order), id);
    }
    __syncthreads();
    const uint32_t length = q.within;
    if (length <= 1) return token;
    for (uint32_t i = threadIdx.x; i < length; i += BLOCK_THREADS) {
        uint64_t before = 0, held = 0;
        for (uint32_t j = 0; j < length; ++j) {
            held += list.tickets[j];
            before += list.key[j] < list.key[i] ? list.tickets[j] : 0;
        }
        const uint64_t unit = mul_high(k.bits.high, held);
        if (unit >= before && unit - before < list.tickets[i]) q.token = (int32_t)list.key[i];
    }
    __syncthreads();
    return q.token;
}

/* Cuts and draws: all that can stay are among the candidates, which reach the bound. Three selections: top-k counts by value, top-p
 * adds tickets by value, the draw adds them by id. False if top-p's threshold lies below the candidates. The row's mass is in q.all,
 * if top-p asks for it. */
template <class type>
__device__ __forceinline__ bool fast_many(work<type> &k, uint32_t count, float bound, const fast_scale<type::LINEAR> &s, float min_p,
                                          int32_t *token) {
    quick &q = k.q;
    const row_params &p = k.params;
    const rules &r = k.rules;
    const bool counts = r.top_k && (uint32_t)p.top_k <= count;
    uint32_t low = 1, key[OWN_CANDIDATES], found = 0;
    int32_t tie_last = INT32_MAX;
    bool live[OWN_CANDIDATES];
    amount kept = {count, 0}, up_to;
    select_begin(q);
    if (threadIdx.x == 0) q.low = 0;
    candidates c = candidates_load(q, count, s);
    __syncthreads();
    selection w = {0, 0, ~order_of(s.best), ~order_of(bound), true, false, false};
    const auto by_value = [&] {
#pragma unroll
        for (int j = 0; j < OWN_CANDIDATES; ++j) {
            key[j] = ~c.order[j];
            live[j] = c.order[j];
        }
    };
    if (counts) {
        by_value();
        fast_select(q, w, key, c.tickets, live, [&](uint64_t) { return (uint64_t)p.top_k; }, &found, &kept);
        low = ~found;
        if (top_k_exact(k)) {
            uint64_t out = 0;
            tie_last = tie_select(c, low, (uint32_t)p.top_k);
#pragma unroll
            for (int j = 0; j < OWN_CANDIDATES; ++j) out += c.order[j] == low && c.id[j] > tie_last ? c.tickets[j] : 0;
            kept.tickets -= fast_sum(out, q.space[3]);
        }
    }
    const auto raise = [&](uint32_t to) {
        if (to > low) low = to, tie_last = INT32_MAX;
    };
    if (r.top_p) {
        w.nth = 1;
        w.counts = false;
        w.added = counts;
        by_value();
        const auto target_of = [&](uint64_t all) { return share_of(p.top_p, r.row_mass ? q.all : counts ? kept.tickets : all); };
        const bool reached = fast_select(q, w, key, c.tickets, live, target_of, &found, &up_to);
        if (reached && ~found >= low) raise(~found), kept = up_to;
        else if (!r.top_k && !r.min_p_first) return false;
    }
    if (r.min_p_last) raise(order_of(min_p));
    if (!r.min_p_first && low <= order_of(-FLT_MAX)) return false; /* no threshold: the mass is the row's, not the list's */
    if (k.two_scales) c = candidates_load(q, count, fast_scale_draw(k, s.best));
#pragma unroll
    for (int j = 0; j < OWN_CANDIDATES; ++j) {
        key[j] = (uint32_t)c.id[j];
        live[j] = c.order[j] > low || (c.order[j] == low && c.id[j] <= tie_last);
        if constexpr (type::TOLD)
            if (live[j]) atomicMax(&q.low, ~c.order[j]);
    }
    w = {2, 1, 0, (uint32_t)p.vocab - 1, false, false, kept.many <= WARP};
    uint64_t total = 0;
    const auto ticket_of = [&](uint64_t all) { return mul_high(k.bits.low, total = all) + 1; };
    *token = fast_select(q, w, key, c.tickets, live, ticket_of, &found, &up_to) ? (int32_t)found : RULE_NO_TOKEN;
    if (threadIdx.x == 0) k.tell(float_of_order(~q.low), total, 0, tie_last);
    *token = many_within(&k, *token, low, tie_last, s.best);
    return true;
}

/* ---- few enough for a warp ------------------------------------------------------------------------------- */

enum { FEW = 4 * WARP };

/* Gives every candidate its places by value, equals by id, and by id alone: two or four lanes have one and compare it with all. Leaves
 * values and tickets in their order (q.sorted, q.tickets), and in the first of its lanes: its order, tickets and places; else 0. */
struct few_own {
    uint32_t order, rank, place; /* rank: by value; place: by id */
    int32_t id;
    uint64_t tickets;
};
template <int linear> __device__ __forceinline__ few_own few_rank(quick &q, uint32_t count, const fast_scale<linear> &s) {
    enum { AT_ONCE = 4 };
    const uint32_t shift = count <= BLOCK_THREADS / 4 ? 2 : 1, own = threadIdx.x >> shift, lane = threadIdx.x & ((1u << shift) - 1);
    const int32_t id = own < count ? q.id[own] : 0;
    few_own c = {0, 0, 0, id, 0};
    if (own < count) c.order = q.order[own];
    for (uint32_t i = lane * AT_ONCE; i < count; i += AT_ONCE << shift) { /* what is behind them is larger than none, has no smaller id */
        const uint4 o = *(const uint4 *)(q.order + i);
        const int4 d = *(const int4 *)(q.id + i);
        c.rank += (o.x > c.order || (o.x == c.order && d.x < id)) + (o.y > c.order || (o.y == c.order && d.y < id));
        c.rank += (o.z > c.order || (o.z == c.order && d.z < id)) + (o.w > c.order || (o.w == c.order && d.w < id));
        c.place += (d.x < id) + (d.y < id) + (d.z < id) + (d.w < id);
    }
    uint32_t both = c.rank << 16 | c.place;
    both += __shfl_xor_sync(ALL_LANES, both, 1);
    if (shift == 2) both += __shfl_xor_sync(ALL_LANES, both, 2);
    c.rank = both >> 16;
    c.place = both & 0xffffu;
    if (lane || own >= count) {
        c.order = 0;
        return c;
    }
    c.tickets = candidate_tickets(q, s, float_of_order(c.order), id);
    q.sorted[c.rank] = c.order;
    q.tickets[c.rank] = c.tickets;
    q.sorted_id[c.place] = id;
    return c;
}

/* The tickets of candidates by id (q.sorted_id), those that do not stay having none. */
__device__ __forceinline__ uint64_t *few_by_id(quick &q) { return q.tickets + FEW; }

/* What fast_many does, for at most FEW candidates: their places are counted, and then every warp does the rest for
 * itself, four of them a lane. Three barriers instead of a dozen. False as there. */
template <class type>
__device__ __forceinline__ bool fast_few(work<type> &k, uint32_t count, const fast_scale<type::LINEAR> &s, uint64_t mass, float min_p,
                                         int32_t *token) {
    enum { OWN = FEW / WARP };
    quick &q = k.q;
    const row_params &p = k.params;
    const rules &r = k.rules;
    const uint32_t first = threadIdx.x % WARP * OWN;
    if (threadIdx.x < OWN) { /* they are read by four */
        q.order[count + threadIdx.x] = 0;
        q.id[count + threadIdx.x] = INT32_MAX;
    }
    __syncthreads();
    few_own own = few_rank(q, count, s);
    __syncthreads();
    const uint4 sorted = *(const uint4 *)(q.sorted + first);
    const ulonglong2 of_two = *(const ulonglong2 *)(q.tickets + first), of_others = *(const ulonglong2 *)(q.tickets + first + 2);
    uint32_t order[OWN] = {sorted.x, sorted.y, sorted.z, sorted.w};
    uint64_t held[OWN] = {of_two.x, of_two.y, of_others.x, of_others.y};
#pragma unroll
    for (uint32_t i = 0; i < OWN; ++i)
        if (first + i >= count) order[i] = 0, held[i] = 0;
    const bool counts = r.top_k && (uint32_t)p.top_k <= count;
    uint32_t low = counts ? q.sorted[p.top_k - 1] : 1;
    const uint32_t most = counts && top_k_exact(k) ? (uint32_t)p.top_k : count;
    if (r.top_p) {
        uint64_t kept = 0;
#pragma unroll
        for (int i = 0; i < OWN; ++i) kept += order[i] >= low && first + i < most ? held[i] : 0;
        const uint64_t of_lane = held[0] + held[1] + held[2] + held[3];
        uint64_t before = warp_through(of_lane) - of_lane;
        kept = warp_add_wide(kept);
        const uint64_t target = share_of(p.top_p, r.row_mass ? mass : kept);
        if (!r.top_k && !r.min_p_first && kept < target) return false;
        uint32_t ends = 0; /* the first that brings the sum to the target is the last to stay, with its equals */
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (before < target && before + held[i] >= target) ends = order[i];
            before += held[i];
        }
        low = max(low, warp_max(ends));
    }
    if (r.min_p_last) low = max(low, order_of(min_p));
    if (!r.min_p_first && low <= order_of(-FLT_MAX)) return false; /* no threshold: the mass is the row's, not the list's */
    uint64_t amount = 0;
    uint32_t least = 0; /* inverted */
#pragma unroll
    for (int i = 0; i < OWN; ++i)
        if (order[i] >= low && first + i < most) amount += held[i], least = ~order[i];
    amount = warp_add_wide(amount);
    uint64_t *const by_id = few_by_id(q);
    if (own.order && k.two_scales) own.tickets = candidate_tickets(q, fast_scale_draw(k, s.best), float_of_order(own.order), own.id);
    if (own.order) by_id[own.place] = own.order >= low && own.rank < most ? own.tickets : 0;
    if constexpr (type::TOLD)
        if (own.order && own.rank == most - 1) q.tie_last = own.id;
    __syncthreads();
    const ulonglong2 two = *(const ulonglong2 *)(by_id + first), others = *(const ulonglong2 *)(by_id + first + 2);
    const uint64_t stays[OWN] = {first < count ? two.x : 0, first + 1 < count ? two.y : 0, first + 2 < count ? others.x : 0,
                                 first + 3 < count ? others.y : 0};
    const uint64_t in_lane = stays[0] + stays[1] + stays[2] + stays[3];
    if (k.two_scales) amount = warp_add_wide(in_lane);
    if constexpr (type::TOLD) {
        least = warp_max(least);
        if (threadIdx.x == 0)
            k.tell(float_of_order(~least), amount, 0, most < count && ~least == q.sorted[most - 1] ? q.tie_last : INT32_MAX);
    }
    const int4 ids = *(const int4 *)(q.sorted_id + first);
    const int32_t id[OWN] = {ids.x, ids.y, ids.z, ids.w}; /* ascending; of those that stay */
    const uint64_t of_lower = warp_through(in_lane) - in_lane; /* lanes */
    const auto holder = [&](uint64_t ticket) {
        uint64_t before = of_lower;
        int32_t winner = RULE_NO_TOKEN;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (ticket >= before && ticket - before < stays[i]) winner = id[i];
            before += stays[i];
        }
        const uint32_t holds = __ballot_sync(ALL_LANES, winner != RULE_NO_TOKEN);
        return __shfl_sync(ALL_LANES, winner, holds ? __ffs(holds) - 1 : 0);
    };
    const int32_t first_token = *token = holder(mul_high(k.bits.low, amount)), at = first_token / STRETCH_TOKENS;
    uint64_t lower = 0, within = 0; /* in stretches before, and in this one */
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        lower += id[i] < at * STRETCH_TOKENS ? stays[i] : 0;
        within += id[i] / STRETCH_TOKENS == at && id[i] != first_token ? stays[i] : 0;
    }
    if (__any_sync(ALL_LANES, within != 0)) { /* it is not the only one of its stretch */
#pragma unroll
        for (int i = 0; i < OWN; ++i) within += id[i] == first_token ? stays[i] : 0;
        *token = holder(warp_add_wide(lower) + mul_high(k.bits.high, warp_add_wide(within)));
    }
    return true;
}

/* Fetches the records to shared memory, weights only if they are wanted. Returns the row's largest logit; *least: the smallest maximum
 * of a group that has a token, as order_of. */
template <class type> __device__ __forceinline__ float fast_fetch(work<type> &k, bool pieces, bool weights, uint32_t *least) {
    quick &q = k.q;
    float4 piece[OWN_GROUPS];
    uint64_t mass[OWN_GROUPS] = {};
    uint32_t most = 0, low = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < OWN_GROUPS; ++i) {
        const int own = threadIdx.x + i * BLOCK_THREADS, g = type::REQUESTED ? min(own, k.groups - 1) : own; /* as in gather_pieces */
        if (!type::REQUESTED && g >= k.groups) continue;
        if (pieces) piece[i] = __ldcg((const float4 *)k.to.peak + g);
        else piece[i].x = piece[i].y = piece[i].z = piece[i].w = __ldcg(k.to.peak + g);
        if (weights) mass[i] = __ldcg(k.to.mass + g);
    }
#pragma unroll
    for (int i = 0; i < OWN_GROUPS; ++i) {
        const int g = threadIdx.x + i * BLOCK_THREADS;
        if (g >= k.groups) break;
        const float m = pieces_most(piece[i]);
        q.pieces4[g] = piece[i];
        q.peak[g] = m;
        if (weights) q.mass[g] = mass[i];
        most = max(most, order_of(m));
        if (m > MINUS_INF) low = min(low, order_of(m));
    }
    fast_range(&low, &most, q.space[0]);
    *least = low;
    return float_of_order(most);
}

/* The tickets of the row as its records were weighed; 0 if those do not hold. */
template <class type> __device__ __forceinline__ uint64_t fast_mass(work<type> &k, float best) {
    fast_scale<type::LINEAR> s;
    uint64_t mass = 0;
    if (!fast_scale_make(k.to.by, best, &s)) return 0;
#pragma unroll 1
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) mass += fast_tickets(s, k.q.peak[g], k.q.mass[g]);
    return fast_sum(mass, k.q.space[1]);
}

/* Answers what a row is asked for that has been cut: a token's tickets are its own affair then. */
template <class type> __device__ __forceinline__ void fast_answer(work<type> &k, const fast_scale<type::LINEAR> &s) {
    const int32_t asked = k.ask.token;
    if (threadIdx.x || !(k.told.threshold > -FLT_MAX)) return;
    k.ask.done = true;
    if (asked < 0) return;
    const float x = k.ask.logit;
    *k.ask.tickets = cut_keeps(cut_of(&k.told), x, asked) ? candidate_tickets(k.q, s, x, asked) : 0;
}

/* Filters with few survivors. False, with nothing decided, if there are too many. */
template <class type> __device__ __forceinline__ bool fast_filtered(work<type> &k, float *row_best, int32_t *token) {
    quick &q = k.q;
    const row_params &p = k.params;
    const rules &r = k.rules;
    const bool shown = type::REQUESTED && !r.row_mass && k.to.weights; /* weights are for the report */
    if (threadIdx.x == 0) {
        q.count = q.list_length = q.edits = q.within = 0;
        /* Logits that change under the kernel may leave a ticket without a holder. */
        q.token = RULE_NO_TOKEN;
        q.group = 0;
        q.rest = 0;
    }
    uint32_t least;
    float asked = MINUS_INF;
    if constexpr (type::ASKED) /* on its way beside the records */
        asked = token_read_inline<type>(k.row, max(k.ask.token, 0));
    const float best = *row_best = fast_fetch(k, true, r.row_mass || shown, &least);
    if constexpr (type::ASKED)
        if (threadIdx.x == 0) k.ask.logit = asked;
    fast_scale<type::LINEAR> s;
    if (k.two_scales && !fast_scale_make(k.by, best, &s)) return false;
    if (!fast_scale_make(k.filter_by, best, &s)) return false;
    uint64_t mass = 0;
    if (r.row_mass) {
#pragma unroll 1
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) mass += q.mass[g] = fast_tickets(s, q.peak[g], q.mass[g]);
        mass = fast_sum(mass, q.space[1]);
    }
    if (threadIdx.x == 0) {
        q.all = mass;
        q.least = least;
    }
    if constexpr (type::REQUESTED) { /* what the report's point has, if that row has these records */
        const uint64_t of_row = shown ? fast_mass(k, best) : mass;
        if (threadIdx.x == 0) k.shown_mass = k.also || k.apart ? 0 : of_row;
    }
    if (r.top_k && !r.min_p_first && p.top_k > CANDIDATES) return false; /* as many stay */
    const bool min_p = r.min_p_first || r.min_p_last;
    const float low = min_p ? min_p_low(&p, k.min_p_reach, best) : -FLT_MAX;
    float bound = r.min_p_first || !(r.top_k || r.top_p) ? low : -FLT_MAX;
    if (p.vocab > CANDIDATES && (r.top_k || (r.top_p && !r.min_p_first))) {
        if constexpr (type::SUMS) { /* a flat row: would as many as there can be, all as heavy as the best, be about enough? */
            if (r.row_mass && !r.top_k && k.spread > 0 &&
                p.top_p * (float)mass > (CANDIDATES * 0x1p41f) * exp2f(one_fma(best, s.by.c, -(float)s.exponent)))
                return false;
        }
        uint32_t wanted = r.top_k ? (uint32_t)p.top_k : TOP_P_FIRST;
        if constexpr (type::REQUESTED) wanted = max(wanted, k.top_first);
        const bool by_pieces = wanted * 2 > (uint32_t)k.groups;
        const float *const peaks = by_pieces ? (const float *)q.pieces4 : q.peak, low_peak = fmaxf(float_of_order(least), -0x1p125f);
        const float reached = fast_bound<type::LINEAR>(q, peaks, by_pieces ? k.groups * PIECES : k.groups, wanted, low_peak, best);
        if (reached == MINUS_INF) return false;
        if (r.row_mass && !r.top_k) { /* whole groups hold more than what reaches the bound: is it enough? */
            uint64_t within = 0;
#pragma unroll 1
            for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) within += q.peak[g] >= reached ? q.mass[g] : 0;
            if (fast_sum(within, q.space[2]) < share_of(p.top_p, mass)) return false;
        }
        bound = fmaxf(bound, reached);
    }
    if (!fast_gather(k, bound)) return false;
    const uint32_t count = q.count;
    if (!count) return false;
    if (count <= FEW) {
        if (!fast_few(k, count, s, mass, low, token)) return false;
    } else {
        if (!fast_many(k, count, bound, s, low, token)) return false;
    }
    if constexpr (type::REQUESTED)
        if (threadIdx.x == 0) {
            k.listed = true;
            q.bound = bound;
        }
    if constexpr (type::ASKED) {
        if (threadIdx.x == 0) k.ask.listed = count <= FEW ? (uint8_t)count : 0;
        fast_answer(k, fast_scale_draw(k, best));
    }
    return true;
}

/* Whether a row is of the usual kind. */
template <class type> __device__ __forceinline__ bool fast_suits(const work<type> &k) {
    if (k.groups > QUICK_GROUPS) return false;
    if (type::REQUESTED && k.rules.greedy) return false; /* read like others for the sake of its report */
#if CUT_MORE
    if (k.rules.shape || k.rules.typical || k.rules.late || k.params.more.keep_least > 1) return false;
#endif
    return k.to.weights || (k.to.pieces && !k.rules.row_mass && k.params.temperature < FLAT_FROM); /* a LINEAR one is, too */
}

/* Finishes such a row, unless its best or too many survivors stand against it. Gives its largest logit and the token. */
template <class type> __device__ __forceinline__ bool fast_finish(work<type> &k, float *best, int32_t *token) {
    const rules &r = k.rules;
    if (!(r.top_k || r.top_p || r.min_p_first || r.min_p_last)) return fast_whole(k, best, token);
    return fast_filtered(k, best, token);
}

#endif
