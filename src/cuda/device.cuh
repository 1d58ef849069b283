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

enum { CLUSTER_SHARED = 222 << 10 }; /* bytes of dynamic shared memory that a block of cluster_kernel may need */

/* What a plan knows of its device; a plan's state begins with it. */
struct device_facts {
    int device, processors, major;
    size_t shared; /* bytes of shared memory of a multiprocessor */
    bool clusters; /* cluster_kernel can be used, and rows can have teams (team.cuh) */
    bool early;    /* a kernel can be launched before the one it depends on has ended (ptx.cuh), in captured graphs, too */
};
static inline const device_facts &facts_of(const raffle_plan *plan) { return *(const device_facts *)plan->state; }

static inline cudaLaunchAttribute launch_early() {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    return early;
}

/* Bytes of shared memory for a block, of which a multiprocessor is to take `most` at once and no more. Else blocks that start while those
 * of the kernel before end all go where these end first, and others have nothing to do. */
static inline size_t shared_spread(const device_facts &gpu, int64_t most) { return gpu.shared / (size_t)(most + 1) + 1; }

/* Launches a kernel that calls previous_wait, while the one before it in the stream ends, where that can be. `cluster`: blocks along the
 * grid's first side that are one. */
template <class args>
static cudaError_t kernel_start(void (*kernel)(args), dim3 grid, dim3 block, size_t shared, const args &a, const device_facts &gpu,
                                cudaStream_t stream, unsigned cluster = 1) {
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    if (gpu.early) attributes[config.numAttrs++] = launch_early();
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {cluster, 1, 1};
    }
    return cudaLaunchKernelEx(&config, kernel, a);
}

/* Whether rows may be filtered or edited, as far as the host knows. */
static inline bool params_filter(const raffle_params *p) { return p->top_k || p->top_p || p->min_p || p->extra; }

/* raffle_softmax and raffle_mask, in write.cu: what they need of a workspace, at its beginning, and the call of rows without filters.
 * Behind it they use the records of raffle_sample: | mass [rows, groups] u64 | peak [rows, groups * PIECES] f32 |
 * write_decided: the rest of a call with filters or a raffle_extra, when its decide_kernel has been launched. */
size_t write_workspace(const raffle_plan_desc *desc);
cudaError_t write_prepare(const raffle_plan_desc *desc); /* where there are clusters */
raffle_status write_call(const raffle_plan *plan, const call *call, raffle_error *error);
cudaError_t write_decided(const raffle_plan *plan, const call *call);

/* What raffle_draft does behind the draws, in draft.cu; keep_prepare: before a first call that may be captured. */
cudaError_t keep_prepare(void);
cudaError_t keep_launch(const raffle_plan *plan, const call *call);

/* The raffle_state functions, in state.cu. */
raffle_status slots_change(const state_call *call, raffle_error *error);

#endif
