/* verify_walk.cuh - the walk of a request, by one warp: of the block that has completed its last row, in the first kernel of
 * raffle_verify. It decides by the laws and tickets that rows have left. Where a token must be recovered, and the lists of short rows do
 * not tell it (verify_kept.cuh), it leaves an item for the second kernel (verify_left.cuh). */
#ifndef RAFFLE_CUDA_VERIFY_WALK_CUH
#define RAFFLE_CUDA_VERIFY_WALK_CUH

#include "verify_kept.cuh"

/* Finds the tables of a request of which request, first and count are known; */
__device__ __forceinline__ void walk_tables(const verify_args &a, request_walk *w) {
    w->row_first = w->first + w->request;
    w->token = a.token ? a.token + w->first : nullptr;
    w->parent = a.parent ? a.parent + w->first : nullptr;
    w->law = a.head + w->row_first;
    w->draft_law = a.draft_data ? a.head + a.rows + w->first : nullptr;
    w->tickets_t = a.tickets_t + w->first;
    w->tickets_s = a.draft_data ? a.tickets_s + w->first : nullptr;
}
/* and by what it is walked. */
__device__ __forceinline__ void walk_find(const verify_args &a, request_walk *w) {
    w->slot = a.target.slot ? a.target.slot[w->request] : w->request;
    const bool known = w->slot >= 0 && w->slot < a.target.slots;
    w->seed = known ? a.seed[w->slot] : 0; /* now, not after another wait */
    w->position = known ? a.position[w->slot] : 0;
    walk_tables(a, w);
}

/* ---- what a walk looks at ---------------------------------------------------------------------------------------------- */

/* All that a request of few drafts is judged by, in shared memory: a walk is a chain of looks at it. */
enum { STAGED = 64 };
struct walk_stage {
    law_head law[STAGED + 1], draft_law[STAGED];
    uint64_t tickets_t[STAGED], tickets_s[STAGED];
    int32_t token[STAGED], parent[STAGED];
    kept_job kept;
};

/* What any law says of its row: its largest logit is `best`, and it gave `token`. */
__device__ __forceinline__ law_head head_make(float best, int32_t token, bool nan, bool empty) {
    law_head h = law_head();
    h.valid = true;
    h.empty = empty || best == MINUS_INF;
    h.flags = flags_of(best, nan) | (empty ? RULE_ROW_EMPTY : 0);
    h.token = h.empty ? (int32_t)RULE_NO_TOKEN : token;
    h.mass = 1;
    return h;
}
/* Of a greedy row. */
__device__ __forceinline__ law_head head_greedy(uint64_t best, bool nan, bool empty) {
    law_head h = head_make(key_logit(best), key_token(best), nan, empty);
    h.greedy = !h.empty;
    return h;
}
/* Of a row of wrong parameters. */
__device__ __forceinline__ law_head head_wrong() {
    law_head h = law_head();
    h.flags = RAFFLE_ROW_ARGUMENT;
    h.token = RULE_NO_TOKEN;
    return h;
}

/* Of a greedy row of the target, out of what its blocks have told; makes its state ready for the next call. */
__device__ __forceinline__ law_head head_told(row_state *state) {
    const uint64_t best = __ldcg(&state->best);
    const uint32_t told = __ldcg(&state->done);
    *state = {0, 0};
    return told & GREEDY_WRONG ? head_wrong() : head_greedy(best, told & GREEDY_NAN, false);
}

/* Those of all rows of a request. By all threads. */
__device__ __forceinline__ void heads_greedy(const verify_args &a, const request_walk &w, law_head *to) {
    for (int i = threadIdx.x; i <= w.count; i += BLOCK_THREADS) to[i] = head_told(a.state + w.row_first + i);
}

/* Past the first cache: other blocks of this kernel have written it. */
template <class item> __device__ __forceinline__ void staged(int warp, item *to, const item **from, int count) {
    static_assert(sizeof(item) % 4 == 0, "copied by words");
    if (!*from) return;
    if ((int)threadIdx.x / WARP == warp)
        for (int i = threadIdx.x % WARP; i < count * (int)(sizeof(item) / 4); i += WARP)
            ((uint32_t *)to)[i] = __ldcg((const uint32_t *)*from + i);
    *from = to;
}

/* Brings the tables near if they are short, each by another warp so that none waits for another's. By all threads. */
__device__ __forceinline__ void walk_near(const verify_args &a, request_walk *w, bool greedy, walk_stage *stage) {
    if (greedy) heads_greedy(a, *w, w->count <= STAGED ? stage->law : a.head + w->row_first);
    if (w->count <= STAGED) {
        if (greedy) w->law = stage->law;
        else staged(0, stage->law, &w->law, w->count + 1);
        staged(1, stage->draft_law, &w->draft_law, w->count);
        staged(2, stage->tickets_t, &w->tickets_t, w->count);
        staged(3, stage->tickets_s, &w->tickets_s, w->count);
        staged(4, stage->token, &w->token, w->count);
        staged(5, stage->parent, &w->parent, w->count);
    } else {
        __threadfence(); /* rare: empties the first cache, which may hold what was there before */
    }
    __syncthreads();
}

/* ---- what comes out ---------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void emit(const verify_args &a, const request_walk &w, int index, int32_t token, int32_t draft, uint32_t flags) {
    a.out[w.row_first + index] = token;
    if (a.path) a.path[w.row_first + index] = draft;
    if (a.row_flags) a.row_flags[w.row_first + index] = flags;
}

/* Notes for the report where token `index` of a request came from. */
__device__ __forceinline__ void told_note(const verify_args &a, const request_walk &w, int index, int row, int32_t token) {
#if CUT_MORE
    if (a.has_report) a.told[w.row_first + index] = {row, token};
#endif
}

/* The token that ends a request, behind `count` drafts, out of its row `row` (-1: none), and nothing behind it. By one warp. */
__device__ __forceinline__ void emit_last(const verify_args &a, const request_walk &w, int count, int32_t token, int row, uint32_t flags) {
    const int lane = threadIdx.x % WARP;
    if (lane == 0) told_note(a, w, count, row, token);
    if (flags & RULE_ROW_EMPTY) {
        token = a.empty_token;
#if CUT_MORE
        if (a.target.extra && a.target.extra[w.slot].flags & RAFFLE_EMPTY_IS_ZERO) token = 0;
#endif
    }
    if (lane == 0) {
        emit(a, w, count, token, -1, flags);
        a.accepted[w.request] = count;
        if (a.last) a.last[w.request] = token;
    }
    for (int i = count + 1 + lane; i <= w.count; i += WARP) {
        emit(a, w, i, RULE_NO_TOKEN, -1, 0);
        told_note(a, w, i, -1, RULE_NO_TOKEN);
    }
}

/* ---- the walk ------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ uint64_t accept_bits(const verify_args &a, const request_walk &w, int node, int depth) {
    if (a.accept_bits) return a.accept_bits[w.row_first + node + 1];
    return philox_step(w.seed, w.position, STREAM_ACCEPT, (uint32_t)depth).low;
}

/* The next draft behind `node` from `from` on that may be looked at, or -1. Ids outside the vocabulary end like -1. */
__device__ __forceinline__ int next_child(const verify_args &a, const request_walk &w, int node, int from) {
    if (!w.parent && from <= node) from = node + 1;
    for (int i = from; i < w.count && (w.parent || i == node + 1); ++i)
        if (follows(w.parent, i, node) && w.token[i] >= 0 && w.token[i] < a.vocab) return i;
    return -1;
}

/* RAFFLE_ROW_ARGUMENT if an id that follows `node` is outside the vocabulary, or for the request's first row, if a parent is none: no
 * draft, but not silently. */
__device__ __forceinline__ uint32_t child_flags(const verify_args &a, const request_walk &w, int node) {
    for (int i = w.parent ? 0 : node + 1; i < w.count && (w.parent || i == node + 1); ++i) {
        const bool lost = node < 0 && w.parent && (w.parent[i] < -1 || w.parent[i] >= i);
        if (lost || (follows(w.parent, i, node) && (w.token[i] < RULE_NO_TOKEN || w.token[i] >= a.vocab))) return RAFFLE_ROW_ARGUMENT;
    }
    return 0;
}

__device__ __forceinline__ bool seen_before(const verify_args &a, const request_walk &w, int node, int child) {
    for (int i = next_child(a, w, node, 0); i >= 0 && i < child; i = next_child(a, w, node, i + 1))
        if (w.token[i] == w.token[child]) return true;
    return false;
}

/* Whether a draft without a law is accepted, given its tickets of `mass`, and the sum of those of its siblings so far. */
__device__ __forceinline__ bool sum_accepts(const verify_args &a, uint64_t bits, uint64_t mass, uint64_t tickets, uint64_t sum) {
    const uint64_t whole = a.threshold_sum > 0.0f ? threshold_of(a.threshold_sum, mass) : mass;
    const uint64_t enough = a.threshold_single > 0.0f ? threshold_of(a.threshold_single, mass) : UINT64_MAX;
    return mul_high(bits, whole) < sum || tickets >= enough;
}

__device__ __forceinline__ int accepted_sibling(const verify_args &a, const request_walk &w, int node, int depth, uint64_t mass) {
    const uint64_t bits = accept_bits(a, w, node, depth);
    uint64_t sum = 0;
    for (int i = next_child(a, w, node, 0); i >= 0; i = next_child(a, w, node, i + 1)) {
        const uint64_t t = seen_before(a, w, node, i) ? 0 : w.tickets_t[i];
        sum += t;
        if (sum_accepts(a, bits, mass, t, sum)) return i;
    }
    return -1;
}

/* Draft i in both rows, where it follows draft `node`. */
__device__ __forceinline__ chances chances_of(const request_walk &w, int i, int node) {
    chances c = {w.tickets_t[i], w.law[node + 1].mass, 1, 1};
    if (w.draft_law) {
        c.s = w.tickets_s[i];
        c.mass_q = w.draft_law[i].mass;
    }
    return c;
}

/* Whether a draft is accepted by the ratio of its chances, whose masses may be `about`. -1: that does not say, or exact ones are needed for
 * what it leaves over of a row with a cut. */
__device__ __forceinline__ int draft_accepts(uint64_t bits, const chances &c, bool about, bool whole) {
    const int accepts = about ? ratio_settles(bits, c, ESTIMATE_RATIO_ERROR) : ratio_accepts(bits, c);
    return about && !accepts && !whole ? -1 : accepts;
}

/* Whether the row of draft i says how it was drawn. */
__device__ __forceinline__ bool draft_judged(const request_walk &w, int i) {
    if (!w.draft_law) return true;
    const law_head &law = w.draft_law[i];
    return law.valid && !law.empty;
}

/* The `count` drafts that end with `node`, all accepted. By one warp. */
__device__ __forceinline__ void emit_drafts(const verify_args &a, const request_walk &w, int node, int count) {
    for (int i = threadIdx.x % WARP; i < count; i += WARP) {
        int own = w.parent ? node : i;
        if (w.parent)
            for (int up = count - 1; up > i; --up) own = w.parent[own];
        const int before = w.parent ? w.parent[own] : own - 1;
        emit(a, w, i, w.token[own], own, w.law[before + 1].flags | child_flags(a, w, before));
        told_note(a, w, i, before + 1, w.token[own]);
    }
}

/* Makes room for items of the second kernel that are to be read, and gives the first of them. By one warp. */
__device__ __forceinline__ left_item *items_take(const verify_args &a, int count) {
    uint32_t at = 0;
    if (threadIdx.x % WARP == 0) at = atomicAdd(&a.queue->listed, (uint32_t)count);
    return a.left + __shfl_sync(ALL_LANES, at, 0);
}
/* The same for one of which tokens are proposed, or whose target's row has a kept_list. */
__device__ __forceinline__ left_item *item_take(const verify_args &a) {
    uint32_t at = 0;
    if (threadIdx.x % WARP == 0) at = atomicAdd(&a.queue->proposing, 1u);
    return a.left + (a.draft_rows - 1 - __shfl_sync(ALL_LANES, at, 0));
}
__device__ __forceinline__ left_item item_make(const request_walk &w, int node, int depth) {
    left_item item = {};
    item.request = w.request;
    item.first = w.first;
    item.slot = w.slot;
    item.seed = w.seed;
    item.position = w.position;
    item.drafts = w.count;
    item.node = node;
    item.depth = depth;
    item.all = 1;
    item.found = FOUND_NOTHING;
    return item;
}

/* Which rows of a rejected draft have a kept_list: none that counts; the target's, the draft's being no estimate; both, or the draft's
 * needs none. */
enum { KEPT_NOT, KEPT_TARGET, KEPT_BOTH };
__device__ __forceinline__ int kept_of(const law_head &law, const law_head &own) {
    if (!law.listed) return KEPT_NOT;
    if (own.greedy || own.listed) return KEPT_BOTH;
    return own.about ? KEPT_NOT : KEPT_TARGET;
}

/* Where a request ends: behind `count` drafts, the last of which is `node`. */
struct walk_end {
    int node, count;
    int32_t token; /* the row's own; not if it is `recovered` */
    uint32_t flags;
    bool recovered, whole, owed; /* whole: out of a row without a cut; owed: where it is the row's own, too */
    int kept;    /* `recovered` by lists: KEPT_ */
    bool unsure; /* estimates do not say whether the draft behind is accepted */
};

/* Judges the drafts behind `node`, which is `depth` deep, by laws and tickets alone. Gives the one that is accepted; -1: the request
 * ends here. */
__device__ __forceinline__ int walk_step(const verify_args &a, const request_walk &w, int node, int depth, walk_end *end) {
    const law_head &law = w.law[node + 1];
    end->flags = law.flags | child_flags(a, w, node);
    end->token = law.token;
    end->whole = law.whole;
    end->owed = law.owed;
    int child = law.valid && !law.empty ? next_child(a, w, node, 0) : -1;
    if (child < 0) return -1;
    if (a.method == RAFFLE_SYNTHETIC) return rate_accepts(accept_bits(a, w, node, depth), a.rate) ? child : -1;
    if (a.method == RAFFLE_MATCH || law.greedy) {
        while (child >= 0 && w.token[child] != law.token) child = next_child(a, w, node, child + 1);
        return child;
    }
    if (!draft_judged(w, child)) {
        end->flags |= RAFFLE_ROW_DRAFT;
        return -1;
    }
    if (!a.draft_data) {
        child = accepted_sibling(a, w, node, depth, law.mass);
    } else {
        const int accepts = draft_accepts(accept_bits(a, w, node, depth), chances_of(w, child, node), law.about || w.draft_law[child].about,
                                          law.whole);
        end->unsure = accepts < 0;
        if (accepts <= 0) child = -1;
    }
    end->recovered = child < 0;
    end->kept = child >= 0 ? KEPT_NOT : kept_of(law, w.draft_law ? w.draft_law[node + 1] : law);
    return child;
}

/* The request ends behind `end.count` drafts, which are emitted; a token that must be recovered is left to the second kernel, if the lists
 * of its rows do not tell it. By one warp. */
__device__ __forceinline__ void walk_finish(const verify_args &a, const request_walk &w, const walk_end &end, kept_job *job) {
    if (!end.recovered && !end.owed) return emit_last(a, w, end.count, end.token, end.node + 1, end.flags);
#if !CUT_MORE
    if (end.kept == KEPT_BOTH) {
        kept_note(a, w, end.node, end.count, end.flags, job);
        const int32_t token = kept_recover(job);
        return emit_last(a, job->w, job->depth, token, job->node + 1, job->flags);
    }
#endif
    const bool proposes = !end.recovered || (end.whole && !a.recover_bits) || end.kept;
    left_item *to = proposes ? item_take(a) : items_take(a, 1), item = item_make(w, end.node, end.count);
    item.plain = !end.recovered;
    item.kept = end.recovered && end.kept;
    item.flags = end.flags;
    if (threadIdx.x % WARP == 0) *to = item;
}

/* One draft after the other: trees, and long chains. Gives the number of drafts behind which masses are needed that are no estimates,
 * with nothing emitted; or -1. */
__device__ __forceinline__ int walk_one_by_one(const verify_args &a, const request_walk &w, kept_job *job) {
    walk_end end = {-1, 0, RULE_NO_TOKEN, 0, false, false, false, KEPT_NOT, false};
    for (int child; (child = walk_step(a, w, end.node, end.count, &end)) >= 0; ++end.count) end.node = child;
    if (end.unsure) return end.node + 1;
    emit_drafts(a, w, end.node, end.count);
    walk_finish(a, w, end, job);
    return -1;
}

/* ---- block verification --------------------------------------------------------------------------------------------- */

/* Draft i of a block, if there is one that says how it was drawn. */
__device__ __forceinline__ bool block_draft(const verify_args &a, const request_walk &w, int i) {
    const law_head &law = w.law[i];
    return law.valid && !law.empty && next_child(a, w, i - 1, 0) >= 0 && draft_judged(w, i);
}

/* How many drafts say how they were drawn, and the weight behind them. */
__device__ __forceinline__ int block_length(const verify_args &a, const request_walk &w, uint64_t *weight) {
    int count = 0;
    for (*weight = BLOCK_ONE; *weight && block_draft(a, w, count); ++count) *weight = block_next(*weight, chances_of(w, count, count - 1));
    return count;
}

/* The weights do not depend on what is left over. Where all drafts are accepted by them, nothing is read again; else all positions
 * are, and the second kernel judges. */
__device__ __forceinline__ void walk_block(const verify_args &a, const request_walk &w) {
    uint64_t weight;
    const int count = block_length(a, w, &weight);
    if (block_accepts_all(accept_bits(a, w, count - 1, count), weight)) {
        const law_head &law = w.law[count];
        const bool draft_there = law.valid && !law.empty && next_child(a, w, count - 1, 0) >= 0;
        const uint32_t more = draft_there ? RAFFLE_ROW_DRAFT : child_flags(a, w, count - 1);
        emit_drafts(a, w, count - 1, count);
        return emit_last(a, w, count, law.token, count, law.flags | more);
    }
    left_item *to = items_take(a, count);
    weight = BLOCK_ONE;
    for (int i = 0; i < count; ++i) {
        left_item item = item_make(w, i - 1, i);
        item.weight = weight;
        item.before = i;
        item.all = count;
        item.flags = w.law[i].flags;
        if (threadIdx.x % WARP == 0) to[i] = item;
        weight = block_next(weight, chances_of(w, i, i - 1));
    }
}

/* ---- short chains ------------------------------------------------------------------------------------------------- */

/* Draft `lane` of a chain in both rows, and what its own row says (that of the target if there is none). Returns false if that does not say
 * how it was drawn. */
__device__ __forceinline__ bool lane_chances(const request_walk &w, int lane, chances *c, law_head *own) {
    c->t = __ldcg(w.tickets_t + lane);
    c->s = c->mass_q = 1;
    if (!w.draft_law) return true;
    *own = head_fetch(w.draft_law + lane);
    c->s = __ldcg(w.tickets_s + lane);
    c->mass_q = own->mass;
    return own->valid && !own->empty;
}

/* The whole walk of a chain of less than 32 drafts, a lane each, since none is judged by another: what walk_one_by_one does, in a few
 * instructions without a barrier. They run once on a multiprocessor, and waiting for them is most of the time. By one warp. */
__device__ __forceinline__ int walk_chain(const verify_args &a, const request_walk &w, kept_job *job) {
    const int lane = threadIdx.x % WARP;
    const bool own = lane <= w.count, drawn = a.method == RAFFLE_REJECTION;
    const int32_t draft = lane < w.count ? w.token[lane] : (int32_t)RULE_NO_TOKEN;
    const law_head law = own ? head_fetch(w.law + lane) : head_wrong();
    chances c = {0, law.mass, 1, 1};
    law_head other = law;
    const bool judged = !drawn || lane >= w.count || lane_chances(w, lane, &c, &other);
    const bool there = law.valid && !law.empty && draft >= 0 && draft < a.vocab;
    walk_end end = {lane - 1, lane, law.token, law.flags, false, law.whole, law.owed, KEPT_NOT, false};
    bool accepted = false;
    if (draft < RULE_NO_TOKEN || draft >= a.vocab) end.flags |= RAFFLE_ROW_ARGUMENT;
    if (there && a.method == RAFFLE_SYNTHETIC) {
        accepted = rate_accepts(accept_bits(a, w, lane - 1, lane), a.rate);
    } else if (there && (!drawn || law.greedy)) {
        accepted = draft == law.token;
    } else if (there && !judged) {
        end.flags |= RAFFLE_ROW_DRAFT;
    } else if (there) {
        const uint64_t bits = accept_bits(a, w, lane - 1, lane);
        const int accepts = a.draft_data ? draft_accepts(bits, c, law.about || other.about, law.whole)
                                         : sum_accepts(a, bits, law.mass, c.t, c.t);
        accepted = accepts > 0;
        end.recovered = !accepted;
        end.kept = accepted ? KEPT_NOT : kept_of(law, other);
        end.unsure = accepts < 0;
    }
    end.count = __ffs(__ballot_sync(ALL_LANES, own && !accepted)) - 1; /* behind the last draft it ends at the latest */
    if (__shfl_sync(ALL_LANES, (int)end.unsure, end.count)) return end.count;
    if (lane < end.count) {
        emit(a, w, lane, draft, lane, end.flags);
        told_note(a, w, lane, lane, draft);
    }
    end.node = end.count - 1;
    end.token = __shfl_sync(ALL_LANES, end.token, end.count);
    end.flags = __shfl_sync(ALL_LANES, end.flags, end.count);
    const int ends = __shfl_sync(ALL_LANES, (int)end.recovered | (int)end.whole << 1 | (int)end.owed << 2 | end.kept << 3, end.count);
    end.recovered = ends & 1;
    end.whole = ends >> 1 & 1;
    end.owed = ends >> 2 & 1;
    end.kept = ends >> 3;
    walk_finish(a, w, end, job);
    return -1;
}

/* The same where all target rows are greedy and have left no law: shorter still. */
__device__ __forceinline__ void walk_greedy(const verify_args &a, const request_walk &w) {
    const int lane = threadIdx.x % WARP;
    const bool own = lane <= w.count;
    const int32_t draft = lane < w.count ? w.token[lane] : (int32_t)RULE_NO_TOKEN;
    const law_head law = own ? head_told(a.state + w.row_first + lane) : head_wrong();
    const uint32_t flags = law.flags | (draft < RULE_NO_TOKEN || draft >= a.vocab ? RAFFLE_ROW_ARGUMENT : 0);
    const bool accepted = law.greedy && draft >= 0 && draft == law.token;
    const int count = __ffs(__ballot_sync(ALL_LANES, own && !accepted)) - 1;
    if (!own) return;
    if (lane < count) return emit(a, w, lane, draft, lane, flags);
    if (lane > count) return emit(a, w, lane, RULE_NO_TOKEN, -1, 0);
    const int32_t token = law.flags & RULE_ROW_EMPTY ? a.empty_token : law.token;
    emit(a, w, lane, token, -1, flags);
    a.accepted[w.request] = count;
    if (a.last) a.last[w.request] = token;
}

/* ---- a request whose rows are all known ---------------------------------------------------------------------------------- */

/* Weighs a row that was estimated, and gives its mass. By all threads. */
template <class type>
static __device__ __noinline__ uint64_t mass_weigh(const device_row &row, const fast_scale<0> &s, float *peak, uint64_t *mass, int groups) {
    __shared__ uint64_t of_warp[BLOCK_WARPS];
    records to = {};
    to.by = s.by;
    to.peak = peak;
    to.mass = mass;
    row_weigh<type>(row, to, groups);
    uint64_t sum = 0;
    for (int g = threadIdx.x; g < groups; g += BLOCK_THREADS) sum += fast_tickets(s, __ldcg(peak + g), __ldcg(mass + g));
    sum = fast_sum(sum, of_warp);
    __syncthreads();
    return sum;
}

/* The same where a walk asks for it. Past the first cache, since other blocks have written the row's law. */
template <class type> __device__ __forceinline__ void law_weigh(const verify_args &a, int64_t index) {
    row_law *law = a.law + index;
    __threadfence(); /* rare: as in walk_near */
    if (!law->about) return; /* the same in all threads */
    fast_scale<0> s;
    fast_scale_make(law->by.scale, law->by.best, &s);
    float *const peak = a.peak + index * a.groups * PIECES;
    const uint64_t mass = mass_weigh<type>(row_make<type>(a, index), s, peak, a.mass + index * a.groups, a.groups);
    if (threadIdx.x == 0) {
        law->mass = a.head[index].mass = mass;
        law->about = a.head[index].about = false;
    }
    __threadfence();
    __syncthreads();
}

/* Walks a request whose tables are near, whatever it is; gives what walk_one_by_one does. By one warp. */
__device__ __forceinline__ int walk_any(const verify_args &a, const request_walk &w, kept_job *job) {
    if (w.slot < 0 || w.slot >= a.target.slots) return emit_last(a, w, 0, RULE_NO_TOKEN, -1, RAFFLE_ROW_ARGUMENT), -1;
    if (a.method == RAFFLE_BLOCK && !w.law[0].greedy) return walk_block(a, w), -1;
    return walk_one_by_one(a, w, job);
}

/* By all threads of the block that has completed its last row. `greedy`: its target rows are. */
template <class type>
__device__ __forceinline__ void request_close(const verify_args &a, int64_t request, int64_t first, int count, bool greedy,
                                              walk_stage *stage) {
    request_walk w;
    w.request = request;
    w.first = first;
    w.count = count;
    walk_find(a, &w);
    if (threadIdx.x == 0) a.arrived[request] = a.first ? REQUEST_WALKED : 0;
    const bool few = !w.parent && count < WARP && a.method != (greedy ? RAFFLE_SYNTHETIC : RAFFLE_BLOCK);
    if (few && greedy) {
        if (threadIdx.x < WARP) walk_greedy(a, w);
        return;
    }
    for (;;) {
        int unsure = -1;
        __syncthreads(); /* the row that was in the stage's place is done with */
        if (few) {
            if (threadIdx.x < WARP) unsure = walk_chain(a, w, &stage->kept);
        } else {
            walk_near(a, &w, greedy, stage);
            if (threadIdx.x < WARP) unsure = walk_any(a, w, &stage->kept);
        }
        if constexpr (type::ABOUT) {
            if (!a.about) return;
            __shared__ int weigh;
            if (threadIdx.x == 0) weigh = unsure;
            __syncthreads();
            const int behind = weigh;
            if (behind < 0) return;
            __syncthreads(); /* all know it: the next walk may say another */
            law_weigh<type>(a, w.row_first + behind);
            if (!a.draft_probs) law_weigh<type>(a, a.rows + w.first + behind);
            walk_tables(a, &w); /* not as they were staged */
        } else {
            return;
        }
    }
}

#endif
