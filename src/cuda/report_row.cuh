/* report_row.cuh - the row at a report's point: what its reading has to leave behind, and how it is opened. */
#ifndef RAFFLE_CUDA_REPORT_ROW_CUH
#define RAFFLE_CUDA_REPORT_ROW_CUH

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

#endif
