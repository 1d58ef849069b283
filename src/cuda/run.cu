/* run.cu - the CUDA backend: plan, workspace, launch. */
#include <stdio.h>
#include <stdlib.h>

#include "device.cuh"

#include "vec_one.h"

#include "grid.cuh"
#include "verify.cuh"

cudaError_t verify_launch(verify_args *a, int dtype, const device_facts &gpu, cudaStream_t stream); /* verify.cu */
cudaError_t verify_launch_requested(verify_args *a, int dtype, const device_facts &gpu, cudaStream_t stream); /* verify_extra.cu */
cudaError_t verify_report_launch(verify_args *a, int dtype, cudaStream_t stream);                    /* verify_report.cu */

/* A kernel, and the bytes of shared memory that its blocks have anyway. */
struct sample_code {
    sample_function kernel;
    size_t shared;
};

/* What plan creation learns about the device. */
struct device_state : device_facts {
    char name[64];
    /* indexed: of rows by row_index, and of probabilities; teamed: of few rows, where there are clusters; requested: of calls with extras
     * or a report; decided: of those that write filtered rows */
    sample_code plain, indexed, teamed, requested, decided;
    team_room room;  /* for clusters of `teamed` */
    size_t sections; /* of all rows together, of the call that has most: sums.cuh */
};

static const char *const dtype_name[] = {"f32", "f16", "bf16"};

cudaError_t device_count(int *count, char *why, size_t bytes) {
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaSuccess && *count < 1) code = cudaErrorNoDevice;
    if (code != cudaSuccess) {
        int driver = 0, runtime = 0;
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        if (!driver)
            snprintf(why, bytes, "no NVIDIA driver is installed");
        else
            snprintf(why, bytes, "%s (driver for CUDA %d.%d, built for %d.%d)", cudaGetErrorString(code), driver / 1000,
                     driver / 10 % 100, runtime / 1000, runtime / 10 % 100);
    }
    if (code != cudaSuccess) cudaGetLastError(); /* the status tells it; the caller's next call should not */
    return code;
}

extern "C" int raffle_cuda_available(char *why, size_t bytes) {
    char text[112] = "";
    int count = 0;
    cudaError_t code = device_count(&count, text, sizeof text);
    if (why && bytes) snprintf(why, bytes, "%s", text);
    return code == cudaSuccess;
}

/* Workspace: | what write.cu needs | mass [rows, groups] u64 | peak [rows, groups * PIECES] f32 |
 *   of plans with RAFFLE_PLAN_REPORT: shown_mass, shown_peak: the same | told [rows] of raffle_verify |
 *   of plans with RAFFLE_PLAN_EXTRA: mask [rows, groups * GROUP_WORDS] | patch [rows, groups * PATCH_WORDS] | overlay [rows, groups * GROUP] |
 *   sums [sections, SUM_BINS] u64 | heads [sections] i32 | state [rows] | law, tickets_t, tickets_s, head, left, arrived, kept [rows], queue of raffle_verify | */
static size_t workspace_carve(const raffle_plan_desc *desc, size_t sections, void *memory, sample_args *a, verify_args *v) {
    const size_t align = RAFFLE_WORKSPACE_ALIGN, rows = (size_t)desc->rows_max;
    const size_t groups = (size_t)(desc->vocab + GROUP - 1) / GROUP;
    const size_t shown = desc->flags & RAFFLE_PLAN_REPORT ? rows * groups : 0;
    const size_t edited = desc->flags & RAFFLE_PLAN_EXTRA ? rows * groups * GROUP : 0;
    enum { BLOCKS = 19 };
    const size_t bytes[BLOCKS] = {rows * groups * sizeof *a->mass,
                                  rows * groups * PIECES * sizeof *a->peak,
                                  shown * sizeof *a->shown_mass,
                                  shown * PIECES * sizeof *a->shown_peak,
                                  shown ? rows * sizeof *v->told : 0,
                                  edited / GROUP * GROUP_WORDS * sizeof *a->mask,
                                  edited / GROUP * PATCH_WORDS * sizeof *a->patch,
                                  edited * sizeof *a->overlay,
                                  sections * SUM_BINS * sizeof *a->sums,
                                  sections * sizeof *a->heads,
                                  rows * sizeof *a->state,
                                  rows * sizeof *v->law,
                                  rows * sizeof *v->tickets_t,
                                  rows * sizeof *v->tickets_s,
                                  rows * sizeof *v->head,
                                  rows * sizeof *v->left,
                                  rows * sizeof *v->arrived,
                                  rows * sizeof *v->kept,
                                  sizeof *v->queue};
    void *block[BLOCKS];
    size_t used = write_workspace(desc);
    for (int i = 0; i < BLOCKS; ++i) {
        block[i] = (char *)memory + used;
        used += (bytes[i] + align - 1) / align * align;
    }
    a->mass = (uint64_t *)block[0];
    a->peak = (float *)block[1];
    a->shown_mass = (uint64_t *)block[2];
    a->shown_peak = (float *)block[3];
    v->told = (told_entry *)block[4];
    a->mask = (uint32_t *)block[5];
    a->patch = (uint32_t *)block[6];
    a->overlay = (float *)block[7];
    a->sums = (uint64_t *)block[8];
    a->heads = (int32_t *)block[9];
    a->state = (row_state *)block[10];
    v->law = (row_law *)block[11];
    v->tickets_t = (uint64_t *)block[12];
    v->tickets_s = (uint64_t *)block[13];
    v->head = (law_head *)block[14];
    v->left = (left_item *)block[15];
    v->arrived = (uint64_t *)block[16];
    v->kept = (kept_list *)block[17];
    v->queue = (left_queue *)block[18];
    return used;
}

/* The sections with sums of each row (sums.cuh), 0 if blocks leave none. They do where rows are so few that several blocks share one, or
 * short and not very many: else looking twice costs the other blocks more than it saves whoever finishes (dev/cuda has the figures). */
enum { SUM_ROWS = 8 }; /* a multiprocessor, at most */
static int32_t sections_made(int64_t rows, int32_t groups, int32_t part, int processors) {
    enum { SHORT = 128 };
    const bool few = groups <= SHORT ? rows <= SUM_ROWS * processors : rows <= 2 * processors && part < groups;
    return few && groups <= QUICK_GROUPS ? (groups + section_of(part) - 1) / section_of(part) : 0;
}

/* The most sections that the rows of one call can have: how many depends on how many rows share the GPU. */
static size_t sections_most(const raffle_plan_desc *desc, int processors, const team_room &room) {
    const int32_t groups = (int32_t)((desc->vocab + GROUP - 1) / GROUP);
    int64_t most = 0;
    for (int64_t rows = 1; rows <= desc->rows_max && rows <= SUM_ROWS * processors; ++rows) {
        for (const team_shape &shape : {NO_TEAMS, team_choose(rows, groups, false, processors, room),
                                        team_choose(rows, groups, true, processors, room)}) {
            int32_t part;
            parts_grid(rows, rows, groups, groups, processors, shape, &part);
            const int64_t of_rows = rows * sections_made(rows, groups, part, processors);
            if (of_rows > most) most = of_rows;
        }
    }
    return (size_t)most;
}

/* `code`: the architecture that the kernels were compiled for, times 10. A GPU may be newer: then what only newer ones can is not in them. */
static device_facts facts_make(int device, const cudaDeviceProp &properties, int code) {
    enum { HOPPER = 90, GRAPHS_TOO = 12030 };
    device_facts f = {device, properties.multiProcessorCount, properties.major, properties.sharedMemPerMultiprocessor, false, false};
    int clusters = 0, driver = 0;
    if (properties.major * 10 < HOPPER || code < HOPPER) return f;
    f.clusters = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device) == cudaSuccess && clusters &&
                 properties.sharedMemPerBlockOptin >= CLUSTER_SHARED;
    f.early = CUDART_VERSION >= GRAPHS_TOO && cudaDriverGetVersion(&driver) == cudaSuccess && driver >= GRAPHS_TOO;
    return f;
}

/* What the blocks of a kernel get so that a multiprocessor takes `each` of them at once and no more. */
static size_t shared_more(const sample_code &code, const device_facts &gpu, int64_t each) {
    const size_t spread = gpu.early && each < BLOCKS_PER_SM ? shared_spread(gpu, each) : 0;
    return spread > code.shared ? spread - code.shared : 0;
}

/* Loads a kernel, and allows its blocks the shared memory that `launch` may give them. */
static cudaError_t code_load(sample_code *to, sample_function kernel, const device_facts &gpu) {
    cudaFuncAttributes attributes;
    cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
    if (code != cudaSuccess) return code;
    to->kernel = kernel;
    to->shared = attributes.sharedSizeBytes;
    const size_t most = shared_spread(gpu, 1);
    if (!gpu.early || most <= to->shared) return code;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(most - to->shared));
}

/* How many clusters of each size the GPU holds; none, if it cannot say. */
static team_room room_find(const sample_code &code, const device_facts &gpu) {
    team_room room = {};
    for (int team = TEAM_LEAST; team <= TEAM; ++team) {
        cudaLaunchAttribute cluster = {};
        cudaLaunchConfig_t config = {};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {(unsigned)team, 1, 1};
        config.gridDim = dim3((unsigned)team);
        config.blockDim = dim3(BLOCK_THREADS);
        config.dynamicSmemBytes = shared_more(code, gpu, TEAM_EACH);
        config.attrs = &cluster;
        config.numAttrs = 1;
        if (cudaOccupancyMaxActiveClusters(&room.clusters[team], code.kernel, &config) != cudaSuccess) {
            cudaGetLastError();
            room.clusters[team] = 0;
        }
    }
    return room;
}

static raffle_status create(raffle_plan *plan, raffle_error *error) {
    static const sample_function kernels[] = {sample_kernel<type_f32>, sample_kernel<type_f16>, sample_kernel<type_bf16>};
    char why[112] = "";
    int count = 0;
    if (device_count(&count, why, sizeof why) != cudaSuccess) return raffle_fail(error, RAFFLE_E_DEVICE, -1, "%s", why);
    if (plan->desc.device >= count)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "device is %d: this machine has %d", plan->desc.device, count);
    device_guard guard(plan->desc.device);
    cudaDeviceProp properties;
    cudaError_t code = guard.code;
    if (code == cudaSuccess) code = cudaGetDeviceProperties(&properties, plan->desc.device);
    if (code != cudaSuccess) return device_fail(error, "querying the GPU", code);
    /* Loads the kernels now, and shows whether this build has code for this GPU. */
    const bool probs = plan->desc.input == RAFFLE_PROBS;
    const sample_function indexed = sample_indexed[probs][plan->desc.dtype]; /* every plan has it; the plain one is for logits */
    cudaFuncAttributes attributes = {};
    code = cudaFuncGetAttributes(&attributes, indexed);
    device_state made = {};
    static_cast<device_facts &>(made) = facts_make(plan->desc.device, properties, attributes.ptxVersion);
    if (code == cudaSuccess && !probs) code = code_load(&made.plain, kernels[plan->desc.dtype], made);
    if (code == cudaSuccess) code = code_load(&made.indexed, indexed, made);
    if (code == cudaSuccess && made.clusters) code = code_load(&made.teamed, sample_teamed[probs][plan->desc.dtype], made);
    if (code == cudaSuccess && plan->desc.flags) code = code_load(&made.requested, sample_requested[plan->desc.dtype], made);
    if (code == cudaSuccess) code = code_load(&made.decided, (probs ? decide_probs : decide_kernels)[plan->desc.dtype], made);
    if (code == cudaSuccess && made.clusters) code = write_prepare(&plan->desc);
    if (code == cudaSuccess && !probs) code = keep_prepare();
    if (code != cudaSuccess) return device_fail(error, "loading the kernel for this GPU", code);
    device_state *state = (device_state *)malloc(sizeof *state);
    if (!state) return raffle_fail(error, RAFFLE_E_MEMORY, -1, "out of memory for a plan");
    *state = made;
    if (made.clusters) state->room = room_find(made.teamed, made);
    snprintf(state->name, sizeof state->name, "%.63s", properties.name);
    state->sections = probs ? 0 : sections_most(&plan->desc, state->processors, state->room);
    sample_args unused;
    verify_args unused_too;
    plan->state = state;
    plan->workspace_bytes = workspace_carve(&plan->desc, state->sections, NULL, &unused, &unused_too);
    return RAFFLE_OK;
}

static void destroy(raffle_plan *plan) { free((void *)plan->state); }

static size_t describe(const raffle_plan *plan, char *text, size_t bytes) {
    const device_state *state = (const device_state *)plan->state;
    int length = snprintf(text, bytes, "cuda device %d (%s), %s logits, vocab %lld, up to %lld rows, workspace %zu bytes",
                          state->device, state->name, dtype_name[plan->desc.dtype], (long long)plan->desc.vocab,
                          (long long)plan->desc.rows_max, plan->workspace_bytes);
    return length < 0 ? 0 : (size_t)length;
}

/* What the kernels of raffle_sample need; they also decide what rows keep that raffle_softmax and raffle_mask write. */
static void args_make(sample_args *a, const raffle_plan *plan, const call *call) {
    const raffle_params *p = &call->params;
    verify_args unused;
    workspace_carve(&plan->desc, ((const device_state *)plan->state)->sections, call->launch.workspace, a, &unused);
    a->logits = (const char *)call->logits.data;
    a->rows = call->logits.rows;
    a->row_stride = call->logits.row_stride;
    a->row_index = call->logits.row_index;
    a->data_rows = call->logits.data_rows;
    a->vocab = plan->desc.vocab;
    a->groups = (int32_t)((a->vocab + GROUP - 1) / GROUP);
    a->slots = p->slots;
    a->slot = p->slot;
    a->temperature = p->temperature;
    a->top_p = p->top_p;
    a->min_p = p->min_p;
    a->top_k = p->top_k;
    a->seed = p->seed;
    a->position = p->position;
    a->seed_offset = p->seed_offset;
    a->position_offset = p->position_offset;
    a->allow = p->allow;
    a->allow_stride = p->allow_stride;
    a->flags = p->flags;
    a->draft_step = p->draft_step;
    a->empty_token = p->flags & RAFFLE_EMPTY_IS_ZERO ? 0 : RAFFLE_NO_TOKEN;
    a->token = call->result.token;
    a->row_flags = call->result.row_flags;
    a->advance = call->result.advance;
    a->extra = p->extra;
    a->pool = slot_pool_make(&call->state, &call->layout);
    a->report = call->report;
    a->has_report = call->result.report != NULL;
    a->verdicts = (struct verdict *)call->launch.workspace;
}

/* Groups of a call for each multiprocessor from which on rows that are drawn from as a whole are estimated: with fewer, reading is short, and finishing a row
 * whose groups are weighed is shorter (dev/cuda). */
enum { ABOUT_GROUPS = 120 };
static bool about_suits(const device_facts &gpu, int64_t rows, int32_t groups) {
    return groups <= QUICK_GROUPS && rows * groups >= (int64_t)ABOUT_GROUPS * gpu.processors;
}

static cudaError_t launch(const device_state *state, const sample_code &code, const team_shape &shape, sample_args *a,
                          cudaStream_t stream) {
    enum { SHARED = 8 }; /* results of a row that parts are made for: more blocks would come for nothing, or all of them read */
    const bool prepares = a->extra || (a->allow && (&code == &state->requested || &code == &state->decided)); /* into edit_space */
    int64_t read = a->rows; /* of results that share a row, one reads (draw_follows) */
    if (&code == &state->indexed && a->row_index && !a->allow && a->data_rows < read)
        read = a->data_rows > read / SHARED ? a->data_rows : (read + SHARED - 1) / SHARED;
    const dim3 grid = parts_grid(a->rows, read, a->groups, prepares ? EDIT_GROUPS : a->groups, state->processors, shape, &a->part);
    const int64_t spread = ((int64_t)grid.x * grid.y * grid.z + state->processors - 1) / state->processors;
    const bool sums = state->sections && (&code == &state->plain || shape.team > 1); /* others have none */
    a->about = about_suits(*state, a->rows, a->groups);
    a->sections = sums ? sections_made(a->rows, a->groups, a->part, state->processors) : 0;
    return kernel_start(code.kernel, grid, dim3(BLOCK_THREADS), shared_more(code, *state, shape.each ? shape.each : spread), *a, *state,
                        stream, (unsigned)shape.team);
}

static raffle_status draw(const raffle_plan *plan, const call *call, raffle_error *error) {
    const device_state *state = (const device_state *)plan->state;
    const bool requested = call->params.extra || call->result.report;
    const bool indexed = plan->desc.input == RAFFLE_PROBS || call->logits.row_index;
    sample_args a;
    args_make(&a, plan, call);
    if (!a.rows) return RAFFLE_OK;
    team_shape shape = NO_TEAMS;
    const bool cuts = a.top_p || a.top_k; /* and may leave many tokens, which teams are for */
    if (cuts && state->clusters && !requested && !a.row_index)
        shape = team_choose(a.rows, a.groups, !a.top_k, state->processors, state->room);
    device_guard guard(state->device);
    if (guard.code != cudaSuccess) return device_fail(error, "choosing the GPU", guard.code);
    const sample_code &kernel = requested ? state->requested : shape.team > 1 ? state->teamed : indexed ? state->indexed : state->plain;
    const cudaError_t code = launch(state, kernel, shape, &a, call->launch.stream);
    return code == cudaSuccess ? RAFFLE_OK : device_fail(error, "launching the kernel", code);
}

static raffle_status sample(const raffle_plan *plan, const call *call, raffle_error *error) {
    const raffle_status status = draw(plan, call, error);
    if (status || !call->drafted.each || !call->logits.rows) return status;
    device_guard guard(plan->desc.device);
    if (guard.code != cudaSuccess) return device_fail(error, "choosing the GPU", guard.code);
    const cudaError_t code = keep_launch(plan, call);
    return code == cudaSuccess ? RAFFLE_OK : device_fail(error, "launching the kernel", code);
}

/* raffle_softmax and raffle_mask. Rows that are filtered are decided by the loops of raffle_sample, then written: of those, only groups
 * that keep a token are read again. */
static raffle_status write(const raffle_plan *plan, const call *call, raffle_error *error) {
    const device_state *state = (const device_state *)plan->state;
    sample_args a;
    if (!params_filter(&call->params)) return write_call(plan, call, error);
    args_make(&a, plan, call);
    if (!a.rows) return RAFFLE_OK;
    device_guard guard(state->device);
    if (guard.code != cudaSuccess) return device_fail(error, "choosing the GPU", guard.code);
    cudaError_t code = launch(state, state->decided, NO_TEAMS, &a, call->launch.stream);
    if (code == cudaSuccess) code = write_decided(plan, call);
    return code == cudaSuccess ? RAFFLE_OK : device_fail(error, "launching a kernel", code);
}

static raffle_status explain(const raffle_plan *, const call *, int64_t, raffle_explanation *, raffle_error *error) {
    return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "raffle_explain needs a CPU plan: the tokens are the same");
}

static param_arrays params_pass(const raffle_params *p, const raffle_state *state, const slot_layout *layout) {
    param_arrays a = {p->slots, p->slot,         p->temperature, p->top_p, p->min_p, p->top_k,
                      p->allow, p->allow_stride, p->flags,       p->extra, slot_pool_make(state, layout)};
    return a;
}

static raffle_status verify(const raffle_plan *plan, const verify_call *call, raffle_error *error) {
    const raffle_drafts *d = &call->drafts;
    const raffle_verified *v = &call->verified;
    const bool draft_rows = call->has_logits || call->has_probabilities;
    const int64_t all = call->target.logits.rows + (draft_rows ? call->draft_rows : 0);
    if (all > plan->desc.rows_max)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "target and draft rows are %lld: this plan has rows_max %lld", (long long)all,
                           (long long)plan->desc.rows_max);
    if (!d->requests) return RAFFLE_OK;
    verify_args a = {};
    sample_args space;
    workspace_carve(&plan->desc, ((const device_state *)plan->state)->sections, call->target.launch.workspace, &space, &a);
    a.logits = (const char *)call->target.logits.data;
    a.draft_probs = call->has_probabilities;
    a.draft_data = (const char *)(a.draft_probs ? call->draft_probabilities.data : call->has_logits ? call->draft_logits.data : NULL);
    a.rows = call->target.logits.rows;
    a.row_stride = call->target.logits.row_stride;
    a.draft_rows = call->draft_rows;
    a.draft_stride = a.draft_probs ? call->draft_probabilities.row_stride : call->draft_logits.row_stride;
    a.vocab = plan->desc.vocab;
    a.groups = (int32_t)((a.vocab + GROUP - 1) / GROUP);
    a.requests = d->requests;
    a.each = d->each;
    a.method = d->method;
    a.target = params_pass(&call->target.params, &call->target.state, &call->target.layout);
    a.draft = params_pass(&call->draft_params, &call->draft_state, &call->draft_layout);
    a.seed = call->target.params.seed;
    a.position = call->target.params.position;
    a.first = d->first;
    a.token = d->token;
    a.parent = d->parent;
    a.threshold_single = d->threshold_single;
    a.threshold_sum = d->threshold_sum;
    a.rate = d->rate;
    a.accept_bits = d->accept_bits;
    a.recover_bits = d->recover_bits;
    a.draw_bits = d->draw_bits;
    a.empty_token = call->target.params.flags & RAFFLE_EMPTY_IS_ZERO ? 0 : RAFFLE_NO_TOKEN;
    a.out = v->token;
    a.accepted = v->accepted;
    a.last = v->last;
    a.path = v->path;
    a.row_flags = v->row_flags;
    a.peak = space.peak;
    a.mass = space.mass;
    a.state = space.state;
    a.mask = space.mask;
    a.patch = space.patch;
    a.overlay = space.overlay;
    a.shown_mass = space.shown_mass;
    a.shown_peak = space.shown_peak;
    a.report = call->target.report;
    a.has_report = v->report != NULL;
    /* Not where masses are summed up, or compared with nothing but a number. */
    const bool masses = a.method == RAFFLE_BLOCK || (a.method == RAFFLE_REJECTION && (!draft_rows || a.recover_bits));
    a.about = !masses && about_suits(facts_of(plan), all, a.groups);
    device_guard guard(plan->desc.device);
    if (guard.code != cudaSuccess) return device_fail(error, "choosing the GPU", guard.code);
    const bool requested = a.target.extra || a.draft.extra || a.has_report;
    const cudaStream_t stream = call->target.launch.stream;
    cudaError_t code = (requested ? verify_launch_requested : verify_launch)(&a, plan->desc.dtype, facts_of(plan), stream);
    if (code == cudaSuccess && a.has_report) code = verify_report_launch(&a, plan->desc.dtype, stream);
    return code == cudaSuccess ? RAFFLE_OK : device_fail(error, "launching the kernels", code);
}

extern "C" const backend raffle_backend_cuda = {create, destroy, describe, sample, write, explain, verify, slots_change};
