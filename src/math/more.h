/* more.h - the filters of a raffle_extra: top-n-sigma, epsilon, eta, typical-p, XTC and keep_least. Part of cut.h. Each
 * ends as a bound on the logit, so that a row has one cut in the end. docs/determinism.md, section 6. */
#ifndef RAFFLE_MATH_MORE_H
#define RAFFLE_MATH_MORE_H

#include "spread.h"

/* keep_least: a cut that went above `floor` goes back to it, but not below `before`. */
RAFFLE_FN cut cut_floor(cut c, float floor, cut before) {
    if (!(c.low > floor)) return c;
    c.low = floor > before.low ? floor : before.low;
    c.tie_last = floor > before.low ? INT32_MAX : before.tie_last;
    return c;
}

/* The smallest logit of tokens whose probability has at least this logarithm, `log` being log_level; at most the best. */
RAFFLE_FN float probability_low(const rules *r, const weighing *w, double log, double least) {
    double above = least + log; /* nats above the best, mostly below 0 */
    if (!(above < 0.0)) return w->best;
    if (w->scale.flat) return -FLT_MAX;
    float low = float_at_least((double)w->best + (double)r->filter_temperature * above);
    return low > -FLT_MAX ? low : -FLT_MAX;
}

/* The smallest logit that stays if the `count` largest do; -FLT_MAX if there are fewer. Overwrites the list. */
CUT_FN float keep_floor(work *k, const row_params *p, const weighing *w, uint64_t count) {
    listing l;
    quest q = {count, 0};
    return row_threshold(k, p, w, q, (int64_t)count, 0, &l);
}

CUT_FN float sigma_low(work *k, float factor, float best) {
    if (best == PLUS_INF) return best;
    double scale = moments_scale(best, CALL(k, least, -FLT_MAX));
    moments m = CALL(k, moments_of, best, scale);
    float low = float_at_least((double)best - (double)factor * standard_deviation(&m, scale));
    return low > -FLT_MAX ? low : -FLT_MAX;
}

RAFFLE_FN float epsilon_low(const row_params *p, const rules *r, const weighing *w, double log) {
    return probability_low(r, w, log, natural_log((double)p->more.epsilon));
}

/* min(eta, sqrt(eta) exp(-entropy)), as logarithms. */
RAFFLE_FN float eta_low(const row_params *p, const rules *r, const weighing *w, double log, uint64_t surprise, uint64_t mass) {
    double whole = natural_log((double)p->more.eta), entropy = log + (double)surprise / (double)mass;
    double half = 0.5 * whole - entropy;
    return probability_low(r, w, log, half < whole ? half : whole);
}

/* The largest of the bounds of top-n-sigma, epsilon and eta, each looking at the whole row. */
CUT_FN float shape_low(work *k, const row_params *p, const rules *r, const weighing *w) {
    const row_filters *f = &p->more;
    float low = -FLT_MAX, next;
    if (f->top_n_sigma > 0.0f) low = sigma_low(k, f->top_n_sigma, w->best);
    if (!(f->epsilon > 0.0f || f->eta > 0.0f) || r->late & LATE_SHAPE) return low;
    uint64_t mass = 0, surprise = 0;
    if (f->eta > 0.0f) surprise = CALL(k, surprise, w, r->filter_temperature, cut_from(-FLT_MAX), &mass);
    else mass = CALL(k, weigh_kept, w, cut_from(-FLT_MAX));
    double log = log_level(w->best, &w->row, mass);
    if (f->epsilon > 0.0f) {
        next = epsilon_low(p, r, w, log);
        low = next > low ? next : low;
    }
    if (f->eta > 0.0f) {
        next = eta_low(p, r, w, log, surprise, mass);
        low = next > low ? next : low;
    }
    return low;
}

/* ---- typical-p -------------------------------------------------------------------------------------- */

/* Keeps the logits whose distance from `center` is at most `radius`: they are neighbours. */
RAFFLE_FN cut typical_within(cut c, float center, float radius, float best) {
    uint32_t out = order_of(-FLT_MAX) - 1, in = order_of(center); /* the lowest that stays is between */
    while (in - out > 1) {
        uint32_t middle = out + (in - out) / 2;
        if (typical_distance(float_of_order(middle), center) <= radius) in = middle;
        else out = middle;
    }
    c = cut_raise(c, float_of_order(in));
    if (typical_distance(best, center) <= radius) return c;
    in = order_of(center), out = order_of(best);
    while (out - in > 1) {
        uint32_t middle = in + (out - in) / 2;
        if (typical_distance(float_of_order(middle), center) <= radius) in = middle;
        else out = middle;
    }
    c.capped = 1;
    c.high = float_of_order(in);
    return c;
}

/* *floor, of keep_least, becomes that of what is left below the upper end; *l then is no longer there. */
CUT_FN cut typical_cut(work *k, const row_params *p, const rules *r, const weighing *w, cut c, float *floor, listing *l) {
    if (w->scale.flat || w->row.kind == REF_STEP) return c; /* all that have tickets are as likely as each other */
    uint64_t mass = 0, surprise = CALL(k, surprise, w, r->filter_temperature, c, &mass);
    double mean = (double)surprise / (double)mass; /* nats below the best */
    float center = (float)((double)w->best - (double)r->filter_temperature * mean);
    quest q = {share_of(p->more.typical_p, mass), 1}, least = {(uint64_t)p->more.keep_least, 0};
    float radius = CALL(k, radius, w, c, center, q);
    if (p->more.keep_least > 1) {
        float wider = CALL(k, radius, w, c, center, least);
        radius = wider > radius ? wider : radius;
    }
    cut within = typical_within(c, center, radius, w->best);
    within.low = CALL(k, least, within.low); /* both ends are logits that it keeps */
    if (within.capped) within.high = CALL(k, most, within.high);
    if (within.capped && p->more.keep_least > 1) {
        uint64_t over = CALL(k, count, cut_from(just_above(within.high)));
        *floor = keep_floor(k, p, w, (uint64_t)p->more.keep_least + over);
        l->complete = 0;
    }
    return within;
}

/* ---- RAFFLE_SHAPE_LAST ------------------------------------------------------------------------------- */

/* Raises a cut to a bound of epsilon or eta, but keeps its likeliest token, and keep_least of them. */
RAFFLE_FN cut likely_cut(cut c, float low, float floor, float best) {
    const float most = c.capped ? c.high : best;
    return cut_floor(cut_raise(c, low < most ? low : most), floor, c);
}

/* typical-p, epsilon and eta in turn, each over what is left and its mass. */
CUT_FN cut shape_last_cut(work *k, const row_params *p, const rules *r, const weighing *w, cut c, float floor, listing *l) {
    uint64_t mass = 0;
    if (typical_on(p)) c = typical_cut(k, p, r, w, c, &floor, l);
    if (p->more.epsilon > 0.0f) {
        mass = CALL(k, weigh_kept, w, c);
        c = likely_cut(c, epsilon_low(p, r, w, log_level(w->best, &w->row, mass)), floor, w->best);
    }
    if (p->more.eta > 0.0f) {
        const uint64_t surprise = CALL(k, surprise, w, r->filter_temperature, c, &mass);
        c = likely_cut(c, eta_low(p, r, w, log_level(w->best, &w->row, mass), surprise, mass), floor, w->best);
    }
    return c;
}

/* ---- XTC --------------------------------------------------------------------------------------------- */

CUT_FN cut xtc_cut(work *k, const row_params *p, const rules *r, const weighing *w, cut c) {
    uint32_t chance = (uint32_t)(philox_step(p->seed, p->position, STREAM_XTC, p->draft_step).low >> 32);
    if (!((double)chance < (double)p->more.xtc_probability * 4294967296.0)) return c;
    double log = log_level(w->best, &w->row, CALL(k, weigh_kept, w, c));
    float threshold = p->more.xtc_threshold;
    float low = threshold > 0.0f ? probability_low(r, w, log, natural_log((double)threshold)) : -FLT_MAX;
    float last = CALL(k, least, low > c.low ? low : c.low); /* the least likely of the likely */
    cut larger = c, rest = c;
    larger.low = just_above(last);
    larger.tie_last = INT32_MAX;
    rest.capped = 1;
    rest.high = last;
    if (!(last < w->best) || (c.capped && last > c.high) || !CALL(k, count, larger)) return c;
    uint64_t least = p->more.keep_least > 1 ? (uint64_t)p->more.keep_least : 1;
    return CALL(k, count, rest) < least ? c : rest;
}

#endif
