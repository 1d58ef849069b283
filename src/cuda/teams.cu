/* teams.cu - the kernel of raffle_sample for few rows, whose blocks are clusters (team.cuh): logits, and probabilities. */
#include "device.cuh"

#include "vec_one.h"

#include "kernel.cuh"

extern const sample_function sample_teamed[2][3] = SAMPLE_KERNELS(teamed);
