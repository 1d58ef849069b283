/* write_decided.cu - raffle_softmax and raffle_mask of logits with filters or a raffle_extra. The first launch prepares, reads and cuts
 * each row by the loops of raffle_sample, and leaves a verdict where that leaves a token; the kernels of write.cuh then write the row
 * out of the logits and of what was edited. Groups that keep nothing are not read again: their maxima say so. */
#define CUT_MORE 1

#include "device.cuh"

#include "vec_one.h"

#include "decide.cuh"

extern const size_t verdict_decided_bytes = sizeof(verdict);

#define TYPES(kernel) kernel(type_f32), kernel(type_f16), kernel(type_bf16)
#define DECIDE(type) decide_kernel<requested<type>>
#define KERNELS(type) {write_kernel<requested<type>>, list_kernel<requested<type>>}
extern const sample_function decide_kernels[3] = {TYPES(DECIDE)};
extern const row_kernels row_kernels_decided[3] = {TYPES(KERNELS)};
