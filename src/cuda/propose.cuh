/* propose.cuh - rows whose only filter is a top-p that keeps half of the row or more (rules.proposes): tokens are drawn from the whole row,
 * one after the other, until one stays. That needs the tickets of its groups, which the first reading leaves, and no threshold.
 *
 * A token stays if the tickets of larger logits are less than top-p's share. The groups whose maxima are larger hold more than those: where
 * even that is less, as it mostly is, nothing is read. Else these groups are read, until what is found in them, or what is left of them, says
 * enough: of a flat row about a third. What is found is estimated first, and weighed where that does not say. Where what stays is told, its
 * threshold is known before, and nothing is read.
 *
 * What groups hold may be estimated, too. Then an answer counts only if it is one whatever the estimates are off; for lack of one the row is
 * weighed, and drawn from anew, with the same bits. */
#ifndef RAFFLE_CUDA_PROPOSE_CUH
#define RAFFLE_CUDA_PROPOSE_CUH

#include "wide_window.cuh"

enum { PORTION = 8 * BLOCK_WARPS }; /* groups that are read before it is asked whether they were enough */

/* Groups that a thread looks at, a power of two: [i n, i n + n), so that the lanes of a stretch are neighbours. */
__device__ __forceinline__ int proposal_groups(int groups) { return groups <= 2 * BLOCK_THREADS ? 2 : groups <= 4 * BLOCK_THREADS ? 4 : STRETCH; }

/* How far off estimates can bring what top-p compares. Groups are a part of the row, and so off by less than own + all of the whole; so are
 * tokens of theirs that include the largest, but that each of these has up to a ticket less of its own, of the row's 2^40 or more; so is
 * top-p's share. All together, what is rounded, and what the sum itself is off make less than three times that. */
static_assert(3 * (ESTIMATE_ERROR.own + ESTIMATE_ERROR.all) + QUICK_GROUPS * GROUP * 0x1p-40 < 0x1p-17, "estimates are good enough");
__device__ __forceinline__ uint64_t estimates_off(uint64_t total) { return total >> 17; }

/* Whether groups are estimated. */
template <class type> __device__ __forceinline__ bool proposals_about(const work<type> &k) { return type::ABOUT && !type::TOLD && k.to.about; }

/* Whether a token stays. */
enum { STAYS_NOT, STAYS, STAYS_UNSURE };

/* What groups have above a value: adds what is found in those that have been read, and takes what they hold off the others. */
struct proposal_look {
    uint64_t above, unread;
};

/* The tickets that a group's tokens above x have, in its lanes together. */
template <class type> __device__ __forceinline__ uint64_t group_above(const fast_scale<type::LINEAR> &s, float m, float x, const float seen[LANE_TOKENS]) {
    float y[LANE_TOKENS];
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) y[j] = seen[j] > x ? seen[j] : MINUS_INF;
    return wide_sum(wide_group_make(s, m), y);
}

/* About what a lane's tokens above x weigh where 2^exponent of the row is 1. Lanes add it up for themselves, in doubles, which lose nothing: adding up
 * each group over the warp would be a wait for each. x has tickets, so the group, which has a larger one, is not far below. */
__device__ __forceinline__ double lane_above(const fast_scale<0> &s, float m, float x, const float seen[LANE_TOKENS]) {
    float y[LANE_TOKENS];
    powers_about(seen, s.by, m, y);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) y[j] = seen[j] > x ? y[j] : 0.0f;
    const int below = min(s.exponent - ref_make_near(s.by, m).exponent, 126);
    const float sum = ((y[0] + y[1]) + (y[2] + y[3])) + ((y[4] + y[5]) + (y[6] + y[7])), low = one_fma(m * s.by.c_low, 0.69314718f, 1.0f);
    return (double)(sum * low * float_of((uint32_t)(127 - below) << 23));
}

/* Reads listed groups [from, end), of which only the last may be cut short. More are on their way where rows are few: elsewhere that would take
 * registers from those who read rows. */
template <bool exact, class type>
__device__ __forceinline__ void larger_read(work<type> &k, const fast_scale<type::LINEAR> &s, float x, int from, int end, proposal_look *look) {
    quick &q = k.q;
    const int warp = (int)warp_own(), lane = threadIdx.x % WARP;
    const int whole = row_plain(k.row) ? end - !group_whole(k.row, (int)q.listed[end - 1]) : from;
    uint64_t more = 0, held = 0;
    double about = 0.0;
    const auto add = [&](int g, const float seen[LANE_TOKENS]) {
        if constexpr (exact) more += group_above<type>(s, q.peak[g], x, seen);
        else about += lane_above(s, q.peak[g], x, seen);
        held += q.mass[g];
    };
    groups_visit<type, type::TEAMED && !exact ? 128 : 64>(k.row, from + warp, whole, [&](int i) { return (int)q.listed[i]; }, add);
#pragma unroll 1
    for (int i = whole + warp; i < end; i += BLOCK_WARPS) {
        float y[LANE_TOKENS];
        lane_read<type>(k.row, (int)q.listed[i], lane, y);
        add((int)q.listed[i], y);
    }
    const uint64_t found = exact ? lane ? 0 : more : (uint64_t)(about * 0x1.69af63ee59bfep+41); /* (1 - 2^-10) sqrt(2) 2^41, as in estimate.h */
    look->above += fast_sum(found, q.space[5]);
    look->unread -= fast_sum(lane ? 0 : held, q.space[6]);
}

/* Reads listed groups, twice as many at a time each time, until it is known whether a token with logit x stays; `off`: how far what they and
 * others hold may be off. Not inlined: with what its caller holds there would not be enough registers for loads on their way. */
template <bool exact, class type>
static __device__ __noinline__ int larger_look(work<type> *shared_k, float best, float x, uint64_t target, uint64_t off, int count, uint64_t unread) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    const fast_scale<type::LINEAR> s = fast_scale_draw(k, best);
    proposal_look look = {0, unread};
    int portion = PORTION;
#pragma unroll 1
    for (int from = 0; from < count; from += portion, portion *= 2) {
        larger_read<exact>(k, s, x, from, min(from + portion, count), &look);
        if (look.above + look.unread + off < target) return STAYS;
        if (look.above >= target + off) return STAYS_NOT;
    }
    return STAYS_UNSURE; /* of exact tickets one of the two is so in the end */
}

/* What groups hold that have larger logits than x. */
template <class type> __device__ __forceinline__ uint64_t larger_hold(work<type> &k, float x) {
    const int n = proposal_groups(k.groups), first = (int)threadIdx.x * n, last = min(first + n, k.groups);
    uint64_t own = 0;
#pragma unroll 1
    for (int g = first; g < last; ++g) own += k.q.peak[g] > x ? k.q.mass[g] : 0;
    return fast_sum(own, k.q.space[5]);
}

/* Whether a token with logit x stays, of which `unread`, what those groups hold, does not tell. They are listed, those first that hold several times what
 * others do: they say most. A group that is cut short comes last. Not inlined, as larger_look. */
template <class type>
static __device__ __noinline__ int larger_search(work<type> *shared_k, float best, float x, uint64_t unread) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    quick &q = k.q;
    const int n = proposal_groups(k.groups), first = (int)threadIdx.x * n, last = min(first + n, k.groups);
    const uint64_t much = q.all / (uint32_t)k.groups * 4, target = share_of(k.params.top_p, q.all);
    const auto heavy = [&](int g) { return q.mass[g] > much && group_whole(k.row, g); };
    uint64_t counts;
    uint32_t larger = 0; /* how many groups have a larger logit: in the upper half those that are heavy */
#pragma unroll 1
    for (int g = first; g < last; ++g)
        if (q.peak[g] > x) larger += heavy(g) ? 1u << 16 : 1u;
    const uint32_t before = (uint32_t)fast_before(larger, q.space[6], &counts), ahead = (uint32_t)counts >> 16;
    uint32_t at_heavy = before >> 16, at = ahead + (before & 0xffffu);
#pragma unroll 1
    for (int g = first; g < last; ++g)
        if (q.peak[g] > x) q.listed[heavy(g) ? at_heavy++ : at++] = (uint32_t)g;
    __syncthreads();
    const int count = (int)(ahead + ((uint32_t)counts & 0xffffu));
    int stays = STAYS_UNSURE;
    if constexpr (!type::LINEAR) stays = larger_look<false>(&k, best, x, target, estimates_off(q.all), count, unread);
    if (stays == STAYS_UNSURE && !proposals_about(k)) stays = larger_look<true>(&k, best, x, target, 0, count, unread);
    return stays;
}

/* Whether a token with logit x stays. */
template <class type> __device__ __forceinline__ int proposal_stays(work<type> &k, float best, float x) {
    const uint64_t unread = larger_hold(k, x), off = proposals_about(k) ? estimates_off(k.q.all) : 0;
    return unread + off < share_of(k.params.top_p, k.q.all) ? STAYS : larger_search(&k, best, x, unread);
}

/* Draws tokens until one stays: q.token. q.mass has what groups hold, q.all the sum. False, with nothing decided, if estimates do not say. */
template <class type> __device__ __forceinline__ bool proposals_draw(work<type> &k, const fast_scale<type::LINEAR> &s) {
    quick &q = k.q;
    const int n = proposal_groups(k.groups), first = (int)threadIdx.x * n, lanes = STRETCH / n, lane = threadIdx.x % WARP;
    uint64_t own = 0, unused;
#pragma unroll 1
    for (int g = first; g < min(first + n, k.groups); ++g) own += q.mass[g];
    if (threadIdx.x == 0) {
        q.group = -1;
        q.token = RULE_NO_TOKEN;
    }
    const uint64_t before = fast_before(own, q.space[4], &unused);
    const uint64_t start = __shfl_sync(ALL_LANES, before, lane & -lanes); /* of the stretch, and its end */
    const uint64_t end = __shfl_sync(ALL_LANES, before + own, lane | (lanes - 1));
    float most = MINUS_INF; /* the largest logit that is known not to stay */
#pragma unroll 1
    for (uint32_t j = 0; j < PROPOSALS; ++j) {
        const philox_pair bits = j ? proposal_bits(&k.params, j) : k.bits;
        const uint64_t ticket = mul_high(bits.low, q.all);
        if (lane % lanes == 0 && ticket >= start && ticket < end && (!proposals_about(k) || whole_settles(bits.low, start, end, q.all)))
            q.group = first;
        __syncthreads();
        if (q.group < 0) return !proposals_about(k); /* logits that change under the kernel may leave a ticket without a holder */
        stretch_draw<true>(k, s, q.group, bits.high);
        const float x = q.logit;
        if (q.token >= 0 && x > most) {
            int stays = STAYS_UNSURE;
            if constexpr (type::TOLD)
                if (asks_of(k) & ASKS_KEPT) stays = cut_keeps(cut_of(&k.told), x, q.token) ? STAYS : STAYS_NOT;
            if (!(asks_of(k) & ASKS_KEPT)) stays = proposal_stays(k, s.best, x);
            if (stays == STAYS) return true;
            if (stays == STAYS_UNSURE) return false;
            most = x;
        }
        if (threadIdx.x == 0) q.group = -1;
        __syncthreads(); /* all know that this is not it */
        if (threadIdx.x == 0) q.token = RULE_NO_TOKEN;
    }
    return true;
}

/* Weighs a row that was estimated. By all threads. */
template <class type> __device__ __forceinline__ void row_weigh(const device_row &row, const records &to, int groups) {
    row_visit<type>(row, 0, groups, [&](int g, float x[LANE_TOKENS]) {
        float most = MINUS_INF;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            x[j] = v_max(x[j], MINUS_INF);
            most = v_max(x[j], most);
        }
        record_make<false, true>(to, g, x, most);
    });
    __syncthreads();
}
template <class type> static __device__ __noinline__ void row_weigh_again(work<type> *k) {
    __builtin_assume(__isShared(k));
    row_weigh<type>(k->row, k->to, k->groups);
    if (threadIdx.x == 0) k->to.about = false;
}

/* Fetches what groups hold once more: q.mass, and the sum to q.all. */
template <class type> __device__ __forceinline__ void proposals_fetch(work<type> &k, const fast_scale<type::LINEAR> &s) {
    quick &q = k.q;
    uint64_t sum = 0;
#pragma unroll 4
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) sum += q.mass[g] = fast_tickets(s, q.peak[g], __ldcg(k.to.mass + g));
    sum = fast_sum(sum, q.space[1]);
    if (threadIdx.x == 0) q.all = sum;
}

/* The token of a row that proposes, and whose weights hold. q.peak has its groups' maxima. `fetched`: q.mass has what they hold, as fast_filtered
 * leaves it. Where what stays is asked for, it is told already. Leaves q.token, and q.mass as it was there. */
template <class type> static __device__ __noinline__ void row_proposed(work<type> *shared_k, float best, bool fetched) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    fast_scale<type::LINEAR> s;
    fast_scale_make(k.by, best, &s);
#pragma unroll 1
    for (int tries = 0; tries < 1 + type::ABOUT; ++tries, fetched = false) { /* by estimates, then by weights */
        if (!fetched) proposals_fetch(k, s);
        if (proposals_draw(k, s)) return;
        if constexpr (type::ABOUT)
            if (k.to.about) row_weigh_again(&k);
    }
}

#endif
