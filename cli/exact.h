/* exact.h - a row's probabilities in double precision: what the draws are compared with. */
#ifndef EXACT_H
#define EXACT_H

#include "cli.h"

typedef struct ranked {
    int32_t token;
    float logit;        /* NaN counts as -inf */
    double probability; /* exp(logit / temperature), normalised over the row */
} ranked;

/* The probabilities of a list in order of descending logit. Temperatures that mean greedy give the law of
 * temperature 1. EXACT_WEIGHTS: the logits are probabilities, or any weights, and -inf where they are 0. */
#define EXACT_WEIGHTS (-1.0f)
void exact_law(ranked *list, int64_t count, float temperature);

/* The row in order of descending logit, ties by ascending id, into `list` [vocab], with its probabilities. Every filter
 * that looks at logits alone keeps a first part of this order. */
void exact_rank(const void *row, raffle_dtype dtype, int64_t vocab, float temperature, ranked *list);

/* The summed probability of the first `count`. */
double exact_mass(const ranked *list, int64_t count);

#endif
