/* verify_oracle.h - section 11 of docs/determinism.md as a slow program: what raffle_verify must return for one request. */
#ifndef RAFFLE_TESTS_VERIFY_ORACLE_H
#define RAFFLE_TESTS_VERIFY_ORACLE_H

#include "oracle.h"

enum { VERIFY_DRAFTS_MAX = 128 };

/* One request. */
typedef struct verify_case {
    int32_t method, count;
    const oracle_case *target;         /* [count + 1] at the position of the first row, with the history before it */
    const int32_t *token, *parent;     /* [count]; parent NULL: a chain */
    const oracle_case *draft;          /* [count] or NULL, with the history before the first */
    const float *const *probabilities; /* [count] rows [vocab], or NULL */
    float threshold_single, threshold_sum, rate;
    const uint64_t *accept_bits, *recover_bits, *draw_bits; /* [count + 1], [2], [count + 1, 2], or NULL */
} verify_case;

typedef struct verify_answer {
    int32_t accepted, last;
    int32_t token[VERIFY_DRAFTS_MAX + 1], path[VERIFY_DRAFTS_MAX + 1];
    uint32_t row_flags[VERIFY_DRAFTS_MAX + 1];
} verify_answer;

verify_answer oracle_verify(const verify_case *given);

/* The case whose history goes on with draft `node` and those it follows; parent NULL: with drafts 0 to node. Their number is
 * added to *depth. `said` has room for all. */
oracle_case oracle_behind(oracle_case c, const int32_t *token, const int32_t *parent, int32_t node, int32_t *said, int32_t *depth);

#endif
