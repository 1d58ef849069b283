/* teams.cu - the kernel of raffle_sample for few rows, whose blocks are clusters (team.cuh): logits, and probabilities. */
#include "device.cuh"

#include "vec_one.h"

#include "kernel.cuh"

#define KERNELS(of) {sample_kernel<teamed<of(f32)>>, sample_kernel<teamed<of(f16)>>, sample_kernel<teamed<of(bf16)>>}
#define LOGITS(dtype) type_##dtype
#define PROBS(dtype) type_probs<type_##dtype>
extern const sample_function sample_teamed[2][3] = {KERNELS(LOGITS), KERNELS(PROBS)};
