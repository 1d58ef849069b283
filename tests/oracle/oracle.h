/* oracle.h - docs/determinism.md as a slow program: what raffle_sample must return, bit for bit.
 *
 * Written from that page and not from src/, in another style on purpose (libm, sorting, 128-bit integers), so
 * that a slip on either side shows as a difference. It allocates, it is slow, and it trusts its arguments. */
#ifndef RAFFLE_TESTS_ORACLE_H
#define RAFFLE_TESTS_ORACLE_H

#include <stdint.h>

#include "raffle/raffle.h"

/* One row and everything that decides its token. */
typedef struct oracle_case {
    const void *row; /* [vocab] of dtype, any alignment */
    int32_t dtype;   /* raffle_dtype */
    int64_t vocab;
    const uint32_t *allow; /* [(vocab + 31) / 32] or NULL */
    float temperature, top_p, min_p;
    int32_t top_k;
    uint32_t flags; /* RAFFLE_TOP_P_JOINT ... */
    uint64_t seed, position;
    uint32_t draft_step;  /* n: the n-th draft behind the position; 0: the token at it */
    const uint64_t *bits; /* [2] or NULL: the random bits of the draw in place of those of seed and position. Then nothing is proposed */
    int32_t input; /* raffle_input; RAFFLE_PROBS has no temperature */
    const raffle_extra *extra; /* or NULL */
    const int32_t *history;    /* [history_length] what was said so far, the first prompt_length of it the prompt */
    int64_t history_length, prompt_length;
} oracle_case;

typedef struct oracle_answer {
    int32_t token;
    uint32_t row_flags;
    int32_t greedy;
    int32_t bounded;   /* 1: there is a threshold; the draw may ignore one at -FLT_MAX */
    int32_t whole_row; /* 1: the draw went by groups over the whole row. 0 where it is proposed: then each token has its own tickets */
    int32_t proposals; /* of a row whose token is proposed: how many until one was kept; else 0 */
    float threshold;   /* kept: logits above, and those equal whose id is at most tie_last */
    int32_t tie_last;
    int64_t kept_count;
    uint64_t row_mass;  /* tickets of the row, by groups, at the row's temperature */
    uint64_t draw_mass; /* what was drawn from */
    uint64_t drawn;     /* 0 .. draw_mass-1: the ticket whose holder the token is */
    float best;         /* the largest logit that was weighed for the draw */
} oracle_answer;

/* kept [vocab]: 1 where the token survives every filter; tickets [vocab]: each token's tickets at the row's
 * temperature, before filters. Either may be NULL. */
oracle_answer oracle_sample(const oracle_case *given, uint8_t *kept, uint64_t *tickets);

/* held [vocab]: how many of the numbers 0 .. mass-1 that can be drawn fall on each token: the law of the draw, exactly.
 * Returns the mass, which is the sum of held; 0 for rows that are empty or greedy. */
uint64_t oracle_held(const oracle_case *given, uint64_t *held);

/* The pieces, for tests that look closer. */
float oracle_load(const void *row, int32_t dtype, int64_t token); /* the stored value, NaN included */
double oracle_log(double x);
uint64_t oracle_share(float p, uint64_t mass); /* ceil(p * mass) */
/* The low and the high 64 bits of Philox for a counter (position, stream, step). */
void oracle_random(uint64_t seed, uint64_t position, uint32_t stream, uint32_t step, uint64_t bits[2]);

/* A maximum's reference, and the weight of a logit under it. */
typedef struct oracle_scale {
    int flat;
    float c, c_low, drop;
    int linear; /* values are weights */
} oracle_scale;
typedef enum oracle_kind { ORACLE_PLAIN, ORACLE_TALL, ORACLE_STEP, ORACLE_LINEAR } oracle_kind;
typedef struct oracle_ref {
    oracle_kind kind;
    int64_t exponent;
    float magic, base, low, gain;
} oracle_ref;

oracle_scale oracle_scale_of(float temperature);
oracle_ref oracle_ref_of(oracle_scale scale, float m);
uint64_t oracle_weight(oracle_scale scale, oracle_ref ref, float x);
double oracle_weight_exact(oracle_scale scale, oracle_ref ref, float x); /* before it is rounded to an integer */

/* The processed row: after masks and edits. x [vocab]. */
void oracle_logits(const oracle_case *given, float *x);

/* Section 8: what raffle_softmax writes in f32, as probabilities or as logarithms. value [vocab]. */
void oracle_probabilities(const oracle_case *given, int logarithms, float *value);

#endif
