/* verify_kept.cuh - the token in place of a rejected draft, where the filters have left few tokens of its rows: those
 * that have finished them have left these in a list, so what the draft leaves over is known without reading a row
 * again, and whoever walks the request knows the token at once. */
#ifndef RAFFLE_CUDA_VERIFY_KEPT_CUH
#define RAFFLE_CUDA_VERIFY_KEPT_CUH

#include "verify.cuh"

/* Leaves the `count` candidates of a row that fast_few has finished. By all threads. */
__device__ __forceinline__ void kept_leave(kept_list *to, quick *q, int count) {
    const int own = threadIdx.x;
    if (own >= count) return;
    __stcg(to->tickets + own, few_by_id(*q)[own]);
    __stcg(to->id + own, q->sorted_id[own]);
}

/* A lane's part of a list. */
struct kept_part {
    ulonglong2 tickets[2];
    int4 id;
};
__device__ __forceinline__ kept_part kept_fetch(const kept_list *from) {
    static_assert(FEW == 4 * WARP, "four entries a lane");
    const int lane = threadIdx.x % WARP;
    const ulonglong2 *const tickets = (const ulonglong2 *)from->tickets + 2 * lane;
    return {{__ldcg(tickets), __ldcg(tickets + 1)}, __ldcg((const int4 *)from->id + lane)};
}

/* Brings those of a list's `count` entries near that hold something, and gives their number; behind them there is
 * nothing, of no token. By one warp. */
__device__ __forceinline__ int kept_bring(kept_list *near, const kept_part &part, int count) {
    const int lane = threadIdx.x % WARP;
    const uint64_t tickets[4] = {part.tickets[0].x, part.tickets[0].y, part.tickets[1].x, part.tickets[1].y};
    const int32_t id[4] = {part.id.x, part.id.y, part.id.z, part.id.w};
    uint32_t own = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        own += 4 * lane + j < count && tickets[j];
        near->tickets[j * WARP + lane] = 0;
        near->id[j * WARP + lane] = INT32_MAX;
    }
    const uint32_t through = (uint32_t)warp_through(own);
    uint32_t at = through - own;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        if (!(4 * lane + j < count && tickets[j])) continue;
        near->tickets[at] = tickets[j];
        near->id[at++] = id[j];
    }
    return (int)__shfl_sync(ALL_LANES, through, WARP - 1);
}

/* What a list that is near holds of a token: by halves. */
__device__ __forceinline__ uint64_t kept_find(const kept_list &list, int32_t id) {
    int at = 0;
#pragma unroll 1
    for (int step = FEW / 2; step; step /= 2)
        if (list.id[at + step - 1] < id) at += step;
    return list.id[at] == id ? list.tickets[at] : 0;
}

/* The tokens of a cut target row by id, and what a rejected draft may leave over of them. In shared memory. */
struct kept_rest {
    kept_list t;        /* what they hold; then what those hold that have something left */
    uint64_t left[FEW]; /* and what the draft takes of it */
    int32_t count;
};

/* Brings a target row's list near. By one warp. */
__device__ __forceinline__ void rest_bring(kept_rest *to, const kept_part &part, int count) {
    const int held = kept_bring(&to->t, part, count);
    if (threadIdx.x % WARP == 0) to->count = held;
}

/* The token in place of the draft: drawn from what is left over, as recover (verify_left.cuh) draws it; `own` is the row's, where nothing
 * is. s_of(i): what the draft's row has of the i-th token; known(id): whether nothing is left of it. Little is unrolled: this runs once,
 * and then waits for its instructions. By one warp. */
template <class tickets, class tokens>
__device__ __forceinline__ int32_t kept_draw(kept_rest &k, const odds &by, const philox_pair &bits, int32_t own, tickets s_of,
                                             tokens known) {
    const int lane = threadIdx.x % WARP, count = k.count;
    uint64_t all_t = 0, all_s = 0;
#pragma unroll 1
    for (int i = lane; i < count; i += WARP) {
        uint64_t t = known(k.t.id[i]) ? 0 : k.t.tickets[i], s = s_of(i);
        if (!odds_left(by, t, s)) t = s = 0;
        all_t += t;
        all_s += s;
        k.t.tickets[i] = t;
        k.left[i] = s;
    }
    __syncwarp();
    all_t = warp_add_wide(all_t);
    all_s = warp_add_wide(all_s);
    const wide total = odds_sum(by, all_t, all_s);
    if (wide_is_zero(total)) return own;
    const wide number = wide_share(total, bits.high, bits.low);
    uint64_t before_t = 0, before_s = 0;
#pragma unroll 1
    for (int first = 0; first < count; first += WARP) {
        const int i = first + lane;
        const uint64_t t = i < count ? k.t.tickets[i] : 0, s = i < count ? k.left[i] : 0;
        const uint64_t through_t = before_t + warp_through(t), through_s = before_s + warp_through(s);
        const uint32_t within = __ballot_sync(ALL_LANES, wide_less(number, odds_sum(by, through_t, through_s)));
        if (within) return k.t.id[first + __ffs(within) - 1]; /* the first that reaches beyond it */
        before_t = __shfl_sync(ALL_LANES, through_t, WARP - 1);
        before_s = __shfl_sync(ALL_LANES, through_s, WARP - 1);
    }
    return RULE_NO_TOKEN; /* never: it is less than the total */
}

/* A position whose draft is rejected, of which both rows have lists, or the draft's is greedy, or there is none. In shared memory, so
 * that nothing of it need be kept in registers while its token is looked for. */
struct kept_job {
    request_walk w;
    int32_t node, depth; /* the draft before the position, and drafts on the way to it */
    uint32_t flags;
    const law_head *law, *own_law; /* of the target's row, and of the draft's: the same if there is none */
    const kept_list *list, *own_list;
    bool drafts; /* there are draft rows */
    philox_pair bits;
    kept_rest rest;
    kept_list s; /* the draft's, near */
};

/* Whether a token leaves nothing because it is a draft that was tried, of which nothing else is known. */
__device__ __forceinline__ bool kept_tried(const kept_job &k, int32_t id) {
    bool tried = false;
#pragma unroll 1
    for (int i = k.w.parent ? 0 : k.node + 1; i < k.w.count && (k.w.parent || i == k.node + 1); ++i)
        tried |= follows(k.w.parent, i, k.node) && k.w.token[i] == id;
    return tried;
}

/* The token at a position. By one warp. */
static __device__ __noinline__ int32_t kept_recover(kept_job *job) {
    __builtin_assume(__isShared(job));
    kept_job &k = *job;
    const law_head law = head_fetch(k.law), other = head_fetch(k.own_law);
    const kept_part part = kept_fetch(k.list), own_part = kept_fetch(k.own_list); /* at once: a list that is none is not looked at */
    const bool lists = k.drafts && !other.greedy;
    rest_bring(&k.rest, part, law.listed);
    if (lists) kept_bring(&k.s, own_part, other.listed);
    __syncwarp();
    return kept_draw(
        k.rest, odds_make(law.mass, k.drafts ? other.mass : 1), k.bits, law.token,
        [&](int i) { return lists ? kept_find(k.s, k.rest.t.id[i]) : 0; },
        [&](int32_t id) { return lists ? false : k.drafts ? id == other.token : kept_tried(k, id); });
}

/* Notes the position behind draft `node`, which is `depth` deep. By one warp. */
__device__ __forceinline__ void kept_note(const verify_args &a, const request_walk &w, int node, int depth,
                                          uint32_t flags, kept_job *job) {
    const int64_t row = w.row_first + node + 1, own = a.draft_data ? a.rows + w.first + node + 1 : row;
    if (threadIdx.x % WARP == 0) {
        job->w = w;
        job->node = node;
        job->depth = depth;
        job->flags = flags;
        job->law = a.head + row;
        job->own_law = a.head + own;
        job->list = a.kept + row;
        job->own_list = a.kept + own;
        job->drafts = a.draft_data != nullptr;
        job->bits = recover_bits(a, w, depth);
    }
    __syncwarp();
}

#endif
