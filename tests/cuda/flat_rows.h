/* flat_rows.h - rows of which filters leave many tokens. */
#ifndef RAFFLE_TESTS_FLAT_ROWS_H
#define RAFFLE_TESTS_FLAT_ROWS_H

#include <math.h>

#include "match.h"

enum { BELL, NARROW, EVEN, SLOPED, STAIRS, COARSE, HOLES, EMPTY_GROUPS, NEARLY_ALL, PEAKS, HALF_FLAT, BROAD, DEEP, FLAT_KINDS };
static const char *const flat_names[FLAT_KINDS] = {"bell",  "narrow bell",  "even",         "sloped", "stairs",   "coarse",
                                                   "holes", "empty groups", "nearly equal", "peaks",  "half flat", "broad", "deep"};

/* About a bell of standard deviation 1. */
static inline float flat_bell(uint64_t *state) {
    float sum = 0.0f;
    for (int i = 0; i < 6; ++i) {
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 1.41421356f;
}

static inline float flat_logit(int kind, int64_t i, int64_t vocab, uint64_t *state) {
    const float x = flat_bell(state);
    const int64_t g = i / 256, groups = vocab / 256 + 1;
    switch (kind) {
    case NARROW: return 0.3f * x;
    case EVEN: return (float)(i * 7919 % 4099) * 0x1p-10f; /* 0 to 4 */
    case SLOPED: return x + 6.0f * (float)g / (float)groups; /* parts have other exponents, */
    case STAIRS: return x - 1.5f * (float)(g % 9);           /* and some groups are so low that tickets are cut */
    case COARSE: return floorf(4.0f * x) * 0.25f;
    case HOLES: return i % 2 ? -INFINITY : x;
    case EMPTY_GROUPS: return g % 5 == 3 ? -INFINITY : x;
    case NEARLY_ALL: return i % 1000 ? 1.0f : 1.0f + 0.25f * x;
    case PEAKS: return i % 997 ? x : x + 4.0f;
    case HALF_FLAT: return i < vocab / 2 ? x : 3.0f * x - 4.0f;
    case BROAD: return i * 20 / vocab != (i + 1) * 20 / vocab ? 2.5f * x + 10.0f : 2.5f * x; /* 20 peaks, and as much below them */
    case DEEP: return g % 3 ? x - 300.0f : x; /* two of three groups have no tickets, but tokens that top-k counts */
    default: return x;
    }
}

static inline void flat_fill_some(void *given, int member, int members) {
    match *m = (match *)given;
    for (int64_t row = member; row < m->rows; row += members) {
        uint64_t state = m->row_seed[row];
        const int kind = (int)(state % FLAT_KINDS);
        for (int64_t i = 0; i < m->vocab; ++i)
            vector_store(match_row(m, row), m->dtype, i, float_bits(flat_logit(kind, i, m->vocab, &state)));
    }
}

/* Makes the batch's rows: of one kind after the other, from the `first` on. */
static inline void flat_rows(match *m, int64_t first) {
    for (int64_t i = 0; i < m->rows; ++i) {
        m->row_seed[i] = (uint64_t)(FLAT_KINDS * (977 * i + 1) + (first + i) % FLAT_KINDS);
        m->kind[i] = flat_names[m->row_seed[i] % FLAT_KINDS];
    }
    crew_run(flat_fill_some, m);
}

#endif
