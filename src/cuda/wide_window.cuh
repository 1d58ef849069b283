/* wide_window.cuh - a window of values that probably holds the threshold of a row (wide.cuh): where it lies by a guess, and what a reading of
 * all groups says of it. */
#ifndef RAFFLE_CUDA_WIDE_WINDOW_CUH
#define RAFFLE_CUDA_WIDE_WINDOW_CUH

#include "sums.cuh"
#include "team.cuh"

/* group_ref_near (fast_scale.cuh) for loops that shift by `right` without a question: no token has a ticket if the group is `empty`. */
template <int linear> struct wide_group : group_ref {
    bool empty;
};
template <int linear> __device__ __forceinline__ wide_group<linear> wide_group_make(const fast_scale<linear> &s, float m) {
    wide_group<linear> w;
    (group_ref &)w = group_ref_near(s, m, 31);
    w.empty = !(linear ? m > 0.0f : m >= s.best - s.by.drop) || w.below >= TICKET_BITS + 32;
    return w;
}
template <int linear> __device__ __forceinline__ uint32_t wide_weight(const wide_group<linear> &w, float x) {
    return weigh_usual<linear>(x, w.ref) >> w.right;
}
/* Tickets of a group's tokens, y being the lane's, or -inf where a token is not wanted: what stands under a condition is done one behind
 * the other. */
template <int linear> __device__ __forceinline__ uint64_t wide_sum(const wide_group<linear> &w, const float y[LANE_TOKENS]) {
    uint32_t weight[LANE_TOKENS];
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) weight[j] = weigh_usual<linear>(y[j], w.ref);
    if (w.right) {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) weight[j] >>= w.right;
    }
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) sum += weight[j];
    sum = group_sum(sum) << w.left;
    return w.empty ? 0 : sum;
}

/* An order of a reading of all groups, whose weights are those of s. */
template <class type>
__device__ __forceinline__ row_order order_make(const work<type> &k, const fast_scale<type::LINEAR> &s, int what, float low, float high) {
    return {what, 0, 0, k.groups, s.by.c == k.by.c && s.by.c_low == k.by.c_low, s.best, low, high, 0.0f, 0.0f, 0};
}

/* ---- where the threshold probably lies ---------------------------------------------------------------------- */

/* A range (low, high] of the axis of values (axis_of), cut into bins. Which tokens are above, inside and below is exact: none that is
 * larger lies lower. */
template <int linear> struct wide_window {
    float low, high, scale;
    __device__ __forceinline__ bool over(float x) const { return axis_of<linear>(x) > high; }
    __device__ __forceinline__ bool from_low(float x) const { return axis_of<linear>(x) > low; }
    __device__ __forceinline__ bool inside(float x) const { return from_low(x) && !over(x); }
    /* Of any token: those that change under the kernel may be outside. */
    __device__ __forceinline__ int bin(float x) const { return max(0, min(BINS - 1, (int)((axis_of<linear>(x) - low) * scale))); }
};
template <int linear> __device__ __forceinline__ wide_window<linear> wide_window_make(float low, float high) {
    wide_window<linear> w = {low, high, __fdividef(BINS, high - low)};
    if (!(w.scale < FLT_MAX)) w.scale = 0.0f;
    return w;
}

/* What is looked for: the smallest logit that stays if those that do have to reach a target. It counts tokens
 * (`counts` below), or tickets. */
struct wide_quest {
    uint64_t target;
    uint64_t all; /* tickets that the tokens from `floor` on have, */
    float floor;  /* among which the threshold is */
};

/* Where a threshold probably lies, on the axis of values. */
struct wide_guessed {
    float middle, half; /* a window with many tokens, but not too many */
    float width;        /* of the bins that told */
};

#define ALIKE 0.1f /* windows narrower than this part of a bin: its tokens are few different values */

/* A window around a place on the axis, up to `most` there. */
template <class type> __device__ __forceinline__ wide_window<type::LINEAR> wide_around(float middle, float half, float most) {
    if (type::BYTES == 2) half = fmaxf(half, type::LINEAR ? 0x1p16f : fabsf(middle) * 0x1p-7f); /* from one bf16 to the next */
    return wide_window_make<type::LINEAR>(middle - half, fminf(middle + half, most));
}

/* Tickets of a token of group g. */
template <int linear> __device__ __forceinline__ uint64_t wide_tickets(const quick &q, const fast_scale<linear> &s, int g, float x) {
    const wide_group<linear> w = wide_group_make(s, q.peak[g]);
    return w.empty ? 0 : (uint64_t)wide_weight(w, x) << w.left;
}

/* The weight of a token where 2^exponent of the row is 1, about. */
template <int linear> __device__ __forceinline__ float wide_power(const fast_scale<linear> &s, float x) {
    if (!linear) return exp2f(one_fma(x, s.by.c, -(float)s.exponent));
    const ref f = ref_make_linear(s.best);
    return v_weight_any(x, &f) * 0x1p-31f;
}

/* ORDER_SPREAD: spreads the tokens of order.to groups, evenly over the row, over bins of the axis above `low`. Those from the floor on
 * count: each for one unit, or for its weight, where 2^exponent is `unit` units. Units below the bins go to q.tally. Weights are
 * approximate here, and none counts for so much that a sum could overflow: what is so heavy lies above the threshold. */
enum { GUESS_GROUPS = 128 };
template <bool counts, class type>
__device__ __forceinline__ void wide_spread(work<type> &k, const fast_scale<type::LINEAR> &s, const row_order &order) {
    quick &q = k.q;
    const float low = order.low, floor = order.floor, unit = order.unit, scale = fminf(__fdividef(1.0f, order.high), FLT_MAX);
    const int groups = order.to;
    const float most = __fdividef(0x1p32f / GROUP, (float)groups) - 1.0f; /* all units of all tokens */
    const int2 own = team_share(k, 0, groups);
    const bool leads = team_leads(k);
    uint32_t below = 0;
    if (!leads) {
        for (int i = threadIdx.x; i < GUESS_BINS; i += BLOCK_THREADS) q.guess[i] = 0;
        __syncthreads();
    }
    const auto spread = [&](int, const float x[LANE_TOKENS]) {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const float at = axis_of<type::LINEAR>(x[j]);
            const bool meant = x[j] >= floor, here = at > low; /* NaN is not */
            const float power = wide_power(s, meant ? x[j] : MINUS_INF);
            const uint32_t units = counts ? meant : (uint32_t)fminf(power * unit + 0.5f, most);
            below += here ? 0 : units;
            atomicAdd(q.guess + (int)fminf((fmaxf(at, low) - low) * scale, GUESS_BINS - 1), here ? units : 0);
        }
    };
    const int first = own.x + (int)threadIdx.x / WARP, whole = max(1, (int)(k.row.vocab / GROUP)); /* a last one that is cut short is left out */
    const auto picked = [&](int i) { return (int)((uint32_t)(i * whole) / (uint32_t)groups); };
    if (row_plain(k.row) && group_whole(k.row, 0)) {
        groups_visit<type>(k.row, first, own.y, picked, spread);
    } else {
        for (int i = first; i < own.y; i += BLOCK_WARPS) {
            float x[LANE_TOKENS];
            lane_read<type>(k.row, picked(i), threadIdx.x % WARP, x);
            spread(picked(i), x);
        }
    }
    below = warp_add(below);
    if (threadIdx.x % WARP == 0 && below) atomicAdd(team_lead(k, &q.tally), below);
    if (leads) return;
    __syncthreads();
    for (int i = threadIdx.x; i < GUESS_BINS; i += BLOCK_THREADS)
        if (q.guess[i]) atomicAdd(team_lead(k, q.guess + i), q.guess[i]);
}

/* Where the threshold probably lies, by one of eight of the row's groups, or by all where a team reads them. What lies below it is looked
 * at: of that no token weighs more than one at the threshold, so how many of them are missed or met by chance is known to be small,
 * whatever is above. Tokens are spread over bins of values, and the bin that matters once more if it has very many. */
template <bool counts, class type>
static __device__ __noinline__ bool wide_guess(work<type> *shared_k, const fast_scale<type::LINEAR> s, const wide_quest quest,
                                               wide_guessed *guess) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    enum { OWN = GUESS_BINS / BLOCK_THREADS, ROUNDS = 3, WANTED = 1 << 21, AROUND = 3, LONELY = 64 };
    quick &q = k.q;
    const int some = max(16, min((int)GUESS_GROUPS, k.groups / 8)), groups = type::TEAMED ? max(1, (int)(k.row.vocab / GROUP)) : some;
    const float part = (float)groups / (float)k.groups;
    /* What is 30 powers of two below the best weighs nothing in a guess; and tokens are counted as far down as groups tell. */
    const float drop = type::LINEAR ? 60.0f * 0x1p23f : s.by.drop, most = axis_of<type::LINEAR>(s.best);
    const float deep = counts ? fmaxf(3.0f * (most - axis_of<type::LINEAR>(float_of_order(q.least))), drop * 0.25f) : drop * 0.5f;
    float low = most - deep, high = most;
    /* The tickets below the threshold, which are WANTED units in the groups that are looked at; a weight of 2^exponent is
     * 2^41.5 tickets, and 2^41 of a row of weights. */
    const float whole = type::LINEAR ? 0x1p41f : 0x1.6ap41f;
    const float under = counts ? 1.0f : fmaxf((float)(quest.all - quest.target), 1.0f);
    const float unit = fminf(__fdividef(WANTED * whole, under * part), 0x1p60f);
    for (int round = 0;; ++round) {
        const float width = (high - low) * (1.0f / GUESS_BINS);
        uint32_t own[OWN], of_thread = 0, wanted = WANTED;
        uint64_t inside;
        for (int i = threadIdx.x; i < GUESS_BINS; i += BLOCK_THREADS) q.guess[i] = 0;
        if (threadIdx.x == 0) {
            q.group = -1;
            q.tally = 0;
        }
        row_order order = order_make(k, s, counts ? ORDER_SPREAD_COUNTS : ORDER_SPREAD, low, width);
        order.to = groups;
        order.floor = quest.floor;
        order.unit = unit;
        team_order_give(k, order);
        uint32_t before = q.tally;
#pragma unroll
        for (int i = 0; i < OWN; ++i) of_thread += own[i] = q.guess[(int)threadIdx.x * OWN + i];
        const uint32_t below = (uint32_t)fast_before(of_thread, q.space[5], &inside);
        if (counts) wanted = (uint32_t)fmaxf((float)(before + (uint32_t)inside) - (float)quest.target * part, 1.0f);
        before += below;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (before < wanted && before + own[i] >= wanted) {
                q.group = (int)threadIdx.x * OWN + i;
                q.rest = wanted - before;
            }
            before += own[i];
        }
        __syncthreads();
        const int bin = q.group;
        if (bin < 0) return false;
        guess->width = width;
        guess->middle = low + width * ((float)bin + __fdividef((float)q.rest, (float)q.guess[bin]));
        /* How many tokens there are around it, by the tickets of some bins: a bin may have one value of 2-byte logits, or two. */
        float of_bins = 0.0f;
#pragma unroll
        for (int i = -AROUND; i <= AROUND; ++i) of_bins += (float)q.guess[max(0, min(bin + i, GUESS_BINS - 1))];
        const float each = wide_power(s, axis_value<type::LINEAR>(guess->middle)) * whole;
        const float tokens = counts ? __fdividef(of_bins, part) : of_bins * (1.0f / WANTED) * __fdividef(under, each);
        guess->half = fminf(__fdividef(0.4f * LISTED * (2 * AROUND + 1) * width, tokens), 16.0f * width);
        __syncthreads(); /* the bins are used again */
        if (!counts && tokens < LONELY) return false; /* each of them counts for much: a guess by some of them means little */
        if (guess->half >= ALIKE * width || round == ROUNDS - 1) {
            if (type::TEAMED) guess->half = fminf(guess->half, width); /* by all tokens: it does not miss by chance */
            return true;
        }
        high = fminf(high, low + width * (float)(bin + 2));
        low = low + width * (float)(bin - 1);
    }
}

/* ---- tokens inside, in a list ------------------------------------------------------------------------------- */

/* Lists the marks of groups [from, from + MARKED) from the `count`-th place on, as far as there is room. A thread has four times
 * those of half a group, and takes one mark a turn. Returns how many are listed then. */
template <class type> __device__ __forceinline__ uint32_t wide_unmark(work<type> &k, int from, uint32_t count) {
    enum { OWN = MARKED * WARP / BLOCK_THREADS / 16 };
    quick &q = k.q;
    const int halves = 2 * min((int)MARKED, k.groups - from);
    uint32_t own = 0, words = 0; /* marks, and a bit for each word that has any */
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int half = (int)threadIdx.x + i * BLOCK_THREADS;
        uint4 some = ((const uint4 *)q.marked)[min(half, halves - 1)];
        if (half >= halves) some = make_uint4(0, 0, 0, 0);
        own += (uint32_t)(__popc(some.x) + __popc(some.y) + __popc(some.z) + __popc(some.w));
        words |= (uint32_t)((some.x != 0) | (some.y != 0) << 1 | (some.z != 0) << 2 | (some.w != 0) << 3) << 4 * i;
    }
    uint64_t total;
    uint32_t slot = count + (uint32_t)fast_before(own, q.space[2], &total), left = 0, first = 0;
#pragma unroll 1
    for (const uint32_t end = slot + own; slot < end; ++slot, left &= left - 1) {
        if (!left) {
            const uint32_t word = (uint32_t)__ffs(words) - 1, at = (threadIdx.x + word / 4 * BLOCK_THREADS) * 4 + word % 4;
            words &= words - 1;
            left = ((const uint32_t *)q.marked)[at];
            first = (uint32_t)from * GROUP + at * 32;
        }
        if (slot < LISTED) q.listed[slot] = first + (uint32_t)__ffs(left) - 1;
    }
    return count + (uint32_t)total;
}

/* Has the tokens listed that an order names. They are marked while the row is read, and listed later: nothing waits in that loop. Returns
 * how many there are; no more than LISTED are in q.listed, as (256 x group + 8 x lane + which of the lane's). */
template <class type> __device__ __forceinline__ uint32_t wide_list(work<type> &k, row_order order) {
    uint32_t count = 0;
    if (threadIdx.x == 0) k.q.tally = 0;
#pragma unroll 1
    for (int from = 0; from < k.groups; from += MARKED) {
        order.from = from;
        order.to = min(from + MARKED, k.groups);
        team_order_give(k, order);
        count = wide_unmark(k, from, count);
    }
    __syncthreads();
    return count;
}

/* Groups [first, end), a block's share of those that an order names `from` on. */
struct wide_part {
    int from, first, end;
};

/* Marks the tokens that meant(g, x) names: bits, one for each of the lane's. */
template <int ahead, class type, class function>
__device__ __forceinline__ void wide_mark(work<type> &k, const wide_part &own, function meant) {
    row_visit<type, ahead>(k.row, own.first, own.end, [&](int g, const float x[LANE_TOKENS]) {
        k.q.marked[g - own.from][threadIdx.x % WARP] = (uint8_t)meant(g, x);
    });
}

/* Loads tokens that are named as in q.listed. All at once: what stands under a condition is waited for one by one. */
template <int count, class type>
__device__ __forceinline__ void places_read(const work<type> &k, bool plain, const uint32_t place[count], float x[count]) {
    int64_t id[count];
#pragma unroll
    for (int n = 0; n < count; ++n)
        id[n] = lane_id<type>(k.row, (int)(place[n] / GROUP), (int)(place[n] / LANE_TOKENS % WARP), (int)(place[n] % LANE_TOKENS));
    if (plain) {
#pragma unroll
        for (int n = 0; n < count; ++n) x[n] = type::one(k.row.logits + id[n] * type::BYTES);
    } else {
#pragma unroll
        for (int n = 0; n < count; ++n) x[n] = token_read_inline<type>(k.row, id[n]);
    }
}

/* The marks of half a group, one by one. */
struct half_marks {
    uint64_t low, high;
    __device__ __forceinline__ int count() const { return __popcll(low) + __popcll(high); }
    __device__ __forceinline__ uint32_t take() { /* there is one */
        const uint64_t some = low ? low : high;
        const uint32_t at = (uint32_t)(__ffsll((long long)some) - 1) % 64 + (low ? 0 : 64);
        high &= low ? high : high - 1;
        low &= low - 1;
        return at;
    }
    __device__ __forceinline__ void put(uint32_t at, bool on) {
        const uint64_t bit = (uint64_t)on << at % 64;
        low |= at < 64 ? bit : 0;
        high |= at < 64 ? 0 : bit;
    }
};

/* Of the marked tokens of a part, adds up those above the window, each group's tickets into q.mass, and leaves the
 * others marked. Returns how many this thread has added. A thread has the marks of half a group: where few tokens are marked, as by a
 * top-k, weighing these one by one takes a third of the time of weighing all. */
template <class type>
__device__ __forceinline__ uint32_t wide_sift(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> &window,
                                              const wide_part &part) {
    enum { AT_ONCE = 4 };
    quick &q = k.q;
    const bool plain = row_plain(k.row);
    const int from = part.from, halves = 2 * (part.end - from);
    uint32_t count = 0;
#pragma unroll 1
    for (int at_half = 2 * (part.first - from); at_half < halves; at_half += BLOCK_THREADS) {
        const bool own = at_half + (int)threadIdx.x < halves;
        const int half = own ? at_half + (int)threadIdx.x : at_half, g = from + half / 2;
        ulonglong2 *const at = (ulonglong2 *)q.marked + half;
        const wide_group<type::LINEAR> w = wide_group_make(s, q.peak[g]);
        half_marks marks = {own ? at->x : 0, own ? at->y : 0}, inside = {0, 0};
        uint64_t sum = 0;
#pragma unroll 1
        for (int left = marks.count(); left > 0; left -= AT_ONCE) {
            uint32_t place[AT_ONCE];
            float x[AT_ONCE];
#pragma unroll
            for (int n = 0; n < AT_ONCE; ++n) /* what is missing is the first again: the row may end within the group */
                place[n] = n < left ? (uint32_t)(2 * from + half) * (GROUP / 2) + marks.take() : place[0];
            places_read<AT_ONCE>(k, plain, place, x);
#pragma unroll
            for (int n = 0; n < AT_ONCE; ++n) {
                const bool above = n < left && window.over(x[n]);
                inside.put(place[n] % (GROUP / 2), n < left && !above);
                sum += wide_weight(w, above ? x[n] : MINUS_INF);
                count += above;
            }
        }
        if (own) *at = make_ulonglong2(inside.low, inside.high);
        sum = w.empty ? 0 : sum << w.left;
        sum += __shfl_xor_sync(ALL_LANES, sum, 1); /* the other half */
        if (own && half % 2 == 0) q.mass[g] = sum;
    }
    __syncthreads();
    return count;
}

/* What a reading of all groups says of a window: the tickets above it, or how many tokens are; and how many are inside. */
struct wide_seen {
    uint64_t above;
    uint32_t inside;
};

/* What every group has above the window into q.mass, and the tokens inside into q.listed. `few`: of the tokens above, too, there are few,
 * and how many is asked for. */
template <bool counts, class type>
__device__ __forceinline__ wide_seen wide_look(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> &window,
                                               bool few) {
    quick &q = k.q;
    wide_seen r;
    uint64_t above = 0;
    r.inside = wide_list(k, order_make(k, s, few ? ORDER_LIST_FEW : counts ? ORDER_LIST_COUNTS : ORDER_LIST, window.low, window.high));
    if (!counts)
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) above += q.mass[g];
    r.above = counts ? q.tally : fast_sum(above, q.space[6]);
    return r;
}

/* ORDER_LIST. */
template <bool counts, class type>
__device__ __forceinline__ void wide_read_all(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> &window,
                                              const wide_part &own) {
    quick &q = k.q;
    uint32_t above = 0;
    wide_mark<64>(k, own, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group<type::LINEAR> w = wide_group_make(s, q.peak[g]);
        uint32_t inside = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            above += counts && window.over(x[j]);
            if (window.inside(x[j])) inside |= 1u << j;
        }
        float y[LANE_TOKENS];
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) y[j] = window.over(x[j]) ? x[j] : MINUS_INF;
        const uint64_t sum = wide_sum(w, y);
        if (threadIdx.x % WARP == 0) q.mass[g] = sum;
        return w.empty && !counts ? 0 : inside;
    });
    if (!counts) return;
    above = warp_add(above);
    if (threadIdx.x % WARP == 0) atomicAdd(team_lead(k, &q.tally), above);
}

/* ORDER_LIST_FEW: the same where few tokens are above the window, and how many is asked for. */
template <class type>
__device__ __forceinline__ void wide_read_few(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> &window,
                                              const wide_part &own) {
    wide_mark<128>(k, own, [&](int, const float x[LANE_TOKENS]) {
        uint32_t from_low = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (window.from_low(x[j])) from_low |= 1u << j;
        return from_low;
    });
    __syncthreads();
    const uint32_t above = warp_add(wide_sift(k, s, window, own));
    if (threadIdx.x % WARP == 0) atomicAdd(team_lead(k, &k.q.tally), above);
}

/* ORDER_LIST_VALUE: tokens of one value of sums.cuh. */
template <class type>
__device__ __forceinline__ void wide_read_value(work<type> &k, const fast_scale<type::LINEAR> &s, uint32_t value, const wide_part &own) {
    wide_mark<128>(k, own, [&](int, const float x[LANE_TOKENS]) {
        uint32_t inside = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (value_of(x[j], s.by.c) == value) inside |= 1u << j;
        return inside;
    });
}

/* ORDER_WEIGH: what each of groups [first, end) has at or above `low` into q.mass. */
template <class type>
__device__ __forceinline__ void wide_weigh(work<type> &k, const fast_scale<type::LINEAR> &s, float low, int first, int end) {
    quick &q = k.q;
    row_visit<type>(k.row, first, end, [&](int g, const float x[LANE_TOKENS]) {
        float y[LANE_TOKENS];
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) y[j] = x[j] >= low ? x[j] : MINUS_INF;
        const uint64_t sum = wide_sum(wide_group_make(s, q.peak[g]), y);
        if (threadIdx.x % WARP == 0) q.mass[g] = sum;
    });
}

/* Brings what this block has found of its part to the one that leads. */
template <class type> __device__ __forceinline__ void team_bring(work<type> &k, int what, const wide_part &own) {
    quick &q = k.q;
    if (team_leads(k)) return;
    __syncthreads();
    if (what != ORDER_WEIGH) {
        const uint4 *const marks = (const uint4 *)q.marked;
        uint4 *const to = (uint4 *)team_lead(k, &q.marked);
        for (int i = 2 * (own.first - own.from) + (int)threadIdx.x; i < 2 * (own.end - own.from); i += BLOCK_THREADS) to[i] = marks[i];
    }
    if (what != ORDER_LIST_VALUE) {
        uint64_t *const to = team_lead(k, q.mass);
        for (int g = own.first + (int)threadIdx.x; g < own.end; g += BLOCK_THREADS) to[g] = q.mass[g];
    }
}

/* One function for all orders, not inlined: with what its caller holds there would not be enough registers for loads on their way. */
template <class type> static __device__ __noinline__ void team_read(work<type> *shared_k, const row_order o) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    const int what = o.what;
    fast_scale<type::LINEAR> s;
    fast_scale_make(o.draws ? k.by : k.filter_by, o.best, &s);
    if (what == ORDER_SPREAD) return wide_spread<false>(k, s, o);
    if (what == ORDER_SPREAD_COUNTS) return wide_spread<true>(k, s, o);
    const wide_window<type::LINEAR> window = wide_window_make<type::LINEAR>(o.low, o.high);
    const int2 share = team_share(k, o.from, o.to);
    const wide_part own = {o.from, share.x, share.y};
    if (what == ORDER_LIST) wide_read_all<false>(k, s, window, own);
    else if (what == ORDER_LIST_COUNTS) wide_read_all<true>(k, s, window, own);
    else if (what == ORDER_LIST_FEW) wide_read_few(k, s, window, own);
    else if (what == ORDER_WEIGH) wide_weigh(k, s, o.low, own.first, own.end);
    if constexpr (type::SUMS)
        if (what == ORDER_LIST_VALUE) wide_read_value(k, s, o.value, own);
    team_bring(k, what, own);
}

#endif
