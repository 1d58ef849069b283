/* run.h - from a checked call to rows. */
#ifndef RAFFLE_CPU_RUN_H
#define RAFFLE_CPU_RUN_H

#include "plan.h"
#include "prepare.h"
#include "rows.h"

/* Row `row` of a call, its parameters looked up and defaults filled in. */
cpu_row raffle_row_of(const raffle_plan *plan, const call *call, int64_t row);

/* Edits the row's logits if its extra asks for it, after a history that goes on with `tail`. Returns the dtype that the row
 * then has. */
int raffle_row_prepare(const raffle_plan *plan, const call *call, int64_t slot, tail tail, const edit_scratch *edits, cpu_row *row);

/* The same row without filters. */
cpu_row raffle_row_unfiltered(const cpu_row *row);

/* Before a row that is to be reported is sampled: sets weigh_at, so that one reading does for both. `raw` is the row before
 * it was edited. */
void raffle_report_expect(const raffle_report *report, const cpu_row *raw, cpu_row *row);

/* Fills in what the report asks of entry i, the row that was sampled last, as `drawn`. Uses the scratch anew. */
void raffle_row_report(const raffle_plan *plan, const raffle_report *report, int64_t i, const cpu_row *raw, const cpu_row *row,
                       int dtype, const answer *drawn, const cpu_scratch *scratch);

/* What the report tells of entry i where no token was drawn. */
void raffle_report_nothing(const raffle_plan *plan, const raffle_report *report, int64_t i);

/* The parts of a call's workspace. */
void raffle_workspace(const raffle_plan *plan, void *memory, cpu_scratch *scratch, edit_scratch *edits);

raffle_status raffle_cpu_change(const state_call *call, raffle_error *error);

raffle_status raffle_cpu_write(const raffle_plan *plan, const call *call, raffle_error *error);

/* The same with an entry of `params` of the caller's choice. seed and position may be NULL. */
cpu_row raffle_row_make(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params, int64_t row,
                        int64_t slot);

raffle_status raffle_cpu_verify(const raffle_plan *plan, const verify_call *call, raffle_error *error);

raffle_status raffle_cpu_explain(const raffle_plan *plan, const call *call, int64_t row, raffle_explanation *out,
                                 raffle_error *error);

#endif
