/* row_report.h - what report.c asks of a row beside its token. Included by rows.c only. Compiled once: few groups are
 * read, and the row's kind is looked at as they are. */

static int kind_of(const cpu_row *row, int dtype) { return row->allow ? dtype | READ_ALLOW : dtype; }

/* Those tokens of group g that are at least `least` to x, id [GROUP + V_LANES]; returns how many they are. */
static int group_read_from(const cpu_row *row, int dtype, int64_t g, float least, float *x, int32_t *id) {
    const int kind = kind_of(row, dtype);
    int found = 0;
    if (row->patch) row_make(row, g);
    for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
        vf read = read_group(row, i, 0, kind);
        vm in = v_ge(read, v_set(least));
        if (v_bits(in)) found += v_pack(x + found, id + found, read, (int32_t)i, in);
    }
    return found;
}

/* The tokens of group g to x[GROUP]: masked ones, NaN and what is behind the row are -inf. */
static void group_read(const cpu_row *row, int dtype, int64_t g, float *x) {
    const int kind = kind_of(row, dtype);
    if (row->patch) row_make(row, g);
    for (int j = 0; j < GROUP; j += V_LANES) {
        int64_t i = g * GROUP + j;
        vf read = i < row->params.vocab ? read_group(row, i, 0, kind) : v_set(MINUS_INF);
        v_store(x + j, v_max(read, v_set(MINUS_INF)));
    }
}

/* The entropy of what an answer keeps. */
static float row_entropy(const cpu_row *row, int dtype, const cpu_scratch *s, const answer *a) {
    const int kind = kind_of(row, dtype);
    const cpu_target as_share = {.form = FORM_PROBABILITY}, as_log = {.form = FORM_LOG};
    const writing share = writing_make(row, s, a, &as_share), log = writing_make(row, s, a, &as_log);
    float p[GROUP], l[GROUP];
    uint32_t bits[GROUP / 32];
    uint64_t sum = 0;
    if (a->greedy) return 0.0f;
    for (int64_t g = next_group(s, 0, share.kept.low); g < s->groups; g = next_group(s, g + 1, share.kept.low)) {
        ref f;
        const portion part = group_portion(&share, s->peak[g], &f);
        if (part.none) continue;
        group_write_any(&share, g, &f, &part, p, bits, kind);
        group_write_any(&log, g, &f, &part, l, bits, kind);
        for (int64_t j = 0, count = group_end(row, g) - g * GROUP; j < count; ++j) sum += entropy_term(p[j], l[j]);
    }
    return entropy_of(sum);
}
