/* nucleus.c - top-p alone over rows of which thousands of tokens stay, where estimates decide (src/cpu/row_estimate.h): draws and
 * proposals next to borders between stretches and between tokens, proposals of the tokens at the threshold, many equal logits. Every
 * instruction set against the oracle, and against itself where it weighs the row, as it does if it may draw from it again. */
#include <stdlib.h>

#include "../common/ask.h"
#include "../common/borders.h"
#include "../common/largest.h"

enum { BELL, STEPS, SLOPED, PEAKS, LATE_PEAK, HOLES, BROAD, SHAPES };

static float logit(int shape, int64_t i, int64_t vocab, test_random *r) {
    const float x = random_bell(r);
    switch (shape) {
    case STEPS: return floorf(64.0f * x) * 0x1p-6f;
    case SLOPED: return x + 3.0f * (float)i / (float)vocab;
    case PEAKS: return x + (random_below(r, 2000) ? 0.0f : 4.0f);
    case BROAD: return 2.0f * x + (random_below(r, 2000) ? 0.0f : 6.0f); /* few hold much, thousands the rest */
    case LATE_PEAK: return i == vocab - 3000 ? 12.0f : x;
    case HOLES: return i % 3 ? x : i % 2 ? -INFINITY : NAN;
    default: return x;
    }
}

/* ---- proposals --------------------------------------------------------------------------------------------- */

/* Proposal j, and how far it is from a border between stretches, or `tokens`. */
static int64_t proposal(const borders *b, uint64_t seed, uint64_t position, uint32_t j, int tokens, uint64_t *distance) {
    uint64_t within;
    int64_t token;
    *distance = borders_distance(b, j ? 5 + 256 * j : 0, seed, position, &within, &token);
    if (tokens) *distance = within;
    return token;
}

/* The first that stays; of a row that is not proposed, what is drawn. */
static int64_t token_of(const borders *b, uint64_t seed, uint64_t position) {
    uint64_t ignored;
    int64_t token = proposal(b, seed, position, 0, 0, &ignored);
    for (uint32_t j = 1; b->proposed && !b->kept[token]; ++j) token = proposal(b, seed, position, j, 0, &ignored);
    return token;
}

/* Of positions whose first proposal is cut, the one whose second is nearest to a border. */
static uint64_t nearest_second(const borders *b, uint64_t seed, int tokens, uint64_t tried) {
    uint64_t best = 0, least = UINT64_MAX, distance;
    for (uint64_t position = 0; position < tried; ++position) {
        if (b->kept[proposal(b, seed, position, 0, tokens, &distance)]) continue;
        proposal(b, seed, position, 1, tokens, &distance);
        if (distance < least) least = distance, best = position;
    }
    return best;
}

static void rows_check(int64_t vocab, int dtype, int masked) {
    enum { COUNT = 4 };
    static const float shares[] = {0.9f, 0.5f, 0.99f, 0.05f, 0.9999f, 0.001f};
    test_random r = {(uint64_t)(vocab + dtype)};
    char *row = test_alloc((size_t)vocab * 4);
    uint32_t *allow = test_alloc((size_t)(vocab + 31) / 32 * 4);
    for (int64_t i = 0; i < (vocab + 31) / 32; ++i) allow[i] = ~(1u << random_below(&r, 32));
    for (int shape = 0; shape < SHAPES; ++shape) {
        for (int64_t i = 0; i < vocab; ++i) vector_store(row, dtype, i, float_bits(logit(shape, i, vocab, &r)));
        for (int n = 0; n < (getenv("RAFFLE_TEST_QUICK") ? 1 : (int)(sizeof shares / sizeof *shares)); ++n) {
            uint64_t position[COUNT];
            oracle_case c = ask_row(row, dtype, vocab);
            c.temperature = 0.8f;
            c.top_p = shares[n];
            c.seed = (uint64_t)(shape + n);
            c.allow = masked ? allow : NULL;
            const borders b = borders_make(&c);
            for (int tokens = 0; tokens < 2; ++tokens) {
                borders_find(&c, 0, tokens, 0, 200000, position, COUNT);
                if (b.proposed) position[COUNT - 1] = nearest_second(&b, c.seed, tokens, 100000);
                for (int i = 0; i < COUNT; ++i) {
                    c.position = position[i];
                    CHECK_EQ(ask(&c, NULL).token, token_of(&b, c.seed, c.position));
                }
            }
            borders_free(b);
        }
    }
    free(row);
    free(allow);
}

/* ---- rows of which all estimates are off by as much as they can be ------------------------------------------ */

/* Logits of a row of two values at a temperature at which one more is twice the weight, each token a little beside. Their parts behind
 * the point are those where the estimates' polynomials are farthest off: too much at one value, too little at the other, on every
 * instruction set (dev/cpu). */
static const float skewed_high[2] = {0.865f, 0.59f}, skewed_low[2] = {0.59f, 0.365f};
enum { HALVED, THROUGHOUT, SCATTERED, LAYOUTS };

static void skewed_row(float *row, int64_t vocab, int layout, int pair, test_random *r) {
    for (int64_t i = 0; i < vocab; ++i) {
        const int high = layout == HALVED ? i < vocab / 2 : layout == THROUGHOUT ? i / 256 % 2 : random_below(r, 2);
        row[i] = (high ? skewed_high : skewed_low)[pair] + 0.04f * ((float)random_unit(r) - 0.5f);
    }
}

/* What share of the row its `part` largest tokens hold. */
static float share_held(const oracle_case *c, double part) {
    token *list = test_alloc((size_t)c->vocab * sizeof *list);
    const uint64_t mass = tokens_largest(c, list), sum = tickets_of_largest(list, c->vocab, (int64_t)(part * (double)c->vocab));
    free(list);
    return (float)((double)sum / (double)mass);
}

/* Draws as they may be estimated; and twice by an index, of which the second is by weights and the threshold. */
static void draws_compare(oracle_case c, const uint64_t *position, int count, const char *name) {
    static const int32_t first[2] = {0, 0};
    const borders b = borders_make(&c);
    const size_t words = (size_t)(c.vocab + 31) / 32;
    uint32_t *const allow = test_alloc(2 * words * sizeof *allow); /* of both results */
    for (size_t i = 0; c.allow && i < 2 * words; ++i) allow[i] = c.allow[i % words];
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        runner r = runner_make(c.dtype, c.vocab, every_isa[i]);
        raffle_params params = ask_params(&c);
        raffle_logits logits = ask_logits(&c);
        params.slot = first;
        params.slots = 1;
        params.allow = c.allow ? allow : NULL;
        for (int n = 0; n < count; ++n) {
            int32_t drawn[3];
            uint32_t flags[3];
            c.position = position[n];
            for (int weighed = 0; weighed < 2; ++weighed) {
                raffle_result result = raffle_result_init();
                result.token = &drawn[weighed];
                result.row_flags = &flags[weighed];
                logits.rows = 1 + weighed;
                logits.data_rows = weighed;
                logits.row_index = weighed ? first : NULL;
                CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &result, &r.launch, NULL), RAFFLE_OK);
            }
            const int wanted = (int)token_of(&b, c.seed, c.position);
            CHECK(drawn[0] == wanted && drawn[1] == wanted && drawn[2] == wanted && flags[0] == flags[1] && flags[1] == flags[2],
                  "%s, %s, p %a, position %d: token %d flags %u, by index %d %u, weighed %d %u, not %d", name, raffle_isa_name(every_isa[i]),
                  (double)c.top_p, (int)c.position, drawn[0], flags[0], drawn[1], flags[1], drawn[2], flags[2], wanted);
        }
        runner_free(r);
    }
    borders_free(b);
    free(allow);
}

/* Positions that hang on whether one token more stays, by a share a little below and above. */
static int positions_of_edge(const oracle_case *given, float share, uint64_t *position, int count) {
    oracle_case fewer = *given, more = *given;
    fewer.top_p = ulps_from(share, -60);
    more.top_p = ulps_from(share, 60);
    return borders_edge(&fewer, &more, position, count);
}

/* Positions of an edge: fewer in quick runs, as proposals of one token are rare. */
enum { EDGES = 24, EDGES_QUICK = 8 };
static int edges_wanted(void) { return getenv("RAFFLE_TEST_QUICK") ? EDGES_QUICK : EDGES; }

static void shares_check(oracle_case c, double part, const char *name) {
    static const int beside[] = {0, 2, -2, 5, -5, 9, -9, 15, -15, 1, -1, 3, -3, 30, -30};
    uint64_t position[EDGES];
    const float share = share_held(&c, part);
    const int found = positions_of_edge(&c, share, position, edges_wanted());
    CHECK(found >= (edges_wanted() == EDGES ? EDGES / 3 : EDGES_QUICK / 2), "%s: %d positions of the edge of %a", name, found, (double)share);
    for (int i = 0; i < (getenv("RAFFLE_TEST_QUICK") ? 5 : (int)(sizeof beside / sizeof *beside)); ++i) {
        c.top_p = ulps_from(share, beside[i]);
        draws_compare(c, position, found, name);
        c.position = position[0];
        if (i < 3) ask(&c, NULL);
    }
}

static void skewed_rows(int64_t vocab, int layout, const char *name) {
    enum { COUNT = 40 };
    float *row = test_alloc((size_t)vocab * sizeof *row);
    test_random r = {(uint64_t)(vocab + layout)};
    for (int pair = 0; pair < 2; ++pair) {
        uint64_t position[COUNT];
        skewed_row(row, vocab, layout, pair, &r);
        oracle_case c = ask_row(row, RAFFLE_F32, vocab);
        c.temperature = 1.44269504f;
        c.seed = (uint64_t)pair;
        c.top_p = share_held(&c, 0.8);
        const double farthest = borders_find(&c, 0, 0, 0, (uint64_t)test_amount(2000000), position, COUNT);
        const double near = getenv("RAFFLE_TEST_QUICK") ? 2e-5 : 3e-6;
        CHECK(farthest < near, "%s: the %d-th nearest draw is %g of the mass away", name, COUNT, farthest);
        draws_compare(c, position, COUNT, name);
        for (int i = 0; i < 3; ++i) c.position = position[i], ask(&c, NULL);
        shares_check(c, 0.8, name);
        if (!getenv("RAFFLE_TEST_QUICK")) shares_check(c, 0.68, name);
    }
    free(row);
}

TEST(draws_and_shares_of_halves) { skewed_rows(32 * 2048, HALVED, "halves"); }
TEST(draws_and_shares_of_turns) { skewed_rows(24 * 2048 + 300, THROUGHOUT, "turns"); }
TEST(draws_and_shares_of_scattered) { skewed_rows(20 * 2048 + 77, SCATTERED, "scattered"); }

/* The same of other rows, in all dtypes, which have many equal logits; with a mask and NaN, too. */
static void shares_of_rows(int64_t vocab, int dtype, int masked) {
    static const double parts[] = {0.5, 0.1, 0.8};
    test_random r = {(uint64_t)(vocab + dtype)};
    char *row = test_alloc((size_t)vocab * 4);
    uint32_t *allow = test_alloc((size_t)(vocab + 31) / 32 * 4);
    for (int64_t i = 0; i < (vocab + 31) / 32; ++i) allow[i] = ~(1u << random_below(&r, 32));
    for (int shape = 0; shape < SHAPES; ++shape) {
        for (int64_t i = 0; i < vocab; ++i) vector_store(row, dtype, i, float_bits(logit(shape, i, vocab, &r)));
        oracle_case c = ask_row(row, dtype, vocab);
        c.temperature = 0.8f;
        c.allow = masked ? allow : NULL;
        int edges = 0;
        for (int n = 0; n < (getenv("RAFFLE_TEST_QUICK") ? 1 : 3); ++n) {
            uint64_t position[EDGES];
            c.seed = (uint64_t)(shape + n);
            const float share = share_held(&c, (shape == HOLES ? 0.6 : 1.0) * parts[n]);
            const int found = positions_of_edge(&c, share, position, edges_wanted());
            for (int beside = -4; beside <= 4; beside += 2) {
                c.top_p = ulps_from(share, beside);
                draws_compare(c, position, found, "rows");
            }
            edges += found > 0;
        }
        CHECK(edges > 0, "shape %d: no share is an edge", shape);
    }
    free(row);
    free(allow);
}

TEST(shares_of_f32) { shares_of_rows(64 * 256, RAFFLE_F32, 0); }
TEST(shares_of_bf16) { shares_of_rows(100 * 256 + 3, RAFFLE_BF16, 0); }
TEST(shares_of_f16) { shares_of_rows(71 * 256 + 255, RAFFLE_F16, 0); }
TEST(shares_of_masked) { shares_of_rows(130 * 256, RAFFLE_F32, 1); }

/* Heavy tokens that a flat beginning does not promise: what was tried is given up on the way, and none of its sums may be left. */
TEST(peaks_behind_a_flat_start) {
    enum { VOCAB = 400 * 256, COUNT = 16 };
    static const float shares[] = {0.16f, 0.18f, 0.2f, 0.21f, 0.22f, 0.24f, 0.25f, 0.6f, 0.9f};
    float *row = test_alloc(VOCAB * sizeof *row);
    uint64_t position[COUNT];
    test_random r = {3};
    for (int64_t i = 0; i < VOCAB; ++i)
        row[i] = i >= VOCAB - 3000 && i % 600 == 0 ? 7.7f + 2e-5f * (float)(i - VOCAB + 3000) : random_bell(&r);
    oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
    c.temperature = 0.8f;
    for (uint64_t n = 0; n < COUNT; ++n) position[n] = n;
    for (int n = 0; n < 9; ++n) {
        c.top_p = shares[n];
        draws_compare(c, position, COUNT, "peaks");
    }
    free(row);
}

TEST(whole_groups) { rows_check(96 * 256, RAFFLE_F32, 0); }
TEST(groups_and_a_rest) {
    rows_check(70 * 256 + 77, RAFFLE_BF16, 0);
    if (!getenv("RAFFLE_TEST_QUICK")) rows_check(101 * 256 + 1, RAFFLE_F16, 0);
}
TEST(masked) { rows_check(90 * 256 + 100, RAFFLE_F32, 1); }

int main(void) {
    RUN(peaks_behind_a_flat_start);
    RUN(whole_groups);
    RUN(groups_and_a_rest);
    RUN(masked);
    RUN(draws_and_shares_of_halves);
    RUN(draws_and_shares_of_turns);
    RUN(draws_and_shares_of_scattered);
    RUN(shares_of_f32);
    RUN(shares_of_bf16);
    RUN(shares_of_f16);
    RUN(shares_of_masked);
    return test_report("nucleus");
}
