/* estimate.c - the range in which a row's mass lies by its estimates, for rows made so that the errors of all tokens add up: one
 * token, and thousands of another value, wherever between two powers of two the polynomial is worst. Sums are exact here: the range
 * is the one of no additions. Estimates are those of every instruction set that the machine has. */
#include <math.h>
#include <stdlib.h>

#include "../common/test.h"
#include "vec_one.h"

#include "cut_types.h"
#include "detect.h"
#include "estimate.h"
#include "estimate_lanes.h"

enum { GROUPS = 4096 };

/* The others of this machine are NULL. */
static estimate_lanes *lanes_of(raffle_isa isa) {
    if (!raffle_isa_available(isa)) return NULL;
    switch (isa) {
    case RAFFLE_ISA_SCALAR: return estimate_lanes_one;
#if defined(__x86_64__)
    case RAFFLE_ISA_AVX2: return estimate_lanes_avx2;
    case RAFFLE_ISA_AVX512: return estimate_lanes_avx512;
#elif defined(__aarch64__)
    case RAFFLE_ISA_NEON: return estimate_lanes_neon;
#endif
    default: return NULL;
    }
}

static uint64_t weight_under(const ref *f, float x) {
    uint32_t lane[V_LANES];
    v_store_u(lane, v_weigh(v_set(x), f));
    return lane[0];
}

/* A group with `best` alone, and GROUPS full of *x: how far the exact mass is from the middle of its range by their estimates, 1 at the
 * ends. */
static double mass_off(const weighing *w, const estimator *e, const float *x, float best_estimate, const float *estimate) {
    const group_ref r = group_ref_make(w, *x);
    const uint64_t others = GROUPS * tickets_of(GROUP * weight_under(&r.ref, *x), r.below);
    const uint64_t mass = tickets_of(weight_under(&w->row, w->best), 0) + others;
    const double sum = (double)best_estimate + (double)(GROUPS * GROUP) * (double)*estimate;
    const mass_range range = mass_estimate(sum, 0, e, w->scale, &w->row, w->best, (GROUPS + 1) * GROUP);
    CHECK(range.high > range.low && (double)(range.high - range.low) < 0x1p-14 * (double)mass, "no use: %a of %a",
          (double)(range.high - range.low), (double)mass);
    return fabs(2.0 * (double)mass - (double)range.low - (double)range.high) / (double)(range.high - range.low);
}

/* Half of the groups full of x[0], half of x[1]: how far the first are off by their estimates, 1 where estimate_off ends. A draw takes a
 * part of a row for what it is estimated at (row_draw_estimated). */
static double part_off(const weighing *w, const estimator *e, const float *x, float best_estimate, const float *estimate) {
    enum { HALF = GROUPS / 2 };
    const group_ref r = group_ref_make(w, x[0]);
    const uint64_t tickets = HALF * tickets_of(GROUP * weight_under(&r.ref, x[0]), r.below);
    const double part = (double)(HALF * GROUP) * (double)estimate[0];
    const double sum = (double)best_estimate + part + (double)(HALF * GROUP) * (double)estimate[1];
    const mass_range range = mass_estimate(sum, 0, e, w->scale, &w->row, w->best, (GROUPS + 1) * GROUP);
    const estimate_error off = estimate_off(0, e, &w->row, w->best, (GROUPS + 1) * GROUP);
    const double unit = 0.5 * ((double)range.high + (double)range.low) / sum;
    return fabs(part * unit - (double)tickets) / ((off.own * part + off.all * sum) * unit);
}

static double margin_part(double chance, double before, double sum, estimate_error off) {
    return fabs(chance * sum - before) / border_margin(chance, before, sum, off);
}

/* Of a row of groups full of x[0] and others full of x[1], or each with one of the larger and 255 of the smaller value: how far top-p's
 * share of those above the smaller value is off, by tickets of tokens and the row's mass. 1: where the margin ends. */
static double share_off(const weighing *w, const estimator *e, const float *x, float best_estimate, const float *estimate) {
    const int high = x[1] > x[0];
    const group_ref r = group_ref_make(w, x[high]), s = group_ref_make(w, x[!high]);
    const uint64_t best = weight_under(&w->row, w->best);
    const uint64_t one = weight_under(&r.ref, x[high]), other = weight_under(&s.ref, x[!high]);
    const estimate_error off = estimate_off_tokens(0, e, &w->row, w->best, (2 * GROUPS + 1) * GROUP);
    double most = 0.0;
    for (int mixed = 0; mixed < 2; ++mixed) {
        const uint64_t larger = mixed ? 1 : GROUP, smaller = mixed ? GROUP - 1 : GROUP;
        const uint64_t above = tickets_of(best, 0) + GROUPS * larger * tickets_of(one, r.below);
        const uint64_t mass = tickets_of(best, 0) + (mixed ? GROUPS * tickets_of(one + smaller * weight_under(&r.ref, x[!high]), r.below)
                                                          : GROUPS * (tickets_of(GROUP * one, r.below) + tickets_of(GROUP * other, s.below)));
        const double over = (double)best_estimate + (double)(GROUPS * larger) * (double)estimate[high];
        const double sum = over + (double)(GROUPS * smaller) * (double)estimate[!high];
        most = fmax(most, margin_part((double)above / (double)mass, over, sum, off));
    }
    return most;
}

/* Of tokens that are kept, half of the groups full of x[0], half of x[1], by tickets of tokens: how far the border between them is off. */
static double kept_off(const weighing *w, const estimator *e, const float *x, float best_estimate, const float *estimate) {
    const estimate_error off = estimate_off_tokens(0, e, &w->row, w->best, (2 * GROUPS + 1) * GROUP);
    double held[2], size[2];
    for (int n = 0; n < 2; ++n) {
        const group_ref r = group_ref_make(w, x[n]);
        held[n] = (double)(GROUPS * GROUP) * (double)tickets_of(weight_under(&r.ref, x[n]), r.below);
        size[n] = (double)(GROUPS * GROUP) * (double)estimate[n];
    }
    held[0] += (double)tickets_of(weight_under(&w->row, w->best), 0);
    size[0] += (double)best_estimate;
    return margin_part(held[0] / (held[0] + held[1]), size[0], size[0] + size[1], off);
}

typedef double off_function(const weighing *, const estimator *, const float *x, float best_estimate, const float *estimate);

/* The farthest of LANES_TOKENS - 2 rows, each with other values. */
static double farthest_off(estimate_lanes *lanes, const weighing *w, const estimator *e, test_random *r, off_function *off_of) {
    float x[LANES_TOKENS], y[LANES_TOKENS];
    double most = 0.0;
    x[0] = w->best;
    for (int i = 1; i < LANES_TOKENS; ++i) x[i] = w->best - 26.0f * (float)random_unit(r) / w->scale.c;
    lanes(e, x, y);
    for (int i = 1; i + 1 < LANES_TOKENS; ++i) {
        const double off = off_of(w, e, x + i, y[0], y + i);
        if (!(off <= most)) most = off;
    }
    return most;
}

/* The others a little below the best, far below, and so far that they are together what it is alone. */
static void check_ranges(raffle_isa isa, off_function *off_of, double least) {
    static const float temperatures[] = {1.0f, 0.8f, 0.71f, 0.3f, 1.7f, 0.05f, 1.44269504f, 6.0f};
    static const float bests[] = {0.0f, 11.3f, 29.9f, -7.7f, -28.1f, 3e-3f};
    static const float firsts[] = {0.0f, 5.0f, 31.0f, 60.0f};
    estimate_lanes *const lanes = lanes_of(isa);
    double most = 0.0;
    test_random r = {1};
    for (int t = 0; t < 8; ++t)
        for (int b = 0; b < 6; ++b)
            for (int f = 0; f < 4; ++f) {
                const weighing w = weighing_make(temperatures[t], bests[b]);
                const estimator e = estimator_make(w.scale, bests[b] - firsts[f] / w.scale.c);
                for (int64_t i = 0; i < test_amount(32); ++i) {
                    const double off = farthest_off(lanes, &w, &e, &r, off_of);
                    if (!(off <= most)) most = off;
                }
            }
    CHECK(most <= 1.0, "%s: beyond the range: %g of it", raffle_isa_name(isa), most);
    CHECK(most > least, "%s: the range is wider than it need be: %g of it", raffle_isa_name(isa), most);
}

TEST(mass_is_in_its_range) {
    for (raffle_isa isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa)
        if (lanes_of(isa)) check_ranges(isa, mass_off, 0.3);
}

TEST(parts_of_it_are_off_by_no_more) {
    for (raffle_isa isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa)
        if (lanes_of(isa)) check_ranges(isa, part_off, 0.3);
}

TEST(shares_are_off_by_no_more) {
    for (raffle_isa isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa)
        if (lanes_of(isa)) check_ranges(isa, share_off, 0.15);
}

TEST(what_is_kept_is_off_by_no_more) {
    for (raffle_isa isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa)
        if (lanes_of(isa)) check_ranges(isa, kept_off, 0.15);
}

/* What is not allowed is -inf, and NaN is as good as that; or with AVX-512 stays NaN, and so does the sum. */
TEST(minus_inf_and_nan_weigh_nothing) {
    const scale s = scale_make(0.8f);
    const estimator e = estimator_make(s, 3.0f);
    for (raffle_isa isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa) {
        estimate_lanes *const lanes = lanes_of(isa);
        if (!lanes) continue;
        for (int i = 0; i < LANES_TOKENS; ++i) {
            float x[LANES_TOKENS], y[LANES_TOKENS];
            for (int j = 0; j < LANES_TOKENS; ++j) x[j] = j == i ? MINUS_INF : j == (i + 1) % LANES_TOKENS ? NAN : 3.0f;
            lanes(&e, x, y);
            const float not = y[(i + 1) % LANES_TOKENS], one = y[(i + 2) % LANES_TOKENS];
            CHECK(y[i] >= 0.0f && y[i] <= 0x1p-58f * one, "%s: -inf is %a of %a", raffle_isa_name(isa), (double)y[i], (double)one);
            CHECK(isa == RAFFLE_ISA_AVX512 ? not != not : not == y[i], "%s: NaN is %a", raffle_isa_name(isa), (double)not);
        }
    }
}

/* What is estimated at `before`, `held` and `behind` may be any of these; a draw that settles lies in the middle one in every case, and
 * one that does not is next to a border. */
TEST(settled_draws_stay_where_they_are) {
    test_random r = {7};
    int64_t settled = 0, open = 0;
    for (int64_t i = 0; i < test_amount(400000); ++i) {
        const estimate_error off = {random_below(&r, 2) ? 2e-6 : 1e-3, random_below(&r, 2) ? 1e-9 : 1e-4};
        const double before = random_below(&r, 8) ? random_unit(&r) : 0.0, held = random_unit(&r) * (random_below(&r, 2) ? 1.0 : 1e-3);
        const double behind = random_below(&r, 8) ? random_unit(&r) : 0.0, sum = before + held + behind;
        const double border = random_below(&r, 2) ? before : before + held, most = 3.0 * (off.own + off.all);
        double chance = random_below(&r, 4) ? border / sum + (2.0 * random_unit(&r) - 1.0) * most : random_unit(&r);
        if (!(chance >= 0.0 && chance < 1.0)) continue;
        if (!draw_settles(chance, before, before + held, sum, off)) {
            const double away = fmin(fabs(chance - before / sum), fabs(chance - (before + held) / sum));
            const int inside = chance > before / sum && chance < (before + held) / sum;
            CHECK(!inside || away <= off.own + off.all, "%g is %g from a border", chance, away);
            open += inside;
            continue;
        }
        ++settled;
        for (int signs = 0; signs < 8; ++signs) { /* each part off as far as it may, together by no more than `all` of the sum */
            const double sign[3] = {signs & 1 ? 1.0 : -1.0, signs & 2 ? 1.0 : -1.0, signs & 4 ? 1.0 : -1.0};
            for (int who = 0; who < 3; ++who) {
                const double p = before + sign[0] * (off.own * before + (who == 0 && before > 0.0 ? off.all * sum : 0.0));
                const double h = held + sign[1] * (off.own * held + (who == 1 ? off.all * sum : 0.0));
                const double q = behind + sign[2] * (off.own * behind + (who == 2 && behind > 0.0 ? off.all * sum : 0.0));
                const double at = chance * (p + h + q);
                CHECK(at >= p * (1.0 - 1e-15) && at < (p + h) * (1.0 + 1e-15), "chance %.17g: %g, %g, %g", chance, before, held, behind);
            }
        }
    }
    CHECK(settled > test_amount(10000) && open > test_amount(1000), "%d settled, %d open", (int)settled, (int)open);
}

/* What is estimated at `above` and `rest` may be any of these; a share that settles is on the same side in every case, and one that does
 * not is next to the border. */
TEST(settled_shares_stay_where_they_are) {
    test_random r = {11};
    int64_t settled[2] = {0, 0}, open = 0;
    for (int64_t i = 0; i < test_amount(400000); ++i) {
        const estimate_error off = {random_below(&r, 2) ? 2e-6 : 1e-3, random_below(&r, 2) ? 1e-9 : 1e-4};
        const double above = random_unit(&r), rest = random_unit(&r) * (random_below(&r, 2) ? 1.0 : 1e-2), sum = above + rest;
        const double most = random_below(&r, 4) ? 3.0 * (off.own + off.all) : 0.5;
        const double share = above / sum + (2.0 * random_unit(&r) - 1.0) * most;
        if (!(share > 0.0 && share < 1.0)) continue;
        const int stays = share_settles(share, above, sum, off);
        if (stays < 0) {
            CHECK(fabs(share - above / sum) <= off.own + off.all, "%g is %g from the border", share, fabs(share - above / sum));
            ++open;
            continue;
        }
        ++settled[stays];
        for (int worst = 0; worst < 4; ++worst) { /* each part off as far as it may, together by no more than `all` of the sum */
            const double sign = worst & 1 ? 1.0 : -1.0, all[2] = {worst & 2 ? off.all * sum : 0.0, worst & 2 ? 0.0 : off.all * sum};
            const double a = above + sign * (off.own * above + all[0]), b = rest - sign * (off.own * rest + all[1]);
            CHECK(stays ? a < share * (a + b) * (1.0 + 1e-15) : a >= share * (a + b) * (1.0 - 1e-15), "share %.17g: %g, %g", share, a, b);
        }
    }
    const estimate_error none = {1.0, 1.0}, exact = {0.0, 0.0};
    CHECK_EQ(share_settles(0.5, 0.1, 1.0, none), -1);
    CHECK_EQ(share_settles(0.5, 0.5, 1.0, exact), 0); /* what is above must be less than the share */
    CHECK_EQ(share_settles(0.5, (double)NAN, 1.0, exact), -1);
    CHECK(settled[0] > test_amount(10000) && settled[1] > test_amount(10000) && open > test_amount(1000), "%d, %d settled, %d open",
          (int)settled[0], (int)settled[1], (int)open);
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
    RUN(parts_of_it_are_off_by_no_more);
    RUN(shares_are_off_by_no_more);
    RUN(what_is_kept_is_off_by_no_more);
    RUN(minus_inf_and_nan_weigh_nothing);
    RUN(settled_draws_stay_where_they_are);
    RUN(settled_shares_stay_where_they_are);
    RUN(nothing_is_known_beyond_the_reach);
    return test_report("estimate");
}
