/* nucleus.c - top-p alone over rows of which thousands of tokens stay, where estimates decide (src/cpu/row_nucleus.h):
 * draws next to borders between stretches and between tokens, thresholds next to a token, many equal logits. Every
 * instruction set against the oracle. */
#include <stdlib.h>

#include "../common/ask.h"
#include "../common/borders.h"

enum { BELL, STEPS, SLOPED, PEAKS, LATE_PEAK, HOLES, SHAPES };

static float logit(int shape, int64_t i, int64_t vocab, test_random *r) {
    const float x = random_bell(r);
    switch (shape) {
    case STEPS: return floorf(64.0f * x) * 0x1p-6f;
    case SLOPED: return x + 3.0f * (float)i / (float)vocab;
    case PEAKS: return x + (random_below(r, 2000) ? 0.0f : 4.0f);
    case LATE_PEAK: return i == vocab - 3000 ? 12.0f : x;
    case HOLES: return i % 3 ? x : i % 2 ? -INFINITY : NAN;
    default: return x;
    }
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
            for (int tokens = 0; tokens < 2; ++tokens) {
                borders_find(&c, 0, tokens, 0, 200000, position, COUNT);
                for (int i = 0; i < COUNT; ++i) c.position = position[i], ask(&c, NULL);
            }
        }
    }
    free(row);
    free(allow);
}

TEST(whole_groups) { rows_check(96 * 256, RAFFLE_F32, 0); }
TEST(groups_and_a_rest) {
    rows_check(70 * 256 + 77, RAFFLE_BF16, 0);
    if (!getenv("RAFFLE_TEST_QUICK")) rows_check(101 * 256 + 1, RAFFLE_F16, 0);
}
TEST(masked) { rows_check(90 * 256 + 100, RAFFLE_F32, 1); }

int main(void) {
    RUN(whole_groups);
    RUN(groups_and_a_rest);
    RUN(masked);
    return test_report("nucleus");
}
