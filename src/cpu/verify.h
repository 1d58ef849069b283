/* verify.h - what raffle_verify knows of a row, shared by verify.c and the kernels of every instruction set. Needs a
 * vec_*.h before it. */
#ifndef RAFFLE_CPU_VERIFY_H
#define RAFFLE_CPU_VERIFY_H

#include "rows.h"

#include "accept.h"
#include "cut_types.h"

/* The law of a row that was sampled, or of tokens that are known and nothing else. */
struct cpu_law {
    cpu_tickets_function tickets;
    uint64_t mass; /* the sum of all tickets */
    /* a row, as it was sampled */
    const cpu_row *row;
    const float *peak; /* [groups] */
    weighing weighing;
    cut cut;
    int whole; /* there is no cut: the draw goes by groups, so what a group's range holds is shared out among its tokens */
    /* tokens, one ticket each: those of token[count] whose parent is `node`; parent NULL: all */
    const int32_t *token, *parent;
    int64_t count;
    int32_t node;
};

/* Two rows at one position, and how their tickets compare. */
struct cpu_pair {
    cpu_law target, draft;
    odds odds;
    int64_t groups;
};

#endif
