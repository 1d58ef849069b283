/* verify_walk.cuh - the second kernel of raffle_verify: walks every request by the laws and tickets that the first has left. */
#ifndef RAFFLE_CUDA_VERIFY_WALK_CUH
#define RAFFLE_CUDA_VERIFY_WALK_CUH

#include "verify_rows.cuh"

/* ---- what is left over ------------------------------------------------------------------------------------------ */

/* One position of a request: its target row, and its draft's row (-1: tokens alone), which may be greedy. */
struct position_pair {
    int64_t row, draft;
    odds by;
    int node;
};

/* A request on its way; the same in all threads of all its blocks. */
struct request_walk {
    int64_t request, slot, first, row_first;
    int count;
    const int32_t *token, *parent;
    const row_law *law, *draft_law; /* [count + 1] of the rows, law[node + 1] being that behind draft `node`; [count] of drafts */
    const uint64_t *tickets_t, *tickets_s; /* [count] of drafts, in their target rows and in their own */
    int group_first, group_end; /* the block's part of what is left over */
};

__device__ __forceinline__ double double_of_wide(wide a) {
    return (double)a.word[0] + (double)a.word[1] * 0x1p64 + (double)a.word[2] * 0x1p128;
}

/* Takes the tokens that are known (tried siblings, a greedy draft's) out of a lane's tickets: what they leave is nothing. */
template <class type>
__device__ __forceinline__ void lane_without(const verify_args &a, const request_walk &w, const position_pair &p, const device_row &row, int g,
                                             uint64_t t[LANE_TOKENS]) {
    const int lane = threadIdx.x % WARP;
    const bool own = p.draft >= 0; /* a greedy draft row: one token */
    for (int i = own || !w.parent ? p.node + 1 : 0; i < w.count; ++i) {
        if (!own && !follows(w.parent, i, p.node)) continue;
        const int32_t token = own ? w.draft_law[p.node + 1].token : w.token[i];
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (token == lane_id<type>(row, g, lane, j)) t[j] = 0;
        if (own || !w.parent) break;
    }
}

/* Leaves for each group of the block's part, in mass of both rows, the sums of the tickets of tokens that have something
 * left. By all threads. */
template <class type, class draft>
static __device__ __noinline__ void left_over(const verify_args &a, const request_walk &w, const position_pair &p) {
    const row_law target = w.law[p.node + 1], own = p.draft >= 0 ? w.draft_law[p.node + 1] : row_law();
    const bool tokens = p.draft < 0 || own.greedy;
    device_row row = row_judged<type>(a, w.request, p.row), draft_row = tokens ? row : row_judged<draft>(a, w.request, p.draft);
    /* A lane must hold the same tokens of both. */
    if (!tokens && (int)type::BYTES != (int)draft::BYTES) row.aligned = draft_row.aligned = false;
    row.aligned = draft_row.aligned = row.aligned && draft_row.aligned;
    const double up = double_of_wide(p.by.up), down = double_of_wide(p.by.down);
    const double over = down * (1.0 + 0x1p-48), under = down * (1.0 - 0x1p-48);
    const int lane = threadIdx.x % WARP;
    for (int base = w.group_first + (int)threadIdx.x / WARP; base < w.group_end; base += WARP * BLOCK_WARPS) {
        /* The maxima of the warp's next groups, one a lane: groups one by one would wait for each. */
        const int ahead = base + lane * BLOCK_WARPS;
        const float peaks = ahead < w.group_end ? peak_of_group(a, p.row, target, ahead) : MINUS_INF;
        const float draft_peaks = !tokens && ahead < w.group_end ? peak_of_group(a, p.draft, own, ahead) : MINUS_INF;
#pragma unroll 1
        for (int i = 0; i < WARP && base + i * BLOCK_WARPS < w.group_end; ++i) {
            const int g = base + i * BLOCK_WARPS;
            const float peak = __shfl_sync(ALL_LANES, peaks, i), draft_peak = __shfl_sync(ALL_LANES, draft_peaks, i);
            uint64_t t[LANE_TOKENS] = {}, s[LANE_TOKENS] = {}, sum_t = 0, sum_s = 0;
            if (warp_tickets<type>(row, target, peak, g, t)) {
                if (tokens) lane_without<type>(a, w, p, row, g, t);
                else warp_tickets<draft>(draft_row, own, draft_peak, g, s);
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) {
                    const double x = (double)t[j] * up, y = (double)s[j];
                    bool left = x > y * over;
                    if (!left && x > y * under && t[j]) left = odds_left(p.by, t[j], s[j]); /* doubles cannot tell */
                    sum_t += left ? t[j] : 0;
                    sum_s += left ? s[j] : 0;
                }
            }
            sum_t = warp_add_wide(sum_t);
            sum_s = warp_add_wide(sum_s);
            if (lane == 0) {
                __stcg(a.mass + p.row * a.groups + g, sum_t);
                if (p.draft >= 0) __stcg(a.mass + p.draft * a.groups + g, sum_s);
            }
        }
    }
}

__device__ __forceinline__ uint64_t left_s(const verify_args &a, const position_pair &p, int g) {
    return p.draft >= 0 ? __ldcg(a.mass + p.draft * a.groups + g) : 0;
}

/* Shared memory of the second kernel. */
struct walk_space {
    block_space block;
    wide rest;
    int32_t group, token;
    bool last;
};

__device__ __forceinline__ wide left_total(const verify_args &a, const position_pair &p, walk_space *space) {
    uint64_t t = 0, s = 0;
    for (int g = threadIdx.x; g < a.groups; g += BLOCK_THREADS) {
        t += __ldcg(a.mass + p.row * a.groups + g);
        s += left_s(a, p, g);
    }
    const uint64_t all_t = block_add(t, &space->block), all_s = block_add(s, &space->block);
    return odds_sum(p.by, all_t, all_s);
}

/* The token that holds number `number` of what is left over. By all threads. */
template <class type, class draft>
static __device__ __noinline__ int32_t left_holder(const verify_args &a, const request_walk &w, const position_pair &p, wide number, walk_space *space) {
    const int first = (int)((int64_t)a.groups * threadIdx.x / BLOCK_THREADS), end = (int)((int64_t)a.groups * (threadIdx.x + 1) / BLOCK_THREADS);
    uint64_t t = 0, s = 0;
    for (int g = first; g < end; ++g) {
        t += __ldcg(a.mass + p.row * a.groups + g);
        s += left_s(a, p, g);
    }
    wide before = odds_sum(p.by, block_before(t, &space->block), block_before(s, &space->block));
    if (!wide_less(number, before) && wide_less(wide_subtract(number, before), odds_sum(p.by, t, s))) {
        wide rest = wide_subtract(number, before);
        int g = first;
        for (; g < end - 1; ++g) {
            const wide held = odds_sum(p.by, __ldcg(a.mass + p.row * a.groups + g), left_s(a, p, g));
            if (wide_less(rest, held)) break;
            rest = wide_subtract(rest, held);
        }
        space->group = g;
        space->rest = rest;
    }
    __syncthreads();
    const int g = space->group;
    number = space->rest;
    const row_law target = w.law[p.node + 1], own = p.draft >= 0 ? w.draft_law[p.node + 1] : row_law();
    const bool tokens = p.draft < 0 || own.greedy;
    t = block_tickets<type>(row_judged<type>(a, w.request, p.row), target, peak_of_group(a, p.row, target, g), g, &space->block);
    s = 0;
    if (!tokens)
        s = block_tickets<draft>(row_judged<draft>(a, w.request, p.draft), own, peak_of_group(a, p.draft, own, g), g, &space->block);
    const int32_t id = g * GROUP + (int)threadIdx.x;
    bool left = odds_left(p.by, t, s);
    for (int i = 0; tokens && i < w.count; ++i) {
        if (p.draft >= 0 ? id == own.token : follows(w.parent, i, p.node) && w.token[i] == id) left = false;
    }
    t = left ? t : 0;
    s = left ? s : 0;
    before = odds_sum(p.by, block_before(t, &space->block), block_before(s, &space->block));
    if (left && !wide_less(number, before) && wide_less(wide_subtract(number, before), odds_sum(p.by, t, s))) space->token = id;
    __syncthreads();
    return space->token;
}

/* ---- the walk ------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ uint64_t accept_bits(const verify_args &a, const request_walk &w, int node, int depth) {
    if (a.accept_bits) return a.accept_bits[w.row_first + node + 1];
    return philox_step(a.seed[w.slot], a.position[w.slot], STREAM_ACCEPT, (uint32_t)depth).low;
}

/* The token that replaces a rejected draft, where what is left over is known. By all threads. */
template <class type, class draft>
__device__ __forceinline__ int32_t recover(const verify_args &a, const request_walk &w, const position_pair &p, int depth, walk_space *space) {
    philox_pair bits = philox_step(a.seed[w.slot], a.position[w.slot], STREAM_RECOVER, (uint32_t)depth);
    if (a.recover_bits) bits.low = a.recover_bits[2 * w.request], bits.high = a.recover_bits[2 * w.request + 1];
    const wide total = left_total(a, p, space);
    if (wide_is_zero(total)) return w.law[p.node + 1].token;
    return left_holder<type, draft>(a, w, p, wide_share(total, bits.high, bits.low), space);
}

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

/* The token that ends a request, behind `count` drafts, out of its row `row` (-1: none), and nothing behind it. By all threads. */
__device__ __forceinline__ void emit_last(const verify_args &a, const request_walk &w, int count, int32_t token, int row, uint32_t flags) {
    if (threadIdx.x == 0) told_note(a, w, count, row, token);
    if (flags & RULE_ROW_EMPTY) {
        token = a.empty_token;
#if CUT_MORE
        if (a.target.extra && a.target.extra[w.slot].flags & RAFFLE_EMPTY_IS_ZERO) token = 0;
#endif
    }
    if (threadIdx.x == 0) {
        emit(a, w, count, token, -1, flags);
        a.accepted[w.request] = count;
        if (a.last) a.last[w.request] = token;
    }
    for (int i = count + 1 + (int)threadIdx.x; i <= w.count; i += BLOCK_THREADS) {
        emit(a, w, i, RULE_NO_TOKEN, -1, 0);
        told_note(a, w, i, -1, RULE_NO_TOKEN);
    }
}

/* The next draft behind `node` from `from` on that may be looked at, or -1. Ids outside the vocabulary end like -1. */
__device__ __forceinline__ int next_child(const verify_args &a, const request_walk &w, int node, int from) {
    if (!w.parent && from <= node) from = node + 1;
    for (int i = from; i < w.count && (w.parent || i == node + 1); ++i)
        if (follows(w.parent, i, node) && w.token[i] >= 0 && w.token[i] < a.vocab) return i;
    return -1;
}

/* RAFFLE_ROW_ARGUMENT if an id that follows `node` is outside the vocabulary: no draft, but not silently. */
__device__ __forceinline__ uint32_t child_flags(const verify_args &a, const request_walk &w, int node) {
    for (int i = w.parent ? 0 : node + 1; i < w.count && (w.parent || i == node + 1); ++i)
        if (follows(w.parent, i, node) && (w.token[i] < RULE_NO_TOKEN || w.token[i] >= a.vocab)) return RAFFLE_ROW_ARGUMENT;
    return 0;
}

__device__ __forceinline__ bool seen_before(const verify_args &a, const request_walk &w, int node, int child) {
    for (int i = next_child(a, w, node, 0); i >= 0 && i < child; i = next_child(a, w, node, i + 1))
        if (w.token[i] == w.token[child]) return true;
    return false;
}

__device__ __forceinline__ int accepted_sibling(const verify_args &a, const request_walk &w, int node, int depth, uint64_t mass) {
    const uint64_t bits = accept_bits(a, w, node, depth);
    const uint64_t whole = a.threshold_sum > 0.0f ? threshold_of(a.threshold_sum, mass) : mass;
    const uint64_t enough = a.threshold_single > 0.0f ? threshold_of(a.threshold_single, mass) : UINT64_MAX;
    uint64_t sum = 0;
    for (int i = next_child(a, w, node, 0); i >= 0; i = next_child(a, w, node, i + 1)) {
        const uint64_t t = seen_before(a, w, node, i) ? 0 : w.tickets_t[i];
        sum += t;
        if (mul_high(bits, whole) < sum || t >= enough) return i;
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

__device__ __forceinline__ position_pair pair_of(const verify_args &a, const request_walk &w, int node) {
    position_pair p;
    p.row = w.row_first + node + 1;
    p.draft = a.draft_data ? a.rows + w.first + node + 1 : -1;
    p.node = node;
    return p;
}

/* Whether the row of draft i says how it was drawn. */
__device__ __forceinline__ bool draft_judged(const request_walk &w, int i) {
    if (!w.draft_law) return true;
    const row_law &law = w.draft_law[i];
    return law.valid && !law.empty;
}

/* The `count` drafts that end with `node`, all accepted. By all threads. */
__device__ __forceinline__ void emit_drafts(const verify_args &a, const request_walk &w, int node, int count) {
    for (int i = threadIdx.x; i < count; i += BLOCK_THREADS) {
        int own = w.parent ? node : i;
        if (w.parent)
            for (int up = count - 1; up > i; --up) own = w.parent[own];
        const int before = w.parent ? w.parent[own] : own - 1;
        emit(a, w, i, w.token[own], own, w.law[before + 1].flags | child_flags(a, w, before));
        told_note(a, w, i, before + 1, w.token[own]);
    }
}

/* Where a request ends: behind `count` drafts, the last of which is `node`. */
struct walk_end {
    int node, count;
    int32_t token; /* the row's own; not if it is `recovered` */
    uint32_t flags;
    bool recovered;
};

/* Judges one draft after the other, by laws and tickets alone. */
__device__ __forceinline__ walk_end walk_steps(const verify_args &a, const request_walk &w) {
    walk_end end = {-1, 0, RULE_NO_TOKEN, 0, false};
    for (;; ++end.count) {
        const int node = end.node, n = end.count;
        const row_law &law = w.law[node + 1];
        end.flags = law.flags | child_flags(a, w, node);
        end.token = law.token;
        int child = law.valid && !law.empty ? next_child(a, w, node, 0) : -1;
        if (child < 0) return end;
        if (a.method == RAFFLE_SYNTHETIC) {
            if (!rate_accepts(accept_bits(a, w, node, n), a.rate)) return end;
        } else if (a.method == RAFFLE_MATCH || law.greedy) {
            while (child >= 0 && w.token[child] != end.token) child = next_child(a, w, node, child + 1);
            if (child < 0) return end;
        } else if (!draft_judged(w, child)) {
            end.flags |= RAFFLE_ROW_DRAFT;
            return end;
        } else {
            if (!a.draft_data) child = accepted_sibling(a, w, node, n, law.mass);
            else if (!ratio_accepts(accept_bits(a, w, node, n), chances_of(w, child, node))) child = -1;
            end.recovered = child < 0;
            if (child < 0) return end;
        }
        end.node = child;
    }
}

/* Tells that a block has left its part of what is left over. The last to tell goes on; the counter is ready again. */
__device__ __forceinline__ bool parts_arrive(const verify_args &a, const request_walk &w, walk_space *space) {
    __syncthreads();
    if (threadIdx.x == 0) {
        row_state *state = a.state + w.row_first;
        const uint32_t count = (uint32_t)(w.group_end - w.group_first);
        space->last = count_arrived(&state->done, count) + count == (uint32_t)a.groups;
        if (space->last) state->done = 0;
    }
    __syncthreads();
    return space->last;
}

template <class type, class draft>
__device__ __forceinline__ void walk_one_by_one(const verify_args &a, const request_walk &w, walk_space *space) {
    walk_end end = walk_steps(a, w);
    if (end.recovered) {
        position_pair p = pair_of(a, w, end.node);
        p.by = odds_make(w.law[p.node + 1].mass, p.draft >= 0 ? w.draft_law[p.node + 1].mass : 1);
        left_over<type, draft>(a, w, p);
        if (!parts_arrive(a, w, space)) return;
        end.token = recover<type, draft>(a, w, p, end.count, space);
    } else if (w.group_first) {
        return;
    }
    emit_drafts(a, w, end.node, end.count);
    emit_last(a, w, end.count, end.token, end.node + 1, end.flags);
}

/* ---- block verification --------------------------------------------------------------------------------------------- */

/* Draft i of a block, if there is one that says how it was drawn. */
__device__ __forceinline__ bool block_draft(const verify_args &a, const request_walk &w, int i) {
    const row_law &law = w.law[i];
    return law.valid && !law.empty && next_child(a, w, i - 1, 0) >= 0 && draft_judged(w, i);
}

/* The pair of rows at position i, where the drafts so far have `weight`. */
__device__ __forceinline__ position_pair block_pair(const verify_args &a, const request_walk &w, int i, uint64_t weight) {
    position_pair p = pair_of(a, w, i - 1);
    p.by = block_odds(weight, w.law[i].mass, p.draft >= 0 ? w.draft_law[i].mass : 1);
    return p;
}

/* The weights do not depend on what is left over, so all positions are worked out first, by all blocks, and judged after. */
template <class type, class draft>
__device__ __forceinline__ void walk_block(const verify_args &a, const request_walk &w, walk_space *space) {
    uint64_t weight = BLOCK_ONE, end_weight = BLOCK_ONE;
    int count = 0, length = 0;
    for (; weight && block_draft(a, w, count); ++count) {
        left_over<type, draft>(a, w, block_pair(a, w, count, weight));
        weight = block_next(weight, chances_of(w, count, count - 1));
    }
    if (!parts_arrive(a, w, space)) return;
    bool judged = true;
    uint32_t more = 0;
    const bool all = weight != 0;
    weight = BLOCK_ONE;
    for (int i = 0; i < count; ++i) {
        const position_pair p = block_pair(a, w, i, weight);
        const chances c = chances_of(w, i, i - 1);
        if (i && block_accepts(accept_bits(a, w, i - 1, i), weight, left_total(a, p, space), c.mass_p, c.mass_q)) {
            length = i;
            end_weight = weight;
        }
        weight = block_next(weight, c);
    }
    if (all && (!count || block_accepts_all(accept_bits(a, w, count - 1, count), weight))) {
        const row_law &law = w.law[count];
        const bool draft_there = law.valid && !law.empty && next_child(a, w, count - 1, 0) >= 0;
        length = count;
        judged = false;
        more = draft_there ? RAFFLE_ROW_DRAFT : child_flags(a, w, count - 1);
    }
    const row_law &law = w.law[length];
    int32_t token = law.token;
    if (judged) token = recover<type, draft>(a, w, block_pair(a, w, length, end_weight), length, space);
    emit_drafts(a, w, length - 1, length);
    emit_last(a, w, length, token, length, law.flags | more);
}

/* ---- what a walk looks at ---------------------------------------------------------------------------------------------- */

/* All that a request of few drafts is judged by, in shared memory: a walk is a chain of looks at it. */
enum { STAGED = 16 };
struct walk_stage {
    row_law law[STAGED + 1], draft_law[STAGED];
    uint64_t tickets_t[STAGED], tickets_s[STAGED];
    int32_t token[STAGED], parent[STAGED];
};

template <class item> __device__ __forceinline__ const item *staged(item *to, const item *from, int count) {
    static_assert(sizeof(item) % 4 == 0, "copied by words");
    if (!from) return nullptr;
    for (int i = threadIdx.x; i < count * (int)(sizeof(item) / 4); i += BLOCK_THREADS) ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
    return to;
}

/* Finds the request's tables, and brings them near if they are short. By all threads. */
__device__ __forceinline__ void walk_find(const verify_args &a, request_walk *w, walk_stage *stage) {
    w->token = a.token ? a.token + w->first : nullptr;
    w->parent = a.parent ? a.parent + w->first : nullptr;
    w->law = a.law + w->row_first;
    w->draft_law = a.draft_data ? a.law + a.rows + w->first : nullptr;
    w->tickets_t = a.tickets_t + w->first;
    w->tickets_s = a.draft_data ? a.tickets_s + w->first : nullptr;
    if (w->count > STAGED) return;
    w->token = staged(stage->token, w->token, w->count);
    w->parent = staged(stage->parent, w->parent, w->count);
    w->law = staged(stage->law, w->law, w->count + 1);
    w->draft_law = staged(stage->draft_law, w->draft_law, w->count);
    w->tickets_t = staged(stage->tickets_t, w->tickets_t, w->count);
    w->tickets_s = staged(stage->tickets_s, w->tickets_s, w->count);
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------- */

/* Blocks of a request are beside each other: each has a part of what may be left over, and walks the rest for itself. */
enum { WALKS_PER_SM = 2 };
template <class type, class draft>
__global__ void __launch_bounds__(BLOCK_THREADS, WALKS_PER_SM) verify_walk_kernel(const __grid_constant__ verify_args a) {
    __shared__ walk_space space;
    __shared__ walk_stage stage;
    const int parts = (a.groups + a.walk_part - 1) / a.walk_part;
    request_walk w;
    int64_t count;
    w.request = blockIdx.x / parts;
    w.group_first = (int)(blockIdx.x % parts) * a.walk_part;
    w.group_end = min(w.group_first + a.walk_part, a.groups);
    const bool sane = request_range(a, w.request, &w.first, &count);
    w.row_first = w.first + w.request;
    w.count = (int)count;
    w.slot = a.target.slot ? a.target.slot[w.request] : w.request;
    if (!sane || w.slot < 0 || w.slot >= a.target.slots) { /* what can be said without touching a row that may not be its own */
        if (w.group_first) return;
        if (threadIdx.x == 0) {
            a.accepted[w.request] = 0;
            if (a.last) a.last[w.request] = RULE_NO_TOKEN;
        }
        if (sane) emit_last(a, w, 0, RULE_NO_TOKEN, -1, RAFFLE_ROW_ARGUMENT);
        return;
    }
    walk_find(a, &w, &stage);
    if (threadIdx.x == 0) { /* logits that change under the kernel may leave a number without a holder */
        space.token = RULE_NO_TOKEN;
        space.group = 0;
        space.rest = wide_of(0);
    }
    __syncthreads();
    if (a.method == RAFFLE_BLOCK && !w.law[0].greedy) walk_block<type, draft>(a, w, &space);
    else walk_one_by_one<type, draft>(a, w, &space);
}

/* ---- the launches, on the host ----------------------------------------------------------------------------------------- */

/* Both kernels. The first knows rows as `target` and `own`, of which it wants to know more; a block of it reads at most `most`
 * groups. */
template <class target, class own, class type, class draft>
static cudaError_t verify_start(verify_args *a, int32_t most, int processors, cudaStream_t stream) {
    const int64_t rows = a->rows + (a->draft_data ? a->draft_rows : 0);
    void *parameters[] = {a};
    const dim3 grid = parts_grid(rows, a->groups, most, processors, &a->part);
    cudaError_t code = cudaLaunchKernel(verify_rows_kernel<target, own>, grid, dim3(BLOCK_THREADS), parameters, 0, stream);
    if (code != cudaSuccess) return code;
    /* Twice as many blocks a request as the GPU holds at once, if each has a group for every warp: not all requests have work. */
    const int64_t worth = (a->groups + BLOCK_WARPS - 1) / BLOCK_WARPS, fair = (int64_t)processors * WALKS_PER_SM * 2 / a->requests;
    const int64_t parts = fair < 1 ? 1 : fair < worth ? fair : worth;
    a->walk_part = (int32_t)((a->groups + parts - 1) / parts);
    const unsigned blocks = (unsigned)((a->groups + a->walk_part - 1) / a->walk_part);
    return cudaLaunchKernel(verify_walk_kernel<type, draft>, dim3(blocks * (unsigned)a->requests), dim3(BLOCK_THREADS), parameters, 0, stream);
}

#endif
