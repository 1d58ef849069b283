/* row_kernels.h - the loops that read logits, each compiled for every dtype with and without a mask.
 * Included by rows.c only. `kind` is a compile-time constant everywhere. */

/* ---- prepare: reading logits -------------------------------------------------------------------- */

enum { READ_F32 = RAFFLE_F32, READ_F16 = RAFFLE_F16, READ_BF16 = RAFFLE_BF16, READ_TYPE = 3, READ_ALLOW = 4 };

RAFFLE_FN int64_t read_bytes(int kind) { return (kind & READ_TYPE) == READ_F32 ? 4 : 2; }

RAFFLE_FN vf read_from(const char *p, int kind) {
    if ((kind & READ_TYPE) == READ_F32) return v_load_f32(p);
    return (kind & READ_TYPE) == READ_F16 ? v_load_f16(p) : v_load_bf16(p);
}

/* Tokens i .. i + V_LANES - 1, i a multiple of V_LANES; masked tokens are -inf. */
RAFFLE_FN vf read_full(const cpu_row *row, int64_t i, int kind) {
    vf x = read_from(row->logits + i * read_bytes(kind), kind);
    if (kind & READ_ALLOW) x = v_select(v_mask(row->allow[i / 32] >> (i % 32)), x, v_set(MINUS_INF));
    return x;
}

/* The same at the end of the row: tokens past it are -inf. */
RAFFLE_FN vf read_edge(const cpu_row *row, int64_t i, int kind) {
    const uint32_t minus_inf[3] = {0xff800000u, 0xfc00u, 0xff80u};
    const int64_t bytes = read_bytes(kind), left = row->vocab - i;
    char edge[V_LANES * 4];
    for (int lane = 0; lane < V_LANES; ++lane) {
        const void *from = lane < left ? (const void *)(row->logits + (i + lane) * bytes) : &minus_inf[kind & READ_TYPE];
        memcpy(edge + lane * bytes, from, (size_t)bytes);
    }
    vf x = read_from(edge, kind);
    if (kind & READ_ALLOW) x = v_select(v_mask(row->allow[i / 32] >> (i % 32)), x, v_set(MINUS_INF));
    return x;
}

/* `whole`: the group has all its 256 tokens; a compile-time constant, so that full groups have no edge. */
RAFFLE_FN vf read_group(const cpu_row *row, int64_t i, int whole, int kind) {
    return whole || row->vocab - i >= V_LANES ? read_full(row, i, kind) : read_edge(row, i, kind);
}

static inline int group_whole(const cpu_row *row, int64_t g) { return (g + 1) * GROUP <= row->vocab; }

/* ---- weigh -------------------------------------------------------------------------------------- */

RAFFLE_FN float group_scan(const cpu_row *row, int64_t g, vm *nan, int whole, int kind) {
    vf a = v_set(MINUS_INF), b = a;
    int64_t i = g * GROUP, end = whole ? i + GROUP : row->vocab;
    if (whole && GROUP % (2 * V_LANES) == 0) {
        for (int j = 0; j < GROUP; j += 2 * V_LANES) {
            vf x = read_full(row, i + j, kind), y = read_full(row, i + j + V_LANES, kind);
            *nan = v_or(*nan, v_nan(x, y));
            a = v_max(x, a);
            b = v_max(y, b);
        }
    } else {
        for (; i < end; i += V_LANES) {
            vf x = read_group(row, i, whole, kind);
            *nan = v_or(*nan, v_nan(x, x));
            a = v_max(x, a);
        }
    }
    return v_peak(v_max(a, b));
}

/* Fills peak[] with each group's largest logit (NaN counts as -inf); returns whether there was a NaN. */
RAFFLE_FN int row_scan(const cpu_row *row, const cpu_scratch *s, int kind) {
    vm nan = v_none();
    int64_t whole = row->vocab / GROUP;
    for (int64_t g = 0; g < whole; ++g) s->peak[g] = group_scan(row, g, &nan, 1, kind);
    if (whole < s->groups) s->peak[whole] = group_scan(row, whole, &nan, 0, kind);
    return v_bits(nan) != 0;
}

RAFFLE_FN uint64_t group_weigh(const cpu_row *row, int64_t g, const ref *f, int whole, int kind) {
    vsum a = v_sum_zero(), b = v_sum_zero();
    int64_t i = g * GROUP, end = whole ? i + GROUP : row->vocab;
    if (whole && f->kind == REF_PLAIN) {
        for (int j = 0; j < GROUP; j += 2 * V_LANES) {
            a = v_sum_add(a, v_round(v_weight(read_full(row, i + j, kind), f, 0)));
            b = v_sum_add(b, v_round(v_weight(read_full(row, i + j + V_LANES, kind), f, 0)));
        }
    } else {
        for (; i < end; i += V_LANES) a = v_sum_add(a, v_weigh(read_group(row, i, whole, kind), f));
    }
    return v_sum_total(a) + v_sum_total(b);
}

/* Fills mass[] with each group's tickets and returns their sum: the row without filters. */
RAFFLE_FN uint64_t row_weigh(const cpu_row *row, const cpu_scratch *s, const weighing *w, int kind) {
    uint64_t total = 0;
    for (int64_t g = 0; g < s->groups; ++g) {
        group_ref r = group_ref_make(w, s->peak[g]);
        s->mass[g] = 0;
        if (s->peak[g] == MINUS_INF || r.below > TICKET_BITS + 40) continue; /* weights are below 2^40 */
        uint64_t weight = group_whole(row, g) ? group_weigh(row, g, &r.ref, 1, kind) : group_weigh(row, g, &r.ref, 0, kind);
        s->mass[g] = tickets_of(weight, r.below);
        total += s->mass[g];
    }
    return total;
}

/* Writes the logits of group g to x[GROUP] and its weights to w[GROUP]. */
RAFFLE_FN void group_expand(const cpu_row *row, int64_t g, const ref *f, float *x, uint32_t *w, int kind) {
    for (int j = 0; j < GROUP; j += V_LANES) {
        int64_t i = g * GROUP + j;
        vf read = i < row->vocab ? read_group(row, i, 0, kind) : v_set(MINUS_INF);
        v_store(x + j, read);
        v_store_u(w + j, v_weigh(read, f));
    }
}

/* Fills mass[] with the tickets of what a cut keeps, counted token by token, and returns their sum. */
RAFFLE_FN uint64_t row_weigh_kept(const cpu_row *row, const cpu_scratch *s, const weighing *w, cut c, int kind) {
    uint64_t total = 0;
    for (int64_t g = 0; g < s->groups; ++g) {
        group_ref r = group_ref_make(w, s->peak[g]);
        s->mass[g] = 0;
        if (s->peak[g] < c.low || r.below > TICKET_BITS + 32) continue;
        if (c.tie_last < INT32_MAX || !group_whole(row, g)) { /* ties at the border: one by one */
            float x[GROUP];
            uint32_t weight[GROUP];
            group_expand(row, g, &r.ref, x, weight, kind);
            for (int j = 0; j < GROUP; ++j)
                if (cut_keeps(c, x[j], g * GROUP + j)) s->mass[g] += (uint64_t)(weight[j] >> r.right) << r.left;
        } else {
            vsum sum = v_sum_zero();
            for (int j = 0; j < GROUP; j += V_LANES) {
                vf x = read_full(row, g * GROUP + j, kind);
                sum = v_sum_add(sum, v_where(v_ge(x, v_set(c.low)), v_shift(v_weigh(x, &r.ref), r.right)));
            }
            s->mass[g] = v_sum_total(sum) << r.left;
        }
        total += s->mass[g];
    }
    return total;
}

/* ---- cut ---------------------------------------------------------------------------------------- */

RAFFLE_FN void group_list(const cpu_row *row, const cpu_scratch *s, const group_ref *r, int64_t g, listing *l, int whole,
                          int kind) {
    vf lows = v_set(l->low), highs = v_set(l->high);
    vsum above_sum = v_sum_zero();
    for (int64_t i = g * GROUP, end = whole ? i + GROUP : row->vocab; i < end; i += V_LANES) {
        vf x = read_group(row, i, whole, kind);
        uint32_t found = v_bits(v_gt(x, lows));
        if (!found) continue;
        vm above = v_gt(x, highs);
        vu weight = v_shift(v_weigh(x, &r->ref), r->right);
        above_sum = v_sum_add(above_sum, v_where(above, weight));
        l->above_count += (uint64_t)__builtin_popcount(v_bits(above));
        found &= ~v_bits(above);
        if (!found) continue;
        float xs[V_LANES];
        uint32_t ws[V_LANES];
        v_store(xs, x);
        v_store_u(ws, weight);
        for (; found; found &= found - 1) {
            int lane = __builtin_ctz(found);
            uint64_t tickets = (uint64_t)ws[lane] << r->left;
            if (l->count < (uint64_t)s->list_max) {
                s->list_x[l->count] = xs[lane];
                s->list_id[l->count] = (int32_t)(i + lane);
                s->list_t[l->count] = tickets;
            }
            l->count += 1;
            l->tickets += tickets;
            l->least = xs[lane] < l->least ? xs[lane] : l->least;
            l->most = xs[lane] > l->most ? xs[lane] : l->most;
        }
    }
    l->above_tickets += v_sum_total(above_sum) << r->left;
}

/* Lists the tokens with low < logit <= high. */
RAFFLE_FN listing row_list(const cpu_row *row, const cpu_scratch *s, const weighing *w, float low, float high, int kind) {
    listing l = {low, high, PLUS_INF, MINUS_INF, 0, 0, 0, 0};
    for (int64_t g = 0; g < s->groups; ++g) {
        if (!(s->peak[g] > low)) continue;
        group_ref r = group_ref_make(w, s->peak[g]);
        if (group_whole(row, g)) group_list(row, s, &r, g, &l, 1, kind);
        else group_list(row, s, &r, g, &l, 0, kind);
    }
    return l;
}

/* Lists about GUESS_TOKENS tokens spread over the row, whatever their logits; ids are not filled in. */
RAFFLE_FN listing row_sketch(const cpu_row *row, const cpu_scratch *s, const weighing *w, int kind) {
    listing l = {MINUS_INF, PLUS_INF, MINUS_INF, w->best, 0, 0, 0, 0};
    int64_t step = (row->vocab / GUESS_TOKENS + 1) * V_LANES;
    for (int64_t i = 0; i < row->vocab && l.count + V_LANES <= (uint64_t)s->list_max; i += step) {
        group_ref r = group_ref_make(w, s->peak[i / GROUP]);
        vf x = v_max(read_group(row, i, 0, kind), v_set(MINUS_INF));
        uint32_t ws[V_LANES];
        v_store(s->list_x + l.count, x);
        v_store_u(ws, v_shift(v_weigh(x, &r.ref), r.right));
        for (int lane = 0; lane < V_LANES; ++lane, ++l.count) {
            s->list_t[l.count] = (uint64_t)ws[lane] << r.left;
            l.tickets += s->list_t[l.count];
        }
    }
    return l;
}

/* The id of the count-th token that equals `value`, from the lowest id; INT32_MAX if there are fewer. */
RAFFLE_FN int32_t row_tie(const cpu_row *row, const cpu_scratch *s, float value, uint64_t count, int kind) {
    for (int64_t g = 0; g < s->groups; ++g) {
        if (s->peak[g] < value) continue;
        for (int64_t i = g * GROUP, end = i + GROUP; i < end && i < row->vocab; i += V_LANES) {
            uint32_t equal = v_bits(v_eq(read_group(row, i, 0, kind), v_set(value)));
            for (; equal; equal &= equal - 1)
                if (--count == 0) return (int32_t)(i + __builtin_ctz(equal));
        }
    }
    return INT32_MAX;
}

/* ---- one set of functions per kind -------------------------------------------------------------- */

typedef struct kernels {
    int (*scan)(const cpu_row *, const cpu_scratch *);
    uint64_t (*weigh)(const cpu_row *, const cpu_scratch *, const weighing *);
    uint64_t (*weigh_kept)(const cpu_row *, const cpu_scratch *, const weighing *, cut);
    void (*expand)(const cpu_row *, int64_t, const ref *, float *, uint32_t *);
    listing (*list)(const cpu_row *, const cpu_scratch *, const weighing *, float, float);
    listing (*sketch)(const cpu_row *, const cpu_scratch *, const weighing *);
    int32_t (*tie)(const cpu_row *, const cpu_scratch *, float, uint64_t);
} kernels;

#define DEFINE_KERNELS(name, kind)                                                                                     \
    static int name##_scan(const cpu_row *row, const cpu_scratch *s) { return row_scan(row, s, kind); }                \
    static uint64_t name##_weigh(const cpu_row *row, const cpu_scratch *s, const weighing *w) {                        \
        return row_weigh(row, s, w, kind);                                                                             \
    }                                                                                                                  \
    static uint64_t name##_weigh_kept(const cpu_row *row, const cpu_scratch *s, const weighing *w, cut c) {            \
        return row_weigh_kept(row, s, w, c, kind);                                                                     \
    }                                                                                                                  \
    static void name##_expand(const cpu_row *row, int64_t g, const ref *f, float *x, uint32_t *w) {                    \
        group_expand(row, g, f, x, w, kind);                                                                           \
    }                                                                                                                  \
    static listing name##_list(const cpu_row *row, const cpu_scratch *s, const weighing *w, float low, float high) {   \
        return row_list(row, s, w, low, high, kind);                                                                   \
    }                                                                                                                  \
    static listing name##_sketch(const cpu_row *row, const cpu_scratch *s, const weighing *w) {                        \
        return row_sketch(row, s, w, kind);                                                                            \
    }                                                                                                                  \
    static int32_t name##_tie(const cpu_row *row, const cpu_scratch *s, float value, uint64_t count) {                 \
        return row_tie(row, s, value, count, kind);                                                                    \
    }                                                                                                                  \
    static const kernels name = {name##_scan, name##_weigh,  name##_weigh_kept, name##_expand,                         \
                                 name##_list, name##_sketch, name##_tie};
DEFINE_KERNELS(plain_f32, READ_F32)
DEFINE_KERNELS(plain_f16, READ_F16)
DEFINE_KERNELS(plain_bf16, READ_BF16)
DEFINE_KERNELS(allow_f32, READ_F32 | READ_ALLOW)
DEFINE_KERNELS(allow_f16, READ_F16 | READ_ALLOW)
DEFINE_KERNELS(allow_bf16, READ_BF16 | READ_ALLOW)
