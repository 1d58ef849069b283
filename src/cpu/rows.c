/* rows.c - prepare, weigh, cut, draw for one row. Compiled once per instruction set, with that set's
 * vec_*.h included first (-include); its only symbol is a table of functions.
 *
 * The row is read once to learn the largest logit of every group of 256 tokens. After that only groups
 * whose maximum says that they can matter are read again: one for greedy, some for top-k, min-p and a
 * narrow top-p, all for an unfiltered draw. */
#include "rows.h"

#include <limits.h>

#include "logarithm.h"
#include "order.h"
#include "share.h"
#include "weigh.h"

/* How a row is weighed: at its temperature for the draw, at 1 for filters under RAFFLE_FILTERS_FIRST. */
typedef struct weighing {
    scale scale;
    float best; /* the row's largest logit */
    ref row;    /* its reference */
} weighing;

static weighing weighing_make(float temperature, float best) {
    weighing w = {scale_make(temperature), best, {0}};
    w.row = ref_make(w.scale, best);
    return w;
}

/* A group under a weighing. Its tokens' tickets are (weight >> right) << left. */
typedef struct group_ref { ref ref; uint32_t below, left, right; } group_ref;

static inline group_ref group_ref_make(const weighing *w, float peak) {
    group_ref g = {ref_make(w->scale, peak), 0, 0, 0};
    g.below = ref_below(&w->row, w->best, &g.ref, peak);
    g.left = g.below < TICKET_BITS ? TICKET_BITS - g.below : 0;
    g.right = g.below > TICKET_BITS ? g.below - TICKET_BITS : 0;
    return g;
}

/* What is left after the filters: logits above `low`, and those equal to it with an id up to tie_last. */
typedef struct cut { float low; int32_t tie_last; } cut;
static const cut KEEP_ALL = {-FLT_MAX, INT32_MAX};

static inline int cut_keeps(cut c, float x, int32_t id) { return x > c.low || (x == c.low && id <= c.tie_last); }

static inline cut cut_raise(cut c, float low) {
    cut raised = {low, INT32_MAX};
    return low > c.low ? raised : c;
}

/* ---- prepare: reading logits -------------------------------------------------------------------- */

typedef enum reader { READ_F32 = RAFFLE_F32, READ_F16 = RAFFLE_F16, READ_BF16 = RAFFLE_BF16, READ_ALLOW = 4 } reader;

RAFFLE_FN vf load_as(const void *p, int kind) {
    if ((kind & 3) == READ_F32) return v_load_f32(p);
    return (kind & 3) == READ_F16 ? v_load_f16(p) : v_load_bf16(p);
}

/* Tokens i .. i + V_LANES - 1, i a multiple of V_LANES; masked tokens and those past the end are -inf. */
RAFFLE_FN vf row_read(const cpu_row *row, int64_t i, int kind) {
    const int64_t bytes = (kind & 3) == READ_F32 ? 4 : 2, left = row->vocab - i;
    vf x;
    if (left >= V_LANES) {
        x = load_as(row->logits + i * bytes, kind);
    } else {
        char edge[V_LANES * 4];
        for (int lane = 0; lane < V_LANES; ++lane) {
            uint32_t minus_inf = (kind & 3) == READ_F32 ? 0xff800000u : (kind & 3) == READ_F16 ? 0xfc00u : 0xff80u;
            memcpy(edge + lane * bytes, &minus_inf, (size_t)bytes);
        }
        memcpy(edge, row->logits + i * bytes, (size_t)(left * bytes));
        x = load_as(edge, kind);
    }
    if (kind & READ_ALLOW) x = v_select(v_mask(row->allow[i / 32] >> (i % 32)), x, v_set(MINUS_INF));
    return x;
}

static inline int64_t group_end(const cpu_row *row, int64_t g) {
    int64_t end = (g + 1) * GROUP;
    return end < row->vocab ? end : row->vocab;
}

/* ---- weigh -------------------------------------------------------------------------------------- */

/* Fills peak[] with each group's largest logit (NaN counts as -inf); returns whether there was a NaN. */
RAFFLE_FN int row_scan(const cpu_row *row, const cpu_scratch *s, int kind) {
    vm nan = v_none();
    for (int64_t g = 0; g < s->groups; ++g) {
        vf a = v_set(MINUS_INF), b = a;
        int64_t i = g * GROUP, end = group_end(row, g);
        for (; i + 2 * V_LANES <= end; i += 2 * V_LANES) {
            vf x = row_read(row, i, kind), y = row_read(row, i + V_LANES, kind);
            nan = v_or(nan, v_nan(x, y));
            a = v_max(x, a);
            b = v_max(y, b);
        }
        for (; i < end; i += V_LANES) {
            vf x = row_read(row, i, kind);
            nan = v_or(nan, v_nan(x, x));
            a = v_max(x, a);
        }
        s->peak[g] = v_peak(v_max(a, b));
    }
    return v_bits(nan) != 0;
}

RAFFLE_FN uint64_t group_weigh(const cpu_row *row, int64_t g, const ref *f, int kind) {
    vsum a = v_sum_zero(), b = v_sum_zero();
    int64_t i = g * GROUP, end = group_end(row, g);
    if (f->kind == REF_PLAIN) {
        for (; i + 2 * V_LANES <= end; i += 2 * V_LANES) {
            a = v_sum_add(a, v_round(v_weight(row_read(row, i, kind), f, 0)));
            b = v_sum_add(b, v_round(v_weight(row_read(row, i + V_LANES, kind), f, 0)));
        }
    }
    for (; i < end; i += V_LANES) a = v_sum_add(a, v_weigh(row_read(row, i, kind), f));
    return v_sum_total(a) + v_sum_total(b);
}

/* Fills mass[] with each group's tickets and returns their sum: the row without filters. */
RAFFLE_FN uint64_t row_weigh(const cpu_row *row, const cpu_scratch *s, const weighing *w, int kind) {
    uint64_t total = 0;
    for (int64_t g = 0; g < s->groups; ++g) {
        group_ref r = group_ref_make(w, s->peak[g]);
        s->mass[g] = 0;
        if (s->peak[g] == MINUS_INF || r.below > TICKET_BITS + 40) continue; /* weights are below 2^40 */
        s->mass[g] = tickets_of(group_weigh(row, g, &r.ref, kind), r.below);
        total += s->mass[g];
    }
    return total;
}

/* Writes the weights of group g to w[GROUP] and its logits to x[GROUP]. */
RAFFLE_FN void group_expand(const cpu_row *row, int64_t g, const ref *f, float *x, uint32_t *w, int kind) {
    for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
        vf read = row_read(row, i, kind);
        v_store(x + i % GROUP, read);
        v_store_u(w + i % GROUP, v_weigh(read, f));
    }
}

/* The same for what a cut keeps, where single tokens count. */
RAFFLE_FN uint64_t row_weigh_kept(const cpu_row *row, const cpu_scratch *s, const weighing *w, cut c, int kind) {
    uint64_t total = 0;
    for (int64_t g = 0; g < s->groups; ++g) {
        group_ref r = group_ref_make(w, s->peak[g]);
        s->mass[g] = 0;
        if (s->peak[g] < c.low || r.below > TICKET_BITS + 32) continue;
        if (s->peak[g] == c.low || c.tie_last < INT32_MAX) { /* ties at the border: one by one */
            float x[GROUP];
            uint32_t weight[GROUP];
            int64_t first = g * GROUP, count = group_end(row, g) - first;
            group_expand(row, g, &r.ref, x, weight, kind);
            for (int64_t j = 0; j < count; ++j)
                if (cut_keeps(c, x[j], (int32_t)(first + j))) s->mass[g] += (uint64_t)(weight[j] >> r.right) << r.left;
        } else {
            vsum sum = v_sum_zero();
            for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
                vf x = row_read(row, i, kind);
                sum = v_sum_add(sum, v_where(v_ge(x, v_set(c.low)), v_shift(v_weigh(x, &r.ref), r.right)));
            }
            s->mass[g] = v_sum_total(sum) << r.left;
        }
        total += s->mass[g];
    }
    return total;
}

/* ---- cut: thresholds ---------------------------------------------------------------------------- */

/* Tokens with low < logit <= high: in s->list_* if they fit, and how many there are, what they weigh and
 * their range in any case; and the amount of all tokens above. */
typedef struct listing {
    float low, high, least, most;
    uint64_t count, tickets, above_count, above_tickets;
} listing;

RAFFLE_FN listing row_list(const cpu_row *row, const cpu_scratch *s, const weighing *w, float low, float high, int kind) {
    listing l = {low, high, PLUS_INF, MINUS_INF, 0, 0, 0, 0};
    vf lows = v_set(low), highs = v_set(high);
    for (int64_t g = 0; g < s->groups; ++g) {
        if (!(s->peak[g] > low)) continue;
        group_ref r = group_ref_make(w, s->peak[g]);
        vsum above_sum = v_sum_zero();
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            vf x = row_read(row, i, kind);
            uint32_t found = v_bits(v_gt(x, lows));
            if (!found) continue;
            vm above = v_gt(x, highs);
            vu weight = v_shift(v_weigh(x, &r.ref), r.right);
            above_sum = v_sum_add(above_sum, v_where(above, weight));
            l.above_count += (uint64_t)__builtin_popcount(v_bits(above));
            found &= ~v_bits(above);
            if (!found) continue;
            float xs[V_LANES];
            uint32_t ws[V_LANES];
            v_store(xs, x);
            v_store_u(ws, weight);
            for (; found; found &= found - 1) {
                int lane = __builtin_ctz(found);
                uint64_t tickets = (uint64_t)ws[lane] << r.left;
                if (l.count < (uint64_t)s->list_max) {
                    s->list_x[l.count] = xs[lane];
                    s->list_id[l.count] = (int32_t)(i + lane);
                    s->list_t[l.count] = tickets;
                }
                l.count += 1;
                l.tickets += tickets;
                l.least = xs[lane] < l.least ? xs[lane] : l.least;
                l.most = xs[lane] > l.most ? xs[lane] : l.most;
            }
        }
        l.above_tickets += v_sum_total(above_sum) << r.left;
    }
    return l;
}

/* Both filters that count ask one question: a token stays while the amount of strictly larger logits is
 * below `target`, the amount being tokens (top-k) or tickets (top-p). */
typedef struct quest { uint64_t target; int in_tickets; } quest;

static uint64_t amount_above(const cpu_scratch *s, const listing *l, quest q, float value) {
    const float *x = s->list_x;
    uint64_t sum = q.in_tickets ? l->above_tickets : l->above_count;
    if (q.in_tickets)
        for (uint64_t i = 0; i < l->count; ++i) sum += x[i] > value ? s->list_t[i] : 0;
    else
        for (uint64_t i = 0; i < l->count; ++i) sum += x[i] > value;
    return sum;
}

/* The smallest value whose amount above is below the target, given that it lies in (low, most] of a list. */
static float list_threshold(const cpu_scratch *s, const listing *l, quest q) {
    uint32_t low = order_of(l->low), high = order_of(l->most);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (amount_above(s, l, q, float_of_order(middle)) < q.target) high = middle;
        else low = middle;
    }
    return float_of_order(high);
}

static int list_answers(const cpu_scratch *s, const listing *l, quest q) {
    uint64_t above = q.in_tickets ? l->above_tickets : l->above_count;
    uint64_t with = above + (q.in_tickets ? l->tickets : l->count);
    return l->count <= (uint64_t)s->list_max && above < q.target && with >= q.target;
}

static inline float just_below(float x) { return float_of_order(order_of(x) - 1); }

/* The k-th largest group maximum: at least k tokens are as large. -FLT_MAX if there are fewer groups. */
static float peak_bound(const cpu_scratch *s, int64_t k) {
    uint32_t low = order_of(-FLT_MAX), high = order_of(PLUS_INF) + 1;
    while (high - low > 1) { /* at least k maxima are >= low, fewer are >= high */
        uint32_t middle = low + (high - low) / 2;
        float value = float_of_order(middle);
        int32_t found = 0;
        for (int64_t g = 0; g < s->groups; ++g) found += s->peak[g] >= value;
        if (found >= k) low = middle;
        else high = middle;
    }
    return float_of_order(low);
}

enum { GUESS_TOKENS = 1024 };

/* Narrows (low, high] to where the threshold probably lies, judging by a thousand tokens. */
RAFFLE_FN void row_guess(const cpu_row *row, const cpu_scratch *s, const weighing *w, quest q, uint64_t mass, float *low,
                         float *high, int kind) {
    listing sample = {*low, *high, 0.0f, *high, 0, 0, 0, 0};
    int64_t step = (row->vocab / GUESS_TOKENS + 1) * V_LANES;
    for (int64_t i = 0; i < row->vocab && sample.count + V_LANES <= (uint64_t)s->list_max; i += step) {
        group_ref r = group_ref_make(w, s->peak[i / GROUP]);
        uint32_t ws[V_LANES];
        vf x = row_read(row, i, kind);
        v_store(s->list_x + sample.count, v_max(x, v_set(MINUS_INF)));
        v_store_u(ws, v_shift(v_weigh(x, &r.ref), r.right));
        for (int lane = 0; lane < V_LANES; ++lane) {
            s->list_t[sample.count + (uint64_t)lane] = (uint64_t)ws[lane] << r.left;
            sample.tickets += (uint64_t)ws[lane] << r.left;
        }
        sample.count += V_LANES;
    }
    /* Tickets are estimated from below the threshold, where no single token weighs much. */
    double share = (double)sample.count / (double)row->vocab, wanted, slack;
    if (q.in_tickets) {
        double under = (double)(mass - q.target) * share;
        wanted = (double)sample.tickets - under;
        slack = 0.15 * under;
    } else {
        wanted = (double)q.target * share;
        slack = 0.1 * wanted + 24.0;
    }
    quest more = {(uint64_t)(wanted + slack > 1.0 ? wanted + slack : 1.0), q.in_tickets};
    quest less = {(uint64_t)(wanted - slack > 1.0 ? wanted - slack : 1.0), q.in_tickets};
    *low = just_below(list_threshold(s, &sample, more));
    *high = list_threshold(s, &sample, less);
}

/* The threshold of a quest. `first` is the number of group maxima whose tokens are tried first. On return
 * *l covers everything above the threshold if l->high is +inf. */
RAFFLE_FN float row_threshold(const cpu_row *row, const cpu_scratch *s, const weighing *w, quest q, int64_t first,
                              uint64_t mass, listing *l, int kind) {
    float bound = peak_bound(s, first);
    if (bound > -FLT_MAX) {
        *l = row_list(row, s, w, just_below(bound), PLUS_INF, kind);
        if (list_answers(s, l, q)) return list_threshold(s, l, q);
    }
    /* low and high close in on the threshold: the amount above low is >= target, above high < target. */
    float low = MINUS_INF, high = w->best, guess_low = low, guess_high = high;
    row_guess(row, s, w, q, mass, &guess_low, &guess_high, kind);
    if (!q.in_tickets && q.target * 2 < (uint64_t)s->list_max) guess_high = PLUS_INF;
    for (;;) {
        *l = row_list(row, s, w, guess_low, guess_high, kind);
        if (list_answers(s, l, q)) return list_threshold(s, l, q);
        uint64_t above = q.in_tickets ? l->above_tickets : l->above_count;
        uint64_t with = above + (q.in_tickets ? l->tickets : l->count);
        if (above >= q.target) {
            low = guess_high;
        } else if (with < q.target) { /* everything down to guess_low stays */
            if (guess_low == MINUS_INF) return -FLT_MAX;
            high = guess_low;
        } else { /* inside, but too many for the list */
            if (l->least == l->most) return l->least;
            low = just_below(l->least);
            high = l->most;
        }
        uint32_t a = order_of(low), b = order_of(high);
        if (b - a <= 1) return high;
        guess_low = float_of_order(a + (b - a) / 2);
        guess_high = high;
    }
}

/* The id of the count-th token that equals `value`, counting from the lowest id. */
RAFFLE_FN int32_t row_tie(const cpu_row *row, const cpu_scratch *s, float value, uint64_t count, int kind) {
    for (int64_t g = 0; g < s->groups; ++g) {
        if (s->peak[g] < value) continue;
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            uint32_t equal = v_bits(v_eq(row_read(row, i, kind), v_set(value)));
            for (; equal; equal &= equal - 1)
                if (--count == 0) return (int32_t)(i + __builtin_ctz(equal));
        }
    }
    return INT32_MAX; /* not reached: there are at least `count` */
}

/* What min-p keeps: exp((x - best) / T) >= min_p. */
static float min_p_low(const cpu_row *row, float best) {
    if (!(row->min_p < 1.0f)) return best;
    double temperature = row->flags & RAFFLE_FILTERS_FIRST ? 1.0 : (double)row->temperature;
    float low = float_at_least((double)best + temperature * natural_log((double)row->min_p));
    return low > -FLT_MAX ? low : -FLT_MAX;
}

static uint64_t list_tickets(const cpu_scratch *s, const listing *l, cut c) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < l->count; ++i) sum += cut_keeps(c, s->list_x[i], s->list_id[i]) ? s->list_t[i] : 0;
    return sum;
}

/* Whether the list holds every token that the cut keeps. */
static int list_covers(const cpu_scratch *s, const listing *l, cut c) {
    return l->high == PLUS_INF && l->low < c.low && l->count <= (uint64_t)s->list_max;
}

RAFFLE_FN uint64_t tickets_kept(const cpu_row *row, const cpu_scratch *s, const weighing *w, const listing *l, cut c,
                                int kind) {
    return list_covers(s, l, c) ? list_tickets(s, l, c) : row_weigh_kept(row, s, w, c, kind);
}

/* All filters as one cut. *l is a list that may cover what is kept, *row_tickets the row's mass if needed. */
RAFFLE_FN cut row_cut(const cpu_row *row, const cpu_scratch *s, const weighing *w, listing *l, uint64_t *row_tickets,
                      int kind) {
    cut c = KEEP_ALL;
    int top_k = row->top_k > 0 && row->top_k < row->vocab, top_p = row->top_p < 1.0f, min_p = row->min_p > 0.0f;
    int min_p_first = min_p && !(row->flags & RAFFLE_MIN_P_LAST);
    if (min_p_first) {
        c = cut_raise(c, min_p_low(row, w->best));
        *l = row_list(row, s, w, just_below(c.low), PLUS_INF, kind);
    }
    if (top_k && !(min_p_first && l->count <= (uint64_t)row->top_k)) {
        quest q = {(uint64_t)row->top_k, 0};
        float low = min_p_first && list_answers(s, l, q) ? list_threshold(s, l, q)
                                                         : row_threshold(row, s, w, q, row->top_k, 0, l, kind);
        c = cut_raise(c, low);
        if (row->flags & RAFFLE_TOP_K_EXACT && c.low == low) {
            uint64_t larger = l->above_count;
            for (uint64_t i = 0; i < l->count && l->count <= (uint64_t)s->list_max; ++i) larger += s->list_x[i] > low;
            if (l->count > (uint64_t)s->list_max) larger = row_list(row, s, w, low, PLUS_INF, kind).count;
            c.tie_last = row_tie(row, s, low, (uint64_t)row->top_k - larger, kind);
        }
    }
    if (top_p) {
        int whole = row->flags & RAFFLE_TOP_P_JOINT || !(top_k || min_p_first);
        uint64_t mass = whole ? *row_tickets = row_weigh(row, s, w, kind) : tickets_kept(row, s, w, l, c, kind);
        quest q = {share_of(row->top_p, mass), 1};
        if (list_covers(s, l, c)) { /* only the list's tokens can stay */
            listing kept = *l;
            kept.low = just_below(c.low);
            if (list_tickets(s, l, c) >= q.target) c = cut_raise(c, list_threshold(s, &kept, q));
        } else {
            c = cut_raise(c, row_threshold(row, s, w, q, 64, mass, l, kind));
        }
    }
    if (min_p && !min_p_first) c = cut_raise(c, min_p_low(row, w->best));
    return c;
}

/* ---- draw --------------------------------------------------------------------------------------- */

RAFFLE_FN int32_t draw_list(const cpu_scratch *s, const listing *l, cut c, uint64_t ticket) {
    for (uint64_t i = 0;; ++i) {
        if (!cut_keeps(c, s->list_x[i], s->list_id[i])) continue;
        if (ticket < s->list_t[i]) return s->list_id[i];
        ticket -= s->list_t[i];
        (void)l;
    }
}

/* The token that holds ticket number `ticket` of mass[], which row_weigh (`whole`) or row_weigh_kept made. */
RAFFLE_FN int32_t draw_group(const cpu_row *row, const cpu_scratch *s, const weighing *w, cut c, int whole, uint64_t ticket,
                             int kind) {
    int64_t g = 0;
    for (; ticket >= s->mass[g]; ++g) ticket -= s->mass[g];
    group_ref r = group_ref_make(w, s->peak[g]);
    float x[GROUP];
    uint32_t weight[GROUP];
    group_expand(row, g, &r.ref, x, weight, kind);
    uint64_t left = whole ? weight_of(ticket, r.below) : ticket;
    for (int32_t j = 0, first = (int32_t)(g * GROUP);; ++j) {
        uint64_t held = whole ? weight[j] : (uint64_t)(weight[j] >> r.right) << r.left;
        if (!cut_keeps(c, x[j], first + j)) continue;
        if (left < held) return first + j;
        left -= held;
    }
}

RAFFLE_FN cpu_answer row_sample(const cpu_row *row, const cpu_scratch *s, int kind) {
    cpu_answer answer = {RAFFLE_NO_TOKEN, 0, 0, -FLT_MAX, INT32_MAX, 0, 0, 0};
    if (row_scan(row, s, kind)) answer.row_flags |= RAFFLE_ROW_NAN;
    float best = MINUS_INF;
    for (int64_t g = 0; g < s->groups; ++g) best = s->peak[g] > best ? s->peak[g] : best;
    if (best == PLUS_INF) answer.row_flags |= RAFFLE_ROW_INF;
    if (best == MINUS_INF) {
        answer.row_flags |= RAFFLE_ROW_EMPTY;
        return answer;
    }
    if (row->temperature < GREEDY_BELOW || row->top_k == 1 || row->top_p <= 0.0f) {
        answer.greedy = 1;
        answer.threshold = best;
        answer.token = answer.tie_last = row_tie(row, s, best, 1, kind);
        return answer;
    }
    weighing draw = weighing_make(row->temperature, best), filter = draw;
    if (row->flags & RAFFLE_FILTERS_FIRST) filter = weighing_make(1.0f, best);
    listing l = {0};
    cut c = row_cut(row, s, &filter, &l, &answer.row_tickets, kind);
    int whole = !(c.low > -FLT_MAX) && c.tie_last == INT32_MAX;
    int listed = !whole && filter.scale.c == draw.scale.c && list_covers(s, &l, c);
    answer.draw_tickets = listed  ? list_tickets(s, &l, c)
                          : whole ? row_weigh(row, s, &draw, kind)
                                  : row_weigh_kept(row, s, &draw, c, kind);
    answer.drawn = ticket_drawn(row->seed, row->position, answer.draw_tickets);
    answer.token = listed ? draw_list(s, &l, c, answer.drawn) : draw_group(row, s, &draw, c, whole, answer.drawn, kind);
    answer.threshold = c.low;
    answer.tie_last = c.tie_last;
    return answer;
}

/* ---- the table ---------------------------------------------------------------------------------- */

#define DEFINE_SAMPLE(name, kind)                                                                                      \
    static cpu_answer name(const cpu_row *row, const cpu_scratch *s) {                                                 \
        return row->allow ? row_sample(row, s, kind | READ_ALLOW) : row_sample(row, s, kind);                          \
    }
DEFINE_SAMPLE(sample_f32, READ_F32)
DEFINE_SAMPLE(sample_f16, READ_F16)
DEFINE_SAMPLE(sample_bf16, READ_BF16)

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const cpu_table JOIN(raffle_table_, V_ISA_NAME) = {{sample_f32, sample_f16, sample_bf16}};
