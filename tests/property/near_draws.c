/* near_draws.c - draws without filters of rows alone, which an estimate may settle (src/cpu/row_estimate.h), and of the same rows drawn
 * from several times, which are weighed exactly. Among tokens that are thinner than an estimate is off, only the exact mass of all
 * tokens before tells which one it is. */
#include <stdlib.h>

#include "../common/ask.h"

enum { THIN, STAIRS, PEAKED, BROAD, HOLES, DISTANT, KINDS };
static const char *const names[KINDS] = {"thin", "stairs", "peaked", "broad", "holes", "distant"};

/* Thin: heavy tokens of one value, thousands that hold a millionth each, heavy tokens of another value. Estimates of the two values are off
 * by different amounts, so that the thin tokens seem to begin somewhere else than they do. */
static float logit(int kind, int64_t i, int64_t vocab, const float heavy[2], test_random *r) {
    const int64_t from_end = vocab - 1 - i;
    switch (kind) {
    case THIN: return i < 40 ? heavy[0] : from_end < 40 ? heavy[1] : heavy[0] - 9.0f;
    case STAIRS: return -0.001f * (float)(i % 4096) - 0.25f * (float)(i / 4096);
    case BROAD: return 2.2f * random_bell(r);
    case HOLES: return i % 7 == 3 ? NAN : i % 3 ? 3.0f * random_bell(r) : -INFINITY;
    case DISTANT: return 3.0f * random_bell(r) - (i < 4200 ? 60.0f : 0.0f);
    default: return 3.0f * random_bell(r) + (random_below(r, 3000) ? 0.0f : 8.0f);
    }
}

/* By an index a row may be drawn from again, and is weighed. */
static void draws_check(const char *name, raffle_isa isa, oracle_case c, int64_t draws) {
    const int32_t first = 0;
    int32_t token[2];
    uint32_t flags[2];
    runner r = runner_make(c.dtype, c.vocab, isa);
    raffle_params params = ask_params(&c);
    raffle_logits logits = ask_logits(&c);
    raffle_result result = raffle_result_init();
    for (c.position = 0; c.position < (uint64_t)draws; ++c.position) {
        for (int weighed = 0; weighed < 2; ++weighed) {
            logits.row_index = weighed ? &first : NULL;
            result.token = &token[weighed];
            result.row_flags = &flags[weighed];
            CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &result, &r.launch, NULL), RAFFLE_OK);
        }
        CHECK(token[0] == token[1] && flags[0] == flags[1], "%s, %s, draw %d: token %d flags %u, weighed %d %u", name, raffle_isa_name(isa),
              (int)c.position, token[0], flags[0], token[1], flags[1]);
    }
    runner_free(r);
}

static void rows_check(int64_t vocab, int dtype, int masked) {
    test_random r = {(uint64_t)(vocab + dtype)};
    char *row = test_alloc((size_t)vocab * 4);
    uint32_t *allow = test_alloc((size_t)(vocab + 31) / 32 * 4);
    for (int64_t i = 0; i < (vocab + 31) / 32; ++i) allow[i] = ~(1u << random_below(&r, 32));
    for (int kind = 0; kind < KINDS; ++kind)
        for (int turn = 0; turn < (kind == THIN ? 4 : 1); ++turn) {
            const float one = 6.0f * (float)random_unit(&r), heavy[2] = {one, one + (float)random_unit(&r) - 0.5f};
            for (int64_t i = 0; i < vocab; ++i) vector_store(row, dtype, i, float_bits(logit(kind, i, vocab, heavy, &r)));
            oracle_case c = ask_row(row, dtype, vocab);
            c.allow = masked ? allow : NULL;
            c.temperature = kind == THIN ? 1.0f : 0.9f;
            for (int i = 0; i < ISA_COUNT; ++i)
                if (raffle_isa_available(every_isa[i]))
                    draws_check(names[kind], every_isa[i], c, test_amount(every_isa[i] == RAFFLE_ISA_SCALAR ? 60 : 400));
            ask(&c, NULL);
        }
    free(row);
    free(allow);
}

TEST(whole_groups) { rows_check(128 * 256, RAFFLE_F32, 0); }
TEST(groups_and_a_rest) {
    rows_check(70 * 256 + 77, RAFFLE_BF16, 0);
    rows_check(100 * 256 + 1, RAFFLE_F16, 0);
}
TEST(masked) { rows_check(90 * 256 + 100, RAFFLE_F32, 1); }

int main(void) {
    RUN(whole_groups);
    RUN(groups_and_a_rest);
    RUN(masked);
    return test_report("near_draws");
}
