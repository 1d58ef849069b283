/* pick_extra.h - a random raffle_extra: each feature off, usual or extreme; and histories that make them matter. */
#ifndef RAFFLE_TESTS_PICK_EXTRA_H
#define RAFFLE_TESTS_PICK_EXTRA_H

#include <math.h>
#include <stdlib.h>

#include "raffle/raffle.h"

#include "pick.h"

/* Memory for lists, freed together. */
typedef struct arena {
    void *block[4096];
    int count;
} arena;

static inline void *arena_take(arena *a, size_t bytes) {
    if (a->count == 4096) abort();
    return a->block[a->count++] = malloc(bytes ? bytes : 1);
}

static inline void arena_free(arena *a) {
    while (a->count) free(a->block[--a->count]);
}

enum { PICK_BIAS = 1, PICK_BANNED = 2, PICK_ALLOWED = 4, PICK_STOP = 8, PICK_WORDS = 16, PICK_NGRAM = 32, PICK_DRY = 64,
       PICK_REPETITION = 128, PICK_COUNTS = 256, PICK_WINDOW = 512, PICK_SIGMA = 1024, PICK_EPSILON = 2048,
       PICK_ETA = 4096, PICK_TYPICAL = 8192, PICK_XTC = 16384, PICK_KEEP = 32768, PICK_FLAGS = 65536, PICK_ALL = 131071 };

/* Ids in ascending order, without repeats; half of them from the history if there is one. */
static inline int32_t *pick_ids(test_random *r, arena *a, int64_t vocab, const int32_t *history, int64_t length, int32_t *count) {
    int64_t most = random_below(r, 4) ? 12 : vocab;
    int64_t n = 1 + random_below(r, most < 400 ? most : 400);
    int32_t *ids = arena_take(a, (size_t)n * 4);
    for (int64_t i = 0; i < n; ++i)
        ids[i] = length && random_below(r, 2) ? history[random_below(r, length)] : (int32_t)random_below(r, vocab);
    *count = (int32_t)raffle_ids_sort(ids, NULL, n);
    return ids;
}

static inline void pick_bias(test_random *r, arena *a, int64_t vocab, const int32_t *history, int64_t length, raffle_extra *e) {
    static const float some[] = {-INFINITY, -100.0f, 100.0f, 5.0f, -5.0f, 0.0f, 1e-30f, 3e38f, -3e38f};
    e->bias_id = pick_ids(r, a, vocab, history, length, &e->bias_count);
    float *bias = arena_take(a, (size_t)e->bias_count * 4);
    for (int32_t i = 0; i < e->bias_count; ++i)
        bias[i] = random_below(r, 5) ? (float)(random_unit(r) * 8 - 4) : some[random_below(r, 9)];
    e->bias = bias;
}

/* Words that end with what the history ends with, and others. */
static inline void pick_words(test_random *r, arena *a, int64_t vocab, const int32_t *history, int64_t length, raffle_extra *e) {
    int32_t *words = arena_take(a, 4 * 64);
    int64_t n = 0;
    for (int64_t word = 1 + random_below(r, 6); word; --word) {
        int64_t before = random_below(r, 5);
        for (int64_t i = 0; i < before; ++i)
            words[n++] = before <= length && random_below(r, 8) ? history[length - before + i] : (int32_t)random_below(r, vocab);
        words[n++] = (int32_t)random_below(r, vocab);
        words[n++] = -1;
    }
    e->bad_words = words;
    e->bad_words_count = (int32_t)n;
}

static inline void pick_penalties(test_random *r, uint32_t wish, raffle_extra *e) {
    static const float repetition[] = {1.0f, 1.1f, 1.3f, 2.0f, 0.5f, 1e9f, 1e-9f}, off[] = {0.5f, 2.0f, -2.0f, 1e9f, -1e9f, 0.1f};
    if (wish & PICK_REPETITION) e->repetition = repetition[random_below(r, 7)];
    if (wish & PICK_COUNTS) {
        if (random_below(r, 4)) e->frequency = off[random_below(r, 6)];
        if (random_below(r, 4)) e->presence = (float)(random_unit(r) * 4 - 2);
    }
    if (wish & PICK_WINDOW) e->penalty_window = 1 + (int32_t)random_below(r, 100);
    if (wish & PICK_NGRAM) e->no_repeat_ngram = 1 + (int32_t)random_below(r, 4);
    if (wish & PICK_FLAGS && random_below(r, 2)) e->flags |= RAFFLE_REPETITION_OUTPUT;
    if (wish & PICK_FLAGS && random_below(r, 2)) e->flags |= RAFFLE_COUNT_PROMPT;
    if (wish & PICK_FLAGS && random_below(r, 2)) e->flags |= (uint32_t)random_below(r, 32);
}

static inline void pick_filters(test_random *r, uint32_t wish, int64_t vocab, raffle_extra *e) {
    static const float small[] = {1e-2f, 3e-4f, 1e-6f, 0.2f, 0.9f, 1.0f, 2.0f, 0x1p-149f, -1.0f, 1e-12f};
    if (wish & PICK_SIGMA) e->top_n_sigma = random_below(r, 4) ? (float)(random_unit(r) * 4) : random_below(r, 2) ? 1e9f : 1e-9f;
    if (wish & PICK_EPSILON) e->epsilon = small[random_below(r, 10)];
    if (wish & PICK_ETA) e->eta = small[random_below(r, 10)];
    if (wish & PICK_TYPICAL) e->typical_p = random_below(r, 4) ? (float)random_unit(r) : small[random_below(r, 10)];
    if (wish & PICK_XTC) {
        e->xtc_probability = random_below(r, 3) ? 1.0f : (float)random_unit(r);
        e->xtc_threshold = random_below(r, 4) ? (float)(random_unit(r) * 0.4) : small[random_below(r, 10)];
    }
    if (wish & PICK_KEEP) e->keep_least = random_below(r, 4) ? 1 + (int32_t)random_below(r, 8) : 1 + (int32_t)random_below(r, vocab + 3);
}

/* Features of `wish`, for a slot with this history. */
static inline raffle_extra pick_extra(test_random *r, arena *a, uint32_t wish, int64_t vocab, const int32_t *history, int64_t length,
                                      int64_t output) {
    raffle_extra e = {0};
    if (wish & PICK_BIAS) pick_bias(r, a, vocab, history, length, &e);
    if (wish & PICK_BANNED) e.banned = pick_ids(r, a, vocab, history, length, &e.banned_count);
    if (wish & PICK_ALLOWED) e.allowed = pick_ids(r, a, vocab, history, length, &e.allowed_count);
    if (wish & PICK_STOP) {
        e.stop = pick_ids(r, a, vocab, history, length, &e.stop_count);
        e.min_tokens = (int32_t)(output + random_below(r, 3));
    }
    if (wish & PICK_WORDS) pick_words(r, a, vocab, history, length, &e);
    if (wish & PICK_DRY) {
        static const float multiplier[] = {0.8f, 0.1f, 5.0f, 1e9f}, base[] = {0.0f, 1.75f, 1.0f, 3.0f, 1e9f};
        e.dry_multiplier = multiplier[random_below(r, 4)];
        e.dry_base = base[random_below(r, 5)];
        e.dry_allowed = (int32_t)random_below(r, 5);
        e.dry_range = random_below(r, 2) ? 1 + (int32_t)random_below(r, 80) : 0;
        if (random_below(r, 2)) e.breaker = pick_ids(r, a, vocab, history, length, &e.breaker_count);
    }
    pick_penalties(r, wish, &e);
    pick_filters(r, wish, vocab, &e);
    return e;
}

/* Flags that are younger than tests/vectors, whose lines are made with pick_flags and pick_extra: of a batch, */
static inline uint32_t pick_later_flags(test_random *r) { return random_below(r, 3) ? 0 : RAFFLE_SHAPE_LAST; }

/* and of a row with the features of `wish`. */
static inline uint32_t pick_later_extra(test_random *r, uint32_t wish) {
    static const uint32_t some[] = {0, RAFFLE_SHAPE_LAST, RAFFLE_BAD_WORDS_OUTPUT, RAFFLE_SHAPE_LAST | RAFFLE_BAD_WORDS_OUTPUT};
    return wish & (PICK_FLAGS | PICK_WORDS) ? some[random_below(r, 4)] : 0;
}

/* A history that repeats itself: few tokens, and pieces said again. Returns how many of it are the prompt. */
static inline int64_t pick_history(test_random *r, int64_t vocab, int32_t *token, int64_t length) {
    int64_t few = random_below(r, 3) ? 1 + random_below(r, vocab < 30 ? vocab : 30) : vocab;
    for (int64_t i = 0; i < length; ++i) {
        token[i] = (int32_t)(random_below(r, few) * (vocab / few));
        if (i > 8 && !random_below(r, 12)) { /* again what was said before */
            int64_t from = random_below(r, i), n = 1 + random_below(r, 9);
            for (; n && i < length; --n, ++i, ++from) token[i] = token[from];
            --i;
        }
    }
    return random_below(r, length + 1);
}

/* Whether a row's request looks at its history. */
static inline int extra_looks_back(const raffle_extra *e) {
    return (e->repetition != 0.0f && e->repetition != 1.0f) || e->frequency != 0.0f || e->presence != 0.0f || e->no_repeat_ngram ||
           e->dry_multiplier != 0.0f || e->min_tokens || e->bad_words_count;
}

/* Makes of a slot one whose history is not what its calls asked for. */
static inline void history_lose(const raffle_state *state, int64_t slot) {
    const size_t bytes = raffle_state_bytes(state) / (size_t)state->slots;
    ((uint32_t *)(void *)((char *)state->memory + (size_t)slot * bytes))[3] |= 1u;
}

#endif
