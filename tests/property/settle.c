/* settle.c - draws from whole rows whose mass is estimated (src/cpu/row_estimate.h), where the estimates do not settle them: next to the
 * borders between stretches. Every instruction set against the oracle. */
#include "../common/ask.h"
#include "../common/borders.h"
#include "../vectors/vector_rows.h"

static void near_borders(const char *kind, int64_t vocab, int dtype, float temperature, uint64_t seed) {
    enum { COUNT = 8 };
    const uint64_t tried = 2000000;
    uint64_t position[COUNT];
    void *row = test_alloc((size_t)vocab * 4);
    vector_row_make(kind, seed, vocab, dtype, row);
    oracle_case c = ask_row(row, dtype, vocab);
    c.temperature = temperature;
    c.seed = seed;
    const double farthest = borders_find(&c, 0, 0, 0, tried, position, COUNT);
    CHECK(farthest < 8e-7, "%s: the %d-th nearest of %d draws is %g of the mass away", kind, COUNT, (int)tried, farthest);
    for (int i = 0; i < COUNT; ++i) {
        c.position = position[i];
        ask(&c, NULL);
    }
    free(row);
}

TEST(normal_rows) {
    for (uint64_t i = 0; i < (uint64_t)test_amount(4); ++i)
        near_borders("normal", i % 2 ? 32000 : 16639, (int)(i % 3), 0.5f + 0.2f * (float)i, i);
}

TEST(flat_rows) {
    for (uint64_t i = 0; i < (uint64_t)test_amount(4); ++i)
        near_borders(i % 4 ? "flat" : "constant", i % 2 ? 32000 : 49152, (int)(i % 3), 0.25f * (float)(1 + i), i);
}

TEST(ascending_rows) {
    for (uint64_t i = 0; i < (uint64_t)test_amount(2); ++i)
        near_borders(i % 2 ? "ascending" : "ties", 32000, (int)(i % 3), 1.0f + (float)i, i);
}

int main(void) {
    RUN(normal_rows);
    RUN(flat_rows);
    RUN(ascending_rows);
    return test_report("settle");
}
