/* row_log.h - the log-probability of a token that is kept: one definition for rows that are written and for single tokens
 * that are told. Needs a vec_*.h before it. */
#ifndef RAFFLE_CPU_ROW_LOG_H
#define RAFFLE_CPU_ROW_LOG_H

#include "probability.h"

/* `row` is the reference of the row's largest logit, `line` that of what is kept. */
RAFFLE_FN vf v_log_kept(vf x, const ref *row, const log_line *line) {
    if (row->kind != REF_STEP) return v_log(x, line);
    return v_select(v_ge(x, v_set(row->base)), v_set(0.0f - line->level), v_set(MINUS_INF));
}

#endif
