/* accept.c - wide.h and accept.h against schoolbook arithmetic on 16-bit digits, with operands that carry. */
#include "../common/test.h"
#include "raffle/raffle.h"
#include "rows.h"
#include "vec_one.h"

#include "verify.h"

enum { DIGITS = 24 }; /* 384 bits */
typedef struct number {
    uint32_t digit[DIGITS];
} number;

static number number_of(const uint64_t *words, int count) {
    number made = {{0}};
    for (int i = 0; i < count * 4; ++i) made.digit[i] = (uint32_t)(words[i / 4] >> i % 4 * 16 & 0xffff);
    return made;
}

static number times(number a, number b) {
    number made = {{0}};
    for (int i = 0; i < DIGITS; ++i)
        for (int j = 0; i + j < DIGITS; ++j) {
            uint64_t carry = (uint64_t)a.digit[i] * b.digit[j];
            for (int k = i + j; carry && k < DIGITS; ++k) {
                carry += made.digit[k];
                made.digit[k] = (uint32_t)(carry & 0xffff);
                carry >>= 16;
            }
        }
    return made;
}

static number plus(number a, number b, int sign) {
    int64_t carry = 0;
    for (int i = 0; i < DIGITS; ++i) {
        carry += (int64_t)a.digit[i] + sign * (int64_t)b.digit[i];
        a.digit[i] = (uint32_t)(carry & 0xffff);
        carry >>= 16;
    }
    return a;
}

static int below(number a, number b) {
    for (int i = DIGITS - 1; i >= 0; --i)
        if (a.digit[i] != b.digit[i]) return a.digit[i] < b.digit[i];
    return 0;
}

/* Words `skip` and on of a number must be those of w, modulo 2^192. */
static int same(wide w, number a, int skip) {
    for (int i = 0; i < 12; ++i)
        if ((w.word[i / 4] >> i % 4 * 16 & 0xffff) != a.digit[i + 4 * skip]) return 0;
    return 1;
}

/* Words of all bits, none, few or any. */
static uint64_t pick_word(test_random *r) {
    switch (random_below(r, 6)) {
    case 0: return 0;
    case 1: return ~0ull;
    case 2: return 1ull << random_below(r, 64);
    case 3: return ~(1ull << random_below(r, 64));
    default: return random_bits(r) >> random_below(r, 64);
    }
}

TEST(wide_arithmetic) {
    test_random r = {1};
    for (int64_t i = 0, amount = test_amount(200000); i < amount; ++i) {
        uint64_t x[3], y[3], high = pick_word(&r), low = pick_word(&r);
        for (int k = 0; k < 3; ++k) x[k] = pick_word(&r), y[k] = random_below(&r, 8) ? pick_word(&r) : x[k];
        uint64_t pair[2] = {low, high};
        wide a = {{x[0], x[1], x[2]}}, b = {{y[0], y[1], y[2]}};
        number A = number_of(x, 3), B = number_of(y, 3);
        CHECK(same(wide_add(a, b), plus(A, B, 1), 0), "add");
        CHECK(same(wide_subtract(a, b), plus(A, B, -1), 0), "subtract");
        CHECK(wide_less(a, b) == below(A, B), "less");
        CHECK(wide_is_zero(a) == !(x[0] || x[1] || x[2]), "zero");
        CHECK(same(wide_multiply(a, low), times(A, number_of(&low, 1)), 0), "multiply");
        CHECK(same(wide_multiply_high(a, low), times(A, number_of(&low, 1)), 1), "multiply high");
        CHECK(same(wide_share(a, high, low), times(A, number_of(pair, 2)), 2), "share");
    }
}

static chances pick_chances(test_random *r) {
    chances c = {.mass_p = 1 + (pick_word(r) >> 1) % ((1ull << 63) - 1), .mass_q = 1 + (pick_word(r) >> 1) % ((1ull << 63) - 1)};
    c.t = random_below(r, 9) ? (pick_word(r) >> 22) % (c.mass_p < 1ull << 42 ? c.mass_p + 1 : 1ull << 42) : 0;
    c.s = random_below(r, 9) ? (pick_word(r) >> 22) % (c.mass_q < 1ull << 42 ? c.mass_q + 1 : 1ull << 42) : 0;
    if (random_below(r, 6) == 0) c.s = c.t, c.mass_q = c.mass_p;
    return c;
}

static number product(uint64_t a, uint64_t b, uint64_t c) {
    return times(times(number_of(&a, 1), number_of(&b, 1)), number_of(&c, 1));
}

TEST(ratio) {
    test_random r = {2};
    for (int64_t i = 0, amount = test_amount(200000); i < amount; ++i) {
        chances c = pick_chances(&r);
        uint64_t bits = pick_word(&r), whole[2] = {0, 1};
        int wanted = below(product(bits, c.s, c.mass_p), times(product(1, c.t, c.mass_q), number_of(whole, 2)));
        CHECK(ratio_accepts(bits, c) == wanted, "ratio");
        odds o = odds_make(c.mass_p, c.mass_q);
        int left = below(product(1, c.s, c.mass_p), product(1, c.t, c.mass_q));
        CHECK(odds_left(o, c.t, c.s) == left, "left");
        if (left) CHECK(same(odds_sum(o, c.t, c.s), plus(product(1, c.t, c.mass_q), product(1, c.s, c.mass_p), -1), 0), "sum");
    }
}

TEST(blocks) {
    test_random r = {3};
    const uint64_t one = 1ull << 62;
    for (int64_t i = 0, amount = test_amount(100000); i < amount; ++i) {
        chances c = pick_chances(&r);
        uint64_t weight = random_below(&r, 4) ? pick_word(&r) % (one + 1) : one, next = block_next(weight, c), bits = pick_word(&r);
        number have = product(weight, c.t, c.mass_q);
        CHECK(next <= one, "above 1");
        if (!weight || !c.t) CHECK_EQ(next, 0);
        else CHECK(!below(have, product(next, c.s, c.mass_p)), "too large");
        if (weight && c.t && next < one) CHECK(below(have, product(next + 1, c.s, c.mass_p)), "too small");
        odds o = block_odds(weight, c.mass_p, c.mass_q);
        int left = below(product(one, c.s, c.mass_p), have);
        CHECK(odds_left(o, c.t, c.s) == left, "left");
        if (!left) {
            CHECK_EQ(block_accepts(bits, weight, wide_of(0), c.mass_p, c.mass_q), weight == one);
            continue;
        }
        number L = plus(have, product(one, c.s, c.mass_p), -1);
        uint64_t whole[2] = {0, 1};
        wide l = odds_sum(o, c.t, c.s);
        CHECK(same(l, L, 0), "sum");
        number all = plus(L, product(one - weight, c.mass_p, c.mass_q), 1);
        CHECK(block_accepts(bits, weight, l, c.mass_p, c.mass_q) ==
                  below(times(number_of(&bits, 1), all), times(L, number_of(whole, 2))), "accepts");
        CHECK(block_accepts_all(bits, weight) == (bits / 4 < weight), "accepts all");
    }
    CHECK(block_accepts_all(~0ull, one) && !block_accepts_all(0, 0), "certain");
}

/* ---- the kernels' sums of what is left over, on tickets made up for it ---- */

static uint64_t made_t[GROUP], made_s[GROUP];
static uint64_t tickets_t(const cpu_law *law, int64_t g, uint64_t *t) { return (void)law, (void)g, memcpy(t, made_t, sizeof made_t), 1; }
static uint64_t tickets_s(const cpu_law *law, int64_t g, uint64_t *t) { return (void)law, (void)g, memcpy(t, made_s, sizeof made_s), 1; }

/* Products that are equal, or differ by less than a double can tell. */
TEST(left_over_of_near_ties) {
    const struct { raffle_isa isa; const cpu_table *table; } tables[] = {
        {RAFFLE_ISA_SCALAR, &raffle_table_one},
#if defined(__x86_64__)
        {RAFFLE_ISA_AVX2, &raffle_table_avx2}, {RAFFLE_ISA_AVX512, &raffle_table_avx512},
#elif defined(__aarch64__)
        {RAFFLE_ISA_NEON, &raffle_table_neon},
#endif
    };
    test_random r = {4};
    int64_t near = 0, kept = 0;
    for (int64_t i = 0, amount = test_amount(4000); i < amount; ++i) {
        uint64_t mass_p = (1ull << 62) + (random_bits(&r) >> 3), mass_q = mass_p + (uint64_t)random_below(&r, 9) - 4;
        if (i % 3 == 0) mass_q = (1ull << 61) + (random_bits(&r) >> 3);
        uint64_t weight = i % 2 ? 1ull << 62 : (1ull << 62) - (random_bits(&r) >> random_below(&r, 64)) % (1ull << 62);
        cpu_pair pair;
        memset(&pair, 0, sizeof pair);
        pair.target.tickets = tickets_t;
        pair.draft.tickets = tickets_s;
        pair.odds = i % 4 < 2 ? odds_make(mass_p, mass_q) : block_odds(weight, mass_p, mass_q);
        pair.groups = 1;
        uint64_t sum_t = 0, sum_s = 0, left_t, left_s;
        for (int j = 0; j < GROUP; ++j) {
            uint64_t t = random_bits(&r) >> (22 + random_below(&r, 30)), s = i % 3 ? t : (uint64_t)((double)t * ((double)mass_q / (double)mass_p));
            made_t[j] = random_below(&r, 7) ? t : 0;
            made_s[j] = random_below(&r, 7) ? s + (uint64_t)random_below(&r, 2) : 0;
            if (!odds_left(pair.odds, made_t[j], made_s[j])) continue;
            double a = (double)made_t[j], b = (double)made_s[j] * ((double)mass_p / (double)mass_q);
            near += made_s[j] && a - b < a * 1e-15;
            sum_t += made_t[j];
            sum_s += made_s[j];
            ++kept;
        }
        for (size_t k = 0; k < sizeof tables / sizeof *tables; ++k) {
            if (!raffle_isa_available(tables[k].isa)) continue;
            tables[k].table->left_over(&pair, &left_t, &left_s);
            CHECK(left_t == sum_t && left_s == sum_s, "%s: %llu %llu, wanted %llu %llu", raffle_isa_name(tables[k].isa),
                  (unsigned long long)left_t, (unsigned long long)left_s, (unsigned long long)sum_t, (unsigned long long)sum_s);
        }
    }
    printf("     %lld of %lld tokens were nearer than a double can tell\n", (long long)near, (long long)kept);
    CHECK(near > 1000, "no near ties");
}

TEST(rates_and_thresholds) {
    CHECK(rate_accepts(~0ull, 1.0f) && !rate_accepts(0, 0.0f) && rate_accepts(0, 0x1p-149f), "certain");
    CHECK(rate_accepts((1ull << 63) - 1, 0.5f) && !rate_accepts(1ull << 63, 0.5f), "half");
    CHECK_EQ(threshold_of(1.0f, 12345), 12345);
    CHECK_EQ(threshold_of(0.5f, 12345), 6173);
}

int main(void) {
    RUN(wide_arithmetic);
    RUN(ratio);
    RUN(blocks);
    RUN(left_over_of_near_ties);
    RUN(rates_and_thresholds);
    return test_report("accept");
}
