/* exact.h - a row's probabilities in double precision: what the draws are compared with. */
#ifndef EXACT_H
#define EXACT_H

#include "cli.h"

typedef struct ranked {
    int32_t token;
    float logit;        /* NaN counts as -inf */
    double probability; /* exp(logit / temperature), normalised over the row */
} ranked;

/* The row in order of descending logit, ties by ascending id, into `list` [vocab]. Every filter keeps a
 * first part of this order. Temperatures that mean greedy give the law of temperature 1. */
void exact_rank(const void *row, raffle_dtype dtype, int64_t vocab, float temperature, ranked *list);

/* The summed probability of the first `count`. */
double exact_mass(const ranked *list, int64_t count);

#endif
