/* more.c - docs/determinism.md, section 6: the filters of raffle_extra; and section 8: logarithms. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

int oracle_has_more(const oracle_case *g) {
    const raffle_extra *e = g->extra;
    return e && (e->top_n_sigma > 0 || e->epsilon > 0 || e->eta > 0 || (e->typical_p > 0 && e->typical_p < 1) ||
                 e->xtc_probability > 0 || e->keep_least > 1);
}

/* ---- 8. logarithms ---- */

double oracle_distance(float temperature, float M, float x) {
    if (x == M) return 0;
    if (!(temperature < 0x1p100f) && x > -INFINITY && M < INFINITY) return 0;
    return ((double)M - (double)x) / (double)temperature;
}

/* tickets * distance, summed over what passes. */
static uint64_t surprise(const entry *list, int64_t count, const weighed *w, float T, float M, cut c, uint64_t *mass) {
    uint64_t sum = 0;
    *mass = 0;
    for (int64_t i = 0; i < count; ++i) {
        uint64_t t = w->tickets[list[i].id];
        if (!oracle_passes(c, list[i].x, list[i].id) || !t) continue;
        double product = (double)t * oracle_distance(T, M, list[i].x);
        sum += (uint64_t)rint(product);
        *mass += t;
    }
    return sum;
}

/* ---- 6. filters ---- */

static float filter_temperature(const oracle_case *g) { return g->flags & RAFFLE_FILTERS_FIRST ? 1.0f : g->temperature; }

/* The threshold that keeps probabilities with at least this logarithm. */
static cut probable(const oracle_case *g, float M, double log_mass, double log_p) {
    cut made = {1, M, INT32_MAX, 0, 0};
    double above = log_p + log_mass;
    if (above >= 0) return made;
    made.least = -FLT_MAX;
    if (filter_temperature(g) < 0x1p100f) {
        double down = (double)filter_temperature(g) * above;
        made.least = oracle_at_least((double)M + down);
    }
    return made;
}

static double newton_root(double x) {
    if (!(x > 0)) return 0;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = bits / 2 + 0x1ff8000000000000ull;
    double y;
    memcpy(&y, &bits, sizeof y);
    for (int i = 0; i < 5; ++i) {
        double quotient = x / y, sum = y + quotient;
        y = 0.5 * sum;
    }
    return y;
}

static cut sigma(const oracle_case *g, const float *x, float M) {
    cut made = {1, M, INT32_MAX, 0, 0};
    if (M == INFINITY) return made;
    float least = M;
    for (int64_t i = 0; i < g->vocab; ++i)
        if (x[i] > -INFINITY && x[i] < least) least = x[i];
    double widest = (double)M - (double)least, scale = 1;
    if (widest > 0) scale = ldexp(1, 20 - ilogb(widest));
    uint64_t n = 0, sum = 0, squares = 0;
    for (int64_t i = 0; i < g->vocab; ++i) {
        if (x[i] == -INFINITY) continue;
        uint64_t d = (uint64_t)rint(((double)M - (double)x[i]) * scale);
        n += 1;
        sum += d;
        squares += d * d;
    }
    double mean = (double)sum / (double)n, square = mean * mean, variance = (double)squares / (double)n - square;
    double deviation = newton_root(variance) / scale, down = (double)g->extra->top_n_sigma * deviation;
    made.least = oracle_at_least((double)M - down);
    return made;
}

cut oracle_cut_shape(const oracle_case *g, const float *x, float M, const weighed *w) {
    const raffle_extra *e = g->extra;
    cut c = no_cut;
    if (e->top_n_sigma > 0) c = oracle_tighter(c, sigma(g, x, M));
    if (!(e->epsilon > 0 || e->eta > 0) || g->flags & RAFFLE_SHAPE_LAST) return c;
    int64_t count;
    uint64_t mass;
    entry *list = oracle_sorted(x, g->vocab, &count);
    float T = filter_temperature(g);
    uint64_t sum = surprise(list, count, w, T, M, no_cut, &mass);
    double log = oracle_log_mass(T, M, mass), mean = (double)sum / (double)mass, entropy = log + mean;
    free(list);
    if (e->epsilon > 0) c = oracle_tighter(c, probable(g, M, log, oracle_log((double)e->epsilon)));
    if (e->eta > 0) {
        double whole = oracle_log((double)e->eta), half = 0.5 * whole - entropy;
        c = oracle_tighter(c, probable(g, M, log, half < whole ? half : whole));
    }
    return c;
}

/* At least keep_least of the tokens below the upper end stay; `before` is the cut that this one started from. */
cut oracle_cut_floor(const oracle_case *g, const entry *list, int64_t count, cut c, cut before) {
    int64_t least = g->extra->keep_least, seen = 0, i = 0;
    if (least <= 1 || !c.on) return c;
    for (; i < count; ++i)
        if (!(c.capped && list[i].x > c.most) && ++seen == least) break;
    float floor = i < count ? list[i].x : -FLT_MAX;
    if (!before.on && c.least == floor && g->top_k < least) c.tie_last = INT32_MAX;
    if (!(c.least > floor)) return c;
    cut back = {1, floor, INT32_MAX, c.capped, c.most};
    if (before.on && !(floor > before.least)) back.least = before.least, back.tie_last = before.tie_last;
    return back;
}

typedef struct far {
    float distance;
    uint64_t tickets;
} far;

static int nearer(const void *left, const void *right) {
    const far *a = left, *b = right;
    return a->distance < b->distance ? -1 : a->distance > b->distance;
}

cut oracle_cut_typical(const oracle_case *g, const entry *list, int64_t count, float M, const weighed *w, cut before) {
    const raffle_extra *e = g->extra;
    float T = filter_temperature(g);
    if (!(e->typical_p > 0 && e->typical_p < 1) || oracle_ref_of(oracle_scale_of(T), M).kind == ORACLE_STEP) return before;
    uint64_t mass, sum = surprise(list, count, w, T, M, before, &mass), reached = 0;
    double mean = (double)sum / (double)mass, down = (double)T * mean;
    float center = (float)((double)M - down), radius = 0;
    far *order = malloc((size_t)count * sizeof *order);
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i)
        if (oracle_passes(before, list[i].x, list[i].id))
            order[n++] = (far){fabsf(list[i].x - center), w->tickets[list[i].id]};
    qsort(order, (size_t)n, sizeof *order, nearer);
    uint64_t target = oracle_share(e->typical_p, mass);
    for (int64_t i = 0; i < n && (reached < target || i < e->keep_least); ++i) {
        radius = order[i].distance;
        reached += order[i].tickets;
    }
    free(order);
    cut c = before;
    float low = INFINITY, high = -INFINITY;
    int over = 0;
    for (int64_t i = 0; i < count; ++i) {
        float x = list[i].x;
        if (fabsf(x - center) > radius) {
            over |= x > center;
            continue;
        }
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    cut typical = {1, low, INT32_MAX, 0, 0};
    c = oracle_tighter(c, typical);
    c.capped = over;
    c.most = high;
    return c;
}

/* One of epsilon and eta over what is left. */
static cut probable_of(const oracle_case *g, const entry *list, int64_t count, float M, const weighed *w, cut before, int eta) {
    const raffle_extra *e = g->extra;
    uint64_t mass, sum = surprise(list, count, w, filter_temperature(g), M, before, &mass);
    double log = oracle_log_mass(filter_temperature(g), M, mass), entropy = log + (double)sum / (double)mass;
    double bound = oracle_log((double)(eta ? e->eta : e->epsilon));
    if (eta && 0.5 * bound - entropy < bound) bound = 0.5 * bound - entropy;
    cut made = probable(g, M, log, bound);
    float likeliest = -INFINITY;
    for (int64_t i = count; i-- > 0;)
        if (oracle_passes(before, list[i].x, list[i].id)) likeliest = list[i].x;
    if (made.least > likeliest) made.least = likeliest;
    made = oracle_tighter(before, made);
    made.capped = before.capped;
    made.most = before.most;
    return oracle_cut_floor(g, list, count, made, before);
}

cut oracle_cut_shape_last(const oracle_case *g, const entry *list, int64_t count, float M, const weighed *w, cut before) {
    if (!(g->flags & RAFFLE_SHAPE_LAST)) return before;
    cut c = oracle_cut_typical(g, list, count, M, w, before);
    if (g->extra->epsilon > 0) c = probable_of(g, list, count, M, w, c, 0);
    if (g->extra->eta > 0) c = probable_of(g, list, count, M, w, c, 1);
    return c;
}

cut oracle_cut_xtc(const oracle_case *g, const entry *list, int64_t count, float M, const weighed *w, cut before) {
    const raffle_extra *e = g->extra;
    float threshold = e->xtc_threshold == 0 ? 0.1f : e->xtc_threshold;
    if (!(e->xtc_probability > 0) || threshold > 0.5f) return before;
    uint64_t bits[2];
    oracle_random(g->seed, g->position, 16, g->draft_step, bits);
    if (!((double)(bits[0] >> 32) < ldexp((double)e->xtc_probability, 32))) return before;
    uint64_t mass = 0;
    for (int64_t i = 0; i < count; ++i)
        if (oracle_passes(before, list[i].x, list[i].id)) mass += w->tickets[list[i].id];
    float least = -FLT_MAX;
    if (threshold > 0) least = probable(g, M, oracle_log_mass(filter_temperature(g), M, mass), oracle_log((double)threshold)).least;
    float last = INFINITY; /* the least likely of the likely */
    int64_t larger = 0, rest = 0;
    for (int64_t i = 0; i < count; ++i)
        if (oracle_passes(before, list[i].x, list[i].id) && list[i].x >= least) last = list[i].x;
    for (int64_t i = 0; i < count; ++i) {
        if (!oracle_passes(before, list[i].x, list[i].id)) continue;
        if (list[i].x > last) ++larger;
        else ++rest;
    }
    if (!larger || rest < (e->keep_least > 1 ? e->keep_least : 1)) return before;
    cut c = before;
    c.capped = 1;
    c.most = last;
    return c;
}
