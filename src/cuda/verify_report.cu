/* verify_report.cu - raffle_report for raffle_verify: when the walks are over, a block for each token that they emitted, or did not.
 * The first kernel has left what the report of its row needs, as that of raffle_sample does. */
#define CUT_MORE 1
#define SAID_TAIL 1
#define BITS_GIVEN 1

#include "device.cuh"

#include "vec_one.h"

#include "verify_rows.cuh"

/* Where entry `index` of the report finds its row, among all target rows. False if there is nothing to tell. */
__device__ __forceinline__ bool entry_read(const verify_args &a, int64_t index, int64_t *row, int32_t *token, bool *spent) {
    const int64_t r = request_of(a, index, 1);
    int64_t first, count;
    if (!request_range(a, r, &first, &count)) return false;
    const int64_t n = index - (first + r);
    if (n < 0 || n > count) return false;
    const told_entry told = a.told[index];
    *row = first + r + told.row;
    *token = told.token;
    *spent = a.method == RAFFLE_BLOCK || n == a.accepted[r]; /* masses of groups may have become what is left over */
    return told.row >= 0 && a.law[*row].valid;
}

/* What sampling the row gave, out of its law; `token` takes the place of what was drawn. */
__device__ __forceinline__ answer answer_of(const row_law &law, int32_t token) {
    answer told = {};
    told.token = token;
    told.row_flags = law.empty ? RULE_ROW_EMPTY : 0;
    told.greedy = law.greedy;
    told.threshold = law.kept.low;
    told.tie_last = law.greedy ? law.token : law.kept.tie_last;
    told.draw_tickets = law.mass;
    told.capped = law.kept.capped;
    told.high = law.kept.high;
    told.whole = law.whole;
    return told;
}

template <class type>
__global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM) verify_report_kernel(const __grid_constant__ verify_args a) {
    __shared__ kernel_work<type> k;
    __shared__ view v;
    const int64_t index = blockIdx.x;
    int64_t row;
    int32_t token;
    bool spent;
    if (!entry_read(a, index, &row, &token, &spent)) return report_only(a.report, index, a.vocab, RULE_NO_TOKEN, RULE_NO_TOKEN);
    if (threadIdx.x < WARP) job_read(a, row, row_make<type>(a, row), &k);
    if (threadIdx.x == 0) {
        k.told = answer_of(a.law[row], token);
        if (spent && !k.also && !k.apart && !k.told.capped) k.shown.weights = false;
    }
    __syncthreads();
    report_tell(&k, &v, index);
}

cudaError_t verify_report_launch(verify_args *a, int dtype, cudaStream_t stream) {
    typedef void (*report_function)(verify_args);
    static const report_function kernels[] = {verify_report_kernel<requested<type_f32>>, verify_report_kernel<requested<type_f16>>,
                                              verify_report_kernel<requested<type_bf16>>};
    void *parameters[] = {a};
    return cudaLaunchKernel(kernels[dtype], dim3((unsigned)a->rows), dim3(BLOCK_THREADS), parameters, 0, stream);
}
