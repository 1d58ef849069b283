/* report.cuh - raffle_report: what a call tells about a row beside its token, by the block that has drawn it.
 *
 * The row at the report's point takes the place of the one that was sampled (k->row, k->to), so the same loops serve both.
 * What it costs beside the first reading, which leaves maxima and, at the points before the filters, weights:
 *
 *   chosen, given logarithms        the tokens themselves
 *   top n, ranks                    what is left of the draw's candidates, or the few groups whose maxima reach the n-th
 *                                   largest maximum, or exceed the token
 *   entropy, all                    one more reading of the row by this block
 *   the kept set                    of the row that was drawn: those groups whose maxima reach the threshold
 *   rows beyond weights_hold        one more reading for their mass (infinite temperature, logits beyond 4,000)
 *   n above 512, or that many ties  the way through cut.h
 */
#ifndef RAFFLE_CUDA_REPORT_CUH
#define RAFFLE_CUDA_REPORT_CUH

#include "report_top.cuh"

/* ---- ranks ---------------------------------------------------------------------------------------------------- */

/* Of a lane's tokens, adds to above[i] those that are kept and larger than y[i]. */
template <int ranks, class type>
__device__ __forceinline__ void lane_ranks(const work<type> *k, const view *v, int g, const float x[LANE_TOKENS], const float *y,
                                           uint32_t *above) {
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        if (!cut_keeps(v->kept, x[j], lane_id<type>(k->row, g, threadIdx.x % WARP, j))) continue;
#pragma unroll
        for (int i = 0; i < ranks; ++i) above[i] += x[j] > y[i];
    }
}

/* Reads the groups that have tokens above `least`. Where their maxima are near, they are listed first (in q.edited, which nobody
 * needs any more), and several are read at once. */
template <int ranks, class type>
__device__ __forceinline__ void groups_ranks(work<type> *k, const view *v, float least, const float *y, uint32_t *above) {
    enum { AT_ONCE = 8 / type::BYTES };
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const device_row row = k->row;
    float x[LANE_TOKENS];
    if (!v->near || !row_plain(row)) {
        for (int g = warp; g < k->groups; g += BLOCK_WARPS) {
            const float m = report_peak(k, v, g);
            if (!(m > least && m >= v->kept.low)) continue;
            lane_read<type>(row, g, lane, x);
            lane_ranks<ranks>(k, v, g, x, y, above);
        }
        return;
    }
    uint32_t *list = (uint32_t *)k->q.edited;
    static_assert((int)EDITED >= (int)QUICK_GROUPS, "a place for every group");
    if (threadIdx.x == 0) k->count = 0;
    __syncthreads();
    for (int g = threadIdx.x; g < k->groups; g += BLOCK_THREADS)
        if (k->q.peak[g] > least && k->q.peak[g] >= v->kept.low) list[atomicAdd(&k->count, 1u)] = (uint32_t)g;
    __syncthreads();
    const uint32_t length = k->count;
    for (uint32_t at = warp; at < length; at += BLOCK_WARPS * AT_ONCE) {
        lane_raw<type> raw[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
            if (at + i * BLOCK_WARPS < length && group_whole(row, (int)list[at + i * BLOCK_WARPS]))
                raw[i] = raw_load<type>(group_at<type>(row, (int)list[at + i * BLOCK_WARPS]), true, lane);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (at + i * BLOCK_WARPS >= length) break;
            const int g = (int)list[at + i * BLOCK_WARPS];
            if (group_whole(row, g)) raw_values(raw[i], x);
            else lane_read<type>(row, g, lane, x);
            lane_ranks<ranks>(k, v, g, x, y, above);
        }
    }
}

/* For each of `count` logits in v->ask, at most `ranks`, how many kept tokens are above it: v->above. */
template <int ranks, class type> static __device__ __noinline__ void report_ranks(work<type> *k, view *v, int count) {
    __builtin_assume(__isShared(k));
    const int lane = threadIdx.x % WARP;
    bool listed = v->bound < PLUS_INF;
    float y[ranks], least = PLUS_INF;
    uint32_t above[ranks];
#pragma unroll
    for (int i = 0; i < ranks; ++i) {
        y[i] = i < count ? v->ask[i] : PLUS_INF;
        above[i] = 0;
        least = fminf(least, y[i]);
        if (i < count && !(y[i] >= v->bound)) listed = false;
    }
    if (threadIdx.x < ranks) v->above[threadIdx.x] = 0;
    __syncthreads();
    if (listed) {
        for (int i = threadIdx.x / WARP; i < count; i += BLOCK_WARPS) {
            const uint32_t order = order_of(v->ask[i]);
            uint32_t found = 0;
            for (uint32_t j = lane; j < k->q.count; j += WARP)
                found += k->q.order[j] > order && cut_keeps(v->kept, float_of_order(k->q.order[j]), k->q.id[j]);
            found = warp_add(found);
            if (lane == 0) v->above[i] = found;
        }
    } else {
        groups_ranks<ranks>(k, v, least, y, above);
#pragma unroll
        for (int i = 0; i < ranks; ++i) {
            const uint32_t found = warp_add(above[i]);
            if (lane == 0 && found) atomicAdd(v->above + i, found);
        }
    }
    __syncthreads();
}

/* Logarithms and ranks of the ids that are given. */
template <class type> static __device__ __noinline__ void report_given(work<type> *k, view *v, int64_t row) {
    __builtin_assume(__isShared(k));
    const raffle_report &r = k->report;
    const int64_t first = row * r.given_count;
    for (int n = threadIdx.x; r.given_logprob && n < r.given_count; n += BLOCK_THREADS) {
        const int32_t id = r.given[first + n];
        const bool good = id >= 0 && id < k->row.vocab;
        r.given_logprob[first + n] = good ? report_log(v, report_logit(k, v, id)) : REPORT_NAN;
    }
    for (int n = 0; r.given_rank && n < r.given_count; n += RANKS) {
        const int own = n + (int)threadIdx.x, count = min((int)RANKS, r.given_count - n);
        const int32_t id = threadIdx.x < RANKS && own < r.given_count ? r.given[first + own] : RULE_NO_TOKEN;
        const bool good = id >= 0 && id < k->row.vocab;
        __syncthreads();
        if ((int)threadIdx.x < count) v->ask[threadIdx.x] = good ? report_logit(k, v, id) : PLUS_INF;
        __syncthreads();
        report_ranks<RANKS>(k, v, count);
        if ((int)threadIdx.x < count) r.given_rank[first + own] = good ? (int32_t)v->above[threadIdx.x] + 1 : 0;
    }
}

/* ---- the whole row ---------------------------------------------------------------------------------------------- */

/* One more reading: the entropy of what is kept, and the logarithms of all tokens. */
template <class type> static __device__ __noinline__ void report_whole(work<type> *k, view *v, int64_t row) {
    __builtin_assume(__isShared(k));
    const raffle_report &r = k->report;
    const int lane = threadIdx.x % WARP;
    const device_row at = k->row;
    const portion best = portion_make(v->mass);
    uint64_t sum = 0;
    for (int g = threadIdx.x / WARP; g < k->groups; g += BLOCK_WARPS) {
        const float m = report_peak(k, v, g);
        float x[LANE_TOKENS], log[LANE_TOKENS];
        const bool any = m > MINUS_INF && m >= v->kept.low;
        if (g + PREFETCH * BLOCK_WARPS < k->groups) group_prefetch<type>(at, g + PREFETCH * BLOCK_WARPS, lane);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) log[j] = MINUS_INF;
        if (any) {
            lane_read<type>(at, g, lane, x);
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j)
                if (cut_keeps(v->kept, x[j], lane_id<type>(at, g, lane, j))) log[j] = v_log_kept(x[j], &v->by.row, &v->line);
        }
        if (r.all)
            lane_store<type>((char *)(r.all + row * r.all_stride + g * (int64_t)GROUP), RAFFLE_F32, at.aligned && group_whole(at, g),
                             lane, (int)min((int64_t)GROUP, at.vocab - g * (int64_t)GROUP), log);
        if (!any || !r.entropy) continue;
        const ref f = ref_any(v->by.scale, m);
        const portion p = portion_below(best, ref_distance(&v->by.row, v->best, &f, m));
        if (p.none) continue;
        lane_weights(x, ref_deep(f, v->by.scale, m));
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (log[j] > MINUS_INF) sum += entropy_term(v_portion(x[j], &p), log[j]);
    }
    if (!r.entropy) return;
    sum = block_add(sum, &k->block);
    if (threadIdx.x == 0) r.entropy[row] = entropy_of(sum);
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

/* Tells about a row that was drawn, k->told; all threads of the block, which have met since. */
template <class type> static __device__ __noinline__ void report_tell(work<type> *k, view *v, int64_t row) {
    __builtin_assume(__isShared(k));
    __builtin_assume(__isShared(v));
    const raffle_report &r = k->report;
    const int64_t vocab = k->row.vocab;
    const bool empty = (k->told.row_flags & RULE_ROW_EMPTY) && !k->apart;
    if (empty) return report_only(r, row, vocab, RULE_NO_TOKEN, RULE_NO_TOKEN);
    if (r.point == RAFFLE_FILTERED && k->told.greedy) return report_only(r, row, vocab, k->told.tie_last, k->told.token);
    if (r.kept || r.kept_list || r.kept_count) {
        const bool none = k->told.row_flags & RULE_ROW_EMPTY;
        if (none || k->told.greedy) report_kept_only(r, row, vocab, none ? RULE_NO_TOKEN : k->told.tie_last);
        else report_kept(k, &v->kept_set, row);
    }
    if (!report_open(k, v, r.point, (uint32_t)r.top_count)) return report_only(r, row, vocab, RULE_NO_TOKEN, RULE_NO_TOKEN);
    bool listed = k->listed;
    if (!listed && r.top_count && r.top_count <= CANDIDATES && v->near && !v->kept.capped)
        listed = report_list(k, v, (uint32_t)r.top_count);
    if (listed) {
        report_near(k, v, row);
    } else {
        if (threadIdx.x == REPORT_LINE) report_line(v);
        if (threadIdx.x == REPORT_ASK) report_ask(k, v);
        __syncthreads();
    }
    if ((r.chosen || r.rank) && !v->found) {
        const bool any = v->token >= 0;
        if (threadIdx.x == 0 && r.chosen) r.chosen[row] = any ? report_log(v, v->ask[0]) : REPORT_NAN;
        if (r.rank) {
            report_ranks<1>(k, v, 1);
            if (threadIdx.x == 0) r.rank[row] = any ? (int32_t)v->above[0] + 1 : 0;
        }
    }
    if (r.given_count) report_given(k, v, row);
    if (r.entropy || r.all) report_whole(k, v, row);
    if (!listed && r.top_count) report_top_far(k, v, row);
}

#endif
