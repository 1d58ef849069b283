/* estimate_lanes.h - the estimates of each instruction set, for estimate.c. */
#ifndef RAFFLE_TESTS_ESTIMATE_LANES_H
#define RAFFLE_TESTS_ESTIMATE_LANES_H

struct estimator;

enum { LANES_TOKENS = 128 }; /* V_CHAINS * V_LANES of the widest */

/* Estimates x[LANES_TOKENS] to y[LANES_TOKENS], V_CHAINS vectors side by side. */
typedef void estimate_lanes(const struct estimator *e, const float *x, float *y);

estimate_lanes estimate_lanes_one, estimate_lanes_avx2, estimate_lanes_avx512, estimate_lanes_neon;

#endif
