/* largest.h - a row's tokens from the largest on, with their tickets, out of the oracle; and shares next to each other. */
#ifndef RAFFLE_TESTS_LARGEST_H
#define RAFFLE_TESTS_LARGEST_H

#include "ask.h"

typedef struct token {
    float x;
    uint64_t tickets;
} token;

static inline int larger_first(const void *a, const void *b) {
    const float x = ((const token *)a)->x, y = ((const token *)b)->x;
    return (x < y) - (x > y);
}

/* The row's tokens to list[vocab], NaN as -inf; returns its mass. */
static inline uint64_t tokens_largest(const oracle_case *c, token *list) {
    uint64_t *tickets = test_alloc((size_t)c->vocab * sizeof *tickets);
    float *x = test_alloc((size_t)c->vocab * sizeof *x);
    const uint64_t mass = oracle_sample(c, NULL, tickets).row_mass;
    oracle_logits(c, x);
    for (int64_t i = 0; i < c->vocab; ++i) list[i].x = x[i] == x[i] ? x[i] : -INFINITY, list[i].tickets = tickets[i];
    qsort(list, (size_t)c->vocab, sizeof *list, larger_first);
    free(tickets);
    free(x);
    return mass;
}

/* What the n largest tokens hold, with those equal to the last of them. */
static inline uint64_t tickets_of_largest(const token *list, int64_t tokens, int64_t n) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < tokens && (i < n || list[i].x == list[i - 1].x); ++i) sum += list[i].tickets;
    return sum;
}

static inline float ulps_from(float p, int ulps) {
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    bits += (uint32_t)ulps;
    memcpy(&p, &bits, sizeof p);
    return p;
}

#endif
