/* rows.h - one row in, one token out: what the CPU kernels of every instruction set offer. */
#ifndef RAFFLE_CPU_ROWS_H
#define RAFFLE_CPU_ROWS_H

#include <stdint.h>

#include "plan.h"
#include "row_types.h"

struct cpu_patch;

typedef struct cpu_row {
    const char *logits; /* [vocab] of the table's dtype, any alignment */
    const uint32_t *allow; /* [(vocab + 31) / 32] or NULL */
    row_params params;
    const struct cpu_patch *patch; /* NULL, or what the row is made of, group by group, as groups are looked at */
    float weigh_at; /* above 0: a temperature at which the row is also weighed when it is first read, if it is read as it came */
    int only_token; /* 1: nobody asks what the row weighs or keeps, nor draws from it again */
    int only_kept;  /* 1: nobody asks for the token */
} cpu_row;

/* A token with another logit than the caller's; the edits of a group are chained by falling ids, the last one ends with -1. */
typedef struct cpu_edit {
    float x;
    int32_t id, next;
} cpu_edit;

/* An edited row of which only those groups are made that some loop reads. Edits make no NaN, and the caller's row has none. */
typedef struct cpu_patch {
    cpu_row from;     /* the caller's row, */
    int dtype;        /* and its type */
    float *to;        /* [vocab] the edited row: its groups, where */
    uint8_t *made;    /* [groups] says so */
    float *peak;      /* [groups] the scratch's: largest logits where a group is made, elsewhere what is not less */
    int32_t *head;    /* [groups] the first edit of each group, or -1 */
    cpu_edit *edit;   /* [room + 1], the last for those that find no room */
    int64_t count, room;
    /* Makes group g; and NULL, or what that calls at its end: penalties. 1: a token was edited that may have been the largest. */
    int (*make)(const struct cpu_patch *patch, int64_t g);
    int (*finish)(const struct cpu_patch *patch, int64_t g);
    const struct said_chains *said; /* for finish */
} cpu_patch;

enum { PEAK_PAD = RAFFLE_WORKSPACE_ALIGN / 4 }; /* the blocks of a workspace are padded to this many floats */

enum { CPU_PARTS = 4 }; /* of a group */

enum { CPU_GROUP = 256 }; /* tokens of a group: GROUP of src/math/weigh.h, for those who do not include it */

/* Workspace of one call, cut out by scratch_carve:
 *   | peak [groups] | part [4 groups] | exponent, low, size [groups] | too_exponent, too_low, too_size [groups] | mass [groups] |
 *   | list_t [list_max] | list_x [list_max] | list_id [list_max] |
 *   | draft_peak [groups] | left_t [groups] | left_s [groups] | draft_exponent, draft_low, draft_size [groups] | */
typedef struct cpu_scratch {
    float *peak;     /* largest logit of each group, and -inf up to a multiple of PEAK_PAD */
    float *part;     /* largest logit of each quarter of a group, where a row was only read, and not weighed, at first */
    int32_t *exponent; /* of each group's reference, and the sum of its weights in two parts (vsum), where a row was */
    uint32_t *low;     /* weighed when it was first read */
    float *size;       /* or without the others, the sums of estimates of a row that was estimated (row_estimate.h) */
    int32_t *too_exponent; /* the same for a row that was weighed at a second temperature, too, or of the stretch that is drawn */
    uint32_t *too_low;
    float *too_size;
    uint64_t *mass;  /* weight or tickets of each group */
    int64_t groups;
    uint64_t *list_t; /* a list of tokens, ascending by id: tickets, logits, ids */
    float *list_x;
    int32_t *list_id;
    int64_t list_max;
    float *draft_peak, *draft_size; /* raffle_verify: the draft row's, while the others are the target row's, */
    int32_t *draft_exponent;
    uint32_t *draft_low;
    uint64_t *left_t, *left_s; /* and of the tokens of each group that have chances left, the sums of both rows' tickets */
} cpu_scratch;

/* The largest of a row's maxima, which end with -inf as said above: the row's largest logit. */
static inline float peaks_largest(const float *peak, int64_t groups) {
    float lane[PEAK_PAD], best = peak[0];
    for (int n = 0; n < PEAK_PAD; ++n) lane[n] = peak[n];
    for (int64_t g = PEAK_PAD; g < groups; g += PEAK_PAD)
        for (int n = 0; n < PEAK_PAD; ++n) lane[n] = peak[g + n] > lane[n] ? peak[g + n] : lane[n];
    for (int n = 0; n < PEAK_PAD; ++n) best = lane[n] > best ? lane[n] : best;
    return best;
}

/* Bytes of workspace used so far, and the next block of `count` elements behind them. memory NULL: only the size. */
void *raffle_carve(char *memory, size_t *used, int64_t count, size_t element);

size_t scratch_carve(cpu_scratch *scratch, int64_t vocab, void *memory); /* memory NULL: only the size */

typedef answer (*cpu_row_function)(const cpu_row *row, const cpu_scratch *scratch);

/* Another draw from the row that was sampled last, with the same scratch, whose answer is given; only seed and position
 * are others, and the answer is neither greedy nor empty. *weighed is 0 before the first such draw. */
typedef int32_t (*cpu_draw_function)(const cpu_row *row, const cpu_scratch *scratch, const answer *answer, int *weighed);

/* Where a row's part of a raffle_output goes. */
typedef struct cpu_target {
    char *data;     /* [vocab] of `dtype`, or NULL */
    int32_t dtype;  /* raffle_dtype */
    output_form form;
    uint32_t *kept; /* [(vocab + 31) / 32] or NULL */
    int32_t *list;  /* [list_max] or NULL */
    int64_t list_max;
    int32_t *count; /* or NULL */
} cpu_target;

/* Writes what the answer says of a row that was sampled last, with the same scratch. */
typedef void (*cpu_write_function)(const cpu_row *row, const cpu_scratch *scratch, const answer *answer, const cpu_target *target);

/* The law of a row that was sampled: which tokens hold how many tickets. verify.h has what is behind it. */
typedef struct cpu_law cpu_law;
typedef struct cpu_pair cpu_pair;

/* Writes the tickets of group g's tokens to t[CPU_GROUP] and returns their sum; 0: t was not written, there are none. */
typedef uint64_t (*cpu_tickets_function)(const cpu_law *law, int64_t g, uint64_t *t);

/* Softmax of a row that is_softmax, or, where there is no mask, its logarithm, to[vocab]; returns its flags. */
typedef uint32_t (*cpu_softmax_function)(const cpu_row *row, const cpu_scratch *scratch, float *to);

/* One table per instruction set, indexed by raffle_dtype. */
typedef struct cpu_table {
    cpu_row_function sample[3];
    cpu_draw_function draw[3];
    cpu_write_function write[3];
    cpu_softmax_function softmax[3], log_softmax[3];
    int (*is_softmax)(const row_params *p); /* logits without filters, at a temperature that is neither greedy nor flat */
    cpu_tickets_function tickets[3];
    void (*left_over)(const cpu_pair *pair, uint64_t *left_t, uint64_t *left_s);
    void (*copy[3])(const cpu_row *row, float *to); /* to [vocab]: the logits, masked ones -inf */
    /* For rows with a patch: the first reading of the row before it is edited; which rows read few groups after it; how a group
     * is made, and how all are that may have a logit of at least `least`. */
    float (*scan[3])(const cpu_row *row, const cpu_scratch *scratch, int *nan);
    int (*reads_few)(const cpu_row *row);
    int (*make[3])(const cpu_patch *patch, int64_t g);
    void (*make_from)(const cpu_row *row, const cpu_scratch *scratch, float least);
    /* Of a row that was sampled last, with the same scratch. `best` is its largest logit. */
    uint64_t (*weighed)(const cpu_row *row, const cpu_scratch *scratch, float temperature, float best); /* its mass; 0: unknown */
    void (*group)(const cpu_row *row, int dtype, int64_t g, float *x); /* x [CPU_GROUP]: masked ones and NaN -inf */
    int (*group_from)(const cpu_row *row, int dtype, int64_t g, float least, float *x, int32_t *id); /* those >= least; their number */
    float (*entropy)(const cpu_row *row, int dtype, const cpu_scratch *scratch, const answer *answer); /* not for an empty row */
} cpu_table;

extern const cpu_table raffle_table_one, raffle_table_avx2, raffle_table_avx512, raffle_table_neon;

#endif
