/* indexed.cu - the kernel of raffle_sample for rows that several results are drawn from, and for rows of probabilities. */
#include "device.cuh"

#include "vec_one.h"

#include "kernel.cuh"

extern const sample_function sample_indexed[2][3] = SAMPLE_KERNELS(indexed);
