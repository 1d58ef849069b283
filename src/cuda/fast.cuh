/* fast.cuh - finishing a row the short way. Most rows are unfiltered or left with at most 512 candidates. These are
 * finished here, in one piece of code without calls or a stack, because a row's latency is what counts; all else
 * goes through wide.cuh or cut.h, which give the same tokens. Loops are short and not unrolled where they can be: code that runs
 * once waits for its instructions more than for anything else. */
#ifndef RAFFLE_CUDA_FAST_CUH
#define RAFFLE_CUDA_FAST_CUH

#include "fast_few.cuh"
#include "fast_whole.cuh"

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

/* Filters with few survivors. False, with nothing decided, if there are too many; or if the token is to be proposed, before or behind (q.told)
 * finding out what is kept, as that is asked for. */
template <class type> __device__ __forceinline__ bool fast_filtered(work<type> &k, float *row_best, int32_t *token) {
    quick &q = k.q;
    const row_params &p = k.params;
    const rules &r = k.rules;
    const bool shown = type::REQUESTED && !r.row_mass && k.to.weights; /* weights are for the report */
    if (threadIdx.x == 0) {
        q.count = q.list_length = q.edits = q.within = 0;
        if (type::TOLD) q.told = false;
        /* Logits that change under the kernel may leave a ticket without a holder. */
        q.token = RULE_NO_TOKEN;
        q.group = 0;
        q.rest = 0;
    }
    uint32_t least;
    float asked = MINUS_INF;
    if constexpr (type::ASKED) /* on its way beside the records */
        asked = token_read_inline<type>(k.row, max(k.ask.token, 0));
    const float best = *row_best = fast_fetch(k, type::TOLD || k.to.pieces, r.row_mass || shown, &least);
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
    if (row_proposes(k) && !(asks_of(k) & ASKS_KEPT)) return false;
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
    if (type::TOLD && threadIdx.x == 0) q.told = true;
    return !type::TOLD || !row_proposes(k);
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
