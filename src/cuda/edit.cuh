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
 * from the start, and it is read group by group.
 *
 * Ids of lists are checked before any is used; ids of histories are not, so whoever is told of one looks whether it is in
 * the part. */
#ifndef RAFFLE_CUDA_EDIT_CUH
#define RAFFLE_CUDA_EDIT_CUH

#include "finish.cuh"

#include "edit.h"
#include "extra_rules.h"

/* What is known of a token: how often frequency and presence count it (22 bits), whether repetition does, whether it is
 * banned, the length of the repetition that it would lengthen (7 bits), whether it has a bias. */
enum : uint32_t {
    TALLY_COUNT = (1u << 22) - 1,
    TALLY_SEEN = 1u << 22,
    TALLY_BANNED = 1u << 23,
    TALLY_LENGTH = 1u << 24,
    TALLY_LENGTHS = 127 * TALLY_LENGTH,
    TALLY_BIAS = 1u << 31
};

#define NO_BIAS (-0.0f) /* what may be added to any logit and leaves it as it was, a zero's sign included */

/* Whether a request may edit single tokens. */
__device__ __forceinline__ bool extra_touches(const raffle_extra &e) {
    return e.bias_count || e.banned_count || e.bad_words_count || (e.min_tokens && e.stop_count) || e.no_repeat_ngram ||
           e.dry_multiplier != 0.0f || extra_penalises(&e);
}

/* ---- which tokens ------------------------------------------------------------------------------------------- */

/* The tokens that a block prepares. */
struct edit_part {
    int32_t first;   /* token */
    uint32_t tokens; /* up to the row's end */
    int words;       /* of their bits */
    /* Which token of the part an id is; `tokens` or more: none. */
    __device__ __forceinline__ uint32_t at(int32_t id) const { return (uint32_t)id - (uint32_t)first; }
};

/* Lists and history are gone through up to three times: to mark tokens, lists being checked on the way; to note lengths, which
 * are a maximum, while cells hold nothing else; to add up the rest. */
enum { PASS_MARK, PASS_LENGTHS, PASS_REST };

/* Where it goes what is found. */
struct edit_notes {
    edit_part p;
    edit_space *s;
    uint32_t *far; /* cells in the workspace, or NULL: in shared memory */

    __device__ __forceinline__ void mark(uint32_t at) const { atomicOr(s->bits + at / 32, 1u << at % 32); }
    /* The same if `yes`, without a branch; else nothing changes, in another place for each lane. */
    __device__ __forceinline__ void mark_if(bool yes, uint32_t at) const {
        atomicOr(s->bits + (yes ? at / 32 : threadIdx.x), yes ? 1u << at % 32 : 0u);
    }
    /* Where a token has its cell. A history that grows meanwhile may name one token more than there are. */
    __device__ __forceinline__ uint32_t cell_of(uint32_t at) const {
        const uint32_t own = s->before[at / 32] + (uint32_t)__popc(s->bits[at / 32] & ((1u << at % 32) - 1));
        return far ? own : min(own, (uint32_t)EDIT_TOKENS - 1);
    }
    /* Near cells say which token they are of. */
    __device__ __forceinline__ uint32_t place(uint32_t at) const {
        const uint32_t own = cell_of(at);
        if (!far) s->at[own] = (uint16_t)at;
        return own;
    }
    /* What an entry of a history says of its token, whose cell is `own`, if `yes`. Near, as mark_if. */
    __device__ __forceinline__ void count_if(bool yes, uint32_t at, uint32_t own, uint32_t seen, uint32_t count) const {
        if (far) {
            if (yes && seen) atomicOr(far + own, seen);
            if (yes && count) atomicAdd(far + own, count);
            return;
        }
        if (yes) s->at[own] = (uint16_t)at;
        if (!yes) own = threadIdx.x;
#if SAID_TAIL
        atomicOr(s->cell + own, yes ? seen : 0u); /* a token of the tail says it, too */
        atomicAdd(s->cell + own, yes ? count : 0u);
#else
        atomicAdd(s->cell + own, yes ? seen | count : 0u);
#endif
    }
    __device__ __forceinline__ void flag(uint32_t at, uint32_t tally) const {
        if (far) atomicOr(far + place(at), tally);
        else atomicOr(s->cell + place(at), tally);
    }
    /* For what comes once a token, or is a count alone. */
    __device__ __forceinline__ void add(uint32_t at, uint32_t tally) const {
        if (far) atomicAdd(far + place(at), tally);
        else atomicAdd(s->cell + place(at), tally);
    }
    __device__ __forceinline__ void most(uint32_t at, uint32_t tally) const {
        if (far) atomicMax(far + place(at), tally);
        else atomicMax(s->cell + place(at), tally);
    }
    __device__ __forceinline__ void note(int pass, int32_t id, uint32_t tally) const {
        const uint32_t at = p.at(id);
        if (at >= p.tokens) return;
        if (pass == PASS_MARK) mark(at);
        else if (pass == PASS_LENGTHS) most(at, tally);
        else flag(at, tally);
    }
};

/* All threads take turns here and below. Loops are not unrolled: each runs a few times, and its instructions must be fetched. */

/* Entries that a thread asks for before it looks at one: what is waited for is waited for once. */
enum { LIST_AT_ONCE = 2, SAID_AT_ONCE = 8 };

/* Checks a list, and marks its tokens if `marks`. Returns whether this thread has seen something wrong. */
__device__ __forceinline__ bool ids_mark(const int32_t *ids, int32_t count, int64_t vocab, bool marks, const edit_notes &to) {
    bool wrong = !extra_count_good(ids, count, vocab);
    if (wrong) return true;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < count; i += BLOCK_THREADS) {
        const int32_t id = ids[i];
        wrong |= !extra_id_good(id, vocab) || !extra_ascends(ids, i);
        if (marks) to.note(PASS_MARK, id, 0);
    }
    return wrong;
}

/* Calls visit(i, id, bias) for this thread's biases, for the last perhaps twice. */
template <class function> __device__ __forceinline__ void bias_visit(const raffle_extra &e, function visit) {
#pragma unroll 1
    for (int32_t first = threadIdx.x; first < e.bias_count; first += LIST_AT_ONCE * BLOCK_THREADS) {
        int32_t id[LIST_AT_ONCE];
        float bias[LIST_AT_ONCE];
#pragma unroll
        for (int j = 0; j < LIST_AT_ONCE; ++j) {
            const int32_t i = min(first + j * BLOCK_THREADS, e.bias_count - 1);
            id[j] = e.bias_id[i];
            bias[j] = e.bias[i];
        }
#pragma unroll
        for (int j = 0; j < LIST_AT_ONCE; ++j) visit(min(first + j * BLOCK_THREADS, e.bias_count - 1), id[j], bias[j]);
    }
}

/* The same for biases. */
__device__ __forceinline__ bool bias_mark(const raffle_extra &e, int64_t vocab, bool marks, const edit_notes &to) {
    bool wrong = !extra_count_good(e.bias_id, e.bias_count, vocab);
    if (wrong) return true;
    bias_visit(e, [&](int32_t i, int32_t id, float bias) {
        wrong |= !extra_id_good(id, vocab) || !extra_ascends(e.bias_id, i) || !extra_bias_good(bias);
        if (marks) to.note(PASS_MARK, id, 0);
    });
    return wrong;
}

__device__ __forceinline__ void ids_flag(const int32_t *ids, int32_t count, uint32_t tally, const edit_notes &to) {
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < count; i += BLOCK_THREADS) to.note(PASS_REST, ids[i], tally);
}

/* The bias goes to a cell of its own where there is one. */
__device__ __forceinline__ void bias_flag(const raffle_extra &e, const edit_notes &to) {
    bias_visit(e, [&](int32_t, int32_t id, float bias) {
        const uint32_t at = to.p.at(id);
        if (at >= to.p.tokens) return;
        if (to.far) to.flag(at, TALLY_BIAS);
        else to.s->bias[to.place(at)] = bias;
    });
}

/* Tokens that were said, with their counts; those of a window one by one. */
template <int pass> __device__ __forceinline__ void said_note(const raffle_extra &e, const slot_said &h, const edit_notes &to) {
    const bool repetition = e.repetition != 0.0f && e.repetition != 1.0f, counts = e.frequency != 0.0f || e.presence != 0.0f;
    const bool seen_in = repetition && !(e.flags & RAFFLE_REPETITION_OUTPUT), count_in = counts && e.flags & RAFFLE_COUNT_PROMPT;
    if (e.penalty_window > 0 && e.penalty_window < h.length) { /* numbers are checked beside the marking, not before */
#pragma unroll 1
        for (int32_t i = h.length - e.penalty_window + (int32_t)threadIdx.x; i < h.length; i += BLOCK_THREADS) {
            const uint32_t at = to.p.at(h.token[i]);
            const bool out = i >= h.prompt, seen = out ? repetition : seen_in, count = out ? counts : count_in;
            if (at >= to.p.tokens || !(seen || count)) continue;
            if (pass == PASS_MARK) to.mark(at);
            if (pass == PASS_REST && count) to.add(at, 1);
            if (pass == PASS_REST && seen) to.flag(at, TALLY_SEEN);
        }
        return;
    }
    const uint64_t of_output = (ENTRY_OUTPUT - 1) << ENTRY_BITS, of_prompt = ~(uint64_t)0 << 2 * ENTRY_BITS;
    const uint64_t matters = of_output | (seen_in || count_in ? of_prompt : 0);
    const int32_t entries = h.entries;
#pragma unroll 1
    for (int32_t first = threadIdx.x; first < entries; first += SAID_AT_ONCE * BLOCK_THREADS) {
        uint64_t entry[SAID_AT_ONCE]; /* a token is in one of them */
#pragma unroll
        for (int j = 0; j < SAID_AT_ONCE; ++j) entry[j] = h.entry[min(first + j * BLOCK_THREADS, entries - 1)];
        uint32_t at[SAID_AT_ONCE], own[SAID_AT_ONCE];
        bool here[SAID_AT_ONCE];
#pragma unroll
        for (int j = 0; j < SAID_AT_ONCE; ++j) {
            at[j] = to.p.at(entry_token(entry[j]));
            here[j] = (first + j * BLOCK_THREADS < entries) & (at[j] < to.p.tokens) & ((entry[j] & matters) != 0);
            if (pass == PASS_MARK) to.mark_if(here[j], at[j]);
            else own[j] = to.cell_of(here[j] ? at[j] : 0); /* side by side, before anything is stored */
        }
#pragma unroll
        for (int j = 0; pass == PASS_REST && j < SAID_AT_ONCE; ++j) {
            const uint32_t in = entry_prompt(entry[j]), out = entry_output(entry[j]);
            const uint32_t seen = (out && repetition) || (in && seen_in) ? TALLY_SEEN : 0u;
            const uint32_t count = min((counts ? out : 0u) + (count_in ? in : 0u), TALLY_COUNT - TAIL_MAX);
            to.count_if(here[j], at[j], own[j], seen, count);
        }
    }
#if SAID_TAIL
#pragma unroll 1
    for (int32_t i = min(h.token.kept, h.length) + (int32_t)threadIdx.x; i < h.length; i += BLOCK_THREADS) {
        const uint32_t at = to.p.at(h.token[i]);
        if (at >= to.p.tokens) continue;
        if (pass == PASS_MARK) to.mark(at);
        if (pass == PASS_REST && counts) to.add(at, 1);
        if (pass == PASS_REST && repetition) to.flag(at, TALLY_SEEN);
    }
#endif
}

/* Last tokens of bad words and n-grams that would be said by them. */
static __device__ __noinline__ void matches_note(const row_request *q, int pass, const edit_notes to) {
    __builtin_assume(__isShared(q));
    const raffle_extra &e = q->extra;
    const slot_said &h = q->said;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bad_words_count; i += BLOCK_THREADS)
        if (e.bad_words[i] < 0 && i && word_ready(e.bad_words, i, h.token, h.length)) to.note(pass, e.bad_words[i - 1], TALLY_BANNED);
    const int32_t n = e.no_repeat_ngram;
#pragma unroll 1
    for (int32_t i = threadIdx.x; n > 0 && i <= h.length - n; i += BLOCK_THREADS)
        if (ends_with(h.token, h.length, h.token + i, n - 1)) to.note(pass, h.token[i + n - 1], TALLY_BANNED);
}

/* Tokens that would lengthen a repetition. */
static __device__ __noinline__ void dry_note(const row_request *q, int pass, const edit_notes to) {
    __builtin_assume(__isShared(q));
    const raffle_extra &e = q->extra;
    const slot_said &h = q->said;
    const int32_t first = e.dry_range > 0 && e.dry_range < h.length ? h.length - e.dry_range : 0, length = h.length - first;
    SAID_TOKENS token = h.token + first;
    const int32_t allowed = e.dry_allowed ? e.dry_allowed : 2;
    if (length < 2) return;
    const int32_t last = token[length - 1];
    if (ids_find(e.breaker, e.breaker_count, last) >= 0) return;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i + 1 < length; i += BLOCK_THREADS) {
        if (token[i] != last) continue;
        const int32_t same = dry_length(token, length, i, e.breaker, e.breaker_count);
        if (same >= allowed && ids_find(e.breaker, e.breaker_count, token[i + 1]) < 0)
            to.note(pass, token[i + 1], (uint32_t)same * TALLY_LENGTH);
    }
}

/* Whether the row's record and lists are good, and a mark for every token that they, or the history, name. All blocks of a row
 * look at all of it, and agree. Lists that are wrong are marked as far as they are in the part. */
static __device__ __noinline__ bool record_mark(const row_request *q, int64_t vocab, bool marks, const edit_notes to) {
    __builtin_assume(__isShared(q));
    __builtin_assume(__isShared(to.s));
    const raffle_extra &e = q->extra;
    if (q->lost || !extra_count_good(e.bias, e.bias_count, vocab) || !extra_count_good(e.bad_words, e.bad_words_count, RAFFLE_VOCAB_MAX))
        return false;
    if (marks && extra_penalises(&e)) said_note<PASS_MARK>(e, q->said, to);
    bool wrong = threadIdx.x == BLOCK_THREADS - 1 && !extra_numbers_good(&e);
    wrong |= bias_mark(e, vocab, marks, to);
    if (e.banned_count | e.stop_count | e.allowed_count | e.breaker_count | e.bad_words_count) { /* few rows have any */
        wrong |= ids_mark(e.banned, e.banned_count, vocab, marks, to);
        wrong |= ids_mark(e.stop, e.stop_count, vocab, marks && q->said.length - q->said.prompt < e.min_tokens, to);
        wrong |= ids_mark(e.allowed, e.allowed_count, vocab, false, to);
        wrong |= ids_mark(e.breaker, e.breaker_count, vocab, false, to);
#pragma unroll 1
        for (int32_t i = threadIdx.x; i < e.bad_words_count; i += BLOCK_THREADS)
            wrong |= !extra_word_id_good(e.bad_words[i], vocab) || extra_word_empty(e.bad_words, i) ||
                     extra_word_open(e.bad_words, i, e.bad_words_count);
    }
    if (__syncthreads_or(wrong)) return false;
    if (!marks || !(e.bad_words_count || e.no_repeat_ngram || e.dry_multiplier != 0.0f)) return true;
    matches_note(q, PASS_MARK, to);
    if (e.dry_multiplier != 0.0f) dry_note(q, PASS_MARK, to);
    __syncthreads();
    return true;
}

/* Adds up what is known of the marked tokens; ends with a barrier. `near`: in shared memory. */
template <bool near> static __device__ __noinline__ void record_tally(const row_request *q, edit_notes to) {
    __builtin_assume(__isShared(q));
    __builtin_assume(__isShared(to.s));
    if (near) to.far = nullptr; /* compilers are to know it */
    const raffle_extra &e = q->extra;
    if (e.dry_multiplier != 0.0f) {
        dry_note(q, PASS_LENGTHS, to);
        __syncthreads();
    }
    if (extra_penalises(&e)) said_note<PASS_REST>(e, q->said, to);
    bias_flag(e, to);
    ids_flag(e.banned, e.banned_count, TALLY_BANNED, to);
    if (q->said.length - q->said.prompt < e.min_tokens) ids_flag(e.stop, e.stop_count, TALLY_BANNED, to);
    if (e.bad_words_count || e.no_repeat_ngram) matches_note(q, PASS_REST, to);
    __syncthreads();
}

/* ---- a block's part ------------------------------------------------------------------------------------------ */

/* No token is marked; by all warps but the first. */
__device__ __forceinline__ void edit_clear(edit_space &s) {
    const uint32_t least = order_of(MINUS_INF);
    const int first = (int)threadIdx.x - WARP;
#pragma unroll 1
    for (int i = first; i < EDIT_WORDS / 4; i += BLOCK_THREADS - WARP) ((uint4 *)s.bits)[i] = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = first; i < EDIT_GROUPS * PIECES / 4; i += BLOCK_THREADS - WARP) ((uint4 *)s.most)[i] = make_uint4(least, least, least, least);
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
        atomicAdd((unsigned long long *)to.mass + first + g, (unsigned long long)v_round(v_weight(v_max(float_of(s.cell[i]), MINUS_INF), &f, 0)));
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
