/* prepare.h - rows whose logits are edited: a copy in f32 with bias, bans and penalties in it. */
#ifndef RAFFLE_CPU_PREPARE_H
#define RAFFLE_CPU_PREPARE_H

#include "history.h"
#include "plan.h"
#include "rows.h"

/* Workspace of a plan with RAFFLE_PLAN_EXTRA, behind that of every plan:
 *   | row [vocab] | draft_row [vocab] | mask [words] | entry [count_max] | index [index_max] | joined [history_max + TAIL_MAX] |
 * the last three only with a history_max. */
typedef struct edit_scratch {
    float *row, *draft_row; /* draft_row: raffle_verify edits a target row and a draft's */
    uint32_t *mask;
    uint64_t *entry; /* a table of counts for one row: see history.h */
    int32_t *index;
    int32_t *joined; /* a history with a tail */
    int64_t count_max;
} edit_scratch;

/* memory NULL: only the size. */
size_t edit_carve(edit_scratch *scratch, const raffle_plan_desc *desc, void *memory);

/* Tokens that count as said after those of the state: drafts that come before a row's own. */
typedef struct tail {
    const int32_t *token;
    int32_t count;
} tail;
static const tail no_tail = {NULL, 0};

/* Whether a row's logits are edited. */
int raffle_edits(const raffle_extra *extra);

/* Makes *row the edited row: f32, without a mask. For rows with edits. */
void raffle_prepare(const call *call, const cpu_table *table, int dtype, int64_t slot, tail tail, const edit_scratch *scratch,
                    cpu_row *row);

/* A slot of a state in host memory. */
history raffle_slot_history(const raffle_state *state, const slot_layout *layout, int64_t slot);

#endif
