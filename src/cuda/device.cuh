/* device.cuh - what host code of this backend shares: errors, and the device that a call runs on. */
#ifndef RAFFLE_CUDA_DEVICE_CUH
#define RAFFLE_CUDA_DEVICE_CUH

#include <cuda_runtime.h>

extern "C" {
#include "args.h"
}

static inline raffle_status device_fail(raffle_error *error, const char *doing, cudaError_t code) {
    cudaGetLastError(); /* the status tells it; the caller's next call should not */
    return raffle_fail(error, RAFFLE_E_DEVICE, -1, "%s: %s", doing, cudaGetErrorString(code));
}

/* How many GPUs there are, or a sentence on why none can be used; in run.cu. */
cudaError_t device_count(int *count, char *why, size_t bytes);

/* Makes a device current for as long as it lives, then puts the caller's back. */
struct device_guard {
    int before;
    cudaError_t code;
    explicit device_guard(int device) : before(-1) {
        code = cudaGetDevice(&before);
        if (code == cudaSuccess && before != device) code = cudaSetDevice(device);
        else before = -1;
    }
    ~device_guard() {
        if (before >= 0) cudaSetDevice(before);
    }
};

/* What a plan knows of its device; a plan's state begins with it. */
struct device_facts {
    int device, processors, major;
    bool clusters; /* cluster_kernel can be used */
    bool early;    /* a kernel can be launched before the one it depends on has ended (ptx.cuh), in captured graphs, too */
};
static inline const device_facts &facts_of(const raffle_plan *plan) { return *(const device_facts *)plan->state; }

static inline cudaLaunchAttribute launch_early() {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    return early;
}

/* raffle_softmax and raffle_mask, and raffle_sample of probabilities or of rows by index, in write.cu: what they need of a workspace, at
 * its beginning, and the call. Behind it they use the records of raffle_sample: | mass [rows, groups] u64 | peak [rows,
 * groups * PIECES] f32 | write_decided: the rest of a call with a raffle_extra, when decide_requested has been launched. */
size_t write_workspace(const raffle_plan_desc *desc);
cudaError_t write_prepare(const raffle_plan_desc *desc); /* where there are clusters */
raffle_status write_call(const raffle_plan *plan, const call *call, raffle_error *error);
cudaError_t write_decided(const raffle_plan *plan, const call *call);

/* The raffle_state functions, in state.cu. */
raffle_status slots_change(const state_call *call, raffle_error *error);

#endif
