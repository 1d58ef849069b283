/* extra_rules.h - what a raffle_extra may hold, rule by rule, in one place: the host makes a sentence of what is wrong, a
 * kernel, which cannot, flags the row. */
#ifndef RAFFLE_CORE_EXTRA_RULES_H
#define RAFFLE_CORE_EXTRA_RULES_H

#include "raffle/raffle.h"

#if defined(__CUDACC__)
#define EXTRA_FN static __device__ __forceinline__
#else
#define EXTRA_FN static inline
#endif

/* Flags that are a row's own. */
enum { EXTRA_FLAGS = RAFFLE_TOP_P_JOINT | RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST | RAFFLE_TOP_K_EXACT |
                     RAFFLE_EMPTY_IS_ZERO | RAFFLE_SHAPE_LAST | RAFFLE_REPETITION_OUTPUT | RAFFLE_COUNT_PROMPT |
                     RAFFLE_BAD_WORDS_OUTPUT };

/* FLOAT(field, least, most, words): 0, or in this range, but never NaN. */
#define EXTRA_FLOATS(FLOAT)                                                                                            \
    FLOAT(repetition, 0x1p-149f, 1e9f, "above 0, up to 1e9")                                                           \
    FLOAT(frequency, -1e9f, 1e9f, "-1e9 to 1e9")                                                                       \
    FLOAT(presence, -1e9f, 1e9f, "-1e9 to 1e9")                                                                        \
    FLOAT(dry_multiplier, 0.0f, 1e9f, "0 to 1e9")                                                                      \
    FLOAT(dry_base, 1.0f, 1e9f, "1 to 1e9")                                                                            \
    FLOAT(top_n_sigma, -__builtin_inff(), __builtin_inff(), "a number")                                                \
    FLOAT(epsilon, -__builtin_inff(), __builtin_inff(), "a number")                                                    \
    FLOAT(eta, -__builtin_inff(), __builtin_inff(), "a number")                                                        \
    FLOAT(typical_p, -__builtin_inff(), __builtin_inff(), "a number")                                                  \
    FLOAT(xtc_probability, -__builtin_inff(), __builtin_inff(), "a number")                                            \
    FLOAT(xtc_threshold, -__builtin_inff(), __builtin_inff(), "a number")

/* Integers that are 0 or more. */
#define EXTRA_WHOLES(WHOLE)                                                                                            \
    WHOLE(penalty_window) WHOLE(no_repeat_ngram) WHOLE(dry_allowed) WHOLE(dry_range) WHOLE(min_tokens) WHOLE(keep_least)

/* LIST(ids, count): ids of tokens, ascending. bad_words has rules of its own. */
#define EXTRA_LISTS(LIST)                                                                                              \
    LIST(bias_id, bias_count) LIST(banned, banned_count) LIST(allowed, allowed_count) LIST(stop, stop_count)           \
    LIST(breaker, breaker_count)

EXTRA_FN int extra_within(float value, float least, float most) { return value == 0.0f || (value >= least && value <= most); }

/* Whether all that is no list is in range. */
EXTRA_FN int extra_numbers_good(const raffle_extra *e) {
    int good = !(e->flags & ~(uint32_t)EXTRA_FLAGS);
#define FLOAT_GOOD(field, least, most, words) good &= extra_within(e->field, least, most);
#define WHOLE_GOOD(field) good &= e->field >= 0;
    EXTRA_FLOATS(FLOAT_GOOD)
    EXTRA_WHOLES(WHOLE_GOOD)
#undef FLOAT_GOOD
#undef WHOLE_GOOD
    return good;
}

/* How many entries a list may have, and whether it is there. */
EXTRA_FN int extra_count_good(const void *list, int32_t count, int64_t most) { return count >= 0 && count <= most && (!count || list); }

EXTRA_FN int extra_id_good(int32_t id, int64_t vocab) { return id >= 0 && id < vocab; }
/* Entry i of an ascending list, after the one before. */
EXTRA_FN int extra_ascends(const int32_t *ids, int32_t i) { return !i || ids[i] > ids[i - 1]; }
EXTRA_FN int extra_bias_good(float bias) { return bias < __builtin_inff(); }

/* Entry i of bad_words: an id or an end; an end has an id before it; the last is an end. */
EXTRA_FN int extra_word_id_good(int32_t id, int64_t vocab) { return id >= -1 && id < vocab; }
EXTRA_FN int extra_word_empty(const int32_t *words, int32_t i) { return words[i] < 0 && (!i || words[i - 1] < 0); }
EXTRA_FN int extra_word_open(const int32_t *words, int32_t i, int32_t count) { return i == count - 1 && words[i] >= 0; }

EXTRA_FN int extra_penalises(const raffle_extra *e) {
    return (e->repetition != 0.0f && e->repetition != 1.0f) || e->frequency != 0.0f || e->presence != 0.0f;
}

/* The first field that needs a history, or NULL. */
EXTRA_FN const char *extra_history_user(const raffle_extra *e) {
    if (e->repetition != 0.0f && e->repetition != 1.0f) return "repetition";
    if (e->frequency != 0.0f) return "frequency";
    if (e->presence != 0.0f) return "presence";
    if (e->no_repeat_ngram) return "no_repeat_ngram";
    if (e->dry_multiplier != 0.0f) return "dry_multiplier";
    if (e->min_tokens) return "min_tokens";
    return e->bad_words_count ? "bad_words" : (const char *)0;
}

#endif
