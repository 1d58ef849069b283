/* write_probs.cu - the kernels of write.cu and of decide.cuh for rows of probabilities; apart, because they take long to compile. */
#include "device.cuh"

#include "vec_one.h"

#include "cluster.cuh"
#include "decide.cuh"

#define KERNELS(type)                                                                                                  \
    {records_kernel<type_probs<type>>, {write_kernel<type_probs<type>>, list_kernel<type_probs<type>>}, cluster_kernel<type_probs<type>>}
const write_kernels write_kernels_probs[3] = {KERNELS(type_f32), KERNELS(type_f16), KERNELS(type_bf16)};

#define DECIDE(type) decide_kernel<indexed<type_probs<type>>>
extern const sample_function decide_probs[3] = {DECIDE(type_f32), DECIDE(type_f16), DECIDE(type_bf16)};
