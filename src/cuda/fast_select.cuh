/* fast_select.cuh - cutting and drawing from up to 512 candidates, which are never sorted. */
#ifndef RAFFLE_CUDA_FAST_SELECT_CUH
#define RAFFLE_CUDA_FAST_SELECT_CUH

#include "fast_gather.cuh"

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

#endif
