/* explain.c - what became of each token of a row. The stages are switched on one after the other and the
 * row is sampled each time, so what is told is what the kernels do. */
#include <limits.h>

#include "args.h"
#include "fpenv.h"
#include "run.h"

#include "vec_one.h"

#include "cut_types.h"

_Static_assert((int)RULE_TOP_P_JOINT == RAFFLE_TOP_P_JOINT && (int)RULE_FILTERS_FIRST == RAFFLE_FILTERS_FIRST &&
                   (int)RULE_MIN_P_LAST == RAFFLE_MIN_P_LAST && (int)RULE_TOP_K_EXACT == RAFFLE_TOP_K_EXACT,
               "the stages know the public flags by these values");
_Static_assert((int)RULE_ROW_NAN == RAFFLE_ROW_NAN && (int)RULE_ROW_INF == RAFFLE_ROW_INF &&
                   (int)RULE_ROW_EMPTY == RAFFLE_ROW_EMPTY && (int)RULE_NO_TOKEN == RAFFLE_NO_TOKEN,
               "and the public results");
_Static_assert((int)GROUP == (int)CPU_GROUP, "the workspace has room for each group");

typedef struct stage { raffle_fate fate; float low; int32_t tie_last; } stage;
enum { STAGES_MAX = 3 };

static float logit_of(const cpu_row *row, int dtype, int64_t i) {
    if (row->allow && !(row->allow[i / 32] >> (i % 32) & 1)) return MINUS_INF;
    float x = dtype == RAFFLE_F32   ? v_load_f32(row->logits + i * 4)
              : dtype == RAFFLE_F16 ? v_load_f16(row->logits + i * 2)
                                    : v_load_bf16(row->logits + i * 2);
    return x == x ? x : MINUS_INF;
}

static raffle_fate fate_of(const stage *stages, int count, float x, int64_t id) {
    if (x == MINUS_INF) return RAFFLE_CUT_MASK;
    for (int i = 0; i < count; ++i)
        if (!(x > stages[i].low || (x == stages[i].low && id <= stages[i].tie_last))) return stages[i].fate;
    return RAFFLE_KEPT;
}

/* The cuts in the order they are made; each includes those before. A greedy row has one. Returns how many. */
static int stages_of(const cpu_row *row, cpu_row_function sample, const cpu_scratch *scratch, stage *stages) {
    cpu_row part = *row;
    cpu_answer full = sample(row, scratch);
    if (full.greedy) {
        stage only = {RAFFLE_CUT_GREEDY, full.threshold, full.tie_last};
        stages[0] = only;
        return 1;
    }
    int last = (row->flags & RAFFLE_MIN_P_LAST) != 0, count = 0;
    part.top_p = 1.0f;
    part.top_k = 0;
    part.min_p = 0.0f;
    const raffle_fate order[2][3] = {{RAFFLE_CUT_MIN_P, RAFFLE_CUT_TOP_K, RAFFLE_CUT_TOP_P},
                                     {RAFFLE_CUT_TOP_K, RAFFLE_CUT_TOP_P, RAFFLE_CUT_MIN_P}};
    for (int i = 0; i < 3; ++i) {
        if (order[last][i] == RAFFLE_CUT_MIN_P) part.min_p = row->min_p;
        if (order[last][i] == RAFFLE_CUT_TOP_K) part.top_k = row->top_k;
        if (order[last][i] == RAFFLE_CUT_TOP_P) part.top_p = row->top_p;
        cpu_answer answer = sample(&part, scratch);
        stage made = {order[last][i], answer.threshold, answer.tie_last};
        stages[count++] = made;
    }
    return count;
}

static void explain_row(const raffle_plan *plan, const call *call, int64_t row_index, raffle_explanation *out) {
    cpu_scratch scratch;
    scratch_carve(&scratch, plan->desc.vocab, call->launch.workspace);
    cpu_row row = raffle_row_of(plan, call, row_index), whole = row;
    cpu_row_function sample = ((const cpu_table *)plan->state)->sample[plan->desc.dtype];
    stage stages[STAGES_MAX];
    int count = stages_of(&row, sample, &scratch, stages);
    whole.top_p = 1.0f;
    whole.top_k = 0;
    whole.min_p = 0.0f;
    if (whole.temperature < GREEDY_BELOW) whole.temperature = 1.0f;
    cpu_answer all = sample(&whole, &scratch), answer = sample(&row, &scratch);

    out->row_flags = answer.row_flags;
    out->token = answer.row_flags & RAFFLE_ROW_EMPTY && row.flags & RAFFLE_EMPTY_IS_ZERO ? 0 : answer.token;
    out->greedy = answer.greedy;
    out->threshold = answer.threshold;
    out->row_tickets = all.draw_tickets;
    out->draw_tickets = answer.draw_tickets;
    out->drawn = answer.drawn;
    for (int i = 0; i < 8; ++i) out->fates[i] = 0;
    for (int64_t i = 0; i < row.vocab; ++i) out->fates[fate_of(stages, count, logit_of(&row, plan->desc.dtype, i), i)]++;

    float best = MINUS_INF;
    for (int64_t g = 0; g < scratch.groups; ++g) best = v_max(scratch.peak[g], best);
    scale s = scale_make(whole.temperature);
    int64_t room = out->top_count < row.vocab ? out->top_count : row.vocab, made = 0, last = -1;
    for (float last_x = PLUS_INF; made < room && best > MINUS_INF; ++made) {
        int64_t found = -1;
        float found_x = MINUS_INF;
        for (int64_t i = 0; i < row.vocab; ++i) { /* the next in order of descending logit, ascending id */
            float x = logit_of(&row, plan->desc.dtype, i);
            int after = x < last_x || (x == last_x && i > last);
            if (after && (found < 0 || x > found_x)) found = i, found_x = x;
        }
        if (found < 0) break;
        ref of_row = ref_make(s, best), of_group = ref_make(s, scratch.peak[found / GROUP]);
        uint32_t below = ref_below(&of_row, best, &of_group, scratch.peak[found / GROUP]);
        uint64_t tickets = found_x == MINUS_INF ? 0 : tickets_of(v_weigh(found_x, &of_group), below);
        raffle_candidate candidate = {(int32_t)found, (int32_t)fate_of(stages, count, found_x, found), found_x, 0, tickets};
        out->top[made] = candidate;
        last = found;
        last_x = found_x;
    }
    out->top_count = made;
}

raffle_status raffle_cpu_explain(const raffle_plan *plan, const call *call, int64_t row_index, raffle_explanation *out,
                                 raffle_error *error) {
    fpenv caller = fpenv_enter();
    raffle_status status = raffle_check_rows(call, error);
    if (!status) explain_row(plan, call, row_index, out);
    fpenv_leave(caller);
    return status;
}
