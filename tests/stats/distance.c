/* distance.c - how far the law of the draw is from exact softmax: counted ticket by ticket, over awkward rows and
 * temperatures. Asserted for each: total variation at most 1e-7, and each token's probability p within
 * 2e-7 (1 + |log2 p|) p, plus half a weight of its group and two tickets for rounding to integers. */
#include <math.h>
#include <stdlib.h>

#include "../common/ask.h"
#include "../oracle/softmax.h"

enum { VOCAB = 65536 };
static const double TOTAL_VARIATION = 1e-7;
static const float temperatures[] = {1.0f, 0.7f, 0.71f, 0.3f, 3.0f, 1.9999f, 0.05f, 1e-3f, 1e-5f, 100.0f, 0.013f};
enum { TEMPERATURES = sizeof temperatures / sizeof *temperatures };

static float row[VOCAB];
static uint64_t held[VOCAB];
static long double law[VOCAB];
static double worst_of_all;

/* ---- rows ---- */

typedef void (*row_maker)(float temperature, test_random *r);

static double bell(test_random *r) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += random_unit(r);
    return sum;
}

static void make_llm(float T, test_random *r) {
    (void)T;
    for (int i = 0; i < VOCAB; ++i) row[i] = (float)(2.5 * bell(r));
    for (int i = 0; i < 20; ++i) row[random_below(r, VOCAB)] += (float)(8 + 4 * random_unit(r));
}
static void make_bell(float T, test_random *r) {
    for (int i = 0; i < VOCAB; ++i) row[i] = (float)(bell(r) * (double)T);
}
static void make_wide_bell(float T, test_random *r) {
    for (int i = 0; i < VOCAB; ++i) row[i] = (float)(bell(r) * 10 * (double)T);
}
static void make_zipf(float T, test_random *r) {
    (void)r;
    for (int i = 0; i < VOCAB; ++i) row[i] = (float)(-1.1 * log(i + 1.0) * (double)T);
}
static void make_uniform(float T, test_random *r) {
    (void)T, (void)r;
    for (int i = 0; i < VOCAB; ++i) row[i] = 0.123456f;
}
static void make_two(float T, test_random *r) { /* half the tokens 0.37 T lower */
    for (int i = 0; i < VOCAB; ++i) row[i] = random_below(r, 2) ? 1.0f : 1.0f - 0.37f * T;
}
static void make_ascending(float T, test_random *r) {
    (void)r;
    for (int i = 0; i < VOCAB; ++i) row[i] = (float)i * T * 0x1p-12f;
}
static void make_descending(float T, test_random *r) {
    (void)r;
    for (int i = 0; i < VOCAB; ++i) row[i] = (float)(VOCAB - i) * T * 0x1p-10f;
}
static void make_tail_18(float T, test_random *r) {
    (void)r;
    for (int i = 0; i < VOCAB; ++i) row[i] = i == 777 ? 0.0f : -18.0f * T;
}
static void make_tail_11(float T, test_random *r) { /* the tail weighs as much as the spike */
    (void)r;
    for (int i = 0; i < VOCAB; ++i) row[i] = i == 777 ? 0.0f : -11.09f * T;
}
static void make_bf16(float T, test_random *r) {
    make_llm(T, r);
    for (int i = 0; i < VOCAB; ++i) row[i] = bits_float((uint32_t)vector_bf16(float_bits(row[i])) << 16);
}
static void make_high(float T, test_random *r) { /* far from zero, where x c needs more digits than f32 has */
    make_bell(T, r);
    for (int i = 0; i < VOCAB; ++i) row[i] += 5000.0f * T;
}
static void make_higher(float T, test_random *r) {
    (void)r;
    for (int i = 0; i < VOCAB; ++i) row[i] = (1e6f + (float)(i % 97) * 0.0625f) * T;
}
static void make_low(float T, test_random *r) {
    make_bell(T, r);
    for (int i = 0; i < VOCAB; ++i) row[i] -= 3000.0f * T;
}

/* One spike in each group and 255 tokens at the logit where the weight becomes `weight` (below or at the step). */
static void make_step(float T, test_random *r, uint64_t weight, int at) {
    oracle_scale s = oracle_scale_of(T);
    for (int g = 0; g < VOCAB / 256; ++g) {
        float spike = (float)(random_unit(r) * 2 * (double)T), low = spike - s.drop, high = spike;
        oracle_ref ref = oracle_ref_of(s, spike);
        for (;;) { /* the weight of low is < weight, that of high is not */
            float middle = low + (high - low) / 2;
            if (middle <= low || middle >= high) break;
            if (oracle_weight(s, ref, middle) < weight)
                low = middle;
            else
                high = middle;
        }
        for (int i = 0; i < 256; ++i) row[g * 256 + i] = i == g ? spike : at ? high : low;
    }
}
static void make_under_half(float T, test_random *r) { make_step(T, r, 1, 0); } /* all of 0.49 is lost */
static void make_over_half(float T, test_random *r) { make_step(T, r, 1, 1); }  /* 0.5 counts as 1 */
static void make_under_two(float T, test_random *r) { make_step(T, r, 2, 0); }

/* Two kinds of token where the polynomial's error is largest up and down: searched at this temperature. */
static void make_worst_pair(float T, test_random *r) {
    oracle_scale s = oracle_scale_of(T);
    oracle_ref ref = oracle_ref_of(s, 0.0f);
    double per = 1.4426950408889634 / (double)T, unit = (1 - 0x1p-10) * sqrt(2.0) * 0x1p31, up = -1, down = 1;
    float at_up = 0, at_down = 0;
    for (int i = 0; i < 200000; ++i) {
        float x = (float)(-random_unit(r) * 0.69 * (double)T);
        double wanted = unit * exp2((double)x * per), off = ((double)oracle_weight(s, ref, x) - wanted) / wanted;
        if (off > up) up = off, at_up = x;
        if (off < down) down = off, at_down = x;
    }
    for (int i = 0; i < VOCAB; ++i) row[i] = i % 2 ? at_up : at_down;
    row[5] = 0.0f;
}

static const struct {
    const char *name;
    row_maker make;
} rows[] = {
    {"llm", make_llm},
    {"bell, sd T", make_bell},
    {"bell, sd 10 T", make_wide_bell},
    {"zipf 1.1", make_zipf},
    {"uniform", make_uniform},
    {"two values", make_two},
    {"ascending", make_ascending},
    {"descending", make_descending},
    {"spike, tail at -18 T", make_tail_18},
    {"spike, tail at -11 T", make_tail_11},
    {"llm in bf16", make_bf16},
    {"bell at +5000 T", make_high},
    {"steps at +1e6 T", make_higher},
    {"bell at -3000 T", make_low},
    {"spikes, 255 under 1/2", make_under_half},
    {"spikes, 255 over 1/2", make_over_half},
    {"spikes, 255 under 3/2", make_under_two},
    {"worst pair", make_worst_pair},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- distance ---- */

static void check_tokens(const oracle_case *c, uint64_t mass, const char *name) {
    oracle_scale s = oracle_scale_of(c->temperature);
    float best = -INFINITY;
    for (int i = 0; i < VOCAB; ++i) best = row[i] > best ? row[i] : best;
    int64_t exponent = oracle_ref_of(s, best).exponent;
    double slack = 0;
    for (int i = 0; i < VOCAB; ++i) {
        if (i % 256 == 0) {
            float m = -INFINITY;
            for (int j = i; j < i + 256; ++j) m = row[j] > m ? row[j] : m;
            slack =
                (ldexp(512.0, (int)fmax(-99, (double)(oracle_ref_of(s, m).exponent - exponent))) + 2) / (double)mass;
        }
        double p = (double)law[i], got = (double)held[i] / (double)mass;
        double room = p > 0 ? 2e-7 * (1 + fabs(log2(p))) * p + slack : slack;
        CHECK(fabs(got - p) <= room, "%s T %g token %d: %.12g, exact %.12g", name, (double)c->temperature, i, got, p);
    }
}

static double check_distance(int which, float T) {
    test_random r = {(uint64_t)which * 1000 + 7};
    rows[which].make(T, &r);
    oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
    c.temperature = T;
    uint64_t mass = oracle_held(&c, held), sum = 0;
    softmax_law(&c, law, NULL);
    long double distance = 0;
    for (int i = 0; i < VOCAB; ++i) {
        distance += fabsl((long double)held[i] / (long double)mass - law[i]);
        sum += held[i];
    }
    CHECK(mass > 0 && sum == mass, "%s T %g: %llu numbers held of %llu", rows[which].name, (double)T,
          (unsigned long long)sum, (unsigned long long)mass);
    CHECK(distance / 2 <= TOTAL_VARIATION, "%s T %g: total variation %Lg", rows[which].name, (double)T, distance / 2);
    check_tokens(&c, mass, rows[which].name);
    ask(&c, NULL); /* and the library draws from this law */
    return (double)(distance / 2);
}

TEST(total_variation) {
    printf("     total variation distance * 1e8, %d tokens\n     %-22s", VOCAB, "T");
    for (int t = 0; t < TEMPERATURES; ++t) printf("%7g", (double)temperatures[t]);
    for (int i = 0; i < ROWS; ++i) {
        printf("\n     %-22s", rows[i].name);
        for (int t = 0; t < TEMPERATURES; ++t) {
            double distance = check_distance(i, temperatures[t]);
            printf("%7.2f", distance * 1e8);
            if (distance > worst_of_all) worst_of_all = distance;
        }
    }
    printf("\n     largest: %.3g\n", worst_of_all);
}

/* Filtered rows: the kept set is softmax's, and so are the shares within it. */
TEST(filtered) {
    static const struct {
        float T;
        int32_t k;
        float p, min_p;
        uint32_t flags;
    } ways[] = {{0.8f, 50, 1.0f, 0.0f, 0},
                {1.0f, 0, 0.9f, 0.0f, 0},
                {0.71f, 0, 1.0f, 0.05f, 0},
                {1.3f, 200, 0.95f, 0.001f, 0},
                {2.0f, 100, 0.9f, 0.01f, 31}};
    for (int i = 0; i < 5; ++i) {
        test_random r = {(uint64_t)i + 1};
        make_llm(1.0f, &r);
        oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
        c.temperature = ways[i].T;
        c.top_k = ways[i].k;
        c.top_p = ways[i].p;
        c.min_p = ways[i].min_p;
        c.flags = ways[i].flags;
        uint64_t mass = oracle_held(&c, held);
        int64_t doubtful;
        softmax_law(&c, law, &doubtful);
        long double distance = 0;
        for (int t = 0; t < VOCAB; ++t) {
            CHECK((held[t] > 0) == (law[t] > 0), "way %d token %d: held %llu, probability %Lg", i, t,
                  (unsigned long long)held[t], law[t]);
            distance += fabsl((long double)held[t] / (long double)mass - law[t]);
        }
        CHECK(doubtful == 0 && distance / 2 <= TOTAL_VARIATION, "way %d: total variation %Lg", i, distance / 2);
        ask(&c, NULL);
    }
}

int main(void) {
    RUN(total_variation);
    RUN(filtered);
    return test_report("distance");
}
