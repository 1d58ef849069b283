/* softmax.h - what the parameters mean, from first principles in long double: sort, cumulate, cut, normalise.
 * It knows nothing of tickets; the oracle and the library must be close to it. */
#ifndef RAFFLE_TESTS_SOFTMAX_H
#define RAFFLE_TESTS_SOFTMAX_H

#include <stdint.h>

#include "oracle.h"

/* Fills probability [vocab] with the law of the token. Tokens that top-p's border leaves to rounding (the mass above
 * them is p to within 1e-6) are counted in *doubtful, which may be NULL. Greedy rows and +inf temperatures included. */
void softmax_law(const oracle_case *given, long double *probability, int64_t *doubtful);

#endif
