/* row_flat.h - top-p over flat rows, whose nucleus is too large for a list. A sketch of the row, made before its first
 * reading, guesses the threshold; the first reading then also weighs what is above the guess; and a list of the few
 * tokens from there down to where the threshold must be shows which it is. A wrong guess costs time and nothing else.
 * Part of row_kernels.h; `kind` is a compile-time constant everywhere. */

/* GLANCE tokens tell whether a row is flat; if it is, 1 in SKETCH_OF is looked at for the guess. */
enum { FLAT_VOCAB = 8192, GLANCE = 256, SKETCH_OF = 32, FLAT_EQUALS = 16, FLAT_LEAST = 16 };
#define HEAVY 0x1p-6
#define FLAT_SHARE 0x1p-4f

/* A sketch of a row in the list's memory: logits in list_x, weights in the largest one's units in list_t, as floats. */
typedef struct flat_sketch {
    int64_t count;
    ref ref;
    float best, sum, squares; /* the largest logit; sums of weights and of their squares */
} flat_sketch;

RAFFLE_FN float *sketch_weights(const cpu_scratch *s) { return (float *)s->list_t; }

/* Copies every `step`-th vector; returns how many tokens these are, a multiple of what is weighed at once. */
RAFFLE_FN int64_t sketch_read(const work *k, int64_t step, vf *top, int kind) {
    const cpu_row row = *k->row;
    float *x = k->scratch->list_x;
    int64_t count = 0;
    for (int64_t i = 0; i + V_LANES <= row.params.vocab; i += step * V_LANES, count += V_LANES) {
        vf read = v_max(read_full(&row, i, kind), v_set(MINUS_INF));
        *top = v_max(read, *top);
        v_store(x + count, read);
    }
    return count / (V_CHAINS * V_LANES) * (V_CHAINS * V_LANES);
}

/* Weighs what was read. */
static void sketch_weigh(const work *k, flat_sketch *f) {
    const float *x = k->scratch->list_x;
    float *weight = sketch_weights(k->scratch);
    vf sum = v_set(0.0f), squares = sum;
    for (int64_t i = 0; i < f->count; i += V_CHAINS * V_LANES) {
        vf v[V_CHAINS];
        for (int n = 0; n < V_CHAINS; ++n) v[n] = v_load_f32(x + i + n * V_LANES);
        v_weights(v, V_CHAINS, &f->ref, 0);
        for (int n = 0; n < V_CHAINS; ++n) {
            v_store(weight + i + n * V_LANES, v[n]);
            sum = v_add(sum, v[n]);
            squares = v_fma(v[n], v[n], squares);
        }
    }
    f->sum = v_total(sum);
    f->squares = v_total(squares);
}

/* Makes a sketch of about `count` tokens; 0 if the row cannot be flat. */
RAFFLE_FN int sketch_make(const work *k, scale scale, int64_t count, flat_sketch *f, int kind) {
    vf top = v_set(MINUS_INF);
    f->count = sketch_read(k, k->row->params.vocab / count, &top, kind);
    f->best = v_peak(top);
    f->ref = ref_make(scale, f->best);
    if (!(f->best > MINUS_INF) || f->ref.kind != REF_PLAIN) return 0;
    sketch_weigh(k, f);
    return f->sum * f->sum >= FLAT_EQUALS * f->squares; /* as so many equal ones would be */
}

/* The weight of the sketch's tokens above `value`. */
static float sketch_above(const work *k, int64_t count, float value) {
    const float *x = k->scratch->list_x, *weight = sketch_weights(k->scratch);
    vf sum[4] = {v_set(0.0f), v_set(0.0f), v_set(0.0f), v_set(0.0f)};
    int64_t i = 0;
    for (; i + 4 * V_LANES <= count; i += 4 * V_LANES)
        for (int n = 0; n < 4; ++n)
            sum[n] = v_add_where(v_gt(v_load_f32(x + i + n * V_LANES), v_set(value)), sum[n], v_load_f32(weight + i + n * V_LANES));
    for (; i < count; i += V_LANES)
        sum[0] = v_add_where(v_gt(v_load_f32(x + i), v_set(value)), sum[0], v_load_f32(weight + i));
    return v_total(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

/* Two values and the weight above each. */
typedef struct span { float low, high, above_low, above_high; } span;

/* Moves the ends of a span, which has `wanted` between them, to each other until what is above the lower end is at most `slack`
 * more than wanted. By straight lines between the ends; an end that stays counts half each time. */
static void span_narrow(const work *k, int64_t count, span *s, float wanted, float slack) {
    float more = s->above_low - wanted, less = wanted - s->above_high;
    for (int step = 0; step < 12 && s->above_low - wanted > slack; ++step) {
        float value = s->low + (s->high - s->low) * (more / (more + less));
        if (!(value > s->low && value < s->high)) break;
        float above = sketch_above(k, count, value);
        if (above >= wanted) {
            s->low = value;
            s->above_low = above;
            more = above - wanted;
            less *= 0.5f;
        } else {
            s->high = value;
            s->above_high = above;
            less = wanted - above;
            more *= 0.5f;
        }
    }
}

/* Guesses top-p's threshold, if the row seems to be flat. */
RAFFLE_FN void row_guess(const work *k, scale scale, int kind) {
    const int64_t vocab = k->row->params.vocab;
    const float p = k->row->params.top_p;
    flat_sketch f;
    if (vocab < FLAT_VOCAB || p < FLAT_SHARE || !sketch_make(k, scale, GLANCE, &f, kind) || !sketch_make(k, scale, vocab / SKETCH_OF, &f, kind)) return;
    k->scratch->list_x[f.count] = MINUS_INF;
    const float least = least_of(k->scratch->list_x, f.count), wanted = p * f.sum;
    span s = {least > f.ref.low ? least : f.ref.low, f.best, f.sum, 0.0f};
    threshold_guess guess = {.good = 1, .bottom = s.low, .best = f.best, .sum = f.sum, .count = f.count, .exponent = f.ref.exponent};
    span_narrow(k, f.count, &s, wanted, 0x1p-11f * f.sum);
    if (tokens_above(k->scratch->list_x, f.count, s.low) < FLAT_LEAST) return; /* a list will do */
    guess.at = s.low;
    guess.above = s.above_low;
    guess.one = v_first(v_weight(v_set(s.low), &f.ref, 0));
    /* A token that weighs more than so much of all was not in the sketch, and no one knows how many more there are. */
    const double heavy = (double)f.sum / (double)f.count * (double)vocab * HEAVY * 0x1p-31;
    guess.most = f.best + (float)(natural_log(heavy) * 1.4427 / (double)scale.c);
    k->state->guess = guess;
}

/* Makes tickets of what is above the guess, in mass[], and returns their sum. Tickets of groups that are far below the best
 * are counted token by token. */
RAFFLE_FN uint64_t guess_tickets(const work *k, const weighing *w, int kind) {
    const cpu_scratch s = *k->scratch;
    const float at = k->state->guess.at;
    uint64_t total = 0;
    for (int64_t g = 0; g < s.groups; ++g) {
        uint32_t below = (uint32_t)w->row.exponent - (uint32_t)s.exponent[g];
        if (w->row.kind == REF_PLAIN && below <= TICKET_BITS && s.over_size[g] >= 0.0f)
            s.mass[g] = sum_resolve(s.over_low[g], s.over_size[g]) << (TICKET_BITS - below);
        else
            s.mass[g] = s.peak[g] > at ? group_kept(k->row, &s, w, g, cut_above(at), kind) : 0;
        total += s.mass[g];
    }
    return total;
}

/* Whether (low, high] probably holds the threshold of a quest. One end is the guess: the tickets above it are known, and the
 * sketch shows how far from there those are that are missing, or too many. */
RAFFLE_FN int row_guessed(const work *k, const weighing *w, quest q, float *low, float *high, int kind) {
    threshold_guess *g = &k->state->guess;
    const uint32_t below = (uint32_t)w->row.exponent - (uint32_t)g->exponent;
    if (!g->good || !q.in_tickets || !state_fits(k->state, w) || below > 60) return 0;
    g->tickets = guess_tickets(k, w, kind);
    g->good = 0;
    g->told = 1;
    const int under = g->tickets < q.target;
    const double unit = double_of((uint64_t)(1023 + below - TICKET_BITS) << 52) * (double)g->count / (double)k->row->params.vocab;
    const double far = (double)(under ? q.target - g->tickets : g->tickets - q.target) * unit;
    const double chance = 3.0 * square_root(far * (double)g->one) + 4.0 * (double)g->one;
    const float wanted = (float)((double)g->above + (under ? far + chance : -far - chance));
    if (!(wanted > 0.0f && wanted < g->sum)) return 0;
    span s = {g->at, g->best, g->above, 0.0f};
    if (under) s.low = g->bottom, s.high = g->at, s.above_low = g->sum, s.above_high = g->above;
    span_narrow(k, g->count, &s, wanted, 0.25f * (float)chance);
    *low = under ? s.low : g->at;
    *high = under ? g->at : s.low;
    return *low < *high;
}
