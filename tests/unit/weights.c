/* weights.c - scale, reference, weight: the library's pieces equal the oracle's, and keep what the page promises. */
#include <math.h>

#include "../common/batch.h"
#include "../common/pick.h"
#include "vec_one.h"

#include "order.h"
#include "probability.h"
#include "weigh.h"

static float any_temperature(test_random *r) {
    float T =
        random_below(r, 4) ? pick_temperature(r) : bits_float((uint32_t)random_below(r, 0x7f800001)); /* up to +inf */
    return T < 1e-5f ? 1e-5f : T;
}

/* A maximum at any magnitude, or where the kinds of reference meet, or where the exponent is about to step. */
static float any_maximum(test_random *r, float temperature) {
    static const double meets[] = {0x1p12, 0x1p30, 0x1p12 + 0.5, 0x1p12 - 0.5, 0.5,
                                   1.5,    100.5,  4095.5,       0x1p29,       0x1p30 + 32};
    double per = 1.4426950408889634 / (double)temperature;
    float m;
    switch (random_below(r, 4)) {
    case 0: m = (float)((random_unit(r) - 0.5) * 80); break;
    case 1: m = bits_float((uint32_t)random_bits(r)); break;
    case 2: m = (float)(meets[random_below(r, 10)] / per * (1 + (double)(random_below(r, 41) - 20) * 0x1p-24)); break;
    default: m = (float)(((double)random_below(r, 9000) + 0.5) / per);
    }
    if (random_below(r, 2)) m = -m;
    return m == m && m > -INFINITY ? m : 0.0f;
}

static oracle_kind kind_of(int kind) {
    return kind == REF_STEP ? ORACLE_STEP : kind == REF_TALL ? ORACLE_TALL : ORACLE_PLAIN;
}

TEST(scale_as_the_oracle) {
    test_random r = {1};
    int64_t amount = test_amount(1000000);
    for (int i = 0; i < amount; ++i) {
        float T = any_temperature(&r);
        scale s = scale_make(T);
        oracle_scale o = oracle_scale_of(T);
        CHECK(s.flat == o.flat && s.c == o.c && s.c_low == o.c_low && s.drop == o.drop, "T %a: c %a, oracle %a",
              (double)T, (double)s.c, (double)o.c);
    }
}

TEST(reference_as_the_oracle) {
    test_random r = {2};
    long kinds[3] = {0, 0, 0};
    int64_t amount = test_amount(2000000);
    for (int i = 0; i < amount; ++i) {
        float T = any_temperature(&r), m = any_maximum(&r, T);
        ref f = ref_make(scale_make(T), m);
        oracle_ref o = oracle_ref_of(oracle_scale_of(T), m);
        ++kinds[o.kind];
        CHECK(kind_of(f.kind) == o.kind && f.exponent == o.exponent, "T %a m %a: kind %d e %d, oracle %d %lld",
              (double)T, (double)m, f.kind, f.exponent, o.kind, (long long)o.exponent);
        if (o.kind == ORACLE_TALL) CHECK_EQ(float_bits(f.gain), float_bits(o.gain));
    }
    for (int k = 0; k < 3; ++k) CHECK(kinds[k] > amount / 100, "only %ld references of kind %d", kinds[k], k);
}

/* Any logit up to the maximum, mostly where something is left. */
static float any_below(test_random *r, float m, float drop) {
    float x;
    switch (random_below(r, 6)) {
    case 0: x = m; break;
    case 1: x = -INFINITY; break;
    case 2: x = bits_float(float_bits(m) + (uint32_t)random_below(r, 9) - 4); break;
    case 3: x = bits_float((uint32_t)random_bits(r)); break;
    default: x = (float)((double)m - (double)drop * 1.01 * random_unit(r));
    }
    if (!(x <= m)) x = m;
    return x;
}

TEST(weight_as_the_oracle) {
    test_random r = {3};
    uint64_t largest = 0;
    int64_t amount = test_amount(1000000);
    for (int i = 0; i < amount; ++i) {
        float T = any_temperature(&r), m = any_maximum(&r, T);
        scale s = scale_make(T);
        oracle_scale os = oracle_scale_of(T);
        ref f = ref_make(s, m);
        oracle_ref o = oracle_ref_of(os, m);
        for (int j = 0; j < 8; ++j) {
            float x = any_below(&r, m, s.flat ? 100.0f : s.drop);
            uint64_t got = v_weigh(v_set(x), &f), wanted = oracle_weight(os, o, x);
            CHECK(got == wanted, "T %a m %a x %a: weight %llu, oracle %llu", (double)T, (double)m, (double)x,
                  (unsigned long long)got, (unsigned long long)wanted);
            CHECK(wanted < 1ull << 32, "T %a m %a x %a: weight %llu has more than 32 bits", (double)T, (double)m,
                  (double)x, (unsigned long long)wanted);
            if (x == -INFINITY) CHECK_EQ(got, 0);
            if (wanted > largest) largest = wanted;
        }
        CHECK(v_weigh(v_set(m), &f) >= 1u << 30, "T %a m %a: the maximum weighs only %u", (double)T, (double)m,
              v_weigh(v_set(m), &f));
    }
    printf("     largest weight %.6f * 2^32\n", (double)largest / 0x1p32);
}

/* A larger maximum never has a smaller exponent, so E >= e for every group, and the row's mass stays below 2^63. */
TEST(exponent_is_monotone) {
    test_random r = {4};
    int64_t amount = test_amount(3000000);
    for (int i = 0; i < amount; ++i) {
        float T = any_temperature(&r), a = any_maximum(&r, T);
        float b = random_below(&r, 2) ? any_maximum(&r, T) : bits_float(float_bits(a) + (uint32_t)random_below(&r, 5));
        if (!(b == b && b > -INFINITY)) continue;
        scale s = scale_make(T);
        ref fa = ref_make(s, a), fb = ref_make(s, b);
        int64_t ea = fa.exponent, eb = fb.exponent;
        CHECK(a < b   ? ea <= eb
              : a > b ? ea >= eb
                      : ea == eb,
              "T %a: e(%a) = %lld, e(%a) = %lld", (double)T, (double)a, (long long)ea, (double)b, (long long)eb);
    }
}

/* Neighbouring logits never trade places, at any temperature and under any reference. */
TEST(weight_is_monotone) {
    test_random r = {5};
    int64_t amount = test_amount(6000000);
    for (int i = 0; i < amount; ++i) {
        float T = any_temperature(&r), m = any_maximum(&r, T);
        scale s = scale_make(T);
        ref f = ref_make(s, m);
        float x = any_below(&r, m, s.flat ? 100.0f : s.drop);
        if (f.kind != REF_STEP && i % 2) { /* where the integer part steps */
            double base = f.kind == REF_TALL ? (double)m : 0.0, per = 1.4426950408889634 / (double)T;
            double below = floor(((double)m - base) * per) - (double)random_below(&r, 36);
            x = float_of_order(order_of((float)(base + (below + 0.5) / per)) - 4 + (uint32_t)random_below(&r, 9));
            if (!(x <= m)) continue;
        }
        float y = float_of_order(order_of(x) - 1 - (uint32_t)random_below(&r, 3));
        if (!(x > -FLT_MAX) || y != y) continue;
        uint32_t wx = v_weigh(v_set(x), &f), wy = v_weigh(v_set(y), &f);
        CHECK(wy <= wx, "T %a m %a: w(%a) = %u < w(%a) = %u", (double)T, (double)m, (double)x, wx, (double)y, wy);
    }
}

/* v_log_near has the bits of v_log, and -inf where a token is not kept, for every kind of line and logits that are close together, far
 * apart, at both ends of what there is and -inf. */
TEST(logarithm_near_as_everywhere) {
    test_random r = {6};
    int64_t amount = test_amount(3000), seen = 0, highest = 0;
    for (int64_t i = 0; i < amount; ++i) {
        const float T = any_temperature(&r);
        float best = any_maximum(&r, T);
        if (random_below(&r, 8) == 0) best = float_of_order(order_of(NEAR_BEST) - 1 - (uint32_t)random_below(&r, 3));
        const ref row = ref_make(scale_make(T), best);
        if (!(best < NEAR_BEST) || row.kind == REF_STEP) continue;
        const uint64_t least = (uint64_t)v_weigh(v_set(best), &row) << TICKET_BITS;
        const uint64_t mass = least + (random_below(&r, 3) ? random_bits(&r) >> (1 + random_below(&r, 63)) : 0);
        const log_line line = log_line_make(T, best, &row, mass);
        const uint32_t top = order_of(best), bottom = order_of(-FLT_MAX);
        for (int64_t j = 0; j < 4000; ++j) {
            const uint64_t all = (uint64_t)top - bottom;
            const uint32_t down = j < 500    ? (uint32_t)j
                                  : j < 1000 ? (uint32_t)(all - (uint64_t)(j - 500))
                                             : (uint32_t)((random_bits(&r) >> random_below(&r, 64)) % (all + 1));
            const float x = j < 500 && (uint64_t)j > all ? best : float_of_order(top - down);
            const float near = v_log_near(x, &line), far = v_log(x, &line);
            ++seen;
            highest += far == 0.0f;
            CHECK(float_bits(near) == float_bits(far), "T %a best %a mass %llu x %a: %a, v_log %a", (double)T, (double)best,
                  (unsigned long long)mass, (double)x, (double)near, (double)far);
        }
        CHECK(v_log_near(-INFINITY, &line) == -INFINITY, "T %a best %a: -inf has %a", (double)T, (double)best,
              (double)v_log_near(-INFINITY, &line));
    }
    CHECK(highest > 0 && highest < seen / 2, "%lld of %lld are 0", (long long)highest, (long long)seen);
    printf("     %lld logarithms, %lld of them 0\n", (long long)seen, (long long)highest);
}

TEST(tickets) {
    CHECK_EQ(tickets_of(1, 0), 1024);
    CHECK_EQ(tickets_of(1, 10), 1);
    CHECK_EQ(tickets_of(1, 11), 0);
    CHECK_EQ(tickets_of(0xffffffffffull, 63), 0);
    CHECK_EQ(tickets_of(0xffffffffffull, 64), 0);
    CHECK_EQ(tickets_of(0xffffffffffull, 0xffffffffu), 0);
    test_random r = {6};
    int64_t amount = test_amount(1000000);
    for (int i = 0; i < amount; ++i) { /* the way back from any ticket of a group ends inside the group */
        uint64_t weight = 1 + (random_bits(&r) >> (24 + random_below(&r, 40)));
        uint32_t below = (uint32_t)random_below(&r, 64);
        uint64_t held = tickets_of(weight, below);
        if (!held) continue;
        uint64_t ticket = random_bits(&r) % held;
        CHECK(weight_of(ticket, below) < weight && weight_of(held - 1, below) < weight,
              "weight %llu below %u ticket %llu", (unsigned long long)weight, below, (unsigned long long)ticket);
    }
}

/* The short way to a probability gives the bits of the long one, as far as it claims to reach. */
TEST(near_portions) {
    test_random r = {7};
    int64_t amount = test_amount(300000);
    uint32_t shortest = 60;
    for (int i = 0; i < amount; ++i) {
        uint64_t mass = (1ull << 41) + (random_bits(&r) >> 1 >> random_below(&r, 63)); /* what a row's best token holds, and more */
        if (i % 8 == 0) mass = 1ull << (41 + random_below(&r, 23));
        if (i % 8 == 1) mass = 0x1p41 / (double)bits_float(0x3f800000u - (uint32_t)random_below(&r, 1 << 24)) + (double)random_below(&r, 3); /* next to where factor_low is 0 */
        const portion best = portion_make(mass);
        const uint32_t reach = portion_reach(&best), distance = i % 4 ? (uint32_t)random_below(&r, reach + 1) : reach;
        const portion below = portion_below(best, distance), near = portion_near(best, distance);
        shortest = reach < shortest ? reach : shortest;
        for (int n = 0; n < 16; ++n) {
            const float weight = n ? bits_float(float_bits(NEAR_WEIGHT) + (uint32_t)random_below(&r, 41 << 23)) : NEAR_WEIGHT;
            const float wanted = v_portion(weight, &below), got = v_portion_near(weight, &near);
            CHECK(float_bits(wanted) == float_bits(got), "mass %llu distance %u weight %a: %a, the short way %a", (unsigned long long)mass,
                  distance, (double)weight, (double)wanted, (double)got);
        }
    }
    CHECK(shortest < 30, "no mass was difficult: the shortest reach is %u", shortest);
}

/* And groups that are told to be near have no smaller weight than it needs. */
TEST(near_weights) {
    test_random r = {8};
    int64_t amount = test_amount(1000000);
    for (int i = 0; i < amount; ++i) {
        const float T = any_temperature(&r);
        const scale s = i % 4 ? scale_make(T) : scale_make(LINEAR_TEMPERATURE);
        const float m = s.linear ? bits_float(1 + (uint32_t)random_below(&r, 0x7f7fffff)) : any_maximum(&r, T);
        if (!s.linear && (s.flat || !ref_is_near(s, m))) continue;
        const ref f = ref_make(s, m);
        const float low = near_low(s, m), x = low > 0.0f || !s.linear ? low : 0x1p-149f;
        const float weight = v_weight_any(x, &f);
        CHECK(weight >= NEAR_WEIGHT, "T %a m %a: %a weighs %a", (double)T, (double)m, (double)x, (double)weight);
    }
}

int main(void) {
    RUN(scale_as_the_oracle);
    RUN(reference_as_the_oracle);
    RUN(weight_as_the_oracle);
    RUN(exponent_is_monotone);
    RUN(weight_is_monotone);
    RUN(logarithm_near_as_everywhere);
    RUN(tickets);
    RUN(near_portions);
    RUN(near_weights);
    return test_report("weights");
}
