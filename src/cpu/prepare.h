/* prepare.h - rows whose logits are edited: a copy in f32 with bias, bans and penalties in it, or a patch. */
#ifndef RAFFLE_CPU_PREPARE_H
#define RAFFLE_CPU_PREPARE_H

#include "edit.h"
#include "history.h"
#include "plan.h"
#include "rows.h"

/* Workspace of a plan with RAFFLE_PLAN_EXTRA, behind that of every plan:
 *   | row [vocab] | draft_row [vocab] | mask [words] | head, made [groups] | edit [edit_max + 1] |
 *   | entry, said_next [count_max] | said_head [groups] | index [index_max] | joined [history_max + TAIL_MAX] |
 * the last five only with a history_max. */
typedef struct edit_scratch {
    float *row, *draft_row; /* draft_row: raffle_verify edits a target row and a draft's */
    uint32_t *mask;
    int32_t *head;
    uint8_t *made;
    cpu_edit *edit;
    int64_t edit_max;
    int32_t *said_head, *said_next; /* entries of a history by groups: see said_chains */
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

/* How a row penalises what was said. */
typedef struct penalising {
    penalties by;
    int output, prompt; /* RAFFLE_REPETITION_OUTPUT, RAFFLE_COUNT_PROMPT */
} penalising;

/* Penalties that wait until a group is made: the entries of a history, chained by groups. */
typedef struct said_chains {
    penalising by;
    const uint64_t *entry;
    const int32_t *head, *next; /* [groups], [entries], -1 behind the last of a group */
} said_chains;

/* The same where few tokens are edited and few groups will be read: *row gets a patch, and the scratch the largest logits of
 * its groups. Returns 0, and leaves the row as it is, if it is not of that kind. */
int raffle_prepare_patch(const call *call, const cpu_table *table, int dtype, int64_t slot, const edit_scratch *scratch,
                         const cpu_scratch *peaks, cpu_patch *patch, said_chains *chains, cpu_row *row);

/* A slot of a state in host memory. */
history raffle_slot_history(const raffle_state *state, const slot_layout *layout, int64_t slot);

/* Whether a slot is one that calls have left, of a row or request (`what`). */
raffle_status raffle_check_history(const raffle_state *state, const slot_layout *layout, int64_t slot, int64_t row, const char *what,
                                   raffle_error *error);
/* The same for those of the call's part whose requests look back: slots of others may be changing. */
raffle_status raffle_check_histories(const call *call, const char *what, raffle_error *error);
/* All that a call's rows have to be, by memory of the host: raffle_check_call_rows, and their histories. */
raffle_status raffle_check_cpu_rows(const call *call, raffle_error *error);

#endif
