/* write.cuh - the kernels of raffle_softmax and raffle_mask on every GPU. The first leaves a record of each group of 256
 * tokens, or where there are filters decides what each row keeps (decide.cuh); the others write. */
#ifndef RAFFLE_CUDA_WRITE_CUH
#define RAFFLE_CUDA_WRITE_CUH

#include "finish.cuh"
#include "kept.cuh"

#include "probability.h"

enum { WRITES_PER_SM = 4 }; /* blocks of write_kernel that a multiprocessor holds */

/* What a row keeps, and the mass it shares. */
struct verdict {
    uint64_t mass;
    float best;
    cut kept;
    int32_t only;  /* 1: one token is kept, with probability 1 */
    int32_t first; /* the first group that holds the best */
    uint32_t flags;
    bool pieces;   /* its records are maxima of pieces */
#if CUT_MORE
    device_row row; /* as it was prepared */
    float temperature;
#endif
};

/* Everything a launch needs, passed by value. Pointers are device memory; layouts as in raffle.h. */
struct write_args {
    const char *logits;
    int64_t rows, row_stride, vocab, slots, data_rows;
    const int32_t *row_index, *slot;
    const float *temperature, *top_p, *min_p;
    const uint32_t *allow;
    int64_t allow_stride;
    int32_t groups;
    float unset; /* the temperature of rows that have none */
    /* output */
    char *data; /* or NULL */
    int64_t data_stride;
    int32_t dtype, form;
    uint32_t *row_flags, *kept;
    int64_t kept_stride;
    int32_t *list, *count;
    int64_t list_stride;
    /* workspace */
    uint64_t *mass;    /* [rows, groups] sums of weights; the highest bit says that the group has a NaN */
    float *peak;       /* [rows, groups * PIECES]; see verdict_peak */
    verdict *verdicts; /* [rows], made if there are filters */
    int filters;       /* rows are decided by decide_kernel */
    int readable;      /* logits can be copied as they are, 16 bytes at a time: no masks, everything aligned */
};

typedef void (*write_function)(write_args);
typedef void (*cluster_function)(write_args, int per);
struct row_kernels { /* write rows of which all is known */
    write_function write, list;
};
struct write_kernels {
    write_function records;
    row_kernels rows;
    cluster_function cluster;
};
extern const write_kernels write_kernels_logits[3], write_kernels_probs[3]; /* by raffle_dtype */
extern const row_kernels row_kernels_decided[3]; /* behind decide_kernels of logits, whose verdicts are of another size */
extern const size_t verdict_decided_bytes;

#define MASS_NAN (1ull << 63)

/* ---- a row and its parameters ------------------------------------------------------------------------ */

/* A row's temperature; false: a slot, row or parameter is out of range. */
__device__ __forceinline__ bool write_params(const write_args &a, int64_t row, float *temperature) {
    const int64_t slot = a.slot ? a.slot[row] : row, from = a.row_index ? a.row_index[row] : 0;
    if (slot < 0 || slot >= a.slots || from < 0 || from >= a.data_rows) return false;
    const float top_p = a.top_p ? a.top_p[slot] : 1.0f, min_p = a.min_p ? a.min_p[slot] : 0.0f;
    *temperature = a.temperature ? a.temperature[slot] : a.unset;
    return (*temperature >= 0.0f || !a.temperature) && top_p == top_p && min_p == min_p;
}

template <class type> __device__ __forceinline__ device_row write_row(const write_args &a, int64_t row) {
    device_row r;
    r.logits = a.logits + (a.row_index ? a.row_index[row] : row) * a.row_stride * type::BYTES;
    r.allow = a.allow ? a.allow + row * a.allow_stride : nullptr;
    r.vocab = a.vocab;
    r.aligned = (uintptr_t)r.logits % 16 == 0;
    return r;
}

/* ---- records ----------------------------------------------------------------------------------------- */

/* Groups of all rows, a warp each: maxima and sums of weights. Grid: (blocks of a row, rows). */
template <class type> __global__ void __launch_bounds__(BLOCK_THREADS) records_kernel(const __grid_constant__ write_args a) {
    const int lane = threadIdx.x % WARP;
    previous_wait();
    for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        float temperature;
        if (!write_params(a, row, &temperature)) continue;
        const device_row r = write_row<type>(a, row);
        const bool weigh = temperature >= GREEDY_BELOW || temperature == LINEAR_TEMPERATURE;
        const scale by = scale_make(weigh ? temperature : 1.0f);
        for (int g = blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP; g < a.groups; g += gridDim.x * BLOCK_WARPS) {
            float x[LANE_TOKENS], most = MINUS_INF;
            bool nan = false;
            lane_read<type>(r, g, lane, x);
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) {
                nan |= x[j] != x[j];
                most = v_max(x[j], most);
            }
            const float peak = float_of_order(warp_max(order_of(most)));
            if (lane == 0) a.peak[row * a.groups * PIECES + g] = peak;
            uint64_t sum = 0;
            if (weigh && peak > MINUS_INF) {
                lane_weights(x, ref_any(by, peak));
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) sum += v_round(x[j]);
                sum = group_sum(sum);
            }
            nan = __any_sync(ALL_LANES, nan);
            if (lane == 0) a.mass[row * a.groups + g] = sum | (nan ? MASS_NAN : 0);
        }
    }
}

/* ---- verdicts ---------------------------------------------------------------------------------------- */

struct verdict_space {
    uint64_t of_warp[BLOCK_WARPS];
    uint32_t nan;
};

/* What an unfiltered row keeps, out of its records: by all threads of a block, the same to all. */
__device__ __forceinline__ verdict verdict_whole(int groups, float temperature, const float *peaks, const uint64_t *masses,
                                                 verdict_space *s) {
    const int warp = threadIdx.x / WARP;
    uint64_t most = 0;
    for (int g = threadIdx.x; g < groups; g += BLOCK_THREADS) most = max(most, token_key(peaks[g], g));
    most = warp_max_wide(most);
    if (threadIdx.x % WARP == 0) s->of_warp[warp] = most;
    if (threadIdx.x == 0) s->nan = 0;
    __syncthreads();
    most = 0;
    for (int i = 0; i < BLOCK_WARPS; ++i) most = max(most, s->of_warp[i]);
    __syncthreads();
    verdict v;
    v.pieces = false;
    v.best = key_logit(most);
    v.first = key_token(most);
    v.only = temperature < GREEDY_BELOW && temperature != LINEAR_TEMPERATURE;
    v.kept = cut_from(v.best == MINUS_INF ? PLUS_INF : v.only ? v.best : -FLT_MAX);
    const scale by = scale_make(v.only ? 1.0f : temperature);
    const ref row = ref_any(by, v.best);
    uint64_t sum = 0;
    for (int g = threadIdx.x; g < groups; g += BLOCK_THREADS) {
        const float m = peaks[g];
        const uint64_t record = masses[g];
        if (record >> 63) s->nan = 1;
        if (v.only || m == MINUS_INF) continue;
        const ref f = ref_any(by, m);
        sum += tickets_of(record & ~MASS_NAN, ref_below(&row, v.best, &f, m));
    }
    sum = warp_add_wide(sum);
    if (threadIdx.x % WARP == 0) s->of_warp[warp] = sum;
    __syncthreads();
    v.mass = 0;
    for (int i = 0; i < BLOCK_WARPS; ++i) v.mass += s->of_warp[i];
    v.flags = flags_of(v.best, s->nan);
    return v;
}

/* What a row keeps, by its answer, which is not looked at if it has no token; `best` is the largest logit that it keeps. */
__device__ __forceinline__ verdict verdict_make(const answer &told, float best, uint32_t flags) {
    verdict v = {};
    v.best = best;
    v.flags = flags;
    v.kept = cut_from(PLUS_INF);
    if (flags & (RULE_ROW_EMPTY | RAFFLE_ROW_ARGUMENT)) return v;
    v.mass = told.draw_tickets;
    v.kept = cut_of(&told);
    v.only = told.greedy;
    v.first = told.greedy ? told.token / GROUP : 0;
    return v;
}

/* What a row keeps, and its temperature; false: a parameter is wrong. */
template <class type>
__device__ __forceinline__ bool verdict_of(const write_args &a, int64_t row, verdict *v, float *temperature, verdict_space *s) {
#if CUT_MORE
    *v = a.verdicts[row];
    *temperature = v->temperature;
    return !(v->flags & RAFFLE_ROW_ARGUMENT);
#else
    *v = verdict();
    if (!write_params(a, row, temperature)) return false;
    if (type::LINEAR && a.filters) *v = a.verdicts[row]; /* logits are never filtered here */
    else *v = verdict_whole(a.groups, *temperature, a.peak + row * a.groups * PIECES, a.mass + row * a.groups, s);
    return true;
#endif
}

/* The row that is written. */
template <class type> __device__ __forceinline__ device_row written_row(const write_args &a, int64_t row, const verdict &v) {
#if CUT_MORE
    return v.row;
#else
    return write_row<type>(a, row);
#endif
}

/* The maximum of a group, out of the row's records. */
__device__ __forceinline__ float verdict_peak(const write_args &a, const verdict &v, int64_t row, int g) {
    const float *peaks = a.peak + row * a.groups * PIECES;
    if (v.only) return v.best; /* there are no records */
    return v.pieces ? pieces_most(((const float4 *)peaks)[g]) : peaks[g];
}

/* Whether a group may keep a token. */
__device__ __forceinline__ bool verdict_keeps(const verdict &v, int g, float peak) {
    return peak > MINUS_INF && peak >= v.kept.low && (!v.only || g == v.first);
}

/* ---- writing ----------------------------------------------------------------------------------------- */

/* How a row's tokens become what is written; in shared memory, made by one thread. */
struct writing {
    verdict v;
    scale by;
    ref row;
    portion best_portion;
    log_line line;
    float nothing;
    uint32_t filling; /* the same as it is stored, twice if it has two bytes */
    int32_t valid;
};

__device__ __forceinline__ void writing_make(writing *w, const write_args &a, float temperature, const verdict &v, bool valid) {
    w->valid = valid;
    w->v = v;
    w->nothing = a.form == FORM_PROBABILITY || (a.form == FORM_LOGIT && a.unset == LINEAR_TEMPERATURE) ? 0.0f : MINUS_INF;
    w->filling = w->nothing == 0.0f ? 0 : a.dtype == RAFFLE_F32 ? 0xff800000u : a.dtype == RAFFLE_F16 ? 0xfc00fc00u : 0xff80ff80u;
    if (!valid || v.only || v.best == MINUS_INF) return;
    w->by = scale_make(temperature);
    w->row = ref_make(w->by, v.best);
    w->best_portion = portion_make(v.mass);
    if (a.form == FORM_LOG) w->line = log_line_make(temperature, v.best, &w->row, v.mass);
}

/* Which of a lane's tokens are kept, as bits. */
template <class type>
__device__ __forceinline__ uint32_t lane_kept(const device_row &row, int g, int lane, const float x[LANE_TOKENS], const verdict &v) {
    uint32_t kept = 0;
    if (v.only && g != v.first) return 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j)
        kept |= (uint32_t)cut_keeps(v.kept, x[j], lane_id<type>(row, g, lane, j)) << j;
    if (v.only && v.kept.tie_last == INT32_MAX) { /* the lowest of the best */
        uint32_t own = 0xffffffffu;
#pragma unroll
        for (int j = LANE_TOKENS - 1; j >= 0; --j)
            if (kept >> j & 1) own = min(own, (uint32_t)lane_token<type>(row.aligned && group_whole(row, g), lane, j));
        const uint32_t lowest = ~warp_max(~own);
        uint32_t one = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if ((uint32_t)lane_token<type>(row.aligned && group_whole(row, g), lane, j) == lowest) one |= 1u << j;
        kept &= one;
    }
    return kept;
}

/* The value of a kept token, given its logit. Not for probabilities that take a weight. */
__device__ __forceinline__ float written_value(const writing &w, int form, float x) {
    if (form == FORM_LOGIT) return x;
    if (w.v.only) return form == FORM_LOG ? 0.0f : 1.0f;
    return w.row.kind == REF_LINEAR ? log_weight(x, &w.row, w.v.mass) : v_log_kept(x, &w.row, &w.line);
}

/* The mask of a group: 256 bits from the lanes' eight. */
template <class type>
__device__ __forceinline__ void mask_store(uint32_t *words, bool wide, int lane, int count, uint32_t kept) {
    if (!wide) {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const uint32_t word = __ballot_sync(ALL_LANES, kept >> j & 1);
            if (lane == j && j * WARP < count) words[j] = word;
        }
        return;
    }
    const uint2 word = words_gather<type>(lane, kept);
    if (type::BYTES == 2) {
        if (lane % 4 == 0) words[lane / 4] = word.x;
    } else if (lane % 8 == 0) {
        words[lane / 8] = word.x;
        words[4 + lane / 8] = word.y;
    }
}

/* One group that keeps nothing, by a warp. */
__device__ __forceinline__ void group_fill(const write_args &a, uint32_t filling, int64_t index, int g) {
    const int lane = threadIdx.x % WARP, count = (int)min((int64_t)GROUP, a.vocab - g * (int64_t)GROUP);
    const int bytes = a.dtype == RAFFLE_F32 ? 4 : 2;
    char *to = a.data + (index * a.data_stride + g * (int64_t)GROUP) * bytes;
    if (a.data && count == GROUP && (uintptr_t)to % 16 == 0) {
        for (int i = lane; i < GROUP * bytes / 16; i += WARP) ((uint4 *)to)[i] = make_uint4(filling, filling, filling, filling);
    } else if (a.data) {
        for (int i = lane; i < count; i += WARP)
            if (bytes == 4) ((uint32_t *)to)[i] = filling;
            else ((uint16_t *)to)[i] = (uint16_t)filling;
    }
    if (a.kept && lane < GROUP / 32 && lane * 32 < count) a.kept[index * a.kept_stride + g * (int64_t)(GROUP / 32) + lane] = 0;
}

/* One group that may keep tokens, everything but the list. */
template <class type> __device__ __forceinline__ void group_write(const write_args &a, const writing &w, const device_row &row,
                                                                  int64_t index, int g, float peak) {
    const int lane = threadIdx.x % WARP, count = (int)min((int64_t)GROUP, a.vocab - g * (int64_t)GROUP);
    const bool wide = row.aligned && group_whole(row, g);
    float x[LANE_TOKENS], y[LANE_TOKENS];
    lane_read<type>(row, g, lane, x);
    const uint32_t kept = lane_kept<type>(row, g, lane, x, w.v);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) y[j] = w.nothing;
    if (a.form == FORM_PROBABILITY && !w.v.only) {
        const ref f = ref_any(w.by, peak);
        const portion p = portion_below(w.best_portion, ref_distance(&w.row, w.v.best, &f, peak));
        lane_weights(x, ref_deep(f, w.by, peak));
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (kept >> j & 1 && !p.none) y[j] = v_portion(x[j], &p);
    } else {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (kept >> j & 1) y[j] = written_value(w, a.form, x[j]);
    }
    if (a.data) {
        const int bytes = a.dtype == RAFFLE_F32 ? 4 : 2;
        lane_store<type>(a.data + (index * a.data_stride + g * (int64_t)GROUP) * bytes, a.dtype, wide, lane, count, y);
    }
    if (a.kept) mask_store<type>(a.kept + index * a.kept_stride + g * (int64_t)(GROUP / 32), wide, lane, count, kept);
}

/* Grid: (blocks of a row, rows). In place is fine: a warp has read a group before it writes it, and no one else reads it. A warp has up
 * to 32 groups one behind the other and looks at all of their maxima at once: most keep nothing where rows are filtered. */
template <class type> __global__ void __launch_bounds__(BLOCK_THREADS, WRITES_PER_SM) write_kernel(const __grid_constant__ write_args a) {
    __shared__ verdict_space space;
    __shared__ writing w;
    const int warps = gridDim.x * BLOCK_WARPS, per = min(WARP, (a.groups + warps - 1) / warps), lane = threadIdx.x % WARP;
    previous_wait();
    for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        {
            verdict v;
            float temperature;
            const bool valid = verdict_of<type>(a, row, &v, &temperature, &space);
            if (threadIdx.x == 0) {
                writing_make(&w, a, temperature, v, valid);
                if (a.row_flags && blockIdx.x == 0) a.row_flags[row] = valid ? v.flags : RAFFLE_ROW_ARGUMENT;
            }
        }
        __syncthreads();
        for (int first = (blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP) * per; first < a.groups; first += warps * per) {
            const int own = first + lane, count = min(per, a.groups - first);
            const float peak = w.valid && lane < count ? verdict_peak(a, w.v, row, own) : MINUS_INF;
            const uint32_t keeps = __ballot_sync(ALL_LANES, w.valid && lane < count && verdict_keeps(w.v, own, peak));
            for (int i = 0; i < count; ++i)
                if (!(keeps >> i & 1)) group_fill(a, w.filling, row, first + i);
            for (uint32_t left = keeps; left; left &= left - 1) {
                const int i = __ffs(left) - 1;
                group_write<type>(a, w, written_row<type>(a, row, w.v), row, first + i, __shfl_sync(ALL_LANES, peak, i));
            }
        }
        __syncthreads(); /* w is used again */
    }
}

/* The kept tokens of a row in ascending order, and how many there are: a block a row. */
template <class type> __global__ void __launch_bounds__(BLOCK_THREADS) list_kernel(const __grid_constant__ write_args a) {
    __shared__ verdict_space space;
    __shared__ kept_space kept;
    previous_wait();
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        verdict v;
        float temperature;
        const bool valid = verdict_of<type>(a, row, &v, &temperature, &space);
        const device_row r = valid ? written_row<type>(a, row, v) : device_row();
        const kept_target to = {nullptr, a.list ? a.list + row * a.list_stride : nullptr, a.list_stride, a.count ? a.count + row : nullptr};
        kept_write<type>(r, valid ? a.groups : 0, v.kept, v.only && v.kept.tie_last == INT32_MAX, to, &kept,
                         [&](int g) { return verdict_keeps(v, g, verdict_peak(a, v, row, g)); });
        __syncthreads();
    }
}

#endif
