/* edit.h - how a request edits a logit: each formula as a fixed sequence of correctly rounded operations. A token
 * that is out (-inf or NaN) stays what it is. And which tokens the history makes it edit. docs/determinism.md, section 1. */
#ifndef RAFFLE_MATH_EDIT_H
#define RAFFLE_MATH_EDIT_H

#include "scalar.h"

enum { DRY_LENGTH_MAX = 64 }; /* longer repetitions count as this long */

typedef struct penalties {
    float repetition, frequency, presence; /* 1, 0, 0: off */
} penalties;

RAFFLE_FN int edit_out(float x) { return !(x > MINUS_INF); }

RAFFLE_FN float edit_bias(float x, float bias) {
    if (edit_out(x)) return x;
    return bias == MINUS_INF ? MINUS_INF : x + bias;
}

/* `seen`: whether repetition counts the token as said; `count`: how often frequency and presence do. */
RAFFLE_FN float edit_penalise(float x, const penalties *p, int seen, uint32_t count) {
    if (edit_out(x)) return x;
    if (seen && p->repetition != 1.0f) x = x > 0.0f ? x / p->repetition : x * p->repetition;
    if (count) {
        if (p->frequency != 0.0f) x = x - (float)count * p->frequency;
        if (p->presence != 0.0f) x = x - p->presence;
    }
    return x;
}

/* What DRY takes off the logit of a token that would make a repetition of `length` tokens one longer. The power is
 * made by squaring, lowest bit of the exponent first, in double. */
RAFFLE_FN float dry_penalty(float multiplier, float base, int32_t length, int32_t allowed) {
    double power = (double)multiplier, square = (double)base;
    for (uint32_t left = (uint32_t)(length - allowed); left; left >>= 1) {
        if (left & 1) power = power * square;
        square = square * square;
    }
    return power < (double)FLT_MAX ? (float)power : FLT_MAX;
}

RAFFLE_FN float edit_dry(float x, float penalty) { return edit_out(x) ? x : x - penalty; }

/* ---- looking back: token[0 .. length-1] is the history --------------------------------------------------- */

/* What the tokens of a history are taken from, by [] and +. A kernel may have them in two pieces, and says so before. */
#ifndef SAID_TOKENS
#define SAID_TOKENS const int32_t *
#endif

/* Where an ascending list has an id; -1: nowhere. */
RAFFLE_FN int32_t ids_find(const int32_t *ids, int32_t count, int32_t id) {
    int32_t low = 0, high = count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (ids[middle] < id) low = middle + 1;
        else high = middle;
    }
    return low < count && ids[low] == id ? low : -1;
}

/* Whether the history ends with `count` tokens. */
RAFFLE_FN int ends_with(SAID_TOKENS token, int32_t length, SAID_TOKENS tokens, int32_t count) {
    int32_t same = 0;
    if (count > length) return 0;
    while (same < count && token[length - 1 - same] == tokens[count - 1 - same]) ++same;
    return same == count;
}

/* Whether a word of bad_words, whose end is words[end] and whose last token words[end - 1], would be said by that token. */
RAFFLE_FN int word_ready(const int32_t *words, int32_t end, SAID_TOKENS token, int32_t length) {
    int32_t first = end - 1;
    while (first > 0 && words[first - 1] >= 0) --first;
    return ends_with(token, length, words + first, end - 1 - first);
}

/* How many tokens up to token[i] are the last ones of the history too, without a breaker among them. token[i] is its last
 * token, and no breaker. */
RAFFLE_FN int32_t dry_length(SAID_TOKENS token, int32_t length, int32_t i, const int32_t *breaker, int32_t breakers) {
    int32_t same = 1;
    for (; same < DRY_LENGTH_MAX && same <= i && token[i - same] == token[length - 1 - same]; ++same)
        if (ids_find(breaker, breakers, token[i - same]) >= 0) break;
    return same;
}

#endif
