/* explain.c - what became of each token of a row. The stages are switched on one after the other and the
 * row is sampled each time, so what is told is what the kernels do. */
#include <limits.h>

#include "args.h"
#include "fpenv.h"
#include "run.h"

#include "vec_one.h"

#include "cut_types.h"

_Static_assert((int)RULE_TOP_P_JOINT == RAFFLE_TOP_P_JOINT && (int)RULE_FILTERS_FIRST == RAFFLE_FILTERS_FIRST &&
                   (int)RULE_MIN_P_LAST == RAFFLE_MIN_P_LAST && (int)RULE_TOP_K_EXACT == RAFFLE_TOP_K_EXACT &&
                   (int)RULE_SHAPE_LAST == RAFFLE_SHAPE_LAST,
               "the stages know the public flags by these values");
_Static_assert((int)RULE_ROW_NAN == RAFFLE_ROW_NAN && (int)RULE_ROW_INF == RAFFLE_ROW_INF &&
                   (int)RULE_ROW_EMPTY == RAFFLE_ROW_EMPTY && (int)RULE_NO_TOKEN == RAFFLE_NO_TOKEN,
               "and the public results");
_Static_assert((int)GROUP == (int)CPU_GROUP, "the workspace has room for each group");

typedef struct stage { raffle_fate fate; cut cut; } stage;

static float logit_of(const cpu_row *row, int dtype, int64_t i) {
    if (row->allow && !(row->allow[i / 32] >> (i % 32) & 1)) return MINUS_INF;
    float x = dtype == RAFFLE_F32   ? v_load_f32(row->logits + i * 4)
              : dtype == RAFFLE_F16 ? v_load_f16(row->logits + i * 2)
                                    : v_load_bf16(row->logits + i * 2);
    if (row->params.temperature == LINEAR_TEMPERATURE) return x > 0.0f ? x : MINUS_INF;
    return x == x ? x : MINUS_INF;
}

static raffle_fate fate_of(const stage *stages, int count, float x, int64_t id) {
    if (x == MINUS_INF) return RAFFLE_CUT_MASK;
    for (int i = 0; i < count; ++i)
        if (!cut_keeps(stages[i].cut, x, id)) return stages[i].fate;
    return RAFFLE_KEPT;
}

/* The filters in the order they are made. RAFFLE_CUT_SHAPE has two of three places, and RAFFLE_CUT_MIN_P one of two. */
typedef enum step {
    STEP_SHAPE,
    STEP_MIN_P,
    STEP_TOP_K,
    STEP_TYPICAL,
    STEP_TOP_P,
    STEP_MIN_P_LAST,
    STEP_SHAPE_LAST,
    STEP_XTC,
    STEPS
} step;

/* Switches a filter of `all` on in `part`. */
static void step_on(step step, const row_params *all, row_params *part) {
    const int last = (all->flags & RAFFLE_MIN_P_LAST) != 0, shape_last = (all->flags & RAFFLE_SHAPE_LAST) != 0;
    if (step == STEP_SHAPE) part->more.top_n_sigma = all->more.top_n_sigma;
    if (step == (shape_last ? STEP_SHAPE_LAST : STEP_SHAPE)) {
        part->more.epsilon = all->more.epsilon;
        part->more.eta = all->more.eta;
    }
    if (step == (last ? STEP_MIN_P_LAST : STEP_MIN_P)) part->min_p = all->min_p;
    if (step == STEP_TOP_K) part->top_k = all->top_k;
    if (step == (shape_last ? STEP_SHAPE_LAST : STEP_TYPICAL)) part->more.typical_p = all->more.typical_p;
    if (step == STEP_TOP_P) part->top_p = all->top_p;
    if (step == STEP_XTC) {
        part->more.xtc_probability = all->more.xtc_probability;
        part->more.xtc_threshold = all->more.xtc_threshold;
    }
}

/* The cuts in the order they are made; each includes those before. A greedy row has one. Returns how many. */
static int stages_of(const cpu_row *row, cpu_row_function sample, const cpu_scratch *scratch, stage *stages) {
    static const raffle_fate fate[STEPS] = {RAFFLE_CUT_SHAPE, RAFFLE_CUT_MIN_P, RAFFLE_CUT_TOP_K, RAFFLE_CUT_SHAPE,
                                            RAFFLE_CUT_TOP_P, RAFFLE_CUT_MIN_P, RAFFLE_CUT_SHAPE, RAFFLE_CUT_XTC};
    cpu_row part = raffle_row_unfiltered(row);
    answer full = sample(row, scratch);
    if (full.greedy) {
        stage only = {RAFFLE_CUT_GREEDY, cut_of(&full)};
        stages[0] = only;
        return 1;
    }
    part.params.more.keep_least = row->params.more.keep_least;
    for (int step = 0; step < STEPS; ++step) {
        step_on((enum step)step, &row->params, &part.params);
        answer told = sample(&part, scratch);
        stage made = {fate[step], cut_of(&told)};
        stages[step] = made;
    }
    return STEPS;
}

/* ---- the likeliest tokens ------------------------------------------------------------------------- */

/* Descending by logit, ties ascending by id. */
static int comes_before(const raffle_candidate *a, const raffle_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

/* Lets the candidate at `at` of a heap with the last in order at its root sink to its place. */
static void heap_sink(raffle_candidate *heap, int64_t count, int64_t at) {
    const raffle_candidate sinking = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_before(&heap[child], &heap[child + 1])) ++child;
        if (!comes_before(&sinking, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = sinking;
}

/* The first `room` tokens in order, with logits; returns how many. A heap keeps the best so far, and gives them up from
 * the last to the first. */
static int64_t top_select(const cpu_row *row, int dtype, raffle_candidate *top, int64_t room) {
    const int64_t vocab = row->params.vocab, count = room < vocab ? room : vocab;
    if (count <= 0) return 0;
    for (int64_t i = 0; i < vocab; ++i) {
        const raffle_candidate candidate = {(int32_t)i, 0, logit_of(row, dtype, i), 0, 0};
        if (i < count) {
            top[i] = candidate;
            if (i == count - 1)
                for (int64_t at = count / 2; at-- > 0;) heap_sink(top, count, at);
        } else if (comes_before(&candidate, &top[0])) {
            top[0] = candidate;
            heap_sink(top, count, 0);
        }
    }
    for (int64_t left = count - 1; left > 0; --left) {
        const raffle_candidate last = top[0];
        top[0] = top[left];
        top[left] = last;
        heap_sink(top, left, 0);
    }
    return count;
}

/* A candidate's tickets at a temperature. */
static uint64_t tickets_at(const cpu_scratch *scratch, float temperature, float best, const raffle_candidate *candidate) {
    if (candidate->logit == MINUS_INF) return 0;
    const weighing w = weighing_make(temperature, best);
    const group_ref g = group_ref_make(&w, scratch->peak[candidate->token / GROUP]);
    return tickets_of(v_weigh(candidate->logit, &g.ref), g.below);
}

/* The tickets of the tokens before `end` that a cut keeps. */
static uint64_t tickets_before(const cpu_row *row, int dtype, const cpu_scratch *scratch, float best, cut c, int64_t end) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < end; ++i) {
        const raffle_candidate one = {(int32_t)i, 0, logit_of(row, dtype, i), 0, 0};
        if (cut_keeps(c, one.logit, i)) sum += tickets_at(scratch, row->params.temperature, best, &one);
    }
    return sum;
}

static void explain_row(const raffle_plan *plan, const call *call, int64_t row_index, raffle_explanation *out) {
    cpu_scratch scratch;
    edit_scratch edits;
    raffle_workspace(plan, call->launch.workspace, &scratch, &edits);
    cpu_row row = raffle_row_of(plan, call, row_index);
    const int dtype = raffle_row_prepare(plan, call, slot_of(&call->params, row_index), no_tail, &edits, &row);
    cpu_row whole = raffle_row_unfiltered(&row);
    cpu_row_function sample = ((const cpu_table *)plan->state)->sample[dtype];
    stage stages[STEPS];
    int count = stages_of(&row, sample, &scratch, stages);
    if (whole.params.temperature < GREEDY_BELOW && whole.params.temperature != LINEAR_TEMPERATURE) whole.params.temperature = 1.0f;
    answer told = sample(&row, &scratch), all = sample(&whole, &scratch); /* in this order: below, all tokens have peaks */

    out->row_flags = told.row_flags;
    out->token = told.row_flags & RAFFLE_ROW_EMPTY && row.params.flags & RAFFLE_EMPTY_IS_ZERO ? 0 : told.token;
    out->greedy = told.greedy;
    out->threshold = told.threshold;
    out->row_tickets = all.draw_tickets;
    out->draw_tickets = told.draw_tickets;
    out->drawn = told.drawn;
    for (int i = 0; i < 8; ++i) out->fates[i] = 0;
    for (int64_t i = 0; i < row.params.vocab; ++i)
        out->fates[fate_of(stages, count, logit_of(&row, dtype, i), i)]++;

    float best = MINUS_INF;
    for (int64_t g = 0; g < scratch.groups; ++g) best = v_max(scratch.peak[g], best);
    if (rules_make(&row.params).proposes && told.token >= 0)
        out->drawn += tickets_before(&row, dtype, &scratch, best, cut_of(&told), told.token); /* it is one of the token's */
    out->top_count = best > MINUS_INF ? top_select(&row, dtype, out->top, out->top_count) : 0;
    for (int64_t i = 0; i < out->top_count; ++i) {
        raffle_candidate *c = &out->top[i];
        c->fate = (int32_t)fate_of(stages, count, c->logit, c->token);
        c->tickets = tickets_at(&scratch, whole.params.temperature, best, c);
    }
}

raffle_status raffle_cpu_explain(const raffle_plan *plan, const call *call, int64_t row_index, raffle_explanation *out,
                                 raffle_error *error) {
    fpenv caller = fpenv_enter();
    raffle_status status = raffle_check_cpu_rows(call, error);
    if (!status) explain_row(plan, call, row_index, out);
    fpenv_leave(caller);
    return status;
}
