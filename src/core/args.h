/* args.h - everything a caller hands in is checked here, once, before any work. */
#ifndef RAFFLE_CORE_ARGS_H
#define RAFFLE_CORE_ARGS_H

#include "plan.h"

#include <stddef.h>

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

/* The strides of kept sets and their lists, which they complete. `name` is what the caller calls the stride. */
raffle_status raffle_check_kept(int64_t *stride, const char *name, int64_t rows, int64_t vocab, raffle_error *error);
raffle_status raffle_check_kept_list(const int32_t *list, int64_t *stride, const char *name, int64_t rows, raffle_error *error);

/* What raffle_draft keeps, and where. */
raffle_status raffle_check_drafted(const raffle_plan *plan, const raffle_drafted *given, call *made, raffle_error *error);

/* A caller's struct by its name, and the checks of one struct, for calls that have more of them. They complete strides
 * and defaults. `entries` rows or requests look up slots; there are `rows` lines in allow. `name` is what the caller
 * calls the struct. */
raffle_status raffle_take(void *to, size_t known, size_t least, const void *from, const char *name, raffle_error *error);
#define TAKE_SINCE(least, to, from, type) raffle_take(to, sizeof(type), least, from, #type, error)
#define TAKE(to, from, type) TAKE_SINCE(sizeof(type), to, from, type)
/* Those that have grown since the first release. */
#define TAKE_LOGITS(to, from) TAKE_SINCE(offsetof(raffle_logits, row_index), to, from, raffle_logits)
#define TAKE_TOKENS(to, from) TAKE_SINCE(offsetof(raffle_tokens, row_flags), to, from, raffle_tokens)
#define TAKE_PARAMS(to, from) TAKE_SINCE(offsetof(raffle_params, draft_step), to, from, raffle_params)

raffle_status raffle_check_logits(const raffle_plan *plan, raffle_logits *logits, const char *name, raffle_error *error);
raffle_status raffle_check_params(const raffle_plan *plan, raffle_params *params, int64_t entries, int64_t rows,
                                  const char *name, raffle_error *error);
raffle_status raffle_check_stride(int64_t rows, int64_t stride, const char *field, raffle_error *error);
raffle_status raffle_check_launch(const raffle_plan *plan, call *call, int64_t rows, raffle_error *error);

/* Row indices, slots and values of each row of a call, where the host can read them. */
raffle_status raffle_check_call_rows(const call *call, raffle_error *error);

/* Slots and values of each row or request (`what`). */
raffle_status raffle_check_rows(const raffle_params *params, int64_t rows, const char *what, raffle_error *error);

/* The structs of raffle_verify as one call, and what the host can read of the drafts. */
raffle_status raffle_check_verify(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                  const raffle_drafts *drafts, const raffle_verified *verified,
                                  const raffle_launch *launch, verify_call *made, raffle_error *error);
/* The drafts' parameters as a call of their own. */
call raffle_draft_call(const verify_call *call);
raffle_status raffle_check_drafts(const raffle_plan *plan, const verify_call *call, raffle_error *error);

/* One row's or request's (`what`) raffle_extra; `slot` is in range. */
raffle_status raffle_check_extra(const call *call, int64_t row, int64_t slot, const char *what, raffle_error *error);

/* What later versions added to the structs of a call: extra, state, report. */
raffle_status raffle_check_additions(const raffle_plan *plan, call *made, raffle_error *error);

raffle_status raffle_check_state(const raffle_state *given, raffle_state *state, slot_layout *layout, raffle_error *error);

raffle_status raffle_check_explanation(const raffle_explanation *given, raffle_error *error);

/* What a slot asks for beyond the arrays of raffle_params, or NULL. */
static inline const raffle_extra *extra_of(const raffle_params *params, int64_t slot) {
    return params->extra ? params->extra + slot : NULL;
}

/* Entry of a row in the arrays of raffle_params. */
static inline int64_t slot_of(const raffle_params *params, int64_t row) { return params->slot ? params->slot[row] : row; }

/* The first draft of request r; also one past the last request's last. */
static inline int64_t draft_first(const raffle_drafts *d, int64_t r) { return d->first ? d->first[r] : r * d->each; }

#endif
