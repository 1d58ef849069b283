/* cut_types.h - the words that the stages of a row use among each other. */
#ifndef RAFFLE_MATH_CUT_TYPES_H
#define RAFFLE_MATH_CUT_TYPES_H

#include <stdint.h>

#include "rules.h"
#include "weigh.h"

/* Tokens looked at to guess a threshold, and how far off the guess may be: about three times what chance makes of it. */
#if defined(__CUDACC__)
enum { GUESS_TOKENS = 1024 };
#define GUESS_SLACK 0.15
#else
enum { GUESS_TOKENS = 3072 };
#define GUESS_SLACK 0.09
#endif
enum { TOP_P_FIRST = 64 };    /* top-p tries the tokens of this many groups first */

/* How a row is weighed: at its temperature for the draw, perhaps at 1 for the filters. */
typedef struct weighing {
    struct scale scale;
    float best; /* the row's largest logit */
    ref row;    /* its reference */
} weighing;

RAFFLE_FN weighing weighing_make(float temperature, float best) {
    weighing w;
    w.scale = scale_make(temperature);
    w.best = best;
    w.row = ref_make(w.scale, best);
    return w;
}

/* A group under a weighing. Its tokens' tickets are (weight >> right) << left. */
typedef struct group_ref {
    struct ref ref;
    uint32_t below, left, right;
} group_ref;

RAFFLE_FN group_ref group_ref_make(const weighing *w, float peak) {
    group_ref g;
    g.ref = ref_make(w->scale, peak);
    g.below = ref_below(&w->row, w->best, &g.ref, peak);
    g.left = g.below < TICKET_BITS ? TICKET_BITS - g.below : 0;
    g.right = g.below > TICKET_BITS ? g.below - TICKET_BITS : 0;
    return g;
}

/* A token's tickets: tickets_of, for a single weight. */
RAFFLE_FN uint64_t group_tickets(const group_ref *g, uint32_t weight) {
    return g->right < 32 ? (uint64_t)(weight >> g->right) << g->left : 0;
}

/* What is left after the filters: logits above `low`, and those equal to it with an id up to tie_last; of these, if
 * `capped`, logits up to `high`. */
typedef struct cut {
    float low;
    int32_t tie_last;
    int32_t capped;
    float high;
} cut;

RAFFLE_FN cut cut_from(float low) {
    cut c = {low, INT32_MAX, 0, 0.0f};
    return c;
}

/* What an answer says that is kept. */
RAFFLE_FN cut cut_of(const answer *a) {
    cut c = {a->threshold, a->tie_last, a->capped, a->high};
    return c;
}

RAFFLE_FN int cut_keeps_all(cut c) { return !(c.low > -FLT_MAX) && c.tie_last == INT32_MAX && !c.capped; }
RAFFLE_FN int cut_under(cut c, float x) { return !c.capped || x <= c.high; }
RAFFLE_FN int cut_keeps(cut c, float x, int64_t id) {
    return (x > c.low || (x == c.low && id <= c.tie_last)) && cut_under(c, x);
}

/* The same without branches, which near a cut no one can guess. */
RAFFLE_FN int cut_keeps_branchless(cut c, float x, int32_t id) {
    return ((x > c.low) | ((x == c.low) & (id <= c.tie_last))) & (!c.capped | (x <= c.high));
}

/* Tokens with low < logit <= high: in the backend's list if there is room (`complete`), and how many there are,
 * what they weigh and their range in any case; and the amount of all tokens above. */
typedef struct listing {
    float low, high, least, most;
    int complete;
    int64_t room; /* tokens that fit */
    uint64_t count, tickets, above_count, above_tickets;
} listing;

/* Both filters that count ask one question: a token stays while the amount of strictly larger logits is below
 * `target`, the amount being tokens (top-k) or tickets (top-p). */
typedef struct quest {
    uint64_t target;
    int in_tickets;
} quest;

#endif
