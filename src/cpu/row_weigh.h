/* row_weigh.h - the weights of logits: sums of groups, of a row as a whole or of what a cut keeps. Part of row_kernels.h; `kind` is
 * a compile-time constant everywhere. */

/* ---- weigh: sums of weights ---------------------------------------------------------------------- */

/* A sum of at most GROUP weights: its low 32 bits, and all of it in floats. Their rounding errors are far
 * below 2^31, so the two together are the exact sum, whatever the order of summation. */
typedef struct vsum { vcount low; vf size; } vsum;

RAFFLE_FN vsum sum_zero(void) {
    vsum s;
    memset(&s, 0, sizeof s);
    return s;
}

RAFFLE_FN vsum sum_add(vsum s, vf weight) {
    vsum sum = {v_count_add(s.low, weight), v_add(s.size, weight)};
    return sum;
}

/* The sum whose low bits and size, up to rounding errors, are given. */
RAFFLE_FN uint64_t sum_resolve(uint32_t low, float size) {
    return low + ((uint64_t)((int64_t)size - low + 0x80000000) >> 32 << 32);
}

/* Four sums leave their lanes together. */
RAFFLE_FN void sum_store(uint32_t *low, float *size, const vsum *s) {
    v_store_totals_u(low, v_count_low(s[0].low), v_count_low(s[1].low), v_count_low(s[2].low), v_count_low(s[3].low));
    v_store_totals(size, s[0].size, s[1].size, s[2].size, s[3].size);
}

/* Tokens i .. i + V_CHAINS V_LANES - 1, in any order, to be weighed by weights_usual. What is no weight has weight 0, so rows of weights
 * are read as they are stored. */
RAFFLE_FN void read_usual(const cpu_row *row, int64_t i, vf *x, int kind) {
    for (int n = 0; n < V_CHAINS; n += 2) read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind & ~READ_PROBS);
}
/* Their weights, under the reference that most groups of such a row have: a plain one, or of a row of weights a linear one. */
RAFFLE_FN int ref_is_usual(const ref *f, int kind) { return f->kind == (kind & READ_PROBS ? REF_LINEAR : REF_PLAIN); }
RAFFLE_FN void weights_usual(vf *x, const ref *f, int kind) {
    ref linear = *f;
    linear.kind = REF_LINEAR; /* said again for the compiler */
    if (!(kind & READ_PROBS)) v_weights(x, V_CHAINS, f, 0);
    for (int n = 0; n < V_CHAINS && kind & READ_PROBS; ++n) x[n] = v_weight_any(x[n], &linear);
}

/* The sum of the weights of a whole group under a usual reference. */
RAFFLE_FN vsum group_sum_usual(const cpu_row *row, int64_t g, const ref *f, int kind) {
    vsum sum = sum_zero();
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += V_CHAINS * V_LANES) {
        vf x[V_CHAINS];
        read_usual(row, i, x, kind);
        weights_usual(x, f, kind);
        for (int n = 0; n < V_CHAINS; ++n) sum = sum_add(sum, x[n]);
    }
    return sum;
}


/* The sum of the weights of any group. */
RAFFLE_FN vsum group_sum(const cpu_row *row, int64_t g, const ref *f, int kind) {
    if (ref_is_usual(f, kind) && group_whole(row, g)) return group_sum_usual(row, g, f, kind);
    vsum sum = sum_zero();
    for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES)
        sum = sum_add(sum, v_weight_any(read_group(row, i, 0, kind), f));
    return sum;
}

/* What the first reading of a row leaves of its tokens in to[vocab], which may be the logits. `what` is a compile-time constant. */
enum { LEAVE_NOTHING, LEAVE_WEIGHTS, LEAVE_LOGITS };
typedef struct leaving { float *to; int what; } leaving;
static const leaving leave_nothing = {NULL, LEAVE_NOTHING};

/* Vectors that block_step weighs side by side. Eight with AVX-512 leave no registers for the sums: each addition to one that is kept in
 * memory waits for the store before it. */
enum { STEP_CHAINS = V_CHAINS < 4 ? V_CHAINS : 4 };

/* One group on its way: its weights are added up, and the group `next` is read for its largest logits. These
 * are rough: if there is an infinity that they do not see, it makes the sum of weights infinite or NaN.
 * A group is read from memory for its maximum while another is weighed: neither waits for the other.
 * `open`: see weigh_blocks.h. If not, a NaN of group g leaves *numbers. */
RAFFLE_FN vsum block_step(const cpu_row *row, int64_t g, const block_refs *f, int q, int64_t next, vf *top, vm *numbers,
                          int open, leaving leave, int kind) {
    vsum sum = sum_zero();
    vf a = v_set(MINUS_INF), b = a;
    const int masked = (kind & READ_ALLOW) != 0, masked_ahead = masked && !masks_pairs(kind), plain = kind & ~READ_ALLOW;
    const uint32_t *allow = masked ? row->allow + g * (GROUP / 32) : NULL, *ahead = masked ? row->allow + next * (GROUP / 32) : NULL;
    const open_ref mine = open_ref_of(f, q);
    for (int64_t i = 0; i < GROUP; i += STEP_CHAINS * V_LANES) {
        float *const at = leave.what ? leave.to + g * GROUP + i : NULL;
        vf x[STEP_CHAINS];
        for (int n = 0; n < STEP_CHAINS; n += 2) {
            const int64_t j = i + n * V_LANES;
            vf y, z;
            if (leave.what || masked) read_to_weigh(row, g * GROUP + j, &x[n], &x[n + 1], open ? plain : kind);
            else read_pair(row, g * GROUP + j, &x[n], &x[n + 1], kind);
            if (!open) *numbers = v_numbers(*numbers, x[n], x[n + 1]);
            if (masked_ahead) read_in_order(row, next * GROUP + j, &y, &z, plain);
            else read_rough(row, next * GROUP + j, &y, &z, kind);
            a = masked_ahead ? v_max_allowed(y, a, ahead, j) : v_max(y, a);
            b = masked_ahead ? v_max_allowed(z, b, ahead, j + V_LANES) : v_max(z, b);
        }
        for (int n = 0; n < STEP_CHAINS && leave.what == LEAVE_LOGITS; ++n) v_store(at + n * V_LANES, x[n]);
        if (open) v_weights_open(x, STEP_CHAINS, &mine);
        else v_weights_block(x, STEP_CHAINS, f, q);
        for (int n = 0; n < STEP_CHAINS; ++n) {
            if (open && masked) x[n] = v_select(v_allowed(allow, i + n * V_LANES), x[n], v_set(0.0f));
            if (leave.what == LEAVE_WEIGHTS) v_store(at + n * V_LANES, x[n]);
            sum = sum_add(sum, x[n]);
        }
    }
    *top = smooth(v_max(a, b), kind);
    return sum;
}

/* The weights of any group to their place in to[vocab], and their sum. */
RAFFLE_FN vsum group_weights_to(const cpu_row *row, int64_t g, const ref *f, float *to, int kind) {
    const int64_t first = g * GROUP, count = group_end(row, g) - first;
    float made[GROUP];
    vsum sum = sum_zero();
    for (int64_t j = 0; j < count; j += V_LANES) {
        vf v = v_weight_any(read_group(row, first + j, 0, kind), f);
        v_store(made + j, v);
        sum = sum_add(sum, v);
    }
    memcpy(to + first, made, (size_t)count * sizeof *made);
    return sum;
}

/* The reference and the weights of any group, whatever is in it; a NaN leaves *numbers. It leaves no logits. */
RAFFLE_FN void group_weigh(const work *k, scale scale, int64_t g, vm *numbers, leaving leave, int kind) {
    const cpu_scratch *s = k->scratch;
    const int none = group_whole(k->row, g) && group_masked(k->row, g, kind), leaves = leave.what == LEAVE_WEIGHTS;
    float peak = none ? MINUS_INF : v_peak(group_top_edge(k->row, g, numbers, kind));
    ref f = ref_make(scale, peak);
    vsum sum = sum_zero();
    if (peak > MINUS_INF) sum = leaves ? group_weights_to(k->row, g, &f, leave.to, kind) : group_sum(k->row, g, &f, kind);
    else if (leaves) memset(leave.to + g * GROUP, 0, (size_t)(group_end(k->row, g) - g * GROUP) * sizeof *leave.to);
    s->peak[g] = peak;
    s->exponent[g] = f.exponent;
    s->low[g] = v_total_u(v_count_low(sum.low));
    s->size[g] = v_total(sum.size);
}

/* The largest logits of groups first .. end-1, which are whole, to peak[]. NaN are found when they are weighed. */
RAFFLE_FN void groups_top(const cpu_row *row, const cpu_scratch *s, int64_t first, int64_t end, int kind) {
    vm numbers = v_every();
    for (int64_t g = first; g < end; g += 4) {
        vf top[4];
        for (int i = 0; i < 4; ++i) top[i] = group_top(row, g + i < end ? g + i : end - 1, &numbers, kind);
        v_store_peaks(s->peak + g, top[0], top[1], top[2], top[3]);
    }
}

/* Sums of a group's weights are below this; NaN and infinities are not. */
#define SIZE_END 0x1p41f

/* Which of a block's sums of weights are sums, as bits. */
RAFFLE_FN uint32_t sizes_finite(const float *size) {
    uint32_t finite = 0;
    for (int q = 0; q < BLOCK; q += V_LANES) {
        vf x = v_load_f32(size + q);
        finite |= v_bits(v_and(v_ge(x, v_set(0.0f)), v_gt(v_set(SIZE_END), x))) << q;
    }
    return finite;
}

/* Which of four groups there are, from `first` on, as bits. */
RAFFLE_FN uint32_t four_mask(const cpu_row *row, int64_t first) {
    const int64_t left = row->params.vocab / GROUP - first;
    return left < 4 ? (1u << left) - 1 : 15;
}

/* Weighs four neighbouring groups whose references are *f, those that are there and have a plain one, and reads the four that are eight
 * groups further on for their maxima, or as many as there are; where none is, the same once more. To low[], size[] and peak[].
 * `open`: all four are there and are weighed as block_step does with `open`. 0: one of the sums may be none, but infinite or NaN. */
RAFFLE_FN int four_weigh(const cpu_row *row, const cpu_scratch *s, const block_refs *f, int64_t first, vm *numbers, int open, leaving leave,
                         int kind) {
    const int64_t last = row->params.vocab / GROUP - 1, ahead = first + 8 <= last ? first + 8 : first;
    const uint32_t some = f->plain & four_mask(row, first);
    vsum sum[4];
    vf top[4];
    vm ignored = v_every();
    for (int i = 0; i < 4; ++i) {
        const int64_t next = ahead + i < last ? ahead + i : last;
        if (open || some >> i & 1) {
            sum[i] = block_step(row, first + i, f, i, next, &top[i], numbers, open, leave, kind);
        } else {
            sum[i] = sum_zero();
            top[i] = group_top(row, next, &ignored, kind); /* a NaN is found when it is weighed */
        }
    }
    /* NaN and what is too large make the total so; a NaN that v_min does not see, too. Few steps that wait for each other. */
    const vf least = v_min(v_min(sum[0].size, sum[1].size), v_min(sum[2].size, sum[3].size));
    const vf total = v_add(v_add(sum[0].size, sum[1].size), v_add(sum[2].size, sum[3].size));
    sum_store(s->low + first, s->size + first, sum);
    v_store_peaks(s->peak + ahead, top[0], top[1], top[2], top[3]);
    return v_bits(v_and(v_ge(least, v_set(0.0f)), v_gt(v_set(SIZE_END), total))) == v_bits(v_every());
}

/* four_weigh in functions of their own: among other code, the compiler runs out of registers for it. Not more parameters than there are
 * registers for them, and no structs: gcc passes these through vector registers and memory, and what is to be read waits for that. */
typedef int (*four_function)(const cpu_row *row, const cpu_scratch *s, const block_refs *f, int64_t first, vm *numbers, float *to);
typedef struct fours { four_function open, any; } fours;

#define DEFINE_FOUR(name, open, what, kind)                                                                            \
    static __attribute__((noinline)) int name(const cpu_row *row, const cpu_scratch *s, const block_refs *f,           \
                                              int64_t first, vm *numbers, float *to) {                                 \
        const leaving leave = {to, what};                                                                              \
        return four_weigh(row, s, f, first, numbers, open, leave, kind);                                               \
    }
#define DEFINE_FOURS(name, what, kind)                                                                                 \
    DEFINE_FOUR(name##_four_open, V_OPEN, what, kind)                                                                  \
    DEFINE_FOUR(name##_four_any, 0, what, kind)                                                                        \
    static const fours name##_fours = {name##_four_open, name##_four_any};

/* Weighs the groups from `first` on, up to four, as four_weigh does, and those that it leaves. Nothing is written before it is known
 * how the group must be weighed: its logits may be there. */
RAFFLE_FN void row_weigh_four(const work *k, scale scale, const block_refs *f, int64_t first, vm *numbers, leaving leave, fours by,
                              int kind) {
    const cpu_scratch *s = k->scratch;
    const uint32_t every = four_mask(k->row, first);
    const int open = k->state->open && (f->open & every) == 15;
    const int good = open ? by.open(k->row, s, f, first, numbers, leave.to) : by.any(k->row, s, f, first, numbers, leave.to);
    uint32_t sums = 0;
    if (!good) k->state->open = 0; /* where one -inf is, there are more */
    if ((f->plain & every) != every) k->state->plain = 0;
    else if (good) return;
    for (int i = 0; i < 4; ++i) sums |= (uint32_t)(s->size[first + i] >= 0.0f && s->size[first + i] < SIZE_END) << i;
    for (uint32_t again = ~(sums & f->plain) & every; again; again &= again - 1)
        group_weigh(k, scale, first + __builtin_ctz(again), numbers, leave, kind);
}

/* By which scale a row is weighed beside `first` in one reading; flat: by none. */
RAFFLE_FN scale scale_too(const cpu_row *row, scale first) {
    const scale too = row->weigh_at > 0.0f ? scale_make(row->weigh_at) : scale_none;
    return scale_same(too, first) ? scale_none : too;
}

/* The weights of groups first .. end-1 by the other scale of a row that is weighed by two. Their maxima
 * are known, and they were read from memory a moment ago. */
RAFFLE_FN void groups_weigh_too(const work *k, scale scale, int64_t first, int64_t end, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    for (int64_t g = first; g < end; g += 4) {
        vsum sum[4];
        for (int i = 0; i < 4; ++i) {
            const float peak = g + i < end ? s.peak[g + i] : MINUS_INF;
            const ref f = ref_make(scale, peak);
            s.too_exponent[g + i] = f.exponent;
            sum[i] = peak > MINUS_INF ? group_sum(&row, g + i, &f, kind) : sum_zero();
        }
        sum_store(s.too_low + g, s.too_size + g, sum);
    }
}

/* The first reading of a row that is weighed whole: the largest logit of each group, as row_scan finds them, and each
 * group's weight as low[] and size[], of which row_weigh makes tickets; and by scale_too, if the row has one. Not for a scale that
 * is flat or linear. */
RAFFLE_FN float row_scan_weigh(const work *k, scale scale, int *nan, leaving leave, fours by, int kind) {
    if (kind & READ_PROBS) return row_scan(k, nan, kind); /* and nothing is compiled for it */
    const cpu_row *row = k->row;
    const cpu_scratch *s = k->scratch;
    const int64_t whole = row->params.vocab / GROUP;
    const struct scale too = scale_too(row, scale);
    vm numbers = v_every();
    vf best = v_set(MINUS_INF);
    block_refs refs[2]; /* of four groups and of the next four: made early, so that nobody waits until they are stored */
    k->state->plain = 1;
    k->state->open = V_OPEN;
    if (leave.what == LEAVE_WEIGHTS && (const char *)leave.to == row->logits) k->state->open = 0; /* no second look at what is gone */
    groups_top(row, s, 0, whole < 8 ? whole : 8, kind);
    if (whole) block_refs_make(&refs[0], scale, s->peak, s->exponent, 4);
    v_flush(1); /* weights that small are no part of any sum, and their probabilities are 0 */
    for (int64_t g = 0; g < whole; g += 4) {
        if (g + 4 < whole) block_refs_make(&refs[(g / 4 + 1) % 2], scale, s->peak + g + 4, s->exponent + g + 4, 4);
        row_weigh_four(k, scale, &refs[g / 4 % 2], g, &numbers, leave, by, kind);
        if (!too.flat) groups_weigh_too(k, too, g, g + 4 < whole ? g + 4 : whole, kind);
    }
    v_flush(0);
    for (int64_t g = whole; g < s->groups; ++g) group_weigh(k, scale, g, &numbers, leave, kind); /* the last, if not whole */
    if (!too.flat && whole < s->groups) groups_weigh_too(k, too, whole / 4 * 4, s->groups, kind);
    peaks_pad(s);
    for (int64_t g = 0; g < s->groups; g += V_LANES) best = v_max(v_load_f32(s->peak + g), best);
    *nan = v_bits(numbers) != v_bits(v_every());
    weighed_keep(k->state, scale);
    return v_peak(best);
}

/* The tickets of a group's weights in low[] and size[], in a row with a plain reference. */
RAFFLE_FN uint64_t group_weighed(const cpu_scratch *s, int64_t g, const weighing *w) {
    const uint32_t below = (uint32_t)w->row.exponent - (uint32_t)s->exponent[g];
    return sum_resolve(s->low[g], s->size[g]) << TICKET_BITS >> (below < 63 ? below : 63);
}

/* The tickets of groups first .. end-1, whose maxima are known, to mass[]. */
RAFFLE_FN void groups_tickets(const work *k, const weighing *w, int64_t first, int64_t end, int kind) {
    cpu_scratch s = *k->scratch;
    groups_weigh_too(k, w->scale, first, end, kind);
    s.exponent = s.too_exponent;
    s.low = s.too_low;
    s.size = s.too_size;
    for (int64_t g = first; g < end; ++g) s.mass[g] = group_weighed(&s, g, w);
}

/* Makes tickets of the weights that row_scan_weigh left and returns their sum. */
static uint64_t weights_to_tickets(const cpu_scratch *scratch, const weighing *w) {
    const cpu_scratch s = *scratch;
    uint64_t total = 0;
    if (w->row.kind == REF_PLAIN) { /* then all groups are, or hold no tickets, and their exponents are at hand */
        for (int64_t g = 0; g < s.groups; ++g) total += s.mass[g] = group_weighed(&s, g, w);
        return total;
    }
    for (int64_t g = 0; g < s.groups; ++g) {
        uint64_t weight = sum_resolve(s.low[g], s.size[g]);
        s.mass[g] = s.peak[g] > MINUS_INF ? tickets_of(weight, group_ref_make(w, s.peak[g]).below) : 0;
        total += s.mass[g];
    }
    return total;
}

/* Fills mass[] with each group's tickets and returns their sum: the row without filters. */
RAFFLE_FN uint64_t row_weigh(const work *k, const weighing *w, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch *s = k->scratch;
    uint64_t total = 0;
    int weighed = weighed_with(k->state, w);
    state_clear(k->state);
    if (weighed) return weights_to_tickets(s, w);
    for (int64_t g = 0; g < s->groups; g += 4) { /* behind the last group, peaks are -inf */
        vsum sum[4];
        group_ref r[4];
        uint32_t low[4];
        float size[4];
        for (int q = 0; q < 4; ++q) r[q] = group_ref_make(w, s->peak[g + q]);
        for (int q = 0; q < 4; ++q) {
            int any = s->peak[g + q] > MINUS_INF && r[q].below <= TICKET_BITS + 40; /* weights are below 2^40 */
            sum[q] = any ? group_sum(&row, g + q, &r[q].ref, kind) : sum_zero();
        }
        sum_store(low, size, sum);
        for (int q = 0; q < 4; ++q) total += s->mass[g + q] = tickets_of(sum_resolve(low[q], size[q]), r[q].below);
    }
    return total;
}

/* The tickets of what a cut keeps of a whole group under a usual reference, counted token by token. Not for a cut
 * between equal logits. What is cut weighs next to nothing and is rounded away. */
RAFFLE_FN uint64_t group_kept_usual(const cpu_row *row, int64_t g, const group_ref *r, cut c, int kind) {
    vu low = v_set_u(0);
    vf size = v_set(0.0f);
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += V_CHAINS * V_LANES) {
        vf x[V_CHAINS];
        read_usual(row, i, x, kind);
        for (int n = 0; n < V_CHAINS; ++n) x[n] = v_select(v_ge(x[n], v_set(c.low)), x[n], v_set(MINUS_INF));
        weights_usual(x, &r->ref, kind);
        for (int n = 0; n < V_CHAINS; ++n) low = v_add_u(low, v_shift(v_round(x[n]), r->right));
        for (int n = 0; n < V_CHAINS; ++n) size = v_add(size, x[n]);
    }
    return sum_resolve(v_total_u(low), v_total(size) / (float)(1ull << r->right)) << r->left;
}

/* Writes the logits of group g to x[GROUP] and its weights to w[GROUP]. */
RAFFLE_FN void group_expand(const cpu_row *row, int64_t g, const ref *f, float *x, uint32_t *w, int kind) {
    for (int j = 0; j < GROUP; j += V_LANES) {
        int64_t i = g * GROUP + j;
        vf read = i < row->params.vocab ? read_group(row, i, 0, kind) : v_set(MINUS_INF);
        v_store(x + j, read);
        v_store_u(w + j, v_weigh(read, f));
    }
}

/* The same for any group and any cut. */
RAFFLE_FN uint64_t group_kept_any(const cpu_row *row, int64_t g, const group_ref *r, cut c, int kind) {
    float x[GROUP];
    uint32_t weight[GROUP];
    uint64_t sum = 0;
    group_expand(row, g, &r->ref, x, weight, kind);
    for (int j = 0; j < GROUP; ++j)
        if (cut_keeps(c, x[j], g * GROUP + j)) sum += group_tickets(r, weight[j]);
    return sum;
}

/* The same, the best way. */
RAFFLE_FN uint64_t group_kept(const cpu_row *row, const cpu_scratch *s, const weighing *w, int64_t g, cut c, int kind) {
    group_ref r = group_ref_make(w, s->peak[g]);
    if (r.below >= TICKET_BITS + 32) return 0;
    int usual = ref_is_usual(&r.ref, kind) && group_whole(row, g) && c.tie_last == INT32_MAX && !c.capped;
    return usual ? group_kept_usual(row, g, &r, c, kind) : group_kept_any(row, g, &r, c, kind);
}

/* Fills mass[] with each group's tickets of what a cut keeps and returns their sum. */
RAFFLE_FN uint64_t row_weigh_kept(const work *k, const weighing *w, cut c, int kind) {
    const cpu_row *row = k->row;
    const cpu_scratch *s = k->scratch;
    uint64_t total = 0;
    if (last_covers(k->state, w, c)) return last_weigh(k->state, s, c);
    state_clear(k->state);
    memset(s->mass, 0, (size_t)s->groups * sizeof *s->mass);
    for (int64_t g = next_group(s, 0, c.low); g < s->groups; g = next_group(s, g + 1, c.low))
        total += s->mass[g] = group_kept(row, s, w, g, c, kind);
    return total;
}
