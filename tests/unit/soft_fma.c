/* soft_fma.c - the fma for machines without the instruction equals libm's, on random and awkward operands. */
#define RAFFLE_SOFT_FMA
#include <math.h>

#include "../common/test.h"
#include "scalar.h"

static int same(float a, float b) { return float_bits(a) == float_bits(b) || (a != a && b != b); }

static void check(float a, float b, float c) {
    float got = one_fma(a, b, c), wanted = fmaf(a, b, c);
    CHECK(same(got, wanted), "fma(%a, %a, %a) = %a, wanted %a", (double)a, (double)b, (double)c, (double)got,
          (double)wanted);
}

static float any_float(test_random *r) { return bits_float((uint32_t)random_bits(r)); }

/* Exponents near each other, so that the sum is not just one of its parts. */
static float near_one(test_random *r, int spread) {
    uint32_t exponent = (uint32_t)(127 - spread + random_below(r, 2 * spread + 1));
    return bits_float((uint32_t)(random_bits(r) & 0x807fffffu) | exponent << 23);
}

TEST(any_operands) {
    test_random r = {1};
    int64_t amount = test_amount(6000000);
    for (int i = 0; i < amount; ++i) check(any_float(&r), any_float(&r), any_float(&r));
}

TEST(operands_of_like_size) {
    test_random r = {2};
    int64_t amount = test_amount(6000000);
    for (int i = 0; i < amount; ++i) check(near_one(&r, 3), near_one(&r, 3), near_one(&r, 30));
}

/* c = -(a * b) rounded, and its neighbours: all but the last bits cancel. */
TEST(cancellation) {
    test_random r = {3};
    int64_t amount = test_amount(2000000);
    for (int i = 0; i < amount; ++i) {
        float a = near_one(&r, 20), b = near_one(&r, 20), c = -(a * b);
        check(a, b, c);
        check(a, b, bits_float(float_bits(c) + 1));
        check(a, b, bits_float(float_bits(c) - 1));
    }
}

/* The exact sum a hair from the middle of two floats: rounding twice would go wrong here. */
TEST(near_midpoints) {
    test_random r = {4};
    int64_t amount = test_amount(2000000);
    for (int i = 0; i < amount; ++i) {
        float a = bits_float(0x3f800000u | 1u << random_below(&r, 12)),
              b = bits_float(0x3f800000u | 1u << random_below(&r, 12));
        int shift = (int)random_below(&r, 60) - 30;
        check(a, b, ldexpf(near_one(&r, 0), shift));
        check(ldexpf(a, shift), -b, bits_float((uint32_t)(random_bits(&r) & 0x80000001u) | 0x4b000000u));
        check(0x1p-13f * a, 0x1p-12f,
              bits_float(0x3f800000u | (uint32_t)(random_bits(&r) & 3))); /* half a unit and a hair */
        check(0x1p-12f, -0x1p-13f, near_one(&r, 1));
        /* (1 + h)(1 - h) = 1 - h^2: the sum is closer to a midpoint than a double can tell. */
        float h = ldexpf(1.0f, -12 - (int)random_below(&r, 12)), sign = random_below(&r, 2) ? 0x1p-24f : -0x1p-24f;
        check(sign * (1.0f + h), 1.0f - h, near_one(&r, 0));
    }
}

TEST(subnormal_results) {
    test_random r = {5};
    int64_t amount = test_amount(2000000);
    for (int i = 0; i < amount; ++i) {
        float a = near_one(&r, 5) * 0x1p-70f, b = near_one(&r, 5) * 0x1p-70f;
        check(a, b, bits_float((uint32_t)random_bits(&r) & 0x80ffffffu));
        check(a, b * 0x1p60f, near_one(&r, 5) * 0x1p-120f);
    }
}

TEST(edges) {
    static const float some[] = {0.0f,           1.0f,        0x1p-149f,  0x1p-126f, 0x1.fffffcp-127f,
                                 FLT_MAX,        0x1p127f,    0x1p-24f,   0x1p24f,   0x1.000002p0f,
                                 0x1.fffffep-1f, 12582912.0f, 8388608.0f, 0.5f,      1.5f,
                                 INFINITY,       NAN,         0x1p-75f,   3.0f};
    enum { N = sizeof some / sizeof *some };
    for (int i = 0; i < 8 * N * N * N; ++i) {
        float a = some[i / 8 / N / N], b = some[i / 8 / N % N], c = some[i / 8 % N];
        check(i & 1 ? -a : a, i & 2 ? -b : b, i & 4 ? -c : c);
    }
}

int main(void) {
    RUN(any_operands);
    RUN(operands_of_like_size);
    RUN(cancellation);
    RUN(near_midpoints);
    RUN(subnormal_results);
    RUN(edges);
    return test_report("soft_fma");
}
