/* edit.cuh - rows that a request edits (`prepare`): bans, bias, penalties, DRY. The caller's logits are never written.
 *
 * What a block does with its part of such a row:
 *
 *   mark       a bit for every token that a list or the history names
 *   tally      what is known of each: banned, how often said, how long a repetition it would lengthen
 *   read       the part, by the loops of read.cuh, which take masked and edited tokens for -inf
 *   evaluate   the logits of edited tokens, by the formulas of edit.h: only now, when the part is in the second cache
 *   mend       the records that the reading has left, by those logits
 *
 * No block waits for another: each looks through the row's lists and history itself. A token's place is the number of marks before
 * its own; what is known of it, then its logit, lies there in shared memory. Marks (`patch`) and logits (`overlay`) also go to the
 * workspace, for whoever finishes the row: the logits of a part side by side, because a few here and there would fill the second
 * cache with lines that hold one each. Of a part with more marked tokens than shared memory has room for they lie in the workspace
 * from the start, and it is read group by group. */
#ifndef RAFFLE_CUDA_EDIT_CUH
#define RAFFLE_CUDA_EDIT_CUH

#include "edit_mark.cuh"

/* ---- a block's part ------------------------------------------------------------------------------------------ */

/* No token is marked; by all warps but the first. */
__device__ __forceinline__ void edit_clear(edit_space &s) {
    const uint32_t least = order_of(MINUS_INF);
    const uint4 none = make_uint4(0, 0, 0, 0), lowest = make_uint4(least, least, least, least);
    const int first = (int)threadIdx.x - WARP;
#pragma unroll 1
    for (int i = first; i < EDIT_WORDS / 4; i += BLOCK_THREADS - WARP) ((uint4 *)s.bits)[i] = none;
#pragma unroll 1
    for (int i = first; i < EDIT_GROUPS * PIECES / 4; i += BLOCK_THREADS - WARP) ((uint4 *)s.most)[i] = lowest;
}

/* The list of allowed ids as a mask of the part, less what the caller's mask forbids. */
static __device__ __noinline__ void mask_make(const row_request *q, edit_part p) {
    __builtin_assume(__isShared(q));
    uint32_t *mask = q->mask + p.first / 32;
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS) __stcg(mask + i, 0u);
    __syncthreads();
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < q->extra.allowed_count; i += BLOCK_THREADS) {
        const int32_t id = q->extra.allowed[i];
        const uint32_t at = p.at(id);
        if (at < p.tokens && (!q->allow || bit_load(q->allow, id))) atomicOr(mask + at / 32, 1u << at % 32);
    }
    __syncthreads();
}

/* Numbers the marked tokens and empties their cells. Returns how many there are: more than EDIT_TOKENS do not fit. */
template <class type> __device__ __forceinline__ uint32_t part_number(work<type> *k) {
    edit_space &s = k->edit;
    enum { OWN = EDIT_WORDS / BLOCK_THREADS };
    static_assert(OWN == 8, "a thread's words are two loads, and one store");
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint4 low = ((const uint4 *)s.bits)[2 * threadIdx.x], high = ((const uint4 *)s.bits)[2 * threadIdx.x + 1];
    const uint32_t word[OWN] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t own = 0, total = 0, before[OWN];
#pragma unroll
    for (int i = 0; i < OWN; ++i) own += (uint32_t)__popc(word[i]);
    uint32_t place = warp_through(own);
    if (lane == WARP - 1) k->block.of_warp[warp] = place;
    place -= own;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) {
        const uint32_t of_warp = (uint32_t)k->block.of_warp[i];
        if (i < warp) place += of_warp;
        total += of_warp;
    }
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        before[i] = place;
        place += (uint32_t)__popc(word[i]);
    }
    ((uint4 *)s.before)[threadIdx.x] = make_uint4(before[0] | before[1] << 16, before[2] | before[3] << 16, before[4] | before[5] << 16,
                                                  before[6] | before[7] << 16);
    if (threadIdx.x == 0) s.total = total;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < min(total, (uint32_t)EDIT_TOKENS); i += BLOCK_THREADS) {
        s.cell[i] = 0;
        s.bias[i] = NO_BIAS;
        s.at[i] = 0; /* whatever happens to a history meanwhile */
    }
    __syncthreads();
    return total;
}

/* The logit of a marked token that was x. */
template <class type> __device__ __forceinline__ float edit_value(const work<type> *k, float x, uint32_t tally, float bias) {
    const raffle_extra &e = k->request.extra;
    if (tally & TALLY_BANNED) return MINUS_INF;
    x = edit_bias(x, bias);
    if (tally & (TALLY_SEEN | TALLY_COUNT)) {
        const penalties p = {e.repetition == 0.0f ? 1.0f : e.repetition, e.frequency, e.presence};
        x = edit_penalise(x, &p, (tally & TALLY_SEEN) != 0, tally & TALLY_COUNT);
    }
    if (tally & TALLY_LENGTHS) {
        const float base = e.dry_base == 0.0f ? 1.75f : e.dry_base;
        const int32_t length = (int32_t)((tally & TALLY_LENGTHS) / TALLY_LENGTH), allowed = e.dry_allowed ? e.dry_allowed : 2;
        x = edit_dry(x, dry_penalty(e.dry_multiplier, base, length, allowed));
    }
    return x;
}

/* Tallies and logits where shared memory has no room for them. */
template <class type> static __device__ __noinline__ void edits_far(work<type> *k, const edit_notes to) {
    __builtin_assume(__isShared(k));
    const edit_space &s = k->edit;
    const raffle_extra &e = k->request.extra;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < s.total; i += BLOCK_THREADS) __stcg(to.far + i, 0u);
    __syncthreads();
    record_tally<false>(&k->request, to);
#pragma unroll 1
    for (int i = threadIdx.x; i < to.p.words; i += BLOCK_THREADS) {
        uint32_t *cell = to.far + s.before[i];
#pragma unroll 1
        for (uint32_t bits = s.bits[i]; bits; bits &= bits - 1, ++cell) {
            const int32_t id = to.p.first + i * 32 + __ffs(bits) - 1;
            const uint32_t tally = __ldcg(cell) | (!k->row.allow || bit_load(k->row.allow, id) ? 0u : TALLY_BANNED);
            const int32_t biased = tally & TALLY_BIAS ? ids_find(e.bias_id, e.bias_count, id) : -1;
            const float x = type::one(k->row.logits + id * (int64_t)type::BYTES);
            __stcg(cell, bits_of(edit_value(k, x, tally, biased >= 0 ? e.bias[biased] : NO_BIAS)));
        }
    }
}

/* Which piece of its group a token of the part is in. */
template <class type> __device__ __forceinline__ uint32_t edit_piece(const work<type> *k, const edit_part &p, uint32_t at) {
    return token_lane<type>(group_whole(k->row, (int)((p.first + at) / GROUP)), at % GROUP) / PIECE_LANES;
}

/* Checks the row's record, marks and tallies. False, and k->valid too, if the row cannot be read. k->request.near: there is room for the
 * edits in shared memory; else they are evaluated, too. */
template <class type> __device__ __forceinline__ bool part_edit(work<type> *k, const edit_part &p) {
    row_request &q = k->request;
    edit_notes to = {p, &k->edit, nullptr};
    const bool marks = k->row.patch != nullptr;
    if (!record_mark(&q, k->row.vocab, marks, to)) {
        __syncthreads(); /* some may not have seen yet that it was valid so far */
        if (threadIdx.x == 0) k->valid = false;
        __syncthreads();
        return false;
    }
    if (q.extra.allowed_count) mask_make(&q, p);
    if (!marks) return true;
    const bool near = part_number(k) <= EDIT_TOKENS;
    if (threadIdx.x == 0) q.near = near;
    if (!near) to.far = (uint32_t *)q.overlay + p.first;
    if (near) record_tally<true>(&q, to);
    else edits_far(k, to);
    return true;
}

/* Makes of the marks, which go to the workspace, what the reading takes as it is: tokens that are allowed and not edited. Edited ones
 * that are not allowed are banned. Ends with a barrier. */
template <class type> __device__ __forceinline__ void part_keep(work<type> *k, const edit_part &p) {
    enum { OWN = EDIT_WORDS / BLOCK_THREADS };
    edit_space &s = k->edit;
    const uint32_t *allow = k->row.allow ? k->row.allow + p.first / 32 : nullptr;
    uint32_t *patch = k->row.patch ? k->request.patch + p.first / GROUP * PATCH_WORDS : nullptr;
    const int words = (int)((p.tokens + 31) / 32);
    uint32_t allowed[OWN];
#pragma unroll
    for (int i = 0; i < OWN; ++i) allowed[i] = allow ? bits_load(allow + min((int)threadIdx.x + i * BLOCK_THREADS, words - 1)) : ~0u;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int at = (int)threadIdx.x + i * BLOCK_THREADS;
        if (at >= p.words) break;
        const uint32_t edited = s.bits[at];
        if (patch) {
            uint32_t *word = patch + at / GROUP_WORDS * PATCH_WORDS + at % GROUP_WORDS;
            __stcg(word, edited);
            __stcg(word + GROUP_WORDS, (uint32_t)p.first + s.before[at]);
            if (k->request.near)
#pragma unroll 1
                for (uint32_t out = edited & ~allowed[i]; out; out &= out - 1)
                    s.cell[s.before[at] + __popc(edited & ((out & -out) - 1))] |= TALLY_BANNED;
        }
        s.bits[at] = allowed[i] & ~edited;
    }
    __syncthreads();
}

/* The logits of edited tokens, where they are in shared memory. Returns whether this thread has seen a NaN. */
template <class type> __device__ __forceinline__ bool edits_evaluate(work<type> *k, const edit_part &p) {
    enum { AT_ONCE = 6 }; /* logits are waited for together */
    edit_space &s = k->edit;
    const uint32_t total = s.total;
    bool nan = false;
    uint64_t best = 0;
#pragma unroll 1
    for (uint32_t first = threadIdx.x; first < total; first += AT_ONCE * BLOCK_THREADS) {
        float x[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const int32_t id = p.first + s.at[min(first + j * BLOCK_THREADS, total - 1)];
            x[j] = type::one(k->row.logits + id * (int64_t)type::BYTES);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const uint32_t i = first + j * BLOCK_THREADS;
            if (i >= total) break;
            const uint32_t at = s.at[i];
            const int32_t id = p.first + (int32_t)at;
            const float edited = edit_value(k, x[j], s.cell[i], s.bias[i]), counts = v_max(edited, MINUS_INF);
            s.cell[i] = bits_of(edited);
            __stcg(k->request.overlay + p.first + i, edited);
            nan |= edited != edited;
            best = max(best, token_key(counts, id));
            atomicMax(s.most + at / GROUP * PIECES + edit_piece(k, p, at), order_of(counts));
        }
    }
    if (k->to.greedy) warp_best(k, best, true);
    return nan;
}

/* ---- reading a prepared part ----------------------------------------------------------------------------------- */

/* A warp's loads in flight, like `flight`, of a row that is masked, or edited near: all but what part_keep has left is -inf in it.
 * `apart`: what came is recorded, too. */
template <class type, bool apart> struct masked_flight : flight<type> {
    enum { APART = apart };
    const uint32_t *keep; /* of the warp's first group */

    __device__ __forceinline__ masked_flight(const work<type> *k, int g, int part, int end) {
        this->start(k->row.logits, k->row.vocab, g, end);
        keep = k->edit.bits + (this->g - part) * GROUP_WORDS;
    }
    __device__ __forceinline__ void advance(int by = flight<type>::GROUPS) {
        flight<type>::advance(by);
        keep += by * BLOCK_WARPS * GROUP_WORDS;
    }
    __device__ __forceinline__ void shift() {
        flight<type>::shift();
        keep += BLOCK_WARPS * GROUP_WORDS;
    }
    __device__ __forceinline__ void ready(int i) {
        const int lane = threadIdx.x % WARP;
        const uint8_t *bytes = (const uint8_t *)(keep + i * BLOCK_WARPS * GROUP_WORDS);
        if (type::BYTES == 2) raw_mask(this->raw[i], bytes[lane]);
        else raw_mask(this->raw[i], (bytes[lane / 2] >> lane % 2 * 4 & 15u) | (bytes[WARP / 2 + lane / 2] >> lane % 2 * 4 & 15u) << 4);
    }
};

template <class type, bool pieces, bool weights, bool also, bool apart>
static __device__ __noinline__ int prepared_weigh(work<type> *k, int g, int first, int end) {
    __builtin_assume(__isShared(k));
    const records to = k->to, shown = k->shown;
    masked_flight<type, apart> f(k, g, first, end);
    return groups_weigh<pieces, weights, also>(f, to, shown);
}

/* For greedy rows: leaves the warp's best token. */
template <class type> static __device__ __noinline__ int prepared_best(work<type> *k, int g, int first, int end) {
    __builtin_assume(__isShared(k));
    masked_flight<type, false> f(k, g, first, end);
    return groups_best<type>(f, k) ? MET_NAN : 0;
}

/* The groups of a warp that lanes can load. Returns what groups_weigh has met. */
template <class type> __device__ __forceinline__ int prepared_first(work<type> *k, int g, int first, int end) {
    if (k->to.greedy) return prepared_best(k, g, first, end);
    if (k->also) return prepared_weigh<type, true, true, true, false>(k, g, first, end);
    if (k->apart && k->to.weights) return prepared_weigh<type, true, true, false, true>(k, g, first, end);
    if (k->apart) return prepared_weigh<type, true, false, false, true>(k, g, first, end);
    if (!k->to.weights) return prepared_weigh<type, true, false, false, false>(k, g, first, end);
    if (!k->to.pieces) return prepared_weigh<type, false, true, false, false>(k, g, first, end);
    return prepared_weigh<type, true, true, false, false>(k, g, first, end);
}

#define REDONE 0xffffffffu /* in place of a group's maximum: the group is read anew, edited tokens and all */

/* Edited logits join the maxima of their groups, a thread having one of these. Leaves the maximum without them in s.most, for
 * edits_weigh. Groups from `left` of their warp on are read anew, and so are those whose weights another maximum would make. */
template <class type> __device__ __forceinline__ void peaks_mend(work<type> *k, int first, int end) {
    static_assert((int)EDIT_GROUPS <= (int)BLOCK_THREADS, "a thread has one group");
    edit_space &s = k->edit;
    const int at = threadIdx.x, g = first + at;
    if (g >= end) return;
    const uint4 order = ((const uint4 *)s.most)[at];
    const float4 x = make_float4(float_of_order(order.x), float_of_order(order.y), float_of_order(order.z), float_of_order(order.w));
    float peak;
    if (k->to.pieces) {
        const float4 m = __ldcg((const float4 *)k->to.peak + g);
        peak = pieces_most(m);
        __stcg((float4 *)k->to.peak + g, make_float4(fmaxf(m.x, x.x), fmaxf(m.y, x.y), fmaxf(m.z, x.z), fmaxf(m.w, x.w)));
    } else {
        peak = __ldcg(k->to.peak + g);
    }
    s.most[at * PIECES] = g >= s.left[at % BLOCK_WARPS] || (k->to.weights && pieces_most(x) > peak) ? REDONE : bits_of(peak);
}

/* Adds what edited tokens weigh to the records of their groups. */
template <class type> __device__ __forceinline__ void edits_weigh(const work<type> *k, const records &to, int first) {
    const edit_space &s = k->edit;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < s.total; i += BLOCK_THREADS) {
        const uint32_t g = s.at[i] / GROUP, peak = s.most[g * PIECES];
        if (peak == REDONE) continue;
        const ref f = ref_make_near(to.by, float_of(peak));
        const uint32_t weight = v_round(v_weight(v_max(float_of(s.cell[i]), MINUS_INF), &f, 0));
        atomicAdd((unsigned long long *)to.mass + first + g, (unsigned long long)weight);
    }
}

/* Evaluates the edited tokens of a part and mends its records; the warp's groups from g on have none yet. What is evaluated can be read
 * behind it. Returns whether this thread has seen a NaN. */
template <class type> static __device__ __noinline__ bool part_mend(work<type> *k, const edit_part p, int g, int end) {
    __builtin_assume(__isShared(k));
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = p.first / GROUP;
    if (lane == 0) k->edit.left[warp] = g;
    bool nan = edits_evaluate(k, p);
    __syncthreads();
    if (k->to.greedy) return nan;
    peaks_mend(k, first, end);
    __syncthreads();
    if (!k->to.weights) return nan;
    edits_weigh(k, k->to, first);
    if (k->also) edits_weigh(k, k->shown, first);
    const int own = first + warp + lane * BLOCK_WARPS; /* a lane has one of the warp's groups */
    uint32_t redone = __ballot_sync(ALL_LANES, own < min(g, end) && k->edit.most[(own - first) * PIECES] == REDONE);
    for (; redone; redone &= redone - 1) {
        const int at = first + warp + (__ffs(redone) - 1) * BLOCK_WARPS;
        nan |= groups_redo<type>(k, at, at + 1, true);
    }
    return nan;
}

/* Reads groups [first, end) of a row that is masked, or that its request edits. Returns whether this thread has seen a NaN. */
template <class type> static __device__ __noinline__ bool part_read_prepared(work<type> *k, int first, int end) {
    __builtin_assume(__isShared(k));
    edit_part p;
    p.first = first * GROUP;
    p.tokens = (uint32_t)(min((int64_t)end * GROUP, k->row.vocab) - p.first);
    p.words = (end - first) * GROUP_WORDS;
    if (k->request.prepares && !part_edit(k, p)) return false;
    const bool edited = k->row.patch != nullptr, near = edited && k->request.near;
    int g = first + (int)threadIdx.x / WARP, raw = g;
    bool nan = false;
    part_keep(k, p);
    if (k->row.aligned && (near || !edited)) {
        const int last = min(end, groups_loadable<type>(k->row.vocab));
        const int met = prepared_first(k, g, first, last);
        const int next = g < last ? g + (last - g + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS : g;
        if (!__any_sync(ALL_LANES, met & MET_NAN_RAW)) raw = next;
        if (!__any_sync(ALL_LANES, met & MET_NAN)) g = next;
    }
    if (near) nan = part_mend(k, p, g, end);
    if (g < end) nan |= groups_redo<type>(k, g, end, true);
    if (k->apart && raw < end) groups_raw(k, raw, end);
    return nan;
}

#endif
