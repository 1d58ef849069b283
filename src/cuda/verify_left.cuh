/* verify_left.cuh - the second kernel of raffle_verify: the tokens that take the place of rejected drafts, where the first does not know
 * them. Of rows without a cut they are proposed, by some blocks for each; where only the target's row has a list, one block weighs the
 * draft's groups that have tokens of it; of others its blocks share all groups, which must be read again for what rejected drafts have left
 * over. Whoever completes a request ends it. */
#ifndef RAFFLE_CUDA_VERIFY_LEFT_CUH
#define RAFFLE_CUDA_VERIFY_LEFT_CUH

#include "grid.cuh"
#include "verify_propose.cuh"

/* ---- the token that is recovered --------------------------------------------------------------------------------------------- */

/* What is left over of a group, in tickets of one of the rows. */
__device__ __forceinline__ uint64_t left_of(const left_row &row, int g) { return row.mass ? __ldcg(row.mass + g) : 0; }

/* Sums over the threads before this one of a pair, and over all. By all threads; there is a barrier between two uses of a space. */
__device__ __forceinline__ ulonglong2 pair_before(uint64_t t, uint64_t s, pair_space of_warp, ulonglong2 *all) {
    uint64_t all_t, all_s;
    t = before_in_warp(t, of_warp[0]);
    s = before_in_warp(s, of_warp[1]);
    __syncthreads();
    t = before_in_block(t, of_warp[0], &all_t);
    s = before_in_block(s, of_warp[1], &all_s);
    *all = make_ulonglong2(all_t, all_s);
    return make_ulonglong2(t, s);
}

/* The tickets of a token of a group whose reference is PLAIN, if it has any. The group weighs `all`, what is before the token `before`. */
__device__ __forceinline__ uint64_t near_tickets(const left_row &row, float peak, float x, int64_t id, uint32_t weight, uint64_t before,
                                                 uint64_t all) {
    const row_law &law = row.law;
    if (!may_hold(law, peak) || !(peak >= row.scale.best - row.scale.by.drop)) return 0;
    const group_ref r = group_ref_near(row.scale, peak);
    if (law.whole && r.right) return tickets_share(before, weight, r.right, all >> r.right);
    return law.whole || cut_keeps(law.kept, x, id) ? group_tickets(&r, weight) : 0;
}
__device__ __forceinline__ uint32_t near_weight(const left_row &row, float peak, float x) {
    const ref f = ref_make_near(row.scale.by, peak);
    return v_round(v_weight(x, &f, 0));
}

/* Thread i: the tickets of the i-th token of group g in both rows. By all threads. */
template <class type, class draft> __device__ __forceinline__ ulonglong2 pair_tickets(left_job &k, int g) {
    const left_row &target = k.target, &other = k.own;
    const float peak = peak_at(target.peak, target.law, g), draft_peak = k.tokens ? MINUS_INF : peak_at(other.peak, other.law, g);
    ulonglong2 both = make_ulonglong2(0, 0);
    if (target.near && (k.tokens || other.near)) { /* nearly always; one wait and one barrier for both */
        const int64_t id = g * (int64_t)GROUP + threadIdx.x;
        const float x = token_read_inline<type>(target.row, id), y = k.tokens ? MINUS_INF : token_read_inline<draft>(other.row, id);
        const uint32_t weight = near_weight(target, peak, x), own = k.tokens ? 0 : near_weight(other, draft_peak, y);
        ulonglong2 all;
        const ulonglong2 before = pair_before(weight, own, k.of_warp[1], &all);
        both.x = near_tickets(target, peak, x, id, weight, before.x, all.x);
        if (!k.tokens) both.y = near_tickets(other, draft_peak, y, id, own, before.y, all.y);
        return both;
    }
    both.x = block_tickets<type>(target.row, target.law, peak, g, &k.block);
    if (!k.tokens) both.y = block_tickets<draft>(other.row, other.law, draft_peak, g, &k.block);
    return both;
}

/* The odds of a position; of all but block verification they are known to be short, which saves most of the arithmetic. */
template <bool block> __device__ __forceinline__ odds odds_of(const left_job &k) {
    if (block) return k.by;
    const odds by = {wide_of(k.by.up.word[0]), wide_of(k.by.down.word[0])};
    return by;
}

/* The token that replaces a rejected draft, where what is left over is known: the one that holds a random number of it. By all threads. */
template <class type, class draft, bool block>
static __device__ __noinline__ int32_t recover(left_job *job) {
    __builtin_assume(__isShared(job));
    left_job &k = *job;
    const odds by = odds_of<block>(k);
    const int first = (int)((int64_t)k.groups * threadIdx.x / BLOCK_THREADS);
    const int end = (int)((int64_t)k.groups * (threadIdx.x + 1) / BLOCK_THREADS);
    /* The first two groups at once, which are all that most rows have for a thread. */
    const uint64_t first_t = first < end ? __ldcg(k.target.mass + first) : 0, first_s = first < end ? left_of(k.own, first) : 0;
    uint64_t t = first + 1 < end ? __ldcg(k.target.mass + first + 1) : 0, s = first + 1 < end ? left_of(k.own, first + 1) : 0;
    t += first_t;
    s += first_s;
#pragma unroll 1
    for (int g = first + 2; g < end; ++g) {
        t += __ldcg(k.target.mass + g);
        s += left_of(k.own, g);
    }
    if (threadIdx.x == 0) { /* logits that change under the kernel may leave a number without a holder */
        k.token = RULE_NO_TOKEN;
        k.group = 0;
        k.rest = wide_of(0);
    }
    ulonglong2 all, lower = pair_before(t, s, k.of_warp[0], &all);
    const wide total = odds_sum(by, all.x, all.y);
    if (wide_is_zero(total)) return k.target.law.token;
    wide number = wide_share(total, k.bits.high, k.bits.low), before = odds_sum(by, lower.x, lower.y);
    if (!wide_less(number, before) && wide_less(wide_subtract(number, before), odds_sum(by, t, s))) {
        wide rest = wide_subtract(number, before);
        int g = first;
        for (; g < end - 1; ++g) {
            const wide held = g == first ? odds_sum(by, first_t, first_s) : odds_sum(by, __ldcg(k.target.mass + g), left_of(k.own, g));
            if (wide_less(rest, held)) break;
            rest = wide_subtract(rest, held);
        }
        k.group = g;
        k.rest = rest;
    }
    __syncthreads();
    const int g = k.group;
    number = k.rest;
    const ulonglong2 held = pair_tickets<type, draft>(k, g);
    const int32_t id = g * GROUP + (int)threadIdx.x;
    bool left = odds_left(by, held.x, held.y);
    for (int i = 0; k.tokens && i < k.w.count; ++i) {
        if (k.own.mass ? id == k.own.law.token : follows(k.w.parent, i, k.item.node) && k.w.token[i] == id) left = false;
    }
    t = left ? held.x : 0;
    s = left ? held.y : 0;
    lower = pair_before(t, s, k.of_warp[0], &all);
    before = odds_sum(by, lower.x, lower.y);
    if (left && !wide_less(number, before) && wide_less(wide_subtract(number, before), odds_sum(by, t, s))) k.token = id;
    __syncthreads();
    return k.token;
}

/* ---- items ------------------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ odds item_odds(const left_item &item, uint64_t mass_p, uint64_t mass_q) {
    return item.weight ? block_odds(item.weight, mass_p, mass_q) : odds_make(mass_p, mass_q);
}

/* How a row is weighed. Records are sums of the weights that are drawn from, unless the draw has changed them (work::mass_set). */
__device__ __forceinline__ void weigh_find(left_row *row, int groups) {
    const row_law &law = row->law;
    row->near = fast_scale_make(law.by.scale, law.by.best, &row->scale) && !law.kept.capped;
    row->sure = groups <= PEAKS_MAX && row->near && law.whole && !law.pieces && !law.about;
}

/* What a ticket of the draft weighs against one of the target. By one thread. */
__device__ __forceinline__ void odds_find(left_job *k) {
    k->by = item_odds(k->item, k->target.law.mass, k->own.mass ? k->own.law.mass : 1);
    const double ratio = wide_near(k->by.down) / wide_near(k->by.up);
    k->ratio = (float)fmin(fmax(ratio, 0x1p-90), 0x1p90); /* beyond, one ticket is more, or less, than all of the other */
}

/* A lane must hold the same tokens of both rows, where they are read side by side. By one thread. */
template <class type, class draft> __device__ __forceinline__ void rows_align(left_job *k) {
    const bool both = k->target.row.aligned && k->own.row.aligned && (k->tokens || (int)type::BYTES == (int)draft::BYTES);
    k->target.row.aligned = k->own.row.aligned = both;
}

/* Brings together what is known of a position. By all threads. */
template <class type, class draft>
__device__ __forceinline__ void job_find(const verify_args &a, const left_item *item, left_job *k, bool proposes = false) {
    __syncthreads(); /* the one before is done with */
    if (threadIdx.x < BLOCK_THREADS / 2) block_copy(&k->item, item);
    __syncthreads();
    const int64_t row = k->item.first + k->item.request + k->item.node + 1;
    const int64_t own = a.draft_data ? a.rows + k->item.first + k->item.node + 1 : -1;
    if (threadIdx.x < BLOCK_THREADS / 2) block_copy(&k->target.law, a.law + row);
    else if (own >= 0) block_copy(&k->own.law, a.law + own);
    if (threadIdx.x == 0) {
        k->w.request = k->item.request;
        k->w.first = k->item.first;
        k->w.count = k->item.drafts;
        k->w.slot = k->item.slot;
        k->w.seed = k->item.seed;
        k->w.position = k->item.position;
        walk_tables(a, &k->w);
        k->draw_bits = a.draw_bits ? a.draw_bits + 2 * row : nullptr;
        k->groups = a.groups;
        k->target.peak = a.peak + row * a.groups * PIECES;
        k->target.mass = a.mass + row * a.groups;
        k->own.peak = own < 0 ? nullptr : a.peak + own * a.groups * PIECES;
        k->own.mass = own < 0 ? nullptr : a.mass + own * a.groups;
    }
    __syncthreads();
    const bool tokens = own < 0 || k->own.law.greedy || k->item.plain; /* nobody looks at the draft's row */
    if (threadIdx.x == 0) {
        odds_find(k);
    } else if (threadIdx.x == WARP) {
        k->target.row = row_judged<type>(a, k->item.request, row);
        k->own.row = tokens ? k->target.row : row_judged<draft>(a, k->item.request, own);
        k->tokens = tokens;
        k->counted = false;
        if (!proposes) rows_align<type, draft>(k);
    } else if (threadIdx.x == 2 * WARP) {
        weigh_find(&k->target, a.groups);
        if (tokens) k->own.near = k->own.sure = false;
        else weigh_find(&k->own, a.groups);
    } else if (threadIdx.x == 3 * WARP) {
        k->bits = recover_bits(a, k->w, k->item.depth);
    }
    __syncthreads();
}

/* Ends a request of which all is known that is left over. By all threads. */
template <class type, class draft>
__device__ __forceinline__ void request_end(const verify_args &a, left_item *first, uint32_t listed, left_job *k) {
    int length = 0;
    for (int i = 1; i < k->item.all; ++i) { /* block verification: the longest that is accepted */
        const left_item &item = first[i];
        const uint64_t mass_p = k->w.law[i].mass, mass_q = k->w.draft_law ? k->w.draft_law[i].mass : 1;
        const wide left = odds_sum(item_odds(item, mass_p, mass_q), __ldcg(&item.total_t), __ldcg(&item.total_s));
        if (block_accepts(accept_bits(a, k->w, i - 1, i), item.weight, left, mass_p, mass_q)) length = i;
    }
    if (length != k->item.before) job_find<type, draft>(a, first + length, k);
    const int32_t token = k->item.weight ? recover<type, draft, true>(k) : recover<type, draft, false>(k);
    if (threadIdx.x >= WARP) return;
    if (k->item.weight) emit_drafts(a, k->w, length - 1, length); /* else the walk has */
    emit_last(a, k->w, k->item.depth, token, k->item.node + 1, k->item.flags);
    if (threadIdx.x) return;
    const uint32_t more = (uint32_t)k->item.all;
    if (atomicAdd(&a.queue->finished, more) + more == listed) {
        a.queue->listed = 0;
        a.queue->finished = 0;
    }
}

/* Tells that a block has left its part of what is left over. The last to tell ends the request. */
__device__ __forceinline__ bool groups_arrive(const verify_args &a, left_item *first, int count, left_job *k) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint64_t more = (uint64_t)count;
        k->last = count_arrived(&first->done, more) + more == (uint64_t)a.groups * (uint64_t)k->item.all;
    }
    __syncthreads();
    return k->last;
}

/* Makes the counters of requests with offsets ready for the next call. Where not all rows of one arrived, because the offsets are not
 * those of this batch, says what can be said without touching a row that another takes for its own. A thread for each. */
__device__ __forceinline__ void requests_check(const verify_args &a) {
    const int64_t r = blockIdx.x * (int64_t)BLOCK_THREADS + threadIdx.x;
    if (!a.first || r >= a.requests) return;
    const bool walked = __ldcg(a.arrived + r) == REQUEST_WALKED;
    a.arrived[r] = 0;
    if (walked) return;
    int64_t first, count;
    a.accepted[r] = 0;
    if (a.last) a.last[r] = RULE_NO_TOKEN;
    if (!request_range(a, r, &first, &count)) return;
    for (int64_t i = 0; i <= count; ++i) {
        if (request_of(a, first + r + i, 1) != r) continue;
        a.state[first + r + i] = {0, 0}; /* of a greedy row it is left to who walks */
        a.out[first + r + i] = RULE_NO_TOKEN;
        if (a.path) a.path[first + r + i] = -1;
        if (a.row_flags) a.row_flags[first + r + i] = i ? 0 : RAFFLE_ROW_ARGUMENT;
#if CUT_MORE
        if (a.has_report) a.told[first + r + i] = {-1, RULE_NO_TOKEN};
#endif
    }
}

/* ---- proposals ------------------------------------------------------------------------------------------------------ */

enum { PROPOSE_BLOCKS = 8 }; /* that try for one request, at most: more of them get into each other's way */

/* Draws the row's own token, where it may turn out that nothing is left over. By all threads. */
template <class type, class draft> __device__ __forceinline__ void own_draw(left_job *k) {
    __syncthreads(); /* all know that it was not */
    if (threadIdx.x == 0) k->item.plain = true;
    __syncthreads();
    if (threadIdx.x < WARP) {
        const uint32_t said = propose<type, draft>(k, 0);
        if (threadIdx.x == 0) k->target.law.token = said == FOUND_NOTHING ? (int32_t)RULE_NO_TOKEN : (int32_t)(said % FOUND_NUMBER);
    }
    __syncthreads();
    if (threadIdx.x == 0) k->item.plain = false;
    __syncthreads();
}

/* Makes exact what is known of both rows' masses. By all threads. */
template <class type, class draft> __device__ __forceinline__ void rows_exact(left_job *k) {
    const bool counts = !k->target.sure && !k->target.law.about;
    if (k->target.law.about) estimate_replace<type>(k, &k->target);
    else if (counts) tickets_count<type>(k, &k->target);
    if (!k->tokens && k->own.law.about) estimate_replace<draft>(k, &k->own);
    if (threadIdx.x == 0) {
        k->counted = counts;
        odds_find(k);
    }
    __syncthreads();
    stretches_add(k);
}

/* Proposals from *number on, until one says something, which is left in `found`. By all threads. */
template <class type, class draft> __device__ __forceinline__ void proposals_try(left_job *k, uint32_t *number) {
    if (threadIdx.x == 0) k->found = FOUND_NOTHING;
    __syncthreads();
#pragma unroll 1
    for (; *number < PROPOSALS && k->found == FOUND_NOTHING; *number += BLOCK_WARPS) {
        __syncthreads();
        proposal_try<type, draft>(k, &k->found, *number + threadIdx.x / WARP);
        __syncthreads();
    }
}

/* The token where the first proposals have not found it: by more of them, with exact masses where estimates have not settled one, and at
 * last out of what is left over. `exactly`: the first to be tried needs that. By all threads. */
template <class type, class draft>
static __device__ __noinline__ int32_t propose_again(left_job *job, left_item *item, uint32_t number, bool exactly) {
    __builtin_assume(__isShared(job));
    left_job &k = *job;
    if (!exactly) {
        proposals_try<type, draft>(job, &number);
        if (k.found != FOUND_NOTHING) {
            if (k.found % FOUND_NUMBER != FOUND_UNSURE) return (int32_t)(k.found % FOUND_NUMBER);
            number = k.found / FOUND_NUMBER;
        }
        __syncthreads();
    }
    rows_exact<type, draft>(job);
    proposals_try<type, draft>(job, &number);
    if (k.found != FOUND_NOTHING) return (int32_t)(k.found % FOUND_NUMBER);
    if (k.item.plain) return RULE_NO_TOKEN; /* logits that change under the kernel may leave a ticket without a holder */
    if (k.target.law.owed) own_draw<type, draft>(job); /* while groups hold what they weigh */
    if (threadIdx.x == 0) rows_align<type, draft>(job);
    __syncthreads();
    left_over<type, draft>(job, item, 0, k.groups);
    __syncthreads();
    return recover<type, draft, false>(job);
}

/* The token where the target's row has a list and the draft's has none: of the latter, warps weigh the groups that have tokens of the list.
 * Known to the first warp. By all threads. */
template <class draft> static __device__ __noinline__ int32_t kept_weigh(const kept_list *list, left_job *job) {
    __builtin_assume(__isShared(job));
    left_job &k = *job;
    const int warp = threadIdx.x / WARP;
    if (warp == 0) rest_bring(&k.kept, kept_fetch(list), k.target.law.listed);
    __syncthreads();
#pragma unroll 1
    for (int i = warp; i < k.kept.count; i += BLOCK_WARPS) {
        const int32_t id = k.kept.t.id[i];
        run_weights w;
        run_load<draft>(k.own, id / GROUP, &w);
        run_weigh(k.own, peak_at(k.own.peak, k.own.law, id / GROUP), &w);
        const uint64_t tickets = run_tickets(w, k.own.law, id).count;
        if (threadIdx.x % WARP == 0) k.kept.left[i] = tickets;
    }
    __syncthreads();
    if (warp) return RULE_NO_TOKEN;
    return kept_draw(
        k.kept, k.by, k.bits, k.target.law.token, [&](int i) { return k.kept.left[i]; }, [](int32_t) { return false; });
}

/* The last word on a request of those for which tokens are proposed. By one warp. */
__device__ __forceinline__ void propose_end(const verify_args &a, const left_job &k, int32_t token, uint32_t proposing) {
    emit_last(a, k.w, k.item.depth, token, k.item.node + 1, k.item.flags);
    if (threadIdx.x == 0 && atomicAdd(&a.queue->proposed, 1u) + 1 == proposing) a.queue->proposing = a.queue->proposed = 0;
}

/* A block's part of the first proposals for a request, one a warp. Whoever comes last ends it. By all threads. */
template <class type, class draft>
__device__ __forceinline__ void request_propose(const verify_args &a, left_item *item, uint32_t place, uint32_t blocks, uint32_t proposing,
                                                left_job *k) {
#if !CUT_MORE
    if (item->kept && place) return; /* one block is enough */
#endif
    job_find<type, draft>(a, item, k, true);
#if !CUT_MORE
    if (k->item.kept) {
        const int32_t token = kept_weigh<draft>(a.kept + (k->w.row_first + k->item.node + 1), k);
        if (threadIdx.x < WARP) propose_end(a, *k, token, proposing);
        return;
    }
#endif
    const bool known = k->target.sure || k->target.law.about; /* the same in all threads */
    if (known) {
        stretches_add(k);
        proposal_try<type, draft>(k, &item->found, place * BLOCK_WARPS + threadIdx.x / WARP);
    }
    __syncthreads();
    if (threadIdx.x == 0) k->last = count_arrived(&item->done, 1ull) + 1 == blocks;
    __syncthreads();
    if (!k->last) return;
    const uint32_t found = __ldcg(&item->found), said = found % FOUND_NUMBER;
    int32_t token = (int32_t)said;
    if (found == FOUND_NOTHING || said == FOUND_UNSURE)
        token = propose_again<type, draft>(k, item, found != FOUND_NOTHING ? found / FOUND_NUMBER : known ? blocks * BLOCK_WARPS : 0,
                                           found != FOUND_NOTHING || !known);
    if (threadIdx.x < WARP) propose_end(a, *k, token, proposing);
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------- */

enum { LEFTS_PER_SM = 2 };

/* Which groups of all items are a block's. Evenly shared; where that nearly comes to a number of blocks for each item, no block has a
 * part of two: to begin with another costs as much as reading ten groups. */
__device__ __forceinline__ void left_range(const verify_args &a, uint32_t listed, int64_t *at, int64_t *end) {
    const uint32_t per = listed ? gridDim.x / listed : 0;
    const int64_t all = listed * (int64_t)a.groups;
    if (per * listed * 10ull < gridDim.x * 9ull) {
        const int64_t part = max((int64_t)BLOCK_WARPS, divided(all + gridDim.x - 1, gridDim.x));
        *at = blockIdx.x * part;
        *end = min(all, *at + part);
        return;
    }
    const uint32_t item = blockIdx.x / per, place = blockIdx.x - item * per;
    const int64_t part = max((int64_t)BLOCK_WARPS, divided(a.groups + per - 1, per));
    const int64_t stop = item < listed ? (item + 1) * (int64_t)a.groups : 0;
    *at = item * (int64_t)a.groups + place * part;
    *end = min(stop, *at + part);
}

/* Whether parameters and offsets alone say that no token has to be recovered, and that all requests have their rows. They are no result of
 * the first kernel, whose blocks have waited for what came before it when these start: so most of these need not wait for it. Read past the
 * first cache, which may hold what was there before. By all threads. */
__device__ __forceinline__ bool all_greedy(const verify_args &a) {
    bool other = false;
#pragma unroll 1
    for (int64_t r = threadIdx.x; r < a.requests && !other; r += BLOCK_THREADS) {
        row_params p = {};
        other = !params_of(a.target, r, a.vocab, &p, true) || !rules_make(&p).greedy;
        if (!a.first) continue;
        const int64_t first = __ldcg(a.first + r), next = __ldcg(a.first + r + 1);
        other = other || first < 0 || next < first || next > a.draft_rows;
    }
    return !__syncthreads_or(other);
}

template <class type, class draft>
__global__ void __launch_bounds__(BLOCK_THREADS, LEFTS_PER_SM) verify_left_kernel(const __grid_constant__ verify_args a) {
    __shared__ left_job k;
    const bool idle = all_greedy(a);
    /* The first block waits for all: who comes next relies on it. So do those that have counters of requests to make ready. */
    if (idle && blockIdx.x && (!a.first || blockIdx.x * (int64_t)BLOCK_THREADS >= a.requests)) return;
    previous_wait();
    if (idle) return requests_check(a);
    /* 0 also if all are done with already, and then this block has no part in them. */
    const uint32_t listed = __ldcg(&a.queue->listed), proposing = __ldcg(&a.queue->proposing);
    requests_check(a);
    if (proposing) {
        const uint32_t blocks = min(max(gridDim.x / proposing, 1u), (uint32_t)PROPOSE_BLOCKS), at_once = gridDim.x / blocks;
        for (uint32_t i = blockIdx.x / blocks; i < proposing && blockIdx.x < at_once * blocks; i += at_once)
            request_propose<type, draft>(a, a.left + (a.draft_rows - 1 - i), blockIdx.x % blocks, blocks, proposing, &k);
    }
    int64_t at, end, head = -1; /* head: of the request that k is about */
    int ends = 0;
    left_range(a, listed, &at, &end);
    while (at < end || ends) {
        if (at < end && ends < LEFT_ENDS) {
            const int64_t index = divided(at, a.groups);
            const int first = (int)(at - index * a.groups), count = (int)min(end - at, (int64_t)(a.groups - first));
            job_find<type, draft>(a, a.left + index, &k);
            left_over<type, draft>(&k, a.left + index, first, first + count);
            head = index - k.item.before;
            if (groups_arrive(a, a.left + head, count, &k)) {
                if (threadIdx.x == 0) k.ends[ends] = head;
                ++ends;
            }
            at += count;
            continue;
        }
        /* Requests that this block has completed are ended when it has read all it has to: others may wait for that. */
        __syncthreads();
        const int64_t next = k.ends[--ends];
        if (next != head) job_find<type, draft>(a, a.left + next, &k);
        head = next;
        request_end<type, draft>(a, a.left + next, listed, &k);
    }
}

/* ---- the launches, on the host ----------------------------------------------------------------------------------------- */

static inline row_parts row_parts_make(int64_t rows, int64_t groups, int64_t parts) {
    const int32_t part = (int32_t)((groups + parts - 1) / parts);
    const row_parts made = {rows, (int32_t)((groups + part - 1) / part), part};
    return made;
}

/* The grid of the first kernel. Equal parts of all rows leave most multiprocessors without work while the last have a round of blocks
 * more. Where there are more rows than blocks at once, most have one block, and the others as many as there can be at once and a sixth
 * more, half of which come first: so blocks end, and finish rows, at different times (dev/cuda has the figures that this follows). With
 * fewer, and for block verification, the first rows have as many parts as fill the GPU a whole number of times, and the others are cut so
 * small that one more round is enough for them. */
static inline dim3 rows_grid(verify_args *a, int32_t most, int processors) {
    enum { TRIED = 8 };
    const int64_t rows = a->rows + (a->draft_data ? a->draft_rows : 0), groups = a->groups, slots = (int64_t)processors * BLOCKS_PER_SM;
    const dim3 grid = parts_grid(rows, rows, a->groups, most, processors, NO_TEAMS, &a->part);
    if (CUT_MORE) return grid;
    a->large = row_parts_make(rows, groups, grid.x);
    a->small = row_parts_make(0, groups, 1);
    a->ahead = 0;
    if (a->method != RAFFLE_BLOCK && rows > slots) {
        const int64_t first = rows / slots * slots * 7 / 8, rest = rows - first, most_parts = (groups + BLOCK_WARPS - 1) / BLOCK_WARPS;
        const int64_t parts = slots * 7 / 6 / rest;
        a->large = row_parts_make(first, groups, 1);
        a->small = row_parts_make(rest, groups, parts < 1 ? 1 : parts < most_parts ? parts : most_parts);
        a->ahead = (uint32_t)(rest * a->small.parts / 2);
        return dim3((unsigned)(first + rest * a->small.parts));
    }
    const int64_t rounds_now = (rows * grid.x + slots - 1) / slots;
    int64_t least = rounds_now > 1 ? rounds_now * (a->large.part + BLOCK_COST) : 0;
    for (int64_t parts = 1; parts <= TRIED && parts <= groups; ++parts) {
        const int64_t rounds = rows * parts / slots, first = rounds * slots / parts, rest = rows - first;
        if (!rounds || !rest) continue;
        /* A quarter of the slots stays free: blocks that finish rows or walk requests hold them longer. */
        const int64_t most_parts = slots * 3 / 4 / rest, small_parts = most_parts < 1 ? 1 : most_parts < groups ? most_parts : groups;
        const row_parts large = row_parts_make(first, groups, parts), small = row_parts_make(rest, groups, small_parts);
        const int64_t cost = rounds * (large.part + BLOCK_COST) + small.part + BLOCK_COST;
        if (cost >= least) continue;
        least = cost;
        a->large = large;
        a->small = small;
        /* Half of the small ones first: then the large do not all end at the same time. Not where each large block finishes its row, and
         * those behind the small ones would do so last. */
        a->ahead = parts > 1 ? (uint32_t)(rest * small.parts / 2) : 0;
    }
    return dim3((unsigned)(a->large.rows * a->large.parts + a->small.rows * a->small.parts));
}

/* Both kernels, the second on its way while the first ends, where that can be. The first knows rows as `target` and `own`, of which it
 * wants to know more; a block of it reads at most `most` groups. */
template <class target, class own, class type, class draft>
static cudaError_t verify_start(verify_args *a, int32_t most, const device_facts &gpu, cudaStream_t stream) {
    const dim3 grid = rows_grid(a, most, gpu.processors);
    const bool recovers = a->method == RAFFLE_REJECTION || a->method == RAFFLE_BLOCK;
    cudaError_t code = kernel_start(verify_rows_kernel<target, own>, grid, dim3(BLOCK_THREADS), 0, *a, gpu, stream);
    if (code != cudaSuccess || (!recovers && !a->first)) return code; /* nothing can be recovered, and offsets cannot be wrong */
    /* A block a multiprocessor, where a token may have to be recovered, or two where most rows are read again; and a thread for every
     * request. */
    const int64_t least = (a->requests + BLOCK_THREADS - 1) / BLOCK_THREADS;
    const int64_t blocks = !recovers ? 1 : gpu.processors * (a->method == RAFFLE_BLOCK ? LEFTS_PER_SM : 1);
    const dim3 left_grid((unsigned)(blocks > least ? blocks : least));
    return kernel_start(verify_left_kernel<type, draft>, left_grid, dim3(BLOCK_THREADS), 0, *a, gpu, stream);
}

#endif
