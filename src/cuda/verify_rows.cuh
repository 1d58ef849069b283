/* verify_rows.cuh - the first kernel of raffle_verify: samples every row, target and draft, in parts as raffle_sample does,
 * and leaves each row's law and the tickets that the drafts behind it have in it. Whoever completes a request walks it. */
#ifndef RAFFLE_CUDA_VERIFY_ROWS_CUH
#define RAFFLE_CUDA_VERIFY_ROWS_CUH

#include "verify_walk.cuh"

#if CUT_MORE
/* The `depth` drafts on the way to draft `node`, at most TAIL_MAX: a chain's lie in order, those of a path through a tree are brought
 * together. By one warp. */
__device__ __forceinline__ const int32_t *path_read(const verify_args &a, int64_t first, int64_t node, int depth, int32_t *path) {
    if (!a.parent) return a.token + first;
    for (int at = depth - 1; at >= 0; --at, node = a.parent[first + node])
        if (threadIdx.x == 0) path[at] = a.token[first + node];
    return path;
}

/* Where a row belongs. */
struct row_place {
    int64_t first, count; /* its request's drafts */
    int64_t node;         /* the draft before it; -1: none */
    int depth;            /* drafts on the way to it, itself included */
};

/* What a row's request asks for beyond row_params; slot -1: nothing can be asked. Returns false if it cannot be done. By one warp. */
__device__ __forceinline__ bool request_find(const verify_args &a, const row_place &at, int64_t index, int64_t slot, device_row *row,
                                             int32_t *space, row_request *q) {
    const bool draft = index >= a.rows;
    const param_arrays &from = draft ? a.draft : a.target;
    request_read(a, from.extra, from.pool, index, slot, row, q);
    __syncwarp();
    if (slot < 0) return true;
    if (at.count > TAIL_MAX && (a.target.pool.memory || a.draft.pool.memory)) return false;
    if (!q->prepares) return true;
    if (draft && (q->said.row_flags || q->extra.xtc_probability > 0.0f)) return false; /* its law is not known */
    if (!from.pool.memory) return true;
    const int32_t *path = path_read(a, at.first, at.node, at.depth, space);
    if (threadIdx.x == 0) q->said = said_behind(q->said, path, at.depth);
    return true;
}
#endif

/* What a row is asked for: the tickets of the draft behind it, if there is one, or its own draft's; what it gives itself if it is one of
 * the target and no draft may take the place of that. Siblings are asked for later, when its law is known. By one thread. */
__device__ __forceinline__ void ask_make(const verify_args &a, int64_t index, const row_home &at, bool valid, row_ask *ask) {
    const bool draft = index >= a.rows;
    const int64_t i = draft ? index - a.rows : index - at.request; /* the draft */
    ask->token = RULE_NO_TOKEN;
    ask->draws = !draft;
    ask->done = false;
    ask->listed = 0;
    if (!valid || !at.here || (!draft && (a.parent || i >= at.first + at.count))) return;
    const int32_t token = a.token[i];
    ask->token = token < a.vocab ? token : (int32_t)RULE_NO_TOKEN;
    ask->tickets = (draft ? a.tickets_s : a.tickets_t) + i;
    if (ask->token >= 0 && a.method == RAFFLE_REJECTION && !a.recover_bits) ask->draws = false;
}

/* What a request's parameters say of the rows of its drafts. */
struct target_rules {
    bool greedy; /* drafts are compared with tokens, and their rows are not looked at */
    bool cut;    /* what rejected drafts leave over is summed up, which takes exact masses */
};
__device__ __forceinline__ target_rules target_of(const verify_args &a, int64_t request) {
    row_params p = {};
    if (!params_of(a.target, request, a.vocab, &p)) return {false, false};
    const rules r = rules_make(&p);
    return {(bool)r.greedy, r.top_k || r.top_p || r.min_p_first || r.min_p_last};
}

/* Looks up a row's parameters and decides what its first reading has to leave behind. Done by one warp. */
template <class type> __device__ __forceinline__ void job_read(const verify_args &a, int64_t index, device_row row, work<type> *k) {
    const bool draft = index >= a.rows;
    const int64_t r = draft ? request_of(a, index - a.rows, 0) : request_of(a, index, 1);
    int64_t first, count;
    row_params p = {};
    const bool probs = type::LINEAR;
    const bool given = probs || params_of(draft ? a.draft : a.target, r, a.vocab, &p); /* on their way while the target's are */
    const target_rules target = draft ? target_of(a, r) : target_rules();
    const bool here = request_range(a, r, &first, &count) && !target.greedy, known = here && given;
    if (!here) p = row_params();
    bool valid = known;
    const int64_t node = (draft ? index - a.rows : index - r) - first - 1;
    int depth = (int)node + 1;
    if (valid && !draft) {
        const int64_t slot = a.target.slot ? a.target.slot[r] : r;
        depth = node < count ? depth_of(a.parent ? a.parent + first : nullptr, (int)node) : -1;
        valid = node >= -1 && depth >= 0;
        p.seed = a.seed[slot];
        p.position = a.position[slot] + (uint64_t)depth;
    }
    if (probs) {
        p.temperature = LINEAR_TEMPERATURE;
        p.top_p = 1.0f;
        p.vocab = a.vocab;
    }
#if CUT_MORE
    const row_place at = {first, count, node, depth};
    const int32_t *slots = draft ? a.draft.slot : a.target.slot;
    if (!request_find(a, at, index, !valid || probs ? -1 : slots ? slots[r] : r, &row, k->edit.path, &k->request)) valid = false;
    const row_filters more = ROW_FILTERS(&k->request.extra);
    p.more = more;
    p.flags |= k->request.extra.flags;
#endif
    records to = records_make<type>(p);
    const bool alone = !draft && known && to.greedy; /* before a report asks for more */
#if CUT_MORE
    if (!to.pieces) p.more.keep_least = 0; /* as raffle_sample does */
#endif
    to.peak = a.peak + index * a.groups * PIECES;
    to.mass = a.mass + index * a.groups;
    if constexpr (type::ABOUT) to.about = a.about && to.weights && !to.pieces && row_plain(row) && !target.cut;
    if constexpr (type::REQUESTED) {
        if (threadIdx.x == 0) k->also = k->apart = false;
        if (a.has_report && !draft)
            report_expect(a.report, p, row, &to, a.shown_mass + index * a.groups, a.shown_peak + index * a.groups * PIECES, k);
        if (threadIdx.x == 0) k->top_first = 0; /* the report comes later */
    }
    if (threadIdx.x) return;
    const row_home home = {r, first, count, here && node >= -1 && node < count - draft, alone};
    k->home = home;
    if constexpr (type::ASKED) ask_make(a, index, home, valid, &k->ask);
    k->valid = valid;
#if CUT_MORE
    k->row = row;
#else
    k->row = row_make<type>(a, part_make(a).row); /* anew: kept until here, it would be put onto the stack by every thread */
#endif
    k->params = p;
    k->groups = a.groups;
    k->to = to;
}

/* A law of which the head is known: all there is to say of a row that is greedy, or of parameters that are wrong. By one thread. */
template <class type> __device__ __forceinline__ row_law law_begin(const work<type> &k, const law_head &head) {
    row_law law = row_law();
    (law_head &)law = head;
#if CUT_MORE
    if (head.valid) law.flags |= k.request.said.row_flags;
#endif
    law.pieces = k.to.pieces;
    return law;
}

/* The law of any other row whose groups are all read, by all threads. */
template <class type> static __device__ __noinline__ void law_make(work<type> *k, row_law *law) {
    __builtin_assume(__isShared(k));
    float best;
    const int32_t token = row_draw(*k, &best);
    if (threadIdx.x == 0) {
        const answer &told = k->told;
        row_law made = law_begin(*k, head_make(best, token, k->nan, type::LINEAR && k->nan));
        float most = best;
        made.greedy = CUT_MORE && told.greedy && !made.empty; /* a row may be read like others for its report */
        if (told.capped) most = told.high;
        made.kept = cut_of(&told);
        made.whole = told.whole;
        if (made.greedy) {
            made.kept = cut();
            made.whole = false;
        } else {
            made.mass = told.draw_tickets;
            made.about = type::ABOUT && k->to.about && weights_hold<type::LINEAR>(k->by, best); /* else it was weighed otherwise */
            if constexpr (type::ASKED) {
                made.owed = !k->ask.draws && made.whole;
                made.listed = k->ask.listed;
            }
            made.by.scale = k->by;
            made.by.best = most;
            if (!made.empty) made.by.row = ref_any(k->by, most);
        }
        *law = made;
    }
    __syncthreads();
}

/* The tickets of a draft under a row's law, to one place. By all threads. */
template <class type>
__device__ __forceinline__ void draft_tickets(const verify_args &a, int64_t index, work<type> *k, const row_law &law, int32_t token,
                                              uint64_t *to) {
    if (token < 0 || token >= a.vocab) return;
    uint64_t own = law.greedy && token == law.token;
    if (!law.greedy && !law.empty)
        own = block_tickets<type>(k->row, law, peak_of_group(a, index, law, token / GROUP), token / GROUP, &k->block);
    if (threadIdx.x == token % GROUP) *to = own;
}

/* Calls each(token, place) for the drafts behind a row of a request whose offsets are good (a draft's row needs none): their tickets in it
 * go to that place. */
template <class visit> __device__ __forceinline__ void drafts_behind(const verify_args &a, int64_t index, visit each) {
    if (index >= a.rows) {
        const int64_t i = index - a.rows;
        return each(a.token[i], a.tickets_s + i);
    }
    const int64_t r = request_of(a, index, 1), first = first_of(a, r), count = first_of(a, r + 1) - first;
    const int node = (int)(index - (first + r)) - 1;
    for (int i = a.parent ? 0 : node + 1; i < count && (a.parent || i == node + 1); ++i)
        if (follows(a.parent ? a.parent + first : nullptr, i, node)) each(a.token[first + i], a.tickets_t + first + i);
}

/* Leaves a row's law, and its state ready for the next call. By one thread. */
__device__ __forceinline__ void law_leave(const verify_args &a, int64_t index, row_state *state, const row_law &law) {
    *state = {0, 0};
    a.head[index] = law;
    if (CUT_MORE || !law.greedy || index >= a.rows) a.law[index] = law; /* else nobody asks for it */
}

/* The same by all threads, a word each. */
__device__ __forceinline__ void law_leave_all(const verify_args &a, int64_t index, const row_law &law) {
    if (threadIdx.x < BLOCK_THREADS / 2) block_copy(a.law + index, &law);
    else block_copy(a.head + index, (const law_head *)&law);
    if (threadIdx.x == BLOCK_THREADS - 1) a.state[index] = {0, 0};
}

/* Tells that so many groups more of a request's rows are done with, `greedy` as REQUEST_GREEDY or 0. By one thread. */
enum closing { CLOSES_NOT, CLOSES, CLOSES_GREEDY };
__device__ __forceinline__ closing request_arrive(const verify_args &a, const row_home &at, int groups, uint64_t greedy) {
    if (!at.here) return CLOSES_NOT; /* offsets that are not those of this batch: no row of this request */
    const uint64_t rows = (uint64_t)(a.draft_data && !at.alone ? 2 * at.count : at.count) + 1, more = (uint64_t)groups | greedy;
    const uint64_t all = count_arrived(a.arrived + at.request, more) + more;
    if (all % REQUEST_GREEDY != rows * (uint64_t)a.groups) return CLOSES_NOT;
    return all >= REQUEST_GREEDY ? CLOSES_GREEDY : CLOSES;
}

/* Greedy rows of the target have no law to make: their blocks tell what they have found, and whoever walks the request looks at it.
 * That saves each row a wait for its own completion. All rows of the request are greedy then, or wrong. */
template <class type> __device__ __forceinline__ bool counted_by_request(const verify_args &a, const work<type> &k, int64_t index) {
    return !CUT_MORE && k.to.greedy && index < a.rows && k.home.here;
}
template <class type>
__device__ __forceinline__ closing greedy_arrive(const verify_args &a, const work<type> &k, const block_part &p, bool nan) {
    row_state *state = a.state + p.row;
    if (k.valid) atomicMax((unsigned long long *)&state->best, (unsigned long long)block_best(k));
    if (nan || !k.valid) atomicOr(&state->done, k.valid ? GREEDY_NAN : GREEDY_WRONG);
    const bool first = p.row == k.home.first + k.home.request && !p.first; /* one block of the request */
    return request_arrive(a, k.home, p.end - p.first, first ? REQUEST_GREEDY : 0);
}

/* Reads a block's part of a row; whoever completes a row makes its law. Tells whether that was the last of its request. */
template <class type>
__device__ __forceinline__ closing part_judge(const verify_args &a, work<type> &k, row_law &law, bool &last, closing &closes) {
    const bool nan = part_read<type>(a, &k);
    if (threadIdx.x == 0) {
        const block_part p = part_make(a);
        row_state *state = a.state + p.row;
        closes = CLOSES_NOT;
        if (counted_by_request(a, k, p.row)) {
            closes = greedy_arrive(a, k, p, nan);
        } else {
            if (p.first == 0 && p.end == a.groups && !k.to.greedy) last = true, k.nan = nan; /* nobody else to wait for */
            else last = row_arrive(state, &k, p.end - p.first, nan);
            if (last && (k.to.greedy || !k.valid)) { /* one thread is enough to finish */
                const bool draft = p.row >= a.rows, empty = type::LINEAR && k.nan;
                const row_law made = law_begin(k, k.valid ? head_greedy(__ldcg(&state->best), k.nan, empty) : head_wrong());
                law_leave(a, p.row, state, made);
                if (draft) /* else nobody asks for them; and offsets may be those of no row */
                    drafts_behind(a, p.row, [&](int32_t token, uint64_t *to) { *to = made.greedy && token == made.token; });
                closes = request_arrive(a, k.home, a.groups, 0);
            }
        }
    }
    if (k.to.greedy || !k.valid) {
        __syncthreads();
        return closes;
    }
    if (threadIdx.x == WARP) {
        const int64_t row = part_make(a).row;
        /* Not in job_read, where nothing more fits into registers. */
        if (a.draw_bits && row < a.rows) k.params.bits = a.draw_bits + 2 * row;
        job_prepare(&k);
        k.asks = row < a.rows ? ASKS_TOKEN | ASKS_KEPT : ASKS_KEPT; /* nobody asks for a token of a draft's row */
    }
    __syncthreads();
    if (!last) return CLOSES_NOT;
    const int64_t index = part_make(a).row;
    law_make(&k, &law);
    law_leave_all(a, index, law);
    bool asks = true;
    if constexpr (type::ASKED) {
        kept_leave(a.kept + index, &k.q, k.ask.listed);
        asks = !k.ask.done || (a.parent && index < a.rows);
    }
    if (asks) drafts_behind(a, index, [&](int32_t token, uint64_t *to) { draft_tickets<type>(a, index, &k, law, token, to); });
    __syncthreads();
    if (threadIdx.x == 0) closes = request_arrive(a, k.home, a.groups, 0);
    __syncthreads();
    return closes;
}

/* What a block has of one row, and then of its request, whose target rows are of type `target`. */
template <class target, class type>
__device__ __forceinline__ void part_verify(const verify_args &a, work<type> &k, row_law &law, bool &last, closing &closes) {
    if (part_judge<type>(a, k, law, last, closes) == CLOSES_NOT) return;
    const row_home at = k.home;
    request_close<target>(a, at.request, at.first, (int)at.count, closes == CLOSES_GREEDY, (walk_stage *)(void *)&k);
}

/* `draft` is the type of draft rows: that of the logits, or of probabilities. Both are judged. One kernel of requested calls, which
 * are large, serves both: its `draft` is that of probabilities. */
template <class type, class draft>
__global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM) verify_rows_kernel(const __grid_constant__ verify_args a) {
    __shared__ kernel_work<type> k;
    static_assert(sizeof(work<draft>) <= sizeof k && sizeof(walk_stage) <= sizeof k && alignof(walk_stage) <= alignof(kernel_work<type>),
                  "they take turns in it");
    __shared__ row_law law;
    __shared__ bool last;
    __shared__ closing closes;
    previous_wait();
    next_start();
#if CUT_MORE
    const int64_t index = part_make(a).row;
    if (index >= rows_of(a)) return;
    if (index < a.rows || !a.draft_probs) part_verify<type, type>(a, k, law, last, closes);
    else part_verify<type, draft>(a, *(work<draft> *)(void *)&k, law, last, closes);
#else
    if (!part_find(a)) return;
    if (same_type<type, draft>::YES || part_make(a).row < a.rows) part_verify<type, type>(a, k, law, last, closes);
    else part_verify<type, draft>(a, *(work<draft> *)(void *)&k, law, last, closes);
#endif
}

#endif
