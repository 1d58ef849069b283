/* estimate.c - the range in which a row's mass lies by its estimates, for rows made so that the errors of all tokens add up: one
 * token, and thousands of another value, wherever between two powers of two the polynomial is worst. Sums are exact here: the range
 * is the one of no additions. */
#include <math.h>
#include <stdlib.h>

#include "../common/test.h"
#include "vec_one.h"

#include "cut_types.h"
#include "estimate.h"

enum { GROUPS = 4096 };

static double estimate_of(const estimator *e, float x) {
    vf v = v_set(x);
    v_estimates(&v, 1, e);
    return (double)v_first(v);
}

static uint64_t weight_under(const ref *f, float x) {
    uint32_t lane[V_LANES];
    v_store_u(lane, v_weigh(v_set(x), f));
    return lane[0];
}

/* A group with `best` alone, and GROUPS full of x: where the exact mass is in the range, from -1 to 1. */
static double place_in_range(const weighing *w, const estimator *e, float x) {
    const group_ref r = group_ref_make(w, x);
    const uint64_t others = GROUPS * tickets_of(GROUP * weight_under(&r.ref, x), r.below);
    const uint64_t mass = tickets_of(weight_under(&w->row, w->best), 0) + others;
    const double sum = estimate_of(e, w->best) + (double)(GROUPS * GROUP) * estimate_of(e, x);
    const mass_range range = mass_estimate(sum, 0, e, w->scale, &w->row, w->best, (GROUPS + 1) * GROUP);
    CHECK(range.high > range.low && (double)(range.high - range.low) < 0x1p-14 * (double)mass, "no use: %a of %a",
          (double)(range.high - range.low), (double)mass);
    return (2.0 * (double)mass - (double)range.low - (double)range.high) / (double)(range.high - range.low);
}

/* The others a little below the best, far below, and so far that they are together what it is alone. */
TEST(mass_is_in_its_range) {
    static const float temperatures[] = {1.0f, 0.8f, 0.71f, 0.3f, 1.7f, 0.05f, 1.44269504f, 6.0f};
    static const float bests[] = {0.0f, 11.3f, 29.9f, -7.7f, -28.1f, 3e-3f};
    static const float firsts[] = {0.0f, 5.0f, 31.0f, 60.0f};
    double most = 0.0;
    test_random r = {1};
    for (int t = 0; t < 8; ++t)
        for (int b = 0; b < 6; ++b)
            for (int f = 0; f < 4; ++f) {
                const weighing w = weighing_make(temperatures[t], bests[b]);
                const estimator e = estimator_make(w.scale, bests[b] - firsts[f] / w.scale.c);
                for (int64_t i = 0; i < test_amount(4000); ++i) {
                    const double place = fabs(place_in_range(&w, &e, bests[b] - 26.0f * (float)random_unit(&r) / w.scale.c));
                    if (place > most) most = place;
                }
            }
    CHECK(most <= 1.0, "beyond the range: %g of it", most);
    CHECK(most > 0.3, "the range is wider than it need be: %g of it", most);
}

TEST(nothing_is_known_beyond_the_reach) {
    const weighing w = weighing_make(1.0f, 80.0f), infinite = weighing_make(1.0f, PLUS_INF);
    const estimator e = estimator_make(w.scale, 0.0f);
    CHECK_EQ(mass_estimate(1.0, 0, &e, w.scale, &w.row, 80.0f, 1000).high, 0);
    CHECK_EQ(mass_estimate(1.0, 0, &e, w.scale, &infinite.row, PLUS_INF, 1000).high, 0);
    const weighing near = weighing_make(1.0f, 1.0f);
    CHECK_EQ(mass_estimate((double)NAN, 0, &e, w.scale, &near.row, 1.0f, 1000).high, 0);
    CHECK_EQ(mass_estimate((double)INFINITY, 0, &e, w.scale, &near.row, 1.0f, 1000).high, 0);
}

int main(void) {
    RUN(mass_is_in_its_range);
    RUN(nothing_is_known_beyond_the_reach);
    return test_report("estimate");
}
