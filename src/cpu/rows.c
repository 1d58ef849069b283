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

static inline int cut_keeps(cut c, float x, int64_t id) { return x > c.low || (x == c.low && id <= c.tie_last); }

static inline cut cut_raise(cut c, float low) {
    cut raised = {low, INT32_MAX};
    return low > c.low ? raised : c;
}

/* Tokens with low < logit <= high: in s->list_* if they fit, and how many there are, what they weigh and
 * their range in any case; and the amount of all tokens above. */
typedef struct listing {
    float low, high, least, most;
    uint64_t count, tickets, above_count, above_tickets;
} listing;

enum { GUESS_TOKENS = 1024 }; /* tokens looked at to guess a threshold */

#include "row_kernels.h"

/* ---- cut: thresholds ---------------------------------------------------------------------------- */

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
static float peak_bound(const cpu_scratch *s, int64_t k, float best) {
    uint32_t low = order_of(-FLT_MAX), high = order_of(best) + 1;
    if (k > s->groups) return -FLT_MAX;
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

/* Narrows (low, high] to where the threshold probably lies, judging by a sketch of the row. */
static void guess_threshold(const kernels *k, const cpu_row *row, const cpu_scratch *s, const weighing *w, quest q,
                            uint64_t mass, float *low, float *high) {
    listing sketch = k->sketch(row, s, w);
    double share = (double)sketch.count / (double)row->vocab, wanted, slack;
    if (q.in_tickets) { /* estimated from below the threshold, where no single token weighs much */
        double under = (double)(mass - q.target) * share;
        wanted = (double)sketch.tickets - under;
        slack = 0.15 * under;
    } else {
        wanted = (double)q.target * share;
        slack = 0.1 * wanted + 24.0;
    }
    quest more = {(uint64_t)(wanted + slack > 1.0 ? wanted + slack : 1.0), q.in_tickets};
    quest less = {(uint64_t)(wanted - slack > 1.0 ? wanted - slack : 1.0), q.in_tickets};
    *low = just_below(list_threshold(s, &sketch, more));
    *high = list_threshold(s, &sketch, less);
}

/* The threshold of a quest. `first` is the number of group maxima whose tokens are tried first. On return
 * *l covers everything above the threshold if l->high is +inf. */
static float row_threshold(const kernels *k, const cpu_row *row, const cpu_scratch *s, const weighing *w, quest q,
                           int64_t first, uint64_t mass, listing *l) {
    float bound = peak_bound(s, first, w->best);
    if (bound > -FLT_MAX) {
        *l = k->list(row, s, w, just_below(bound), PLUS_INF);
        if (list_answers(s, l, q)) return list_threshold(s, l, q);
    }
    /* low and high close in on the threshold: the amount above low is >= target, above high < target. */
    float low = MINUS_INF, high = w->best, guess_low = low, guess_high = high;
    guess_threshold(k, row, s, w, q, mass, &guess_low, &guess_high);
    if (!q.in_tickets && q.target * 2 < (uint64_t)s->list_max) guess_high = PLUS_INF;
    for (;;) {
        *l = k->list(row, s, w, guess_low, guess_high);
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

static uint64_t tickets_kept(const kernels *k, const cpu_row *row, const cpu_scratch *s, const weighing *w, const listing *l,
                             cut c) {
    return list_covers(s, l, c) ? list_tickets(s, l, c) : k->weigh_kept(row, s, w, c);
}

/* All filters as one cut. *l is a list that may cover what is kept, *row_tickets the row's mass if needed. */
static cut row_cut(const kernels *k, const cpu_row *row, const cpu_scratch *s, const weighing *w, listing *l,
                   uint64_t *row_tickets) {
    cut c = KEEP_ALL;
    int top_k = row->top_k > 0 && row->top_k < row->vocab, top_p = row->top_p < 1.0f, min_p = row->min_p > 0.0f;
    int min_p_first = min_p && !(row->flags & RAFFLE_MIN_P_LAST);
    if (min_p_first) {
        c = cut_raise(c, min_p_low(row, w->best));
        *l = k->list(row, s, w, just_below(c.low), PLUS_INF);
    }
    if (top_k && !(min_p_first && l->count <= (uint64_t)row->top_k)) {
        quest q = {(uint64_t)row->top_k, 0};
        float low = min_p_first && list_answers(s, l, q) ? list_threshold(s, l, q)
                                                         : row_threshold(k, row, s, w, q, row->top_k, 0, l);
        c = cut_raise(c, low);
        if (row->flags & RAFFLE_TOP_K_EXACT && c.low == low) {
            uint64_t larger = l->above_count;
            for (uint64_t i = 0; i < l->count && l->count <= (uint64_t)s->list_max; ++i) larger += s->list_x[i] > low;
            if (l->count > (uint64_t)s->list_max) larger = k->list(row, s, w, low, PLUS_INF).count;
            c.tie_last = k->tie(row, s, low, (uint64_t)row->top_k - larger);
        }
    }
    if (top_p) {
        int whole = row->flags & RAFFLE_TOP_P_JOINT || !(top_k || min_p_first);
        uint64_t mass = whole ? *row_tickets = k->weigh(row, s, w) : tickets_kept(k, row, s, w, l, c);
        quest q = {share_of(row->top_p, mass), 1};
        if (list_covers(s, l, c)) { /* only the list's tokens can stay */
            listing kept = *l;
            kept.low = just_below(c.low);
            if (list_tickets(s, l, c) >= q.target) c = cut_raise(c, list_threshold(s, &kept, q));
        } else {
            c = cut_raise(c, row_threshold(k, row, s, w, q, 64, mass, l));
        }
    }
    if (min_p && !min_p_first) c = cut_raise(c, min_p_low(row, w->best));
    return c;
}

/* ---- draw --------------------------------------------------------------------------------------- */

static int32_t draw_list(const cpu_scratch *s, cut c, uint64_t ticket) {
    for (uint64_t i = 0;; ++i) {
        if (!cut_keeps(c, s->list_x[i], s->list_id[i])) continue;
        if (ticket < s->list_t[i]) return s->list_id[i];
        ticket -= s->list_t[i];
    }
}

/* The token that holds ticket number `ticket` of mass[], which row_weigh (`whole`) or row_weigh_kept made. */
static int32_t draw_group(const kernels *k, const cpu_row *row, const cpu_scratch *s, const weighing *w, cut c, int whole,
                          uint64_t ticket) {
    int64_t g = 0;
    for (; ticket >= s->mass[g]; ++g) ticket -= s->mass[g];
    group_ref r = group_ref_make(w, s->peak[g]);
    float x[GROUP];
    uint32_t weight[GROUP];
    k->expand(row, g, &r.ref, x, weight);
    uint64_t left = whole ? weight_of(ticket, r.below) : ticket;
    for (int32_t j = 0, first = (int32_t)(g * GROUP);; ++j) {
        uint64_t held = whole ? weight[j] : (uint64_t)(weight[j] >> r.right) << r.left;
        if (!cut_keeps(c, x[j], first + j)) continue;
        if (left < held) return first + j;
        left -= held;
    }
}

static cpu_answer row_sample(const kernels *k, const cpu_row *row, const cpu_scratch *s) {
    cpu_answer answer = {RAFFLE_NO_TOKEN, 0, 0, -FLT_MAX, INT32_MAX, 0, 0, 0};
    if (k->scan(row, s)) answer.row_flags |= RAFFLE_ROW_NAN;
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
        answer.token = answer.tie_last = k->tie(row, s, best, 1);
        return answer;
    }
    weighing draw = weighing_make(row->temperature, best), filter = draw;
    if (row->flags & RAFFLE_FILTERS_FIRST) filter = weighing_make(1.0f, best);
    listing l = {0};
    cut c = row_cut(k, row, s, &filter, &l, &answer.row_tickets);
    int whole = !(c.low > -FLT_MAX) && c.tie_last == INT32_MAX;
    int listed = !whole && filter.scale.c == draw.scale.c && list_covers(s, &l, c);
    answer.draw_tickets = listed  ? list_tickets(s, &l, c)
                          : whole ? k->weigh(row, s, &draw)
                                  : k->weigh_kept(row, s, &draw, c);
    answer.drawn = ticket_drawn(row->seed, row->position, answer.draw_tickets);
    answer.token = listed ? draw_list(s, c, answer.drawn) : draw_group(k, row, s, &draw, c, whole, answer.drawn);
    answer.threshold = c.low;
    answer.tie_last = c.tie_last;
    return answer;
}

/* ---- the table ---------------------------------------------------------------------------------- */

#define DEFINE_SAMPLE(dtype)                                                                                           \
    static cpu_answer sample_##dtype(const cpu_row *row, const cpu_scratch *s) {                                       \
        return row_sample(row->allow ? &allow_##dtype : &plain_##dtype, row, s);                                       \
    }
DEFINE_SAMPLE(f32)
DEFINE_SAMPLE(f16)
DEFINE_SAMPLE(bf16)

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const cpu_table JOIN(raffle_table_, V_ISA_NAME) = {{sample_f32, sample_f16, sample_bf16}};
