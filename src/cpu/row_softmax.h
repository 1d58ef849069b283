/* row_softmax.h - softmax of a row without filters, into f32, the short way: weights go where the probabilities will be and
 * are divided there, so that no logit is weighed twice. In place too: a group is read before it is written. What it
 * writes is what row_write.h writes. Included by rows.c only. `kind` is a compile-time constant everywhere. */

/* Weights, which are at[count], become probabilities. */
RAFFLE_FN void weights_divide(float *at, int64_t count, const portion *p) {
    int64_t j = 0;
    float part[V_LANES] = {0};
    if (p->none) {
        memset(at, 0, (size_t)count * sizeof *at);
        return;
    }
    for (; j + V_LANES <= count; j += V_LANES) v_store(at + j, v_portion(v_load_f32(at + j), p));
    if (j == count) return;
    memcpy(part, at + j, (size_t)(count - j) * sizeof *at);
    v_store(part, v_portion(v_load_f32(part), p));
    memcpy(at + j, part, (size_t)(count - j) * sizeof *at);
}

/* The same for a whole group of which no weight is small, see portion_near; 0, and nothing is done, if one is. */
RAFFLE_FN int weights_divide_near(float *at, const portion *p) {
    vm near = v_every();
    for (int j = 0; j < GROUP; j += V_LANES) near = v_and(near, v_ge(v_load_f32(at + j), v_set(NEAR_WEIGHT)));
    if (v_bits(near) != v_bits(v_every())) return 0;
    for (int j = 0; j < GROUP; j += V_LANES) v_store(at + j, v_portion_near(v_load_f32(at + j), p));
    return 1;
}

RAFFLE_FN uint32_t row_softmax(const cpu_row *row, const cpu_scratch *s, float *to, int kind) {
    scale deep = scale_make(row->params.temperature);
    deep.drop = deep.drop * DEEPER;
    row_state state = {.fine = 0};
    const work k = {NULL, row, s, &state, MINUS_INF, kind};
    int nan = 0;
    const float best = row_scan_weigh(&k, deep, &nan, to, kind);
    const uint32_t flags = nan ? RULE_ROW_NAN : 0;
    if (best == MINUS_INF) return flags | RULE_ROW_EMPTY; /* all zero already */
    const weighing w = weighing_make(row->params.temperature, best);
    const portion best_portion = portion_make(weights_to_tickets(s, &w));
    const uint32_t reach = portion_reach(&best_portion);
    for (int64_t g = s->groups - 1; g >= 0; --g) { /* what was written last is nearest */
        if (s->peak[g] == MINUS_INF) continue;
        const ref f = {.exponent = s->exponent[g]};
        const uint32_t distance = ref_distance(&w.row, best, &f, s->peak[g]);
        const portion near = portion_near(best_portion, distance < reach ? distance : reach);
        if (!(kind & READ_ALLOW) && distance <= reach && group_whole(row, g) && weights_divide_near(to + g * GROUP, &near)) continue;
        const portion p = portion_below(best_portion, distance);
        weights_divide(to + g * GROUP, group_end(row, g) - g * GROUP, &p);
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
