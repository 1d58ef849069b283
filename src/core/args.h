/* args.h - everything a caller hands in is checked here, once, before any work. */
#ifndef RAFFLE_CORE_ARGS_H
#define RAFFLE_CORE_ARGS_H

#include "plan.h"

/* Sets *error (may be NULL) to a sentence and returns `status`. row -1: none. */
raffle_status raffle_fail(raffle_error *error, raffle_status status, int64_t row, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

raffle_status raffle_check_desc(const raffle_plan_desc *given, raffle_plan_desc *desc, raffle_error *error);

/* The caller's structs as one call. `result` may be NULL where the call has none; `needs` is 0 where nothing is drawn. */
enum { NEEDS_SEED = 1 };
raffle_status raffle_check_call(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                const raffle_result *result, const raffle_launch *launch, int needs,
                                call *made, raffle_error *error);

/* The output of a call that raffle_check_call has completed. */
raffle_status raffle_check_output(const raffle_plan *plan, const raffle_output *given, output_form form, call *made,
                                  raffle_error *error);

/* Slots and per-row values, where the host can read them. */
raffle_status raffle_check_rows(const call *call, raffle_error *error);

raffle_status raffle_check_explanation(const raffle_explanation *given, raffle_error *error);

/* Entry of a row in the arrays of raffle_params. */
static inline int64_t slot_of(const call *call, int64_t row) { return call->params.slot ? call->params.slot[row] : row; }

#endif
