/* draft.cu - what raffle_draft keeps: behind the draws, tokens and rows are copied to where raffle_verify will look for them. */
#include "device.cuh"

#include "ptx.cuh"

enum { THREADS = 128, AT_ONCE = 4, KEEPS_PER_SM = 8 }; /* AT_ONCE: loads that a thread does not wait for */

/* Everything the launch needs, passed by value. Strides are in bytes here. */
struct keep_args {
    const char *logits;
    const int32_t *row_index; /* or NULL, as in raffle.h */
    int64_t rows, data_rows, row_stride, row_bytes;
    const int32_t *drawn; /* [rows] */
    int64_t each, step;   /* step: from 0 */
    int32_t *token;       /* [rows, each] */
    char *kept;           /* [rows * each] rows, or NULL */
    int64_t kept_stride;
    uint32_t parts; /* of a row, a block for each */
};

/* Copies pieces [first, end). By all threads. */
template <class piece> __device__ __forceinline__ void pieces_copy(char *to, const char *from, int64_t first, int64_t end) {
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS * AT_ONCE) {
        piece p[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
            if (i + j * THREADS < end) p[j] = __ldcg((const piece *)from + i + j * THREADS);
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
            if (i + j * THREADS < end) ((piece *)to)[i + j * THREADS] = p[j];
    }
}

/* A part of a row whose copy begins as far from a multiple of the pieces' size as the row does. What is before the first whole piece and
 * behind the last is the first part's, two bytes at a time: elements have no fewer. By all threads. */
template <class piece> __device__ __forceinline__ void part_copy(const keep_args &a, char *to, const char *from, uint32_t part) {
    const int64_t size = sizeof(piece), before = (int64_t)((0 - (uintptr_t)to) % sizeof(piece)), head = min(before, a.row_bytes);
    const int64_t count = (a.row_bytes - head) / size;
    pieces_copy<piece>(to + head, from + head, count * part / a.parts, count * (part + 1) / a.parts);
    if (part) return;
    pieces_copy<uint16_t>(to, from, 0, head / 2);
    pieces_copy<uint16_t>(to, from, (head + count * size) / 2, a.row_bytes / 2);
}

static __global__ void __launch_bounds__(THREADS) keep_kernel(const __grid_constant__ keep_args a) {
    previous_wait();
    next_start();
    const int64_t threads = gridDim.x * (int64_t)THREADS;
    for (int64_t r = blockIdx.x * (int64_t)THREADS + threadIdx.x; r < a.rows; r += threads) a.token[r * a.each + a.step] = a.drawn[r];
    if (!a.kept) return;
    const uint32_t row = blockIdx.x / a.parts, part = blockIdx.x % a.parts;
    const int64_t source = a.row_index ? a.row_index[row] : row;
    if (source < 0 || source >= a.data_rows) return; /* it has drawn no token */
    const char *from = a.logits + source * a.row_stride;
    char *to = a.kept + (row * a.each + a.step) * a.kept_stride;
    const uintptr_t apart = (uintptr_t)from ^ (uintptr_t)to;
    if (apart % 16 == 0) part_copy<uint4>(a, to, from, part);
    else if (apart % 4 == 0) part_copy<uint32_t>(a, to, from, part);
    else part_copy<uint16_t>(a, to, from, part);
}

cudaError_t keep_prepare(void) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, keep_kernel);
}

/* Few rows are cut so that all multiprocessors have a part of them, down to a load for each thread. */
cudaError_t keep_launch(const raffle_plan *plan, const call *call) {
    const device_facts &gpu = facts_of(plan);
    const raffle_logits &l = call->logits;
    const raffle_drafted &d = call->drafted;
    const int64_t bytes = plan->desc.dtype == RAFFLE_F32 ? 4 : 2, row_bytes = plan->desc.vocab * bytes;
    const int64_t wanted = (int64_t)gpu.processors * KEEPS_PER_SM / l.rows, most = (row_bytes + THREADS * 16 - 1) / (THREADS * 16);
    const int64_t parts = wanted < 1 ? 1 : wanted < most ? wanted : most;
    const int64_t blocks = d.logits ? l.rows * parts : (l.rows + THREADS - 1) / THREADS;
    const keep_args a = {(const char *)l.data, l.row_index, l.rows, l.data_rows, l.row_stride * bytes, row_bytes, call->result.token,
                         d.each, (int64_t)call->params.draft_step - 1, d.token, (char *)d.logits, d.row_stride * bytes, (uint32_t)parts};
    return kernel_start(keep_kernel, dim3((unsigned)blocks), dim3(THREADS), 0, a, gpu, call->launch.stream);
}
