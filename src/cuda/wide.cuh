/* wide.cuh - finishing a row of which filters leave many tokens: top-p with a wide nucleus, min-p on a flat row.
 *
 * min-p knows its threshold: one more reading adds up what every group keeps, then the draw finds the group. For top-p
 *
 *   1. two thousand tokens spread over the row show about where the threshold lies: a window of values;
 *   2. a reading adds up the tickets above the window, and those in it by 256 bins: the threshold's bin is exact now;
 *   3. a reading adds up what every group has above that bin, and lists the bin, which shows the threshold itself.
 *
 * Sums are of whole tickets, so nothing is approximate but the guess, which only decides whether the row is done here:
 * a window that missed, or a bin that holds too many different logits, goes through cut.h. */
#ifndef RAFFLE_CUDA_WIDE_CUH
#define RAFFLE_CUDA_WIDE_CUH

#include "fast.cuh"

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
        enum { GROUPS = flight<type>::GROUPS };
        flight<type> f;
        f.start(k.row.logits, first, (int)(k.row.vocab / GROUP));
        for (; f.g < f.end; f.advance()) {
#pragma unroll
            for (int i = 0; i < GROUPS; ++i) {
                const int now = f.g + i * BLOCK_WARPS;
                if (now >= f.end) break;
                float x[LANE_TOKENS];
                raw_values(f.raw[i], x);
                f.load(i, GROUPS);
                if (k.q.peak[now] >= low) visit(now, x);
            }
        }
        g = f.end > first ? first + (f.end - first + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS : first;
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
    __device__ __forceinline__ int bin(float x) const { return min(BINS - 1, (int)((x - low) * scale)); }
};
__device__ __forceinline__ wide_window wide_window_make(float low, float high) {
    wide_window w = {low, high, __fdividef(BINS, high - low)};
    if (!(w.scale < FLT_MAX)) w.scale = 0.0f;
    return w;
}

/* Where the threshold of `target` out of `mass` tickets probably lies, by a sample of the row. */
template <class type>
__device__ __forceinline__ wide_window wide_guess(work<type> &k, const fast_scale &s, uint64_t target, uint64_t mass) {
    enum { SAMPLE = 8 * BLOCK_THREADS, MARGIN = 2 };
    quick &q = k.q;
    const int64_t stride = k.row.vocab / SAMPLE;
    /* What is 30 powers of two below the best weighs nothing in a guess. */
    const float bottom = s.best - s.by.drop * 0.5f;
    const wide_window all = wide_window_make(bottom, s.best);
    const int down = (int)log2f((float)mass * SAMPLE / (float)k.row.vocab) - 30; /* the sample's tickets: about 30 bits */
    if (threadIdx.x < BINS) q.bins[threadIdx.x] = 0;
    __syncthreads();
    uint32_t sum = 0;
    float x[SAMPLE / BLOCK_THREADS];
#pragma unroll
    for (int i = 0; i < SAMPLE / BLOCK_THREADS; ++i) {
        const int64_t id = (threadIdx.x + i * BLOCK_THREADS) * stride + (threadIdx.x * 37 + i * 101) % stride;
        x[i] = token_read_inline<type>(k.row, id);
    }
#pragma unroll
    for (int i = 0; i < SAMPLE / BLOCK_THREADS; ++i) {
        const int64_t id = (threadIdx.x + i * BLOCK_THREADS) * stride + (threadIdx.x * 37 + i * 101) % stride;
        const wide_group w = wide_group_make(s, q.peak[id / GROUP]);
        if (!(x[i] > bottom) || w.empty) continue;
        const uint64_t held = (uint64_t)wide_weight(w, x[i]) << w.left;
        const uint32_t share = (uint32_t)min(down > 0 ? held >> down : held << -down, (uint64_t)1 << 26);
        atomicAdd(q.bins + all.bin(x[i]), share);
        sum += share;
    }
    const uint32_t total = (uint32_t)fast_sum(sum, q.space[3]); /* a barrier, too */
    const uint32_t wanted = max(1u, (uint32_t)((double)total * ((double)target / (double)mass)));
    uint32_t bin, inside, above;
    if (!total || !fast_bin(q.bins, wanted, &bin, &inside, &above)) return wide_window_make(bottom, s.best);
    const float low = all.low + __fdividef((float)bin - MARGIN, all.scale), high = all.low + __fdividef((float)bin + 1 + MARGIN, all.scale);
    return wide_window_make(low, fminf(high, s.best));
}

/* Adds tickets to a bin. 64-bit sums in shared memory are a loop, and a carry would have to be waited for, so they are
 * kept in three parts of 14 bits: of the 262144 tokens that a row has here at most, none overflows. */
__device__ __forceinline__ void wide_add(quick &q, int bin, uint64_t tickets) {
    atomicAdd(q.parts[0] + bin, (uint32_t)tickets & 0x3fffu);
    atomicAdd(q.parts[1] + bin, (uint32_t)(tickets >> 14) & 0x3fffu);
    atomicAdd(q.parts[2] + bin, (uint32_t)(tickets >> 28));
}

/* Finds the window's bin in which the sum of tickets from above reaches the target, and the tickets above it. */
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
    /* Bins from the highest down, one a thread. */
    const int own = BINS - 1 - (int)threadIdx.x;
    uint64_t held = 0;
    if (own >= 0) held = q.parts[0][own] + ((uint64_t)q.parts[1][own] << 14) + ((uint64_t)q.parts[2][own] << 28);
    uint64_t inside;
    const uint64_t before = above + fast_before(held, q.space[5], &inside);
    if (above >= target || above + inside < target) return false; /* the window missed */
    if (before < target && before + held >= target) {
        q.group = own;
        q.rest = before;
    }
    __syncthreads();
    *bin = q.group;
    *above_bin = q.rest;
    return true;
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

/* A row that fast_filtered has given up: its maxima are in shared memory, and for top-p its groups' tickets. Leaves q.token;
 * false if this cannot finish it either. */
template <class type> static __device__ __noinline__ bool wide_finish(work<type> *shared_k, float best) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    quick &q = k.q;
    const rules &r = k.rules;
    fast_scale s;
    if (!fast_scale_make(k.by, best, &s)) return false;
    if (r.top_k || r.min_p_last || (r.top_p && r.min_p_first)) return false;
    if (!r.top_p) {
        const float low = min_p_low(&k.params, k.min_p_reach, best);
        const uint64_t total = wide_kept(k, s, low);
        wide_draw(k, s, low, total);
        return true;
    }
    if (k.row.vocab < 8 * BLOCK_THREADS) return false;
    uint64_t mass = 0, above, total;
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) mass += q.mass[g]; /* tickets already */
    mass = fast_sum(mass, q.space[2]);
    const uint64_t target = share_of(k.params.top_p, mass);
    const wide_window window = wide_guess(k, s, target, mass);
    int bin;
    if (!wide_bin(k, s, window, target, &bin, &above)) return false;
    wide_split(k, s, window, bin);
    const uint32_t count = q.count, least = q.low, most = q.kept;
    float threshold = float_of_order(least);
    if (least == most) { /* one value: all of it stays */
        uint64_t own = 0;
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) own += q.mass[g] += q.inside[g];
        total = fast_sum(own, q.space[3]);
    } else if (count > CANDIDATES) {
        return false;
    } else {
        __syncthreads();
        fast_sort(q, count, threshold, float_of_order(most), s);
        const uint32_t at = 2 * threadIdx.x;
        const uint64_t held[2] = {at < count ? q.tickets[at] : 0, at + 1 < count ? q.tickets[at + 1] : 0};
        const uint64_t before = above + fast_before(held[0] + held[1], q.space[7], &total);
        const uint64_t with[2] = {before + held[0], before + held[0] + held[1]};
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (with[i] >= target && with[i] - held[i] < target) q.low = q.sorted[at + i];
        __syncthreads();
        const uint32_t low = q.low;
        threshold = float_of_order(low);
        uint64_t kept = 0;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (at + i >= count || q.sorted[at + i] < low) continue;
            kept += held[i];
            atomicAdd((unsigned long long *)q.mass + q.sorted_id[at + i] / GROUP, (unsigned long long)held[i]);
        }
        total = above + fast_sum(kept, q.space[3]);
    }
    __syncthreads();
    wide_draw(k, s, threshold, total);
    return true;
}

#endif
