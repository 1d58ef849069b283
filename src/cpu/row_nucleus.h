/* row_nucleus.h - the token of top-p alone where too many tokens stay for an exact list, by estimates (estimate.h), if these
 * settle it. A sketch of the row says in which band of values the threshold is. One reading adds up, for each stretch,
 * the estimates above the band, those below it for the row, and packs the logits in it. Or, where the row was estimated as
 * a whole and all that is above the band's low end fits into the list, it packs that and nothing else. Of these it finds
 * out which stay whatever the estimates are off; then in which stretch the draw is. That one is weighed exactly, for each
 * threshold that is still possible. If anything is open, nothing is said, and the row is weighed as if this file were
 * not there. Part of row_kernels.h; `kind`, where it is an argument, is a compile-time constant. */

/* A row that was split at a band: (low, high]. For each stretch, size[] holds the sum of the estimates above and
 * exponent[] where its part of the list ends, which is filled up with -inf to whole vectors: logits in list_x,
 * estimates in sketch_weights. */
typedef struct band {
    estimator e;
    float low, high, best;
    int64_t stretches, count;
    double above, below; /* estimates beyond its ends */
    float heavy;         /* a row with a token whose estimate is larger is not flat, after all */
    double sum;          /* of all estimates, if they have been made: then heavy tokens do not matter; else 0 */
    int open;            /* the list holds all that is above `low`, of which `above` is none */
    int nan;
} band;

/* The most additions of floats for one sum: of a group, vector by vector if it is not whole; of a stretch's groups, of
 * the lanes. And so many vectors of the list. */
enum { NUCLEUS_DEPTH = GROUP / V_LANES + 1 + STRETCH + 4, BAND_BLOCK = GROUP / V_LANES };

/* How many deviations of the sketch the band is wide, to each side; and how many tokens the search leaves between its
 * ends, about. */
#define BAND_WIDTH 2.5
#define BAND_LEFT  6.0

/* ---- the band -------------------------------------------------------------------------------------------- */

/* What is above two values of the sketch, and the squares of its estimates: those above `at`, and the others. */
typedef struct sketch_moments {
    float above_low, above_high, squares_above, squares_below;
} sketch_moments;

static sketch_moments sketch_measure(const work *k, int64_t count, float low, float at, float high) {
    const float *x = k->scratch->list_x, *weight = sketch_weights(k->scratch);
    vf above_low = v_set(0.0f), above_high = above_low, squares = above_low, squares_above = above_low;
    for (int64_t i = 0; i < count; i += V_LANES) {
        const vf v = v_load_f32(x + i), t = v_load_f32(weight + i), square = v_mul(t, t);
        above_low = v_add_where(v_gt(v, v_set(low)), above_low, t);
        above_high = v_add_where(v_gt(v, v_set(high)), above_high, t);
        squares = v_add(squares, square);
        squares_above = v_add_where(v_gt(v, v_set(at)), squares_above, square);
    }
    const float above = v_total(squares_above);
    const sketch_moments m = {v_total(above_low), v_total(above_high), above, v_total(squares) - above};
    return m;
}

/* How many of the sketch's tokens are above a value; it is whole vectors. */
static int64_t sketch_tokens(const work *k, int64_t count, float value) { return tokens_above(k->scratch->list_x, count, value); }

/* One vector of so many is in the sketch: of short rows more, or the band would not fit into the list. */
static int64_t sketch_of(int64_t vocab) { return vocab < 65536 ? SKETCH_OF / 2 : SKETCH_OF; }

/* Reads the sketch and estimates it: returns how many tokens, *all from the least to the largest of them. */
RAFFLE_FN int64_t sketch_estimate(const work *k, const estimator *e, span *all, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    float *const weight = sketch_weights(&s);
    const int64_t step = sketch_of(row.params.vocab) * V_LANES;
    int64_t count = 0;
    vf sum[2] = {v_set(0.0f), v_set(0.0f)}, top = v_set(MINUS_INF), bottom = top;
    for (int64_t i = 0; i + step + V_LANES <= row.params.vocab; i += 2 * step, count += 2 * V_LANES) {
        vf x[2] = {v_max(read_full(&row, i, kind), v_set(MINUS_INF)),
                   v_max(read_full(&row, i + step, kind), v_set(MINUS_INF))};
        for (int n = 0; n < 2; ++n) {
            v_store(s.list_x + count + n * V_LANES, x[n]);
            top = v_max(x[n], top);
            bottom = v_max(v_sub(v_set(0.0f), v_select(v_gt(x[n], v_set(e->low)), x[n], v_set(PLUS_INF))), bottom);
        }
        v_estimates(x, 2, e);
        for (int n = 0; n < 2; ++n) {
            v_store(weight + count + n * V_LANES, x[n]);
            sum[n] = v_add(sum[n], x[n]);
        }
    }
    all->low = -v_peak(bottom);
    all->high = v_peak(top);
    all->above_low = v_total(v_add(sum[0], sum[1]));
    all->above_high = 0.0f;
    return count;
}

/* Where the threshold of `share` probably is, by a sketch: the band's ends. What the threshold cuts off is counted from the least token
 * on if the row's sum is known: no heavy token is among it, whose share in a sketch is chance. 0: it cannot say. */
RAFFLE_FN int band_guess(const work *k, float share, band *b, int kind) {
    span all, s;
    const int64_t count = sketch_estimate(k, &b->e, &all, kind);
    const float sum = all.above_low, slack = 0x1p-8f * sum, rest = 1.0f - share;
    const float cut = rest * (b->sum > 0.0 ? (float)(b->sum * (double)count / (double)k->row->params.vocab) : sum), wanted = sum - cut;
    if (!(sum < PLUS_INF && all.low < all.high && wanted > 0.0f && wanted < sum)) return 0;
    s = all;
    span_narrow(k, count, &s, wanted, slack);
    const float step =
        0x1p-7f * sum * (s.high - s.low) / (s.above_low - s.above_high); /* about as far as a 128th of the sum */
    const sketch_moments m = sketch_measure(k, count, s.low - step, s.low, s.low + step);
    const float squares = b->sum > 0.0 ? m.squares_below : rest * rest * m.squares_above + share * share * m.squares_below;
    const float over = s.above_low - wanted, wide = (float)BAND_WIDTH * (float)square_root((double)squares);
    const float under_step = m.above_low - s.above_low, over_step = s.above_low - m.above_high;
    if (wide > 0x1p-3f * wanted || wide > 0x1p-3f * (sum - wanted) || !(under_step > 0.0f && over_step > 0.0f)) {
        span low = {all.low, s.low, sum, s.above_low}, high = {s.low, all.high, s.above_low, 0.0f}; /* not along a straight line */
        if (over > wide) low = s; /* that end is below the band already */
        if (wanted + wide < sum) span_narrow(k, count, &low, wanted + wide, 0.25f * wide);
        if (wanted > wide) span_narrow(k, count, &high, wanted - wide, 0.25f * wide);
        b->low = low.low;
        b->high = !(wanted > wide) ? PLUS_INF : high.above_low - (wanted - wide) <= 0.25f * wide ? high.low : high.high;
    } else {
        b->low = wide > over ? s.low - step * (wide - over) / under_step : s.low;
        b->high = s.low + step * (wide + over) / over_step;
    }
    if (over > slack && b->high < s.high) b->high = s.high; /* many are equal */
    if (!(b->low > all.low)) b->low = all.low;
    const int64_t of = sketch_of(k->row->params.vocab), over_low = of * sketch_tokens(k, count, b->low);
    b->heavy = (float)of * wanted / (float)FLAT_LEAST;
    b->open = b->sum > 0.0 && over_low < k->scratch->list_max * 3 / 4;
    return b->low < b->high && (b->open || over_low - of * sketch_tokens(k, count, b->high) < k->scratch->list_max);
}

/* ---- the list ---------------------------------------------------------------------------------------------- */

/* Estimates the list, which is whole vectors; returns whether it has NaN. */
static int list_estimate(const cpu_scratch *s, band *b, int64_t count) {
    float *const weight = sketch_weights(s);
    vm numbers = v_every();
    for (int n = 0; n < FEW_CHAINS; ++n) v_store(s->list_x + count + n * V_LANES, v_set(MINUS_INF));
    for (int64_t j = 0; j < count; j += FEW_CHAINS * V_LANES) {
        vf v[FEW_CHAINS];
        for (int n = 0; n < FEW_CHAINS; ++n) v[n] = v_load_f32(s->list_x + j + n * V_LANES);
        for (int n = 0; n < FEW_CHAINS; ++n) {
            numbers = v_numbers(numbers, v[n], v[n]);
            v[n] = v_max(v[n], v_set(MINUS_INF)); /* a NaN is above nothing, and weighs nothing */
        }
        v_estimates(v, FEW_CHAINS, &b->e);
        for (int n = 0; n < FEW_CHAINS; ++n) v_store(weight + j + n * V_LANES, v[n]);
    }
    b->count = count;
    return v_bits(numbers) != v_bits(v_every());
}

/* What is above a value of a row, and what is not: the estimates of x[count] and what is known beside them. */
typedef struct sides {
    double above, below;
} sides;

static sides sides_of(const float *x, const float *weight, int64_t count, float value, sides beside) {
    sides s = beside;
    for (int64_t first = 0; first < count; first += BAND_BLOCK * V_LANES) {
        const int64_t end = first + BAND_BLOCK * V_LANES < count ? first + BAND_BLOCK * V_LANES : count;
        vf above[2] = {v_set(0.0f), v_set(0.0f)}, below[2] = {v_set(0.0f), v_set(0.0f)};
        for (int64_t i = first; i < end; i += V_LANES) {
            const vf t = v_load_f32(weight + i);
            const vm larger = v_gt(v_load_f32(x + i), v_set(value));
            above[0] = v_add_where(larger, above[0], t);
            below[0] = v_add_where(v_without(v_every(), larger), below[0], t);
        }
        s.above += (double)v_total(v_add(above[0], above[1]));
        s.below += (double)v_total(v_add(below[0], below[1]));
    }
    return s;
}

/* ---- the reading ------------------------------------------------------------------------------------------- */

/* What is summed of a stretch on the way, lane by lane; and the largest logits of the row. */
typedef struct split {
    vf above, below, best;
} split;

/* Splits a whole group at the band: packs what is in it to x[], and returns how many these are. */
RAFFLE_FN int64_t group_split(const cpu_row *given, int64_t g, const band *b, float *x, split *to, int kind) {
    const cpu_row row = *given; /* copies, which no store can be thought to change */
    const estimator e = b->e;
    const vf low = v_set(b->low), high = v_set(b->high);
    vf above_sum[2] = {v_set(0.0f), v_set(0.0f)}, below_sum[2] = {v_set(0.0f), v_set(0.0f)}, best = to->best;
    float *at = x;
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += FEW_CHAINS * V_LANES) {
        vf v[FEW_CHAINS];
        vm above[FEW_CHAINS], below[FEW_CHAINS];
        for (int n = 0; n < FEW_CHAINS; n += 2) read_pair(&row, i + n * V_LANES, &v[n], &v[n + 1], kind);
        for (int n = 0; n < FEW_CHAINS; ++n) {
            best = v_max(v[n], best);
            above[n] = v_gt(v[n], high);
            below[n] = v_ge(low, v[n]);
            at += v_pack_values(at, v[n], v_neither(above[n], below[n]));
        }
        v_estimates(v, FEW_CHAINS, &e);
        for (int n = 0; n < FEW_CHAINS; ++n) {
            above_sum[n % 2] = v_add_where(above[n], above_sum[n % 2], v[n]);
            below_sum[n % 2] = v_add_where(below[n], below_sum[n % 2], v[n]);
        }
    }
    to->best = best;
    to->above = v_add(to->above, v_add(above_sum[0], above_sum[1]));
    to->below = v_add(to->below, v_add(below_sum[0], below_sum[1]));
    return at - x;
}

/* The same of the last group, if it is not whole. */
RAFFLE_FN int64_t group_split_edge(const cpu_row *row, int64_t g, const band *b, float *x, split *to, int kind) {
    vf above_sum = v_set(0.0f), below_sum = above_sum;
    float *at = x;
    for (int64_t i = g * GROUP; i < row->params.vocab; i += V_LANES) {
        vf v = read_group(row, i, 0, kind);
        const vm above = v_gt(v, v_set(b->high)), below = v_ge(v_set(b->low), v);
        to->best = v_max(v, to->best);
        at += v_pack_values(at, v, v_neither(above, below));
        v_estimates(&v, 1, &b->e);
        above_sum = v_add_where(above, above_sum, v);
        below_sum = v_add_where(below, below_sum, v);
    }
    to->above = v_add(to->above, above_sum);
    to->below = v_add(to->below, below_sum);
    return at - x;
}

/* Splits the row at the band. 0: more is in it than there is room for, or it is not flat. */
RAFFLE_FN int row_split_band(const work *k, band *b, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    split t = {v_set(0.0f), v_set(0.0f), v_set(MINUS_INF)};
    int64_t count = 0;
    b->above = b->below = 0.0;
    for (int64_t first = 0, h = 0; first < s.groups; first += STRETCH, ++h) {
        t.above = t.below = v_set(0.0f);
        for (int64_t g = first; g < first + STRETCH && g < s.groups; ++g) {
            if (count + GROUP + (FEW_CHAINS + 2) * V_LANES > s.list_max) return 0;
            count += group_whole(&row, g) ? group_split(&row, g, b, s.list_x + count, &t, kind)
                                          : group_split_edge(&row, g, b, s.list_x + count, &t, kind);
        }
        v_store(s.list_x + count, v_set(MINUS_INF));
        count = (count + V_LANES - 1) / V_LANES * V_LANES;
        vf heaviest = v_set(v_peak(t.best));
        v_estimates(&heaviest, 1, &b->e);
        if (!(b->sum > 0.0) && v_first(heaviest) > b->heavy) return k->state->peaked = 1, 0;
        s.size[h] = v_total(t.above);
        s.exponent[h] = (int32_t)count;
        b->above += (double)s.size[h];
        b->below += (double)v_total(t.below);
        b->stretches = h + 1;
    }
    b->best = v_peak(t.best);
    b->nan = list_estimate(&s, b, count);
    return 1;
}

/* Lists what is above the band's low end, of a row whose largest logits are known and whose estimates have been summed: groups without any
 * are passed over, and the rest of the sum is below. 0: there is no room. */
RAFFLE_FN int row_split_open(const work *k, band *b, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    int64_t count = 0;
    for (int64_t first = 0, h = 0; first < s.groups; first += STRETCH, ++h) {
        for (int64_t g = first; g < first + STRETCH && g < s.groups; ++g) {
            if (!(s.peak[g] > b->low)) continue;
            if (count + GROUP + (FEW_CHAINS + 2) * V_LANES > s.list_max) return 0;
            const vf low = v_set(b->low);
            float *const x = s.list_x + count, *at = x;
            if (group_whole(&row, g)) {
                for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += 2 * V_LANES) {
                    vf v[2];
                    read_pair(&row, i, &v[0], &v[1], kind);
                    for (int n = 0; n < 2; ++n) at += v_pack_values(at, v[n], v_gt(v[n], low));
                }
            } else {
                for (int64_t i = g * GROUP; i < row.params.vocab; i += V_LANES) {
                    const vf v = read_group(&row, i, 0, kind);
                    at += v_pack_values(at, v, v_gt(v, low));
                }
            }
            count += at - x;
        }
        v_store(s.list_x + count, v_set(MINUS_INF));
        count = (count + V_LANES - 1) / V_LANES * V_LANES;
        s.size[h] = 0.0f;
        s.exponent[h] = (int32_t)count;
        b->stretches = h + 1;
    }
    const sides none = {0.0, 0.0};
    b->best = peaks_largest(s.peak, s.groups);
    list_estimate(&s, b, count);
    b->above = 0.0;
    b->below = b->sum - sides_of(s.list_x, sketch_weights(&s), count, MINUS_INF, none).above;
    return 1;
}

/* ---- the threshold ------------------------------------------------------------------------------------------ */

/* What the estimates say of the threshold: logits from `keep` on stay, those up to `drop` do not, of those between it
 * is open and they are `open` by their estimates. drop < keep. */
typedef struct nucleus {
    float keep, drop;
    double open;
} nucleus;

/* Packs what is above `low` and up to `high` of the list behind it: *x and *weight become that, -inf behind. Returns
 * how many. */
static int64_t band_part(const cpu_scratch *s, int64_t count, float low, float high, float **x, float **weight) {
    const float *const from = s->list_x, *const held = sketch_weights(s);
    float *const to = (float *)s->list_id, *const kept = sketch_weights(s) + s->list_max;
    int64_t found = 0;
    for (int64_t i = 0; i < count; i += V_LANES) {
        const vf v = v_load_f32(from + i);
        const vm in = v_within(v, v_set(low), v_set(high));
        if (!v_bits(in)) continue;
        v_pack_values(kept + found, v_load_f32(held + i), in);
        found += v_pack_values(to + found, v, in);
    }
    v_store(to + found, v_set(MINUS_INF));
    v_store(kept + found, v_set(0.0f));
    *x = to;
    *weight = kept;
    return (found + V_LANES - 1) / V_LANES * V_LANES;
}

/* The largest of x[count] below `value`. */
static float largest_below(const float *x, int64_t count, float value) {
    vf most = v_set(MINUS_INF);
    for (int64_t i = 0; i < count; i += V_LANES) {
        const vf v = v_load_f32(x + i);
        most = v_max(v_select(v_gt(v_set(value), v), v, v_set(MINUS_INF)), most);
    }
    return v_peak(most);
}

/* Finds out what stays: first two values near the threshold, of which one stays and the other not; then those between,
 * from the largest on. 0: the band does not hold it, or the estimates do not say. */
static int nucleus_find(const work *k, const band *b, float share, estimate_error off, nucleus *found) {
    enum { VALUES = 64 };
    const cpu_scratch *const s = k->scratch;
    const float *const list = s->list_x, *const weights = sketch_weights(s);
    const double p = (double)share;
    const sides ends = {b->above, b->below};
    sides low = sides_of(list, weights, b->count, MINUS_INF, ends), high = ends;
    const double sum = low.above + low.below, target = p * sum;
    float from = b->low, to = b->high < b->best ? b->high : b->best;
    vf one = v_set(from);
    v_estimates(&one, 1, &b->e);
    if (b->open) {
        high = sides_of(list, weights, b->count, to, ends);
        if (share_settles(p, high.above, sum, off) != 1) high = ends, to = b->best; /* nothing is above that */
    }
    double apart = BAND_LEFT * (double)v_first(one) + 2.0 * border_margin(p, target, sum, off);
    if (share_settles(p, low.above, sum, off) != 0 || share_settles(p, high.above, sum, off) != 1) return 0;
    for (int step = 0; step < 12 && low.above - high.above > 4.0 * apart; ++step) {
        const double wanted = low.above - target > target - high.above ? target + apart : target - apart;
        float value = from + (to - from) * (float)((low.above - wanted) / (low.above - high.above));
        if (step >= 6) value = 0.5f * from + 0.5f * to;
        if (!(value > from && value < to)) break;
        const sides at = sides_of(list, weights, b->count, value, ends);
        const int stays = share_settles(p, at.above, at.above + at.below, off);
        if (stays == 1)
            to = value, high = at;
        else if (stays == 0)
            from = value, low = at;
        else
            apart *= 2.0;
    }
    float *x, *weight;
    const int64_t count = band_part(s, b->count, from, to, &x, &weight);
    const sides beside = {high.above, low.below};
    found->keep = to;
    found->open = 0.0;
    for (int n = 0; n < VALUES; ++n) {
        const float next = largest_below(x, count, n ? found->drop : to);
        found->drop = next > from ? next : from;
        if (!(next > from)) break;
        const sides at = sides_of(x, weight, count, next, beside);
        const int stays = share_settles(p, at.above, at.above + at.below, off);
        if (stays == 1) found->keep = next;
        if (stays == 0) break;
        if (n + 1 == VALUES) return 0;
    }
    for (int64_t i = 0; i < count; ++i)
        found->open += x[i] > found->drop && x[i] < found->keep ? (double)weight[i] : 0.0;
    return 1;
}

/* ---- the draw ------------------------------------------------------------------------------------------------ */

/* The estimates that are sure to stay, stretch by stretch, to mass[] as doubles; returns their sum. */
static double nucleus_stretches(const cpu_scratch *s, const band *b, float keep) {
    const float *const x = s->list_x, *const weight = sketch_weights(s);
    double sum = 0.0;
    int64_t first = 0;
    for (int64_t h = 0; h < b->stretches; ++h) {
        double held = (double)s->size[h];
        while (first < s->exponent[h]) { /* no more than NUCLEUS_DEPTH says at once: a whole stretch may be in the band */
            const int64_t end = first + BAND_BLOCK * V_LANES < s->exponent[h] ? first + BAND_BLOCK * V_LANES : s->exponent[h];
            vf kept = v_set(0.0f);
            for (; first < end; first += V_LANES)
                kept = v_add_where(v_ge(v_load_f32(x + first), v_set(keep)), kept, v_load_f32(weight + first));
            held += (double)v_total(kept);
        }
        s->mass[h] = bits_of_double(held);
        sum += held;
    }
    return sum;
}

/* The token drawn from groups first .. end-1, of which a cut at `low` is kept. */
RAFFLE_FN int32_t stretch_token(const work *k, const weighing *w, int64_t first, int64_t end, float low, int kind) {
    const cpu_scratch *const s = k->scratch;
    const cut c = cut_from(low);
    for (int64_t g = first; g < end; ++g) s->mass[g] = s->peak[g] >= low ? group_kept(k->row, s, w, g, c, kind) : 0;
    uint64_t left = ticket_within(&k->row->params, tickets_sum(s->mass + first, end - first));
    int64_t g = first;
    for (; left >= s->mass[g]; ++g) left -= s->mass[g];
    return group_draw(k, w, g, c, 0, left);
}

/* The token of a draw from what stays, if the estimates settle in which stretch it is and all that is open leads to one
 * token. */
RAFFLE_FN int32_t nucleus_draw(const work *k, const weighing *w, const band *b, const nucleus *what, estimate_error off,
                               int kind) {
    const cpu_scratch *const s = k->scratch;
    const double sum = nucleus_stretches(s, b, what->keep), chance = (double)draw_bits(&k->row->params).low * 0x1p-64;
    const estimate_error all = {off.own, off.all + what->open * 1.001 / sum};
    double before = 0.0, through = 0.0;
    int64_t h = 0;
    for (;; ++h, before = through) {
        through += double_of(s->mass[h]);
        if (h + 1 == b->stretches || chance * sum < through) break;
    }
    if (!draw_settles(chance, before, through, sum, all)) return RULE_NO_TOKEN;
    const int64_t first = h * STRETCH, end = first + STRETCH < s->groups ? first + STRETCH : s->groups;
    vm numbers = v_every();
    for (int64_t g = first; g < end; ++g)
        s->peak[g] = v_peak(group_whole(k->row, g) ? group_top(k->row, g, &numbers, kind)
                                                   : group_top_edge(k->row, g, &numbers, kind));
    const int64_t listed = h ? s->exponent[h - 1] : 0, count = s->exponent[h] - listed;
    const int32_t token = stretch_token(k, w, first, end, what->keep, kind);
    float low = what->keep;
    if (what->open > 0.0) /* those of this stretch, of which each may be the last that stays */
        while ((low = largest_below(s->list_x + listed, count, low)) > what->drop)
            if (stretch_token(k, w, first, end, low, kind) != token) return RULE_NO_TOKEN;
    return token;
}

/* The token of top-p alone, or RULE_NO_TOKEN if that takes more than estimates. *nan: whether the row has NaN, if there
 * is a token. */
RAFFLE_FN int32_t row_nucleus(const work *k, scale scale, const estimator *e, int *nan, int kind) {
    const row_params *const p = &k->row->params;
    band b;
    nucleus what;
    int32_t token = RULE_NO_TOKEN;
    k->state->list.complete = 0;
    if (kind & READ_PROBS || p->vocab < FLAT_VOCAB) return RULE_NO_TOKEN;
    b.e = *e;
    b.sum = k->state->verdict == MANY ? k->state->sum : 0.0;
    v_flush(1); /* estimates that small are no part of any sum */
    b.nan = *nan;
    const int split = band_guess(k, p->top_p, &b, kind) && (b.open ? row_split_open(k, &b, kind) : row_split_band(k, &b, kind));
    v_flush(0);
    if (!split) return RULE_NO_TOKEN;
    const weighing w = {scale, b.best, ref_make(scale, b.best)};
    estimate_error off = estimate_off_tokens(NUCLEUS_DEPTH, &b.e, &w.row, b.best, p->vocab);
    if (b.open) off.all += 2 * NUCLEUS_DEPTH * 0x1p-24; /* what is below is a difference of two sums, each off by its own additions */
    if (off.own < 1.0 && nucleus_find(k, &b, p->top_p, off, &what)) token = nucleus_draw(k, &w, &b, &what, off, kind);
    if (token != RULE_NO_TOKEN) return *nan = b.nan, token;
    k->state->opened = b.open;
    k->state->at = b.low;
    return token;
}
