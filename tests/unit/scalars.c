/* scalars.c - the small formulas of src/math against references: half, order, logarithm, share, philox. */
#include <math.h>

#include "../common/batch.h"
#include "half.h"
#include "logarithm.h"
#include "order.h"
#include "philox.h"
#include "share.h"

__extension__ typedef unsigned __int128 wide;

/* ---- half.h ---- */

TEST(half_every_value) {
    for (uint32_t h = 0; h < 65536; ++h) {
        uint16_t stored = (uint16_t)h;
        float f16 = float_of_f16(stored), bf16 = float_of_bf16(stored);
        float wanted_f16 = oracle_load(&stored, RAFFLE_F16, 0), wanted_bf16 = oracle_load(&stored, RAFFLE_BF16, 0);
        CHECK(float_bits(f16) == float_bits(wanted_f16) || (f16 != f16 && wanted_f16 != wanted_f16),
              "f16 %04x: %a, wanted %a", h, (double)f16, (double)wanted_f16);
        CHECK(float_bits(bf16) == float_bits(wanted_bf16) || (bf16 != bf16 && wanted_bf16 != wanted_bf16),
              "bf16 %04x: %a, wanted %a", h, (double)bf16, (double)wanted_bf16);
    }
}

#if defined(__FLT16_MANT_DIG__)
__extension__ typedef _Float16 half;
TEST(half_as_the_compiler) {
    for (uint32_t h = 0; h < 65536; ++h) {
        uint16_t stored = (uint16_t)h;
        half value;
        memcpy(&value, &stored, sizeof value);
        float wanted = (float)value, got = float_of_f16(stored);
        CHECK(float_bits(got) == float_bits(wanted) || (got != got && wanted != wanted), "f16 %04x", h);
    }
}
#else
TEST(half_as_the_compiler) { SKIP("this compiler has no _Float16"); }
#endif

/* The conversion to f16 and bf16 that makes the test rows: back and forth, and at every midpoint. */
TEST(vector_rows_convert) {
    for (uint32_t h = 0; h < 65536; ++h) {
        for (int dtype = RAFFLE_F16; dtype <= RAFFLE_BF16; ++dtype) {
            uint16_t stored = (uint16_t)h, next = (uint16_t)(h + 1), made;
            float x = oracle_load(&stored, dtype, 0), y = oracle_load(&next, dtype, 0);
            vector_store(&made, dtype, 0, float_bits(x));
            if (x != x) continue;
            CHECK_EQ(made, h);
            if (y != y || (h & 0x7fff) == 0x7fff || isinf(x)) continue;
            /* Infinity rounds as if it were the next power of two. */
            double top = isinf(y) ? copysign(dtype == RAFFLE_F16 ? 65536.0 : 0x1p128, (double)y) : (double)y;
            float middle = (float)(((double)x + top) / 2); /* exact: one more bit */
            vector_store(&made, dtype, 0, float_bits(middle));
            CHECK_EQ(made, h & 1 ? next : stored);
            vector_store(&made, dtype, 0, float_bits(middle) + 1);
            CHECK_EQ(made, next);
            if (middle != 0) {
                vector_store(&made, dtype, 0, float_bits(middle) - 1);
                CHECK_EQ(made, stored);
            }
        }
    }
}

/* ---- order.h ---- */

static void check_order(float a, float b) {
    CHECK((a < b) == (order_of(a) < order_of(b)) && (a == b) == (order_of(a) == order_of(b)), "%a %a: %08x %08x",
          (double)a, (double)b, order_of(a), order_of(b));
    CHECK(float_of_order(order_of(a)) == a, "%a comes back as %a", (double)a, (double)float_of_order(order_of(a)));
}

TEST(order_sorts) {
    static const float some[] = {-INFINITY, -FLT_MAX,  -1.0f, -0x1p-126f, -0x1p-149f, -0.0f,
                                 0.0f,      0x1p-149f, 1.0f,  FLT_MAX,    INFINITY};
    for (int i = 0; i < 11; ++i)
        for (int j = 0; j < 11; ++j) check_order(some[i], some[j]);
    test_random r = {1};
    int64_t amount = test_amount(3000000);
    for (int i = 0; i < amount; ++i) {
        float a = bits_float((uint32_t)random_bits(&r)), b = bits_float((uint32_t)random_bits(&r));
        float c = bits_float(float_bits(a) + 1);
        if (a == a && b == b) check_order(a, b);
        if (a == a && c == c) check_order(a, c);
    }
}

/* Keys are searched by bisection and stepped by one: neighbouring keys must be neighbouring, different floats. */
TEST(order_is_dense) {
    for (uint32_t key = order_of(-INFINITY) + 1; key < order_of(INFINITY); key += 1 + (key >> 5 & 0x3ff)) {
        float a = float_of_order(key), b = float_of_order(key + 1);
        CHECK(a < b && nextafterf(a, INFINITY) == b, "key %08x is %a, the next %a", key, (double)a, (double)b);
    }
    for (uint32_t key = order_of(0.0f) - 5; key != order_of(0.0f) + 5; ++key)
        CHECK(float_of_order(key) < float_of_order(key + 1), "key %08x is %a, the next %a", key,
              (double)float_of_order(key), (double)float_of_order(key + 1));
    CHECK_EQ(float_bits(float_of_order(order_of(0.0f) - 1)), 0x80000001u);
}

static void check_at_least(double x) {
    float f = float_at_least(x);
    if (!(x >= -(double)FLT_MAX)) {
        CHECK(f == -INFINITY, "%a gives %a", x, (double)f); /* NaN and -inf as well */
        return;
    }
    CHECK((double)f >= x, "%a gives %a", x, (double)f);
    CHECK(f == -FLT_MAX || (double)nextafterf(f, -INFINITY) < x, "%a gives %a, which is not the smallest", x,
          (double)f);
}

TEST(float_at_least_is_tight) {
    static const double some[] = {0.0,
                                  -0.0,
                                  1.0,
                                  -1.0,
                                  1.0 + 0x1p-50,
                                  -1.0 - 0x1p-50,
                                  0x1p-149,
                                  0x1p-160,
                                  -0x1p-160,
                                  1e300,
                                  -1e300,
                                  0x1.fffffep127,
                                  -0x1.fffffep127,
                                  0x1.ffffffp127,
                                  -0x1.ffffffp127,
                                  -0x1.fffffefp127,
                                  INFINITY,
                                  -INFINITY,
                                  NAN};
    for (size_t i = 0; i < sizeof some / sizeof *some; ++i) check_at_least(some[i]);
    test_random r = {2};
    int64_t amount = test_amount(3000000);
    for (int i = 0; i < amount; ++i) {
        uint64_t bits = random_bits(&r);
        double x;
        memcpy(&x, &bits, sizeof x);
        check_at_least(x);
        check_at_least((random_unit(&r) - 0.5) * 100);
        check_at_least((double)bits_float((uint32_t)bits) * (1 + (double)(random_below(&r, 3) - 1) * 0x1p-40));
    }
}

/* ---- logarithm.h ---- */

static double worst_log;

static void check_log(double x) {
    long double wanted = logl((long double)x);
    double got = natural_log(x);
    double error = wanted == 0 ? (double)fabsl((long double)got) : (double)fabsl(((long double)got - wanted) / wanted);
    if (error > worst_log) worst_log = error;
    CHECK(error <= 4e-16, "ln(%a) = %a, off by %g", x, got, error);
    CHECK(got == oracle_log(x), "ln(%a) = %a, oracle %a", x, got, oracle_log(x));
}

TEST(logarithm) {
    test_random r = {3};
    uint32_t step = getenv("RAFFLE_TEST_QUICK") ? 50 : 1;
    check_log(1.0);
    for (uint32_t bits = 1; bits < 0x3f800000u; bits += 1 + step * (uint32_t)random_below(&r, 900))
        check_log((double)bits_float(bits));
    for (uint32_t bits = 0x3f000000u; bits < 0x3f800000u; bits += 3 * step)
        check_log((double)bits_float(bits)); /* 1/2 to 1 */
    printf("     largest relative error of the logarithm: %.3g\n", worst_log);
}

/* ---- share.h ---- */

static uint64_t share_brute(float p, uint64_t mass) {
    uint64_t low = 0, high = mass; /* the smallest n with n >= p * mass, by bisection on exact comparisons */
    int exponent;
    uint64_t digits = (uint64_t)ldexp(frexp((double)p, &exponent), 24);
    wide product = (wide)digits * mass;
    int shift = 24 - exponent;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        wide room = shift >= 127 || (middle && middle > (~(wide)0 >> shift)) ? ~(wide)0 : (wide)middle << shift;
        if (middle == 0) room = 0;
        if (room >= product)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

TEST(share_is_exact) {
    static const float some[] = {0x1p-149f, 0x1p-126f, 0x1p-64f, 0x1p-40f,       1e-9f,      0.001f,
                                 0.1f,      0.5f,      0.9f,     0x1.fffffep-1f, 0x1.8p-41f, 0x1p-85f,
                                 0x1p-86f,  0x1p-63f,  0x1p-62f, 0x1.000002p-65f};
    test_random r = {4};
    int64_t amount = test_amount(2000000);
    for (int i = 0; i < amount; ++i) {
        float p = i % 2 ? some[random_below(&r, sizeof some / sizeof *some)]
                        : bits_float(1 + (uint32_t)random_below(&r, 0x3f7fffff));
        uint64_t mass = random_bits(&r) >> (1 + random_below(&r, 60));
        if (i % 7 == 0) mass = 1ull << random_below(&r, 63);
        if (!mass) mass = 1;
        uint64_t got = share_of(p, mass), wanted = share_brute(p, mass);
        CHECK(got == wanted && got == oracle_share(p, mass), "share of %a in %llu: %llu, wanted %llu", (double)p,
              (unsigned long long)mass, (unsigned long long)got, (unsigned long long)wanted);
    }
}

TEST(wide_product) {
    test_random r = {5};
    int64_t amount = test_amount(1000000);
    for (int i = 0; i < amount; ++i) {
        uint64_t a = random_bits(&r), b = random_bits(&r) >> random_below(&r, 64);
        CHECK_EQ(mul_high(a, b), (uint64_t)((wide)a * b >> 64));
    }
    CHECK_EQ(mul_high(UINT64_MAX, UINT64_MAX), UINT64_MAX - 1);
}

/* ---- philox.h: the known answers of Random123's kat_vectors, philox4x32 with 10 rounds ---- */

static void check_philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1,
                         const uint32_t *wanted) {
    philox_block counter = {{c0, c1, c2, c3}}, made = philox_rounds(counter, k0, k1);
    for (int i = 0; i < 4; ++i) CHECK_EQ(made.word[i], wanted[i]);
}

TEST(philox_known_answers) {
    const uint32_t ones = 0xffffffffu;
    const uint32_t zero_answer[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t ones_answer[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    const uint32_t pi_answer[] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    check_philox(0, 0, 0, 0, 0, 0, zero_answer);
    check_philox(ones, ones, ones, ones, ones, ones, ones_answer);
    check_philox(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, pi_answer);
    CHECK_EQ(philox_step(0, 0, STREAM_TARGET, 0).low, 0xe169c58d6627e8d5ull);
    uint64_t bits[2];
    oracle_random(0, 0, 0, 0, bits);
    CHECK_EQ(bits[0], 0xe169c58d6627e8d5ull);
    CHECK_EQ(bits[1], 0x9b00dbd8bc57ac4cull);
    test_random r = {6};
    int64_t amount = test_amount(100000);
    for (int i = 0; i < amount; ++i) {
        uint64_t seed = random_bits(&r), position = random_bits(&r);
        const philox_pair made = philox_step(seed, position, STREAM_TARGET, 0);
        oracle_random(seed, position, STREAM_TARGET, 0, bits);
        CHECK_EQ(made.low, bits[0]);
        CHECK_EQ(made.high, bits[1]);
    }
}

int main(void) {
    RUN(half_every_value);
    RUN(half_as_the_compiler);
    RUN(vector_rows_convert);
    RUN(order_sorts);
    RUN(order_is_dense);
    RUN(float_at_least_is_tight);
    RUN(logarithm);
    RUN(share_is_exact);
    RUN(wide_product);
    RUN(philox_known_answers);
    return test_report("scalars");
}
