/* row_softmax.h - softmax of a row without filters, and its logarithm, into f32, the short way: weights go where the probabilities will be
 * and are divided there, so that no logit is weighed twice. In place too: a group is read before it is written. What it
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

/* The same for the first tokens of a whole group, up to the first small weight, see portion_near: how many. */
static __attribute__((noinline)) int64_t weights_divide_near(float *at, float factor, float factor_low) {
    const portion p = {.factor = factor, .factor_low = factor_low};
    int64_t j = 0;
    for (; j < GROUP; j += V_CHAINS * V_LANES) {
        vf v[V_CHAINS], least[V_CHAINS];
        for (int n = 0; n < V_CHAINS; ++n) least[n] = v[n] = v_load_f32(at + j + n * V_LANES);
        for (int apart = V_CHAINS / 2; apart > 0; apart /= 2)
            for (int n = 0; n < apart; ++n) least[n] = v_min(least[n], least[n + apart]);
        if (v_bits(v_ge(least[0], v_set(NEAR_WEIGHT))) != v_bits(v_every())) break;
        for (int n = 0; n < V_CHAINS; ++n) v_store(at + j + n * V_LANES, v_portion_near(v[n], &p));
    }
    return j;
}

RAFFLE_FN uint32_t row_softmax(const cpu_row *row, const cpu_scratch *s, float *to, fours by, int kind) {
    scale deep = scale_make(row->params.temperature);
    deep.drop = deep.drop * DEEPER;
    row_state state = {.fine = 0};
    const leaving leave = {to, LEAVE_WEIGHTS};
    const work k = {NULL, row, s, &state, MINUS_INF, kind};
    int nan = 0;
    const float best = row_scan_weigh(&k, deep, &nan, leave, by, kind);
    const uint32_t flags = nan ? RULE_ROW_NAN : 0;
    if (best == MINUS_INF) return flags | RULE_ROW_EMPTY; /* all zero already */
    const weighing w = weighing_make(row->params.temperature, best);
    const portion best_portion = portion_make(weights_to_tickets(s, &w));
    const uint32_t reach = portion_reach(&best_portion);
    for (int64_t g = s->groups - 1; g >= 0; --g) { /* what was written last is nearest */
        if (s->peak[g] == MINUS_INF) continue;
        const ref f = {.exponent = s->exponent[g]};
        const uint32_t distance = ref_distance(&w.row, best, &f, s->peak[g]);
        int64_t done = g * GROUP;
        if (!(kind & READ_ALLOW) && distance <= reach && group_whole(row, g)) {
            const portion near = portion_near(best_portion, distance);
            done += weights_divide_near(to + done, near.factor, near.factor_low);
        }
        if (done == group_end(row, g)) continue;
        const portion p = portion_below(best_portion, distance);
        weights_divide(to + done, group_end(row, g) - done, &p);
    }
    return flags | (best == PLUS_INF ? RULE_ROW_INF : 0);
}

/* The logarithms of the tokens i .. end - 1, whatever they are. */
RAFFLE_FN void logs_write(const cpu_row *row, const weighing *w, const log_line *given, int64_t i, int64_t end, float *to, int kind) {
    const log_line line = *given;
    for (; i < end; i += V_LANES) {
        const vf x = read_group(row, i, 0, kind), made = v_log_kept(x, &w->row, &line);
        const vf log = v_select(v_ge(x, v_set(-FLT_MAX)), made, v_set(MINUS_INF));
        float lane[V_LANES];
        if (end - i >= V_LANES) {
            v_store(to + i, log);
            continue;
        }
        v_store(lane, log);
        memcpy(to + i, lane, (size_t)(end - i) * sizeof *lane);
    }
}

/* Logits, which are at[GROUP], become logarithms, by v_log_near. */
static void logs_near(float *at, const log_line *given) {
    const log_line line = *given;
    for (int j = 0; j < GROUP; j += STEP_CHAINS * V_LANES)
        for (int n = 0; n < STEP_CHAINS; ++n) v_store(at + j + n * V_LANES, v_log_near(v_load_f32(at + j + n * V_LANES), &line));
}

/* The logarithm of softmax; not for a row with a mask. While the logits are weighed they go where the logarithms will be: stores cost
 * next to nothing there, and the second pass reads and writes one place, not two. */
RAFFLE_FN uint32_t row_log_softmax(const cpu_row *row, const cpu_scratch *s, float *to, fours by, int kind) {
    row_state state = {.fine = 0};
    const leaving leave = {to, LEAVE_LOGITS};
    const work k = {NULL, row, s, &state, MINUS_INF, kind};
    int nan = 0;
    const float best = row_scan_weigh(&k, scale_make(row->params.temperature), &nan, leave, by, kind);
    const uint32_t flags = nan ? RULE_ROW_NAN : 0;
    if (best == MINUS_INF) {
        for (int64_t i = 0; i < row->params.vocab; ++i) to[i] = MINUS_INF;
        return flags | RULE_ROW_EMPTY;
    }
    const weighing w = weighing_make(row->params.temperature, best);
    const log_line line = log_line_make(row->params.temperature, best, &w.row, weights_to_tickets(s, &w));
    const int near = state.plain && !nan && best < NEAR_BEST && w.row.kind != REF_STEP;
    for (int64_t g = s->groups - 1; g >= 0; --g) { /* what was written last is nearest */
        if (near && group_whole(row, g)) logs_near(to + g * GROUP, &line);
        else logs_write(row, &w, &line, g * GROUP, group_end(row, g), to, kind);
    }
    return flags | (best == PLUS_INF ? RULE_ROW_INF : 0);
}

#define DEFINE_SOFTMAX(dtype, type)                                                                                    \
    DEFINE_FOURS(weights_##dtype, LEAVE_WEIGHTS, type)                                                                 \
    DEFINE_FOURS(weights_allow_##dtype, LEAVE_WEIGHTS, type | READ_ALLOW)                                              \
    DEFINE_FOURS(logits_##dtype, LEAVE_LOGITS, type)                                                                   \
    static uint32_t softmax_##dtype(const cpu_row *row, const cpu_scratch *s, float *to) {                             \
        return row->allow ? row_softmax(row, s, to, weights_allow_##dtype##_fours, type | READ_ALLOW)                  \
                          : row_softmax(row, s, to, weights_##dtype##_fours, type);                                    \
    }                                                                                                                  \
    static uint32_t log_softmax_##dtype(const cpu_row *row, const cpu_scratch *s, float *to) {                         \
        return row_log_softmax(row, s, to, logits_##dtype##_fours, type);                                              \
    }
DEFINE_SOFTMAX(f32, READ_F32)
DEFINE_SOFTMAX(f16, READ_F16)
DEFINE_SOFTMAX(bf16, READ_BF16)
