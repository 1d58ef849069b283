/* row_types.h - what goes into a row's stages and what comes out. Needs no vec_*.h. */
#ifndef RAFFLE_MATH_ROW_TYPES_H
#define RAFFLE_MATH_ROW_TYPES_H

#include <stdint.h>

/* The flags and results of the public header that the stages know. src/cpu/explain.c asserts that they agree. */
enum { RULE_TOP_P_JOINT = 1, RULE_FILTERS_FIRST = 2, RULE_MIN_P_LAST = 4, RULE_TOP_K_EXACT = 8, RULE_SHAPE_LAST = 32 };
enum { RULE_ROW_NAN = 1, RULE_ROW_INF = 2, RULE_ROW_EMPTY = 4 };
enum { RULE_NO_TOKEN = -1 };

/* In place of a temperature: the row's values are weights themselves, not logits. */
#define LINEAR_TEMPERATURE (-1.0f)
/* Whether rows may have the filters of a raffle_extra. Kernels of calls without one leave them out. */
#if !defined(CUT_MORE) && defined(__CUDACC__)
#define CUT_MORE 0
#elif !defined(CUT_MORE)
#define CUT_MORE 1
#endif

/* Whether a row's random bits may be handed in: for tests of raffle_verify. Kernels of other calls leave that out. */
#if !defined(BITS_GIVEN) && defined(__CUDACC__)
#define BITS_GIVEN 0
#elif !defined(BITS_GIVEN)
#define BITS_GIVEN 1
#endif

/* The filters of a raffle_extra, in its words; all zero: off. */
typedef struct row_filters {
    float top_n_sigma, epsilon, eta, typical_p, xtc_probability, xtc_threshold;
    int32_t keep_least;
} row_filters;
/* Those of a raffle_extra, as an initialiser. */
#define ROW_FILTERS(e)                                                                                                 \
    {(e)->top_n_sigma, (e)->epsilon, (e)->eta, (e)->typical_p, (e)->xtc_probability,                                   \
     (e)->xtc_threshold == 0.0f ? 0.1f : (e)->xtc_threshold, (e)->keep_least}

typedef struct row_params {
    float temperature, top_p, min_p; /* temperature: or LINEAR_TEMPERATURE */
    int32_t top_k;
    uint32_t flags; /* RULE_TOP_P_JOINT ... */
    int64_t vocab;
    uint64_t seed, position;
    uint32_t draft_step; /* 0: the token at position; n: the n-th draft behind it */
#if BITS_GIVEN
    const uint64_t *bits; /* [2] or NULL: what chance says in place of the three */
#endif
#if CUT_MORE
    row_filters more;
#endif
} row_params;

typedef struct answer {
    int32_t token; /* RULE_NO_TOKEN if the row has none */
    uint32_t row_flags;
    int32_t greedy;
    float threshold; /* kept: logits above, and those equal with id <= tie_last */
    int32_t tie_last;
    uint64_t draw_tickets, drawn; /* drawn: the winning ticket; of a row that proposes, which of its token's. 0 where the route did not need them */
    int32_t capped; /* 1: kept are only logits up to high */
    float high;
    int32_t whole; /* 1: the draw was among all tokens that are not -inf */
} answer;

#endif
