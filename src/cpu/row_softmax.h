/* row_softmax.h - softmax of a row without filters, into f32, the short way: weights go where the probabilities will be and
 * are divided there, so that no logit is weighed twice. In place too: a group is read before it is written. What it
 * writes is what row_write.h writes. Included by rows.c only. `kind` is a compile-time constant everywhere. */

/* Writes the weights of a group of four, whose maxima are known, and leaves their sums. */
RAFFLE_FN void group_weights_to(const cpu_row *row, int64_t g, const ref *f, float *to, vsum *sum, int kind) {
    const int64_t first = g * GROUP, count = group_end(row, g) - first;
    vsum total = sum_zero();
    if (f->kind == REF_PLAIN && count == GROUP) {
        for (int64_t j = 0; j < GROUP; j += V_CHAINS * V_LANES) {
            vf x[V_CHAINS];
            for (int n = 0; n < V_CHAINS; ++n) x[n] = read_full(row, first + j + n * V_LANES, kind);
            v_weights(x, V_CHAINS, f, 0);
            for (int n = 0; n < V_CHAINS; ++n) {
                v_store(to + first + j + n * V_LANES, x[n]);
                total = sum_add(total, x[n]);
            }
        }
    } else {
        float made[GROUP];
        for (int64_t j = 0; j < count; j += V_LANES) {
            vf v = v_weight_any(read_group(row, first + j, 0, kind), f);
            v_store(made + j, v);
            total = sum_add(total, v);
        }
        memcpy(to + first, made, (size_t)count * sizeof *made);
    }
    *sum = total;
}

/* Fills peak[] and mass[] with each group's maximum and sum of weights, and `to` with the weights. *nan: whether there was
 * a NaN. */
RAFFLE_FN void row_weights_to(const cpu_row *row, const cpu_scratch *s, scale by, float *to, int *nan, int kind) {
    vm numbers = v_every();
    for (int64_t g = 0; g < s->groups; g += 4) {
        vsum sum[4];
        float size[4];
        uint32_t low[4];
        const int64_t end = g + 4 < s->groups ? g + 4 : s->groups;
        if (end * GROUP <= row->params.vocab) groups_top(row, s, g, end, &numbers, kind);
        else
            for (int64_t i = g; i < end; ++i) s->peak[i] = v_peak(group_top_edge(row, i, &numbers, kind));
        for (int q = 0; q < 4; ++q) {
            sum[q] = sum_zero();
            if (g + q >= end) continue;
            const float peak = s->peak[g + q];
            if (peak > MINUS_INF) {
                const ref f = ref_deep(ref_make(by, peak), by, peak);
                group_weights_to(row, g + q, &f, to, &sum[q], kind);
            } else {
                memset(to + (g + q) * GROUP, 0, (size_t)(group_end(row, g + q) - (g + q) * GROUP) * sizeof *to);
            }
        }
        sum_store(low, size, sum);
        for (int64_t q = 0; g + q < end; ++q) s->mass[g + q] = sum_resolve(low[q], size[q]);
    }
    *nan = v_bits(numbers) != v_bits(v_every());
}

RAFFLE_FN uint32_t row_softmax(const cpu_row *row, const cpu_scratch *s, float *to, int kind) {
    const scale by = scale_make(row->params.temperature);
    float best = MINUS_INF;
    uint64_t mass = 0;
    int nan = 0;
    row_weights_to(row, s, by, to, &nan, kind);
    for (int64_t g = 0; g < s->groups; ++g) best = s->peak[g] > best ? s->peak[g] : best;
    const uint32_t flags = nan ? RULE_ROW_NAN : 0;
    if (best == MINUS_INF) return flags | RULE_ROW_EMPTY; /* all zero already */
    const weighing w = weighing_make(row->params.temperature, best);
    for (int64_t g = 0; g < s->groups; ++g)
        if (s->peak[g] > MINUS_INF) mass += tickets_of(s->mass[g], group_ref_make(&w, s->peak[g]).below);
    const portion best_portion = portion_make(mass);
    for (int64_t g = 0; g < s->groups; ++g) {
        const float peak = s->peak[g];
        float *at = to + g * GROUP, part[GROUP];
        const int64_t count = group_end(row, g) - g * GROUP;
        if (peak == MINUS_INF) continue;
        const ref f = ref_make(w.scale, peak);
        const portion p = portion_below(best_portion, ref_distance(&w.row, best, &f, peak));
        if (p.none) {
            memset(at, 0, (size_t)count * sizeof *at);
        } else if (count == GROUP) {
            for (int64_t j = 0; j < GROUP; j += V_LANES) v_store(at + j, v_portion(v_load_f32(at + j), &p));
        } else {
            memset(part, 0, sizeof part);
            memcpy(part, at, (size_t)count * sizeof *at);
            for (int64_t j = 0; j < count; j += V_LANES) v_store(part + j, v_portion(v_load_f32(part + j), &p));
            memcpy(at, part, (size_t)count * sizeof *at);
        }
    }
    return flags | (best == PLUS_INF ? RULE_ROW_INF : 0);
}

#define DEFINE_SOFTMAX(dtype, type)                                                                                    \
    static uint32_t softmax_##dtype(const cpu_row *row, const cpu_scratch *s, float *to) {                             \
        return row->allow ? row_softmax(row, s, to, type | READ_ALLOW) : row_softmax(row, s, to, type);                \
    }
DEFINE_SOFTMAX(f32, READ_F32)
DEFINE_SOFTMAX(f16, READ_F16)
DEFINE_SOFTMAX(bf16, READ_BF16)
