/* extra.cu - the kernels of raffle_sample for calls with a raffle_extra or a raffle_report. */
#define CUT_MORE 1

#include "device.cuh"

#include "vec_one.h"

#include "kernel.cuh"

extern const sample_function sample_requested[3] = {sample_kernel<requested<type_f32>>, sample_kernel<requested<type_f16>>,
                                                    sample_kernel<requested<type_bf16>>};
