/* verify_over.cuh - what rejected drafts leave over of the groups of a row, in the second kernel of raffle_verify (verify_left.cuh). */
#ifndef RAFFLE_CUDA_VERIFY_OVER_CUH
#define RAFFLE_CUDA_VERIFY_OVER_CUH

#include "verify_rows.cuh"

/* One of the two rows of a position. */
struct left_row {
    row_law law;
    device_row row;
    float *peak; /* the records of its groups; mass NULL: there is no such row */
    uint64_t *mass;
    fast_scale<0> scale;
    bool near; /* groups that have tickets are weighed by PLAIN references */
    bool sure; /* and their records say how many */
};

typedef uint64_t pair_space[2][BLOCK_WARPS]; /* see pair_before */

enum { LEFT_ENDS = 8 };
enum { HELD_GROUPS = QUICK_GROUPS }; /* rows that are estimated have no more */
static_assert(HELD_GROUPS % 2 == 0, "two a thread");

/* What a block knows of the position whose groups it reads. In shared memory. */
struct left_job {
    left_item item;
    request_walk w;
    left_row target, own; /* own: the draft's, if there is one; it may be greedy */
    odds by;
    int groups;
    bool tokens;      /* only known tokens leave nothing: those of the draft, or the one of a greedy row */
    philox_pair bits; /* by which a token is recovered */
    float ratio;      /* what a ticket of the draft takes, in tickets of the target */
    block_space block;
    pair_space of_warp[2]; /* for two sums of pairs */
    wide rest;
    int32_t group, token;
    int64_t ends[LEFT_ENDS]; /* first items of requests that are to be ended */
    uint32_t unsure[BLOCK_WARPS]; /* groups_left_fast: what it could not do */
    bool last;
    kept_rest kept; /* of an item of that name */
    /* proposals (verify_propose.cuh) */
    bool counted;   /* records of the target's groups are their tickets, not weights */
    uint32_t found; /* what they have come to, where one block tries them */
    const uint64_t *draw_bits; /* NULL, or those of the row's own token */
    uint64_t up_to[RAFFLE_VOCAB_MAX / GROUP / STRETCH]; /* tickets up to the end of each stretch of the target's row */
    alignas(16) uint64_t held[HELD_GROUPS];             /* and of its groups, if they are no more */
};

/* ---- groups one by one, whatever they are --------------------------------------------------------------------------- */

/* Takes the tokens that are known (tried siblings, a greedy draft's) out of a lane's tickets: what they leave is nothing. */
template <class type> __device__ __forceinline__ void lane_without(const left_job &k, int g, uint64_t t[LANE_TOKENS]) {
    const int lane = threadIdx.x % WARP;
    const request_walk &w = k.w;
    const bool own = k.own.mass; /* a greedy draft row: one token */
    for (int i = own || !w.parent ? k.item.node + 1 : 0; i < w.count; ++i) {
        if (!own && !follows(w.parent, i, k.item.node)) continue;
        const int32_t token = own ? k.own.law.token : w.token[i];
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (token == lane_id<type>(k.target.row, g, lane, j)) t[j] = 0;
        if (own || !w.parent) break;
    }
}

/* The same of all tickets of group g, where those of the tokens are known; false if the group must be read for one. */
__device__ __forceinline__ bool group_without(const left_job &k, int g, uint64_t *tickets) {
    const request_walk &w = k.w;
    const int node = k.item.node;
    if (k.own.mass) {
        if (k.own.law.token / GROUP != g) return true;
        if (k.own.law.token != w.token[node + 1]) return false;
        *tickets -= w.tickets_t[node + 1];
        return true;
    }
    for (int i = w.parent ? 0 : node + 1; i < w.count && (w.parent || i == node + 1); ++i) {
        if (!follows(w.parent, i, node) || w.token[i] < 0 || w.token[i] >= k.target.row.vocab || w.token[i] / GROUP != g) continue;
        bool again = false; /* a token may be among siblings twice */
        for (int j = 0; j < i; ++j) again |= follows(w.parent, j, node) && w.token[j] == w.token[i];
        if (!again) *tickets -= w.tickets_t[i];
    }
    return true;
}

/* The sums of the tickets, in both rows, of tokens of group g that have something left; `peak` and `draft_peak` are its maxima. By
 * one warp. */
template <class type, class draft>
static __device__ __noinline__ ulonglong2 group_left(const left_job *k, int g, float peak, float draft_peak) {
    __builtin_assume(__isShared(k));
    const double up = wide_near(k->by.up), down = wide_near(k->by.down);
    const double over = down * (1.0 + 0x1p-48), under = down * (1.0 - 0x1p-48);
    uint64_t t[LANE_TOKENS] = {}, s[LANE_TOKENS] = {}, sum_t = 0, sum_s = 0;
    if (warp_tickets<type>(k->target.row, k->target.law, peak, g, t)) {
        if (k->tokens) lane_without<type>(*k, g, t);
        else warp_tickets<draft>(k->own.row, k->own.law, draft_peak, g, s);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const double x = (double)t[j] * up, y = (double)s[j];
            bool left = x > y * over;
            if (!left && x > y * under && t[j]) left = odds_left(k->by, t[j], s[j]); /* doubles cannot tell */
            sum_t += left ? t[j] : 0;
            sum_s += left ? s[j] : 0;
        }
    }
    return make_ulonglong2(warp_add_wide(sum_t), warp_add_wide(sum_s));
}

/* ---- the usual groups -------------------------------------------------------------------------------------------------- */

/* Makes of a lane's weights their tickets, where several weights, 2^right, make a ticket: whose it is depends on the weights of all
 * ids before. False if 32 bits are too few for those of a lane. */
template <class type> __device__ __forceinline__ bool lane_shares(uint32_t w[LANE_TOKENS], uint32_t right) {
    enum { RUN = type::BYTES == 2 ? LANE_TOKENS : LANE_TOKENS / 2, RUNS = LANE_TOKENS / RUN }; /* neighbours: see group.cuh */
    const int lane = threadIdx.x % WARP;
    const uint64_t unit = (1ull << right) - 1;
    uint64_t start[RUNS], sum = 0;
    bool fits = true;
#pragma unroll
    for (int r = 0; r < RUNS; ++r) {
        uint64_t own = 0;
#pragma unroll
        for (int j = 0; j < RUN; ++j) own += w[r * RUN + j];
        const split_sum part = split_make(own);
        split_sum through = part;
#pragma unroll
        for (int step = 1; step < WARP; step <<= 1) {
            const uint32_t low = __shfl_up_sync(ALL_LANES, through.low, step), high = __shfl_up_sync(ALL_LANES, through.high, step);
            if (lane >= step) {
                through.low += low;
                through.high += high;
            }
        }
        fits &= own >> right < UINT32_MAX;
        const split_sum before = {through.low - part.low, through.high - part.high};
        const split_sum of_all = {__shfl_sync(ALL_LANES, through.low, WARP - 1), __shfl_sync(ALL_LANES, through.high, WARP - 1)};
        start[r] = sum + unit + split_join(before);
        sum += split_join(of_all);
    }
    const uint64_t all = sum >> right;
#pragma unroll
    for (int r = 0; r < RUNS; ++r) { /* counted from the run's first ticket */
        const uint64_t rest = all - min(start[r] >> right, all);
        const uint32_t most = (uint32_t)min(rest, (uint64_t)UINT32_MAX);
        uint64_t through = start[r] & unit;
        uint32_t before = 0;
#pragma unroll
        for (int j = 0; j < RUN; ++j) {
            through += w[r * RUN + j];
            const uint32_t behind = min((uint32_t)(through >> right), most);
            w[r * RUN + j] = behind - before;
            before = behind;
        }
    }
    return fits;
}

/* A warp's loads of groups of an aligned row, one at a time. The row's address stays in shared memory. */
template <class type> struct group_flight {
    lane_raw<type> raw;

    __device__ __forceinline__ void load(bool yes, const device_row &row, int g) {
        const uint4 *from = (const uint4 *)group_at<type>(row, g) + threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < type::BYTES / 2; ++i) load_once_if(yes, from + i * WARP, &raw.word[i]);
    }
    __device__ __forceinline__ void start(const device_row &row, int g) {
        const lane_raw<type> nothing = {};
        raw = nothing;
        load(true, row, g);
    }
};

/* The tickets of a lane's tokens of group g, which is whole and has the maximum `peak`, in units of *unit powers of two, by PLAIN
 * references. The load of group `next` begins when the last of this one's has been looked at. */
template <class type>
__device__ __forceinline__ bool lane_tickets(group_flight<type> &f, const left_row &row, int g, float peak, bool more, int next,
                                             uint32_t t[LANE_TOKENS], uint32_t *unit) {
    const group_ref r = group_ref_near(row.scale, peak);
    const bool whole = row.law.whole;
    *unit = r.left;
    raw_weights(f.raw, r.ref, t);
    if (!whole) {
        const int lane = threadIdx.x % WARP;
        float x[LANE_TOKENS];
        raw_values(f.raw, x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (r.right >= 32 || !cut_keeps_branchless(row.law.kept, x[j], g * GROUP + lane_token<type>(true, lane, j))) t[j] = 0;
    }
    f.load(more, row.row, next);
    if (!r.right) return true;
    if (whole) return lane_shares<type>(t, r.right);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) t[j] >>= r.right & 31;
    return true;
}

/* group_left of all groups in `todo`, which are whole and weighed by PLAIN references in both rows: lane i gets the sums of group
 * base + 8 i, of which it has the maxima. The draft has tickets only in those in `both`. Numbers of
 * tickets are compared in floats, which are within 2^-22 of them, products included, and exactly where that is too near. Groups of
 * too many tickets are `unsure` afterwards. By one warp. Not a part of its caller,
 * because that calls others, which would put most of this on the stack. */
template <class type>
static __device__ __noinline__ ulonglong2 groups_left_fast(left_job *job, int base, uint32_t todo, uint32_t both, float peaks,
                                                           float draft_peaks) {
    __builtin_assume(__isShared(job));
    const left_job &k = *job;
    uint64_t left_t = 0, left_s = 0;
    const int lane = threadIdx.x % WARP;
    group_flight<type> f, h;
    uint32_t unsure = 0;
    int now = __ffs(todo) - 1;
    f.start(k.target.row, base + now * BLOCK_WARPS);
    h.start(k.own.row, base + now * BLOCK_WARPS);
    while (todo) {
        todo &= todo - 1;
        const int next = __ffs(todo) - 1, g = base + now * BLOCK_WARPS, behind = base + next * BLOCK_WARPS;
        uint32_t t[LANE_TOKENS], s[LANE_TOKENS] = {}, unit, draft_unit = 0;
        const float peak = __shfl_sync(ALL_LANES, peaks, now), draft_peak = __shfl_sync(ALL_LANES, draft_peaks, now);
        bool sure = lane_tickets<type>(f, k.target, g, peak, todo, behind, t, &unit);
        if (both >> now & 1) sure &= lane_tickets<type>(h, k.own, g, draft_peak, todo, behind, s, &draft_unit);
        else h.load(todo, k.own.row, behind);
        const float ratio = float_of(bits_of(k.ratio) + ((draft_unit - unit) << 23));
        const float over = ratio * (1.0f + 0x1p-20f), under = ratio * (1.0f - 0x1p-20f);
        uint64_t sum_t = 0, sum_s = 0;
        uint32_t near = 0; /* tokens that floats cannot tell */
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const float x = (float)t[j], y = (float)s[j];
            const bool left = x > y * over;
            if (!left & (x > y * under)) near |= 1u << j;
            sum_t += left ? t[j] : 0;
            sum_s += left ? s[j] : 0;
        }
        for (; near; near &= near - 1) { /* few lanes have any */
            const uint32_t lowest = near & (0 - near);
            uint32_t x = 0, y = 0;
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) {
                x = lowest == 1u << j ? t[j] : x;
                y = lowest == 1u << j ? s[j] : y;
            }
            const bool left = odds_left(k.by, (uint64_t)x << unit, (uint64_t)y << draft_unit);
            sum_t += left ? x : 0;
            sum_s += left ? y : 0;
        }
        __syncwarp();
        sum_t = group_sum(sum_t) << unit;
        sum_s = group_sum(sum_s) << draft_unit;
        if (lane == now) {
            left_t = sum_t;
            left_s = sum_s;
        }
        if (!__all_sync(ALL_LANES, sure)) unsure |= 1u << now;
        now = next;
    }
    if (lane == 0) job->unsure[threadIdx.x / WARP] = unsure;
    __syncwarp();
    return make_ulonglong2(left_t, left_s);
}

/* ---- a block's groups ----------------------------------------------------------------------------------------------------- */

/* What the records of a group say: whether it may have tickets, and how many if that is sure. */
struct group_look {
    float peak;
    uint64_t tickets;
    bool some;
};
__device__ __forceinline__ group_look group_look_at(const left_row &row, int g) {
    group_look look = {peak_at(row.peak, row.law, g), row.sure ? __ldcg(row.mass + g) : 0, false};
    look.some = may_hold(row.law, look.peak) && (!row.near || look.peak >= row.scale.best - row.scale.by.drop);
    if (row.sure) {
        look.tickets = look.some ? fast_tickets(row.scale, look.peak, look.tickets) : 0;
        look.some = look.tickets != 0;
    }
    return look;
}

/* Leaves for groups [first, end) of a position, in mass of both rows, the sums of the tickets of tokens that have something left; block
 * verification judges by them, so there they are added to the position's totals. By all threads: a lane looks at the records of one
 * group, a warp reads those of which they do not say all. */
template <class type, class draft> static __device__ __noinline__ void left_over(left_job *job, left_item *item, int first, int end) {
    __builtin_assume(__isShared(job));
    const left_job &k = *job;
    const int lane = threadIdx.x % WARP;
    uint64_t total_t = 0, total_s = 0;
#pragma unroll 1
    for (int base = first + (int)threadIdx.x / WARP; base < end; base += WARP * BLOCK_WARPS) {
        const int g = base + lane * BLOCK_WARPS;
        group_look t = {MINUS_INF, 0, false}, s = t;
        if (g < end) {
            t = group_look_at(k.target, g);
            if (!k.tokens) s = group_look_at(k.own, g);
        }
        const bool reads = t.some && (!k.target.sure || (k.tokens ? !group_without(k, g, &t.tickets) : s.some));
        uint64_t left_t = reads ? 0 : t.tickets, left_s = 0;
        uint32_t slow = __ballot_sync(ALL_LANES, reads);
        if constexpr (same_type<type, draft>::YES) {
            const bool plain = k.target.near && k.own.near && row_plain(k.target.row) && row_plain(k.own.row);
            const uint32_t fast = __ballot_sync(ALL_LANES, reads && plain && group_whole(k.target.row, g));
            const uint32_t both = __ballot_sync(ALL_LANES, s.some);
            slow &= ~fast;
            if (fast) {
                const ulonglong2 sums = groups_left_fast<type>(job, base, fast, both, t.peak, s.peak);
                slow |= k.unsure[threadIdx.x / WARP];
                if (fast >> lane & 1) {
                    left_t = sums.x;
                    left_s = sums.y;
                }
            }
        }
#pragma unroll 1
        for (; slow; slow &= slow - 1) {
            const int now = __ffs(slow) - 1;
            const float peak = __shfl_sync(ALL_LANES, t.peak, now), draft_peak = __shfl_sync(ALL_LANES, s.peak, now);
            const ulonglong2 sums = group_left<type, draft>(job, base + now * BLOCK_WARPS, peak, draft_peak);
            if (lane == now) {
                left_t = sums.x;
                left_s = sums.y;
            }
        }
        if (g < end) {
            __stcg(k.target.mass + g, left_t);
            if (k.own.mass) __stcg(k.own.mass + g, left_s);
        }
        total_t += left_t;
        total_s += left_s;
    }
    if (!k.item.weight) return;
    total_t = warp_add_wide(total_t);
    total_s = warp_add_wide(total_s);
    if (lane == 0 && total_t) atomicAdd((unsigned long long *)&item->total_t, (unsigned long long)total_t);
    if (lane == 0 && total_s) atomicAdd((unsigned long long *)&item->total_s, (unsigned long long)total_s);
}

#endif
