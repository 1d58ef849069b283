/* fast_whole.cuh - the draw from a row without filters, whose groups were weighed, or estimated; and from one of its stretches, for propose.cuh, too. */
#ifndef RAFFLE_CUDA_FAST_WHOLE_CUH
#define RAFFLE_CUDA_FAST_WHOLE_CUH

#include "fast_scale.cuh"

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
    uint32_t below = (uint32_t)s.exponent - (uint32_t)a.reference.exponent;
    if (type::LINEAR) below = min(below, 64u); /* as far as shifts go: such a group holds nothing (logits: it is beyond `drop`) */
    const uint32_t right = below > TICKET_BITS ? below - TICKET_BITS : 0;
    if (type::LINEAR || peak >= s.best - s.by.drop)
        held = right ? tickets_share(lower, a.weight, right, all >> right) : tickets_of(a.weight, below);
    if ((int)threadIdx.x == k.ask.token % GROUP) *k.ask.tickets = held;
}

/* The draw in the stretch that begins with group `first`, of whose tickets `within` says which: a warp weighs one group. Leaves q.token.
 * `tokens`: those of a group take tickets of their own, which may be fewer than the group's, so that there may be no token; then its maxima are
 * in q.peak, and the token's logit is left, too. */
template <bool tokens, class type>
__device__ __forceinline__ void stretch_draw(work<type> &k, const fast_scale<type::LINEAR> &s, int first, uint64_t within) {
    quick &q = k.q;
    const int warp = (int)warp_own(), g = first + warp;
    const float m = tokens ? q.peak[min(g, k.groups - 1)] : __ldcg(k.to.peak + min(g, k.groups - 1));
    const int64_t id = g * (int64_t)GROUP + threadIdx.x % WARP * LANE_TOKENS;
    float x[LANE_TOKENS];
    uint32_t weight[LANE_TOKENS];
    uint64_t own = 0, all = 0;
    run_read<type>(k.row, id, x);
    const group_ref r = group_ref_near(s, m);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) own += weight[j] = weigh_usual<type::LINEAR>(x[j], r.ref);
    if (tokens) {
        all = group_sum(own);
        own = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) own += weight[j] = r.right < 32 ? weight[j] >> r.right : 0;
    }
    const uint64_t through = warp_through(own);
    if (!tokens) all = __shfl_sync(ALL_LANES, through, WARP - 1);
    if (threadIdx.x % WARP == 0) q.space[2][warp] = g < k.groups ? fast_tickets(s, m, all) : 0;
    __syncthreads();
    uint64_t before = 0, total = 0;
#pragma unroll
    for (int i = 0; i < STRETCH; ++i) {
        if (i < warp) before += q.space[2][i];
        total += q.space[2][i];
    }
    const uint64_t ticket = mul_high(within, total);
    if (ticket >= before && ticket - before < q.space[2][warp]) {
        uint64_t left = tokens ? (ticket - before) >> r.left : weight_of(ticket - before, r.below);
        if (left < through && left >= through - own) {
            left -= through - own;
            int token = 0;
#pragma unroll
            for (int j = 0; j + 1 < LANE_TOKENS; ++j)
                if (token == j && left >= weight[j]) left -= weight[j], token = j + 1;
            q.token = (int32_t)id + token;
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j)
                if (tokens && token == j) q.logit = x[j];
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
    if (type::ABOUT && k.to.about) stretch_draw<false>(k, s, q.group, k.bits.high);
    else group_draw(k, s);
    *token = q.token;
    return true;
}

#endif
