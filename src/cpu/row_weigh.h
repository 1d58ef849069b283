/* row_weigh.h - reading logits: the largest of each group, and their weights. Part of row_kernels.h; `kind` is a
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

enum { PART = GROUP / CPU_PARTS }; /* tokens of a part */

/* The largest logits of tokens first .. first + count - 1, lane by lane; NaN counts as -inf and leaves *numbers, masked ones
 * too. `rough`: read_rough reads them. It and `count` are compile-time constants. */
RAFFLE_FN vf tokens_top(const cpu_row *row, int64_t first, int count, int rough, vm *numbers, int kind) {
    enum { STEP = 32 }; /* tokens of a mask's word */
    const int masked = kind & READ_ALLOW && !masks_pairs(kind);
    const uint32_t *allow = masked ? row->allow + first / STEP : NULL;
    vf a = v_set(MINUS_INF), b = a;
    for (int j = 0; j < count; j += STEP) {
        for (int n = 0; n < STEP; n += 2 * V_LANES) {
            vf x, y;
            if (masked) read_in_order(row, first + j + n, &x, &y, kind & ~READ_ALLOW);
            else if (rough) read_rough(row, first + j + n, &x, &y, kind);
            else read_pair(row, first + j + n, &x, &y, kind);
            *numbers = v_numbers(*numbers, x, y);
            a = masked ? v_max_allowed(x, a, allow + j / STEP, n) : v_max(x, a);
            if (count <= PART) b = a; /* two chains where they are long */
            b = masked ? v_max_allowed(y, b, allow + j / STEP, n + V_LANES) : v_max(y, b);
            if (count <= PART) a = b;
        }
    }
    if (count > PART) a = v_max(a, b);
    return rough ? smooth(a, kind) : a;
}

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
    if (reads_rough(kind) && v_bits(good) != v_bits(v_every())) return tokens_top(row, g * GROUP, GROUP, 0, numbers, kind);
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
    if (reads_rough(kind) && v_bits(good) != v_bits(v_every())) {
        good = v_every();
        for (int q = 0; q < CPU_PARTS; ++q) top[q] = tokens_top(row, g * GROUP + q * PART, PART, 0, &good, kind);
    }
    *numbers = v_and(*numbers, good);
}

/* The same of any group, to part[] and peak[]. */
RAFFLE_FN void group_tops_edge(const cpu_row *row, const cpu_scratch *s, int64_t g, vm *numbers, int kind) {
    s->peak[g] = MINUS_INF;
    for (int q = 0; q < CPU_PARTS; ++q) {
        vf a = v_set(MINUS_INF);
        for (int64_t i = g * GROUP + q * PART, end = i + PART; i < end && i < row->params.vocab; i += V_LANES) {
            vf x = read_group(row, i, 0, kind);
            *numbers = v_numbers(*numbers, x, x);
            a = v_max(x, a);
        }
        float top = s->part[g * CPU_PARTS + q] = v_peak(a);
        if (top > s->peak[g]) s->peak[g] = top;
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

/* Fills peak[] with each group's largest logit and returns the row's; *nan: whether there was a NaN.
 * `fine`, a compile-time constant: fills part[] too. */
RAFFLE_FN float row_scan_as(const cpu_row *row, const cpu_scratch *s, int *nan, int fine, int kind) {
    vm numbers = v_every();
    vf best = v_set(MINUS_INF);
    int64_t whole = row->params.vocab / GROUP, g = 0;
    for (; g + 4 <= whole; g += 4) { /* four at a time, so that the maxima leave their lanes together */
        vf top[4 * CPU_PARTS];
        if (fine) { /* not in a loop, which would keep them in memory */
            group_tops(row, g, top, &numbers, kind);
            group_tops(row, g + 1, top + CPU_PARTS, &numbers, kind);
            group_tops(row, g + 2, top + 2 * CPU_PARTS, &numbers, kind);
            group_tops(row, g + 3, top + 3 * CPU_PARTS, &numbers, kind);
            v_store_parts(s->part + g * CPU_PARTS, s->peak + g, top);
        } else {
            vf a = group_top(row, g, &numbers, kind), b = group_top(row, g + 1, &numbers, kind);
            vf c = group_top(row, g + 2, &numbers, kind), d = group_top(row, g + 3, &numbers, kind);
            v_store_peaks(s->peak + g, a, b, c, d);
            best = v_max(best, v_max(v_max(a, b), v_max(c, d)));
        }
    }
    for (; g < s->groups; ++g) {
        if (fine) {
            group_tops_edge(row, s, g, &numbers, kind);
        } else {
            vf a = group_top_edge(row, g, &numbers, kind);
            s->peak[g] = v_peak(a);
            best = v_max(best, a);
        }
    }
    peaks_pad(s);
    for (int64_t i = s->groups * CPU_PARTS; fine && i % PEAK_PAD; ++i) s->part[i] = MINUS_INF;
    for (g = 0; fine && g < s->groups; g += V_LANES) best = v_max(v_load_f32(s->peak + g), best);
    *nan = row_nan(row, numbers, kind);
    return v_peak(best);
}

RAFFLE_FN float row_scan(const work *k, int *nan, int kind) {
    return k->state->fine ? row_scan_as(k->row, k->scratch, nan, 1, kind) : row_scan_as(k->row, k->scratch, nan, 0, kind);
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

/* One group on its way: its weights are added up, and the group of the next block is read for its largest logits. These
 * are rough: if there is an infinity that they do not see, it makes the sum of weights infinite or NaN.
 * A group is read from memory for its maximum while another is weighed: neither waits for the other.
 * `open`: see weigh_blocks.h. If not, a NaN of group g leaves *numbers.
 * `to`: NULL, or where the weights of the row's tokens go; it may be the logits. */
RAFFLE_FN vsum block_step(const cpu_row *row, int64_t g, const block_refs *f, int q, int64_t next, vf *top, vm *numbers,
                          int open, float *to, int kind) {
    vsum sum = sum_zero();
    vf a = v_set(MINUS_INF), b = a;
    const int masked = (kind & READ_ALLOW) != 0, masked_ahead = masked && !masks_pairs(kind), plain = kind & ~READ_ALLOW;
    const uint32_t *allow = masked ? row->allow + g * (GROUP / 32) : NULL, *ahead = masked ? row->allow + next * (GROUP / 32) : NULL;
    for (int64_t i = 0; i < GROUP; i += V_CHAINS * V_LANES) {
        vf x[V_CHAINS];
        for (int n = 0; n < V_CHAINS; n += 2) {
            const int64_t j = i + n * V_LANES;
            vf y, z;
            if (to || masked) read_in_order(row, g * GROUP + j, &x[n], &x[n + 1], open ? plain : kind);
            else read_pair(row, g * GROUP + j, &x[n], &x[n + 1], kind);
            if (!open) *numbers = v_numbers(*numbers, x[n], x[n + 1]);
            if (masked_ahead) read_in_order(row, next * GROUP + j, &y, &z, plain);
            else read_rough(row, next * GROUP + j, &y, &z, kind);
            a = masked_ahead ? v_max_allowed(y, a, ahead, j) : v_max(y, a);
            b = masked_ahead ? v_max_allowed(z, b, ahead, j + V_LANES) : v_max(z, b);
        }
        if (open) v_weights_open(x, V_CHAINS, f, q);
        else v_weights_block(x, V_CHAINS, f, q);
        for (int n = 0; n < V_CHAINS; ++n) {
            if (open && masked) x[n] = v_select(v_allowed(allow, i + n * V_LANES), x[n], v_set(0.0f));
            if (to) v_store(to + g * GROUP + i + n * V_LANES, x[n]);
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

/* The reference and the weights of any group, whatever is in it; a NaN leaves *numbers. `to` as for block_step. */
RAFFLE_FN void group_weigh(const work *k, scale scale, int64_t g, vm *numbers, float *to, int kind) {
    const cpu_scratch *s = k->scratch;
    const int none = group_whole(k->row, g) && group_masked(k->row, g, kind);
    float peak = none ? MINUS_INF : v_peak(group_top_edge(k->row, g, numbers, kind));
    ref f = ref_make(scale, peak);
    vsum sum = sum_zero();
    if (peak > MINUS_INF) sum = to ? group_weights_to(k->row, g, &f, to, kind) : group_sum(k->row, g, &f, kind);
    else if (to) memset(to + g * GROUP, 0, (size_t)(group_end(k->row, g) - g * GROUP) * sizeof *to);
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

/* Which of a block's sums of weights are sums, as bits: neither infinite nor NaN. */
RAFFLE_FN uint32_t sizes_finite(const float *size) {
    uint32_t finite = 0;
    for (int q = 0; q < BLOCK; q += V_LANES) {
        vf x = v_load_f32(size + q);
        finite |= v_bits(v_and(v_ge(x, v_set(0.0f)), v_gt(v_set(0x1p41f), x))) << q;
    }
    return finite;
}

/* Weighs the groups first .. end-1 of a block and reads the groups of the next one, or where there is none, of this.
 * With `to`, nothing is written before it is known how the group must be weighed: its logits may be there. */
RAFFLE_FN void block_weigh(const work *k, scale scale, int64_t first, int64_t end, vm *numbers, float *to, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    const int64_t whole = row.params.vocab / GROUP, next = first + BLOCK < whole ? first + BLOCK : first;
    block_refs f;
    block_refs_make(&f, scale, s.peak + first, s.exponent + first);
    const uint32_t open = k->state->open ? f.open : 0;
    vm ahead_numbers = v_every();
    for (int64_t g = first; g < end; g += 4) {
        vsum sum[4];
        vf top[4];
        for (int i = 0; i < 4; ++i) {
            int q = (int)(g - first) + i;
            int64_t now = g + i < end ? g + i : end - 1, ahead = next + q < whole ? next + q : whole - 1;
            if ((to || kind & READ_ALLOW) && (g + i >= end || !(f.plain >> q & 1))) {
                sum[i] = sum_zero();
                top[i] = group_top(&row, ahead, &ahead_numbers, kind);
                continue;
            }
            sum[i] = open >> q & 1 ? block_step(&row, now, &f, q, ahead, &top[i], numbers, V_OPEN, to, kind)
                                   : block_step(&row, now, &f, q, ahead, &top[i], numbers, 0, to, kind);
        }
        sum_store(s.low + g, s.size + g, sum);
        v_store_peaks(s.peak + next + (g - first), top[0], top[1], top[2], top[3]);
    }
    const uint32_t finite = sizes_finite(s.size + first), every = (2u << (end - first - 1)) - 1;
    if (open & ~finite & every) k->state->open = 0; /* where one -inf is, there are more */
    for (uint32_t again = ~(finite & f.plain) & every; again; again &= again - 1)
        group_weigh(k, scale, first + __builtin_ctz(again), numbers, to, kind);
}

/* The first reading of a row that is weighed whole: the largest logit of each group, as row_scan finds them, and each
 * group's weight as low[] and size[], of which row_weigh makes tickets. Not for a scale that is flat or linear.
 * `to`: NULL, or where the weights of the row's tokens go; it may be the logits. */
RAFFLE_FN float row_scan_weigh(const work *k, scale scale, int *nan, float *to, int kind) {
    if (kind & READ_PROBS) return row_scan(k, nan, kind); /* and nothing is compiled for it */
    const cpu_row *row = k->row;
    const cpu_scratch *s = k->scratch;
    const int64_t whole = row->params.vocab / GROUP;
    vm numbers = v_every();
    vf best = v_set(MINUS_INF);
    k->state->open = V_OPEN && (const char *)to != row->logits; /* no second look at what is gone */
    groups_top(row, s, 0, whole < BLOCK ? whole : BLOCK, kind);
    if (!to) v_flush(1); /* weights that small are no part of any sum */
    for (int64_t g = 0; g < whole; g += BLOCK) block_weigh(k, scale, g, g + BLOCK < whole ? g + BLOCK : whole, &numbers, to, kind);
    if (!to) v_flush(0);
    for (int64_t g = whole; g < s->groups; ++g) group_weigh(k, scale, g, &numbers, to, kind); /* the last, if not whole */
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

/* The tickets of what a cut keeps of a whole group under a plain reference, counted token by token. Not for a cut
 * between equal logits. What is cut weighs next to nothing and is rounded away. */
RAFFLE_FN uint64_t group_kept_plain(const cpu_row *row, int64_t g, const group_ref *r, cut c, int kind) {
    vu low = v_set_u(0);
    vf size = v_set(0.0f);
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += V_CHAINS * V_LANES) {
        vf x[V_CHAINS];
        for (int n = 0; n < V_CHAINS; n += 2) read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
        for (int n = 0; n < V_CHAINS; ++n) x[n] = v_select(v_ge(x[n], v_set(c.low)), x[n], v_set(MINUS_INF));
        v_weights(x, V_CHAINS, &r->ref, 0);
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
    int usual = r.ref.kind == REF_PLAIN && group_whole(row, g) && c.tie_last == INT32_MAX && !c.capped;
    return usual ? group_kept_plain(row, g, &r, c, kind) : group_kept_any(row, g, &r, c, kind);
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
