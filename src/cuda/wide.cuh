/* wide.cuh - finishing a row of which filters leave many tokens: top-p with a wide nucleus, a large top-k, min-p on a flat row.
 *
 * min-p knows its threshold: one more reading adds up what every group keeps, then the draw finds the group. For top-p the sums of
 * sums.cuh tell about where the threshold lies, if the row's blocks have left them. If not, and for top-k,
 *
 *   1. some groups, or of a team all, show about where the threshold lies: a window of values that holds some hundred to three thousand
 *      tokens;
 *   2. a reading adds up what every group has above the window, and lists the tokens inside; they show the threshold.
 *
 * A window that missed is moved, or made narrower, up to twice, and the row read again. Where that does not help, most often because
 * many tokens are equal, a wider window is cut into 256 bins: a reading adds up the tickets of each, so the threshold's bin is known,
 * and one more lists it.
 *
 * Sums are of whole tickets, so nothing is approximate but the guess, which only decides whether the row is done here:
 * what is not, goes through cut.h. */
#ifndef RAFFLE_CUDA_WIDE_CUH
#define RAFFLE_CUDA_WIDE_CUH

#include "propose.cuh"
#include "wide_pick.cuh"

/* The draw: q.mass holds what groups [from, to) keep, tokens >= threshold, and one of their stretches, which are whole, has the ticket.
 * Leaves q.token. */
template <class type>
__device__ __forceinline__ void wide_draw(work<type> &k, const fast_scale<type::LINEAR> &s, float threshold, int from, int to,
                                          uint64_t ticket) {
    quick &q = k.q;
    const int first = from + (int)threadIdx.x * STRETCH;
    uint64_t own = 0, unused;
    for (int g = first; g < min(first + STRETCH, to); ++g) own += q.mass[g];
    uint64_t before = fast_before(own, q.space[4], &unused);
    if (ticket >= before && ticket - before < own) {
        uint64_t left = mul_high(k.bits.high, own);
        int g = first;
        for (; left >= q.mass[g]; ++g) left -= q.mass[g];
        q.group = g;
        q.rest = left;
    }
    __syncthreads();
    const int64_t id = q.group * (int64_t)GROUP + threadIdx.x;
    const wide_group<type::LINEAR> w = wide_group_make(s, q.peak[q.group]);
    const float x = threadIdx.x < GROUP ? token_read_inline<type>(k.row, id) : MINUS_INF;
    const uint64_t held = x >= threshold ? (uint64_t)wide_weight(w, x) << w.left : 0;
    before = fast_before(held, q.space[5], &unused);
    if (q.rest >= before && q.rest - before < held) q.token = (int32_t)id;
    __syncthreads();
}

/* Leaves what each group has at or above `low` in q.mass; returns the sum. */
template <class type> __device__ __forceinline__ uint64_t wide_kept(work<type> &k, const fast_scale<type::LINEAR> &s, float low) {
    quick &q = k.q;
    uint64_t own = 0;
    team_order_give(k, order_make(k, s, ORDER_WEIGH, low, 0.0f));
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) own += q.mass[g];
    return fast_sum(own, q.space[6]);
}

/* ---- top-p and top-k ---------------------------------------------------------------------------------- */

/* The threshold by bins of the window, for rows of which a list would be too long: two readings. */
template <class type>
__device__ __forceinline__ bool wide_by_bins(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> window,
                                             uint64_t target, float *threshold, uint64_t *total) {
    quick &q = k.q;
    int bin;
    uint64_t above, own = 0;
    if (k.groups > BINNED) return false;
    if (!wide_bin(k, s, window, target, &bin, &above)) return false;
    wide_split(k, s, window, bin);
    const uint32_t count = q.count, least = q.low, most = q.kept;
    if (least != most && count > CANDIDATES) return false;
    *threshold = float_of_order(least);
    if (least == most) { /* all of them stay */
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) own += q.mass[g] += q.inside[g];
        *total = fast_sum(own, q.space[3]);
        return true;
    }
    const candidates c = candidates_load(q, count, s);
    *threshold = wide_threshold(q, c, least, most, above, target);
#pragma unroll
    for (int j = 0; j < OWN_CANDIDATES; ++j) {
        if (c.order[j] < order_of(*threshold)) continue;
        own += c.tickets[j];
        mass_add(q.mass + c.id[j] / GROUP, c.tickets[j]);
    }
    *total = above + fast_sum(own, q.space[3]);
    return true;
}

/* ---- top-p, by sums that the row's blocks have left (sums.cuh) ---------------------------------------- */

/* The tickets of the i-th section's tokens down to `down` values below the row's largest. q.list holds how far the section is below. */
template <class type> __device__ __forceinline__ uint64_t section_sum(const work<type> &k, int i, int down) {
    const int below = (int)k.q.list[i], own = down - below * SUM_STEPS;
    const uint64_t sum = __ldcg(k.sums + (int64_t)i * SUM_BINS + max(own, 0)) >> min(below, 63);
    return own < 0 ? 0 : sum;
}

/* Whether all groups have sums, and their tickets are whole; how far each section is below goes to q.list. */
template <class type> __device__ __forceinline__ bool sums_hold(work<type> &k, const fast_scale<0> &s, int sections) {
    const bool all = __ldcg(k.flat) == (uint64_t)k.groups; /* if not, what is read here means nothing, and is not used */
    for (int i = threadIdx.x; i < sections; i += BLOCK_THREADS) k.q.list[i] = (uint32_t)s.exponent - (uint32_t)__ldcg(k.heads + i);
    __syncthreads();
    return all && !group_far(s.by, s.best, float_of_order(k.q.least));
}

/* The first of `count` values, `step` apart, down to which the sums of all sections reach the target: -1 if none does. Sums go to
 * q.tickets. */
template <class type>
__device__ __forceinline__ int sums_reach(work<type> &k, int sections, int first, int step, int count, uint64_t target) {
    enum { AT_ONCE = 8 };
    quick &q = k.q;
    const int lanes = BLOCK_THREADS / count, own = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % WARP;
    uint64_t sum = 0;
    for (int i = (int)threadIdx.x % lanes; i < sections; i += AT_ONCE * lanes) {
        uint64_t some[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) some[n] = section_sum(k, min(i + n * lanes, sections - 1), first + own * step);
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) sum += i + n * lanes < sections ? some[n] : 0;
    }
    for (int by = lanes / 2; by; by >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, by);
    if (threadIdx.x % lanes == 0) q.tickets[own] = sum;
    __syncthreads();
    return __ffs(__ballot_sync(ALL_LANES, lane < count && q.tickets[lane] >= target)) - 1;
}

/* What is drawn from. */
struct wide_choice {
    float threshold; /* tokens from it on */
    int from, to;    /* of these groups, of which q.mass tells what each keeps */
    uint64_t ticket;
};

/* Given the threshold, what the listed tokens of each group keep in q.mass, and what this thread's section has above them: finds the
 * section that holds the ticket. Only its groups are weighed, and the rest of their stretches. */
template <class type>
__device__ __forceinline__ void sums_choose(work<type> &k, const fast_scale<0> &s, uint64_t own, uint64_t total, wide_choice *c) {
    quick &q = k.q;
    const int first = (int)threadIdx.x * k.section;
#pragma unroll 4
    for (int g = first; g < min(first + k.section, k.groups); ++g) own += q.mass[g];
    if (threadIdx.x == 0) { /* logits that change under the kernel may leave a ticket without a holder */
        q.group = 0;
        q.rest = 0;
    }
    __syncthreads();
    uint64_t unused;
    const uint64_t ticket = mul_high(k.bits.low, total), before = fast_before(own, q.space[4], &unused);
    if (ticket >= before && ticket - before < own) {
        q.group = first;
        q.rest = ticket - before;
    }
    __syncthreads();
    const int from = q.group;
    c->from = from / STRETCH * STRETCH;
    c->to = min((from + k.section + STRETCH - 1) / STRETCH * STRETCH, k.groups);
    c->ticket = q.rest;
    wide_weigh(k, s, c->threshold, c->from, c->to);
    __syncthreads();
    for (int g = c->from; g < from; ++g) c->ticket += q.mass[g];
}

/* Finds the threshold, and what to draw from. False if there are no sums or they do not reach it. */
template <class type> __device__ __forceinline__ bool wide_by_sums(work<type> &k, const fast_scale<0> &s, uint64_t target, wide_choice *c) {
    enum { FIRST = SUM_BINS / SUM_STEPS };
    quick &q = k.q;
    if (!k.may_sum || k.nan || k.spread <= 0) return false;
    const int sections = (k.groups + k.section - 1) / k.section;
    if (!sums_hold(k, s, sections)) return false;
    const int octave = sums_reach(k, sections, SUM_STEPS - 1, SUM_STEPS, FIRST, target);
    if (octave < 0) return false;
    uint64_t above = octave ? q.tickets[octave - 1] : 0, total;
    __syncthreads();
    const int step = sums_reach(k, sections, octave * SUM_STEPS, 1, SUM_STEPS, target);
    if (step > 0) above = q.tickets[step - 1];
    const int down = octave * SUM_STEPS + step;
    const uint64_t own = (int)threadIdx.x < sections ? section_sum(k, (int)threadIdx.x, down - 1) : 0;
    const uint32_t value = value_most(s.exponent) - (uint32_t)down;
    const float one = __fdividef(1.0f, s.by.c * SUM_STEPS), middle = (float)(int32_t)(value - bits_of(MAGIC)) * one;
    row_order order = order_make(k, s, ORDER_LIST_VALUE, 0.0f, 0.0f);
    order.value = value;
    const uint32_t listed = wide_list(k, order);
    if (listed > LISTED) return false;
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = 0;
    /* The value's logits, and a bit more: half a value, and 0.05 for what rounding does where values are largest, 2^17. */
    const wide_window<0> window = wide_window_make<0>(middle - 0.6f * one, middle + 0.6f * one);
    if (!wide_pick<false>(k, s, window, listed, above, target, &c->threshold, &total)) return false;
    __syncthreads();
    sums_choose(k, s, own, total, c);
    return true;
}

/* The threshold by windows around a guess. Leaves what every group keeps in q.mass, and gives the sum. Not inlined: top-k and top-p may
 * both ask. */
template <bool counts, class type>
static __device__ __noinline__ bool wide_by_guess(work<type> *shared_k, const fast_scale<type::LINEAR> s, const wide_quest quest,
                                                  float *threshold, uint64_t *total) {
    __builtin_assume(__isShared(shared_k));
    enum { TRIES = 3, SPARSE = 64 };
    work<type> &k = *shared_k;
    wide_guessed guess;
    wide_window<type::LINEAR> window;
    const float most = axis_of<type::LINEAR>(s.best);
    if (wide_guess<counts>(&k, s, quest, &guess)) {
        window = wide_around<type>(guess.middle, guess.half, most);
    } else { /* the threshold is among the heaviest few: all of them are listed, from a value on that about half a list reaches */
        const wide_quest few = {LISTED / 2, 0, -FLT_MAX};
        __syncthreads(); /* all know that there was no guess */
        if (counts || !wide_guess<true>(&k, s, few, &guess)) return false;
        window = wide_window_make<type::LINEAR>(guess.middle, most);
    }
    const bool alike = guess.half < ALIKE * guess.width; /* a list of equals would be too long */
    const bool few = counts && quest.target <= (uint64_t)k.row.vocab / SPARSE; /* dev/cuda: where more stay, weighing all is faster */
    *threshold = guess.middle;
#pragma unroll 1
    for (int i = 0; i < TRIES && !alike && *threshold == *threshold; ++i) {
        const wide_seen r = wide_look<counts>(k, s, window, few);
        if (r.inside <= LISTED && wide_pick<counts>(k, s, window, r.inside, r.above, quest.target, threshold, total)) return true;
        if (r.inside > LISTED) guess.half *= __fdividef(0.75f * LISTED, (float)r.inside); /* the same with a narrower window */
        window = wide_around<type>(*threshold, guess.half, most);
        __syncthreads();
    }
    if (counts) return false;
    window = wide_window_make<type::LINEAR>(guess.middle - 8.0f * guess.width, fminf(guess.middle + 8.0f * guess.width, most));
    return wide_by_bins(k, s, window, quest.target, threshold, total);
}

/* Top-k, min-p and top-p one behind the other, as row_cut (cut.h) does. Leaves what every group keeps in q.mass, and gives the sum and the
 * threshold. */
template <class type> __device__ __forceinline__ bool wide_cut(work<type> &k, const fast_scale<type::LINEAR> &s, float *threshold,
                                                                uint64_t *total) {
    const rules &r = k.rules;
    const row_params &p = k.params;
    const float min_p = r.min_p_first || r.min_p_last ? min_p_low(&p, k.min_p_reach, s.best) : -FLT_MAX;
    float low = r.min_p_first ? min_p : -FLT_MAX;
    bool known = false; /* q.mass and *total are those of tokens from `low` on */
    if (r.top_k) {
        const wide_quest quest = {(uint64_t)p.top_k, 0, -FLT_MAX};
        if (!wide_by_guess<true>(&k, s, quest, threshold, total)) return false;
        known = *threshold >= low;
        if (known) low = *threshold;
        __syncthreads();
    }
    if (r.min_p_first && !known) {
        *total = wide_kept(k, s, low);
        known = true;
    }
    if (r.top_p) {
        const uint64_t all = known ? *total : k.q.all;
        const wide_quest quest = {share_of(p.top_p, r.row_mass ? k.q.all : all), all, low};
        __syncthreads();
        if (all >= quest.target) { /* else all that is left stays */
            if (!wide_by_guess<false>(&k, s, quest, threshold, total)) return false;
            low = *threshold;
            known = true;
        }
        __syncthreads();
    }
    if (r.min_p_last && (min_p > low || !known)) {
        low = fmaxf(low, min_p);
        *total = wide_kept(k, s, low);
    }
    *threshold = low;
    return low > -FLT_MAX; /* else the mass is the row's, which is not the sum of its tokens' tickets */
}

/* A row that fast_filtered has given up: its maxima are in shared memory, and its mass if top-p is a share of it. Leaves q.token; false
 * if this cannot finish it either. */
template <class type> static __device__ __noinline__ bool wide_finish(work<type> *shared_k, float best) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    const rules &r = k.rules;
    fast_scale<type::LINEAR> s, filter;
    if (!fast_scale_make(k.by, best, &s) || !fast_scale_make(k.filter_by, best, &filter)) return false;
    if (row_proposes(k) && (!(asks_of(k) & ASKS_KEPT) || k.q.told)) {
        row_proposed(&k, best, true);
        return true;
    }
    if (type::ABOUT && k.to.about) { /* not filtered, but not settled, either */
        row_weigh_again(&k);
        return false;
    }
    wide_choice c = {0.0f, 0, k.groups, 0};
    bool chosen = false;
    if constexpr (type::SUMS)
        if (r.top_p && !r.top_k && !r.min_p_first && !r.min_p_last) chosen = wide_by_sums(k, s, share_of(k.params.top_p, k.q.all), &c);
    if (!chosen) {
        uint64_t total;
        __syncthreads();
        if (!wide_cut(k, filter, &c.threshold, &total)) return false;
        if (k.two_scales) total = wide_kept(k, s, c.threshold);
        if (threadIdx.x == 0) k.tell(c.threshold, total, 0);
        c.ticket = mul_high(k.bits.low, total);
    }
    if constexpr (type::INDEXED)
        if (threadIdx.x == 0) k.state = MASS_QUICK;
    __syncthreads();
    if (type::TOLD && row_proposes(k)) row_proposed(&k, best, false);
    else wide_draw(k, s, c.threshold, c.from, c.to, c.ticket);
    return true;
}

#endif
