/* write_probs.cu - the kernels of write.cu for rows of probabilities; apart, because they take long to compile. */
#include "device.cuh"

#include "vec_one.h"

#include "cluster.cuh"

#define KERNELS(type)                                                                                                  \
    {records_kernel<type_probs<type>>,                                                                                 \
     verdict_kernel<type_probs<type>>,                                                                                 \
     {write_kernel<type_probs<type>>, list_kernel<type_probs<type>>},                                                  \
     cluster_kernel<type_probs<type>>}
const write_kernels write_kernels_probs[3] = {KERNELS(type_f32), KERNELS(type_f16), KERNELS(type_bf16)};
