#include "run.h"

#include <stdio.h>
#include <string.h>

#include "args.h"
#include "detect.h"
#include "fpenv.h"

enum { LIST_LEAST = 4096 };

void *raffle_carve(char *memory, size_t *used, int64_t count, size_t element) {
    void *block = memory ? memory + *used : NULL;
    *used += ((size_t)count * element + RAFFLE_WORKSPACE_ALIGN - 1) / RAFFLE_WORKSPACE_ALIGN * RAFFLE_WORKSPACE_ALIGN;
    return block;
}

size_t scratch_carve(cpu_scratch *s, int64_t vocab, void *memory) {
    size_t used = 0;
    s->groups = (vocab + CPU_GROUP - 1) / CPU_GROUP;
    s->list_max = vocab / 8 > LIST_LEAST ? vocab / 8 : LIST_LEAST;
    s->peak = raffle_carve(memory, &used, s->groups, sizeof *s->peak);
    s->part = raffle_carve(memory, &used, s->groups * CPU_PARTS, sizeof *s->part);
    s->exponent = raffle_carve(memory, &used, s->groups, sizeof *s->exponent);
    s->low = raffle_carve(memory, &used, s->groups, sizeof *s->low);
    s->size = raffle_carve(memory, &used, s->groups, sizeof *s->size);
    s->too_exponent = raffle_carve(memory, &used, s->groups, sizeof *s->too_exponent);
    s->too_low = raffle_carve(memory, &used, s->groups, sizeof *s->too_low);
    s->too_size = raffle_carve(memory, &used, s->groups, sizeof *s->too_size);
    s->mass = raffle_carve(memory, &used, s->groups, sizeof *s->mass);
    s->list_t = raffle_carve(memory, &used, s->list_max, sizeof *s->list_t);
    s->list_x = raffle_carve(memory, &used, s->list_max, sizeof *s->list_x);
    s->list_id = raffle_carve(memory, &used, s->list_max, sizeof *s->list_id);
    s->draft_peak = raffle_carve(memory, &used, s->groups, sizeof *s->draft_peak);
    s->left_t = raffle_carve(memory, &used, s->groups, sizeof *s->left_t);
    s->left_s = raffle_carve(memory, &used, s->groups, sizeof *s->left_s);
    s->draft_exponent = raffle_carve(memory, &used, s->groups, sizeof *s->draft_exponent);
    s->draft_low = raffle_carve(memory, &used, s->groups, sizeof *s->draft_low);
    s->draft_size = raffle_carve(memory, &used, s->groups, sizeof *s->draft_size);
    return used;
}

static row_filters filters_of(const raffle_extra *e) {
    row_filters none = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0};
    if (!e) return none;
    row_filters f = ROW_FILTERS(e);
    return f;
}

/* Field by field, to where the row is going to be: a struct made elsewhere and copied in wider pieces than it was stored
 * waits for each of them. */
static void row_fill(cpu_row *r, const raffle_plan *plan, const raffle_logits *logits, const raffle_params *p, int64_t row,
                     int64_t slot) {
    int64_t bytes = plan->desc.dtype == RAFFLE_F32 ? 4 : 2, from = logits->row_index ? logits->row_index[row] : row;
    float unset = plan->desc.input == RAFFLE_PROBS ? LINEAR_TEMPERATURE : 1.0f;
    row_params *to = &r->params;
    r->logits = (const char *)logits->data + from * logits->row_stride * bytes;
    r->allow = p->allow ? p->allow + row * p->allow_stride : NULL;
    r->patch = NULL;
    r->weigh_at = 0.0f;
    r->only_token = r->only_kept = 0;
    to->vocab = plan->desc.vocab;
    to->temperature = p->temperature ? p->temperature[slot] : unset;
    to->top_p = p->top_p ? p->top_p[slot] : 1.0f;
    to->min_p = p->min_p ? p->min_p[slot] : 0.0f;
    to->top_k = p->top_k ? p->top_k[slot] : 0;
    to->flags = p->flags | (p->extra ? p->extra[slot].flags : 0);
    to->seed = (p->seed ? p->seed[slot] : 0) + p->seed_offset;
    to->position = (p->position ? p->position[slot] : 0) + p->position_offset;
    to->draft_step = p->draft_step;
    to->bits = NULL;
    to->more = filters_of(extra_of(p, slot));
}

cpu_row raffle_row_make(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *p, int64_t row,
                        int64_t slot) {
    cpu_row made;
    row_fill(&made, plan, logits, p, row, slot);
    return made;
}

cpu_row raffle_row_of(const raffle_plan *plan, const call *call, int64_t row) {
    return raffle_row_make(plan, &call->logits, &call->params, row, slot_of(&call->params, row));
}

static raffle_status create(raffle_plan *plan, raffle_error *error) {
    cpu_scratch scratch;
    raffle_isa isa = (raffle_isa)plan->desc.isa;
    plan->state = raffle_table_of(isa);
    if (!plan->state)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "isa %s: this machine or build does not have it",
                           raffle_isa_name(isa));
    if (isa == RAFFLE_ISA_BEST) plan->desc.isa = (int32_t)raffle_isa_best();
    edit_scratch edits;
    plan->workspace_bytes = scratch_carve(&scratch, plan->desc.vocab, NULL) + edit_carve(&edits, &plan->desc, NULL);
    return RAFFLE_OK;
}

static void destroy(raffle_plan *plan) { (void)plan; }

static size_t describe(const raffle_plan *plan, char *text, size_t bytes) {
    static const char *const dtype[] = {"f32", "f16", "bf16"};
    int length = snprintf(text, bytes, "cpu %s, %s logits, vocab %lld, workspace %zu bytes",
                          raffle_isa_name((raffle_isa)plan->desc.isa), dtype[plan->desc.dtype],
                          (long long)plan->desc.vocab, plan->workspace_bytes);
    return length < 0 ? 0 : (size_t)length;
}

/* Whether a row is the one before it, drawn from again, neither of them edited. XTC's choice is chance, too. */
static int same_but_for_chance(const cpu_row *a, const cpu_row *b) {
    const row_params *p = &a->params, *q = &b->params;
    if (a->logits != b->logits || p->temperature != q->temperature || p->top_p != q->top_p || p->min_p != q->min_p ||
        p->top_k != q->top_k || p->flags != q->flags || p->more.xtc_probability > 0.0f ||
        memcmp(&p->more, &q->more, sizeof p->more))
        return 0;
    const size_t words = (size_t)((p->vocab + 31) / 32);
    return a->allow == b->allow || (a->allow && b->allow && !memcmp(a->allow, b->allow, words * sizeof *a->allow));
}

cpu_row raffle_row_unfiltered(const cpu_row *row) {
    cpu_row whole = *row;
    const row_filters none = {0};
    whole.params.top_p = 1.0f;
    whole.params.top_k = 0;
    whole.params.min_p = 0.0f;
    whole.params.more = none;
    return whole;
}

int raffle_row_prepare(const raffle_plan *plan, const call *call, int64_t slot, tail tail, const edit_scratch *edits, cpu_row *row) {
    const raffle_extra *extra = extra_of(&call->params, slot);
    if (!extra || !raffle_edits(extra)) return plan->desc.dtype;
    raffle_prepare(call, plan->state, plan->desc.dtype, slot, tail, edits, row);
    return RAFFLE_F32;
}

void raffle_workspace(const raffle_plan *plan, void *memory, cpu_scratch *scratch, edit_scratch *edits) {
    size_t used = scratch_carve(scratch, plan->desc.vocab, memory);
    edit_carve(edits, &plan->desc, memory ? (char *)memory + used : NULL); /* NULL is fine without rows */
}

/* What raffle_draft keeps of a row: its token, and the row as it came. */
static void draft_keep(const raffle_plan *plan, const call *call, int64_t row, const cpu_row *raw) {
    const raffle_drafted *d = &call->drafted;
    const int64_t bytes = plan->desc.dtype == RAFFLE_F32 ? 4 : 2, to = row * d->each + call->params.draft_step - 1;
    d->token[to] = call->result.token[row];
    if (d->logits) memcpy((char *)d->logits + to * d->row_stride * bytes, raw->logits, (size_t)(plan->desc.vocab * bytes));
}

static raffle_status sample(const raffle_plan *plan, const call *call, raffle_error *error) {
    const cpu_table *table = plan->state;
    const raffle_params *params = &call->params;
    cpu_scratch scratch;
    edit_scratch edits;
    raffle_workspace(plan, call->launch.workspace, &scratch, &edits);
    fpenv caller = fpenv_enter();
    raffle_status status = raffle_check_cpu_rows(call, error);
    cpu_patch patch;
    said_chains said;
    cpu_row rows[2], unedited; /* rows: this one and the one before it, by turns */
    answer told;
    int known = 0, weighed = 0; /* known: the scratch and `told` are those of the row before, as it came: edited rows lie elsewhere */
    const int only_tokens = !call->result.report && !call->logits.row_index;
    for (int64_t i = call->row_first; !status && i < call->row_end; ++i) {
        cpu_row *row = &rows[i & 1];
        const cpu_row *raw = row;
        const int64_t slot = slot_of(params, i);
        row_fill(row, plan, &call->logits, params, i, slot);
        row->only_token = only_tokens;
        int dtype = plan->desc.dtype;
        const int edited = params->extra && raffle_edits(&params->extra[slot]);
        if (edited) {
            unedited = *row;
            raw = &unedited;
            const int weighed_too = call->result.report && call->report.point == RAFFLE_TEMPERED; /* then all groups are read */
            if (!weighed_too && raffle_prepare_patch(call, table, dtype, slot, &edits, &scratch, &patch, &said, row)) dtype = RAFFLE_F32;
            else dtype = raffle_row_prepare(plan, call, slot, no_tail, &edits, row);
        }
        if (call->result.report) raffle_report_expect(&call->report, raw, row);
        if (!known || !same_but_for_chance(row, &rows[~i & 1])) {
            told = table->sample[dtype](row, &scratch);
            weighed = 0;
        } else if (!told.greedy && !(told.row_flags & RAFFLE_ROW_EMPTY)) {
            told.token = table->draw[dtype](row, &scratch, &told, &weighed);
        }
        known = !edited && !call->result.report;
        int zero = told.row_flags & RAFFLE_ROW_EMPTY && row->params.flags & RAFFLE_EMPTY_IS_ZERO;
        call->result.token[i] = zero ? 0 : told.token;
        if (call->result.row_flags) call->result.row_flags[i] = told.row_flags;
        if (call->result.advance) call->result.advance[slot]++;
        if (call->drafted.each) draft_keep(plan, call, i, raw);
        if (call->result.report) raffle_row_report(plan, &call->report, i, raw, row, dtype, &told, &scratch);
    }
    fpenv_leave(caller);
    return status;
}

const backend raffle_backend_cpu = {create, destroy, describe, sample, raffle_cpu_write, raffle_cpu_explain, raffle_cpu_verify,
                                    raffle_cpu_change};
