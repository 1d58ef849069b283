/* edit_mark.cuh - which tokens of a part a request edits, and what is known of each (`mark` and `tally` of edit.cuh).
 *
 * Ids of lists are checked before any is used; ids of histories are not, so whoever is told of one looks whether it is in
 * the part. */
#ifndef RAFFLE_CUDA_EDIT_MARK_CUH
#define RAFFLE_CUDA_EDIT_MARK_CUH

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

/* Where what is found goes. */
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

/* Calls visit(i, id, bias) for this thread's biases; for the last of all perhaps twice, and by several threads. */
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

/* ids_mark for biases. */
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
    const int32_t first = e.flags & RAFFLE_BAD_WORDS_OUTPUT ? h.prompt : 0;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bad_words_count; i += BLOCK_THREADS)
        if (e.bad_words[i] < 0 && i && word_ready(e.bad_words, i, h.token + first, h.length - first))
            to.note(pass, e.bad_words[i - 1], TALLY_BANNED);
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

#endif
