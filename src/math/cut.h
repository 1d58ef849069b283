/* cut.h - the stages of a row after its first reading: filters to one threshold, then the draw. Written over
 * the loops of a backend (`work`), which both backends provide under the same names; on a GPU all threads of a
 * block walk through this together and every value here is the same in all of them.
 *
 * CALL(k, name, ...) calls a loop of the backend: in C a function pointer of the struct `work` that it defines
 * before including this file, in CUDA a member function. The loops:
 *     listing list(w, low, high)     lists the tokens with low < logit <= high
 *     listing sketch(w)              lists about GUESS_TOKENS tokens spread over the row
 *     int guessed(w, q, mass, low, high)  whether there is a better guess than a sketch: (low, high] probably holds a threshold
 *     uint64_t weigh(w)              mass of the row; keeps each group's tickets
 *     uint64_t share_mass(w)         in C only: the row's mass, or any other of which top-p's share leads to the same threshold where
 *                                    nothing is cut before; may keep no tickets
 *     uint64_t weigh_kept(w, c)      mass of the set a cut keeps; keeps each group's tickets
 *     float peak_bound(count, best)  a value that at least `count` tokens reach; -FLT_MAX if it knows none
 *     int32_t tie(value, count)      id of the count-th token equal to value; INT32_MAX if there are fewer
 *     float list_threshold(l, q)     smallest value whose amount above is below the quest's target
 *     uint64_t list_tickets(l, c)    tickets of the listed tokens that a cut keeps
 *     uint64_t list_larger(l, x)     listed tokens above x
 *     int32_t draw_list(l, c, bits, &n)  the token drawn by ticket n of the listed ones that a cut keeps, in whose stretch by `bits`; n becomes
 *                                    the ticket it holds (not on CUDA)
 *     int32_t draw_group(w, c, whole, bits, &n)  the same by the tickets that weigh (whole) or weigh_kept left
 *     int32_t propose(w, bits, &n, &x)  the same by those of weigh, but in its group by those of tokens; x becomes its logit, n which of its
 *                                    tickets was drawn (not on CUDA). RULE_NO_TOKEN if no token has that ticket
 * and for the filters of more.h, which few rows have:
 *     float least(low)               smallest logit that is not below `low`; +inf if there is none
 *     float most(high)               largest logit that is not above `high`; -inf if there is none
 *     uint64_t count(c)              tokens that a cut keeps
 *     moments moments_of(best, scale)
 *     uint64_t surprise(w, t, c, mass)  surprises of what a cut keeps, and its mass
 *     float radius(w, c, center, q)  smallest |x - center| up to which what the cut keeps reaches the target
 *     float cap(high)                forgets tokens above `high`: makes each group's maximum, and returns the row's
 */
#ifndef RAFFLE_MATH_CUT_H
#define RAFFLE_MATH_CUT_H

#if defined(__CUDACC__)
#define CUT_FN template <class work> static __device__ __noinline__
#define CALL(k, name, ...) (k)->name(__VA_ARGS__)
#define SHARE_MASS(k, w, c) CALL(k, weigh, w)
#else
#define CUT_FN static
#define CALL(k, name, ...) (k)->loops->name((k), __VA_ARGS__)
#define SHARE_MASS(k, w, c) (cut_keeps_all(c) ? CALL(k, share_mass, w) : CALL(k, weigh, w))
#endif

#include <stdint.h>

#include "cut_types.h"
#include "logarithm.h"
#include "order.h"
#include "share.h"

/* What min-p keeps: exp((x - best) / T) >= min_p, that is x >= best + reach. */
RAFFLE_FN double min_p_reach(const row_params *p, const rules *r) {
    return (double)r->filter_temperature * natural_log((double)p->min_p);
}
RAFFLE_FN float min_p_low(const row_params *p, double reach, float best) {
    if (!(p->min_p < 1.0f)) return best;
    if (p->temperature == LINEAR_TEMPERATURE) return float_at_least((double)p->min_p * (double)best); /* exact */
    float low = float_at_least((double)best + reach);
    return low > -FLT_MAX ? low : -FLT_MAX;
}

/* ---- thresholds ------------------------------------------------------------------------------------ */

RAFFLE_FN uint64_t listing_above(const listing *l, quest q) { return q.in_tickets ? l->above_tickets : l->above_count; }
RAFFLE_FN uint64_t listing_with(const listing *l, quest q) {
    return q.in_tickets ? l->above_tickets + l->tickets : l->above_count + l->count;
}

/* Whether the threshold of a quest lies among the listed tokens. */
RAFFLE_FN int listing_answers(const listing *l, quest q) {
    return l->complete && listing_above(l, q) < q.target && listing_with(l, q) >= q.target;
}

/* Narrows (low, high] to where the threshold probably lies, judging by a sketch of the row. */
CUT_FN void guess_threshold(work *k, const row_params *p, const weighing *w, quest q, uint64_t mass, float *low,
                               float *high) {
    listing sketch = CALL(k, sketch, w);
    double share = (double)sketch.count / (double)p->vocab, wanted, slack;
    if (q.in_tickets) { /* estimated from below the threshold, where no single token weighs much */
        double under = (double)(mass - q.target) * share;
        wanted = (double)sketch.tickets - under;
        slack = GUESS_SLACK * under;
    } else {
        wanted = (double)q.target * share;
        slack = 0.1 * wanted + 24.0;
    }
    quest more = {(uint64_t)(wanted + slack > 1.0 ? wanted + slack : 1.0), q.in_tickets};
    quest less = {(uint64_t)(wanted - slack > 1.0 ? wanted - slack : 1.0), q.in_tickets};
    *low = just_below(CALL(k, list_threshold, &sketch, more));
    *high = CALL(k, list_threshold, &sketch, less);
    /* Tokens that all fit into a list need not be told apart. */
    if (!q.in_tickets && q.target * 2 < (uint64_t)sketch.room) *high = PLUS_INF;
}

/* Narrows (low, high] of a list that has overflown, judging by the tokens it could hold. */
CUT_FN void refine_threshold(work *k, const listing *l, quest q, float *low, float *high) {
    listing part = *l;
    cut all = cut_from(-FLT_MAX);
    part.count = (uint64_t)l->room;
    part.above_count = part.above_tickets = 0;
    part.tickets = CALL(k, list_tickets, &part, all);
    double inside = q.in_tickets ? (double)l->tickets : (double)l->count;
    double listed = q.in_tickets ? (double)part.tickets : (double)part.count;
    double wanted = (double)(q.target - listing_above(l, q)) / inside * listed, slack = 0.06 * listed;
    quest more = {(uint64_t)(wanted + slack > 1.0 ? wanted + slack : 1.0), q.in_tickets};
    quest less = {(uint64_t)(wanted - slack > 1.0 ? wanted - slack : 1.0), q.in_tickets};
    float above = CALL(k, list_threshold, &part, less);
    *low = just_below(CALL(k, list_threshold, &part, more));
    *high = above < *high ? above : *high;
}

/* The threshold of a quest: the smallest logit that stays, or -FLT_MAX if all do. The tokens of the `first`
 * largest groups are tried first, and of four times as many if that came near. On return *l is the last list made. */
CUT_FN float row_threshold(work *k, const row_params *p, const weighing *w, quest q, int64_t first, uint64_t mass,
                              listing *l) {
    float low = MINUS_INF, high = w->best, guess_low, guess_high;
    int tries = 0, guessed = CALL(k, guessed, w, q, mass, &guess_low, &guess_high);
    for (int64_t count = first; !guessed && count <= 4 * first; count *= 4) {
        float bound = CALL(k, peak_bound, count, w->best);
        if (!(bound > -FLT_MAX)) break;
        *l = CALL(k, list, w, just_below(bound), PLUS_INF);
        if (listing_answers(l, q)) return CALL(k, list_threshold, l, q);
        if (listing_with(l, q) < q.target / 2 || listing_with(l, q) >= q.target) break;
    }
    /* low and high close in on the threshold: the amount above low is >= target, above high < target. */
    if (!guessed) guess_threshold(k, p, w, q, mass, &guess_low, &guess_high);
    for (;;) {
        *l = CALL(k, list, w, guess_low, guess_high);
        if (listing_answers(l, q)) return CALL(k, list_threshold, l, q);
        if (listing_above(l, q) >= q.target) {
            low = guess_high;
        } else if (listing_with(l, q) < q.target) { /* everything down to guess_low stays */
            if (guess_low == MINUS_INF) return -FLT_MAX;
            high = guess_low;
        } else { /* inside, but too many for the list: the part that did fit shows where to look */
            if (l->least == l->most) return l->least;
            low = just_below(l->least);
            high = l->most;
            if (tries++ < 4) {
                refine_threshold(k, l, q, &guess_low, &guess_high);
                if (!(guess_low > low) && !(guess_high < high)) guess_low = just_below(high); /* a few values of many tokens: the largest alone */
                continue;
            }
        }
        if (guessed) { /* it was wrong */
            guessed = 0;
            guess_threshold(k, p, w, q, mass, &guess_low, &guess_high);
            if (guess_low < low) guess_low = low;
            if (guess_high > high && high < w->best) guess_high = high;
            if (guess_low < guess_high) continue;
        }
        uint32_t a = order_of(low), b = order_of(high);
        if (b - a <= 1) return high;
        guess_low = float_of_order(a + (b - a) / 2);
        guess_high = high;
    }
}

RAFFLE_FN cut cut_raise(cut c, float low) {
    if (!(low > c.low)) return c;
    c.low = low;
    c.tie_last = INT32_MAX;
    return c;
}

/* Whether the list holds every token that the cut keeps. */
RAFFLE_FN int listing_covers(const listing *l, cut c) { return l->complete && l->high == PLUS_INF && l->low < c.low; }

#if CUT_MORE
#include "more.h"
#endif

/* All filters as one cut. On return *l may cover what is kept. */
CUT_FN cut row_cut(work *k, const row_params *p, const rules *r, const weighing *w, listing *l) {
    cut c = cut_from(-FLT_MAX);
#if CUT_MORE
    float floor = PLUS_INF; /* of keep_least */
    if (p->more.keep_least > 1) floor = keep_floor(k, p, w, (uint64_t)p->more.keep_least);
    if (r->shape) c = cut_raise(c, shape_low(k, p, r, w));
#endif
    if (r->min_p_first) {
        c = cut_raise(c, min_p_low(p, min_p_reach(p, r), w->best));
        *l = CALL(k, list, w, just_below(c.low), PLUS_INF);
    }
    if (r->top_k && !(r->min_p_first && l->count <= (uint64_t)p->top_k)) {
        quest q = {(uint64_t)p->top_k, 0};
        float low = r->min_p_first && listing_answers(l, q) ? CALL(k, list_threshold, l, q)
                                                            : row_threshold(k, p, w, q, p->top_k, 0, l);
        c = cut_raise(c, low);
        if (p->flags & RULE_TOP_K_EXACT && c.low == low) {
            if (!(l->complete && l->low < low)) *l = CALL(k, list, w, low, PLUS_INF);
            uint64_t larger = l->complete ? l->above_count + CALL(k, list_larger, l, low) : l->count;
            c.tie_last = CALL(k, tie, low, (uint64_t)p->top_k - larger);
        }
    }
#if CUT_MORE
    if (c.low == floor && p->top_k < p->more.keep_least) c.tie_last = INT32_MAX; /* fewer than those that stay */
    c = cut_floor(c, floor, cut_from(-FLT_MAX));
    if (r->typical) c = typical_cut(k, p, r, w, c, &floor, l);
    const cut before = c;
#endif
    if (r->top_p) {
        int listed = (r->top_k || r->min_p_first) && listing_covers(l, c);
        uint64_t held = listed ? CALL(k, list_tickets, l, c) : 0;
        uint64_t mass = r->row_mass ? SHARE_MASS(k, w, c) : listed ? held : CALL(k, weigh_kept, w, c);
        quest q = {share_of(p->top_p, mass), 1};
        uint64_t over = c.capped ? CALL(k, weigh_kept, w, cut_from(just_above(c.high))) : 0; /* larger, but cut */
        if (listed) { /* only listed tokens can stay */
            listing kept = *l;
            const int reached = held >= q.target;
            kept.low = just_below(c.low);
            q.target += over;
            if (reached) c = cut_raise(c, CALL(k, list_threshold, &kept, q));
        } else {
            q.target += over;
            c = cut_raise(c, row_threshold(k, p, w, q, TOP_P_FIRST, mass + over, l));
        }
    }
    if (r->min_p_last) c = cut_raise(c, min_p_low(p, min_p_reach(p, r), c.capped ? c.high : w->best));
#if CUT_MORE
    c = cut_floor(c, floor, before);
    if (r->late & LATE_SHAPE) c = shape_last_cut(k, p, r, w, c, floor, l);
    if (r->late & LATE_XTC) c = xtc_cut(k, p, r, w, c);
#endif
    return c;
}

/* ---- the whole way of a row whose largest logit is known -------------------------------------------- */

/* The token of top-p alone, without its threshold: drawn from the whole row until one is met that stays, the tickets above it being fewer
 * than top-p's share. That is at least every other one: so this costs little more than a draw without filters, however many tokens stay. Leaves
 * the token, which of its own tickets was drawn, and the tickets of the row. */
CUT_FN void row_propose(work *k, const row_params *p, const weighing *w, answer *a) {
    float most_cut = MINUS_INF;
    for (uint32_t j = 0; j < PROPOSALS; ++j) {
        const philox_pair bits = proposal_bits(p, j);
        float x = MINUS_INF;
        a->draw_tickets = CALL(k, weigh, w);
        a->drawn = mul_high(bits.low, a->draw_tickets);
        a->token = CALL(k, propose, w, bits.high, &a->drawn, &x);
        if (!(x > most_cut)) continue; /* no token, too */
        if (x == w->best || CALL(k, weigh_kept, w, cut_from(just_above(x))) < share_of(p->top_p, a->draw_tickets)) return;
        most_cut = x;
    }
    a->token = RULE_NO_TOKEN;
}

/* What is asked of a row: its token, what is kept, or both. A row that does not propose is always asked for both. */
enum { ASKS_TOKEN = 1, ASKS_KEPT = 2 };

CUT_FN answer row_answer(work *k, const row_params *p, float best, int asks) {
    answer a = {RULE_NO_TOKEN, 0, 0, -FLT_MAX, INT32_MAX, 0, 0, 0, 0.0f, 0};
    rules r = rules_make(p);
    if (best == PLUS_INF) a.row_flags |= RULE_ROW_INF;
    if (best == MINUS_INF) {
        a.row_flags |= RULE_ROW_EMPTY;
        return a;
    }
    if (r.greedy) {
        a.greedy = 1;
        a.threshold = best;
        a.token = a.tie_last = CALL(k, tie, best, 1);
        return a;
    }
    weighing draw = weighing_make(p->temperature, best), filter = draw;
    if (r.filter_temperature != p->temperature) filter = weighing_make(r.filter_temperature, best);
    listing l = {0.0f, 0.0f, 0.0f, 0.0f, 0, 0, 0, 0, 0, 0};
    if (r.proposes) {
        if (asks & ASKS_TOKEN) row_propose(k, p, &draw, &a);
        if (!(asks & ASKS_KEPT)) return a;
    }
    cut c = row_cut(k, p, &r, &filter, &l);
    int whole = cut_keeps_all(c) && !r.proposes;
#if CUT_MORE
    if (c.capped) draw = weighing_make(p->temperature, CALL(k, cap, c.high));
#endif
    int same = !c.capped && filter.scale.c == draw.scale.c && filter.scale.c_low == draw.scale.c_low;
    int listed = !whole && same && listing_covers(&l, c);
    a.draw_tickets = listed ? CALL(k, list_tickets, &l, c) : whole ? CALL(k, weigh, &draw) : CALL(k, weigh_kept, &draw, c);
    if (!r.proposes) {
        const philox_pair bits = draw_bits(p);
        a.drawn = mul_high(bits.low, a.draw_tickets);
        a.token = listed ? CALL(k, draw_list, &l, c, bits.high, &a.drawn) : CALL(k, draw_group, &draw, c, whole, bits.high, &a.drawn);
    }
    a.threshold = c.low;
    a.tie_last = c.tie_last;
    a.capped = c.capped;
    a.high = c.high;
    a.whole = whole;
    return a;
}

#endif
