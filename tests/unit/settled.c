/* settled.c - estimates do settle the draws that they are made for. Tokens are the same where they do not, and the row is
 * weighed, so that but for this only a benchmark would tell. An answer that they settled knows no mass. */
#include "../common/batch.h"

#include "detect.h"

enum { ROWS = 40, FLAT, PEAKED, BROAD }; /* BROAD: few tokens hold much, thousands the rest */

/* How many draws of ROWS rows of one kind are settled. `nan`: the second half has NaN. */
static int settled(const cpu_table *table, int64_t vocab, int dtype, int kind, int nan, float top_p) {
    cpu_scratch s;
    void *memory = test_alloc(scratch_carve(&s, vocab, NULL));
    char *logits = test_alloc((size_t)vocab * 4);
    scratch_carve(&s, vocab, memory);
    test_random r = {(uint64_t)(vocab + dtype + kind)};
    int found = 0;
    for (int n = 0; n < ROWS; ++n) {
        for (int64_t i = 0; i < vocab; ++i) {
            const float wide = kind == FLAT ? 1.0f : kind == BROAD ? 2.0f : 2.5f, peak = random_below(&r, 2000) ? 0.0f : kind == BROAD ? 6.0f : 10.0f;
            const float x = wide * random_bell(&r) + (kind == FLAT ? 0.0f : peak);
            const int64_t hole = i % 1000;
            vector_store(logits, dtype, i, hole == 0 && nan && 2 * i > vocab ? 0x7fc00000u : hole == 1 ? 0xff800000u : float_bits(x));
        }
        cpu_row row = {.logits = logits, .only_token = 1};
        row.params = (row_params){.vocab = vocab, .temperature = 0.8f, .top_p = top_p, .seed = 5, .position = (uint64_t)n};
        const answer a = table->sample[dtype](&row, &s);
        CHECK(a.token >= 0 && a.token < vocab && !(a.row_flags & RULE_ROW_NAN) == !nan, "token %d, flags %u", a.token, a.row_flags);
        found += !a.draw_tickets;
    }
    free(memory);
    free(logits);
    return found;
}

/* At least `least` of the rows, by every instruction set; with NaN, by all but AVX-512: there they make the estimate NaN, and the row is
 * weighed. */
static void check(int kind, int nan, float top_p, int least) {
    static const int64_t vocabs[] = {32000, 40001};
    for (int i = 0; i < ISA_COUNT; ++i) {
        const cpu_table *table = raffle_table_of(every_isa[i]);
        for (int n = 0; table && n < 2 * 3; ++n) {
            const int64_t vocab = vocabs[n % 2];
            const int dtype = n / 2, found = settled(table, vocab, dtype, kind, nan, top_p);
            CHECK(nan && every_isa[i] == RAFFLE_ISA_AVX512 ? found == 0 : found >= least, "%s, %lld tokens, dtype %d: %d of %d draws settled", raffle_isa_name(every_isa[i]), (long long)vocab,
                  dtype, found, ROWS);
        }
    }
}

TEST(peaked_rows) { check(PEAKED, 0, 1.0f, ROWS - 2); }
TEST(flat_rows) { check(FLAT, 0, 1.0f, ROWS - 2); }
TEST(peaked_top_p) { check(PEAKED, 0, 0.9f, ROWS - 2); }
TEST(flat_top_p) { check(FLAT, 0, 0.9f, ROWS - 2); }
TEST(flat_top_p_with_nan) { check(FLAT, 1, 0.9f, ROWS - 2); }
TEST(broad_top_p) { check(BROAD, 0, 0.97f, ROWS - 2); }

int main(void) {
    RUN(peaked_rows);
    RUN(flat_rows);
    RUN(peaked_top_p);
    RUN(flat_top_p);
    RUN(flat_top_p_with_nan);
    RUN(broad_top_p);
    return test_report("settled");
}
