/* verify_extra.cu - the kernels of raffle_verify for calls with a raffle_extra or a raffle_report: rows are edited, and histories go
 * on with drafts. */
#define CUT_MORE 1
#define SAID_TAIL 1
#define BITS_GIVEN 1

#include "device.cuh"

#include "vec_one.h"

#include "verify_left.cuh"

/* Kernels of two files must not have one name, so the second is one of requested<type>, too. */
template <class stored> static cudaError_t launch(verify_args *a, const device_facts &gpu, cudaStream_t stream) {
    typedef type_probs<type_f32> probs;
    typedef requested<stored> type;
    const bool prepares = a->target.extra || a->draft.extra || a->target.allow || a->draft.allow; /* parts must fit into edit_space */
    const int32_t most = prepares ? (int32_t)EDIT_GROUPS : a->groups;
    if (a->draft_probs) return verify_start<type, judged<probs>, type, probs>(a, most, gpu, stream);
    return verify_start<type, judged<probs>, type, type>(a, most, gpu, stream);
}

cudaError_t verify_launch_requested(verify_args *a, int dtype, const device_facts &gpu, cudaStream_t stream) {
    if (dtype == RAFFLE_F32) return launch<type_f32>(a, gpu, stream);
    if (dtype == RAFFLE_F16) return launch<type_f16>(a, gpu, stream);
    return launch<type_bf16>(a, gpu, stream);
}
