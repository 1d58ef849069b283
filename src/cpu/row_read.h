/* row_read.h - reading logits, and the first reading of a row: the largest of each group. Part of row_kernels.h; `kind` is a
 * compile-time constant everywhere. */

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
    if (kind & READ_ALLOW) x = v_select(v_allowed(row->allow, i), x, v_set(MINUS_INF));
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

/* The logit of a token that is known to be above some other: it is neither masked nor NaN. */
RAFFLE_FN float read_one(const cpu_row *row, int64_t id, int kind) {
    uint16_t half;
    float x;
    if ((kind & READ_TYPE) == READ_F32) {
        memcpy(&x, row->logits + id * 4, sizeof x);
        return x;
    }
    memcpy(&half, row->logits + id * 2, sizeof half);
    return (kind & READ_TYPE) == READ_F16 ? float_of_f16(half) : float_of_bf16(half);
}

/* `whole`: the group has all its 256 tokens; a compile-time constant, so that full groups have no edge. */
RAFFLE_FN vf read_group(const cpu_row *row, int64_t i, int whole, int kind) {
    return whole || row->params.vocab - i >= V_LANES ? read_full(row, i, kind) : read_edge(row, i, kind);
}

/* Tokens i .. i + 2 V_LANES - 1, */
RAFFLE_FN void read_in_order(const cpu_row *row, int64_t i, vf *x, vf *y, int kind) {
    *x = read_full(row, i, kind);
    *y = read_full(row, i + V_LANES, kind);
}

/* the same, where operations count more than waiting for them, */
RAFFLE_FN void read_to_weigh(const cpu_row *row, int64_t i, vf *x, vf *y, int kind) {
#if V_ROUGH
    if ((kind & READ_TYPE) == READ_BF16) {
        vf a, b;
        v_load_order_bf16(row->logits + i * read_bytes(kind), &a, &b);
        *x = read_prepare(row, i, a, kind);
        *y = read_prepare(row, i + V_LANES, b, kind);
        return;
    }
#endif
    read_in_order(row, i, x, y, kind);
}

/* Whether a mask costs next to nothing while tokens are still two by two. */
RAFFLE_FN int masks_pairs(int kind) { return V_ROUGH && kind == (READ_BF16 | READ_ALLOW); }

/* or in any order, for loops that do not care which is which. */
RAFFLE_FN void read_pair(const cpu_row *row, int64_t i, vf *x, vf *y, int kind) {
    if (kind == READ_BF16) v_load_pair_bf16(row->logits + i * read_bytes(kind), x, y);
#if V_ROUGH
    else if (masks_pairs(kind)) v_load_allowed_bf16(row->logits + i * read_bytes(kind), row->allow[(uint64_t)i / 32], x, y);
#endif
    else read_in_order(row, i, x, y, kind);
}

/* The same for maxima. Where the machine is fast enough to gain by it, bf16 is rough (vec_avx512.h) until the maximum is
 * made smooth. Infinities may then be NaN, which no maximum sees, so whoever reads rough numbers must find that out, and
 * read them once more. */
RAFFLE_FN int reads_rough(int kind) { return V_ROUGH && kind == READ_BF16; }
#if V_ROUGH
RAFFLE_FN void read_rough(const cpu_row *row, int64_t i, vf *x, vf *y, int kind) {
    if (reads_rough(kind)) v_load_rough_bf16(row->logits + i * read_bytes(kind), x, y);
    else read_pair(row, i, x, y, kind);
}
RAFFLE_FN vf smooth(vf top, int kind) { return reads_rough(kind) ? v_smooth_bf16(top) : top; }
#else
#define read_rough read_pair
#define smooth(top, kind) (top)
#endif

RAFFLE_FN int group_whole(const cpu_row *row, int64_t g) { return (g + 1) * GROUP <= row->params.vocab; }
RAFFLE_FN int64_t group_end(const cpu_row *row, int64_t g) {
    return group_whole(row, g) ? (g + 1) * GROUP : row->params.vocab;
}

/* ---- weigh: the largest logits ------------------------------------------------------------------- */

/* A loop that is not to be unrolled. Some processors fetch ahead for each load by itself, as far apart as it was the last times: of
 * four groups written out, every load goes on by a page at once, and nothing is fetched. */
#define ONE_BY_ONE _Pragma("GCC unroll 1")

enum { PART = GROUP / CPU_PARTS }; /* tokens of a part */

/* The largest logits of tokens first .. first + count - 1, lane by lane; NaN counts as -inf and leaves *numbers, masked ones
 * too. `rough`: read_rough reads them, and of probabilities, whose zeros are -inf only in the end, negative ones leave *numbers, too.
 * It and `count` are compile-time constants. */
RAFFLE_FN vf tokens_top(const cpu_row *row, int64_t first, int count, int rough, vm *numbers, int given) {
    enum { STEP = 32 }; /* tokens of a mask's word */
    const int weights = rough && given & READ_PROBS, kind = weights ? given & ~READ_PROBS : given;
    const int masked = kind & READ_ALLOW && (weights || !masks_pairs(kind)); /* what masks_pairs masks is negative */
    /* One operation finds both, the largest and whether one is wrong. Rough numbers have enough to do for the ports it needs. */
    const int by_bits = weights && !masked && !reads_rough(kind);
    const uint32_t *allow = masked ? row->allow + first / STEP : NULL;
    vf a = v_set(by_bits ? 0.0f : MINUS_INF), b = a;
    for (int j = 0; j < count; j += STEP) {
        for (int n = 0; n < STEP; n += 2 * V_LANES) {
            vf x, y;
            if (masked) read_in_order(row, first + j + n, &x, &y, kind & ~READ_ALLOW);
            else if (rough) read_rough(row, first + j + n, &x, &y, kind);
            else read_pair(row, first + j + n, &x, &y, kind);
            if (weights && !by_bits) *numbers = v_and(*numbers, v_and(v_ge(x, v_set(0.0f)), v_ge(y, v_set(0.0f))));
            if (!weights) *numbers = v_numbers(*numbers, x, y);
            a = masked ? v_max_allowed(x, a, allow + j / STEP, n) : by_bits ? v_max_bits(x, a) : v_max(x, a);
            if (count <= PART) b = a; /* two chains where they are long */
            b = masked ? v_max_allowed(y, b, allow + j / STEP, n + V_LANES) : by_bits ? v_max_bits(y, b) : v_max(y, b);
            if (count <= PART) a = b;
        }
    }
    if (count > PART) a = by_bits ? v_max_bits(a, b) : v_max(a, b);
    if (by_bits) /* what is larger by its bits than any weight, NaN, negative numbers and -0, is not above 0; +0 is made to be */
        *numbers = v_and(*numbers, v_gt(v_max_bits(a, v_set(FLT_MIN)), v_set(0.0f)));
    if (rough) a = smooth(a, kind);
    return weights ? v_select(v_gt(a, v_set(0.0f)), a, v_set(MINUS_INF)) : a;
}

/* Whether maxima that tokens_top has found roughly, with some that left `good`, have to be found again. */
RAFFLE_FN int tops_again(vm good, int kind) { return (reads_rough(kind) || kind & READ_PROBS) && v_bits(good) != v_bits(v_every()); }

/* Whether a mask allows no token of a whole group. */
RAFFLE_FN int group_masked(const cpu_row *row, int64_t g, int kind) {
    uint64_t words[GROUP / 64];
    if (!(kind & READ_ALLOW)) return 0;
    memcpy(words, row->allow + g * (GROUP / 32), sizeof words);
    return !(words[0] | words[1] | words[2] | words[3]);
}

/* The same of a whole group. */
RAFFLE_FN vf group_top(const cpu_row *row, int64_t g, vm *numbers, int kind) {
    vm good = v_every(); /* a chain of its own for each group: they run side by side */
    if (group_masked(row, g, kind)) return v_set(MINUS_INF);
    vf top = tokens_top(row, g * GROUP, GROUP, 1, &good, kind);
    if (tops_again(good, kind)) return tokens_top(row, g * GROUP, GROUP, 0, numbers, kind);
    *numbers = v_and(*numbers, good);
    return top;
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

/* Behind the last group, peaks are -inf. */
RAFFLE_FN void peaks_pad(const cpu_scratch *s) {
    for (int64_t g = s->groups; g % PEAK_PAD; ++g) s->peak[g] = MINUS_INF;
}

/* The largest logits of each part of a whole group to top[CPU_PARTS]. */
RAFFLE_FN void group_tops(const cpu_row *row, int64_t g, vf *top, vm *numbers, int kind) {
    vm good = v_every();
    if (group_masked(row, g, kind)) {
        for (int q = 0; q < CPU_PARTS; ++q) top[q] = v_set(MINUS_INF);
        return;
    }
    for (int q = 0; q < CPU_PARTS; ++q) top[q] = tokens_top(row, g * GROUP + q * PART, PART, 1, &good, kind);
    if (tops_again(good, kind)) {
        good = v_every();
        for (int q = 0; q < CPU_PARTS; ++q) top[q] = tokens_top(row, g * GROUP + q * PART, PART, 0, &good, kind);
    }
    *numbers = v_and(*numbers, good);
}

/* The same of a group that is not whole, to top[] as numbers. */
RAFFLE_FN void group_tops_edge(const cpu_row *row, int64_t g, float *top, vm *numbers, int kind) {
    for (int q = 0; q < CPU_PARTS; ++q) {
        vf a = v_set(MINUS_INF);
        for (int64_t i = g * GROUP + q * PART, end = i + PART; i < end && i < row->params.vocab; i += V_LANES) {
            vf x = read_group(row, i, 0, kind);
            *numbers = v_numbers(*numbers, x, x);
            a = v_max(x, a);
        }
        top[q] = v_peak(a);
    }
}

/* Whether a row has NaN, `numbers` being those that its maxima were made of, and perhaps masked ones. */
RAFFLE_FN int row_nan(const cpu_row *row, vm numbers, int kind) {
    if (!(kind & READ_ALLOW) || v_bits(numbers) == v_bits(v_every())) return v_bits(numbers) != v_bits(v_every());
    vm allowed = v_every();
    for (int64_t i = 0; i < row->params.vocab; i += V_LANES) {
        vf x = read_group(row, i, 0, kind);
        allowed = v_numbers(allowed, x, x);
    }
    return v_bits(allowed) != v_bits(v_every());
}

/* Fills peak[] with each group's largest logit and returns the row's; *nan: whether there was a NaN. */
RAFFLE_FN float row_scan_groups(const cpu_row *row, const cpu_scratch *s, int *nan, int kind) {
    vm numbers = v_every();
    vf best = v_set(MINUS_INF);
    int64_t whole = row->params.vocab / GROUP, g = 0;
    for (; g + 4 <= whole; g += 4) { /* four at a time, so that the maxima leave their lanes together */
        vf top[4];
        ONE_BY_ONE for (int q = 0; q < 4; ++q) top[q] = group_top(row, g + q, &numbers, kind);
        v_store_peaks(s->peak + g, top[0], top[1], top[2], top[3]);
        best = v_max(best, v_max(v_max(top[0], top[1]), v_max(top[2], top[3])));
    }
    for (; g < s->groups; ++g) {
        vf a = group_top_edge(row, g, &numbers, kind);
        s->peak[g] = v_peak(a);
        best = v_max(best, a);
    }
    peaks_pad(s);
    *nan = row_nan(row, numbers, kind);
    return v_peak(best);
}

/* The same, and part[] with the largest logit of each part of a group. */
RAFFLE_FN float row_scan_parts(const cpu_row *row, const cpu_scratch *s, int *nan, int kind) {
    vm numbers = v_every();
    vf best = v_set(MINUS_INF);
    const int64_t whole = row->params.vocab / GROUP;
    ONE_BY_ONE for (int64_t g = 0; g < whole; ++g) {
        vf top[CPU_PARTS];
        group_tops(row, g, top, &numbers, kind);
        v_store_peaks(s->part + g * CPU_PARTS, top[0], top[1], top[2], top[3]);
    }
    for (int64_t g = whole; g < s->groups; ++g) group_tops_edge(row, g, s->part + g * CPU_PARTS, &numbers, kind);
    for (int64_t i = s->groups * CPU_PARTS; i % PEAK_PAD; ++i) s->part[i] = MINUS_INF;
    for (int64_t g = 0; g < s->groups; g += 4) v_store_fourths(s->peak + g, s->part + g * CPU_PARTS);
    peaks_pad(s);
    for (int64_t g = 0; g < s->groups; g += V_LANES) best = v_max(v_load_f32(s->peak + g), best);
    *nan = row_nan(row, numbers, kind);
    return v_peak(best);
}

RAFFLE_FN float row_scan(const work *k, int *nan, int kind) {
    return k->state->fine ? row_scan_parts(k->row, k->scratch, nan, kind) : row_scan_groups(k->row, k->scratch, nan, kind);
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
