/* write.c - raffle_softmax and raffle_mask: each row is sampled, which decides what is kept and what it weighs, and
 * then written. */
#include "args.h"
#include "fpenv.h"
#include "run.h"

static cpu_target target_of(const call *call, int64_t row) {
    const raffle_output *o = &call->output;
    const int64_t bytes = o->dtype == RAFFLE_F32 ? 4 : 2;
    cpu_target t = {
        .data = o->data ? (char *)o->data + row * o->row_stride * bytes : NULL,
        .dtype = o->dtype,
        .form = call->form,
        .kept = o->kept ? o->kept + row * o->kept_stride : NULL,
        .list = o->kept_list ? o->kept_list + row * o->kept_list_stride : NULL,
        .list_max = o->kept_list_stride,
        .count = o->kept_count ? o->kept_count + row : NULL,
    };
    return t;
}

/* What writes a row, if nothing is asked for but probabilities in f32, or logarithms of them without a mask; else NULL. */
static cpu_softmax_function softmax_of(const cpu_table *table, int dtype, const cpu_row *row, const cpu_target *t) {
    if (t->kept || t->list || t->count || !t->data || t->dtype != RAFFLE_F32 || (uintptr_t)t->data % sizeof(float)) return NULL;
    if (t->form == FORM_LOGIT || (t->form == FORM_LOG && row->allow) || !table->is_softmax(&row->params)) return NULL;
    return t->form == FORM_LOG ? table->log_softmax[dtype] : table->softmax[dtype];
}

raffle_status raffle_cpu_write(const raffle_plan *plan, const call *call, raffle_error *error) {
    const cpu_table *table = plan->state;
    cpu_scratch scratch;
    edit_scratch edits;
    raffle_workspace(plan, call->launch.workspace, &scratch, &edits);
    fpenv caller = fpenv_enter();
    raffle_status status = raffle_check_cpu_rows(call, error);
    for (int64_t i = call->row_first; !status && i < call->row_end; ++i) {
        cpu_row row = raffle_row_of(plan, call, i);
        cpu_target target = target_of(call, i);
        int dtype = raffle_row_prepare(plan, call, slot_of(&call->params, i), no_tail, &edits, &row);
        const cpu_softmax_function softmax = call->params.extra ? NULL : softmax_of(table, dtype, &row, &target);
        if (softmax) {
            uint32_t flags = softmax(&row, &scratch, (float *)(void *)target.data);
            if (call->output.row_flags) call->output.row_flags[i] = flags;
            continue;
        }
        row.only_kept = 1;
        answer told = table->sample[dtype](&row, &scratch);
        table->write[dtype](&row, &scratch, &told, &target);
        if (call->output.row_flags) call->output.row_flags[i] = told.row_flags;
    }
    fpenv_leave(caller);
    return status;
}
