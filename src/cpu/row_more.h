/* row_more.h - the loops that few rows need: those of the filters of raffle_extra, and the copy of a row that is going
 * to be edited, or of its groups. Included by row_kernels.h only. But for copies they are compiled once, and look at the
 * row's kind as they read. */

/* Writes the row to to[vocab], masked tokens as -inf. */
RAFFLE_FN void row_copy(const cpu_row *row, float *to, int kind) {
    int64_t i = 0;
    for (; i + V_LANES <= row->params.vocab; i += V_LANES) v_store(to + i, read_full(row, i, kind));
    if (i == row->params.vocab) return;
    float edge[V_LANES];
    v_store(edge, read_edge(row, i, kind));
    memcpy(to + i, edge, (size_t)(row->params.vocab - i) * sizeof *to);
}

/* The smallest logit that is not below `low`. */
static float row_least(const work *k, float low) {
    const cpu_row *row = k->row;
    vf lows = v_set(low), negated = v_set(MINUS_INF);
    for (int64_t g = next_group(k->scratch, 0, low); g < k->scratch->groups; g = next_group(k->scratch, g + 1, low)) {
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            vf x = read_group(row, i, 0, k->kind);
            negated = v_max(v_sub(v_set(0.0f), v_select(v_ge(x, lows), x, v_set(PLUS_INF))), negated);
        }
    }
    return -v_peak(negated);
}

/* How many tokens a cut keeps. */
static uint64_t row_count(const work *k, cut c) {
    const cpu_row *row = k->row;
    float x[V_LANES];
    uint64_t sum = 0;
    for (int64_t g = next_group(k->scratch, 0, c.low); g < k->scratch->groups; g = next_group(k->scratch, g + 1, c.low)) {
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            v_store(x, read_group(row, i, 0, k->kind));
            for (int lane = 0; lane < V_LANES; ++lane) sum += (uint64_t)cut_keeps(c, x[lane], i + lane);
        }
    }
    return sum;
}

/* Sums over all finite logits. */
static moments row_moments(const work *k, float best, double scale) {
    const cpu_row *row = k->row;
    moments m = {0, 0, 0};
    float x[V_LANES];
    for (int64_t i = 0; i < row->params.vocab; i += V_LANES) {
        v_store(x, read_group(row, i, 0, k->kind));
        for (int lane = 0; lane < V_LANES; ++lane) {
            if (!(x[lane] > MINUS_INF)) continue;
            uint64_t d = moments_term(best, x[lane], scale);
            m.count += 1;
            m.sum += d;
            m.squares += d * d;
        }
    }
    return m;
}

/* Tokens a cut keeps of group g: their tickets, others 0. The group's maximum is not below the cut. */
static void group_kept_tickets(const cpu_row *row, int64_t g, const group_ref *r, cut c, float *x, uint64_t *t, int kind) {
    uint32_t weight[GROUP];
    group_expand(row, g, &r->ref, x, weight, kind);
    for (int j = 0; j < GROUP; ++j) t[j] = cut_keeps(c, x[j], g * GROUP + j) ? group_tickets(r, weight[j]) : 0;
}

/* The sum of the surprises of what a cut keeps, and of its tickets. */
static uint64_t row_surprise(const work *k, const weighing *w, float temperature, cut c, uint64_t *mass) {
    const cpu_scratch *s = k->scratch;
    float x[GROUP];
    uint64_t t[GROUP], sum = 0, total = 0;
    for (int64_t g = next_group(s, 0, c.low); g < s->groups; g = next_group(s, g + 1, c.low)) {
        group_ref r = group_ref_make(w, s->peak[g]);
        if (r.below >= TICKET_BITS + 32) continue;
        group_kept_tickets(k->row, g, &r, c, x, t, k->kind);
        for (int j = 0; j < GROUP; ++j) {
            sum += surprise_of(w, temperature, x[j], t[j]);
            total += t[j];
        }
    }
    *mass = total;
    return sum;
}

/* The smallest |x - center| up to which what a cut keeps reaches the target: found digit by digit, the digits being
 * those of the distance's bits, which sort like it. If it is not reached, the largest distance there is. */
static float row_radius(const work *k, const weighing *w, cut c, float center, quest q) {
    enum { DIGITS = 3 };
    const uint32_t shift[DIGITS] = {20, 10, 0}, places[DIGITS] = {2048, 1024, 1024};
    const cpu_scratch *s = k->scratch;
    uint64_t amount[2048], left = q.target;
    uint32_t found = 0;
    float x[GROUP];
    uint64_t t[GROUP];
    for (int digit = 0; digit < DIGITS; ++digit) {
        for (uint32_t i = 0; i < places[digit]; ++i) amount[i] = 0;
        uint32_t known = digit ? ~0u << shift[digit - 1] : 0, most = 0;
        for (int64_t g = next_group(s, 0, c.low); g < s->groups; g = next_group(s, g + 1, c.low)) {
            group_ref r = group_ref_make(w, s->peak[g]);
            if (q.in_tickets && r.below >= TICKET_BITS + 32) continue;
            group_kept_tickets(k->row, g, &r, c, x, t, k->kind);
            for (int j = 0; j < GROUP; ++j) {
                if (!cut_keeps(c, x[j], g * GROUP + j)) continue;
                uint32_t key = bits_of(typical_distance(x[j], center)), place = key >> shift[digit] & (places[digit] - 1);
                if ((key & known) != found) continue;
                amount[place] += q.in_tickets ? t[j] : 1;
                most = place > most ? place : most;
            }
        }
        uint32_t place = 0;
        for (; place < most && amount[place] < left; ++place) left -= amount[place];
        found |= place << shift[digit];
    }
    return float_of(found);
}

/* The largest logit of group g that is not above `high`. */
static float group_most(const cpu_row *row, int64_t g, float high, int kind) {
    vf top = v_set(MINUS_INF);
    for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
        vf x = read_group(row, i, 0, kind);
        top = v_max(v_select(v_gt(x, v_set(high)), v_set(MINUS_INF), x), top);
    }
    return v_peak(top);
}

static float row_most(const work *k, float high) {
    const cpu_scratch *s = k->scratch;
    float best = MINUS_INF;
    for (int64_t g = 0; g < s->groups; ++g) {
        if (!(s->peak[g] > best)) continue;
        float top = s->peak[g] > high ? group_most(k->row, g, high, k->kind) : s->peak[g];
        best = top > best ? top : best;
    }
    return best;
}

/* Forgets the tokens above `high`: each group's largest logit is now the largest of the others. Returns the row's. */
static float row_cap(const work *k, float high) {
    const cpu_scratch *s = k->scratch;
    float best = MINUS_INF;
    state_clear(k->state);
    k->state->fine = 0;
    for (int64_t g = 0; g < s->groups; ++g) {
        if (s->peak[g] > high) s->peak[g] = group_most(k->row, g, high, k->kind);
        best = s->peak[g] > best ? s->peak[g] : best;
    }
    return best;
}

/* ---- edited rows that are made group by group ---------------------------------------------------- */

RAFFLE_FN int group_make(const cpu_patch *p, int64_t g, int kind) {
    const cpu_row *row = &p->from;
    const int64_t first = g * GROUP, end = group_end(row, g);
    if (group_whole(row, g)) {
        for (int64_t i = first; i < end; i += V_LANES) v_store(p->to + i, read_full(row, i, kind));
    } else {
        float edge[GROUP];
        for (int64_t i = first; i < end; i += V_LANES) v_store(edge + (i - first), read_group(row, i, 0, kind));
        memcpy(p->to + first, edge, (size_t)(end - first) * sizeof *edge);
    }
    int largest = 0;
    for (int32_t n = p->head[g]; n >= 0; n = p->edit[n].next) {
        float *x = &p->to[p->edit[n].id];
        largest |= *x >= p->peak[g];
        *x = p->edit[n].x;
    }
    if (p->finish) largest |= p->finish(p, g);
    p->made[g] = 1;
    return largest;
}

/* Group g of a row with a patch, and its largest logit. */
static void row_make(const cpu_row *row, int64_t g) {
    const cpu_patch *p = row->patch;
    vm numbers = v_every();
    if (!p->made[g] && p->make(p, g)) p->peak[g] = v_peak(group_top_edge(row, g, &numbers, READ_F32));
}

/* Makes all groups that may have a logit of at least `least`. */
static void row_make_from(const cpu_row *row, const cpu_scratch *s, float least) {
    for (int64_t first = 0; first < s->groups; first += V_LANES) {
        uint32_t found = v_bits(v_ge(v_load_f32(s->peak + first), v_set(least)));
        for (; found && first + __builtin_ctz(found) < s->groups; found &= found - 1) row_make(row, first + __builtin_ctz(found));
    }
}

/* The largest logit of a row with a patch. */
static float patched_best(const cpu_row *row, const cpu_scratch *s) {
    float most, best = peaks_largest(s->peak, s->groups);
    do {
        most = best;
        row_make_from(row, s, most);
        best = peaks_largest(s->peak, s->groups);
    } while (best < most);
    return best;
}

#define DEFINE_COPY(dtype, kind)                                                                                       \
    static void copy_##dtype(const cpu_row *row, float *to) {                                                          \
        if (row->allow) row_copy(row, to, kind | READ_ALLOW);                                                          \
        else row_copy(row, to, kind);                                                                                  \
    }                                                                                                                  \
    static int make_##dtype(const cpu_patch *p, int64_t g) {                                                           \
        return p->from.allow ? group_make(p, g, kind | READ_ALLOW) : group_make(p, g, kind);                           \
    }
DEFINE_COPY(f32, READ_F32)
DEFINE_COPY(f16, READ_F16)
DEFINE_COPY(bf16, READ_BF16)
