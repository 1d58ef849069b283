/* verify.cu - the kernels of raffle_verify for each dtype, and their launch. */
#define BITS_GIVEN 1

#include "device.cuh"

#include "vec_one.h"

#include "verify_left.cuh"

template <class type, class draft> static cudaError_t launch(verify_args *a, const device_facts &gpu, cudaStream_t stream) {
    return verify_start<judged<type>, judged<draft>, type, draft>(a, a->groups, gpu, stream);
}

cudaError_t verify_launch(verify_args *a, int dtype, const device_facts &gpu, cudaStream_t stream) {
    typedef type_probs<type_f32> probs;
    if (dtype == RAFFLE_F32) return a->draft_probs ? launch<type_f32, probs>(a, gpu, stream) : launch<type_f32, type_f32>(a, gpu, stream);
    if (dtype == RAFFLE_F16) return a->draft_probs ? launch<type_f16, probs>(a, gpu, stream) : launch<type_f16, type_f16>(a, gpu, stream);
    return a->draft_probs ? launch<type_bf16, probs>(a, gpu, stream) : launch<type_bf16, type_bf16>(a, gpu, stream);
}
