/* write.cu - raffle_softmax and raffle_mask on a GPU: which kernels, and their launches. */
#include "device.cuh"

#include "vec_one.h"

#include "cluster.cuh"

enum { GRID_ROWS = 32768 }; /* rows along the second side of a grid */

#define KERNELS(type) {records_kernel<type>, {write_kernel<type>, list_kernel<type>}, cluster_kernel<type>}
const write_kernels write_kernels_logits[3] = {KERNELS(type_f32), KERNELS(type_f16), KERNELS(type_bf16)};

static const write_kernels *kernels_of(const raffle_plan_desc *desc) {
    return (desc->input == RAFFLE_PROBS ? write_kernels_probs : write_kernels_logits) + desc->dtype;
}

static size_t padded(size_t bytes) { return (bytes + RAFFLE_WORKSPACE_ALIGN - 1) / RAFFLE_WORKSPACE_ALIGN * RAFFLE_WORKSPACE_ALIGN; }

size_t write_workspace(const raffle_plan_desc *desc) {
    return padded((size_t)desc->rows_max * (desc->input == RAFFLE_PROBS ? sizeof(verdict) : verdict_decided_bytes));
}

static void args_make(write_args *a, const raffle_plan *plan, const call *call) {
    const raffle_params *p = &call->params;
    const raffle_output *o = &call->output;
    a->logits = (const char *)call->logits.data;
    a->rows = call->logits.rows;
    a->row_stride = call->logits.row_stride;
    a->vocab = plan->desc.vocab;
    a->slots = p->slots;
    a->data_rows = call->logits.data_rows;
    a->row_index = call->logits.row_index;
    a->slot = p->slot;
    a->temperature = p->temperature;
    a->top_p = p->top_p;
    a->min_p = p->min_p;
    a->allow = p->allow;
    a->allow_stride = p->allow_stride;
    a->groups = (int32_t)((a->vocab + GROUP - 1) / GROUP);
    a->unset = plan->desc.input == RAFFLE_PROBS ? LINEAR_TEMPERATURE : 1.0f;
    a->data = (char *)o->data;
    a->data_stride = o->row_stride;
    a->dtype = o->dtype;
    a->form = (int32_t)call->form;
    a->row_flags = o->row_flags;
    a->kept = o->kept;
    a->kept_stride = o->kept_stride;
    a->list = o->kept_list;
    a->count = o->kept_count;
    a->list_stride = o->kept_list_stride;
    const int64_t bytes = plan->desc.dtype == RAFFLE_F32 ? 4 : 2;
    const bool one = a->rows == 1 && !a->row_index; /* row_stride does not matter */
    a->readable = !a->allow && a->vocab * bytes % 16 == 0 && (uintptr_t)a->logits % 16 == 0;
    if (!one && a->row_stride * bytes % 16) a->readable = 0;
    a->filters = params_filter(p);
    char *memory = (char *)call->launch.workspace;
    a->verdicts = (verdict *)memory;
    a->mass = (uint64_t *)(memory + write_workspace(&plan->desc));
    a->peak = (float *)((char *)a->mass + padded((size_t)plan->desc.rows_max * (size_t)a->groups * sizeof *a->mass));
}

static cudaError_t launch(write_function kernel, dim3 grid, const write_args &a, const device_facts &gpu, cudaStream_t stream) {
    return kernel_start(kernel, grid, dim3(BLOCK_THREADS), 0, a, gpu, stream);
}

/* ---- one launch, where a cluster's shared memory holds a row ------------------------------------------------ */

cudaError_t write_prepare(const raffle_plan_desc *desc) {
    const cluster_function kernel = kernels_of(desc)->cluster;
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, CLUSTER_SHARED);
    if (code == cudaSuccess) code = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return code;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts_of(int64_t all, int64_t each) { return (all + each - 1) / each; }

/* A launch with a cluster for each row. */
struct cluster_launch {
    cudaLaunchAttribute attribute[2];
    cudaLaunchConfig_t config;
    int per; /* units of a warp */
};

/* Blocks of four warps with `wanted` units each, or as many blocks as there may be, and more warps. False if a row does not fit. */
static bool cluster_make(cluster_launch *l, const write_args &a, int64_t wanted, const device_facts &gpu, cudaStream_t stream) {
    enum { FEW_WARPS = 4 };
    const int64_t units = parts_of(a.groups, UNIT), most = gpu.major == 9 ? CLUSTER_MOST : CLUSTER_USUAL;
    const int64_t of_block = parts_of(units, least(most, parts_of(units, FEW_WARPS * wanted)));
    const int64_t per = of_block <= CLUSTER_WARPS * wanted ? wanted : parts_of(of_block, CLUSTER_WARPS);
    const int64_t warps = parts_of(of_block, per), blocks = parts_of(units, warps * per);
    const size_t needed = cluster_memory(warps, per), spread = shared_spread(gpu, a.rows * blocks / gpu.processors + 2);
    l->attribute[0].id = cudaLaunchAttributeClusterDimension;
    l->attribute[0].val.clusterDim.x = (unsigned)blocks;
    l->attribute[0].val.clusterDim.y = l->attribute[0].val.clusterDim.z = 1;
    l->attribute[1] = launch_early(); /* cluster_kernel calls previous_wait */
    l->config = cudaLaunchConfig_t();
    l->config.gridDim = dim3((unsigned)(a.rows * blocks));
    l->config.blockDim = dim3((unsigned)((warps + 1) * WARP)); /* and the head */
    l->config.dynamicSmemBytes = needed > spread ? needed : spread;
    l->config.stream = stream;
    l->config.attrs = l->attribute;
    l->config.numAttrs = gpu.early ? 2 : 1;
    l->per = (int)per;
    return per * UNIT <= WARP && needed <= CLUSTER_SHARED;
}

/* Whether the GPU holds all clusters of a launch at once. */
static bool cluster_held(cluster_launch *l, cluster_function kernel, int64_t rows) {
    cudaLaunchConfig_t config = l->config;
    int count = 0;
    config.numAttrs = 1; /* how early it may start is no matter */
    if (rows > 1 && cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) cudaGetLastError();
    return rows == 1 || count >= rows;
}

/* Found by trying (dev/cuda): a unit a warp if the GPU holds all rows at once then; else two, in blocks of four warps again, of
 * which a multiprocessor holds six. */
static bool cluster_choose(cluster_launch *l, cluster_function kernel, const write_args &a, const device_facts &gpu, cudaStream_t stream) {
    return (cluster_make(l, a, 1, gpu, stream) && cluster_held(l, kernel, a.rows)) || cluster_make(l, a, 2, gpu, stream);
}

/* ---- the call -------------------------------------------------------------------------------------------------- */

/* As many blocks a row as it has work for, and no more than fill the GPU. */
static dim3 grid_of(const write_args &a, int processors) {
    const int64_t most = parts_of(a.groups, BLOCK_WARPS), room = (int64_t)processors * WRITES_PER_SM;
    const int64_t fair = a.rows < room ? room / a.rows : 1;
    return dim3((unsigned)least(most, fair), (unsigned)least(a.rows, GRID_ROWS));
}

/* What is written of rows that are decided, or whose records are there. */
static cudaError_t write_rows(const row_kernels &k, const write_args &a, const device_facts &gpu, cudaStream_t stream) {
    cudaError_t code = cudaSuccess;
    if (a.list || a.count) code = launch(k.list, dim3((unsigned)least(a.rows, INT32_MAX)), a, gpu, stream);
    if (code == cudaSuccess && (a.data || a.kept || a.row_flags)) code = launch(k.write, grid_of(a, gpu.processors), a, gpu, stream);
    return code;
}

cudaError_t write_decided(const raffle_plan *plan, const call *call) {
    write_args a;
    args_make(&a, plan, call);
    const bool probs = plan->desc.input == RAFFLE_PROBS;
    const row_kernels &k = probs ? write_kernels_probs[plan->desc.dtype].rows : row_kernels_decided[plan->desc.dtype];
    return write_rows(k, a, facts_of(plan), call->launch.stream);
}

raffle_status write_call(const raffle_plan *plan, const call *call, raffle_error *error) {
    const write_kernels &k = *kernels_of(&plan->desc);
    write_args a;
    args_make(&a, plan, call);
    if (!a.rows) return RAFFLE_OK;
    device_guard guard(plan->desc.device);
    if (guard.code != cudaSuccess) return device_fail(error, "choosing the GPU", guard.code);
    const device_facts &gpu = facts_of(plan);
    cudaError_t code;
    const bool simple = a.data && a.form != FORM_LOGIT && !a.kept && !a.list && !a.count;
    cluster_launch once;
    if (gpu.clusters && simple && a.rows <= INT32_MAX / CLUSTER_MOST && cluster_choose(&once, k.cluster, a, gpu, call->launch.stream)) {
        code = cudaLaunchKernelEx(&once.config, k.cluster, a, once.per);
        return code == cudaSuccess ? RAFFLE_OK : device_fail(error, "launching a kernel", code);
    }
    code = launch(k.records, grid_of(a, gpu.processors), a, gpu, call->launch.stream);
    if (code == cudaSuccess) code = write_rows(k.rows, a, gpu, call->launch.stream);
    return code == cudaSuccess ? RAFFLE_OK : device_fail(error, "launching a kernel", code);
}
