/* near_shares.c - top-p where the largest tokens hold just the share that is asked for, or a little more or less: nearer than any
 * estimate of the row's mass is (src/math/estimate.h), so that only the exact mass tells whether one more token stays. Draws are such
 * that it matters. The oracle has the answer. */
#include <stdlib.h>

#include "../common/ask.h"
#include "../common/borders.h"
#include "../common/largest.h"

enum { PEAKED, STEEP, COARSE, HOLES, HALVES, LATE, DISTANT, NEAR_KINDS };
static const char *const near_names[NEAR_KINDS] = {"peaked", "steep", "coarse", "holes", "halves", "late", "distant"};

static float near_logit(int kind, int64_t i, int64_t vocab, test_random *r) {
    const float x = 2.0f * random_bell(r) + (random_below(r, 500) ? 0.0f : 7.0f);
    switch (kind) {
    case STEEP: return -0.05f * (float)(i * 7919 % vocab);
    case COARSE: return floorf(2.0f * x) * 0.5f;
    case HOLES: return i % 7 == 3 ? NAN : i % 3 ? x : -INFINITY;
    case HALVES: return i % 4096 == 99 ? 4.0f : i % 256 == 7 ? 0.0f : -INFINITY; /* at the temperature below, 16 and 1 */
    case LATE: return i < 600 ? -INFINITY : x; /* the first groups say nothing */
    case DISTANT: return i < 600 ? x - 50.0f : x; /* and here they are far below the others */
    default: return x;
    }
}

/* A position whose token hangs on whether the tokens next to a share stay, or 0. */
static uint64_t near_position(const oracle_case *c, float share) {
    oracle_case fewer = *c, more = *c;
    uint64_t position;
    fewer.top_p = ulps_from(share, -100);
    more.top_p = ulps_from(share, 100);
    return borders_edge(&fewer, &more, &position, 1) ? position : 0;
}

/* The shares of the largest tokens down to the n-th and its equals, and others a little beside. */
static void near_share(oracle_case *c, const token *list, int64_t tokens, int64_t n, uint64_t mass, const char *name) {
    static const int beside[] = {0, 40, 1, -90, -1, -20, 3}; /* quick runs have every other */
    const uint64_t sum = tickets_of_largest(list, tokens, n);
    const float share = (float)((double)sum / (double)mass);
    int64_t least = INT64_MAX, most = 0;
    const uint64_t position = share < 0.999f ? near_position(c, share) : 0;
    for (int i = 0; i < (int)(sizeof beside / sizeof *beside); i += getenv("RAFFLE_TEST_QUICK") ? 2 : 1) {
        c->top_p = ulps_from(share, beside[i]);
        if (!(c->top_p < 1.0f)) continue;
        c->position = position + (uint64_t)(i / 4); /* and the next, which may be any */
        const int64_t kept = ask(c, NULL).kept_count;
        if (kept < least) least = kept;
        if (kept > most) most = kept;
    }
    CHECK(share > 0.9999f || sum == mass || (least == 1 && n == 1) || least < most, "%s: %lld tokens: no edge near %a", name,
          (long long)n, (double)share);
}

static void near_rows(int64_t vocab, int dtype, int masked) {
    static const int64_t numbers[] = {1, 9, 150};
    test_random r = {(uint64_t)(vocab + dtype)};
    char *row = test_alloc((size_t)vocab * 4);
    token *list = test_alloc((size_t)vocab * sizeof *list);
    uint32_t *allow = test_alloc((size_t)(vocab + 31) / 32 * 4);
    for (int64_t i = 0; i < (vocab + 31) / 32; ++i) allow[i] = ~(1u << random_below(&r, 32));
    for (int kind = 0; kind < NEAR_KINDS; ++kind) {
        for (int64_t i = 0; i < vocab; ++i) {
            const float logit = near_logit(kind, i, vocab, &r);
            vector_store(row, dtype, i, float_bits(logit));
        }
        oracle_case c = ask_row(row, dtype, vocab);
        c.temperature = kind == HALVES ? 1.44269504f : kind == STEEP ? 1.0f : 0.8f;
        c.allow = masked ? allow : NULL;
        const uint64_t mass = tokens_largest(&c, list);
        for (int n = 0; n < (getenv("RAFFLE_TEST_QUICK") ? 1 : (int)(sizeof numbers / sizeof *numbers)); ++n)
            near_share(&c, list, vocab, numbers[n], mass, near_names[kind]);
    }
    free(row);
    free(list);
    free(allow);
}

TEST(whole_groups) { near_rows(64 * 256, RAFFLE_F32, 0); }
TEST(groups_and_a_rest) {
    near_rows(70 * 256 + 77, RAFFLE_BF16, 0);
    if (!getenv("RAFFLE_TEST_QUICK")) near_rows(67 * 256 + 1, RAFFLE_F16, 0);
}
TEST(masked) {
    near_rows(65 * 256 + 100, RAFFLE_F32, 1);
}

/* Rows of two values, of which the larger one's tokens hold half of all tickets: one half is just reached, the next float is not. */
TEST(just_half) {
    enum { VOCAB = 128 * 256 };
    static float row[VOCAB];
    test_random r = {1};
    for (int64_t i = 0; i < VOCAB; ++i) row[i] = near_logit(HALVES, i, VOCAB, &r);
    oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
    c.temperature = 1.44269504f;
    c.top_p = 0.5f;
    CHECK_EQ(ask_kept(&c), 8);
    c.top_p = ulps_from(0.5f, 1);
    CHECK_EQ(ask_kept(&c), 136);
    c.top_p = ulps_from(0.5f, -1);
    CHECK_EQ(ask_kept(&c), 8);
}

int main(void) {
    RUN(whole_groups);
    RUN(groups_and_a_rest);
    RUN(masked);
    RUN(just_half);
    return test_report("near_shares");
}
