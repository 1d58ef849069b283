/* wide.cuh - finishing a row of which filters leave many tokens: top-p with a wide nucleus, min-p on a flat row.
 *
 * min-p knows its threshold: one more reading adds up what every group keeps, then the draw finds the group. For top-p the sums of
 * sums.cuh tell about where the threshold lies, if the row's blocks have left them. If not,
 *
 *   1. some groups show about where the threshold lies: a window of values that holds two or three thousand tokens;
 *   2. a reading adds up what every group has above the window, and lists the tokens inside; they show the threshold.
 *
 * A window that missed is moved once, and the row read again. Where that does not help, most often because many tokens are
 * equal, a wider window is cut into 256 bins: a reading adds up the tickets of each, so the threshold's bin is known, and one
 * more lists it.
 *
 * Sums are of whole tickets, so nothing is approximate but the guess, which only decides whether the row is done here:
 * what is not, goes through cut.h. */
#ifndef RAFFLE_CUDA_WIDE_CUH
#define RAFFLE_CUDA_WIDE_CUH

#include "sums.cuh"

/* How the tokens of a group become tickets: (weight >> right) << left, none if `empty`. */
struct wide_group {
    ref by;
    uint32_t left, right;
    bool empty;
};
__device__ __forceinline__ wide_group wide_group_make(const fast_scale &s, float m) {
    wide_group w;
    w.by = ref_make_near(s.by, m);
    const uint32_t below = (uint32_t)s.exponent - (uint32_t)w.by.exponent;
    w.left = below < TICKET_BITS ? TICKET_BITS - below : 0;
    w.right = below > TICKET_BITS ? below - TICKET_BITS : 0;
    w.empty = !(m >= s.best - s.by.drop) || w.right >= 32;
    return w;
}
__device__ __forceinline__ uint32_t wide_weight(const wide_group &w, float x) { return v_round(v_weight(x, &w.by, 0)) >> w.right; }

/* Calls visit(g, x) for every group whose maximum reaches `low`; whole warps, x[j] the processed logit of the lane's j-th
 * token. NaN stays NaN: it is above nothing and weighs nothing. */
template <class type, class function>
__device__ __forceinline__ void wide_visit(work<type> &k, float low, function visit) {
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP;
    int g = first;
    if (row_plain(k.row)) {
        const int whole = (int)(k.row.vocab / GROUP);
        groups_visit<type>(k.row, first, whole, [&](int now, const float x[LANE_TOKENS]) {
            if (k.q.peak[now] >= low) visit(now, x);
        });
        if (whole > first) g += (whole - first + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS;
    }
    for (; g < k.groups; g += BLOCK_WARPS) {
        if (!(k.q.peak[g] >= low)) continue;
        float x[LANE_TOKENS];
        lane_read<type>(k.row, g, lane, x);
        visit(g, x);
    }
}

/* The draw, where q.mass holds what every group keeps, `total` in all: tokens >= threshold. Leaves q.token. */
template <class type>
__device__ __forceinline__ void wide_draw(work<type> &k, const fast_scale &s, float threshold, uint64_t total) {
    quick &q = k.q;
    if (threadIdx.x == 0) k.tell(threshold, total, 0);
    const uint64_t ticket = mul_high(k.bits, total);
    const int per = (k.groups + BLOCK_THREADS - 1) / BLOCK_THREADS, first = (int)threadIdx.x * per;
    uint64_t own = 0, unused;
    for (int g = first; g < min(first + per, k.groups); ++g) own += q.mass[g];
    uint64_t before = fast_before(own, q.space[4], &unused);
    if (ticket >= before && ticket - before < own) {
        uint64_t left = ticket - before;
        int g = first;
        for (; left >= q.mass[g]; ++g) left -= q.mass[g];
        q.group = g;
        q.rest = left;
    }
    __syncthreads();
    const int64_t id = q.group * (int64_t)GROUP + threadIdx.x;
    const wide_group w = wide_group_make(s, q.peak[q.group]);
    const float x = threadIdx.x < GROUP ? token_read_inline<type>(k.row, id) : MINUS_INF;
    const uint64_t held = x >= threshold ? (uint64_t)wide_weight(w, x) << w.left : 0;
    before = fast_before(held, q.space[5], &unused);
    if (q.rest >= before && q.rest - before < held) q.token = (int32_t)id;
    __syncthreads();
}

/* Adds up what every group has at or above `low` into q.mass; returns the sum. */
template <class type> __device__ __forceinline__ uint64_t wide_kept(work<type> &k, const fast_scale &s, float low) {
    quick &q = k.q;
    uint64_t own = 0;
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = 0;
    __syncthreads();
    wide_visit(k, low, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group w = wide_group_make(s, q.peak[g]);
        if (w.empty) return;
        uint64_t sum = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) sum += x[j] >= low ? wide_weight(w, x[j]) : 0;
        sum = group_sum(sum) << w.left;
        if (threadIdx.x % WARP) return;
        q.mass[g] = sum;
        own += sum;
    });
    return fast_sum(own, q.space[6]);
}

/* ---- top-p -------------------------------------------------------------------------------------------- */

/* A range of values (low, high] cut into bins. */
struct wide_window {
    float low, high, scale;
    __device__ __forceinline__ int bin(float x) const { return max(0, min(BINS - 1, (int)((x - low) * scale))); } /* of logits that change, too */
};
__device__ __forceinline__ wide_window wide_window_make(float low, float high) {
    wide_window w = {low, high, __fdividef(BINS, high - low)};
    if (!(w.scale < FLT_MAX)) w.scale = 0.0f;
    return w;
}

/* Where a threshold probably lies. */
struct wide_guessed {
    float middle, half; /* a window with many tokens, but not too many */
    float width;        /* of the bins that told */
};

#define ALIKE 0.1f /* windows narrower than this part of a bin: its tokens are few different values */

/* A window around a value. */
template <class type> __device__ __forceinline__ wide_window wide_around(float middle, float half, float best) {
    if (type::BYTES == 2) half = fmaxf(half, fabsf(middle) * 0x1p-7f); /* from one bf16 to the next */
    return wide_window_make(middle - half, fminf(middle + half, best));
}

/* Tickets of a token of group g. */
__device__ __forceinline__ uint64_t wide_tickets(const quick &q, const fast_scale &s, int g, float x) {
    const wide_group w = wide_group_make(s, q.peak[g]);
    return w.empty ? 0 : (uint64_t)wide_weight(w, x) << w.left;
}

/* Picks `wanted` groups into q.list, each as often as its share of the tickets asks for. */
template <class type> __device__ __forceinline__ void wide_sample(work<type> &k, uint64_t mass, int wanted) {
    quick &q = k.q;
    const int per = (k.groups + BLOCK_THREADS - 1) / BLOCK_THREADS, first = (int)threadIdx.x * per;
    const double scale = (double)wanted / (double)mass;
    uint64_t own = 0, unused;
    for (int g = first; g < min(first + per, k.groups); ++g) own += q.mass[g];
    uint64_t before = fast_before(own, q.space[4], &unused);
    int at = min(wanted, (int)((double)before * scale + 0.5));
    for (int g = first; g < min(first + per, k.groups); ++g) {
        before += q.mass[g];
        for (const int end = min(wanted, (int)((double)before * scale + 0.5)); at < end; ++at) q.list[at] = (uint32_t)g;
    }
    __syncthreads();
}

/* Spreads the picked groups' units over bins of the values (low, high]. Returns how many units are above, and in the bins. */
template <class type>
__device__ __forceinline__ uint2 wide_spread(work<type> &k, const fast_scale &s, int groups, float low, float high, float width) {
    quick &q = k.q;
    const float scale = fminf(__fdividef(1.0f, width), FLT_MAX);
    uint32_t above = 0, inside = 0;
    for (int i = threadIdx.x; i < GUESS_BINS; i += BLOCK_THREADS) q.guess[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x / WARP; i < groups; i += BLOCK_WARPS) {
        const int g = (int)q.list[i];
        const wide_group w = wide_group_make(s, q.peak[g]);
        const float unit = __fdividef((float)((1 << 30) / groups), (float)q.mass[g]) * (float)(1 << w.left);
        float x[LANE_TOKENS];
        lane_read<type>(k.row, g, threadIdx.x % WARP, x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            if (!(x[j] > low)) continue;
            const uint32_t share = (uint32_t)((float)wide_weight(w, x[j]) * unit);
            if (x[j] > high) above += share;
            else inside += share, atomicAdd(q.guess + min(GUESS_BINS - 1, (int)((x[j] - low) * scale)), share);
        }
    }
    const uint64_t sum = fast_sum((uint64_t)above << 32 | inside, q.space[3]); /* a barrier, too */
    return make_uint2((uint32_t)(sum >> 32), (uint32_t)sum);
}

/* Where the threshold of `target` out of `mass` tickets probably lies, by some of the row's groups: each of them has as many
 * units, which are spread over bins of values, and the bin that matters once more if it has very many tokens. False if it is
 * too far below the best. */
template <class type>
__device__ __forceinline__ bool wide_guess(work<type> &k, const fast_scale &s, uint64_t target, uint64_t mass, wide_guessed *guess) {
    enum { OWN = GUESS_BINS / BLOCK_THREADS, ROUNDS = 3 };
    quick &q = k.q;
    const int groups = max(16, min(256, k.groups / 4));
    float low = s.best - s.by.drop * 0.5f, high = s.best; /* what is 30 powers of two below the best weighs nothing in a guess */
    uint32_t wanted = 0, total = 0;
    wide_sample(k, mass, groups);
    for (int round = 0;; ++round) {
        const float width = (high - low) * (1.0f / GUESS_BINS);
        const uint2 units = wide_spread(k, s, groups, low, high, width);
        if (round == 0) {
            total = units.y;
            wanted = max(1u, (uint32_t)((double)total * ((double)target / (double)mass)));
        }
        uint32_t own[OWN], of_thread = 0;
        uint64_t unused;
        if (threadIdx.x == 0) q.group = -1;
#pragma unroll
        for (int i = 0; i < OWN; ++i) of_thread += own[i] = q.guess[GUESS_BINS - 1 - (int)threadIdx.x * OWN - i]; /* the highest first */
        uint32_t before = units.x + (uint32_t)fast_before(of_thread, q.space[5], &unused);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (before < wanted && before + own[i] >= wanted) {
                q.group = GUESS_BINS - 1 - (int)threadIdx.x * OWN - i;
                q.rest = wanted - before;
            }
            before += own[i];
        }
        __syncthreads();
        const int bin = q.group;
        if (bin < 0) return false;
        guess->width = width;
        guess->middle = low + width * ((float)(bin + 1) - __fdividef((float)q.rest, (float)q.guess[bin]));
        /* How many tokens there are around it, by the tickets of three bins. */
        const float of_bins = (float)q.guess[max(bin - 1, 0)] + (float)q.guess[bin] + (float)q.guess[min(bin + 1, GUESS_BINS - 1)];
        const float each = exp2f(guess->middle * s.by.c - (float)s.exponent + (float)(WEIGHT_BITS + TICKET_BITS) + 0.5f);
        const float tokens = __fdividef(of_bins, (float)total) * __fdividef((float)mass, each);
        guess->half = fminf(__fdividef(0.4f * BLOCK_WARPS * LISTED_EACH * 3.0f * width, tokens), 16.0f * width);
        __syncthreads(); /* the bins are used again */
        if (guess->half >= ALIKE * width || round == ROUNDS - 1) return true;
        high = fminf(high, low + width * (float)(bin + 2));
        low = low + width * (float)(bin - 1);
    }
}

/* Appends tokens of a group to the warp's list, `inside` saying which of the lane's; lists of each warp's own need no atomics. */
template <class type> __device__ __forceinline__ void wide_note(work<type> &k, int g, uint32_t inside, uint32_t *listed) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (uint32_t some = __ballot_sync(ALL_LANES, inside); some; some = __ballot_sync(ALL_LANES, inside)) {
        const uint32_t slot = *listed + (uint32_t)__popc(some & ((1u << lane) - 1));
        if (inside && slot < LISTED_EACH)
            k.q.listed[warp * LISTED_EACH + slot] = (uint32_t)lane_id<type>(k.row, g, lane, __ffs(inside) - 1);
        inside &= inside - 1;
        *listed += (uint32_t)__popc(some);
    }
}

/* The reading of step 2: what every group has above the window into q.mass, and the tokens inside into q.listed, where each
 * warp has a part of its own, [LISTED_EACH] ids; q.lists tells how many, or more. Returns the tickets above. */
template <class type> __device__ __forceinline__ uint64_t wide_list(work<type> &k, const fast_scale &s, const wide_window window) {
    quick &q = k.q;
    const int lane = threadIdx.x % WARP;
    uint64_t above = 0;
    uint32_t listed = 0; /* by the warp */
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = 0;
    __syncthreads();
    wide_visit(k, window.low, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group w = wide_group_make(s, q.peak[g]);
        if (w.empty) return;
        uint32_t inside = 0, weight[LANE_TOKENS];
        uint64_t sum = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const bool over = x[j] > window.high;
            float y = over ? x[j] : w.by.low; /* which weighs nothing */
            if (!over && x[j] > window.low) inside |= 1u << j;
            v_weights_of(&y, 1, w.by.c, w.by.c_low, w.by.magic, 1.0f, 0);
            weight[j] = v_round(y);
        }
        if (w.right) {
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) weight[j] >>= w.right;
        }
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) sum += weight[j];
        sum = group_sum(sum) << w.left;
        if (lane == 0) {
            q.mass[g] = sum;
            above += sum;
        }
        wide_note(k, g, inside, &listed);
    });
    if (lane == 0) q.lists[threadIdx.x / WARP] = listed;
    return fast_sum(above, q.space[6]);
}

/* Whether the lists of all warps had room. */
__device__ __forceinline__ bool wide_listed(const quick &q) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) most = max(most, q.lists[i]);
    return most <= LISTED_EACH;
}

/* Adds tickets to a bin. 64-bit sums in shared memory are a loop, and a carry would have to be waited for, so they are
 * kept in three parts of 14 bits: of the 262144 tokens that a row has here at most, none overflows. */
__device__ __forceinline__ void wide_add(quick &q, int bin, uint64_t tickets) {
    atomicAdd(q.parts[0] + bin, (uint32_t)tickets & 0x3fffu);
    atomicAdd(q.parts[1] + bin, (uint32_t)(tickets >> 14) & 0x3fffu);
    atomicAdd(q.parts[2] + bin, (uint32_t)(tickets >> 28));
}

/* The bin in which the sum of tickets from above reaches the target, and the tickets above it; false if it is not in the window,
 * which holds `inside`. */
__device__ __forceinline__ bool wide_bin_find(quick &q, uint64_t above, uint64_t target, int *bin, uint64_t *above_bin, uint64_t *inside) {
    const int own = BINS - 1 - (int)threadIdx.x; /* bins from the highest down, one a thread */
    uint64_t held = 0;
    if (own >= 0) held = q.parts[0][own] + ((uint64_t)q.parts[1][own] << 14) + ((uint64_t)q.parts[2][own] << 28);
    const uint64_t before = above + fast_before(held, q.space[5], inside);
    if (above >= target || above + *inside < target) return false;
    if (before < target && before + held >= target) {
        q.group = own;
        q.rest = before;
    }
    __syncthreads();
    *bin = q.group;
    *above_bin = q.rest;
    return true;
}

/* The same by a reading of the row. */
template <class type>
__device__ __forceinline__ bool wide_bin(work<type> &k, const fast_scale &s, const wide_window window, uint64_t target, int *bin,
                                         uint64_t *above_bin) {
    quick &q = k.q;
    if (threadIdx.x < BINS) q.parts[0][threadIdx.x] = q.parts[1][threadIdx.x] = q.parts[2][threadIdx.x] = 0;
    __syncthreads();
    uint64_t above = 0;
    wide_visit(k, window.low, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group w = wide_group_make(s, q.peak[g]);
        if (w.empty) return;
        uint64_t sum = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const uint32_t weight = wide_weight(w, x[j]);
            if (x[j] > window.high) sum += weight;
            else if (x[j] > window.low) wide_add(q, window.bin(x[j]), (uint64_t)weight << w.left);
        }
        above += sum << w.left;
    });
    above = fast_sum(above, q.space[4]);
    uint64_t inside;
    return wide_bin_find(q, above, target, bin, above_bin, &inside);
}

/* The third reading: what every group has above a bin of the window into q.mass, what it has inside into q.inside, and
 * the tokens inside as candidates. */
template <class type> __device__ __forceinline__ void wide_split(work<type> &k, const fast_scale &s, const wide_window window, int bin) {
    quick &q = k.q;
    uint32_t least = 0xffffffffu, most = 0;
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = q.inside[g] = 0;
    if (threadIdx.x == 0) q.count = 0;
    __syncthreads();
    wide_visit(k, window.low, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group w = wide_group_make(s, q.peak[g]);
        if (w.empty) return;
        uint64_t sum = 0, inside = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            if (!(x[j] > window.low)) continue;
            const uint32_t weight = wide_weight(w, x[j]);
            const int own = x[j] > window.high ? BINS : window.bin(x[j]);
            if (own > bin) sum += weight;
            if (own != bin) continue;
            inside += weight;
            least = min(least, order_of(x[j]));
            most = max(most, order_of(x[j]));
            if (*(volatile uint32_t *)&q.count > CANDIDATES) continue; /* too many: nobody needs to know how many */
            const uint32_t slot = atomicAdd(&q.count, 1u);
            if (slot >= CANDIDATES) continue;
            q.order[slot] = order_of(x[j]);
            q.id[slot] = (int32_t)lane_id<type>(k.row, g, threadIdx.x % WARP, j);
        }
        sum = group_sum(sum) << w.left;
        inside = group_sum(inside) << w.left;
        if (threadIdx.x % WARP) return;
        q.mass[g] = sum;
        q.inside[g] = inside;
    });
    fast_range(&least, &most, q.space[6]);
    if (threadIdx.x == 0) {
        q.low = least;
        q.kept = most;
    }
    __syncthreads();
}

/* The threshold among `count` candidates that lie in one bin, above which are `above` tickets. */
__device__ __forceinline__ float wide_threshold(quick &q, uint32_t count, uint32_t least, uint32_t most, const fast_scale &s, uint64_t above,
                                                uint64_t target) {
    if (least == most) return float_of_order(least); /* all of them stay */
    uint64_t unused;
    __syncthreads();
    fast_sort(q, count, float_of_order(least), float_of_order(most), s);
    const uint32_t at = 2 * threadIdx.x;
    const uint64_t held[2] = {at < count ? q.tickets[at] : 0, at + 1 < count ? q.tickets[at + 1] : 0};
    const uint64_t before = above + fast_before(held[0] + held[1], q.space[7], &unused);
    const uint64_t with[2] = {before + held[0], before + held[0] + held[1]};
#pragma unroll
    for (int i = 0; i < 2; ++i)
        if (with[i] >= target && with[i] - held[i] < target) q.low = q.sorted[at + i];
    __syncthreads();
    return float_of_order(q.low);
}

/* Calls visit(id, x) for the listed tokens; a warp's lanes take those that it has listed. Of a plain row several are loaded at once,
 * without conditions, so that one does not wait for the other. */
template <class type, class function> __device__ __forceinline__ void wide_listed_visit(work<type> &k, function visit) {
    enum { AT_ONCE = 4 };
    const int count = (int)k.q.lists[threadIdx.x / WARP];
    const uint32_t *const ids = k.q.listed + threadIdx.x / WARP * LISTED_EACH;
    const bool plain = row_plain(k.row);
#pragma unroll 1
    for (int i = threadIdx.x % WARP; i < count; i += AT_ONCE * WARP) {
        uint32_t id[AT_ONCE];
        float x[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
            id[n] = ids[min(i + n * WARP, count - 1)];
            x[n] = plain ? type::one(k.row.logits + (int64_t)id[n] * type::BYTES) : token_read_inline<type>(k.row, id[n]);
        }
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n)
            if (i + n * WARP < count) visit(id[n], x[n]);
    }
}

/* Finds the threshold among the listed tokens and adds what stays of them to q.mass; gives the mass of all that stays. False
 * if it is not among them, with where to look instead: NaN if that is not known. */
template <class type>
__device__ __forceinline__ bool wide_pick(work<type> &k, const fast_scale &s, const wide_window window, uint64_t above, uint64_t target,
                                          float *threshold, uint64_t *total) {
    quick &q = k.q;
    if (threadIdx.x < BINS) q.parts[0][threadIdx.x] = q.parts[1][threadIdx.x] = q.parts[2][threadIdx.x] = 0;
    if (threadIdx.x == 0) q.count = 0;
    __syncthreads();
    wide_listed_visit(k, [&](uint32_t id, float x) { wide_add(q, window.bin(x), wide_tickets(q, s, (int)(id / GROUP), x)); });
    __syncthreads();
    int bin;
    uint64_t above_bin, inside;
    if (!wide_bin_find(q, above, target, &bin, &above_bin, &inside)) {
        /* As far from the window's upper end as its density tells, but not further than to its neighbours. */
        const float breadth = window.high - window.low, by = ((float)above - (float)target) * (breadth / (float)inside);
        *threshold = inside ? window.high + fmaxf(-1.5f * breadth, fminf(by, 0.5f * breadth)) : __int_as_float(0x7fffffff);
        return false;
    }
    uint32_t least = 0xffffffffu, most = 0;
    wide_listed_visit(k, [&](uint32_t id, float x) {
        if (window.bin(x) != bin) return;
        least = min(least, order_of(x));
        most = max(most, order_of(x));
        const uint32_t slot = atomicAdd(&q.count, 1u);
        if (slot >= CANDIDATES) return;
        q.order[slot] = order_of(x);
        q.id[slot] = (int32_t)id;
    });
    fast_range(&least, &most, q.space[6]);
    const uint32_t count = q.count;
    if (least != most && count > CANDIDATES) {
        *threshold = __int_as_float(0x7fffffff);
        return false;
    }
    const float low = wide_threshold(q, count, least, most, s, above_bin, target);
    uint64_t kept = 0;
    wide_listed_visit(k, [&](uint32_t id, float x) {
        if (!(x >= low)) return;
        const uint64_t held = wide_tickets(q, s, (int)(id / GROUP), x);
        kept += held;
        atomicAdd((unsigned long long *)q.mass + id / GROUP, (unsigned long long)held);
    });
    *threshold = low;
    *total = above + fast_sum(kept, q.space[3]);
    return true;
}

/* The threshold by bins of the window, for rows of which a list would be too long: two readings. */
template <class type>
__device__ __forceinline__ bool wide_by_bins(work<type> &k, const fast_scale &s, const wide_window window, uint64_t target, float *threshold,
                                             uint64_t *total) {
    quick &q = k.q;
    int bin;
    uint64_t above, own = 0;
    if (!wide_bin(k, s, window, target, &bin, &above)) return false;
    wide_split(k, s, window, bin);
    const uint32_t count = q.count, least = q.low, most = q.kept;
    if (least != most && count > CANDIDATES) return false;
    *threshold = wide_threshold(q, count, least, most, s, above, target);
    if (least == most) {
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) own += q.mass[g] += q.inside[g];
        *total = fast_sum(own, q.space[3]);
        return true;
    }
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK_THREADS) {
        if (q.sorted[i] < order_of(*threshold)) continue;
        own += q.tickets[i];
        atomicAdd((unsigned long long *)q.mass + q.sorted_id[i] / GROUP, (unsigned long long)q.tickets[i]);
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

/* Whether all sections have sums, and all groups' tickets are whole; how far each section is below goes to q.list. */
template <class type> __device__ __forceinline__ bool sums_hold(work<type> &k, const fast_scale &s, int sections) {
    quick &q = k.q;
    bool none = sections > SECTIONS_MAX;
    if (!none && (int)threadIdx.x < sections) {
        const int2 groups = section_at(k.groups, k.part, (int)threadIdx.x);
        const int32_t exponent = groups.x < groups.y ? __ldcg(k.heads + threadIdx.x) : SECTION_NONE;
        none = groups.x < groups.y && exponent == SECTION_NONE;
        q.list[threadIdx.x] = groups.x < groups.y ? (uint32_t)(s.exponent - exponent) : SUM_BINS; /* no sum reaches so far */
    }
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS)
        none |= group_far(s.by, s.best, q.peak[g]);
    return !__syncthreads_or(none);
}

/* The first of `count` values, `step` apart, down to which the sums of all sections reach the target: -1 if none does. Sums go
 * to q.tickets. */
template <class type> __device__ __forceinline__ int sums_reach(work<type> &k, int sections, int first, int step, int count, uint64_t target) {
    enum { AT_ONCE = 8 };
    quick &q = k.q;
    const int lanes = BLOCK_THREADS / count, own = (int)threadIdx.x / lanes;
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
    int at = 0;
    while (at < count && q.tickets[at] < target) ++at;
    return at < count ? at : -1;
}

/* Lists the tokens of one value. Each lane notes its own, as (the warp's how-manieth group, which of the lane's tokens): no lane waits for
 * another. Then lanes bring them together. */
template <class type> __device__ __forceinline__ void wide_list_value(work<type> &k, float low, float c, uint32_t value) {
    static_assert(QUICK_GROUPS / BLOCK_WARPS * LANE_TOKENS <= 1 << 16, "16 bits for a note");
    quick &q = k.q;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t notes = 0;
    wide_visit(k, low, [&](int g, const float x[LANE_TOKENS]) {
        uint32_t inside = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (value_of(x[j], c) == value) inside |= 1u << j;
        for (; inside; inside &= inside - 1, ++notes)
            if (notes < NOTED_EACH) q.noted[notes][threadIdx.x] = (uint16_t)(g / BLOCK_WARPS * LANE_TOKENS + __ffs(inside) - 1);
    });
    const bool all = __all_sync(ALL_LANES, notes <= NOTED_EACH);
    const uint32_t through = warp_through(notes), count = __shfl_sync(ALL_LANES, through, WARP - 1);
    uint32_t *const to = q.listed + warp * LISTED_EACH + through - notes;
    if (all && count <= LISTED_EACH)
        for (uint32_t i = 0; i < notes; ++i) {
            const int note = q.noted[i][threadIdx.x], g = note / LANE_TOKENS * BLOCK_WARPS + warp;
            to[i] = (uint32_t)lane_id<type>(k.row, g, lane, note % LANE_TOKENS);
        }
    if (lane == 0) q.lists[warp] = all ? count : LISTED_EACH + 1;
    __syncthreads();
}

/* Given what the listed tokens of each group keep in q.mass, and what every section has above them, makes q.mass such that wide_draw finds
 * the token: only the groups of the section that holds the ticket are weighed, others are told by one sum. */
template <class type>
__device__ __forceinline__ void sums_to_groups(work<type> &k, const fast_scale &s, int sections, int down, uint32_t value, uint64_t total) {
    quick &q = k.q;
    const int lane = threadIdx.x % WARP;
    const int2 own_groups = section_at(k.groups, k.part, min((int)threadIdx.x, sections - 1));
    uint64_t own = 0;
    if ((int)threadIdx.x < sections) {
        own = section_sum(k, (int)threadIdx.x, down - 1);
        for (int g = own_groups.x; g < own_groups.y; ++g) own += q.mass[g];
    }
    if (threadIdx.x == 0) q.group = 0; /* logits that change under the kernel may leave a ticket without a holder */
    __syncthreads();
    uint64_t unused;
    const uint64_t ticket = mul_high(k.bits, total);
    const uint64_t before = fast_before(own, q.space[4], &unused);
    if (ticket >= before && ticket - before < own) q.group = (int)threadIdx.x;
    __syncthreads();
    const int held = q.group;
    if ((int)threadIdx.x < sections && (int)threadIdx.x != held)
        for (int g = own_groups.x; g < own_groups.y; ++g) q.mass[g] = g == own_groups.x ? own : 0;
    const int2 groups = section_at(k.groups, k.part, held);
    section_visit(k, groups.x, groups.y, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group w = wide_group_make(s, q.peak[g]);
        uint64_t sum = 0;
        if (w.empty) return;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) sum += (int32_t)value_of(x[j], s.by.c) > (int32_t)value ? wide_weight(w, x[j]) : 0;
        sum = group_sum(sum) << w.left;
        if (lane == 0) q.mass[g] += sum;
    });
    __syncthreads();
}

/* Finds the threshold and makes q.mass ready for the draw. False if there are no sums or they do not reach it; q.mass is then as it was. */
template <class type>
__device__ __forceinline__ bool wide_by_sums(work<type> &k, const fast_scale &s, uint64_t target, float *threshold, uint64_t *total) {
    enum { FIRST = SUM_BINS / SUM_STEPS };
    quick &q = k.q;
    if (!k.may_sum || k.nan || k.spread <= 0) return false;
    if (__ldcg(k.flat) != (uint64_t)((k.groups + k.part - 1) / k.part)) return false; /* not all parts have sums */
    const int sections = sections_of(k.groups, k.part);
    if (!sums_hold(k, s, sections)) return false;
    const int octave = sums_reach(k, sections, SUM_STEPS - 1, SUM_STEPS, FIRST, target);
    if (octave < 0) return false;
    uint64_t above = octave ? q.tickets[octave - 1] : 0;
    __syncthreads();
    const int step = sums_reach(k, sections, octave * SUM_STEPS, 1, SUM_STEPS, target);
    if (step > 0) above = q.tickets[step - 1];
    __syncthreads(); /* notes take the place of these sums */
    const int down = octave * SUM_STEPS + step;
    const uint32_t value = value_most(s.exponent) - (uint32_t)down;
    const float one = __fdividef(1.0f, s.by.c * SUM_STEPS), middle = (float)(int32_t)(value - bits_of(MAGIC)) * one;
    /* The value's logits, and a bit more: half a value, and 0.05 for what rounding does where values are largest, 2^17. */
    const wide_window window = wide_window_make(middle - 0.6f * one, middle + 0.6f * one);
    wide_list_value(k, window.low, s.by.c, value);
    if (!wide_listed(q)) return false;
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = 0;
    if (!wide_pick(k, s, window, above, target, threshold, total)) {
        __syncthreads();
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = fast_tickets(s, q.peak[g], __ldcg(k.to.mass + g));
        __syncthreads();
        return false;
    }
    __syncthreads();
    sums_to_groups(k, s, sections, down, value, *total);
    return true;
}

/* A row that fast_filtered has given up: its maxima are in shared memory, and for top-p its groups' tickets. Leaves q.token;
 * false if this cannot finish it either. */
template <class type> static __device__ __noinline__ bool wide_finish(work<type> *shared_k, float best) {
    enum { TRIES = 2 };
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    quick &q = k.q;
    const rules &r = k.rules;
    fast_scale s;
    if (!fast_scale_make(k.by, best, &s)) return false;
    if (r.top_k || r.min_p_last || (r.top_p && r.min_p_first)) return false;
    float threshold = 0.0f;
    uint64_t mass = 0, total;
    if (!r.top_p) {
        threshold = min_p_low(&k.params, k.min_p_reach, best);
        total = wide_kept(k, s, threshold);
        wide_draw(k, s, threshold, total);
        return true;
    }
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) mass += q.mass[g]; /* tickets already */
    mass = fast_sum(mass, q.space[2]);
    const uint64_t target = share_of(k.params.top_p, mass);
    if constexpr (type::SUMS) {
        if (wide_by_sums(k, s, target, &threshold, &total)) {
            wide_draw(k, s, threshold, total);
            return true;
        }
        __syncthreads();
    }
    wide_guessed guess;
    if (!wide_guess(k, s, target, mass, &guess)) return false;
    bool done = false;
    threshold = guess.middle;
    const bool alike = guess.half < ALIKE * guess.width; /* a list of equals would be too long */
#pragma unroll 1
    for (int i = 0; i < TRIES && !alike && !done && threshold == threshold; ++i) {
        const wide_window window = wide_around<type>(threshold, guess.half, s.best);
        const uint64_t above = wide_list(k, s, window);
        if (!wide_listed(q)) break;
        done = wide_pick(k, s, window, above, target, &threshold, &total);
        __syncthreads();
    }
    const wide_window window = wide_window_make(guess.middle - 8.0f * guess.width, fminf(guess.middle + 8.0f * guess.width, best));
    if (!done && !wide_by_bins(k, s, window, target, &threshold, &total)) return false;
    __syncthreads();
    wide_draw(k, s, threshold, total);
    return true;
}

#endif
