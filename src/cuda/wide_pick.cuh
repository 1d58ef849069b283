/* wide_pick.cuh - the threshold among the tokens of a window, by bins or in a list. */
#ifndef RAFFLE_CUDA_WIDE_PICK_CUH
#define RAFFLE_CUDA_WIDE_PICK_CUH

#include "wide_window.cuh"

/* ---- tokens inside, by bins --------------------------------------------------------------------------------- */

/* Adds to a group's tickets in shared memory, where a 64-bit sum would be a loop. Each carry is seen by the one who made it. */
__device__ __forceinline__ void mass_add(uint64_t *mass, uint64_t more) {
    uint32_t *const half = (uint32_t *)mass, low = (uint32_t)more;
    const uint32_t carry = atomicAdd(half, low) > ~low;
    atomicAdd(half + 1, (uint32_t)(more >> 32) + carry);
}

/* Adds tickets to a bin. 64-bit sums in shared memory are a loop, and a carry would have to be waited for, so they are
 * kept in three parts of 14 bits: of the tokens of BINNED groups, 2^18, none overflows. */
enum { BINNED = 1024 };
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
__device__ __forceinline__ bool wide_bin(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> window,
                                         uint64_t target, int *bin, uint64_t *above_bin) {
    quick &q = k.q;
    if (threadIdx.x < BINS) q.parts[0][threadIdx.x] = q.parts[1][threadIdx.x] = q.parts[2][threadIdx.x] = 0;
    __syncthreads();
    uint64_t above = 0;
    row_visit<type>(k.row, 0, k.groups, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group<type::LINEAR> w = wide_group_make(s, q.peak[g]);
        if (w.empty || !(axis_of<type::LINEAR>(q.peak[g]) >= window.low)) return;
        uint64_t sum = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const uint32_t weight = wide_weight(w, x[j]);
            if (window.over(x[j])) sum += weight;
            else if (window.from_low(x[j])) wide_add(q, window.bin(x[j]), (uint64_t)weight << w.left);
        }
        above += sum << w.left;
    });
    above = fast_sum(above, q.space[4]);
    uint64_t inside;
    return wide_bin_find(q, above, target, bin, above_bin, &inside);
}

/* The third reading: what every group has above a bin of the window into q.mass, what it has inside into q.inside, and
 * the tokens inside as candidates. */
template <class type>
__device__ __forceinline__ void wide_split(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> window,
                                           int bin) {
    quick &q = k.q;
    uint32_t least = 0xffffffffu, most = 0;
    for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = q.inside[g] = 0;
    if (threadIdx.x == 0) q.count = 0;
    __syncthreads();
    row_visit<type>(k.row, 0, k.groups, [&](int g, const float x[LANE_TOKENS]) {
        const wide_group<type::LINEAR> w = wide_group_make(s, q.peak[g]);
        if (w.empty || !(axis_of<type::LINEAR>(q.peak[g]) >= window.low)) return;
        uint64_t sum = 0, inside = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            if (!window.from_low(x[j])) continue;
            const uint32_t weight = wide_weight(w, x[j]);
            const int own = window.over(x[j]) ? BINS : window.bin(x[j]);
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

/* The threshold among candidates that lie in one bin, above which are `above` tickets. */
__device__ __forceinline__ float wide_threshold(quick &q, const candidates &c, uint32_t least, uint32_t most, uint64_t above,
                                                uint64_t target) {
    uint32_t key[OWN_CANDIDATES], found;
    bool live[OWN_CANDIDATES];
    amount unused;
    select_begin(q);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < OWN_CANDIDATES; ++j) {
        key[j] = ~c.order[j];
        live[j] = c.order[j];
    }
    const selection w = {0, 0, ~most, ~least, false, false, false};
    const bool reached = fast_select(q, w, key, c.tickets, live, [&](uint64_t) { return target - above; }, &found, &unused);
    return float_of_order(reached ? ~found : least);
}

/* ---- the threshold among listed tokens ---------------------------------------------------------------------- */

/* Loads the listed tokens and adds their tickets, or ones, to the window's bins. Several are loaded at once, without conditions, so that
 * one does not wait for the other. */
template <bool counts, class type>
__device__ __forceinline__ void wide_listed_add(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> window,
                                                uint32_t count) {
    enum { AT_ONCE = 4 };
    quick &q = k.q;
    const bool plain = row_plain(k.row);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < count; i += AT_ONCE * BLOCK_THREADS) {
        uint32_t place[AT_ONCE];
        float x[AT_ONCE];
        uint64_t held[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) place[n] = q.listed[min(i + n * BLOCK_THREADS, count - 1)];
        places_read<AT_ONCE>(k, plain, place, x);
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
            const bool own = i + n * BLOCK_THREADS < count;
            if (own) q.listed_x[i + n * BLOCK_THREADS] = x[n];
            held[n] = !own ? 0 : counts ? 1 : wide_tickets(q, s, (int)(place[n] / GROUP), x[n]);
        }
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n)
            if (held[n]) wide_add(q, window.bin(x[n]), held[n]);
    }
}

/* The threshold among `count` tokens of one bin, above which are `above` tickets: the first down to which there are as many as the
 * target. Each thread adds up what its own value reaches. */
__device__ __forceinline__ uint32_t wide_threshold_few(quick &q, uint32_t count, uint64_t above, uint64_t target) {
    const uint32_t own = threadIdx.x < count ? q.few_order[threadIdx.x] : 0;
    uint64_t larger = above, equal = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t other = q.few_order[i];
        const uint64_t held = q.few_tickets[i];
        larger += other > own ? held : 0;
        equal += other == own ? held : 0;
    }
    if (threadIdx.x < count && larger < target && larger + equal >= target) q.low = own;
    __syncthreads();
    return q.low;
}

/* Finds the threshold among the listed tokens and adds what stays of them to q.mass; gives the mass of all that stays. False
 * if it is not among them, with where on the axis to look instead: NaN if that is not known. */
template <bool counts, class type>
__device__ __forceinline__ bool wide_pick(work<type> &k, const fast_scale<type::LINEAR> &s, const wide_window<type::LINEAR> window,
                                          uint32_t listed, uint64_t above, uint64_t target, float *threshold, uint64_t *total) {
    quick &q = k.q;
    if (threadIdx.x < BINS) q.parts[0][threadIdx.x] = q.parts[1][threadIdx.x] = q.parts[2][threadIdx.x] = 0;
    if (threadIdx.x == 0) q.count = 0;
    __syncthreads();
    wide_listed_add<counts>(k, s, window, listed);
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
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < listed; i += BLOCK_THREADS) {
        const float x = q.listed_x[i];
        if (window.bin(x) != bin) continue;
        least = min(least, order_of(x));
        most = max(most, order_of(x));
        const uint32_t slot = atomicAdd(&q.count, 1u);
        if (slot >= BINS) continue;
        q.few_order[slot] = order_of(x);
        q.few_tickets[slot] = counts ? 1 : wide_tickets(q, s, (int)(q.listed[i] / GROUP), x);
    }
    fast_range(&least, &most, q.space[6]);
    const uint32_t count = q.count;
    if (least != most && count > BINS) {
        *threshold = __int_as_float(0x7fffffff);
        return false;
    }
    const float low = float_of_order(least == most ? least : wide_threshold_few(q, count, above_bin, target));
    uint64_t kept = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < listed; i += BLOCK_THREADS) {
        if (!(q.listed_x[i] >= low)) continue;
        const int g = (int)(q.listed[i] / GROUP);
        const uint64_t held = wide_tickets(q, s, g, q.listed_x[i]);
        kept += held;
        mass_add(q.mass + g, held);
    }
    *threshold = low;
    if (counts) {
        __syncthreads();
        kept = above = 0;
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) kept += q.mass[g];
    }
    *total = above + fast_sum(kept, q.space[3]);
    return true;
}

#endif
