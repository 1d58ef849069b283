/* edit.cuh - rows that a request edits (`prepare`): bans, bias, penalties, DRY. The caller's logits are never written.
 *
 * Before a block reads its part of such a row it works out which tokens of the part are edited, and their logits:
 *
 *   mark       a bit for every token that a list or the history names
 *   tally      what is known of each: banned, how often said, how long a repetition it would lengthen
 *   evaluate   its logit, by the formulas of edit.h
 *
 * No block waits for another: each looks through the row's lists and history itself. The marked tokens of a part lie in
 * shared memory in the order of their ids (a token's place is the number of bits before its own). The part is then read by the
 * loops of read.cuh, which take edited tokens for -inf: these count by the maxima of their pieces, found beforehand, and what
 * they weigh is added afterwards. Bits (`patch`) and logits (`overlay`, by id) also go to the workspace, for whoever finishes
 * the row. A part with more marked tokens than shared memory has room for does all of it in the workspace, and is read group
 * by group.
 *
 * Ids of lists are checked before any is used; ids of histories are not, so whoever is told of one looks whether it is in
 * the part. */
#ifndef RAFFLE_CUDA_EDIT_CUH
#define RAFFLE_CUDA_EDIT_CUH

#include "finish.cuh"

#include "edit.h"
#include "extra_rules.h"

enum { GROUP_WORDS = GROUP / 32 };

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

/* Where a token of the part has its cell in shared memory. */
__device__ __forceinline__ uint32_t edit_place(const edit_space &s, uint32_t at) {
    return s.before[at / 32] + (uint32_t)__popc(s.bits[at / 32] & ((1u << at % 32) - 1));
}

/* Lists and history are gone through up to three times: to mark tokens, lists being checked on the way; to note lengths, which
 * are a maximum, while cells hold nothing else; to add up the rest. */
enum { PASS_MARK, PASS_LENGTHS, PASS_REST };

/* Where it goes what is found. */
struct edit_notes {
    edit_part p;
    edit_space *near;      /* NULL: */
    uint32_t *bits, *cell; /* of the part, in the workspace */

    __device__ __forceinline__ void mark(uint32_t at) const {
        if (near) atomicOr(near->bits + at / 32, 1u << at % 32);
        else atomicOr(bits + at / 32, 1u << at % 32);
    }
    __device__ __forceinline__ void flag(uint32_t at, uint32_t tally) const {
        if (near) atomicOr(near->cell + edit_place(*near, at), tally);
        else atomicOr(cell + at, tally);
    }
    /* For what comes once a token, or is a count alone. */
    __device__ __forceinline__ void add(uint32_t at, uint32_t tally) const {
        if (near) atomicAdd(near->cell + edit_place(*near, at), tally);
        else atomicAdd(cell + at, tally);
    }
    __device__ __forceinline__ void most(uint32_t at, uint32_t tally) const {
        if (near) atomicMax(near->cell + edit_place(*near, at), tally);
        else atomicMax(cell + at, tally);
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

__device__ __forceinline__ void ids_flag(const int32_t *ids, int32_t count, uint32_t tally, const edit_notes &to) {
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < count; i += BLOCK_THREADS) to.note(PASS_REST, ids[i], tally);
}

/* The bias goes to a cell of its own where there is one. */
__device__ __forceinline__ void bias_flag(const raffle_extra &e, const edit_notes &to) {
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bias_count; i += BLOCK_THREADS) {
        const uint32_t at = to.p.at(e.bias_id[i]);
        if (at >= to.p.tokens) continue;
        if (to.near) to.near->bias[edit_place(*to.near, at)] = e.bias[i];
        else to.flag(at, TALLY_BIAS);
    }
}

/* Tokens that were said, with their counts; those of a window one by one. */
template <int pass> __device__ __forceinline__ void said_note(const raffle_extra &e, const slot_said &h, const edit_notes &to) {
    const bool repetition = e.repetition != 0.0f && e.repetition != 1.0f, counts = e.frequency != 0.0f || e.presence != 0.0f;
    const bool seen_in = repetition && !(e.flags & RAFFLE_REPETITION_OUTPUT), count_in = counts && e.flags & RAFFLE_COUNT_PROMPT;
    if (e.penalty_window && e.penalty_window < h.length) {
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
    enum { AT_ONCE = 4 }; /* entries are waited for together */
#pragma unroll 1
    for (int32_t first = threadIdx.x; first < h.entries; first += AT_ONCE * BLOCK_THREADS) {
        uint64_t entries[AT_ONCE]; /* a token is in one of them */
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) entries[j] = first + j * BLOCK_THREADS < h.entries ? h.entry[first + j * BLOCK_THREADS] : 0;
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const uint32_t at = to.p.at(entry_token(entries[j]));
            if (at >= to.p.tokens || !(entries[j] & matters)) continue;
            if (pass == PASS_MARK) {
                to.mark(at);
                continue;
            }
            const uint32_t in = entry_prompt(entries[j]), out = entry_output(entries[j]);
            const uint32_t seen = (out && repetition) || (in && seen_in) ? TALLY_SEEN : 0u;
            const uint32_t count = min((counts ? out : 0u) + (count_in ? in : 0u), TALLY_COUNT - TAIL_MAX);
#if SAID_TAIL
            if (count) to.add(at, count);
            if (seen) to.flag(at, seen); /* a token of the tail says it, too */
#else
            to.add(at, seen | count);
#endif
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
    const raffle_extra &e = q->extra;
    bool wrong = q->lost;
    if (threadIdx.x == BLOCK_THREADS - 1) wrong |= !extra_numbers_good(&e);
    if (!extra_count_good(e.bias, e.bias_count, vocab) || !extra_count_good(e.bad_words, e.bad_words_count, RAFFLE_VOCAB_MAX))
        wrong = true;
    if (__syncthreads_or(wrong)) return false; /* what is below can rely on counts */
    if (marks && extra_penalises(&e)) said_note<PASS_MARK>(e, q->said, to);
    wrong = ids_mark(e.bias_id, e.bias_count, vocab, marks, to);
    wrong |= ids_mark(e.banned, e.banned_count, vocab, marks, to);
    wrong |= ids_mark(e.stop, e.stop_count, vocab, marks && q->said.length - q->said.prompt < e.min_tokens, to);
    wrong |= ids_mark(e.allowed, e.allowed_count, vocab, false, to);
    wrong |= ids_mark(e.breaker, e.breaker_count, vocab, false, to);
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bias_count; i += BLOCK_THREADS) wrong |= !extra_bias_good(e.bias[i]);
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bad_words_count; i += BLOCK_THREADS)
        wrong |= !extra_word_id_good(e.bad_words[i], vocab) || extra_word_empty(e.bad_words, i) ||
                 extra_word_open(e.bad_words, i, e.bad_words_count);
    if (__syncthreads_or(wrong)) return false;
    if (!marks || !(e.bad_words_count || e.no_repeat_ngram || e.dry_multiplier != 0.0f)) return true;
    matches_note(q, PASS_MARK, to);
    if (e.dry_multiplier != 0.0f) dry_note(q, PASS_MARK, to);
    __syncthreads();
    return true;
}

/* Adds up what is known of the marked tokens; ends with a barrier. */
static __device__ __noinline__ void record_tally(const row_request *q, const edit_notes to) {
    __builtin_assume(__isShared(q));
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
template <class type> __device__ __forceinline__ uint32_t part_number(work<type> *k, const edit_part &p) {
    edit_space &s = k->edit;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int per = (p.words + BLOCK_THREADS - 1) / BLOCK_THREADS, first = (int)threadIdx.x * per, end = min(first + per, p.words);
    uint32_t own = 0, total = 0;
#pragma unroll 1
    for (int i = first; i < end; ++i) own += (uint32_t)__popc(s.bits[i]);
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
    if (total > EDIT_TOKENS) return total;
    if (threadIdx.x == 0) s.total = total;
#pragma unroll 1
    for (int i = first; i < end; ++i) {
        s.before[i] = (uint16_t)place;
#pragma unroll 1
        for (uint32_t bits = s.bits[i]; bits; bits &= bits - 1, ++place) {
            s.at[place] = (uint16_t)(i * 32 + __ffs(bits) - 1);
            s.cell[place] = 0;
            s.bias[place] = NO_BIAS;
        }
    }
    __syncthreads();
    return total;
}

/* The logit of a marked token that was x. */
template <class type> __device__ __forceinline__ float edit_value(const work<type> *k, int32_t id, float x, uint32_t tally, float bias) {
    const raffle_extra &e = k->request.extra;
    if (tally & TALLY_BANNED || (k->row.allow && !bit_load(k->row.allow, id))) return MINUS_INF;
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

/* All of it where shared memory has no room: patch for the bits, overlay for the cells. */
template <class type> static __device__ __noinline__ void part_edit_far(work<type> *k, const edit_part p) {
    __builtin_assume(__isShared(k));
    const raffle_extra &e = k->request.extra;
    const edit_notes to = {p, nullptr, k->request.patch + p.first / 32, (uint32_t *)k->request.overlay + p.first};
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS) __stcg(to.bits + i, 0u);
    __syncthreads();
    record_mark(&k->request, k->row.vocab, true, to);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS)
#pragma unroll 1
        for (uint32_t bits = __ldcg(to.bits + i); bits; bits &= bits - 1) __stcg(to.cell + i * 32 + __ffs(bits) - 1, 0u);
    __syncthreads();
    record_tally(&k->request, to);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS)
#pragma unroll 1
        for (uint32_t bits = __ldcg(to.bits + i); bits; bits &= bits - 1) {
            const int at = i * 32 + __ffs(bits) - 1;
            const uint32_t tally = __ldcg(to.cell + at);
            const int32_t biased = tally & TALLY_BIAS ? ids_find(e.bias_id, e.bias_count, p.first + at) : -1;
            const float x = type::one(k->row.logits + (p.first + at) * (int64_t)type::BYTES);
            __stcg(to.cell + at, bits_of(edit_value(k, p.first + at, x, tally, biased >= 0 ? e.bias[biased] : NO_BIAS)));
        }
}

/* Which piece of its group a token of the part is in. */
template <class type> __device__ __forceinline__ uint32_t edit_piece(const work<type> *k, const edit_part &p, uint32_t at) {
    return token_lane<type>(group_whole(k->row, (int)((p.first + at) / GROUP)), at % GROUP) / PIECE_LANES;
}

/* Where the marks are made: tallies and logits in shared memory. False if there is no room. *nan: an edited logit is none. */
template <class type> __device__ __forceinline__ bool part_edit_near(work<type> *k, const edit_part &p, const edit_notes &to, bool *nan) {
    enum { AT_ONCE = 4 }; /* logits are waited for together */
    edit_space &s = k->edit;
    const uint32_t total = part_number(k, p);
    if (total > EDIT_TOKENS) return false;
    record_tally(&k->request, to);
    uint4 *patch = (uint4 *)(k->request.patch + p.first / 32);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words / 4; i += BLOCK_THREADS) __stcg(patch + i, ((const uint4 *)s.bits)[i]);
    uint64_t best = 0;
#pragma unroll 1
    for (uint32_t first = threadIdx.x; first < total; first += AT_ONCE * BLOCK_THREADS) {
        float x[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const uint32_t i = min(first + j * BLOCK_THREADS, total - 1);
            x[j] = type::one(k->row.logits + (p.first + s.at[i]) * (int64_t)type::BYTES);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const uint32_t i = first + j * BLOCK_THREADS;
            if (i >= total) break;
            const uint32_t at = s.at[i];
            const int32_t id = p.first + (int32_t)at;
            const float edited = edit_value(k, id, x[j], s.cell[i], s.bias[i]), counts = v_max(edited, MINUS_INF);
            s.cell[i] = bits_of(edited);
            __stcg(k->request.overlay + id, edited);
            *nan |= edited != edited;
            best = max(best, token_key(counts, id));
            atomicMax(s.most + at / GROUP * PIECES + edit_piece(k, p, at), order_of(counts));
        }
    }
    if (k->to.greedy) warp_best(k, best, true);
    return true;
}

/* Checks the row's record and prepares groups [first, end). Afterwards k->valid says whether the row can be read at all. Returns
 * whether this thread has seen a NaN that the reading will not see. */
template <class type> static __device__ __noinline__ bool part_edit(work<type> *k, int first, int end) {
    __builtin_assume(__isShared(k));
    row_request &q = k->request;
    edit_part p;
    p.first = first * GROUP;
    p.tokens = (uint32_t)(min((int64_t)end * GROUP, k->row.vocab) - p.first);
    p.words = (end - first) * GROUP_WORDS;
    const edit_notes to = {p, &k->edit, nullptr, nullptr};
    const bool marks = k->row.patch != nullptr;
    if (!record_mark(&q, k->row.vocab, marks, to)) {
        if (threadIdx.x == 0) k->valid = false;
        __syncthreads();
        return false;
    }
    bool nan = false;
    if (q.extra.allowed_count) mask_make(&q, p);
    if (marks) {
        const bool near = part_edit_near(k, p, to, &nan);
        if (!near) part_edit_far(k, p);
        if (threadIdx.x == 0) q.near = near;
    }
    __syncthreads();
    return nan;
}

/* ---- reading a prepared part ----------------------------------------------------------------------------------- */

/* A warp's loads in flight, like `flight`, of a row that is masked, or edited near. Masked and edited tokens are -inf in it, and
 * the latter count by the maxima of their pieces; what they weigh is added behind the loop (edits_weigh). */
template <class type> struct masked_flight : flight<type> {
    enum { EDITED = 1, GROUPS = flight<type>::GROUPS, WORDS = flight<type>::WORDS, TOKENS = LANE_TOKENS / WORDS };
    uint32_t word[GROUPS][WORDS]; /* of the mask, with the lane's bits */
    const uint32_t *allow;        /* the lane's word of the row's first group, or NULL */
    work<type> *k;
    bool edited;
    int first; /* group of the part */

    __device__ __forceinline__ void load(int i, int ahead) {
        const int group = this->g + (i + ahead) * BLOCK_WARPS;
        flight<type>::load(i, ahead);
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            if (allow && this->room[w] > (i + ahead) * BLOCK_WARPS) word[i][w] = bits_load(allow + group * GROUP_WORDS + w * (GROUP_WORDS / 2));
    }
    __device__ __forceinline__ masked_flight(work<type> *of, int g, int part, int end) : k(of), first(part) {
        const lane_raw<type> nothing = {};
        edited = k->row.patch != nullptr;
        allow = k->row.allow ? k->row.allow + threadIdx.x % WARP * TOKENS / 32 : nullptr;
        this->aim(k->row.logits, k->row.vocab, g, end);
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            this->raw[i] = nothing;
#pragma unroll
            for (int w = 0; w < WORDS; ++w) word[i][w] = 0;
            load(i, 0);
        }
    }
    __device__ __forceinline__ void next(int i) { load(i, GROUPS); }
    __device__ __forceinline__ void shift() {
#pragma unroll
        for (int i = 1; i < GROUPS; ++i)
#pragma unroll
            for (int w = 0; w < WORDS; ++w) word[i - 1][w] = word[i][w];
        flight<type>::shift();
    }
    /* The i-th group, counted from the part's first. */
    __device__ __forceinline__ int of_part(int i) const { return this->g + i * BLOCK_WARPS - first; }
    __device__ __forceinline__ void ready(int i) {
        const int lane = threadIdx.x % WARP;
        uint32_t keep = 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            uint32_t bits = allow ? word[i][w] : ~0u;
            if (edited) bits &= ~k->edit.bits[of_part(i) * GROUP_WORDS + lane * TOKENS / 32 + w * (GROUP_WORDS / 2)];
            keep |= (bits >> (lane * TOKENS % 32) & ((1u << TOKENS) - 1)) << w * TOKENS;
        }
        raw_mask(this->raw[i], keep);
    }
    /* In a group that is cut short, lanes hold other pieces (piece_peak_cut). */
    __device__ __forceinline__ float most(int i, bool cut) const {
        const int lane = threadIdx.x % WARP;
        const float own = raw_peak(this->raw[i]);
        if (!edited) return own;
        const int piece = cut ? lane / (type::BYTES / 2) % PIECES : lane / PIECE_LANES;
        return max_or_nan(own, float_of_order(k->edit.most[of_part(i) * PIECES + piece]));
    }
    /* The maxima of pieces have been read: the group's takes their place. */
    __device__ __forceinline__ void note(int i, float peak) {
        if (!edited) return;
        __syncwarp();
        if (threadIdx.x % WARP == 0) k->edit.most[of_part(i) * PIECES] = bits_of(peak);
    }
};

#define WEIGHED 0xffffffffu /* in place of a group's maximum: whoever has read it has weighed its edited tokens, too */

/* Adds what edited tokens weigh to the records of their groups, whose maxima note() has left. */
template <class type> __device__ __forceinline__ void edits_weigh(const work<type> *k, const records &to, int first) {
    const edit_space &s = k->edit;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < s.total; i += BLOCK_THREADS) {
        const uint32_t g = s.at[i] / GROUP, peak = s.most[g * PIECES];
        if (peak == WEIGHED) continue;
        const ref f = ref_make_near(to.by, float_of(peak));
        atomicAdd((unsigned long long *)to.mass + first + g, (unsigned long long)v_round(v_weight(v_max(float_of(s.cell[i]), MINUS_INF), &f, 0)));
    }
}

template <class type, bool pieces, bool weights, bool also>
static __device__ __noinline__ bool prepared_weigh(work<type> *k, int g, int first, int end) {
    __builtin_assume(__isShared(k));
    const records to = k->to, shown = k->shown;
    masked_flight<type> f(k, g, first, end);
    return groups_weigh<pieces, weights, also>(f, to, shown);
}

/* For greedy rows: leaves the warp's best token. */
template <class type> static __device__ __noinline__ bool prepared_best(work<type> *k, int g, int first, int end) {
    __builtin_assume(__isShared(k));
    masked_flight<type> f(k, g, first, end);
    return groups_best<type>(f, k);
}

/* The groups of a warp that lanes can load. */
template <class type> __device__ __forceinline__ bool prepared_first(work<type> *k, int g, int first, int end) {
    if (k->to.greedy) return prepared_best(k, g, first, end);
    if (k->also) return prepared_weigh<type, true, true, true>(k, g, first, end);
    if (!k->to.weights) return prepared_weigh<type, true, false, false>(k, g, first, end);
    if (!k->to.pieces) return prepared_weigh<type, false, true, false>(k, g, first, end);
    return prepared_weigh<type, true, true, false>(k, g, first, end);
}

/* Reads groups [first, end) of a row that is masked, or that part_edit has prepared. Returns whether there was a NaN. */
template <class type> static __device__ __noinline__ bool part_read_prepared(work<type> *k, int first, int end) {
    __builtin_assume(__isShared(k));
    const bool edited = k->row.patch != nullptr, quick = k->row.aligned && (!edited || k->request.near);
    int g = first + (int)threadIdx.x / WARP;
    bool nan = false;
    if (quick) {
        const int last = min(end, groups_loadable<type>(k->row.vocab));
        const bool again = __any_sync(ALL_LANES, prepared_first(k, g, first, last)); /* there was a NaN */
        if (!again && g < last) g += (last - g + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS;
    }
    if (g < end) nan = groups_redo<type>(k, g, end, true);
    if (!quick || !edited || !k->to.weights) return nan;
    __syncwarp(); /* note() has stored there */
#pragma unroll 1
    for (int i = g + threadIdx.x % WARP * BLOCK_WARPS; i < end; i += WARP * BLOCK_WARPS) k->edit.most[(i - first) * PIECES] = WEIGHED;
    __syncthreads();
    edits_weigh(k, k->to, first);
    if (k->also) edits_weigh(k, k->shown, first);
    return nan;
}

#endif
