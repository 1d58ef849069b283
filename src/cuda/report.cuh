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

#include "kept.cuh"
#include "wide.cuh"

#include "probability.h"

enum { RANKS = 8, TOP_FIRST = 64 }; /* ranks found by one reading; longest top n for which the draw lists more candidates */
enum { REPORT_LINE = BLOCK_THREADS - WARP, REPORT_ASK = REPORT_LINE - WARP }; /* threads of the last warps that work beside the others */

/* The row at the report's point; in shared memory. */
struct view {
    cut kept;
    weighing by;
    log_line line;
    uint64_t mass;
    float temperature, best;
    uint32_t least; /* smallest maximum of a group that has a token, as order_of */
    int32_t token;  /* that was drawn, or RULE_NO_TOKEN */
    bool near;      /* maxima are in q.peak, else where work::peak_of finds them */
    float bound;    /* q.order and q.id hold all kept tokens that reach this; +inf: there is no list */
    bool found;     /* the drawn token is among them; else ask[0] has its logit */
    union {
        struct {
            float ask[RANKS];
            uint32_t above[RANKS];
        };
        kept_space kept_set; /* before the view is open */
    };
};

#define REPORT_NAN __uint_as_float(0x7fc00000u) /* the CPU's */

/* ---- before a row is read ------------------------------------------------------------------------------- */

/* The temperature that a point before the filters shows. */
__device__ __forceinline__ float report_temperature(int point, float temperature) {
    return point == RAFFLE_RAW || temperature < GREEDY_BELOW ? 1.0f : temperature;
}

/* What the first reading has to leave for the report too. `also` and `raw_peak` are the row's part of the workspace. */
template <class type>
__device__ __forceinline__ void report_expect(const raffle_report &r, const row_params &p, const device_row &row, records *to,
                                              uint64_t *also, float *raw_peak, work<type> *k) {
    bool apart = row.allow;
#if CUT_MORE
    apart |= row.patch != nullptr;
#endif
    apart &= r.point == RAFFLE_RAW;
    const bool unfiltered = r.point != RAFFLE_FILTERED;
    const scale by = scale_make(report_temperature(r.point, p.temperature));
    bool twice = false;
    if (unfiltered) to->greedy = false; /* whoever finishes the row finds the best token */
    if (unfiltered || r.top_count) to->pieces = true;
    if (unfiltered && !apart && !to->weights) {
        to->weights = !by.flat;
        to->by = by;
    } else if (unfiltered && !apart) {
        twice = !by.flat && !(to->by.c == by.c && to->by.c_low == by.c_low);
    }
    records shown = *to;
    if (unfiltered) shown.by = by;
    if (unfiltered && by.flat) shown.weights = false;
    if (twice || apart) shown.mass = also;
    if (apart) {
        shown.weights = true;
        shown.peak = raw_peak;
    }
    static_assert(sizeof r <= 8 * WARP && sizeof r % 8 == 0, "a word a lane");
    if (threadIdx.x < sizeof r / 8) ((uint64_t *)&k->report)[threadIdx.x] = ((const uint64_t *)&r)[threadIdx.x];
    if (threadIdx.x) return;
    k->shown = shown;
    k->also = twice;
    k->apart = apart;
    k->listed = false;
    k->shown_mass = 0;
    k->top_first = unfiltered && !apart && r.top_count <= TOP_FIRST ? (uint32_t)r.top_count : 0;
}

/* ---- rows of one token or none ----------------------------------------------------------------------------- */

/* The kept set of a row that keeps one token; RULE_NO_TOKEN: none. */
static __device__ __noinline__ void report_kept_only(const raffle_report &r, int64_t row, int64_t vocab, int32_t token) {
    const bool any = token >= 0;
    for (int i = threadIdx.x; r.kept && i < (vocab + 31) / 32; i += BLOCK_THREADS)
        r.kept[row * r.kept_stride + i] = any && token / 32 == i ? 1u << token % 32 : 0;
    if (threadIdx.x) return;
    if (r.kept_list && any) r.kept_list[row * r.kept_list_stride] = token;
    if (r.kept_count) r.kept_count[row] = any;
}

/* The report of a row that keeps one token, about `chosen`; RULE_NO_TOKEN: of one about which there is nothing to tell. */
static __device__ __noinline__ void report_only(const raffle_report &r, int64_t row, int64_t vocab, int32_t token, int32_t chosen) {
    const bool any = token >= 0, is = any && chosen >= 0;
    const float one = any ? 0.0f : REPORT_NAN, other = any ? MINUS_INF : REPORT_NAN;
    if (threadIdx.x == 0) {
        if (r.chosen) r.chosen[row] = !is ? REPORT_NAN : chosen == token ? one : other;
        if (r.rank) r.rank[row] = is ? 1 + (chosen != token) : 0;
        if (r.entropy) r.entropy[row] = one;
    }
    for (int n = threadIdx.x; n < r.top_count; n += BLOCK_THREADS) {
        if (r.top_token) r.top_token[row * r.top_count + n] = n ? RULE_NO_TOKEN : token;
        if (r.top) r.top[row * r.top_count + n] = n ? REPORT_NAN : one;
    }
    for (int n = threadIdx.x; n < r.given_count; n += BLOCK_THREADS) {
        const int64_t at = row * r.given_count + n;
        const int32_t id = r.given[at];
        const bool good = any && id >= 0 && id < vocab;
        if (r.given_logprob) r.given_logprob[at] = good ? id == token ? one : other : REPORT_NAN;
        if (r.given_rank) r.given_rank[at] = good ? 1 + (id != token) : 0;
    }
    if (r.all)
        for (int64_t id = threadIdx.x; id < vocab; id += BLOCK_THREADS) r.all[row * r.all_stride + id] = id == token ? one : other;
    report_kept_only(r, row, vocab, token);
}

/* ---- the kept set ------------------------------------------------------------------------------------------ */

/* That of a row that was drawn, k->told, and is neither greedy nor empty; while its records are those of the draw. */
template <class type> static __device__ __noinline__ void report_kept(work<type> *k, kept_space *space, int64_t row) {
    __builtin_assume(__isShared(k));
    __builtin_assume(__isShared(space));
    const raffle_report &r = k->report;
    const device_row at = k->row;
    const cut c = cut_of(&k->told);
    const kept_target to = {r.kept ? r.kept + row * r.kept_stride : nullptr, r.kept_list ? r.kept_list + row * r.kept_list_stride : nullptr,
                            r.kept_list_stride, r.kept_count ? r.kept_count + row : nullptr};
    kept_write<type>(at, k->groups, c, false, to, space, [&](int g) { return k->peak_far(g) >= c.low; });
}

/* ---- the row at its point --------------------------------------------------------------------------------- */

/* What the records of a row say. */
struct report_found {
    uint64_t mass; /* of the row without filters if weights were asked for and have it, else 0 */
    float best;
    uint32_t least; /* as view::least */
};

/* Fetches the records to where fast.cuh looks for them. */
template <class type> static __device__ __noinline__ report_found report_fetch(work<type> *k, bool weights) {
    __builtin_assume(__isShared(k));
    report_found f;
    f.best = fast_fetch(*k, k->to.pieces, weights, &f.least);
    f.mass = weights ? fast_mass(*k, f.best) : 0;
    return f;
}

/* That mass of any row, by one more reading if need be. */
template <class type> static __device__ __noinline__ uint64_t report_mass(work<type> *k, view *v) {
    __builtin_assume(__isShared(k));
    __syncthreads();
    k->begin();
    const weighing w = weighing_make(v->temperature, k->row_best);
    const uint64_t mass = k->weigh(&w);
    __syncthreads();
    if (v->near) report_fetch(k, false);
    return mass;
}

/* Opens the view: the row at its point in place of the sampled one. False: it has no token. */
template <class type> __device__ __forceinline__ bool report_open(work<type> *k, view *v, int point, uint32_t top) {
    const answer &told = k->told;
    const float drawn_at = k->params.temperature;
    const bool again = !k->apart && told.capped && point != RAFFLE_FILTERED; /* its maxima are no longer there */
    bool listed = k->listed && !k->apart && !again && (point == RAFFLE_FILTERED || k->q.count >= top);
    if (threadIdx.x == 0) {
        const bool clobbered = k->groups > PEAKS_MAX && k->shown.mass == k->to.mass; /* by the draw */
        k->to = k->shown;
        if (clobbered && !again) k->to.weights = false;
        if (k->apart) k->row.allow = nullptr;
#if CUT_MORE
        if (k->apart) k->row.patch = nullptr;
#endif
        v->kept = point == RAFFLE_FILTERED ? cut_of(&told) : cut_from(-FLT_MAX);
        v->temperature = point == RAFFLE_FILTERED ? drawn_at : report_temperature(point, drawn_at);
        v->token = told.token;
        v->near = k->groups <= QUICK_GROUPS;
        v->bound = PLUS_INF;
        if (listed) v->bound = point == RAFFLE_FILTERED ? MINUS_INF : k->q.bound;
    }
    __syncthreads();
    if (again) {
        groups_redo<type>(k, threadIdx.x / WARP, k->groups, false);
        __syncthreads();
    }
    /* Another mass than the draw's. */
    const bool whole = point != RAFFLE_FILTERED && !(told.whole && !k->apart && v->temperature == drawn_at);
    report_found f = {whole ? k->shown_mass : told.draw_tickets, k->best, 0};
    const bool weighs = whole && !f.mass;
    if (v->near && (weighs || !listed)) {
        const uint64_t known = f.mass;
        f = report_fetch(k, weighs && k->to.weights);
        if (!weighs) f.mass = known;
    } else if (!listed) {
        k->begin();
        f.best = k->row_best;
    }
    if (f.best == MINUS_INF) return false;
    if (weighs && !f.mass) {
        f.mass = report_mass(k, v);
        listed = false; /* another reading has taken its place */
    }
    if (threadIdx.x == 0) {
        v->best = f.best;
        v->least = f.least;
        v->mass = f.mass;
        v->found = false;
        k->listed = listed;
        if (!listed) v->bound = PLUS_INF;
        if (!listed && v->near) k->q.count = k->q.list_length = k->q.edits = 0; /* for report_list */
    }
    __syncthreads();
    return true;
}

template <class type> __device__ __forceinline__ float report_peak(const work<type> *k, const view *v, int g) {
    return v->near ? k->q.peak[g] : k->peak_of(g);
}

/* What makes logarithms; by one thread, REPORT_LINE. */
static __device__ __noinline__ void report_line(view *v) {
    __builtin_assume(__isShared(v));
    v->by = weighing_make(v->temperature, v->best);
    v->line = log_line_make(v->temperature, v->best, &v->by.row, v->mass);
}

/* A token's logit, if it is kept; else -inf. */
template <class type> __device__ __forceinline__ float report_logit(const work<type> *k, const view *v, int32_t id) {
    const float x = token_read<type>(k->row, id);
    return cut_keeps(v->kept, x, id) ? x : MINUS_INF;
}

__device__ __forceinline__ float report_log(const view *v, float x) {
    return x == MINUS_INF ? MINUS_INF : v_log_kept(x, &v->by.row, &v->line);
}

/* The logit of the drawn token; by one thread, REPORT_ASK. */
template <class type> __device__ __forceinline__ void report_ask(const work<type> *k, view *v) {
    v->ask[0] = v->token >= 0 ? report_logit(k, v, v->token) : PLUS_INF;
}

/* ---- the likeliest ------------------------------------------------------------------------------------------ */

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
