/* verify.cuh - raffle_verify on the GPU, by two kernels. The first samples every row, a block each, and leaves its law and
 * the tickets of the drafts that follow it. The second walks each request, a block each: it decides by these numbers alone,
 * and reads rows again only where a token is recovered. */
#ifndef RAFFLE_CUDA_VERIFY_CUH
#define RAFFLE_CUDA_VERIFY_CUH

#include "finish.cuh"

#include "accept.h"

/* What the first kernel leaves of a row. */
struct row_law {
    uint64_t mass;
    weighing by; /* of rows that are drawn from */
    cut kept;
    int32_t token; /* as raffle_sample returns it */
    uint32_t flags;
    bool valid, greedy, empty, whole, pieces;
};

/* The parameters of target or draft rows: raffle_params on the device. */
struct param_arrays {
    int64_t slots;
    const int32_t *slot;
    const float *temperature, *top_p, *min_p;
    const int32_t *top_k;
    const uint32_t *allow;
    int64_t allow_stride;
    uint32_t flags;
};

/* Everything a launch needs, passed by value. Pointers are device memory; layouts as in raffle.h. */
struct verify_args {
    const char *logits, *draft_logits; /* draft_logits NULL: tokens alone */
    int64_t rows, row_stride, draft_rows, draft_stride, vocab, requests, each;
    int32_t groups, method;
    param_arrays target, draft;
    const uint64_t *seed, *position;
    const int32_t *first, *token, *parent;
    float threshold_single, threshold_sum, rate;
    const uint64_t *accept_bits, *recover_bits;
    int32_t empty_token;
    int32_t *out, *accepted, *last, *path;
    uint32_t *row_flags;
    /* workspace; draft rows are behind target rows */
    float *peak;         /* [rows, groups * PIECES] */
    uint64_t *mass;      /* [rows, groups] the second kernel: what is left over */
    row_law *law;        /* [rows] */
    uint64_t *tickets_t; /* [draft rows] of each draft in its target row, */
    uint64_t *tickets_s; /* and in its own */
};

/* ---- where a row belongs ------------------------------------------------------------------------------ */

__device__ __forceinline__ int64_t first_of(const verify_args &a, int64_t r) { return a.first ? a.first[r] : r * a.each; }

/* The request of target row (more = 1) or draft (more = 0) number `index`: the last that begins at or before it. */
__device__ __forceinline__ int64_t request_of(const verify_args &a, int64_t index, int more) {
    if (!a.first) return index / (a.each + more);
    int64_t low = 0, high = a.requests; /* begins at or before, and does not */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (a.first[middle] + more * middle <= index) low = middle;
        else high = middle;
    }
    return low;
}

/* A request's drafts; false if the offsets are not those of this batch. */
__device__ __forceinline__ bool request_range(const verify_args &a, int64_t r, int64_t *first, int64_t *count) {
    *first = first_of(a, r);
    *count = first_of(a, r + 1) - *first;
    return *first >= 0 && *count >= 0 && *first + *count <= a.draft_rows;
}

/* Tokens on the way to draft `node`, itself included; -1 if the parents are no tree. */
__device__ __forceinline__ int depth_of(const int32_t *parent, int node) {
    if (!parent) return node + 1;
    int depth = 0;
    for (; node >= 0; ++depth) {
        const int before = parent[node];
        if (before >= node || before < -1) return -1;
        node = before;
    }
    return depth;
}

__device__ __forceinline__ bool follows(const int32_t *parent, int i, int node) { return parent ? parent[i] == node : i == node + 1; }

__device__ __forceinline__ bool params_of(const param_arrays &a, int64_t request, int64_t vocab, row_params *p) {
    const int64_t slot = a.slot ? a.slot[request] : request;
    if (slot < 0 || slot >= a.slots) return false;
    p->temperature = a.temperature ? a.temperature[slot] : 1.0f;
    p->top_p = a.top_p ? a.top_p[slot] : 1.0f;
    p->min_p = a.min_p ? a.min_p[slot] : 0.0f;
    p->top_k = a.top_k ? a.top_k[slot] : 0;
    p->flags = a.flags;
    p->vocab = vocab;
    p->seed = p->position = 0;
    p->draft_step = 0;
    return p->temperature >= 0.0f && p->top_p == p->top_p && p->min_p == p->min_p;
}

template <class type> __device__ __forceinline__ device_row verify_row(const verify_args &a, int64_t index) {
    const bool draft = index >= a.rows;
    const int64_t row = draft ? index - a.rows : index;
    const param_arrays &p = draft ? a.draft : a.target;
    device_row r;
    r.logits = draft ? a.draft_logits + row * a.draft_stride * type::BYTES : a.logits + row * a.row_stride * type::BYTES;
    r.allow = p.allow ? p.allow + row * p.allow_stride : nullptr;
    r.vocab = a.vocab;
    r.aligned = (uintptr_t)r.logits % 16 == 0;
    return r;
}

/* ---- tickets ---------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float peak_of_group(const verify_args &a, int64_t index, const row_law &law, int g) {
    const float *peak = a.peak + index * a.groups * PIECES;
    if (!law.pieces) return __ldcg(peak + g);
    const float4 p = __ldcg((const float4 *)peak + g);
    return fmaxf(fmaxf(p.x, p.y), fmaxf(p.z, p.w));
}

/* Which share of a range of `all` tickets, 2^right weights each, the weights from `before` on hold. */
__device__ __forceinline__ uint64_t tickets_share(uint64_t before, uint32_t weight, uint32_t right, uint64_t all) {
    const uint64_t unit = (1ull << right) - 1;
    return min((before + weight + unit) >> right, all) - min((before + unit) >> right, all);
}

/* Thread i: the tickets of the i-th token of group g. By all threads of the block. */
template <class type>
static __device__ __noinline__ uint64_t block_tickets(const device_row &row, const row_law &law, float peak, int g, block_space *space) {
    if (!(peak >= law.kept.low) || peak == MINUS_INF) return 0;
    const group_ref r = group_ref_any(&law.by, peak);
    const int64_t id = g * (int64_t)GROUP + threadIdx.x;
    const float x = threadIdx.x < GROUP ? token_read<type>(row, id) : MINUS_INF;
    const uint32_t weight = x > MINUS_INF ? weigh_one(x, r.ref) : 0;
    if (law.whole && r.right) {
        const uint64_t before = block_before(weight, space), all = block_add(weight, space) >> r.right;
        return tickets_share(before, weight, r.right, all);
    }
    return law.whole || cut_keeps(law.kept, x, id) ? group_tickets(&r, weight) : 0;
}

/* Lane l: the tickets of tokens l, l + 32, ... of group g; false if there are none. By all lanes of a warp. */
template <class type>
__device__ __forceinline__ bool warp_tickets(const device_row &row, const row_law &law, float peak, int g, uint64_t t[LANE_TOKENS]) {
    if (!(peak >= law.kept.low) || peak == MINUS_INF) return false;
    const int lane = threadIdx.x % WARP;
    const group_ref r = group_ref_any(&law.by, peak);
    uint32_t weight[LANE_TOKENS];
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        const int64_t id = g * (int64_t)GROUP + j * WARP + lane;
        const float x = token_read_inline<type>(row, id);
        weight[j] = x > MINUS_INF ? weigh_one(x, r.ref) : 0;
        t[j] = law.whole || cut_keeps(law.kept, x, id) ? group_tickets(&r, weight[j]) : 0;
        sum += weight[j];
    }
    if (!law.whole || !r.right) return true;
    const uint64_t all = group_sum(sum) >> r.right;
    uint64_t before = 0;
#pragma unroll 1
    for (int j = 0; j < LANE_TOKENS; ++j) {
        uint64_t through = weight[j];
        for (int step = 1; step < WARP; step <<= 1) {
            const uint64_t other = __shfl_up_sync(ALL_LANES, through, step);
            if (lane >= step) through += other;
        }
        t[j] = tickets_share(before + through - weight[j], weight[j], r.right, all);
        before += __shfl_sync(ALL_LANES, through, WARP - 1);
    }
    return true;
}

/* ---- the first kernel ---------------------------------------------------------------------------------------- */

/* Looks up a row, by one thread. */
template <class type> __device__ __forceinline__ void verify_job(const verify_args &a, int64_t index, const device_row &row, row_job *k) {
    const bool draft = index >= a.rows;
    const int64_t r = draft ? request_of(a, index - a.rows, 0) : request_of(a, index, 1);
    int64_t first, count;
    row_params p = {};
    bool valid = request_range(a, r, &first, &count) && params_of(draft ? a.draft : a.target, r, a.vocab, &p);
    if (valid && !draft) {
        const int64_t node = index - (first + r) - 1, slot = a.target.slot ? a.target.slot[r] : r;
        const int depth = node < count ? depth_of(a.parent ? a.parent + first : nullptr, (int)node) : -1;
        valid = node >= -1 && depth >= 0;
        p.seed = a.seed[slot];
        p.position = a.position[slot] + (uint64_t)depth;
    }
    const rules rule = rules_make(&p);
    const bool filters = rule.top_k || rule.top_p || rule.min_p_first || rule.min_p_last;
    records to = {};
    to.greedy = rule.greedy;
    to.weights = !rule.greedy && (!filters || rule.row_mass);
    if (to.weights) to.by = scale_make(filters ? rule.filter_temperature : p.temperature);
    to.weights = to.weights && !to.by.flat;
    to.pieces = filters || !to.weights;
    to.peak = a.peak + index * a.groups * PIECES;
    to.mass = a.mass + index * a.groups;
    k->valid = valid;
    k->row = row;
    k->params = p;
    k->groups = a.groups;
    k->to = to;
    k->rules = rule;
}

/* The law of a row whose groups are read, by all threads. */
template <class type> static __device__ __noinline__ void law_make(work<type> *k, bool nan, row_law *law) {
    __builtin_assume(__isShared(k));
    float best;
    answer told = {};
    told.token = RULE_NO_TOKEN;
    if (k->to.greedy) {
        uint64_t most = 0;
        for (int i = 0; i < BLOCK_WARPS; ++i) most = max(most, k->best_of_warp[i]);
        best = key_logit(most);
        told.greedy = 1;
        told.token = key_token(most);
    } else {
        k->begin();
        best = k->row_best;
        told = row_answer(k, &k->params, best);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        row_law made = {};
        made.valid = true;
        made.empty = best == MINUS_INF;
        made.greedy = told.greedy && !made.empty;
        made.flags = (nan ? RULE_ROW_NAN : 0) | (best == PLUS_INF ? RULE_ROW_INF : 0) | (made.empty ? RULE_ROW_EMPTY : 0);
        made.token = told.token;
        made.mass = made.greedy ? 1 : told.draw_tickets;
        made.kept.low = told.threshold;
        made.kept.tie_last = told.tie_last;
        made.whole = !(told.threshold > -FLT_MAX) && told.tie_last == INT32_MAX;
        made.pieces = k->to.pieces;
        if (!made.greedy && !made.empty) made.by = weighing_make(k->params.temperature, best);
        *law = made;
    }
    __syncthreads();
}

/* The tickets of a draft under a row's law, to one place. By all threads. */
template <class type>
__device__ __forceinline__ void draft_tickets(const verify_args &a, int64_t index, work<type> *k, const row_law &law, int32_t token, uint64_t *to) {
    if (token < 0 || token >= a.vocab) return;
    uint64_t own = law.greedy && token == law.token && threadIdx.x == token % GROUP;
    if (!law.greedy && !law.empty)
        own = block_tickets<type>(k->row, law, peak_of_group(a, index, law, token / GROUP), token / GROUP, &k->block);
    if (threadIdx.x == token % GROUP) *to = own;
}

template <class type> __global__ void __launch_bounds__(BLOCK_THREADS) verify_rows_kernel(const __grid_constant__ verify_args a) {
    __shared__ work<type> k;
    __shared__ row_law law;
    const int64_t index = blockIdx.x;
    const int warp = threadIdx.x / WARP;
    const device_row row = verify_row<type>(a, index);
    const bool plain = row.aligned && !row.allow;
    flight<type> f;
    if (plain) f.start(row.logits, warp, (int)(a.vocab / GROUP));
    if (threadIdx.x == 0) {
        verify_job<type>(a, index, row, &k);
        law = row_law();
        law.flags = RAFFLE_ROW_ARGUMENT;
        law.token = RULE_NO_TOKEN;
    }
    if (threadIdx.x % WARP == 0) k.best_of_warp[warp] = 0;
    __syncthreads();
    if (k.valid) {
        const int groups = a.groups;
        const bool nan = __syncthreads_or(groups_read<type>(&k, f, plain, [&] { return make_int2(warp, groups); }));
        law_make(&k, nan, &law);
    }
    if (threadIdx.x == 0) a.law[index] = law;
    if (!law.valid) return;
    if (index >= a.rows) {
        const int64_t i = index - a.rows;
        draft_tickets<type>(a, index, &k, law, a.token[i], a.tickets_s + i);
        return;
    }
    const int64_t r = request_of(a, index, 1), first = first_of(a, r), count = first_of(a, r + 1) - first;
    const int node = (int)(index - (first + r)) - 1;
    for (int i = a.parent ? 0 : node + 1; i < count && (a.parent || i == node + 1); ++i)
        if (follows(a.parent ? a.parent + first : nullptr, i, node))
            draft_tickets<type>(a, index, &k, law, a.token[first + i], a.tickets_t + first + i);
}

/* ---- what is left over ------------------------------------------------------------------------------------------ */

/* One position of a request: its target row, and its draft's row (-1: tokens alone), which may be greedy. */
struct position_pair {
    int64_t row, draft;
    odds by;
    int node;
};

/* A request on its way; the same in all threads but for `space`. */
struct request_walk {
    int64_t request, slot, first, row_first;
    int count;
    const int32_t *token, *parent;
};

__device__ __forceinline__ double double_of_wide(wide a) {
    return (double)a.word[0] + (double)a.word[1] * 0x1p64 + (double)a.word[2] * 0x1p128;
}

/* Takes the tokens that are known (tried siblings, a greedy draft's) out of a lane's tickets: what they leave is nothing. */
__device__ __forceinline__ void lane_without(const verify_args &a, const request_walk &w, const position_pair &p, int g, uint64_t t[LANE_TOKENS]) {
    const int lane = threadIdx.x % WARP;
    const bool own = p.draft >= 0; /* a greedy draft row: one token */
    for (int i = own || !w.parent ? p.node + 1 : 0; i < w.count; ++i) {
        if (!own && !follows(w.parent, i, p.node)) continue;
        const int32_t token = own ? a.law[p.draft].token : w.token[i];
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (token == g * GROUP + j * WARP + lane) t[j] = 0;
        if (own || !w.parent) break;
    }
}

/* Leaves for each group, in mass of both rows, the sums of the tickets of tokens that have something left. By all threads. */
template <class type> static __device__ __noinline__ void left_over(const verify_args &a, const request_walk &w, const position_pair &p) {
    const row_law target = a.law[p.row], own = p.draft >= 0 ? a.law[p.draft] : row_law();
    const bool tokens = p.draft < 0 || own.greedy;
    const device_row row = verify_row<type>(a, p.row), draft_row = tokens ? row : verify_row<type>(a, p.draft);
    const double up = double_of_wide(p.by.up), down = double_of_wide(p.by.down);
    const double over = down * (1.0 + 0x1p-48), under = down * (1.0 - 0x1p-48);
    for (int g = threadIdx.x / WARP; g < a.groups; g += BLOCK_WARPS) {
        uint64_t t[LANE_TOKENS] = {}, s[LANE_TOKENS] = {}, sum_t = 0, sum_s = 0;
        if (warp_tickets<type>(row, target, peak_of_group(a, p.row, target, g), g, t)) {
            if (tokens) lane_without(a, w, p, g, t);
            else warp_tickets<type>(draft_row, own, peak_of_group(a, p.draft, own, g), g, s);
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
        if (threadIdx.x % WARP == 0) {
            __stcg(a.mass + p.row * a.groups + g, sum_t);
            if (p.draft >= 0) __stcg(a.mass + p.draft * a.groups + g, sum_s);
        }
    }
    __syncthreads();
}

__device__ __forceinline__ uint64_t left_s(const verify_args &a, const position_pair &p, int g) {
    return p.draft >= 0 ? __ldcg(a.mass + p.draft * a.groups + g) : 0;
}

/* Shared memory of the second kernel. */
struct walk_space {
    block_space block;
    wide rest;
    int32_t group, token;
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
template <class type>
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
    const row_law target = a.law[p.row], own = p.draft >= 0 ? a.law[p.draft] : row_law();
    const bool tokens = p.draft < 0 || own.greedy;
    t = block_tickets<type>(verify_row<type>(a, p.row), target, peak_of_group(a, p.row, target, g), g, &space->block);
    s = 0;
    if (!tokens)
        s = block_tickets<type>(verify_row<type>(a, p.draft), own, peak_of_group(a, p.draft, own, g), g, &space->block);
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

template <class type>
__device__ __forceinline__ int32_t recover(const verify_args &a, const request_walk &w, const position_pair &p, int depth, walk_space *space) {
    left_over<type>(a, w, p);
    philox_pair bits = philox_step(a.seed[w.slot], a.position[w.slot], STREAM_RECOVER, (uint32_t)depth);
    if (a.recover_bits) bits.low = a.recover_bits[2 * w.request], bits.high = a.recover_bits[2 * w.request + 1];
    const wide total = left_total(a, p, space);
    if (wide_is_zero(total)) return a.law[p.row].token;
    return left_holder<type>(a, w, p, wide_share(total, bits.high, bits.low), space);
}

__device__ __forceinline__ void emit(const verify_args &a, const request_walk &w, int index, int32_t token, int32_t draft, uint32_t flags) {
    if (threadIdx.x) return;
    a.out[w.row_first + index] = token;
    if (a.path) a.path[w.row_first + index] = draft;
    if (a.row_flags) a.row_flags[w.row_first + index] = flags;
}

__device__ __forceinline__ void emit_last(const verify_args &a, const request_walk &w, int index, int32_t token, uint32_t flags) {
    if (flags & RULE_ROW_EMPTY) token = a.empty_token;
    emit(a, w, index, token, -1, flags);
    if (threadIdx.x == 0) {
        a.accepted[w.request] = index;
        if (a.last) a.last[w.request] = token;
    }
    for (int i = index + 1; i <= w.count; ++i) emit(a, w, i, RULE_NO_TOKEN, -1, 0);
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
        const uint64_t t = seen_before(a, w, node, i) ? 0 : a.tickets_t[w.first + i];
        sum += t;
        if (mul_high(bits, whole) < sum || t >= enough) return i;
    }
    return -1;
}

__device__ __forceinline__ chances chances_of(const verify_args &a, const request_walk &w, int i, int64_t row) {
    chances c = {a.tickets_t[w.first + i], a.law[row].mass, 1, 1};
    if (a.draft_logits) {
        c.s = a.tickets_s[w.first + i];
        c.mass_q = a.law[a.rows + w.first + i].mass;
    }
    return c;
}

__device__ __forceinline__ position_pair pair_of(const verify_args &a, const request_walk &w, int node) {
    position_pair p;
    p.row = w.row_first + node + 1;
    p.draft = a.draft_logits ? a.rows + w.first + node + 1 : -1;
    p.node = node;
    return p;
}

/* Whether the row of draft i says how it was drawn. */
__device__ __forceinline__ bool draft_judged(const verify_args &a, const request_walk &w, int i) {
    if (!a.draft_logits) return true;
    const row_law &law = a.law[a.rows + w.first + i];
    return law.valid && !law.empty;
}

template <class type> __device__ __forceinline__ void walk_steps(const verify_args &a, const request_walk &w, walk_space *space) {
    int node = -1;
    for (int n = 0;; ++n) {
        const int64_t row = w.row_first + node + 1;
        const row_law &law = a.law[row];
        uint32_t flags = law.flags | child_flags(a, w, node);
        int32_t token = law.token;
        int child = law.valid && !law.empty ? next_child(a, w, node, 0) : -1;
        if (child >= 0 && a.method == RAFFLE_SYNTHETIC) {
            if (!rate_accepts(accept_bits(a, w, node, n), a.rate)) child = -1;
        } else if (child >= 0 && (a.method == RAFFLE_MATCH || law.greedy)) {
            while (child >= 0 && w.token[child] != token) child = next_child(a, w, node, child + 1);
        } else if (child >= 0) {
            position_pair p = pair_of(a, w, node);
            bool judged = draft_judged(a, w, child), accepts = false;
            if (!judged) {
                flags |= RAFFLE_ROW_DRAFT;
            } else if (!a.draft_logits) {
                const int found = accepted_sibling(a, w, node, n, law.mass);
                accepts = found >= 0;
                if (accepts) child = found;
            } else {
                accepts = ratio_accepts(accept_bits(a, w, node, n), chances_of(a, w, child, row));
            }
            if (judged && !accepts) {
                p.by = odds_make(law.mass, p.draft >= 0 ? a.law[p.draft].mass : 1);
                token = recover<type>(a, w, p, n, space);
            }
            if (!accepts) child = -1;
        }
        if (child < 0) {
            emit_last(a, w, n, token, flags);
            return;
        }
        emit(a, w, n, w.token[child], child, flags);
        node = child;
    }
}

template <class type> __device__ __forceinline__ void walk_block(const verify_args &a, const request_walk &w, walk_space *space) {
    uint64_t weight = BLOCK_ONE, end_weight = BLOCK_ONE;
    int length = 0;
    uint32_t more = 0;
    bool judged = true;
    for (int i = 0; weight; ++i) {
        const int64_t row = w.row_first + i;
        const row_law &law = a.law[row];
        const uint64_t bits = accept_bits(a, w, i - 1, i);
        const bool draft = law.valid && !law.empty && next_child(a, w, i - 1, 0) >= 0;
        if (!draft || !draft_judged(a, w, i)) {
            if (!i || block_accepts_all(bits, weight)) {
                length = i;
                judged = false;
                more = draft ? RAFFLE_ROW_DRAFT : child_flags(a, w, i - 1);
            }
            break;
        }
        const chances c = chances_of(a, w, i, row);
        if (i) {
            position_pair p = pair_of(a, w, i - 1);
            p.by = block_odds(weight, c.mass_p, c.mass_q);
            left_over<type>(a, w, p);
            if (block_accepts(bits, weight, left_total(a, p, space), c.mass_p, c.mass_q)) {
                length = i;
                end_weight = weight;
            }
        }
        weight = block_next(weight, c);
        emit(a, w, i, w.token[i], i, law.flags);
    }
    const row_law &law = a.law[w.row_first + length];
    int32_t token = law.token;
    if (judged) {
        position_pair p = pair_of(a, w, length - 1);
        p.by = block_odds(end_weight, law.mass, p.draft >= 0 ? a.law[p.draft].mass : 1);
        token = recover<type>(a, w, p, length, space);
    }
    emit_last(a, w, length, token, law.flags | more);
}

template <class type> __global__ void __launch_bounds__(BLOCK_THREADS) verify_walk_kernel(const __grid_constant__ verify_args a) {
    __shared__ walk_space space;
    request_walk w;
    int64_t count;
    w.request = blockIdx.x;
    const bool sane = request_range(a, w.request, &w.first, &count);
    w.row_first = w.first + w.request;
    w.count = (int)count;
    w.slot = a.target.slot ? a.target.slot[w.request] : w.request;
    w.token = a.token ? a.token + w.first : nullptr;
    w.parent = a.parent ? a.parent + w.first : nullptr;
    if (!sane || w.slot < 0 || w.slot >= a.target.slots) { /* what can be said without touching a row that may not be its own */
        if (threadIdx.x == 0) {
            a.accepted[w.request] = 0;
            if (a.last) a.last[w.request] = RULE_NO_TOKEN;
        }
        if (sane) emit_last(a, w, 0, RULE_NO_TOKEN, RAFFLE_ROW_ARGUMENT);
        return;
    }
    if (threadIdx.x == 0) { /* logits that change under the kernel may leave a number without a holder */
        space.token = RULE_NO_TOKEN;
        space.group = 0;
        space.rest = wide_of(0);
    }
    __syncthreads();
    if (a.method == RAFFLE_BLOCK && !a.law[w.row_first].greedy) walk_block<type>(a, w, &space);
    else walk_steps<type>(a, w, &space);
}

#endif
