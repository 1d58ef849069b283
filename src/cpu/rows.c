/* rows.c - one row on the CPU: the loops that cut.h asks for. Compiled once per instruction set, with that
 * set's vec_*.h included first (-include); its only symbol is a table of functions.
 *
 * The row is read once to learn the largest logit of every group of 256 tokens. After that only groups
 * whose maximum says that they can matter are read again: one for greedy, some for top-k, min-p and
 * top-p, all for a draw from the whole row that an estimate does not settle. Rows with top-k that are short, or
 * of which many tokens stay, are read for the maxima of parts of 64. */
#include "rows.h"

#include <limits.h>

#include "cut_types.h"
#include "estimate.h"
#include "weigh_blocks.h"
#include "probability.h"
#include "share.h"
#include "spread.h"

/* A row on its way through the stages. */
typedef struct work {
    const struct loops *loops;
    const cpu_row *row;
    const cpu_scratch *scratch;
    struct row_state *state;
    float best; /* the row's largest logit */
    int kind;   /* how it is read: see row_read.h */
} work;

/* What cut.h calls, and the scan before it. */
struct drawn;
typedef struct loops {
    int kind;
    float (*scan)(const work *, int *nan);
    float (*scan_weigh)(const work *, scale, int *nan);
    float (*scan_estimate)(const work *, scale, int *nan);
    struct drawn (*propose_estimated)(const work *, const weighing *);
    listing (*list)(const work *, const weighing *, float low, float high);
    listing (*sketch)(const work *, const weighing *);
    int (*guessed)(const work *, const weighing *, quest, uint64_t mass, float *low, float *high);
    uint64_t (*weigh)(const work *, const weighing *);
    uint64_t (*share_mass)(const work *, const weighing *);
    uint64_t (*weigh_kept)(const work *, const weighing *, cut);
    void (*weigh_some)(const work *, const weighing *, int64_t first, int64_t end);
    float (*peak_bound)(const work *, int64_t count, float best);
    int32_t (*tie)(const work *, float value, uint64_t count);
    float (*list_threshold)(const work *, const listing *, quest);
    uint64_t (*list_tickets)(const work *, const listing *, cut);
    uint64_t (*list_larger)(const work *, const listing *, float);
    int32_t (*draw_list)(const work *, const listing *, cut, uint64_t bits, uint64_t *ticket);
    int32_t (*draw_group)(const work *, const weighing *, cut, int whole, uint64_t bits, uint64_t *ticket);
    int32_t (*propose)(const work *, const weighing *, uint64_t bits, uint64_t *ticket, float *x);
    float (*least)(const work *, float low);
    float (*most)(const work *, float high);
    uint64_t (*count)(const work *, cut);
    moments (*moments_of)(const work *, float best, double scale);
    uint64_t (*surprise)(const work *, const weighing *, float temperature, cut, uint64_t *mass);
    float (*radius)(const work *, const weighing *, cut, float center, quest);
    float (*cap)(const work *, float high);
} loops;

static inline cut cut_above(float x) {
    return cut_from(just_above(x));
}

#include "row_list.h"

/* ---- what the scratch holds ------------------------------------------------------------------------- */

/* Two values and the weight of a sketch's tokens above each (row_flat.h). */
typedef struct span { float low, high, above_low, above_high; } span;

/* A sketch of `count` tokens that is in the list's memory: from its least to the row's largest logit, and the same from where it
 * guesses a threshold. */
typedef struct sketched {
    int64_t count;
    span all, guess;
} sketched;

/* What later stages need not do again.
 * The list that is still in the scratch: if it has an upper end, mass[] holds the tickets above, so for a cut between
 * its ends every group is weighed already but for its listed tokens.
 * And the weights of the whole row, which the first reading left in low[] and size[]; or only an estimate of their sum.
 * Or the tickets above one value in mass[], for the list that is made next and ends there (row_flat.h). */
typedef struct row_state {
    listing list; /* not complete: there is none */
    struct scale scale; /* by which it is weighed */
    int weighed;  /* whether low[] and size[] hold weights, */
    struct scale first; /* by this scale, or the row was estimated by it */
    int settled;  /* whether the list is where top-p's threshold is */
    uint32_t open; /* 1: v_weights_open has met nothing that it cannot weigh */
    uint32_t plain; /* 1: all whole groups of a row that was weighed have had a plain reference */
    int fine;      /* whether part[] holds the largest logits of parts */
    int within;    /* whether mass[] holds the tickets of the list's tokens, too */
    int told;      /* whether mass[] holds the tickets above `at`, together: */
    float at;
    uint64_t tickets;
    sketched sketch; /* where `told`: the sketch that says so, until a list is made */
    int estimated; /* for top-p and draws: whether `sum` is that of the row's estimates by `estimator`; where it is 0, the row is flat */
    estimator estimator;
    double sum;
    int draws;     /* whether that is to draw from: nobody looks for a threshold */
} row_state;

/* Where top-k is to list tokens, rows of up to so many groups are read for the maxima of parts; longer ones if that many tokens stay: parts
 * take a little longer to find, and each of the k groups that are listed is read four times as fast. */
enum { FINE_GROUPS = 256, FINE_TOP_K = 48 };

/* What an estimate of the row's mass says of top-p's threshold: not the same for every mass in its range; the same, and in the state's
 * list; or too many tokens stay for a list. */
enum { UNSURE, SETTLED, MANY };

/* Forgets what mass[] and the list's memory hold. */
static void state_clear(row_state *state) { state->list.complete = state->told = state->settled = state->estimated = 0; }

static const scale scale_none = {0.0f, 0.0f, 0.0f, 1, 0}; /* flat: nothing is weighed */

static int scale_same(scale a, scale b) { return a.c == b.c && a.c_low == b.c_low && a.flat == b.flat; }

static int scale_fits(scale s, const weighing *w) { return scale_same(s, w->scale) && !w->scale.flat; }

static void weighed_keep(row_state *state, scale s) {
    state->weighed = 1;
    state->first = s;
}

static int weighed_with(const row_state *state, const weighing *w) { return state->weighed && scale_fits(state->first, w); }

static void last_keep(row_state *state, const listing *l, const weighing *w, int within) {
    state->list = *l;
    state->within = within;
    state->scale = w->scale;
}

static int last_covers(const row_state *state, const weighing *w, cut c) {
    const listing *l = &state->list;
    int within = l->complete && !c.capped && l->high < PLUS_INF && l->low < c.low && c.low <= l->high;
    return within && scale_fits(state->scale, w);
}

/* How many of `count` maxima are at least `value`. Up to a multiple of PEAK_PAD, they go on with -inf. */
static int64_t maxima_reaching(const float *top, int64_t count, float value) {
    return tokens_above(top, (count + PEAK_PAD - 1) / PEAK_PAD * PEAK_PAD, just_below(value));
}

/* A value that at least `count` of top[tops] reach, and not many more. */
static float bound_find(const float *top, int64_t tops, int64_t count, float best) {
    const int64_t over = count / 8 < (tops - count) / 2 ? count / 8 : (tops - count) / 2;
    const uint32_t least = order_of(-FLT_MAX);
    uint32_t high = order_of(best) + 1, low = high;
    int64_t found = 0;
    if (count > tops) return -FLT_MAX;
    for (uint64_t step = 1u << 21; found < count && low > least; step *= 4) { /* down, faster and faster, */
        high = low;
        low = high - least > step ? high - (uint32_t)step : least;
        found = maxima_reaching(top, tops, float_of_order(low));
    }
    while (high - low > 1 && found > count + over) { /* and back: enough are >= low, too few >= high */
        uint32_t middle = low + (high - low) / 2;
        int64_t reach = maxima_reaching(top, tops, float_of_order(middle));
        if (reach < count) {
            high = middle;
        } else {
            low = middle;
            found = reach;
        }
    }
    return float_of_order(low);
}

/* Such a value of the row's maxima: those of groups, or if that would be most of them, of parts. */
static float peak_bound(const work *k, int64_t count, float best) {
    const cpu_scratch *s = k->scratch;
    const int fine = 2 * count > s->groups && k->state->fine;
    return bound_find(fine ? s->part : s->peak, fine ? s->groups * CPU_PARTS : s->groups, count, best);
}

/* Makes of the listed tokens' tickets the sums up to each of them: of what a cut keeps, or less what it cuts if `within`. `ties`, a
 * compile-time constant: whether it may cut between equal logits. */
RAFFLE_FN uint64_t list_sums(const cpu_scratch *s, int64_t count, cut c, int within, int ties) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t held = s->list_t[i], kept = ties ? kept_tickets(s, i, c) : held & (0 - (uint64_t)(s->list_x[i] >= c.low));
        s->list_t[i] = sum += kept - (held & (0 - (uint64_t)within));
    }
    return sum;
}

/* Adds the listed tokens that a cut keeps to mass[], or takes away the others if all are in it, and returns the sum of mass[]. The
 * list is gone afterwards: list_t becomes sums, list_x where each group ends. So no step waits for the one before to be stored. */
static uint64_t last_weigh(row_state *state, const cpu_scratch *scratch, cut c) {
    const cpu_scratch s = *scratch;
    const int64_t count = (int64_t)state->list.count;
    const uint64_t sum = c.tie_last == INT32_MAX ? list_sums(&s, count, c, state->within, 0) : list_sums(&s, count, c, state->within, 1);
    const uint64_t before_all = state->list.above_tickets + (state->within ? state->list.tickets : 0);
    int32_t *const ends = (int32_t *)s.list_x;
    memset(ends, 0, (size_t)s.groups * sizeof *ends);
    for (int64_t i = 0; i < count; ++i) ends[(uint32_t)s.list_id[i] / GROUP] = (int32_t)i + 1;
    uint64_t before = 0;
    for (int64_t g = 0; g < s.groups; ++g) {
        const uint64_t up_to = ends[g] ? s.list_t[ends[g] - 1] : before;
        s.mass[g] += up_to - before;
        before = up_to;
    }
    state_clear(state);
    return before_all + sum;
}

#include "row_kernels.h"

#include "row_write.h"

#include "row_softmax.h"

#include "row_report.h"

#include "cut.h"

#include "verify_kernels.h"

/* ---- the table ---------------------------------------------------------------------------------- */

static int is_filtered(const rules *r) {
    return r->top_k || r->top_p || r->min_p_first || r->min_p_last || r->shape || r->typical || r->late;
}

/* Whether the row will be weighed as a whole, and at which temperature. */
static int weighs_all(const row_params *p, float *temperature) {
    rules r = rules_make(p);
    *temperature = r.row_mass ? r.filter_temperature : p->temperature;
    return !r.greedy && (r.row_mass || !is_filtered(&r));
}

static int row_is_softmax(const row_params *p) {
    rules r = rules_make(p);
    return !r.greedy && !is_filtered(&r) && p->temperature != LINEAR_TEMPERATURE && p->temperature < FLAT_FROM;
}

/* At which scale a row is weighed while it is first read; flat: it is not. */
static scale scale_first(const cpu_row *row) {
    float temperature;
    if (weighs_all(&row->params, &temperature)) return scale_make(temperature);
    return row->weigh_at > 0.0f ? scale_make(row->weigh_at) : scale_none;
}

/* Whether an estimate of the row's mass probably does: for draws from the whole row, and for top-p's threshold where there is no other filter.
 * There must be enough groups that the latter lists those with the largest tokens, and nobody may ask what the row weighs. */
static int row_estimates(const cpu_row *row, const rules *r, const cpu_scratch *s) {
    const int more = r->shape || r->typical || r->late || row->params.more.keep_least > 1;
    const int share = r->row_mass && !r->top_k && !r->min_p_first && !more, whole = row->only_token && !is_filtered(r);
    return !r->greedy && (share || whole) && row->weigh_at == 0.0f && s->groups >= TOP_P_FIRST;
}

/* The mass of a row that was sampled last, if its first reading has weighed it at this temperature; else 0. */
static uint64_t row_weighed(const cpu_row *row, const cpu_scratch *scratch, float temperature, float best) {
    cpu_scratch s = *scratch;
    const scale first = scale_first(row);
    const weighing w = weighing_make(temperature, best);
    const rules r = rules_make(&row->params);
    if (first.flat || w.scale.flat || row_estimates(row, &r, &s)) return 0;
    if (!scale_same(first, w.scale)) {
        if (!scale_same(scale_too(row, first), w.scale)) return 0;
        s.exponent = s.too_exponent;
        s.low = s.too_low;
        s.size = s.too_size;
    }
    return weights_to_tickets(&s, &w);
}

/* The first reading. Returns the row's largest logit. */
static float row_read_first(const work *k, scale all, int estimates, int *nan) {
    if (k->row->patch) return patched_best(k->row, k->scratch); /* read already */
    if (all.flat) return k->loops->scan(k, nan);
    return estimates ? k->loops->scan_estimate(k, all, nan) : k->loops->scan_weigh(k, all, nan);
}

static answer row_sample(const loops *set, const cpu_row *row, const cpu_scratch *s) {
    int nan = 0, asks = (row->only_kept ? 0 : ASKS_TOKEN) | (row->only_token ? 0 : ASKS_KEPT);
    row_state state;
    work k = {row->patch ? &patched : set, row, s, &state, MINUS_INF, set->kind};
    state_clear(&state);
    const scale all = scale_first(row);
    const rules r = rules_make(&row->params);
    state.weighed = 0;
    state.draws = asks & ASKS_TOKEN && (r.proposes || !is_filtered(&r));
    state.fine = !row->patch && all.flat && (s->groups <= FINE_GROUPS || row->params.top_k >= FINE_TOP_K) && r.top_k && !r.greedy;
    k.best = row_read_first(&k, all, row_estimates(row, &r, s), &nan);
    drawn known = drawn_nothing;
    if (state.draws && state.estimated) {
        const weighing w = weighing_make(row->params.temperature, k.best);
        known = r.proposes ? set->propose_estimated(&k, &w) : row_token_estimated(&k, &w);
        if (known.token != RULE_NO_TOKEN) {
            asks &= ~ASKS_TOKEN;
        } else {
            state_clear(&state);
            k.best = set->scan_weigh(&k, all, &nan);
        }
    }
    answer a = {RULE_NO_TOKEN, 0, 0, -FLT_MAX, INT32_MAX, 0, 0, 0, 0.0f, !r.proposes};
    if (asks) a = row_answer(&k, &row->params, k.best, asks);
    if (known.token != RULE_NO_TOKEN) a.token = known.token, a.drawn = known.left;
    if (nan) a.row_flags |= RULE_ROW_NAN;
    return a;
}

/* Whether a row reads few groups after its first reading. */
static int row_reads_few(const cpu_row *row) { return scale_first(row).flat && row->params.temperature != LINEAR_TEMPERATURE; }

static float row_scan_alone(const loops *set, const cpu_row *row, const cpu_scratch *s, int *nan) {
    row_state state = {.fine = 0};
    const work k = {set, row, s, &state, MINUS_INF, set->kind};
    return set->scan(&k, nan);
}

/* The token of a row that proposes and whose groups' tickets are in mass[], by the cut that is known to leave what stays. */
static int32_t row_propose_again(const work *k, const weighing *w, cut c) {
    const uint64_t mass = tickets_sum(k->scratch->mass, k->scratch->groups);
    for (uint32_t j = 0; j < PROPOSALS; ++j) {
        const philox_pair bits = proposal_bits(&k->row->params, j);
        uint64_t ticket = mul_high(bits.low, mass);
        float x;
        const int32_t token = k->loops->propose(k, w, bits.high, &ticket, &x);
        if (token != RULE_NO_TOKEN && cut_keeps(c, x, token)) return token;
    }
    return RULE_NO_TOKEN;
}

/* Another draw from a row that was sampled last, with the same scratch; the row has other chance, nothing else.
 * The groups' tickets stay from draw to draw: *weighed says that they are those of the answer, or of the row if it proposes. */
static int32_t row_draw_again(const loops *set, const cpu_row *row, const cpu_scratch *s, const answer *a, int *weighed) {
    row_state state;
    work k = {set, row, s, &state, peaks_largest(s->peak, s->groups), set->kind};
    state_clear(&state);
    state.fine = state.weighed = 0;
    const int proposes = rules_make(&row->params).proposes, first = !*weighed;
    const weighing draw = weighing_make(row->params.temperature, k.best);
    const cut c = cut_of(a);
    *weighed = 1;
    if (proposes) {
        if (first) set->weigh(&k, &draw);
        return row_propose_again(&k, &draw, c);
    }
    if (first && !a->whole) set->weigh_kept(&k, &draw, c); /* a whole row has drawn from the groups already */
    const philox_pair bits = draw_bits(&row->params);
    uint64_t ticket = mul_high(bits.low, a->draw_tickets);
    return set->draw_group(&k, &draw, c, a->whole, bits.high, &ticket);
}

#define DEFINE_SAMPLE(dtype)                                                                                           \
    static const loops *loops_##dtype(const cpu_row *row) {                                                            \
        if (row->params.temperature == LINEAR_TEMPERATURE) return row->allow ? &probs_allow_##dtype : &probs_##dtype;  \
        return row->allow ? &allow_##dtype : &plain_##dtype;                                                           \
    }                                                                                                                  \
    static answer sample_##dtype(const cpu_row *row, const cpu_scratch *s) {                                           \
        return row_sample(loops_##dtype(row), row, s);                                                                 \
    }                                                                                                                  \
    static float scan_##dtype(const cpu_row *row, const cpu_scratch *s, int *nan) {                                    \
        return row_scan_alone(loops_##dtype(row), row, s, nan);                                                        \
    }                                                                                                                  \
    static int32_t draw_##dtype(const cpu_row *row, const cpu_scratch *s, const answer *a, int *weighed) {             \
        return row_draw_again(loops_##dtype(row), row, s, a, weighed);                                                 \
    }
DEFINE_SAMPLE(f32)
DEFINE_SAMPLE(f16)
DEFINE_SAMPLE(bf16)

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const cpu_table JOIN(raffle_table_, V_ISA_NAME) = {
    {sample_f32, sample_f16, sample_bf16},
    {draw_f32, draw_f16, draw_bf16},
    {write_f32, write_f16, write_bf16},
    {softmax_f32, softmax_f16, softmax_bf16},
    {log_softmax_f32, log_softmax_f16, log_softmax_bf16},
    row_is_softmax,
    {tickets_f32, tickets_f16, tickets_bf16},
    left_over,
    {copy_f32, copy_f16, copy_bf16},
    {scan_f32, scan_f16, scan_bf16},
    row_reads_few,
    {make_f32, make_f16, make_bf16},
    row_make_from,
    row_weighed,
    group_read,
    group_read_from,
    row_entropy,
};
