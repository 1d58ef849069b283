/* indexed.cu - the kernel of raffle_sample for rows that several results are drawn from, and for rows of probabilities. */
#include "device.cuh"

#include "vec_one.h"

#include "kernel.cuh"

#define KERNELS(of) {sample_kernel<indexed<of(f32)>>, sample_kernel<indexed<of(f16)>>, sample_kernel<indexed<of(bf16)>>}
#define LOGITS(dtype) type_##dtype
#define PROBS(dtype) type_probs<type_##dtype>
extern const sample_function sample_indexed[2][3] = {KERNELS(LOGITS), KERNELS(PROBS)};
