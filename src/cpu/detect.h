/* detect.h - the kernels this machine can run. */
#ifndef RAFFLE_CPU_DETECT_H
#define RAFFLE_CPU_DETECT_H

#include "rows.h"

/* The table of an instruction set, or NULL if this build or machine has it not. RAFFLE_ISA_BEST: the best. */
const cpu_table *raffle_table_of(raffle_isa isa);
raffle_isa raffle_isa_best(void);

#endif
