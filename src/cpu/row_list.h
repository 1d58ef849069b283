/* row_list.h - lists of tokens: their tickets, the thresholds of top-k and top-p among them, and the draw. What lists them is in
 * row_kernels.h. Part of rows.c. */

/* ---- tokens and tickets ------------------------------------------------------------------------------------ */

/* How many tokens fit into a list: behind one that is full there is room for a group, and for the last step. */
static int64_t list_room(const cpu_scratch *s) { return s->list_max - GROUP - V_LANES; }

/* How many of x[count] are above `value`. Behind them, V_LANES more are -inf. */
static int64_t tokens_above(const float *x, int64_t count, float value) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i += V_LANES) sum += __builtin_popcount(v_bits(v_gt(v_load_f32(x + i), v_set(value))));
    return sum;
}

/* The sum of t[count] where x[count] is above `value`. */
static uint64_t tickets_above(const float *x, const uint64_t *t, int64_t count, float value) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += x[i] > value ? t[i] : 0;
    return sum;
}

static uint64_t tickets_sum(const uint64_t *t, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += t[i];
    return sum;
}

/* The tickets of V_LANES listed tokens, each with its own group's reference, and whether all of these are plain. */
RAFFLE_FN int list_weigh_lanes(const cpu_scratch *s, int64_t i, const weighing *w) {
    vf c = v_set(w->scale.c), m = v_gather(s->peak, v_shift(v_load_u(s->list_id + i), GROUP_SHIFT));
    vf p = v_mul(m, c), t = v_fma(m, c, v_set(MAGIC)), x = v_max(v_load_f32(s->list_x + i), v_sub(m, v_set(w->scale.drop)));
    vf magic = v_sub(v_set(MAGIC + (float)WEIGHT_BITS), v_sub(t, v_set(MAGIC)));
    vu below = v_sub_u(v_set_u((uint32_t)w->row.exponent + bits_of(MAGIC)), v_bits_of(t));
    v_weights_of(&x, 1, c, v_set(w->scale.c_low), magic, c, 0);
    v_store_shifted(s->list_t + i, v_round(x), TICKET_BITS, below);
    return v_bits(v_and(v_gt(p, v_set(-0x1p12f)), v_gt(v_set(0x1p12f), p))) == v_bits(v_every());
}

/* The same under any reference: each step weighs V_LANES tokens like the first of them and goes on to the first that
 * belongs to another group. */
static void list_weigh_groups(const cpu_scratch *s, int64_t count, const weighing *w) {
    for (int64_t i = 0; i < count;) {
        int32_t g = s->list_id[i] / GROUP;
        group_ref r = group_ref_make(w, s->peak[g]);
        vu weight = v_weigh(v_load_f32(s->list_x + i), &r.ref);
        v_store_wide(s->list_t + i, v_shift(weight, r.right), r.left);
        i += v_lead_below(s->list_id + i, (g + 1) * GROUP);
    }
}

/* Fills in the tickets of the listed tokens and returns their sum. */
static uint64_t list_weigh(const cpu_scratch *s, int64_t count, const weighing *w) {
    int plain = !w->scale.flat && w->row.kind == REF_PLAIN;
    for (int lane = 0; lane < V_LANES; ++lane) { /* the last step reaches behind the list */
        s->list_x[count + lane] = MINUS_INF;
        s->list_id[count + lane] = count ? s->list_id[count - 1] : 0;
    }
    for (int64_t i = 0; i < count && plain; i += V_LANES) plain = list_weigh_lanes(s, i, w);
    if (!plain) list_weigh_groups(s, count, w);
    return tickets_sum(s->list_t, count);
}

/* A listed token's tickets if a cut keeps it, else 0. */
RAFFLE_FN uint64_t kept_tickets(const cpu_scratch *s, int64_t i, cut c) {
    return s->list_t[i] & (0 - (uint64_t)cut_keeps_branchless(c, s->list_x[i], s->list_id[i]));
}

/* The same of the listed tokens from `first` to before `end` together. Nearly no cut looks at ids, or at an upper end. */
static uint64_t tickets_kept(const cpu_scratch *scratch, int64_t first, int64_t end, cut c) {
    const cpu_scratch s = *scratch;
    uint64_t sum = 0;
    if (c.tie_last == INT32_MAX && !c.capped)
        for (int64_t i = first; i < end; ++i) sum += s.list_t[i] & (0 - (uint64_t)(s.list_x[i] >= c.low));
    else
        for (int64_t i = first; i < end; ++i) sum += kept_tickets(&s, i, c);
    return sum;
}

/* ---- what cut.h asks --------------------------------------------------------------------------------------- */

/* A few tokens of a list, copied. */
enum { FEW = 256, LEAST = 8, FEW_PAD = V_LANES > LEAST ? V_LANES : LEAST };
typedef struct few {
    float x[FEW + FEW_PAD];
    int32_t from[FEW + V_LANES]; /* where they are in the list */
    uint64_t t[FEW];
} few;

/* Copies the tokens of x[count] with low < logit <= high, which are at most FEW, and what each amounts to. Returns how
 * many there are; behind them follows -inf. x may be those of the few themselves. */
static int64_t few_copy(few *f, const float *x, const uint64_t *t, int64_t count, float low, float high) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i += V_LANES) { /* x goes on with -inf */
        vf lanes = v_load_f32(x + i);
        vm in = v_without(v_gt(lanes, v_set(low)), v_gt(lanes, v_set(high)));
        if (v_bits(in)) found += v_pack(f->x + found, f->from + found, lanes, (int32_t)i, in);
    }
    for (int64_t i = 0; i < found; ++i) f->t[i] = t ? t[f->from[i]] : 1;
    for (int i = 0; i < FEW_PAD; ++i) f->x[found + i] = MINUS_INF;
    return found;
}

/* The smallest of at most LEAST values whose amount above is below the target, `above` being the amount above all of them. */
static float few_threshold(const few *f, int64_t count, uint64_t above, uint64_t target) {
    uint64_t amount[LEAST]; /* above each */
    float least = PLUS_INF;
    for (int i = 0; i < LEAST; ++i) amount[i] = above;
    for (int64_t j = 0; j < count; ++j)
        for (int i = 0; i < LEAST; ++i) amount[i] += f->x[j] > f->x[i] ? f->t[j] : 0;
    for (int64_t i = 0; i < count; ++i) least = amount[i] < target && f->x[i] < least ? f->x[i] : least;
    return least;
}

/* Between two orders: in the middle of their values, as logits are spread by value; but where that does not get on, in the
 * middle of all floats between them. No token is below `least`. */
static uint32_t order_between(uint32_t low, uint32_t high, float least, int step) {
    float bottom = float_of_order(low);
    uint32_t middle = order_of(0.5f * (bottom > least ? bottom : least) + 0.5f * float_of_order(high));
    return step < 16 && middle > low && middle < high ? middle : low + (high - low) / 2;
}

static float least_of(const float *x, int64_t count) {
    vf negated = v_set(MINUS_INF);
    int64_t i = 0;
    for (; i + V_LANES <= count; i += V_LANES) negated = v_max(v_sub(v_set(0.0f), v_load_f32(x + i)), negated);
    float least = -v_peak(negated);
    for (; i < count; ++i) least = x[i] < least ? x[i] : least;
    return least;
}

/* The smallest value whose amount above is below the target, by bisection: of a long list until few tokens are left between the
 * bounds, then of these; the last are compared with each other. */
static float list_threshold(const work *k, const listing *l, quest q) {
    const cpu_scratch *s = k->scratch;
    const float *x = s->list_x; /* the tokens looked at, */
    const uint64_t *t = q.in_tickets ? s->list_t : NULL; /* what they amount to, */
    int64_t count = (int64_t)l->count, over_low = count, over_high = 0; /* how many of them are above the bounds, */
    uint64_t above = q.in_tickets ? l->above_tickets : l->above_count;  /* and the amount above all of them */
    uint32_t low = order_of(l->low), high = order_of(l->high < k->best ? l->high : k->best);
    const float least = least_of(x, count);
    few f;
    for (int step = 0; high - low > 1; ++step) {
        int64_t between = over_low - over_high;
        if (between <= (count > FEW ? FEW : LEAST)) {
            float top = float_of_order(high);
            above += t ? tickets_above(x, t, count, top) : (uint64_t)over_high;
            count = few_copy(&f, x, t, count, float_of_order(low), top);
            x = f.x;
            t = f.t;
            over_low = count;
            over_high = 0;
            if (count <= LEAST) {
                if (above + tickets_sum(f.t, count) < q.target) return float_of_order(low + 1);
                return few_threshold(&f, count, above, q.target);
            }
        }
        uint32_t middle = order_between(low, high, least, step);
        float value = float_of_order(middle);
        int64_t over = tokens_above(x, count, value);
        if (above + (q.in_tickets ? tickets_above(x, t, count, value) : (uint64_t)over) < q.target) {
            high = middle;
            over_high = over;
        } else {
            low = middle;
            over_low = over;
        }
    }
    return float_of_order(high);
}

static uint64_t list_tickets(const work *k, const listing *l, cut c) {
    return tickets_kept(k->scratch, 0, (int64_t)l->count, c);
}

static uint64_t list_larger(const work *k, const listing *l, float x) {
    return (uint64_t)tokens_above(k->scratch->list_x, (int64_t)l->count, x);
}

/* Where the listed token is that holds ticket number *left of those from `first` on; *left then is the ticket's number among its own. */
static int64_t list_holder(const cpu_scratch *s, int64_t first, int64_t end, cut c, uint64_t *left) {
    enum { STEP = 16 };
    int64_t i = first;
    for (; i + STEP < end; i += STEP) {
        const uint64_t held = tickets_kept(s, i, i + STEP, c);
        if (*left < held) break;
        *left -= held;
    }
    for (;; ++i) {
        const uint64_t held = kept_tickets(s, i, c);
        if (*left < held) return i;
        *left -= held;
    }
}

static int32_t draw_list(const work *k, const listing *l, cut c, uint64_t bits, uint64_t *ticket) {
    const cpu_scratch *s = k->scratch;
    const int64_t count = (int64_t)l->count;
    uint64_t left = *ticket;
    int64_t first = list_holder(s, 0, count, c, &left), end = first + 1;
    const int32_t at = s->list_id[first] / STRETCH_TOKENS;
    for (; first > 0 && s->list_id[first - 1] / STRETCH_TOKENS == at; --first) left += kept_tickets(s, first - 1, c);
    for (; end < count && s->list_id[end] / STRETCH_TOKENS == at; ++end) {}
    *ticket -= left; /* where the stretch's tickets begin */
    left = mul_high(bits, tickets_kept(s, first, end, c));
    *ticket += left;
    return s->list_id[list_holder(s, first, end, c, &left)];
}
