/* weight_rows.h - rows of probabilities and other weights, good and bad ones. */
#ifndef RAFFLE_TESTS_WEIGHT_ROWS_H
#define RAFFLE_TESTS_WEIGHT_ROWS_H

#include <math.h>
#include <string.h>

#include "../vectors/vector_rows.h"

static const char *const weight_kinds[] = {"uniform", "normalised", "few", "wide", "tiny", "huge", "powers", "ties",
                                           "zeros",   "negative",   "nan", "inf",  "one",  "subnormal",
                                           "minus zeros", "few, minus zeros"};
enum { WEIGHT_KINDS = sizeof weight_kinds / sizeof *weight_kinds };

/* Token i of such a row. */
static inline float weight_at(const char *kind, uint64_t seed, int64_t vocab, int64_t i) {
    uint64_t h = vector_hash(seed, (uint64_t)i);
    float u = vector_scaled((int64_t)(h & 0xffffff), -24);
    int rare = (h >> 40) % 50 == 0;
    if (!strcmp(kind, "normalised")) return u * 2 / (float)vocab;
    if (!strcmp(kind, "few")) return rare ? u : 0.0f;
    if (!strcmp(kind, "wide")) return ldexpf(1 + u, -(int)(h >> 32 & 63));
    if (!strcmp(kind, "tiny")) return ldexpf(1 + u, -100 - (int)(h >> 32 & 31));
    if (!strcmp(kind, "huge")) return ldexpf(1 + u, 127 - (int)(h >> 32 & 31));
    if (!strcmp(kind, "powers")) return ldexpf(1, -(int)(h >> 32) % 40);
    if (!strcmp(kind, "ties")) return (float)(h >> 32 & 3) * 0.25f;
    if (!strcmp(kind, "zeros")) return h >> 63 ? -0.0f : 0.0f;
    if (!strcmp(kind, "minus zeros")) return rare ? -0.0f : u; /* what a small negative number becomes in f16 */
    if (!strcmp(kind, "few, minus zeros")) return rare ? u : h >> 63 ? -0.0f : 0.0f;
    if (!strcmp(kind, "negative")) return rare ? -u : u;
    if (!strcmp(kind, "nan")) return rare ? NAN : u;
    if (!strcmp(kind, "inf")) return rare ? INFINITY : u;
    if (!strcmp(kind, "one")) return i == (int64_t)(seed % (uint64_t)vocab) ? 1.0f : 0.0f;
    if (!strcmp(kind, "subnormal")) return ldexpf((float)(h >> 32 & 1023), -149);
    return u;
}

#endif
