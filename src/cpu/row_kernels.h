/* row_kernels.h - the loops that read logits, each compiled for every dtype with and without a mask.
 * Included by rows.c only. `kind` is a compile-time constant everywhere. */

/* ---- prepare: reading logits -------------------------------------------------------------------- */

enum { READ_F32 = RAFFLE_F32, READ_F16 = RAFFLE_F16, READ_BF16 = RAFFLE_BF16, READ_TYPE = 3, READ_ALLOW = 4, READ_PROBS = 8 };

RAFFLE_FN int64_t read_bytes(int kind) { return (kind & READ_TYPE) == READ_F32 ? 4 : 2; }

RAFFLE_FN vf read_from(const char *p, int kind) {
    if ((kind & READ_TYPE) == READ_F32) return v_load_f32(p);
    return (kind & READ_TYPE) == READ_F16 ? v_load_f16(p) : v_load_bf16(p);
}

/* What the stages see of tokens i and up, whose stored values are x. A probability of zero is as good as a mask; one
 * that is negative is not a number. */
RAFFLE_FN vf read_prepare(const cpu_row *row, int64_t i, vf x, int kind) {
    if (kind & READ_PROBS) {
        vf zero = v_set(0.0f), none = v_select(v_eq(x, zero), v_set(MINUS_INF), v_set(float_of(0x7fc00000u)));
        x = v_select(v_gt(x, zero), x, none);
    }
    if (kind & READ_ALLOW) x = v_select(v_mask(row->allow[i / 32] >> (i % 32)), x, v_set(MINUS_INF));
    return x;
}

/* Tokens i .. i + V_LANES - 1, i a multiple of V_LANES; masked tokens are -inf. */
RAFFLE_FN vf read_full(const cpu_row *row, int64_t i, int kind) {
    return read_prepare(row, i, read_from(row->logits + i * read_bytes(kind), kind), kind);
}

/* The same at the end of the row: tokens past it are -inf. */
RAFFLE_FN vf read_edge(const cpu_row *row, int64_t i, int kind) {
    const uint32_t minus_inf[3] = {0xff800000u, 0xfc00u, 0xff80u}, zero = 0;
    const int64_t bytes = read_bytes(kind), left = row->params.vocab - i;
    char edge[V_LANES * 4];
    for (int lane = 0; lane < V_LANES; ++lane) {
        const void *inside = row->logits + (i + lane) * bytes, *behind = kind & READ_PROBS ? &zero : &minus_inf[kind & READ_TYPE];
        const void *from = lane < left ? inside : behind;
        memcpy(edge + lane * bytes, from, (size_t)bytes);
    }
    return read_prepare(row, i, read_from(edge, kind), kind);
}

/* `whole`: the group has all its 256 tokens; a compile-time constant, so that full groups have no edge. */
RAFFLE_FN vf read_group(const cpu_row *row, int64_t i, int whole, int kind) {
    return whole || row->params.vocab - i >= V_LANES ? read_full(row, i, kind) : read_edge(row, i, kind);
}

/* Tokens i .. i + 2 V_LANES - 1 in any order, for loops that do not care which is which. */
RAFFLE_FN void read_pair(const cpu_row *row, int64_t i, vf *x, vf *y, int kind) {
    if (kind == READ_BF16) {
        v_load_pair_bf16(row->logits + i * read_bytes(kind), x, y);
    } else {
        *x = read_full(row, i, kind);
        *y = read_full(row, i + V_LANES, kind);
    }
}

RAFFLE_FN int group_whole(const cpu_row *row, int64_t g) { return (g + 1) * GROUP <= row->params.vocab; }
RAFFLE_FN int64_t group_end(const cpu_row *row, int64_t g) {
    return group_whole(row, g) ? (g + 1) * GROUP : row->params.vocab;
}

/* ---- weigh: the largest logits ------------------------------------------------------------------- */

/* The largest logits of a whole group, lane by lane; NaN counts as -inf and leaves *numbers. */
RAFFLE_FN vf group_top(const cpu_row *row, int64_t g, vm *numbers, int kind) {
    vf a = v_set(MINUS_INF), b = a;
    vm good = v_every(); /* a chain of its own for each group: they run side by side */
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += 2 * V_LANES) {
        vf x, y;
        read_pair(row, i, &x, &y, kind);
        good = v_numbers(good, x, y);
        a = v_max(x, a);
        b = v_max(y, b);
    }
    *numbers = v_and(*numbers, good);
    return v_max(a, b);
}

RAFFLE_FN vf group_top_edge(const cpu_row *row, int64_t g, vm *numbers, int kind) {
    vf a = v_set(MINUS_INF);
    for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
        vf x = read_group(row, i, 0, kind);
        *numbers = v_numbers(*numbers, x, x);
        a = v_max(x, a);
    }
    return a;
}

/* Fills peak[] with each group's largest logit and returns the row's; *nan: whether there was a NaN. */
RAFFLE_FN float row_scan(const cpu_row *row, const cpu_scratch *s, int *nan, int kind) {
    vm numbers = v_every();
    vf best = v_set(MINUS_INF);
    int64_t whole = row->params.vocab / GROUP, g = 0;
    for (; g + 4 <= whole; g += 4) { /* four at a time, so that the maxima leave their lanes together */
        vf a = group_top(row, g, &numbers, kind), b = group_top(row, g + 1, &numbers, kind);
        vf c = group_top(row, g + 2, &numbers, kind), d = group_top(row, g + 3, &numbers, kind);
        v_store_peaks(s->peak + g, a, b, c, d);
        best = v_max(best, v_max(v_max(a, b), v_max(c, d)));
    }
    for (; g < s->groups; ++g) {
        vf a = group_top_edge(row, g, &numbers, kind);
        s->peak[g] = v_peak(a);
        best = v_max(best, a);
    }
    for (; g % PEAK_PAD; ++g) s->peak[g] = MINUS_INF;
    *nan = v_bits(numbers) != v_bits(v_every());
    return v_peak(best);
}

/* The next group from g on whose largest logit is at least `value`, or `groups` if there is none. */
RAFFLE_FN int64_t next_group(const cpu_scratch *s, int64_t g, float value) {
    if (g < s->groups && s->peak[g] >= value) return g;
    for (int64_t first = g - g % V_LANES; first < s->groups; first += V_LANES) {
        uint32_t found = v_bits(v_ge(v_load_f32(s->peak + first), v_set(value)));
        if (first < g) found &= ~0u << (g - first);
        if (found) return first + __builtin_ctz(found);
    }
    return s->groups;
}

/* ---- weigh: sums of weights ---------------------------------------------------------------------- */

/* A sum of at most GROUP weights: its low 32 bits, and all of it in floats. Their rounding errors are far
 * below 2^31, so the two together are the exact sum, whatever the order of summation. */
typedef struct vsum { vu low; vf size; } vsum;

RAFFLE_FN vsum sum_zero(void) {
    vsum s = {v_set_u(0), v_set(0.0f)};
    return s;
}

RAFFLE_FN vsum sum_add(vsum s, vf weight) {
    vsum sum = {v_add_u(s.low, v_round(weight)), v_add(s.size, weight)};
    return sum;
}

/* Adds weights >> right, only where the mask is set. */
RAFFLE_FN vsum sum_add_where(vsum s, vm m, vf weight, uint32_t right) {
    vsum sum = {v_add_u_where(m, s.low, v_shift(v_round(weight), right)), v_add_where(m, s.size, weight)};
    return sum;
}

/* The sum whose low bits and size, up to rounding errors, are given. */
RAFFLE_FN uint64_t sum_resolve(uint32_t low, float size) {
    return low + ((uint64_t)((int64_t)size - low + 0x80000000) >> 32 << 32);
}

RAFFLE_FN uint64_t sum_total(vsum s, uint32_t right) {
    return sum_resolve(v_total_u(s.low), v_total(s.size) / (float)(1ull << right));
}

/* Four sums at once: cheaper than four times one. */
RAFFLE_FN void sum_totals(uint64_t *total, const vsum *s) {
    uint32_t low[4];
    float size[4];
    v_store_totals_u(low, s[0].low, s[1].low, s[2].low, s[3].low);
    v_store_totals(size, s[0].size, s[1].size, s[2].size, s[3].size);
    for (int q = 0; q < 4; ++q) total[q] = sum_resolve(low[q], size[q]);
}

/* The sum of the weights of a whole group under a plain reference. */
RAFFLE_FN vsum group_sum_plain(const cpu_row *row, int64_t g, const ref *f, int kind) {
    vsum sum = sum_zero();
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += V_CHAINS * V_LANES) {
        vf x[V_CHAINS];
        for (int n = 0; n < V_CHAINS; n += 2) read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
        v_weights(x, V_CHAINS, f, 0);
        for (int n = 0; n < V_CHAINS; ++n) sum = sum_add(sum, x[n]);
    }
    return sum;
}

/* The sum of the weights of any group. */
RAFFLE_FN vsum group_sum(const cpu_row *row, int64_t g, const ref *f, int kind) {
    if (f->kind == REF_PLAIN && group_whole(row, g)) return group_sum_plain(row, g, f, kind);
    vsum sum = sum_zero();
    for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES)
        sum = sum_add(sum, v_weight_any(read_group(row, i, 0, kind), f));
    return sum;
}

/* Fills mass[] with each group's tickets and returns their sum: the row without filters. */
RAFFLE_FN uint64_t row_weigh(const work *k, const weighing *w, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch *s = k->scratch;
    uint64_t total = 0;
    last_clear(k->last);
    for (int64_t g = 0; g < s->groups; g += 4) { /* behind the last group, peaks are -inf */
        vsum sum[4];
        group_ref r[4];
        uint64_t weight[4];
        for (int q = 0; q < 4; ++q) r[q] = group_ref_make(w, s->peak[g + q]);
        for (int q = 0; q < 4; ++q) {
            int any = s->peak[g + q] > MINUS_INF && r[q].below <= TICKET_BITS + 40; /* weights are below 2^40 */
            sum[q] = any ? group_sum(&row, g + q, &r[q].ref, kind) : sum_zero();
        }
        sum_totals(weight, sum);
        for (int q = 0; q < 4; ++q) total += s->mass[g + q] = tickets_of(weight[q], r[q].below);
    }
    return total;
}

/* The tickets of what a cut keeps of a whole group under a plain reference, counted token by token. Not for a cut
 * between equal logits. */
RAFFLE_FN uint64_t group_kept(const cpu_row *row, int64_t g, const group_ref *r, cut c, int kind) {
    vsum sum = sum_zero();
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += V_CHAINS * V_LANES) {
        vf x[V_CHAINS];
        vm kept[V_CHAINS];
        for (int n = 0; n < V_CHAINS; n += 2) read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
        for (int n = 0; n < V_CHAINS; ++n) kept[n] = v_ge(x[n], v_set(c.low));
        v_weights(x, V_CHAINS, &r->ref, 0);
        for (int n = 0; n < V_CHAINS; ++n) sum = sum_add_where(sum, kept[n], x[n], r->right);
    }
    return sum_total(sum, r->right) << r->left;
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

/* Fills mass[] with each group's tickets of what a cut keeps and returns their sum. */
RAFFLE_FN uint64_t row_weigh_kept(const work *k, const weighing *w, cut c, int kind) {
    const cpu_row *row = k->row;
    const cpu_scratch *s = k->scratch;
    uint64_t total = 0;
    if (last_covers(k->last, w, c)) return last_weigh(k->last, s, c);
    last_clear(k->last);
    memset(s->mass, 0, (size_t)s->groups * sizeof *s->mass);
    for (int64_t g = next_group(s, 0, c.low); g < s->groups; g = next_group(s, g + 1, c.low)) {
        group_ref r = group_ref_make(w, s->peak[g]);
        if (r.below >= TICKET_BITS + 32) continue;
        int usual = r.ref.kind == REF_PLAIN && group_whole(row, g) && c.tie_last == INT32_MAX;
        s->mass[g] = usual ? group_kept(row, g, &r, c, kind) : group_kept_any(row, g, &r, c, kind);
        total += s->mass[g];
    }
    return total;
}

/* ---- cut: lists of tokens ------------------------------------------------------------------------ */

/* Appends the tokens of a group to the list; one that is full is overwritten at its end again and again. */
RAFFLE_FN void group_list(const cpu_row *row, const cpu_scratch *s, int64_t g, listing *l, int whole, int kind) {
    enum { VECTORS = GROUP / V_LANES < 32 ? GROUP / V_LANES : 32 };
    vf lows = v_set(l->low), highs = v_set(l->high);
    int64_t at = (int64_t)l->count < l->room ? (int64_t)l->count : l->room, found = 0;
    for (int64_t i = g * GROUP, end = whole ? i + GROUP : row->params.vocab; i < end; i += VECTORS * V_LANES) {
        uint32_t hits = 0; /* which vectors hold any: looping over these is one branch less to guess for each */
        for (int n = 0; n < VECTORS && (whole || i + n * V_LANES < end); ++n)
            hits |= (uint32_t)(v_bits(v_gt(read_group(row, i + n * V_LANES, whole, kind), lows)) != 0) << n;
        for (; hits; hits &= hits - 1) {
            int64_t first = i + __builtin_ctz(hits) * V_LANES;
            vf x = read_group(row, first, whole, kind);
            vm above = v_gt(x, highs), in = v_without(v_gt(x, lows), above);
            l->above_count += (uint64_t)__builtin_popcount(v_bits(above));
            found += v_pack(s->list_x + at + found, s->list_id + at + found, x, (int32_t)first, in);
        }
    }
    l->count += (uint64_t)found;
}

/* The smallest and the largest logit with low < logit <= high. */
RAFFLE_FN void row_extent(const cpu_row *row, const cpu_scratch *s, listing *l, int kind) {
    vf lows = v_set(l->low), highs = v_set(l->high), negated = v_set(MINUS_INF), most = negated;
    for (int64_t g = 0; g < s->groups; ++g) {
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            vf x = read_group(row, i, 0, kind);
            vm in = v_without(v_gt(x, lows), v_gt(x, highs));
            most = v_max(v_select(in, x, most), most);
            negated = v_max(v_sub(v_set(0.0f), v_select(in, x, v_set(PLUS_INF))), negated);
        }
    }
    l->least = -v_peak(negated);
    l->most = v_peak(most);
}

/* Lists the tokens with low < logit <= high. If there is a high, mass[] holds the tickets above it. */
RAFFLE_FN listing row_list(const work *k, const weighing *w, float low, float high, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    listing l = {low, high, PLUS_INF, MINUS_INF, 0, s.list_max - GROUP - V_LANES, 0, 0, 0, 0};
    last_clear(k->last);
    if (high < PLUS_INF) l.above_tickets = row_weigh_kept(k, w, cut_above(high), kind);
    float least = cut_above(low).low;
    for (int64_t g = next_group(&s, 0, least); g < s.groups; g = next_group(&s, g + 1, least)) {
        if (group_whole(&row, g)) group_list(&row, &s, g, &l, 1, kind);
        else group_list(&row, &s, g, &l, 0, kind);
    }
    l.complete = l.count <= (uint64_t)l.room;
    l.tickets = list_weigh(&s, l.complete ? (int64_t)l.count : l.room, w);
    if (l.complete) {
        last_keep(k->last, &l, w);
    } else {
        l.tickets = row_weigh_kept(k, w, cut_above(low), kind) - l.above_tickets;
        row_extent(&row, &s, &l, kind);
    }
    return l;
}

/* Lists about GUESS_TOKENS tokens spread over the row, whatever their logits. */
RAFFLE_FN listing row_sketch(const work *k, const weighing *w, int kind) {
    const cpu_row *row = k->row;
    const cpu_scratch *s = k->scratch;
    listing l = {MINUS_INF, PLUS_INF, MINUS_INF, w->best, 1, s->list_max - GROUP - V_LANES, 0, 0, 0, 0};
    int64_t step = (row->params.vocab / GUESS_TOKENS + 1) * V_LANES;
    last_clear(k->last);
    for (int64_t i = 0; i < row->params.vocab && (int64_t)l.count <= l.room; i += step, l.count += V_LANES) {
        vf x = v_max(read_group(row, i, 0, kind), v_set(MINUS_INF));
        v_pack(s->list_x + l.count, s->list_id + l.count, x, (int32_t)i, v_every());
    }
    l.tickets = list_weigh(s, (int64_t)l.count, w);
    return l;
}

/* The id of the count-th token that equals `value`, from the lowest id; INT32_MAX if there are fewer. */
RAFFLE_FN int32_t row_tie(const work *k, float value, uint64_t count, int kind) {
    const cpu_row *row = k->row;
    const cpu_scratch *s = k->scratch;
    for (int64_t g = next_group(s, 0, value); g < s->groups; g = next_group(s, g + 1, value)) {
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            uint32_t equal = v_bits(v_eq(read_group(row, i, 0, kind), v_set(value)));
            for (; equal; equal &= equal - 1)
                if (--count == 0) return (int32_t)(i + __builtin_ctz(equal));
        }
    }
    return INT32_MAX;
}

/* ---- draw ---------------------------------------------------------------------------------------- */

/* The token that holds ticket number `ticket` of mass[], which row_weigh (`whole`) or row_weigh_kept made. */
RAFFLE_FN int32_t row_draw_group(const work *k, const weighing *w, cut c, int whole, uint64_t ticket, int kind) {
    const cpu_scratch *s = k->scratch;
    int64_t g = 0;
    for (; ticket >= s->mass[g]; ++g) ticket -= s->mass[g];
    group_ref r = group_ref_make(w, s->peak[g]);
    float x[GROUP];
    uint32_t weight[GROUP];
    group_expand(k->row, g, &r.ref, x, weight, kind);
    uint64_t left = whole ? weight_of(ticket, r.below) : ticket;
    for (int32_t j = 0, first = (int32_t)(g * GROUP);; ++j) {
        uint64_t held = whole ? weight[j] : group_tickets(&r, weight[j]);
        if (!cut_keeps(c, x[j], first + j)) continue;
        if (left < held) return first + j;
        left -= held;
    }
}

/* ---- one set of loops per kind ------------------------------------------------------------------- */

#define DEFINE_LOOPS(name, kind)                                                                                       \
    static float name##_scan(const work *k, int *nan) { return row_scan(k->row, k->scratch, nan, kind); }              \
    static listing name##_list(const work *k, const weighing *w, float low, float high) {                              \
        return row_list(k, w, low, high, kind);                                                                        \
    }                                                                                                                  \
    static listing name##_sketch(const work *k, const weighing *w) { return row_sketch(k, w, kind); }                  \
    static uint64_t name##_weigh(const work *k, const weighing *w) { return row_weigh(k, w, kind); }                   \
    static uint64_t name##_weigh_kept(const work *k, const weighing *w, cut c) {                                       \
        return row_weigh_kept(k, w, c, kind);                                                                          \
    }                                                                                                                  \
    static int32_t name##_tie(const work *k, float value, uint64_t count) { return row_tie(k, value, count, kind); }   \
    static int32_t name##_draw_group(const work *k, const weighing *w, cut c, int whole, uint64_t ticket) {            \
        return row_draw_group(k, w, c, whole, ticket, kind);                                                           \
    }                                                                                                                  \
    static const loops name = {name##_scan,  name##_list, name##_sketch,  name##_weigh, name##_weigh_kept,             \
                               peak_bound,   name##_tie,  list_threshold, list_tickets, list_larger,                   \
                               draw_list,    name##_draw_group};
DEFINE_LOOPS(plain_f32, READ_F32)
DEFINE_LOOPS(plain_f16, READ_F16)
DEFINE_LOOPS(plain_bf16, READ_BF16)
DEFINE_LOOPS(allow_f32, READ_F32 | READ_ALLOW)
DEFINE_LOOPS(allow_f16, READ_F16 | READ_ALLOW)
DEFINE_LOOPS(allow_bf16, READ_BF16 | READ_ALLOW)
DEFINE_LOOPS(probs_f32, READ_PROBS | READ_F32)
DEFINE_LOOPS(probs_f16, READ_PROBS | READ_F16)
DEFINE_LOOPS(probs_bf16, READ_PROBS | READ_BF16)
DEFINE_LOOPS(probs_allow_f32, READ_PROBS | READ_F32 | READ_ALLOW)
DEFINE_LOOPS(probs_allow_f16, READ_PROBS | READ_F16 | READ_ALLOW)
DEFINE_LOOPS(probs_allow_bf16, READ_PROBS | READ_BF16 | READ_ALLOW)
