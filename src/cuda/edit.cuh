/* edit.cuh - rows that a request edits (`prepare`): bans, bias, penalties, DRY. The caller's logits are never written.
 *
 * Before a block reads its part of such a row it works out which tokens of the part are edited, and their logits:
 *
 *   mark       a bit for every token that a list or the history names
 *   tally      what is known of each: banned, how often said, how long a repetition it would lengthen
 *   evaluate   its logit, by the formulas of edit.h
 *
 * No block waits for another: each looks through the row's lists and history itself. The marked tokens of a part lie in
 * shared memory in the order of their ids (a token's place is the number of bits before its own), and the part is then read
 * with loads in flight like any other, edited tokens taken from there. Bits (`patch`) and logits (`overlay`, by id) also go to
 * the workspace, for whoever finishes the row. A part with more marked tokens than shared memory has room for does all
 * of it in the workspace, and is read group by group.
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

/* Whether a request may edit single tokens. */
__device__ __forceinline__ bool extra_touches(const raffle_extra &e) {
    return e.bias_count || e.banned_count || e.bad_words_count || (e.min_tokens && e.stop_count) || e.no_repeat_ngram ||
           e.dry_multiplier != 0.0f || extra_penalises(&e);
}

/* ---- lists ------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ bool ids_wrong(const int32_t *ids, int32_t count, int64_t vocab) {
    if (!extra_count_good(ids, count, vocab)) return true;
    bool wrong = false;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < count; i += BLOCK_THREADS) wrong |= !extra_id_good(ids[i], vocab) || !extra_ascends(ids, i);
    return wrong;
}

/* Whether this thread sees something wrong in the row's lists. All blocks of a row look at all of them, and agree. */
__device__ __forceinline__ bool lists_wrong(const raffle_extra &e, int64_t vocab) {
    bool wrong = false;
#define LIST_WRONG(ids, count) wrong |= ids_wrong(e.ids, e.count, vocab);
    EXTRA_LISTS(LIST_WRONG)
#undef LIST_WRONG
    if (wrong || !extra_count_good(e.bias, e.bias_count, vocab) || !extra_count_good(e.bad_words, e.bad_words_count, RAFFLE_VOCAB_MAX))
        return true;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bias_count; i += BLOCK_THREADS) wrong |= !extra_bias_good(e.bias[i]);
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bad_words_count; i += BLOCK_THREADS)
        wrong |= !extra_word_id_good(e.bad_words[i], vocab) || extra_word_empty(e.bad_words, i) ||
                 extra_word_open(e.bad_words, i, e.bad_words_count);
    return wrong;
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

/* Lists and history are gone through up to three times: to mark tokens; to note lengths, which are a maximum, while cells hold
 * nothing else; to add up the rest. */
enum { PASS_MARK, PASS_LENGTHS, PASS_REST };

/* Where it goes what is found. */
struct edit_notes {
    edit_part p;
    int pass;
    edit_space *near;      /* NULL: */
    uint32_t *bits, *cell; /* of the part, in the workspace */

    __device__ __forceinline__ void note(int32_t id, uint32_t tally) const {
        const uint32_t at = p.at(id);
        if (at >= p.tokens || !tally) return;
        if (pass == PASS_MARK) {
            atomicOr(near ? near->bits + at / 32 : bits + at / 32, 1u << at % 32);
            return;
        }
        uint32_t *to = near ? near->cell + edit_place(*near, at) : cell + at;
        if (pass == PASS_LENGTHS) atomicMax(to, tally);
        else if (tally & TALLY_COUNT) atomicAdd(to, tally & TALLY_COUNT);
        if (pass == PASS_REST && tally & ~TALLY_COUNT) atomicOr(to, tally & ~TALLY_COUNT);
    }
};

/* All threads take turns here and below. Loops are not unrolled: each runs a few times, and its instructions must be fetched. */
__device__ __forceinline__ void ids_note(const int32_t *ids, int32_t count, uint32_t tally, const edit_notes &to) {
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < count; i += BLOCK_THREADS) to.note(ids[i], tally);
}

/* Tokens that were said, with their counts; those of a window one by one. */
__device__ __forceinline__ void said_note(const raffle_extra &e, const slot_said &h, const edit_notes &to) {
    const bool repetition = e.repetition != 0.0f && e.repetition != 1.0f, counts = e.frequency != 0.0f || e.presence != 0.0f;
    const bool seen_in = repetition && !(e.flags & RAFFLE_REPETITION_OUTPUT), count_in = counts && e.flags & RAFFLE_COUNT_PROMPT;
    if (e.penalty_window && e.penalty_window < h.length) {
        const uint32_t in = (seen_in ? TALLY_SEEN : 0u) | (count_in ? 1u : 0u), out = (repetition ? TALLY_SEEN : 0u) | (counts ? 1u : 0u);
#pragma unroll 1
        for (int32_t i = h.length - e.penalty_window + (int32_t)threadIdx.x; i < h.length; i += BLOCK_THREADS)
            to.note(h.token[i], i < h.prompt ? in : out);
        return;
    }
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < h.entries; i += BLOCK_THREADS) {
        const uint64_t entry = h.entry[i];
        const uint32_t in = entry_prompt(entry), out = entry_output(entry);
        const uint32_t seen = (out && repetition) || (in && seen_in) ? TALLY_SEEN : 0u;
        to.note(entry_token(entry), seen | ((counts ? out : 0u) + (count_in ? in : 0u)));
    }
}

/* Last tokens of bad words and n-grams that would be said by them. */
static __device__ __noinline__ void matches_note(const row_request *q, const edit_notes to) {
    __builtin_assume(__isShared(q));
    const raffle_extra &e = q->extra;
    const slot_said &h = q->said;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < e.bad_words_count; i += BLOCK_THREADS)
        if (e.bad_words[i] < 0 && word_ready(e.bad_words, i, h.token, h.length)) to.note(e.bad_words[i - 1], TALLY_BANNED);
    const int32_t n = e.no_repeat_ngram;
#pragma unroll 1
    for (int32_t i = threadIdx.x; n && i <= h.length - n; i += BLOCK_THREADS)
        if (ends_with(h.token, h.length, h.token + i, n - 1)) to.note(h.token[i + n - 1], TALLY_BANNED);
}

/* Tokens that would lengthen a repetition. */
static __device__ __noinline__ void dry_note(const row_request *q, const edit_notes to) {
    __builtin_assume(__isShared(q));
    const raffle_extra &e = q->extra;
    const slot_said &h = q->said;
    const int32_t first = e.dry_range && e.dry_range < h.length ? h.length - e.dry_range : 0, length = h.length - first;
    const int32_t *token = h.token + first, allowed = e.dry_allowed ? e.dry_allowed : 2;
    if (length < 2) return;
    const int32_t last = token[length - 1];
    if (ids_find(e.breaker, e.breaker_count, last) >= 0) return;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i + 1 < length; i += BLOCK_THREADS) {
        if (token[i] != last) continue;
        const int32_t same = dry_length(token, length, i, e.breaker, e.breaker_count);
        if (same >= allowed && ids_find(e.breaker, e.breaker_count, token[i + 1]) < 0) to.note(token[i + 1], (uint32_t)same * TALLY_LENGTH);
    }
}

/* All that a pass is about; ends with a barrier. */
static __device__ __noinline__ void sources_note(const row_request *q, const edit_notes to) {
    __builtin_assume(__isShared(q));
    const raffle_extra &e = q->extra;
    if (to.pass != PASS_LENGTHS) {
        ids_note(e.bias_id, e.bias_count, TALLY_BIAS, to);
        ids_note(e.banned, e.banned_count, TALLY_BANNED, to);
        if (q->said.length - q->said.prompt < e.min_tokens) ids_note(e.stop, e.stop_count, TALLY_BANNED, to);
        if (extra_penalises(&e)) said_note(e, q->said, to);
        if (e.bad_words_count || e.no_repeat_ngram) matches_note(q, to);
    }
    if (to.pass != PASS_REST && e.dry_multiplier != 0.0f) dry_note(q, to);
    __syncthreads();
}

/* ---- a block's part ------------------------------------------------------------------------------------------ */

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
}

/* Numbers the marked tokens and empties their cells. Returns how many there are: more than EDIT_TOKENS do not fit. */
template <class type> __device__ __forceinline__ uint32_t part_number(work<type> *k, const edit_part &p) {
    edit_space &s = k->edit;
    const int per = (p.words + BLOCK_THREADS - 1) / BLOCK_THREADS, first = (int)threadIdx.x * per, end = min(first + per, p.words);
    uint32_t own = 0;
#pragma unroll 1
    for (int i = first; i < end; ++i) own += (uint32_t)__popc(s.bits[i]);
    uint32_t place = (uint32_t)block_before(own, &k->block);
    const uint32_t total = block_count(own, &k->block);
    if (total > EDIT_TOKENS) return total;
#pragma unroll 1
    for (int i = first; i < end; ++i) {
        s.before[i] = (uint16_t)place;
#pragma unroll 1
        for (uint32_t bits = s.bits[i]; bits; bits &= bits - 1, ++place) {
            s.id[place] = p.first + i * 32 + __ffs(bits) - 1;
            s.cell[place] = 0;
        }
    }
    __syncthreads();
    return total;
}

/* The logit of a marked token. Masks come on top of it. */
template <class type> __device__ __forceinline__ float edit_value(const work<type> *k, int32_t id, uint32_t tally) {
    const raffle_extra &e = k->request.extra;
    float x = type::one(k->row.logits + id * (int64_t)type::BYTES);
    if (tally & TALLY_BANNED) return MINUS_INF;
    if (tally & TALLY_BIAS) x = edit_bias(x, e.bias[max(0, ids_find(e.bias_id, e.bias_count, id))]);
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
    edit_notes to = {p, PASS_MARK, nullptr, k->request.patch + p.first / 32, (uint32_t *)k->request.overlay + p.first};
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS) __stcg(to.bits + i, 0u);
    __syncthreads();
    sources_note(&k->request, to);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS)
#pragma unroll 1
        for (uint32_t bits = __ldcg(to.bits + i); bits; bits &= bits - 1) __stcg(to.cell + i * 32 + __ffs(bits) - 1, 0u);
    __syncthreads();
#pragma unroll 1
    for (to.pass = PASS_LENGTHS; to.pass <= PASS_REST; ++to.pass) sources_note(&k->request, to);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS)
#pragma unroll 1
        for (uint32_t bits = __ldcg(to.bits + i); bits; bits &= bits - 1) {
            const int at = i * 32 + __ffs(bits) - 1;
            __stcg(to.cell + at, bits_of(edit_value(k, p.first + at, __ldcg(to.cell + at))));
        }
}

/* The same in shared memory. False if there is no room. */
template <class type> __device__ __forceinline__ bool part_edit_near(work<type> *k, const edit_part &p) {
    edit_space &s = k->edit;
    uint32_t *patch = k->request.patch + p.first / 32;
    edit_notes to = {p, PASS_MARK, &s, nullptr, nullptr};
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS) s.bits[i] = 0;
    __syncthreads();
    sources_note(&k->request, to);
    const uint32_t total = part_number(k, p);
    if (total > EDIT_TOKENS) return false;
#pragma unroll 1
    for (to.pass = k->request.extra.dry_multiplier != 0.0f ? PASS_LENGTHS : PASS_REST; to.pass <= PASS_REST; ++to.pass) sources_note(&k->request, to);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.words; i += BLOCK_THREADS) __stcg(patch + i, s.bits[i]);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < total; i += BLOCK_THREADS) {
        const int32_t id = s.id[i];
        const float x = edit_value(k, id, s.cell[i]);
        s.cell[i] = bits_of(x);
        __stcg(k->request.overlay + id, x);
    }
    return true;
}

/* Checks the row's lists and prepares groups [first, end). Afterwards k->valid says whether the row can be read at all. */
template <class type> static __device__ __noinline__ void part_edit(work<type> *k, int first, int end) {
    __builtin_assume(__isShared(k));
    row_request &q = k->request;
    edit_part p;
    p.first = first * GROUP;
    p.tokens = (uint32_t)(min((int64_t)end * GROUP, k->row.vocab) - p.first);
    p.words = (end - first) * GROUP_WORDS;
    if (k->row.patch) /* logits come while lists are looked through */
#pragma unroll 1
        for (int g = first + (int)threadIdx.x / WARP; g < end; g += BLOCK_WARPS) group_prefetch<type>(k->row, g, threadIdx.x % WARP);
    const bool wrong = __syncthreads_or(lists_wrong(q.extra, k->row.vocab));
    if (wrong) {
        if (threadIdx.x == 0) k->valid = false;
    } else {
        if (q.extra.allowed_count) mask_make(&q, p);
        if (k->row.patch) {
            const bool near = part_edit_near(k, p);
            if (!near) part_edit_far(k, p);
            if (threadIdx.x == 0) q.near = near;
        }
    }
    __syncthreads();
}

/* ---- reading a prepared part ----------------------------------------------------------------------------------- */

/* A warp's loads in flight, like `flight`, with the words of the row's mask that hold a lane's bits. */
template <class type, int groups> struct masked_flight : flight<type, groups> {
    enum { WORDS = type::BYTES / 2 };
    uint32_t word[groups][WORDS];
    const uint32_t *allow; /* the lane's word of the row's first group, or NULL */

    __device__ __forceinline__ void load(int i, int ahead) {
        flight<type, groups>::load(i, ahead);
        const int group = this->g + (i + ahead) * BLOCK_WARPS;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            uint32_t next; /* left open where it is not looked at */
            if (allow && group < this->end) next = bits_load(allow + group * GROUP_WORDS + w * (GROUP_WORDS / 2));
            word[i][w] = next;
        }
    }
    __device__ __forceinline__ void start(const device_row &row, int first, int last) {
        const int lane = threadIdx.x % WARP;
        this->end = __shfl_sync(ALL_LANES, last, 0);
        this->g = __shfl_sync(ALL_LANES, first, 0);
        this->at = row.logits + this->g * (int64_t)GROUP * type::BYTES + lane * 16;
        allow = row.allow ? row.allow + lane * (LANE_TOKENS / WORDS) / 32 : nullptr;
#pragma unroll
        for (int i = 0; i < groups; ++i) load(i, 0);
    }
    __device__ __forceinline__ uint32_t allowed(int i) const {
        const int lane = threadIdx.x % WARP;
        if (!allow) return 0xffu;
        if (type::BYTES == 2) return word[i][0] >> (lane % 4 * 8);
        return (word[i][0] >> (lane % 8 * 4) & 0xfu) | (word[i][WORDS - 1] >> (lane % 8 * 4)) << 4;
    }
};

/* Puts the edited tokens of a lane in their places, out of shared memory; `g` counts from the part's first group. */
template <class type> __device__ __forceinline__ void lane_patch_near(const edit_space &s, int g, float x[LANE_TOKENS]) {
    enum { WORDS = type::BYTES / 2, TOKENS = LANE_TOKENS / WORDS };
    const int lane = threadIdx.x % WARP, word = g * GROUP_WORDS + lane * TOKENS / 32, shift = lane * TOKENS % 32;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        const uint32_t bits = s.bits[word + w * (GROUP_WORDS / 2)], own = bits >> shift & ((1u << TOKENS) - 1);
        if (!own) continue;
        uint32_t place = s.before[word + w * (GROUP_WORDS / 2)] + (uint32_t)__popc(bits & ((1u << shift) - 1));
#pragma unroll
        for (int j = 0; j < TOKENS; ++j) {
            if (own & 1u << j) x[w * TOKENS + j] = float_of(s.cell[place]);
            place += own >> j & 1;
        }
    }
}

/* What becomes of a NaN: -inf. Returns the lane's maximum then. */
__device__ __forceinline__ float lane_scrub(float x[LANE_TOKENS]) {
    float most = MINUS_INF;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        x[j] = v_max(x[j], MINUS_INF);
        most = v_max(x[j], most);
    }
    return most;
}

/* Calls visit(g, x, most) for the whole groups g, g + 8, ... below `end` of an aligned row that is masked or edited near: x[j]
 * the lane's j-th token, `most` the largest, no NaN among them. Loads of `groups` of them are in flight. `first` is the part's.
 * Returns whether there was a NaN. */
template <int groups, class type, class function>
__device__ __forceinline__ bool prepared_visit(work<type> *k, int g, int first, int end, function visit) {
    const bool patched = k->row.patch != nullptr;
    masked_flight<type, groups> f;
    bool nan = false;
    f.start(k->row, g, end);
    for (; f.g < f.end; f.advance()) {
#pragma unroll
        for (int i = 0; i < groups; ++i) {
            const int now = f.g + i * BLOCK_WARPS;
            if (now >= f.end) break;
            float x[LANE_TOKENS];
            raw_values(f.raw[i], x);
            const uint32_t allowed = f.allowed(i);
            f.load(i, groups);
            if (patched) lane_patch_near<type>(k->edit, now - first, x);
            lane_mask(allowed, x);
            float most = lane_peak(x);
            if (__any_sync(ALL_LANES, most != most)) {
                nan |= most != most;
                most = lane_scrub(x);
            }
            visit(now, x, most);
        }
    }
    return nan;
}

template <class type, bool pieces, bool weights>
static __device__ __noinline__ bool prepared_weigh(work<type> *k, int g, int first, int end) {
    __builtin_assume(__isShared(k));
    const records to = k->to, shown = k->shown;
    const bool also = pieces && weights && k->also;
    /* Weights take registers; a load that has to wait on the stack would not be in flight. */
    return prepared_visit<weights ? 4 / type::BYTES + 1 : 8 / type::BYTES>(k, g, first, end, [&](int now, const float x[LANE_TOKENS], float most) {
        const float peak = record_make<pieces, weights>(to, now, x, most);
        if (also) record_weigh(shown, now, x, peak);
    });
}

/* For greedy rows: leaves the warp's best token. */
template <class type> static __device__ __noinline__ bool prepared_best(work<type> *k, int g, int first, int end) {
    __builtin_assume(__isShared(k));
    float kept = MINUS_INF;
    uint64_t best = 0;
    const bool nan = prepared_visit<8 / type::BYTES>(k, g, first, end, [&](int now, const float x[LANE_TOKENS], float most) {
        if (!(most > kept)) return;
        int at = 0;
#pragma unroll
        for (int j = LANE_TOKENS - 1; j >= 0; --j)
            if (x[j] == most) at = j;
        kept = most;
        best = token_key(most, now * (int64_t)GROUP + lane_token<type>(true, threadIdx.x % WARP, at));
    });
    warp_best(k, best, false);
    return nan;
}

/* Reads groups [first, end) of a row that is masked, or that part_edit has prepared. Returns whether there was a NaN. */
template <class type> static __device__ __noinline__ bool part_read_prepared(work<type> *k, int first, int end) {
    __builtin_assume(__isShared(k));
    int g = first + (int)threadIdx.x / WARP;
    bool nan = false, before = false;
    if (k->row.aligned && (!k->row.patch || k->request.near)) {
        const int whole = min(end, (int)(k->row.vocab / GROUP));
        if (k->to.greedy) nan = prepared_best(k, g, first, whole);
        else if (!k->to.weights) nan = prepared_weigh<type, true, false>(k, g, first, whole);
        else if (!k->to.pieces) nan = prepared_weigh<type, false, true>(k, g, first, whole);
        else nan = prepared_weigh<type, true, true>(k, g, first, whole);
        before = g < whole;
        if (before) g += (whole - g + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS;
    }
    if (g < end) nan |= groups_redo<type>(k, g, end, before);
    return nan;
}

#endif
