/* fast_few.cuh - cutting and drawing from candidates that are few enough for a warp. */
#ifndef RAFFLE_CUDA_FAST_FEW_CUH
#define RAFFLE_CUDA_FAST_FEW_CUH

#include "fast_select.cuh"

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

#endif
