/* row_write.h - report: the probabilities or logits of what a row keeps, and the kept set itself, written group by group
 * in one pass over the row. Included by rows.c only. `kind` is a compile-time constant everywhere. */

/* How the tokens of a row become what is written. */
typedef struct writing {
    const cpu_row *row;
    const cpu_scratch *scratch;
    const cpu_target *to;
    weighing by;
    cut kept;
    portion best_portion;
    log_line line;
    uint64_t tickets;     /* of all that is kept */
    int only;             /* one token is kept, with probability 1 */
    int64_t total, listed; /* kept tokens so far */
} writing;

static writing writing_make(const cpu_row *row, const cpu_scratch *s, const answer *a, const cpu_target *to) {
    const int empty = (a->row_flags & RULE_ROW_EMPTY) != 0;
    const float best = peaks_largest(s->peak, s->groups);
    writing w = {.row = row, .scratch = s, .to = to, .only = a->greedy};
    w.kept = cut_of(a);
    if (empty) w.kept.low = PLUS_INF;
    if (empty || a->greedy) return w;
    w.by = weighing_make(row->params.temperature, best);
    w.tickets = a->draw_tickets;
    w.best_portion = portion_make(a->draw_tickets);
    w.line = log_line_make(row->params.temperature, best, &w.by.row, a->draw_tickets);
    return w;
}

/* What is written of tokens that are not kept. */
RAFFLE_FN float nothing_of(const writing *w) {
    const int weights = w->row->params.temperature == LINEAR_TEMPERATURE;
    return w->to->form == FORM_PROBABILITY || (w->to->form == FORM_LOGIT && weights) ? 0.0f : MINUS_INF;
}

/* The lanes of x, tokens i and up, that are kept. */
RAFFLE_FN vm kept_lanes(const writing *w, vf x, int64_t i) {
    vm above = v_gt(x, v_set(w->kept.low)), equal = v_eq(x, v_set(w->kept.low));
    if (w->kept.capped) {
        vm under = v_without(v_every(), v_gt(x, v_set(w->kept.high)));
        above = v_and(above, under);
        equal = v_and(equal, under);
    } else if (w->kept.tie_last == INT32_MAX) {
        return v_ge(x, v_set(w->kept.low));
    }
    int64_t ties = (int64_t)w->kept.tie_last + 1 - i; /* how many of these lanes may be equal */
    uint32_t lanes = ties >= V_LANES ? v_bits(v_every()) : ties > 0 ? (1u << ties) - 1 : 0;
    return v_mask(v_bits(above) | (v_bits(equal) & lanes));
}

/* log_weight, lane by lane: whoever has probabilities rarely wants their logarithms. */
static vf v_log_weight(vf x, const ref *row, uint64_t tickets) {
    float lane[V_LANES];
    v_store(lane, x);
    for (int i = 0; i < V_LANES; ++i) lane[i] = log_weight(lane[i], row, tickets);
    return v_load_f32(lane);
}

/* The values of kept lanes. */
RAFFLE_FN vf value_of(const writing *w, vf x, const ref *f, const portion *p) {
    if (w->to->form == FORM_LOGIT) return x;
    if (w->only) return v_set(w->to->form == FORM_LOG ? 0.0f : 1.0f);
    if (w->to->form == FORM_PROBABILITY) return v_portion(v_weight_any(x, f), p);
    if (w->by.row.kind == REF_LINEAR) return v_log_weight(x, &w->by.row, w->tickets);
    return v_log_kept(x, &w->by.row, &w->line);
}

/* What makes probabilities of a group with this maximum, of which tokens are kept, and its reference *f. */
RAFFLE_FN portion group_portion(const writing *w, float peak, ref *f) {
    *f = ref_make(w->by.scale, peak);
    portion p = portion_below(w->best_portion, ref_distance(&w->by.row, w->by.best, f, peak));
    *f = ref_deep(*f, w->by.scale, peak);
    return p;
}

/* A bit for each kept token of a group to bits[GROUP / 32]. */
RAFFLE_FN void group_bits(const writing *w, int64_t g, uint32_t *bits, int kind) {
    const int64_t first = g * GROUP, count = group_end(w->row, g) - first;
    memset(bits, 0, GROUP / 32 * sizeof *bits);
    for (int64_t j = 0; j < count; j += V_LANES)
        bits[j / 32] |= v_bits(kept_lanes(w, read_group(w->row, first + j, 0, kind), first + j)) << (j % 32);
}

/* Any group: its values to made[GROUP], a bit for each kept token to bits[GROUP / 32]. */
RAFFLE_FN void group_write_any(const writing *w, int64_t g, const ref *f, const portion *p, float *made, uint32_t *bits,
                               int kind) {
    const vf nothing = v_set(nothing_of(w));
    const int64_t first = g * GROUP, count = group_end(w->row, g) - first;
    memset(bits, 0, GROUP / 32 * sizeof *bits);
    for (int64_t j = 0; j < count; j += V_LANES) {
        vf x = read_group(w->row, first + j, 0, kind);
        vm kept = kept_lanes(w, x, first + j);
        bits[j / 32] |= v_bits(kept) << (j % 32);
        v_store(made + j, v_select(kept, value_of(w, x, f, p), nothing));
    }
}

/* A whole group of probabilities under a plain reference, without a cut: masked tokens weigh next to nothing. */
RAFFLE_FN void group_write_plain(const cpu_row *row, int64_t g, const ref *f, const portion *p, float *made, int kind) {
    for (int64_t j = 0; j < GROUP; j += V_CHAINS * V_LANES) {
        vf x[V_CHAINS];
        for (int n = 0; n < V_CHAINS; ++n) x[n] = read_full(row, g * GROUP + j + n * V_LANES, kind);
        v_weights(x, V_CHAINS, f, 0);
        for (int n = 0; n < V_CHAINS; ++n) v_store(made + j + n * V_LANES, v_portion(x[n], p));
    }
}

/* Converts a group's values to their place. */
static void group_store(const writing *w, int64_t g, int64_t count, const float *made) {
    const cpu_target *to = w->to;
    char *at = to->data + g * GROUP * (to->dtype == RAFFLE_F32 ? 4 : 2);
    float rest[V_LANES] = {0};
    if (to->dtype == RAFFLE_F32) {
        memcpy(at, made, (size_t)count * 4);
        return;
    }
    int64_t j = 0;
    for (; j + V_LANES <= count; j += V_LANES) {
        if (to->dtype == RAFFLE_F16) v_store_f16(at + j * 2, v_load_f32(made + j));
        else v_store_bf16(at + j * 2, v_load_f32(made + j));
    }
    if (j == count) return;
    memcpy(rest, made + j, (size_t)(count - j) * 4);
    uint16_t half[V_LANES];
    if (to->dtype == RAFFLE_F16) v_store_f16(half, v_load_f32(rest));
    else v_store_bf16(half, v_load_f32(rest));
    memcpy(at + j * 2, half, (size_t)(count - j) * 2);
}

/* Adds a group's kept tokens to the mask, the list and the count. */
static void group_keep(writing *w, int64_t g, int64_t count, const uint32_t *bits) {
    const cpu_target *to = w->to;
    for (int64_t n = 0; n * 32 < count; ++n) {
        uint32_t word = bits[n];
        if (to->kept) to->kept[g * (GROUP / 32) + n] = word;
        if (to->list) {
            for (uint32_t left = word; left && w->listed < to->list_max; left &= left - 1)
                to->list[w->listed++] = (int32_t)(g * GROUP + n * 32 + __builtin_ctz(left));
        }
        w->total += __builtin_popcount(word);
    }
}

/* A whole group of logarithms without a cut. Not under REF_STEP or REF_LINEAR. */
RAFFLE_FN void group_write_logs(const writing *w, int64_t g, float *made, int kind) {
    const cpu_row row = *w->row;
    const log_line line = w->line;
    const vf low = v_set(w->kept.low), nothing = v_set(MINUS_INF);
    for (int64_t j = 0; j < GROUP; j += V_LANES) {
        vf x = read_full(&row, g * GROUP + j, kind);
        v_store(made + j, v_select(v_ge(x, low), v_log(x, &line), nothing));
    }
}

/* Everything that is asked for, of one group: values, and perhaps the kept set. */
RAFFLE_FN void group_write(writing *w, int64_t g, int kind) {
    const cpu_target *to = w->to;
    const float peak = w->scratch->peak[g], nothing = nothing_of(w);
    const int64_t count = group_end(w->row, g) - g * GROUP;
    const int sets = to->kept || to->list || to->count;
    const int uncut = !(w->kept.low > -FLT_MAX) && w->kept.tie_last == INT32_MAX && !w->kept.capped && !sets && count == GROUP;
    const int direct = to->dtype == RAFFLE_F32 && (uintptr_t)to->data % sizeof(float) == 0 && count == GROUP;
    float elsewhere[GROUP], *const made = direct ? (float *)(void *)to->data + g * GROUP : elsewhere;
    uint32_t bits[GROUP / 32];
    ref f = {0};
    portion p = {0};
    int any = peak > MINUS_INF && peak >= w->kept.low;
    if (any && !w->only && to->form == FORM_PROBABILITY) p = group_portion(w, peak, &f);
    if (!any || (p.none && !sets)) {
        for (int j = 0; j < GROUP; j += V_LANES) v_store(made + j, v_set(nothing));
        memset(bits, 0, sizeof bits);
    } else if (uncut && to->form == FORM_PROBABILITY && f.kind == REF_PLAIN) {
        group_write_plain(w->row, g, &f, &p, made, kind);
    } else if (uncut && to->form == FORM_LOG && (w->by.row.kind == REF_PLAIN || w->by.row.kind == REF_TALL)) {
        group_write_logs(w, g, made, kind);
    } else {
        group_write_any(w, g, &f, &p, made, bits, kind);
        for (int j = 0; p.none && j < GROUP; j += V_LANES) v_store(made + j, v_set(nothing));
    }
    if (!direct) group_store(w, g, count, made);
    if (sets) group_keep(w, g, count, bits);
}

/* The kept set alone: groups whose largest logit is cut are passed over. */
RAFFLE_FN void row_keep(writing *w, int kind) {
    const cpu_scratch *s = w->scratch;
    uint32_t bits[GROUP / 32];
    if (w->to->kept) memset(w->to->kept, 0, (size_t)((w->row->params.vocab + 31) / 32) * sizeof *w->to->kept);
    for (int64_t g = next_group(s, 0, w->kept.low); g < s->groups; g = next_group(s, g + 1, w->kept.low)) {
        group_bits(w, g, bits, kind);
        group_keep(w, g, group_end(w->row, g) - g * GROUP, bits);
    }
}

RAFFLE_FN void row_write(const cpu_row *row, const cpu_scratch *s, const answer *a, const cpu_target *to, int kind) {
    writing w = writing_make(row, s, a, to);
    for (int64_t g = 0; to->data && g < s->groups; ++g) group_write(&w, g, kind);
    if (!to->data && (to->kept || to->list || to->count)) row_keep(&w, kind);
    if (to->count) *to->count = (int32_t)w.total;
}

#define DEFINE_WRITE(dtype, type)                                                                                      \
    static void write_##dtype(const cpu_row *row, const cpu_scratch *s, const answer *a, const cpu_target *to) {       \
        const int probs = row->params.temperature == LINEAR_TEMPERATURE;                                               \
        if (probs && row->allow) row_write(row, s, a, to, READ_PROBS | type | READ_ALLOW);                             \
        else if (probs) row_write(row, s, a, to, READ_PROBS | type);                                                   \
        else if (row->allow) row_write(row, s, a, to, type | READ_ALLOW);                                              \
        else row_write(row, s, a, to, type);                                                                           \
    }
DEFINE_WRITE(f32, READ_F32)
DEFINE_WRITE(f16, READ_F16)
DEFINE_WRITE(bf16, READ_BF16)
