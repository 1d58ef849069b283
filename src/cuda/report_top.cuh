/* report_top.cuh - the likeliest tokens of a report. */
#ifndef RAFFLE_CUDA_REPORT_TOP_CUH
#define RAFFLE_CUDA_REPORT_TOP_CUH

#include "report_row.cuh"

/* A value that n tokens reach: of n warps each has one among the groups whose maxima it has fetched (fast_range). At or below
 * -FLT_MAX: there are not so many. */
__device__ __forceinline__ float report_reach(const quick &q, uint32_t n) {
    const uint32_t lane = threadIdx.x % WARP, own = lane < BLOCK_WARPS ? (uint32_t)q.space[0][lane] : 0;
    uint32_t before = 0;
#pragma unroll
    for (uint32_t i = 0; i < BLOCK_WARPS; ++i) {
        const uint32_t other = (uint32_t)q.space[0][i];
        before += other > own || (other == own && i < lane);
    }
    const uint32_t found = __ballot_sync(ALL_LANES, lane < BLOCK_WARPS && before == n - 1);
    const uint32_t order = __shfl_sync(ALL_LANES, own, found ? __ffs(found) - 1 : 0);
    return found && order > order_of(-FLT_MAX) ? float_of_order(order) : -FLT_MAX;
}

/* Lists the tokens from the n-th largest on, and some more: q.order, q.id. False if they are too many. */
template <class type> static __device__ __noinline__ bool report_list(work<type> *k, view *v, uint32_t n) {
    __builtin_assume(__isShared(k));
    quick &q = k->q;
    if (!(v->best < 0x1p125f)) return false; /* a range beyond what fast_bound cuts into bins */
    float bound = n <= BLOCK_WARPS ? report_reach(q, n) : -FLT_MAX;
    if (bound == -FLT_MAX && k->row.vocab > CANDIDATES) {
        const bool by_pieces = n * 2 > (uint32_t)k->groups;
        const float *const peaks = by_pieces ? (const float *)q.pieces4 : q.peak, least = fmaxf(float_of_order(v->least), -0x1p125f);
        bound = fmaxf(bound, fast_bound<type::LINEAR>(q, peaks, by_pieces ? k->groups * PIECES : k->groups, n, least, v->best));
    }
    bound = fmaxf(bound, v->kept.low);
    if (!fast_gather(*k, bound)) return false;
    if (threadIdx.x == 0) v->bound = bound <= v->kept.low ? MINUS_INF : bound;
    return true;
}

/* Writes the n-th likeliest of a row; key 0: there are not so many. */
__device__ __forceinline__ void report_top(const raffle_report &r, const view *v, int64_t row, uint32_t n, uint64_t key) {
    const int64_t at = row * r.top_count + n;
    if (r.top_token) r.top_token[at] = key ? key_token(key) : RULE_NO_TOKEN;
    if (r.top) r.top[at] = key ? report_log(v, key_logit(key)) : REPORT_NAN;
}

/* The likeliest, and the drawn token if it is there, out of the list: each is compared with all, while the last warp works
 * out what makes logarithms. What is larger than a kept token is kept. */
template <class type> static __device__ __noinline__ void report_near(work<type> *k, view *v, int64_t row) {
    __builtin_assume(__isShared(k));
    enum { THREADS = REPORT_LINE, OWN = (CANDIDATES + THREADS - 1) / THREADS };
    const raffle_report &r = k->report;
    quick &q = k->q;
    const uint32_t count = q.count;
    uint32_t rank[OWN], above[OWN], kept = 0;
    if (threadIdx.x < 4 && count + threadIdx.x < CANDIDATES) q.order[count + threadIdx.x] = 0; /* they are read by four */
    __syncthreads();
    if (threadIdx.x == REPORT_LINE) report_line(v);
    if (threadIdx.x == REPORT_ASK && !k->listed) report_ask(k, v); /* the draw's own list has the token */
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
        const uint32_t own = threadIdx.x + n * THREADS, order = own < count ? q.order[own] : 0;
        const int32_t id = own < count ? q.id[own] : 0;
        above[n] = 0;
        rank[n] = CANDIDATES;
        if (threadIdx.x >= THREADS || own >= count || !cut_keeps(v->kept, float_of_order(order), id)) continue;
        uint32_t before = 0;
#pragma unroll 2
        for (uint32_t i = 0; i < count; i += 4) {
            const uint4 o = *(const uint4 *)(q.order + i);
            const int4 d = *(const int4 *)(q.id + i);
            above[n] += (o.x > order) + (o.y > order) + (o.z > order) + (o.w > order);
            before += (o.x == order && d.x < id) + (o.y == order && d.y < id) + (o.z == order && d.z < id) + (o.w == order && d.w < id);
        }
        rank[n] = above[n] + before;
        if (id == v->token) v->found = true;
    }
#pragma unroll
    for (int n = 0; n < OWN; ++n) /* at least one barrier */
        if (n == 0 || n * THREADS < count) kept += (uint32_t)__syncthreads_count(rank[n] != CANDIDATES);
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
        const uint32_t own = threadIdx.x + n * THREADS;
        if (rank[n] == CANDIDATES) continue;
        const float x = float_of_order(q.order[own]);
        const int32_t id = q.id[own];
        if (rank[n] < (uint32_t)r.top_count) report_top(r, v, row, rank[n], token_key(x, id));
        if (id != v->token) continue;
        if (r.chosen) r.chosen[row] = report_log(v, x);
        if (r.rank) r.rank[row] = (int32_t)above[n] + 1;
    }
    for (uint32_t n = kept + threadIdx.x; n < (uint32_t)r.top_count; n += BLOCK_THREADS) report_top(r, v, row, n, 0);
}

/* Sorts `count` keys, a power of two, the largest first. */
__device__ __forceinline__ void report_sort(uint64_t *key, uint32_t count) {
    for (uint32_t run = 2; run <= count; run *= 2)
        for (uint32_t step = run / 2; step; step /= 2) {
            for (uint32_t i = threadIdx.x; i < count / 2; i += BLOCK_THREADS) {
                const uint32_t a = i / step * step * 2 + i % step, b = a + step;
                const bool down = !(a & run);
                const uint64_t x = key[a], y = key[b];
                if ((x < y) == down) key[a] = y, key[b] = x;
            }
            __syncthreads();
        }
}

/* How many tokens are above `high`. */
template <class type> __device__ __forceinline__ uint64_t report_over(work<type> *k, const weighing *w, float high) {
    const listing l = k->list(w, high, PLUS_INF);
    return l.above_count + l.count;
}

/* The cut that leaves the n likeliest of what is kept, ties by id. */
template <class type> __device__ __forceinline__ cut report_top_cut(work<type> *k, const view *v, uint64_t n) {
    const weighing w = v->by;
    const quest q = {n + (v->kept.capped ? report_over(k, &w, v->kept.high) : 0), 0};
    cut c = v->kept;
    listing l;
    const float low = row_threshold(k, &k->params, &w, q, (int64_t)q.target, 0, &l);
    if (low < c.low) return c;
    if (!(l.complete && l.low < low)) l = k->list(&w, low, PLUS_INF);
    const uint64_t larger = l.complete ? l.above_count + k->list_larger(&l, low) : l.count;
    const int32_t last = k->tie(low, q.target - larger);
    c.tie_last = low > c.low ? last : min(last, c.tie_last);
    c.low = low;
    return c;
}

/* The likeliest of any row, and any number of them. */
template <class type> static __device__ __noinline__ void report_top_far(work<type> *k, view *v, int64_t row) {
    __builtin_assume(__isShared(k));
    const raffle_report &r = k->report;
    const int lane = threadIdx.x % WARP;
    __syncthreads();
    if (v->kept.capped) { /* maxima of all tokens again, to count those above the upper end */
        groups_redo<type>(k, threadIdx.x / WARP, k->groups, false);
        __syncthreads();
    }
    k->begin();
    const cut c = report_top_cut(k, v, (uint64_t)r.top_count);
    k->list_clear();
    for (int g = threadIdx.x / WARP; g < k->groups; g += BLOCK_WARPS) {
        float x[LANE_TOKENS];
        if (!(k->peak_of(g) >= c.low)) continue;
        lane_read<type>(k->row, g, lane, x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const int64_t id = lane_id<type>(k->row, g, lane, j);
            if (!cut_keeps(c, x[j], id)) continue;
            const uint32_t slot = atomicAdd(&k->count, 1u);
            if (slot < RAFFLE_TOP_MAX) k->list_t[slot] = token_key(x[j], id);
        }
    }
    __syncthreads();
    const uint32_t count = min(k->count, (uint32_t)RAFFLE_TOP_MAX);
    uint32_t room = 2;
    while (room < count) room *= 2;
    for (uint32_t i = count + threadIdx.x; i < room; i += BLOCK_THREADS) k->list_t[i] = 0;
    __syncthreads();
    report_sort(k->list_t, room);
    for (uint32_t n = threadIdx.x; n < (uint32_t)r.top_count; n += BLOCK_THREADS)
        report_top(r, v, row, n, n < count ? k->list_t[n] : 0);
}

#endif
