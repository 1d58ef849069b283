/* row_estimate.h - top-p with an estimate of the row's mass: the first reading finds the largest logit of each group and adds up
 * estimates (estimate.h); a list of the largest tokens says whether the threshold is the same for every mass that the row can
 * have. If not, the row is weighed exactly, and all is as if there had been no estimate. Part of row_kernels.h; `kind` is a
 * compile-time constant everywhere. */

#define ESTIMATE_FAR 32.0f /* powers of two from which on estimates are made once more */
enum { ESTIMATE_CHAINS = V_CHAINS < 4 ? V_CHAINS : 4 };
/* The most additions of floats that an estimate goes through: in its lane and chain, of the chains, of the lanes. */
enum { ESTIMATE_DEPTH = GROUP / V_LANES / ESTIMATE_CHAINS + ESTIMATE_CHAINS + 4 };

/* The sum of the estimates of a whole group, its largest logits, lane by lane, and whether there are NaN. */
RAFFLE_FN vf group_estimate(const cpu_row *row, int64_t g, const estimator *e, vf *top, vm *numbers, int kind) {
    vf sum[ESTIMATE_CHAINS], a = v_set(MINUS_INF), b = a;
    for (int n = 0; n < ESTIMATE_CHAINS; ++n) sum[n] = v_set(0.0f);
    *top = a;
    if (group_masked(row, g, kind)) return sum[0];
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += ESTIMATE_CHAINS * V_LANES) {
        vf x[ESTIMATE_CHAINS];
        for (int n = 0; n < ESTIMATE_CHAINS; n += 2) {
            read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
            if (!V_OPEN) *numbers = v_numbers(*numbers, x[n], x[n + 1]);
            a = v_max(x[n], a);
            b = v_max(x[n + 1], b);
        }
        v_estimates(x, ESTIMATE_CHAINS, e);
        for (int n = 0; n < ESTIMATE_CHAINS; ++n) sum[n] = v_add(sum[n], x[n]);
    }
    *top = v_max(a, b);
    for (int n = 1; n < ESTIMATE_CHAINS; ++n) sum[0] = v_add(sum[0], sum[n]);
    return sum[0];
}

/* The same of a group that is not whole; NaN leave *numbers. */
RAFFLE_FN float group_estimate_edge(const cpu_row *row, int64_t g, const estimator *e, float *top, vm *numbers, int kind) {
    double sum = 0.0;
    vf most = v_set(MINUS_INF);
    for (int64_t i = g * GROUP; i < row->params.vocab; i += V_LANES) {
        vf x = read_group(row, i, 0, kind);
        *numbers = v_numbers(*numbers, x, x);
        most = v_max(x, most);
        v_estimates(&x, 1, e);
        sum += (double)v_total(x);
    }
    *top = v_peak(most);
    return (float)sum;
}

/* The largest logits of whole groups first .. end-1 to peak[], and the sums of their estimates to size[]. */
RAFFLE_FN void groups_estimate(const cpu_row *row, const cpu_scratch *s, int64_t first, int64_t end, const estimator *e, vm *numbers,
                               int kind) {
    v_flush(1); /* estimates that small are no part of any sum */
    for (int64_t g = first; g < end; g += 4) {
        vf sum[4], top[4];
        for (int i = 0; i < 4; ++i) sum[i] = group_estimate(row, g + i < end ? g + i : end - 1, e, &top[i], numbers, kind);
        v_store_peaks(s->peak + g, top[0], top[1], top[2], top[3]);
        v_store_totals(s->size + g, sum[0], sum[1], sum[2], sum[3]);
    }
    v_flush(0);
}

/* The largest of the first `count` groups' maxima: a multiple of 16, or all. */
static float peaks_best(const cpu_scratch *s, int64_t count) {
    vf best = v_set(MINUS_INF);
    for (int64_t g = 0; g < count; g += V_LANES) best = v_max(v_load_f32(s->peak + g), best);
    return v_peak(best);
}

/* The sum of the first `count` groups' estimates. */
static double sizes_total(const cpu_scratch *s, int64_t count) {
    double total[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t g = 0; g < count; ++g) total[g % 4] += (double)s->size[g];
    return total[0] + total[1] + total[2] + total[3];
}

/* Whether top-p keeps FLAT_LEAST tokens or more of a row that is estimated at `sum`. */
static int estimate_flat(const work *k, const estimator *e, double sum, float best) {
    vf largest = v_set(best);
    v_estimates(&largest, 1, e);
    return (double)k->row->params.top_p * sum >= (double)FLAT_LEAST * (double)v_first(largest);
}

/* The first reading of a row whose mass is to be estimated: like row_scan, and the sum of all estimates. Where they are of no
 * use, it is the reading of a row that is weighed. An eighth of the row shows whether it may be flat: then the whole row is read for
 * its maxima, and if these agree, for nothing else. And whether the first group's maximum is too far below the others. */
RAFFLE_FN float row_scan_estimate(const work *k, scale scale, int *nan, int kind) {
    if (kind & READ_PROBS) return row_scan(k, nan, kind); /* and nothing is compiled for it */
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    const int64_t whole = row.params.vocab / GROUP, eighth = (whole / 8 + 15) / 16 * 16;
    row_state *const state = k->state;
    vm numbers = v_every();
    float first = MINUS_INF;
    for (int64_t g = 0; g < whole && first == MINUS_INF; ++g) first = v_peak(group_top(&row, g, &numbers, kind));
    if (!ref_is_near(scale, first)) return k->loops->scan_weigh(k, scale, nan);
    estimator e = estimator_make(scale, first);
    numbers = v_every();
    for (int64_t from = 0, to = eighth; from < whole; from = to, to = whole) {
        groups_estimate(&row, &s, from, to, &e, &numbers, kind);
        if (to == whole) break;
        const float seen = peaks_best(&s, eighth);
        const double part = sizes_total(&s, eighth);
        if ((seen - first) * scale.c > ESTIMATE_FAR) { /* once more, from what is nearer to the largest */
            e = estimator_make(scale, seen);
            to = 0;
        } else if (estimate_flat(k, &e, part, seen)) {
            const float best = k->loops->scan(k, nan);
            state->estimated = estimate_flat(k, &e, part / (double)eighth * (double)whole, best);
            state->sum = 0.0;
            if (state->estimated) return best;
        }
    }
    for (int64_t g = whole; g < s.groups; ++g) s.size[g] = group_estimate_edge(&row, g, &e, &s.peak[g], &numbers, kind);
    peaks_pad(&s);
    state->sum = sizes_total(&s, s.groups);
    if (!(state->sum < PLUS_INF)) return k->loops->scan_weigh(k, scale, nan); /* NaN and +inf, where they are not seen above */
    state->estimated = 1;
    state->estimator = e;
    *nan = v_bits(numbers) != v_bits(v_every());
    return peaks_best(&s, s.groups);
}

/* Whether top-p's threshold is the same for every mass in a range, and then among the tokens of the state's list. The threshold
 * falls as the target grows. If not: UNSURE, or MANY if there are too many tokens above it for the list. */
enum { UNSURE, SETTLED, MANY };
static int row_settle(const work *k, const weighing *w, mass_range range) {
    const float p = k->row->params.top_p;
    const quest least = {share_of(p, range.low), 1}, most = {share_of(p, range.high), 1};
    if (least.target >> (32 + TICKET_BITS) >= FLAT_LEAST) return MANY;
    for (int64_t count = TOP_P_FIRST / 4; count <= 4 * TOP_P_FIRST; count *= 4) { /* as row_threshold does, but from fewer on */
        const float bound = peak_bound(k, count, w->best);
        if (!(bound > -FLT_MAX)) return UNSURE;
        const listing l = k->loops->list(k, w, float_of_order(order_of(bound) - 1), PLUS_INF);
        if (!l.complete || (count >= TOP_P_FIRST && l.tickets < least.target / 2)) return MANY;
        if (l.tickets < most.target) continue;
        const cut c = cut_from(list_threshold(k, &l, least));
        k->state->settled = list_tickets(k, &l, c) >= most.target;
        return k->state->settled ? SETTLED : UNSURE;
    }
    return MANY;
}

/* The row's mass; or where an estimate settles all that is asked of it, any that it may have. Where many tokens stay, a sketch
 * guesses the threshold before the row is weighed, so that one reading does for the mass and for what is above the guess. */
RAFFLE_FN uint64_t row_mass(const work *k, const weighing *w, int kind) {
    row_state *const state = k->state;
    if (kind & READ_PROBS || !state->estimated) return row_weigh(k, w, kind);
    const row_params *const p = &k->row->params;
    mass_range range = {0, 0};
    int settled = MANY;
    sketched s;
    if (state->sum > 0.0) {
        range = mass_estimate(state->sum, ESTIMATE_DEPTH, &state->estimator, w->scale, &w->row, w->best, p->vocab);
        settled = range.high ? row_settle(k, w, range) : UNSURE;
    }
    if (settled == SETTLED) return range.low;
    if (settled == MANY && w->row.kind == REF_PLAIN && sketch_guess(k, w, (double)p->top_p, (double)range.low, &s, kind)) {
        uint64_t tickets, mass = row_weigh_above(k, w, s.guess.low, &tickets, kind);
        sketch_keep(k, &s, tickets);
        return mass;
    }
    int nan;
    k->loops->scan_weigh(k, w->scale, &nan);
    return row_weigh(k, w, kind);
}
