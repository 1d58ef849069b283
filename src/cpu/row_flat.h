/* row_flat.h - top-p over flat rows, whose nucleus is far too large for a list. A sketch of the row guesses the threshold, a
 * reading weighs exactly what is above the guess (and for top-p alone the whole row: row_estimate.h), and a list of the few tokens
 * from there to where the threshold must be, on the one side or the other, shows which it is. A wrong guess costs time and nothing
 * else. And the other end: rows of which a mask leaves so few tokens that all fit into a list. Part of row_kernels.h; `kind` is a
 * compile-time constant everywhere. */

/* Rows of at least FLAT_VOCAB tokens, of which FLAT_LEAST or more must stay, whatever they are; 1 of SKETCH_OF is looked at. */
enum { FLAT_VOCAB = 8192, FLAT_LEAST = 32, SKETCH_OF = 32 };

enum { FEW_CHAINS = V_CHAINS < 4 ? V_CHAINS : 4 }; /* there are not many masks, nor registers for all sums */

/* A sketch of a row is in the list's memory: logits in list_x, weights in the row's units in list_t, as floats. */
RAFFLE_FN float *sketch_weights(const cpu_scratch *s) { return (float *)s->list_t; }

/* A ticket in weights of a sketch of so many tokens. */
static double sketch_unit(const work *k, int64_t count) {
    return (double)count / ((double)k->row->params.vocab * (double)(1 << TICKET_BITS));
}

/* Weighs what was read and returns the sum. */
static float sketch_weigh(const work *k, const ref *f, int64_t count) {
    const float *x = k->scratch->list_x;
    float *weight = sketch_weights(k->scratch);
    vf sum = v_set(0.0f);
    for (int64_t i = 0; i < count; i += V_CHAINS * V_LANES) {
        vf v[V_CHAINS];
        for (int n = 0; n < V_CHAINS; ++n) v[n] = v_load_f32(x + i + n * V_LANES);
        v_weights(v, V_CHAINS, f, 0);
        for (int n = 0; n < V_CHAINS; ++n) {
            v_store(weight + i + n * V_LANES, v[n]);
            sum = v_add(sum, v[n]);
        }
    }
    return v_total(sum);
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

/* Moves one end of `guess`, whose other end `at` has `tickets` above it, to where the sketch says that a quest's threshold is
 * passed for sure, nearly; 0 if the sketch does not reach so far. */
static int guess_side(const work *k, const ref *f, const sketched *sketch, quest q, uint64_t tickets, span *guess) {
    const span *const all = &sketch->all;
    const double unit = sketch_unit(k, sketch->count);
    const float at = guess->low, above = guess->above_low;
    const int under = tickets < q.target;
    const double one = (double)v_first(v_weight(v_set(at), f, 0));
    const double far = (double)(under ? q.target - tickets : tickets - q.target) * unit;
    const double chance = 3.0 * square_root(far * one) + 4.0 * one;
    const float wanted = (float)((double)above + (under ? far + chance : -far - chance));
    span s = {at, all->high, above, all->above_high};
    if (!(wanted > 0.0f && wanted < all->above_low)) return 0;
    if (under) s.low = all->low, s.high = at, s.above_low = all->above_low, s.above_high = above;
    const float slack = 0.25f * (float)chance;
    span_narrow(k, sketch->count, &s, wanted, slack);
    guess->low = under ? s.low : at;
    guess->high = under ? at : s.above_low - wanted <= slack ? s.low : s.high; /* the latter beyond many equal ones */
    return guess->low < guess->high;
}

/* Whether a mask leaves few groups, and so few tokens of these that all fit into a list. */
static int row_sparse(const cpu_scratch *s, const cpu_row *row) {
    const int64_t groups = maxima_reaching(s->peak, s->groups, -FLT_MAX), room = list_room(s);
    int64_t allowed = 0;
    if (groups >= TOP_P_FIRST || groups * GROUP <= room) return groups < TOP_P_FIRST;
    for (int64_t i = 0; i < (row->params.vocab + 31) / 32; ++i) allowed += __builtin_popcount(row->allow[i]);
    return allowed <= room;
}

/* Makes a sketch and guesses where `share` of the row's mass is above: of the sketch's, or if `mass` is not 0, all but the rest of
 * that mass, which is below where no single token weighs much. 0: it cannot say. */
RAFFLE_FN int sketch_guess(const work *k, const weighing *w, double share, double mass, sketched *s, int kind) {
    s->count = sketch_read(k, SKETCH_OF, kind) / (V_CHAINS * V_LANES) * (V_CHAINS * V_LANES); /* as they are weighed */
    const float sum = sketch_weigh(k, &w->row, s->count), least = least_of(k->scratch->list_x, s->count);
    const float rest = mass > 0.0 ? (float)((1.0 - share) * mass * sketch_unit(k, s->count)) : (float)((1.0 - share) * (double)sum);
    const span all = {least > w->row.low ? least : w->row.low, w->best, sum, 0.0f};
    s->all = s->guess = all;
    if (!(rest > 0.0f && rest < sum)) return 0;
    span_narrow(k, s->count, &s->guess, sum - rest, 0x1p-11f * sum);
    return 1;
}

/* Keeps the tickets above the sketch's guess for the list that comes next. */
static void sketch_keep(const work *k, const sketched *s, uint64_t tickets) {
    k->state->told = 1;
    k->state->at = s->guess.low;
    k->state->tickets = tickets;
    k->state->sketch = *s;
}

/* Where top-k asks for more tokens than a short row has parts: a value that as many tokens reach, and not many more. 0: it does not, or
 * they do not fit into a list. */
RAFFLE_FN int short_bound(const work *k, quest q, float *low, int kind) {
    const cpu_scratch *s = k->scratch;
    const int64_t vocab = k->row->params.vocab, wanted = (int64_t)q.target;
    float *const x = (float *)s->list_t; /* room for 2 list_max */
    if (q.in_tickets || !k->state->fine || vocab > 2 * s->list_max || wanted <= s->groups * CPU_PARTS || wanted > vocab) return 0;
    if (wanted + wanted / 8 > list_room(s)) return 0;
    for (int64_t count = vectors_copy(k->row, 1, x, kind); count % PEAK_PAD; ++count) x[count] = MINUS_INF;
    const float bound = bound_find(x, vocab, wanted, k->best);
    *low = just_below(bound);
    return bound > -FLT_MAX;
}

/* Whether (low, high] probably holds the threshold of a quest. If so, one end is a sketch's guess, and the tickets above it are
 * kept for the list that comes next. No token weighs more than 2^32, so a quest for many times as much is one for many tokens. */
RAFFLE_FN int row_guessed(const work *k, const weighing *w, quest q, uint64_t mass, float *low, float *high, int kind) {
    row_state *const state = k->state;
    if (kind & READ_PROBS) return 0;
    if (state->settled) return *low = state->list.low, *high = state->list.high, 1;
    if (short_bound(k, q, low, kind)) return *high = PLUS_INF, 1;
    if (kind & READ_ALLOW && row_sparse(k->scratch, k->row)) return state_clear(state), *low = MINUS_INF, *high = PLUS_INF, 1;
    if (!state->told) {
        sketched s;
        if (!q.in_tickets || k->row->params.vocab < FLAT_VOCAB || w->row.kind != REF_PLAIN ||
            q.target >> (32 + TICKET_BITS) < FLAT_LEAST || !sketch_guess(k, w, (double)q.target / (double)mass, 0.0, &s, kind))
            return 0;
        sketch_keep(k, &s, k->loops->weigh_kept(k, w, cut_above(s.guess.low)));
    }
    span guess = state->sketch.guess;
    state->told = guess_side(k, &w->row, &state->sketch, q, state->tickets, &guess);
    *low = guess.low;
    *high = guess.high;
    return state->told;
}
