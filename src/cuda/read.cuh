/* read.cuh - the first reading of a row (`weigh`): a block reads its share of the groups once and leaves a record
 * of each. What a record holds depends on what the row's parameters need:
 *
 *   greedy          nothing; the block keeps its best token
 *   no filter       the group's maximum and the sum of its weights, or an estimate of that
 *   top-k, min-p    the maxima of its four pieces
 *   top-p           both; if its token is proposed, and nobody asks what it keeps, what rows without a filter leave
 *   (a temperature that makes all tokens equal: maxima only, whoever finishes the row weighs it)
 *
 * Loads are asked for before the parameters are known: every route reads the same bytes. */
#ifndef RAFFLE_CUDA_READ_CUH
#define RAFFLE_CUDA_READ_CUH

#include "group_weigh.cuh"

#include "cut.h"
#if CUT_MORE
#include "slot.cuh"
#endif

/* A part looks flat if the weights of its groups add up to 8 times their largest, in units of 2^26, where groups have the sums of their
 * lanes. One batch of each warp is asked. */
enum { SPREAD_FLAT = 8 << (WEIGHT_BITS - 26) };

enum { PREFETCH = 3 }; /* groups that a warp asks for ahead of time where it does not hold loads in flight */

/* Where a row's records go, and how its weights are made. */
struct records {
    bool greedy, pieces, weights;
    bool about;     /* weights are estimates */
    scale by;       /* of the weights */
    float *peak;    /* [groups], or [groups, PIECES] if pieces */
    uint64_t *mass; /* [groups] */
};

#if CUT_MORE
/* What a request asks for beyond row_params, and where its row's edits go: see edit.cuh. */
struct row_request {
    raffle_extra extra; /* of zero bytes if the call has none */
    slot_said said;     /* the history; empty if there is none */
    const uint32_t *allow; /* the caller's mask, or NULL */
    uint32_t *mask, *patch; /* of the row */
    float *overlay;
    bool prepares; /* the record is not all zero: there is something to check, perhaps to edit */
    bool lost;     /* it looks back, but there is no history */
    bool near;     /* the part's edits are in shared memory */
};
#endif

/* A reading of the whole row, by one block or by a team: see team.cuh and wide_window.cuh. */
enum { ORDER_NONE, ORDER_SPREAD, ORDER_SPREAD_COUNTS, ORDER_LIST, ORDER_LIST_COUNTS, ORDER_LIST_FEW, ORDER_LIST_VALUE, ORDER_WEIGH };
struct row_order {
    int32_t what, lead; /* ORDER_; of a team, the block that it is for */
    int32_t from, to;   /* groups */
    int32_t draws;      /* weights are those of the draw, not of the filter */
    float best;
    float low, high;    /* SPREAD: where bins begin, and their width; LIST: the window; WEIGH: `low` */
    float floor, unit;  /* SPREAD */
    uint32_t value;     /* LIST_VALUE */
};

/* One row: where it is, what is asked of it, and what its first reading leaves. */
struct row_job {
    device_row row;
    row_params params;
    bool valid; /* they are in range */
    int groups;
    records to;
    /* What is worked out while the row's arrival is under way. */
    struct rules rules;
    scale by;           /* of the draw */
    scale filter_by;    /* of what top-p compares: the same unless filters come before the temperature, */
    bool two_scales;    /* as then */
    double min_p_reach; /* if there is min-p */
    philox_pair bits;   /* random */
    uint64_t best_of_warp[BLOCK_WARPS]; /* greedy: each warp's best token */
    bool nan; /* the row has one; known to whoever finishes it */
#if CUT_MORE
    row_request request;
#endif
};

/* What a row of requested<type> has beside, for its report; a part of `work`. */
template <int requested> struct row_wish {};
template <> struct row_wish<1> {
    raffle_report report; /* what is asked for, if anything is */
    records shown;     /* of the row at the report's point */
    bool also;         /* shown.mass is an array of its own: the first reading weighs each group twice */
    bool apart;        /* the point shows another row than is sampled: without mask and edits */
    uint32_t top_first; /* likeliest tokens that fast.cuh's candidates should hold for the report */
    bool listed;       /* fast.cuh's candidates are all tokens from the least of them up, and are still there */
    float best;        /* the largest logit of the row that was sampled */
    uint64_t shown_mass; /* the mass at the report's point, if the draw has found it; else 0 */
};
/* The request of raffle_verify that a row belongs to, and its drafts. */
struct row_home {
    int64_t request, first, count;
    bool here;  /* the row is one of them: offsets may be wrong. And it is looked at */
    bool alone; /* only target rows are: the request is greedy, and its drafts' rows say nothing */
};
/* A token of a row of raffle_verify whose tickets are wanted, and where they go. */
struct row_ask {
    int32_t token; /* below 0: none */
    bool draws;    /* what the row itself gives is wanted, too */
    bool done;     /* whoever finished the row has answered */
    uint8_t listed; /* how many candidates fast_few has left by id; 0: it did not finish the row */
    float logit;   /* the token's, of a row with filters */
    uint64_t *tickets;
};
/* And of a type that is TOLD. */
template <int wanted> struct row_told {};
template <> struct row_told<1> {
    int asks;      /* as in cut.h */
    answer told;   /* what was drawn */
    row_home home; /* of a row of raffle_verify */
};
/* And of one that is ASKED. */
template <int wanted> struct row_asked {};
template <> struct row_asked<1> {
    row_ask ask;
};
/* And of one that is INDEXED. */
template <int wanted> struct row_shared {};
template <> struct row_shared<1> {
    bool followed; /* by results of the same row */
};
/* And of a type that has SUMS. */
template <int wanted> struct row_sums {};
template <> struct row_sums<1> {
    bool may_sum;   /* sums are wanted of parts that look flat */
    int32_t spread; /* above 0: the block's part does, and the rest is known; counted of any row that is weighed for filters */
    uint64_t *flat; /* groups in parts of the row that do */
    int section;    /* groups that have sums together */
    uint64_t *sums; /* of the row's first section */
    int32_t *heads;
};
/* And of one that is TEAMED. */
template <int wanted> struct row_team {};
template <> struct row_team<1> {
    row_order order; /* what the block is to read */
};
template <class type> struct work;

/* Tokens as integers: the larger is better, of equal logits the lowest id; 0 is none. */
__device__ __forceinline__ uint64_t token_key(float x, int64_t id) { return (uint64_t)order_of(x) << 32 | (uint32_t)~id; }
__device__ __forceinline__ float key_logit(uint64_t key) { return key ? float_of_order((uint32_t)(key >> 32)) : MINUS_INF; }
__device__ __forceinline__ int32_t key_token(uint64_t key) { return (int32_t)~(uint32_t)key; }

/* ---- one group ---------------------------------------------------------------------------------------- */

/* The sum of a group's weights, of which `peak` is the largest logit. Where its reference is not the usual one, whoever finishes
 * the row knows, and does not use them. */
template <int linear> __device__ __forceinline__ void record_weigh(const records &to, int g, const float x[LANE_TOKENS], float peak) {
    const uint64_t sum = group_sum(lane_weigh<linear>(x, ref_usual<linear>(to.by, peak)));
    if (threadIdx.x % WARP == 0) __stcg(to.mass + g, sum);
}

/* The maximum of a piece in all its lanes, `most` being each lane's; NaN if one is. */
__device__ __forceinline__ float piece_peak(float most) {
#pragma unroll
    for (int step = 1; step < PIECE_LANES; step <<= 1) most = max_or_nan(most, __shfl_xor_sync(ALL_LANES, most, step));
    return most;
}
/* The same for a last group that is cut short, where all others take a token to be in lane token % 32 (lane_read), but these
 * lanes have neighbours: the lanes that have tokens of a piece are those of equal lane % 4, or lane / 2 % 4 for f32. */
template <class type> __device__ __forceinline__ float piece_peak_cut(float most) {
    enum { NEAR = type::BYTES == 4 ? 1 : 4 };
    most = max_or_nan(most, __shfl_xor_sync(ALL_LANES, most, NEAR));
    most = max_or_nan(most, __shfl_xor_sync(ALL_LANES, most, 8));
    most = max_or_nan(most, __shfl_xor_sync(ALL_LANES, most, 16));
    return __shfl_sync(ALL_LANES, most, threadIdx.x % WARP / PIECE_LANES * (type::BYTES / 2));
}
/* The maximum of a group in all lanes; a NaN is the largest key. Here keys are signed, two instructions instead of three, and
 * -0 is below +0, which nobody can tell. */
__device__ __forceinline__ float group_peak(float most) {
    const int32_t bits = (int32_t)bits_of(most), key = warp_most(bits ^ (bits >> 31 & INT32_MAX));
    return float_of((uint32_t)(key ^ (key >> 31 & INT32_MAX)));
}

/* Leaves the maxima of a group, `most` being each lane's. Returns the group's, if there are weights. */
template <bool pieces, bool weights> __device__ __forceinline__ float record_peaks(const records &to, int g, float most) {
    const int lane = threadIdx.x % WARP;
    if (pieces) {
        const float piece = piece_peak(most);
        if (lane % PIECE_LANES == 0) __stcg(to.peak + g * PIECES + lane / PIECE_LANES, piece);
        if (!weights) return MINUS_INF;
    }
    const float peak = group_peak(most);
    if (!pieces && lane == 0) __stcg(to.peak + g, peak);
    return peak;
}

/* Leaves the record of a group whose logits are in the lanes of a warp, `most` being each lane's maximum. It is
 * wrong if there is a NaN: rare, and done again by groups_redo. Returns the group's maximum, if there are weights. */
template <bool pieces, bool weights, int linear = 0>
__device__ __forceinline__ float record_make(const records &to, int g, const float x[LANE_TOKENS], float most) {
    const float peak = record_peaks<pieces, weights>(to, g, most);
    if (weights) record_weigh<linear>(to, g, x, peak);
    return peak;
}

/* ---- many groups -------------------------------------------------------------------------------------- */

/* The groups of an aligned row that lanes can load 16 bytes at a time: all, or all but a last one in whose midst a load would
 * end. */
template <class type> __device__ __forceinline__ int groups_loadable(int64_t vocab) {
    enum { AT_ONCE = 16 / type::BYTES };
    return (int)((vocab + (vocab % AT_ONCE ? 0 : GROUP - 1)) / GROUP);
}

/* A warp's loads in flight: its next groups g, g + 8, ... of an aligned row without a mask. */
template <class type, int groups = 8 / type::BYTES> struct flight {
    enum { GROUPS = groups, WORDS = type::BYTES / 2, STEP = GROUP * type::BYTES * BLOCK_WARPS };
    lane_raw<type> raw[GROUPS];
    const char *at; /* the lane's tokens in the first of them */
    int g, whole, end; /* below `whole` no group is cut short */
    /* end - g; one less for words of the last group that are past the end of the row. The compiler does not know that most lanes
     * have the same, and compares in one instruction. */
    int room[WORDS];

    __device__ __forceinline__ void aim(const char *logits, int64_t vocab, int first, int last) {
        const int lane = threadIdx.x % WARP;
        const int64_t left = vocab - (last - 1) * (int64_t)GROUP; /* tokens of the last group */
#pragma unroll
        for (int w = 0; w < WORDS; ++w) room[w] = last - first - (lane_token<type>(true, lane, w * (16 / type::BYTES)) >= left);
        end = __shfl_sync(ALL_LANES, last, 0); /* tells the compiler that a warp stays together */
        whole = __shfl_sync(ALL_LANES, last - (left < GROUP), 0);
        g = __shfl_sync(ALL_LANES, first, 0);
        at = logits + g * (int64_t)GROUP * type::BYTES + lane * 16;
    }
    __device__ __forceinline__ void load(int i, int ahead) {
        const uint4 *from = (const uint4 *)(at + (i + ahead) * STEP);
#pragma unroll
        for (int w = 0; w < WORDS; ++w) load_once_if(room[w] > (i + ahead) * BLOCK_WARPS, from + w * WARP, &raw[i].word[w]);
    }
    __device__ __forceinline__ void start(const char *logits, int64_t vocab, int first, int last) {
        aim(logits, vocab, first, last);
        const lane_raw<type> nothing = {};
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            raw[i] = nothing;
            load(i, 0);
        }
    }
    /* What comes next, in the place of the i-th. Where there is none the old stays, and is not looked at. */
    __device__ __forceinline__ void next(int i) { load(i, GROUPS); }
    /* The i-th group may be the last: makes -inf of what is past its end. */
    __device__ __forceinline__ void trim(int i) {
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            if (room[w] <= i * BLOCK_WARPS) raw[i].word[w] = make_uint4(type::MINUS_INFS, type::MINUS_INFS, type::MINUS_INFS, type::MINUS_INFS);
    }
    /* What edit.cuh has more to say of in its own flight: whether groups are also recorded as they came; and the i-th before it is
     * looked at otherwise. */
    enum { APART = 0 };
    __device__ __forceinline__ void ready(int) {}
    __device__ __forceinline__ void advance(int by = GROUPS) {
        g += by * BLOCK_WARPS;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) room[w] -= by * BLOCK_WARPS;
        at += by * STEP;
    }
    /* The next group takes the place of the first. */
    __device__ __forceinline__ void shift() {
#pragma unroll
        for (int i = 1; i < GROUPS; ++i) raw[i - 1] = raw[i];
        advance(1);
    }
};

/* Records of a few groups of a warp, which its lanes keep until they are stored together: lane i the sum of the i-th, and its
 * maximum, or the lanes i, 8 + i, 16 + i, 24 + i those of its pieces. */
enum { WEIGH_NOT, WEIGH, WEIGH_ABOUT };
template <bool pieces, int weights, bool also> struct batch {
    float peak;
    split_sum sum, shown;

    __device__ __forceinline__ void start() { peak = MINUS_INF; }
    /* `cut`: the group is cut short. */
    template <class type>
    __device__ __forceinline__ void add(int i, const lane_raw<type> &raw, bool cut, const records &to, const records &at) {
        const int lane = threadIdx.x % WARP;
        const float most = raw_peak(raw);
        if (pieces) {
            const float piece = cut ? piece_peak_cut<type>(most) : piece_peak(most);
            if (lane % PIECE_LANES == i) peak = piece;
        }
        if (!weights) return;
        const float top = group_peak(most);
        if (!pieces && lane == i) peak = top;
        if constexpr (weights == WEIGH_ABOUT) {
            const split_sum about = raw_estimate(raw, to.by, top);
            if (lane == i) sum = about;
            return;
        }
        const split_sum own = group_sum_split(raw_weigh(raw, ref_usual<type::LINEAR>(to.by, top)));
        if (lane == i) sum = own;
        if (also) {
            const split_sum other = group_sum_split(raw_weigh(raw, ref_usual<type::LINEAR>(at.by, top)));
            if (lane == i) shown = other;
        }
    }
    /* Of groups g, g + 8, ... below `end`. Returns this lane's maximum: NaN if there was one. */
    __device__ __forceinline__ float store(const records &to, const records &at, int g, int end) const {
        const int lane = threadIdx.x % WARP, of_piece = g + lane % PIECE_LANES * BLOCK_WARPS, own = g + lane * BLOCK_WARPS;
        if (pieces && of_piece < end) __stcg(to.peak + of_piece * PIECES + lane / PIECE_LANES, peak);
        if (weights && own < end) {
            if (!pieces) __stcg(to.peak + own, peak);
            __stcg(to.mass + own, weights == WEIGH_ABOUT ? estimate_weight(sum, to.by, peak) : split_join(sum));
            if (also) __stcg(at.mass + own, split_join(shown));
        }
        return peak;
    }
};

/* What groups_weigh has met: a NaN; one in what came, of rows apart. Records are then wrong, and made again. */
enum { MET_NAN = 1, MET_NAN_RAW = 2 };

/* The loop that most logits go through. `spread`: NULL, or where groups add how flat they are (sums.cuh). `also`: weighs each group once
 * more, for `shown`; of rows apart, `shown` has the records of groups as they came. */
template <bool pieces, int weights, bool also = false, class loads>
__device__ __forceinline__ int groups_weigh(loads &f, const records &to, const records &shown, int32_t *spread = nullptr) {
    enum { GROUPS = loads::GROUPS };
    const bool any = f.g < f.end;
    float all = MINUS_INF, all_raw = MINUS_INF;
    int last = GROUPS; /* groups in the last batch */
    batch<pieces, weights, also> b;
    batch<true, true, false> raw;
    for (; f.g + (GROUPS - 1) * BLOCK_WARPS < f.whole; f.advance()) {
        const int end = f.g + GROUPS * BLOCK_WARPS;
        b.start();
        raw.start();
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            if (loads::APART) raw.add(i, f.raw[i], false, shown, shown);
            f.ready(i);
            b.add(i, f.raw[i], false, to, shown);
            f.next(i);
        }
        all = max_or_nan(all, b.store(to, shown, f.g, end));
        if (loads::APART) all_raw = max_or_nan(all_raw, raw.store(shown, shown, f.g, end));
    }
    if (f.g < f.end) { /* the last few */
        const int first = f.g;
        b.start();
        raw.start();
        last = (f.end - f.g + BLOCK_WARPS - 1) / BLOCK_WARPS;
#pragma unroll 1
        for (int i = 0; f.g < f.end; ++i, f.shift()) {
            const bool cut = f.g >= f.whole;
            f.trim(0);
            if (loads::APART) raw.add(i, f.raw[0], cut, shown, shown);
            f.ready(0);
            b.add(i, f.raw[0], cut, to, shown);
        }
        all = max_or_nan(all, b.store(to, shown, first, f.end));
        if (loads::APART) all_raw = max_or_nan(all_raw, raw.store(shown, shown, first, f.end));
    }
    if (spread && any && (int)threadIdx.x % WARP < last) atomicAdd(spread, (int32_t)b.sum.high - SPREAD_FLAT);
    return (all != all ? MET_NAN : 0) | (all_raw != all_raw ? MET_NAN_RAW : 0);
}

/* Leaves a warp's best token, or the better of it and the one it left before. */
__device__ __forceinline__ void warp_best(row_job *k, uint64_t of_lane, bool before) {
    const uint64_t of_warp = warp_max_wide(of_lane);
    if (threadIdx.x % WARP) return;
    uint64_t *best = k->best_of_warp + threadIdx.x / WARP;
    *best = max(before ? *best : 0, of_warp);
}

/* groups_weigh for greedy rows: each lane remembers the tokens that hold its best. */
template <class type, class loads> __device__ __forceinline__ bool groups_best(loads &f, row_job *k) {
    enum { GROUPS = loads::GROUPS };
    const int lane = threadIdx.x % WARP;
    lane_raw<type> kept;
    float all = MINUS_INF, most_kept = MINUS_INF;
    int g_kept = -1;
    for (; f.g < f.end; f.advance()) {
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            const int now = f.g + i * BLOCK_WARPS;
            if (now >= f.end) break;
            f.trim(i);
            f.ready(i);
            const float most = raw_peak(f.raw[i]);
            all = max_or_nan(all, most);
            if (most > most_kept) {
                most_kept = most;
                g_kept = now;
                kept = f.raw[i];
            }
            f.next(i);
        }
    }
    uint64_t best = 0;
    if (g_kept >= 0) {
        float x[LANE_TOKENS];
        int first = 0;
        raw_values(kept, x);
#pragma unroll
        for (int j = LANE_TOKENS - 1; j >= 0; --j)
            if (x[j] == most_kept) first = j;
        best = token_key(most_kept, g_kept * (int64_t)GROUP + lane_token<type>(true, lane, first));
    }
    warp_best(k, best, false);
    return all != all;
}

/* Groups g, g + 8, ... below `end`, whatever they are, NaN counting as -inf: rows that are masked or misaligned, the
 * partial group at the end, and groups that have a NaN. `before`: others are done. Returns
 * whether there was a NaN. Arguments are few and in shared memory: what a call needs on the stack, every thread puts
 * there, whether it calls or not. */
template <class type> static __device__ __noinline__ bool groups_redo(row_job *k, int g, int end, bool before) {
    __builtin_assume(__isShared(k));
    const device_row row = k->row;
    const records to = k->to;
    const int lane = threadIdx.x % WARP;
    uint64_t best = 0;
    bool nan = false;
    for (; g < end; g += BLOCK_WARPS) {
        float x[LANE_TOKENS], most = MINUS_INF;
        if (g + PREFETCH * BLOCK_WARPS < end) group_prefetch<type>(row, g + PREFETCH * BLOCK_WARPS, lane);
        lane_read<type>(row, g, lane, x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            nan |= x[j] != x[j];
            x[j] = v_max(x[j], MINUS_INF);
            most = v_max(x[j], most);
            if (to.greedy) best = max(best, token_key(x[j], lane_id<type>(row, g, lane, j)));
        }
        if (to.greedy) continue;
        float peak = MINUS_INF;
        if (!to.weights) record_make<true, false>(to, g, x, most);
        else if (to.pieces) peak = record_make<true, true, type::LINEAR>(to, g, x, most);
        else peak = record_make<false, true, type::LINEAR>(to, g, x, most);
        if constexpr (type::REQUESTED) {
            const work<type> *wish = static_cast<work<type> *>(k);
            if (wish->also) record_weigh<0>(wish->shown, g, x, peak);
        }
    }
    if (to.greedy) warp_best(k, best, before);
    return nan;
}

#if CUT_MORE
/* The same for rows `apart`, as they came: the records for the report. */
template <class type> static __device__ __noinline__ void groups_raw(work<type> *k, int g, int end) {
    __builtin_assume(__isShared(k));
    device_row row = k->row;
    const records shown = k->shown;
    row.allow = nullptr;
    row.patch = nullptr;
    for (; g < end; g += BLOCK_WARPS) {
        float x[LANE_TOKENS], most = MINUS_INF;
        lane_read<type>(row, g, threadIdx.x % WARP, x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            x[j] = v_max(x[j], MINUS_INF);
            most = v_max(x[j], most);
        }
        record_make<true, true>(shown, g, x, most);
    }
}
#endif

/* The whole groups of a warp. */
template <class type> __device__ __forceinline__ bool groups_first(row_job *k, flight<type> &f) {
    const records to = k->to;
    if constexpr (type::REQUESTED) {
        const work<type> *wish = static_cast<work<type> *>(k);
        const records shown = wish->shown;
        if (wish->also) return groups_weigh<true, true, true>(f, to, shown);
    }
    if (to.greedy) return groups_best<type>(f, k);
    if (!to.weights) return groups_weigh<true, false>(f, to, to);
    if constexpr (type::ABOUT)
        if (to.about) return groups_weigh<false, WEIGH_ABOUT>(f, to, to);
    if (!to.pieces) return groups_weigh<false, WEIGH>(f, to, to);
    if constexpr (type::SUMS) return groups_weigh<true, true>(f, to, to, &static_cast<work<type> *>(k)->spread);
    return groups_weigh<true, true>(f, to, to);
}

/* A block's part of a row as it came, its warps taking turns. `f` has been started if the row is `plain`; `rest` says which groups,
 * from the warp's first to the end, if the loops below leave any. Returns whether there was a NaN. */
template <class type, class range> __device__ __forceinline__ bool groups_read(row_job *k, flight<type> &f, bool plain, range rest) {
    bool again = true;
    int whole = 0;
    if (plain) {
        again = __any_sync(ALL_LANES, groups_first<type>(k, f)); /* there was a NaN */
        whole = f.end;
    }
    const int2 groups = rest();
    int g = groups.x;
    if (!again && g < whole) g += (whole - g + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS;
    if (g >= groups.y) return false;
    return groups_redo<type>(k, g, groups.y, !again);
}

#endif
