/* row_estimate.h - rows whose mass is estimated: the first reading finds the largest logit of each group and adds up estimates
 * (estimate.h). For a draw from the whole row they say in which stretch it is, and for top-p whether the token stays that was drawn; for
 * top-p's threshold, a list of the largest tokens says whether it is the same for every mass that the row can have. Where that is not
 * settled, the row is weighed exactly, and all is as if there had been no estimate. Part of row_kernels.h; `kind`, where it is an
 * argument, is a compile-time constant. */

#define ESTIMATE_FAR 32.0f /* powers of two from which on estimates are made once more */
/* The most additions of floats that an estimate goes through: in its lane and chain, of the chains, of the lanes. */
enum { ESTIMATE_DEPTH = GROUP / V_LANES / FEW_CHAINS + FEW_CHAINS + 4 };

/* The sum of the estimates of a whole group, its largest logits, lane by lane, and whether there are NaN. */
RAFFLE_FN vf group_estimate(const cpu_row *row, int64_t g, const estimator *e, vf *top, vm *numbers, int kind) {
    vf sum[FEW_CHAINS], a = v_set(MINUS_INF), b = a;
    for (int n = 0; n < FEW_CHAINS; ++n) sum[n] = v_set(0.0f);
    *top = a;
    if (group_masked(row, g, kind)) return sum[0];
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += FEW_CHAINS * V_LANES) {
        vf x[FEW_CHAINS];
        for (int n = 0; n < FEW_CHAINS; n += 2) {
            read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
            if (!V_OPEN) *numbers = v_numbers(*numbers, x[n], x[n + 1]);
            a = v_max(x[n], a);
            b = v_max(x[n + 1], b);
        }
        v_estimates(x, FEW_CHAINS, e);
        for (int n = 0; n < FEW_CHAINS; ++n) sum[n] = v_add(sum[n], x[n]);
    }
    *top = v_max(a, b);
    for (int n = 1; n < FEW_CHAINS; ++n) sum[0] = v_add(sum[0], sum[n]);
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

/* The sum of the first `count` groups' estimates. */
static double sizes_total(const cpu_scratch *s, int64_t count) {
    double total[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t g = 0; g < count; ++g) total[g % 4] += (double)s->size[g];
    return total[0] + total[1] + total[2] + total[3];
}

/* How many tokens as heavy as the largest a row is that is estimated at `sum`. */
static double estimate_tokens(const estimator *e, double sum, float best) {
    vf largest = v_set(best);
    v_estimates(&largest, 1, e);
    return sum / (double)v_first(largest);
}

/* Whether top-p keeps FLAT_LEAST tokens or more of it. */
static int estimate_flat(const work *k, const estimator *e, double sum, float best) {
    return (double)k->row->params.top_p * estimate_tokens(e, sum, best) >= (double)FLAT_LEAST;
}

/* The first reading of a row whose mass is to be estimated: like row_scan, and the sum of all estimates. Where they are of no
 * use, it is the reading of a row that is weighed. Some of it shows whether the first group's maximum is too far below the others; and where
 * nothing is drawn by them, whether top-p may keep much of the row: then it is read for its maxima, and if these agree, for nothing else. */
RAFFLE_FN float row_scan_estimate(const work *k, scale scale, int *nan, int kind) {
    if (kind & READ_PROBS) return row_scan(k, nan, kind); /* and nothing is compiled for it */
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    row_state *const state = k->state;
    const int draws = state->draws;
    const int64_t whole = row.params.vocab / GROUP, eighth = (whole / 8 + PEAK_PAD - 1) / PEAK_PAD * PEAK_PAD;
    const int64_t some = draws ? whole / 32 / 4 * 4 + 4 : eighth;
    vm numbers = v_every();
    float first = MINUS_INF;
    state->first = scale;
    for (int64_t g = 0; g < whole && first == MINUS_INF; ++g) first = v_peak(group_top(&row, g, &numbers, kind));
    if (!ref_is_near(scale, first)) return k->loops->scan_weigh(k, scale, nan);
    estimator e = estimator_make(scale, first);
    numbers = v_every();
    for (int64_t from = 0, to = some, tried = draws; from < whole; from = to, to = whole) {
        groups_estimate(&row, &s, from, to, &e, &numbers, kind);
        if (to == whole) break;
        for (int64_t g = some; g % PEAK_PAD; ++g) s.peak[g] = MINUS_INF;
        const float seen = peaks_largest(s.peak, some);
        const double part = sizes_total(&s, some), all = part / (double)some * (double)whole;
        if ((seen - first) * scale.c > ESTIMATE_FAR) { /* once more, from what is nearer to the largest */
            e = estimator_make(scale, seen);
            to = 0;
        } else if (!tried && estimate_flat(k, &e, part, seen)) {
            tried = 1;
            const float best = k->loops->scan(k, nan);
            state->estimated = estimate_flat(k, &e, all, best);
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
    return peaks_largest(s.peak, s.groups);
}

/* ---- a row and what is above a value ----------------------------------------------------------------- */

/* The sums of a group's weights, and of those of its tokens above a value. As for vsum. */
typedef struct vsums { vu low, above_low; vf size, above_size; } vsums;

/* The sums of a whole group of a block. `open`: see weigh_blocks.h. */
RAFFLE_FN vsums block_sums(const cpu_row *row, int64_t g, const block_refs *f, int q, float at, int open, int kind) {
    vsums s = {v_set_u(0), v_set_u(0), v_set(0.0f), v_set(0.0f)};
    const open_ref mine = open_ref_of(f, q);
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += FEW_CHAINS * V_LANES) {
        vf x[FEW_CHAINS];
        vm above[FEW_CHAINS];
        for (int n = 0; n < FEW_CHAINS; n += 2) read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
        for (int n = 0; n < FEW_CHAINS; ++n) above[n] = v_gt(x[n], v_set(at));
        if (open) v_weights_open(x, FEW_CHAINS, &mine);
        else v_weights_block(x, FEW_CHAINS, f, q);
        for (int n = 0; n < FEW_CHAINS; ++n) {
            const vu weight = v_round(x[n]);
            s.low = v_add_u(s.low, weight);
            s.size = v_add(s.size, x[n]);
            s.above_low = v_add_where_u(above[n], s.above_low, weight);
            s.above_size = v_add_where(above[n], s.above_size, x[n]);
        }
    }
    return s;
}

/* Weighs a group that is not like the others, as row_weigh_above does. Compiled once for all kinds. */
static void group_weigh_above(const work *k, const weighing *w, int64_t g, float at) {
    const cpu_scratch *s = k->scratch;
    vm numbers = v_every();
    group_weigh(k, w->scale, g, &numbers, leave_nothing, k->kind);
    s->mass[g] = s->peak[g] > at ? group_kept(k->row, s, w, g, cut_above(at), k->kind) : 0;
}

/* Weighs a row whose maxima are known and whose reference is plain: returns its mass, and leaves the tickets of what is above `at`
 * in mass[] and their sum in *tickets. */
RAFFLE_FN uint64_t row_weigh_above(const work *k, const weighing *w, float at, uint64_t *tickets, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    const int64_t whole = row.params.vocab / GROUP;
    uint64_t total = 0, above = 0;
    uint32_t open = V_OPEN && !(kind & READ_ALLOW); /* 1: v_weights_open has met nothing that it cannot weigh */
    v_flush(1); /* weights that small are no part of any sum */
    for (int64_t first = 0; first < s.groups; first += BLOCK) {
        const int64_t end = first + BLOCK < s.groups ? first + BLOCK : s.groups, full = end < whole ? end : whole;
        uint32_t low[BLOCK], below[BLOCK];
        float size[BLOCK];
        vsums a[BLOCK];
        block_refs f;
        block_refs_make(&f, w->scale, s.peak + first, s.exponent + first, BLOCK);
        for (int q = 0; q < BLOCK; ++q) below[q] = (uint32_t)w->row.exponent - (uint32_t)s.exponent[first + q];
        for (int q = 0; q < BLOCK; ++q) {
            if (first + q >= full || !(f.plain >> q & 1)) memset(&a[q], 0, sizeof a[q]);
            else if (open & f.open >> q) a[q] = block_sums(&row, first + q, &f, q, at, V_OPEN, kind);
            else a[q] = block_sums(&row, first + q, &f, q, at, 0, kind);
        }
        for (int q = 0; q < BLOCK; q += 4) {
            const vsums *const t = a + q;
            v_store_totals_u(s.low + first + q, t[0].low, t[1].low, t[2].low, t[3].low);
            v_store_totals(s.size + first + q, t[0].size, t[1].size, t[2].size, t[3].size);
            v_store_totals_u(low + q, t[0].above_low, t[1].above_low, t[2].above_low, t[3].above_low);
            v_store_totals(size + q, t[0].above_size, t[1].above_size, t[2].above_size, t[3].above_size);
        }
        const uint32_t usual = f.plain & sizes_finite(s.size + first), every = full > first ? (2u << (full - first - 1)) - 1 : 0;
        if (f.plain & ~usual & every) open = 0; /* where one -inf is, there are more */
        for (int64_t g = first; g < end; ++g) {
            const int q = (int)(g - first);
            if (g >= whole || !(usual >> q & 1)) group_weigh_above(k, w, g, at);
            else if (!(s.peak[g] > at)) s.mass[g] = 0;
            else if (below[q] <= TICKET_BITS) s.mass[g] = sum_resolve(low[q], size[q]) << (TICKET_BITS - below[q]);
            else s.mass[g] = group_kept(&row, &s, w, g, cut_above(at), k->kind); /* tickets of a token lose its last bits */
            above += s.mass[g];
            total += group_weighed(&s, g, w);
        }
    }
    v_flush(0);
    *tickets = above;
    return total;
}

/* ---- what the estimate settles -------------------------------------------------------------------------- */

/* Whether `count` tokens at `value` hold less than so many tickets of an estimated row of `mass`. */
static int tokens_hold_less(const row_state *state, float value, int64_t count, uint64_t tickets, uint64_t mass) {
    vf one = v_set(value);
    v_estimates(&one, 1, &state->estimator);
    return (double)count * (double)v_first(one) * (double)mass < (double)tickets * state->sum;
}

/* The verdict on top-p's threshold for every mass in a range. The threshold falls as the target grows. */
static int row_settle(const work *k, const weighing *w, mass_range range) {
    const float p = k->row->params.top_p;
    const quest least = {share_of(p, range.low), 1}, most = {share_of(p, range.high), 1};
    if (least.target >> (32 + TICKET_BITS) >= FLAT_LEAST) return MANY;
    for (int64_t count = TOP_P_FIRST / 4; count <= 4 * TOP_P_FIRST; count *= 4) { /* as row_threshold does, but from fewer on */
        const float bound = peak_bound(k, count, w->best);
        if (!(bound > -FLT_MAX)) return MANY; /* for its maxima, at least */
        const listing l = k->loops->list(k, w, just_below(bound), PLUS_INF);
        if (!l.complete) return MANY;
        if (l.tickets < most.target) { /* of the next list, four times as long, each weighs less than at this bound */
            if (count >= TOP_P_FIRST && tokens_hold_less(k->state, bound, 3 * count, most.target - l.tickets, range.low)) return MANY;
            continue;
        }
        const cut c = cut_from(list_threshold(k, &l, least));
        k->state->settled = list_tickets(k, &l, c) >= most.target;
        return k->state->settled ? SETTLED : UNSURE;
    }
    return MANY;
}

/* The row's mass for top-p's share; or where an estimate settles what is asked of it, any that it may have. Where many tokens stay,
 * a sketch guesses the threshold before the row is weighed, so that one reading does for the mass and for what is above the guess. */
RAFFLE_FN uint64_t row_share_mass(const work *k, const weighing *w, int kind) {
    row_state *const state = k->state;
    if (kind & READ_PROBS || !state->estimated || !scale_fits(state->first, w)) return k->loops->weigh(k, w);
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
    return k->loops->weigh(k, w);
}

/* ---- draws ------------------------------------------------------------------------------------------------ */

/* What is drawn from the whole row, if the estimates settle in which stretch that is. 0: they do not. whole: as group_draw's. */
static int row_draw_estimated(const work *k, const weighing *w, philox_pair bits, int whole, drawn *d) {
    const cpu_scratch *const s = k->scratch;
    const row_state *const state = k->state;
    const estimate_error off = estimate_off(ESTIMATE_DEPTH, &state->estimator, &w->row, w->best, k->row->params.vocab);
    const double chance = (double)bits.low * 0x1p-64;
    double before = 0.0, through = 0.0;
    int64_t g = 0, count = 0;
    for (;; g += STRETCH, before = through) {
        const float *const size = s->size + g;
        count = g + STRETCH < s->groups ? STRETCH : s->groups - g;
        if (count == STRETCH) { /* several at once: one addition behind the other is a wait */
            through += (((double)size[0] + (double)size[1]) + ((double)size[2] + (double)size[3])) +
                       (((double)size[4] + (double)size[5]) + ((double)size[6] + (double)size[7]));
        } else {
            for (int64_t i = 0; i < count; ++i) through += (double)size[i];
        }
        if (g + STRETCH >= s->groups || chance * state->sum < through) break;
    }
    if (!draw_settles(chance, before, through, state->sum, off)) return 0;
    k->loops->weigh_some(k, w, g, g + count);
    const uint64_t left = stretch_draw(s, tickets_sum(s->mass + g, count), bits.high, &g);
    *d = group_draw(k, w, g, cut_from(-FLT_MAX), whole, left);
    return 1;
}

/* What is drawn without filters; RULE_NO_TOKEN: the estimates do not say. */
static drawn row_token_estimated(const work *k, const weighing *w) {
    drawn d = drawn_nothing;
    row_draw_estimated(k, w, draw_bits(&k->row->params), 1, &d);
    return d;
}

/* The sum of the estimates of a group's tokens up to `at`. */
RAFFLE_FN double group_under(const cpu_row *row, int64_t g, const estimator *e, float at, int kind) {
    vf sum[FEW_CHAINS];
    for (int n = 0; n < FEW_CHAINS; ++n) sum[n] = v_set(0.0f);
    if (group_whole(row, g)) {
        for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += FEW_CHAINS * V_LANES) {
            vf x[FEW_CHAINS];
            vm under[FEW_CHAINS];
            for (int n = 0; n < FEW_CHAINS; n += 2) read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
            for (int n = 0; n < FEW_CHAINS; ++n) under[n] = v_ge(v_set(at), x[n]);
            v_estimates(x, FEW_CHAINS, e);
            for (int n = 0; n < FEW_CHAINS; ++n) sum[n] = v_add_where(under[n], sum[n], x[n]);
        }
    } else {
        for (int64_t i = g * GROUP, n = 0; i < row->params.vocab; i += V_LANES, n = (n + 1) % FEW_CHAINS) {
            vf x = read_group(row, i, 0, kind);
            const vm under = v_ge(v_set(at), x);
            v_estimates(&x, 1, e);
            sum[n] = v_add_where(under, sum[n], x);
        }
    }
    for (int n = 1; n < FEW_CHAINS; ++n) sum[0] = v_add(sum[0], sum[n]);
    return (double)v_total(sum[0]);
}

/* Whether top-p keeps tokens with logit `at` of a row whose groups have been estimated: 1, 0, or -1 where the estimates do not say. What is
 * not above `at` must hold more than 1 - p of the row. Groups whose largest logit is not above it do so as a whole; of the others as many are
 * read again as it takes to know. */
RAFFLE_FN int row_keeps(const work *k, const weighing *w, float at, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    const estimator e = k->state->estimator;
    const double sum = k->state->sum, p = (double)row.params.top_p;
    estimate_error off = estimate_off_tokens(ESTIMATE_DEPTH, &e, &w->row, w->best, row.params.vocab);
    off.all += 2 * ESTIMATE_DEPTH * 0x1p-24; /* differences of two sums, each off by its own additions */
    double under = 0.0, above = 0.0;
    for (int64_t g = 0; g < s.groups; ++g) under += s.peak[g] <= at ? (double)s.size[g] : 0.0;
    int stays = share_settles(p, sum - under, sum, off) == 1 ? 1 : -1;
    v_flush(1); /* as when they were summed */
    for (int64_t g = 0; g < s.groups && stays < 0; ++g) {
        if (s.peak[g] <= at) continue;
        const double low = group_under(&row, g, &e, at, kind);
        under += low;
        above += (double)s.size[g] - low;
        if (share_settles(p, sum - under, sum, off) == 1) stays = 1;
        if (share_settles(p, above, sum, off) == 0) stays = 0;
    }
    v_flush(0);
    return stays;
}

/* The token of top-p alone, as row_propose (cut.h) finds it; RULE_NO_TOKEN: the estimates do not say. */
RAFFLE_FN drawn row_propose_estimated(const work *k, const weighing *w, int kind) {
    float most_cut = MINUS_INF;
    if (kind & READ_PROBS) return drawn_nothing; /* they are not estimated, and nothing is compiled for them */
    for (uint32_t j = 0; j < PROPOSALS; ++j) {
        drawn d;
        if (!row_draw_estimated(k, w, proposal_bits(&k->row->params, j), 0, &d)) return drawn_nothing;
        if (!(d.x > most_cut)) continue; /* no token, too */
        const int stays = row_keeps(k, w, d.x, kind);
        if (stays) return stays > 0 ? d : drawn_nothing;
        most_cut = d.x;
    }
    return drawn_nothing;
}
