/* verify_propose.cuh - tokens that are proposed in place of a rejected draft, in the second kernel of raffle_verify (verify_left.cuh).
 * Where the target's row has no cut, nothing is read to know what the draft leaves over of it: tokens are drawn from the row, each kept with
 * the probability 1 - q / p, until one is. Warps try one each at the same time; the first in their order that is kept counts. */
#ifndef RAFFLE_CUDA_VERIFY_PROPOSE_CUH
#define RAFFLE_CUDA_VERIFY_PROPOSE_CUH

#include "verify_over.cuh"

/* What a proposal comes to: its number, and the token if it is kept, or that estimates do not say. The smallest counts. */
enum : uint32_t { FOUND_UNSURE = RAFFLE_VOCAB_MAX, FOUND_NUMBER = 2 * RAFFLE_VOCAB_MAX };
static_assert((uint64_t)PROPOSALS * FOUND_NUMBER < FOUND_NOTHING, "they fit");
__device__ __forceinline__ uint32_t found_key(uint32_t number, uint32_t said) { return number * FOUND_NUMBER + said; }

/* ---- a group ---------------------------------------------------------------------------------------------------- */

/* Eight tokens a lane of a group, in the order of their ids: what they weigh, and how that becomes tickets. */
struct run_weights {
    group_ref by;
    float x[LANE_TOKENS];
    uint32_t weight[LANE_TOKENS];
    uint64_t before, own, all; /* of lower lanes, of this one, of all */
};
template <class type> __device__ __forceinline__ void run_load(const left_row &row, int g, run_weights *w) {
    run_read<type>(row.row, g * (int64_t)GROUP + threadIdx.x % WARP * LANE_TOKENS, w->x);
}
/* Under any reference, token by token: this runs once, if at all, and then waits for its instructions. */
__device__ __forceinline__ void run_weigh_any(const ref &by, run_weights *w) {
#pragma unroll 1
    for (int n = 0; n < LANE_TOKENS; ++n) {
        const float x = w->x[0];
        const uint32_t weight = x > MINUS_INF ? weigh_one(x, by) : 0;
#pragma unroll
        for (int j = 1; j < LANE_TOKENS; ++j) w->x[j - 1] = w->x[j], w->weight[j - 1] = w->weight[j]; /* an index that changes would put them */
        w->x[LANE_TOKENS - 1] = x;                                                                    /* onto the stack */
        w->weight[LANE_TOKENS - 1] = weight;
    }
}
__device__ __forceinline__ void run_weigh(const left_row &row, float peak, run_weights *w) {
    const bool some = may_hold(row.law, peak) && (!row.near || peak >= row.scale.best - row.scale.by.drop);
    if (row.near) {
        w->by = group_ref_near(row.scale, peak);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) w->weight[j] = weigh_usual<0>(w->x[j], w->by.ref);
    } else {
        w->by = group_ref_any(&row.law.by, peak);
        run_weigh_any(w->by.ref, w);
    }
    w->own = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) w->own += w->weight[j] = some && w->x[j] > MINUS_INF ? w->weight[j] : 0;
    const uint64_t through = warp_through(w->own);
    w->before = through - w->own;
    w->all = __shfl_sync(ALL_LANES, through, WARP - 1);
}

/* The tickets of token `id` of that group: where they begin, in a row without a cut, and how many. By one warp. */
struct ticket_range {
    uint64_t first, count;
};
__device__ __forceinline__ ticket_range run_tickets(const run_weights &w, const row_law &law, int32_t id) {
    const int place = id % LANE_TOKENS, lane = id % GROUP / LANE_TOKENS;
    uint64_t before = w.before;
    uint32_t weight = 0;
    float x = MINUS_INF;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        before += j < place ? w.weight[j] : 0;
        if (j == place) weight = w.weight[j], x = w.x[j];
    }
    before = __shfl_sync(ALL_LANES, before, lane);
    weight = __shfl_sync(ALL_LANES, weight, lane);
    x = __shfl_sync(ALL_LANES, x, lane);
    const group_ref &by = w.by;
    ticket_range t = {before << by.left, law.whole || cut_keeps(law.kept, x, id) ? group_tickets(&by, weight) : 0};
    if (law.whole && by.right) {
        const uint32_t right = min(by.right, 40u); /* bits that the weights of a group have at most */
        const uint64_t begins = (before + (1ull << right) - 1) >> right, ends = w.all >> right;
        t.first = begins < ends ? begins : ends;
        t.count = tickets_share(before, weight, right, ends);
    }
    return t;
}

/* The token that holds ticket `number` of that group, of a row without a cut. By one warp. */
__device__ __forceinline__ int32_t run_holder(const run_weights &w, int g, uint64_t number) {
    uint64_t left = weight_of(number, w.by.below) - w.before;
    const uint32_t holds = __ballot_sync(ALL_LANES, left < w.own); /* of lower lanes it is beyond all, of higher ones as if negative */
    int token = 0;
#pragma unroll
    for (int j = 0; j + 1 < LANE_TOKENS; ++j)
        if (token == j && left >= w.weight[j]) left -= w.weight[j], token = j + 1;
    if (!holds) return RULE_NO_TOKEN; /* logits that change under the kernel may leave a ticket without a holder */
    const int from = __ffs(holds) - 1;
    return g * GROUP + from * LANE_TOKENS + __shfl_sync(ALL_LANES, token, from);
}

/* Between which numbers the tickets of one token are: two apart where several weights make a ticket, since whose it is depends on the others of
 * the group. `peak` is the group's maximum. */
struct ticket_bounds {
    uint64_t least, most;
};
__device__ __forceinline__ ticket_bounds token_tickets(const left_row &row, float peak, float x, int32_t id) {
    const row_law &law = row.law;
    const bool some = may_hold(law, peak) && (!row.near || peak >= row.scale.best - row.scale.by.drop) && x > MINUS_INF;
    const group_ref by = row.near ? group_ref_near(row.scale, peak) : group_ref_any(&law.by, peak);
    ticket_bounds t = {0, 0};
    if (some && (law.whole || cut_keeps(law.kept, x, id))) {
        const uint32_t weight = weigh_one(x, by.ref);
        t.least = t.most = group_tickets(&by, weight);
        if (law.whole && by.right && weight) {
            ++t.most;
            if (t.least) --t.least; /* the group's last tickets may be one too few */
        }
    }
    return t;
}

/* A lane's eight tokens of a group as they are loaded, if the row is plain and the group whole; and the i-th token of the group. */
template <class type> __device__ __forceinline__ lane_raw<type> run_raw(const left_row &row, int g) {
    const uint4 *from = (const uint4 *)group_at<type>(row.row, g) + threadIdx.x % WARP * (type::BYTES / 2);
    lane_raw<type> raw;
#pragma unroll
    for (int i = 0; i < type::BYTES / 2; ++i) raw.word[i] = load_once(from + i);
    return raw;
}
template <class type> __device__ __forceinline__ float run_token(const lane_raw<type> &raw, int i) {
    return __shfl_sync(ALL_LANES, raw_value<type>(raw, i % LANE_TOKENS), i / LANE_TOKENS);
}

/* ---- stretches --------------------------------------------------------------------------------------------------- */

/* The tickets of a group of the target: by its record, which is a weight, or if they are `counted` the tickets themselves. */
__device__ __forceinline__ uint64_t held_by(const left_job &k, int g) {
    const uint64_t mass = __ldcg(k.target.mass + g);
    return k.counted ? mass : fast_tickets(k.target.scale, peak_at(k.target.peak, k.target.law, g), mass);
}

/* Leaves the tickets of each group of the target's row, unless they are many, and those up to the end of each stretch: two groups a thread. By
 * all threads. */
__device__ __forceinline__ void stretches_add(left_job *job) {
    enum { OWN = 2, LANES = STRETCH / OWN };
    left_job &k = *job;
    uint64_t before = 0, all;
#pragma unroll 1
    for (int first = 0; first < k.groups; first += OWN * BLOCK_THREADS) {
        const int g = first + OWN * (int)threadIdx.x;
        uint64_t one = held_by(k, min(g, k.groups - 1)), two = held_by(k, min(g + 1, k.groups - 1));
        if (g >= k.groups) one = 0;
        if (g + 1 >= k.groups) two = 0;
        const uint64_t lower = fast_before(one + two, k.of_warp[0][0], &all);
        if (g + 1 < HELD_GROUPS) *(ulonglong2 *)(k.held + g) = make_ulonglong2(one, two);
        if (threadIdx.x % LANES == LANES - 1 && g < RAFFLE_VOCAB_MAX / GROUP) k.up_to[g / STRETCH] = before + lower + one + two;
        before += all;
        __syncthreads();
    }
}

/* The exact tickets of the groups of a stretch that is estimated, lane i those of the i-th. Its row is plain. By one warp; rare. */
template <class type> static __device__ __noinline__ uint64_t stretch_weigh(const left_job *job, int stretch) {
    __builtin_assume(__isShared(job));
    const left_job &k = *job;
    const left_row &row = k.target;
    const int lane = threadIdx.x % WARP, first = stretch * STRETCH, whole = (int)(row.row.vocab / GROUP);
    const float peaks = __ldcg(row.peak + min(first + lane, k.groups - 1));
    lane_raw<type> raw[STRETCH] = {};
    uint64_t own = 0;
#pragma unroll
    for (int i = 0; i < STRETCH && whole > 0; ++i) raw[i] = raw_load<type>(group_at<type>(row.row, min(first + i, whole - 1)), true, lane);
#pragma unroll 1
    for (int i = 0; i < STRETCH; ++i) {
        const float peak = __shfl_sync(ALL_LANES, peaks, i);
        uint64_t all = group_sum(raw_weigh(raw[0], ref_usual<0>(row.scale.by, peak)));
        if (first + i >= whole) { /* cut short, or behind the last */
            run_weights w;
            run_load<type>(row, min(first + i, k.groups - 1), &w);
            run_weigh(row, peak, &w);
            all = first + i < k.groups ? w.all : 0;
        }
        if (lane == i) own = fast_tickets(row.scale, peak, all);
#pragma unroll
        for (int j = 1; j < STRETCH; ++j) raw[j - 1] = raw[j];
    }
    return own;
}

/* ---- a proposal ------------------------------------------------------------------------------------------------------ */

/* Whether a token is one that leaves nothing because it is known: of a greedy draft, or a sibling that was tried. */
__device__ __forceinline__ bool token_known(const left_job &k, int32_t token) {
    if (k.own.mass) return token == k.own.law.token;
    bool known = false;
#pragma unroll 1
    for (int i = threadIdx.x % WARP; i < k.w.count; i += WARP) known |= follows(k.w.parent, i, k.item.node) && k.w.token[i] == token;
    return __any_sync(ALL_LANES, known);
}

/* Whether a token is kept, of which the draft has between these tickets: 1, 0, or -1 if that does not say. */
__device__ __forceinline__ int token_kept(const left_job &k, uint64_t keep, uint64_t tickets, const ticket_bounds &s) {
    const bool about = k.target.law.about || k.own.law.about;
    int kept[2];
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
        const chances c = {tickets, k.target.law.mass, i ? s.most : s.least, k.own.law.mass};
        kept[1] = about ? proposal_settles(keep, c, ESTIMATE_RATIO_ERROR) : proposal_kept(keep, c);
        if (s.least == s.most) return kept[1];
        if (i == 0) kept[0] = kept[1];
    }
    return kept[0] == kept[1] ? kept[0] : -1;
}

/* The same for what the draft really has, where bounds did not say. By one warp; rare. */
template <class draft> static __device__ __noinline__ int token_kept_exactly(const left_job *job, uint64_t keep, uint64_t tickets, int32_t token) {
    __builtin_assume(__isShared(job));
    const left_job &k = *job;
    run_weights w;
    run_load<draft>(k.own, token / GROUP, &w);
    run_weigh(k.own, peak_at(k.own.peak, k.own.law, token / GROUP), &w);
    const uint64_t own = run_tickets(w, k.own.law, token).count;
    return token_kept(k, keep, tickets, ticket_bounds{own, own});
}

/* Where a draw falls: the stretch, and of its groups the one that holds number `within` of 2^64; how many tickets lie before that group, in all,
 * and the number in it. `own`: lane i has the tickets of the i-th. Returns false if there are none. By one warp. */
struct stretch_place {
    int g;
    uint64_t before, all, number, held; /* held: by the group */
};
__device__ __forceinline__ bool stretch_find(int stretch, uint64_t own, uint64_t within, stretch_place *at) {
    const uint64_t through = warp_through(own);
    at->all = __shfl_sync(ALL_LANES, through, WARP - 1);
    const uint64_t left = mul_high(within, at->all);
    const uint32_t holds = __ballot_sync(ALL_LANES, left < through);
    if (!holds) return false;
    const int holder = __ffs(holds) - 1;
    at->g = stretch * STRETCH + holder;
    at->before = __shfl_sync(ALL_LANES, through - own, holder);
    at->number = left - at->before;
    at->held = __shfl_sync(ALL_LANES, own, holder);
    return true;
}

/* The bits of proposal `number`; number 0 of a `plain` item is the row's own token. By one warp. */
struct tried_bits {
    uint64_t pick, within, keep;
};
__device__ __forceinline__ tried_bits bits_find(const left_job &k, uint32_t number) {
    const bool plain = k.item.plain;
    const uint32_t lane = threadIdx.x % WARP, step = plain ? 0 : 2 * number + (lane & 1); /* even lanes: of the draw */
    philox_pair bits = philox_step(k.w.seed, k.w.position + (plain ? (uint64_t)k.item.depth : 0), plain ? STREAM_TARGET : STREAM_PROPOSE, step);
    if (plain && k.draw_bits) bits.low = k.draw_bits[0], bits.high = k.draw_bits[1];
    return {__shfl_sync(ALL_LANES, bits.low, 0), __shfl_sync(ALL_LANES, bits.high, 0), __shfl_sync(ALL_LANES, bits.low, 1)};
}

/* Proposal number `number`: as found_key has it, or FOUND_NOTHING if its token is not kept. By one warp. */
template <class type, class draft> static __device__ __noinline__ uint32_t propose(const left_job *job, uint32_t number) {
    __builtin_assume(__isShared(job));
    const left_job &k = *job;
    const int lane = threadIdx.x % WARP, stretches = (k.groups + STRETCH - 1) / STRETCH;
    const tried_bits bits = bits_find(k, number);
    const uint64_t total = k.up_to[stretches - 1], ticket = mul_high(bits.pick, total);
    uint32_t holds = 0;
    int stretch = 0;
    for (; stretch < stretches; stretch += WARP) {
        holds = __ballot_sync(ALL_LANES, stretch + lane < stretches && ticket < k.up_to[stretch + lane]);
        if (holds) break;
    }
    if (!holds) return FOUND_NOTHING; /* only if there is no ticket */
    stretch += __ffs(holds) - 1;
    bool about = type::ABOUT && k.target.law.about;
    if (about && !whole_settles(bits.pick, stretch ? k.up_to[stretch - 1] : 0, k.up_to[stretch], total)) return found_key(number, FOUND_UNSURE);
    uint64_t own = 0;
    if (lane < STRETCH && stretch * STRETCH + lane < k.groups)
        own = k.groups <= HELD_GROUPS ? k.held[stretch * STRETCH + lane] : held_by(k, stretch * STRETCH + lane);
    /* A stretch that is estimated mostly tells the token, too: its tickets in the group are known exactly. */
    stretch_place at;
    run_weights w;
    ticket_range t;
    int32_t token;
    float own_peak, own_x;
    for (;;) {
        if (!stretch_find(stretch, own, bits.within, &at)) return FOUND_NOTHING;
        const float peak = peak_at(k.target.peak, k.target.law, at.g);
        own_peak = k.tokens ? MINUS_INF : peak_at(k.own.peak, k.own.law, at.g);
        const bool alike = !k.tokens || (int)type::BYTES == (int)draft::BYTES; /* if not, there is no row of the draft's type */
        const bool plain = alike && row_plain(k.target.row) && row_plain(k.own.row) && group_whole(k.target.row, at.g);
        lane_raw<draft> raw_own;
        if (plain) { /* both rows at once: a load under a condition of its own would be waited for */
            const lane_raw<type> raw = run_raw<type>(k.target, at.g);
            raw_own = run_raw<draft>(k.own, at.g);
            raw_values(raw, w.x);
        } else {
            run_load<type>(k.target, at.g, &w);
        }
        run_weigh(k.target, peak, &w);
        token = run_holder(w, at.g, at.number);
        if (token < 0) return FOUND_NOTHING;
        t = run_tickets(w, k.target.law, token);
        own_x = plain ? run_token<draft>(raw_own, token % GROUP) : k.tokens ? MINUS_INF : token_read_inline<draft>(k.own.row, token);
        if (!about) break;
        /* Less than two tickets a group are cut away; and the border lies in a group of which the whole is an estimate. */
        const estimate_error off = {ESTIMATE_ERROR.own, (64.0 + ESTIMATE_ERROR.own * (double)at.held) / (double)at.all};
        const double start = (double)(at.before + t.first);
        if (draw_settles((double)bits.within * 0x1p-64, start, start + (double)t.count, (double)at.all, off)) break;
        if constexpr (type::ABOUT) own = stretch_weigh<type>(job, stretch);
        about = false;
    }
    int kept = 1;
    if (k.item.plain) return found_key(number, (uint32_t)token);
    if (k.tokens) kept = !token_known(k, token);
    else kept = token_kept(k, bits.keep, t.count, token_tickets(k.own, own_peak, own_x, token));
    if (kept < 0) kept = token_kept_exactly<draft>(job, bits.keep, t.count, token);
    return kept ? found_key(number, kept < 0 ? FOUND_UNSURE : (uint32_t)token) : FOUND_NOTHING;
}

/* A proposal, unless one before it has said something. By one warp. */
template <class type, class draft> __device__ __forceinline__ void proposal_try(left_job *k, uint32_t *found, uint32_t number) {
    if (number >= (k->item.plain ? 1 : PROPOSALS)) return;
    if (__any_sync(ALL_LANES, *(volatile uint32_t *)found < found_key(number, 0))) return; /* lanes may have seen different ones */
    const uint32_t said = propose<type, draft>(k, number);
    if (said != FOUND_NOTHING && threadIdx.x % WARP == 0) atomicMin(found, said);
}

/* ---- rows whose records do not say what their groups hold ------------------------------------------------------------------ */

/* Weighs a row that was estimated. By all threads. */
template <class type> __device__ __forceinline__ void estimate_replace(left_job *k, left_row *row) {
    if constexpr (type::ABOUT) {
        const uint64_t mass = mass_weigh<type>(row->row, row->scale, row->peak, row->mass, k->groups);
        if (threadIdx.x == 0) {
            row->law.mass = mass;
            row->law.about = false;
        }
        __syncthreads();
    }
}

/* Counts the tickets of every group of a row, and of the row. By all threads. */
template <class type> static __device__ __noinline__ void tickets_count(left_job *job, left_row *counted) {
    __builtin_assume(__isShared(job));
    left_row &row = *counted;
    uint64_t mass = 0;
#pragma unroll 1
    for (int g = threadIdx.x / WARP; g < job->groups; g += BLOCK_WARPS) {
        uint64_t t[LANE_TOKENS] = {}, sum = 0;
        warp_tickets<type>(row.row, row.law, peak_at(row.peak, row.law, g), g, t);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) sum += t[j];
        sum = warp_add_wide(sum);
        if (threadIdx.x % WARP == 0) {
            __stcg(row.mass + g, sum);
            mass += sum;
        }
    }
    mass = fast_sum(mass, job->of_warp[1][0]);
    __syncthreads();
    if (threadIdx.x == 0) {
        row.law.mass = mass;
        row.sure = false;
    }
    __syncthreads();
}

#endif
