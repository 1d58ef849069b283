/* timing.cuh - what the GPU benchmarks share: checks, ordinary inputs, a plan with its workspace, the time of captured calls. */
#ifndef RAFFLE_BENCH_TIMING_CUH
#define RAFFLE_BENCH_TIMING_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "raffle/raffle.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t code = (call);                                                                                     \
        if (code != cudaSuccess) {                                                                                     \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                                              \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A status of the library. */
static inline void must(raffle_status status, const raffle_error &error) {
    if (status) fprintf(stderr, "%s\n", error.text), exit(3);
}

static inline int64_t bytes_of(int dtype) { return dtype == RAFFLE_F32 ? 4 : 2; }

/* ---- inputs ------------------------------------------------------------------------------------------ */

__device__ static inline float uniform(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return ((x ^ (x >> 31)) >> 40) * 0x1p-24f;
}

/* Rows of normal logits: flat ones of standard deviation 1, others of 2.5 with 20 peaks. */
template <class type> __global__ static void fill(type *data, int64_t rows, int64_t vocab, bool flat) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < rows * vocab; i += (int64_t)gridDim.x * blockDim.x) {
        float radius = sqrtf(-2.0f * logf(uniform(2 * i + 1) + 0x1p-25f)), angle = 6.2831853f * uniform(2 * i + 2);
        float x = radius * cosf(angle) * (flat ? 1.0f : 2.5f);
        if (!flat && i % vocab * 20 / vocab != (i % vocab + 1) * 20 / vocab) x += 8.0f + 4.0f * uniform(i);
        data[i] = (type)x;
    }
}
static inline void rows_fill(char *data, int dtype, int64_t rows, int64_t vocab, bool flat) {
    if (dtype == RAFFLE_F32) fill<<<4096, 256>>>((float *)data, rows, vocab, flat);
    else fill<<<4096, 256>>>((__nv_bfloat16 *)data, rows, vocab, flat);
    CHECK(cudaDeviceSynchronize());
}

template <class type> static type *to_device(const std::vector<type> &host) {
    type *device;
    CHECK(cudaMalloc(&device, host.size() * sizeof(type)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(type), cudaMemcpyHostToDevice));
    return device;
}

/* ---- a plan ------------------------------------------------------------------------------------------ */

struct planned {
    raffle_plan *plan;
    raffle_launch launch;
    raffle_error error;

    planned(raffle_plan_desc desc, cudaStream_t stream) : launch(raffle_launch_init()), error(raffle_error_init()) {
        desc.backend = RAFFLE_CUDA;
        must(raffle_plan_create(&desc, &plan, &error), error);
        launch.workspace_bytes = raffle_plan_workspace(plan);
        CHECK(cudaMalloc(&launch.workspace, launch.workspace_bytes));
        CHECK(cudaMemset(launch.workspace, 0, launch.workspace_bytes));
        launch.stream = stream;
    }
    ~planned() {
        CHECK(cudaFree(launch.workspace));
        raffle_plan_destroy(plan);
    }
};
static inline raffle_plan_desc desc_of(int dtype, int64_t vocab, int64_t rows) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.dtype = dtype;
    desc.vocab = vocab;
    desc.rows_max = rows;
    return desc;
}

/* The softmax of rows of logits at temperature 0.8. */
static inline void rows_softmax(const char *logits, int dtype, char *probs, int probs_dtype, int64_t rows, int64_t vocab,
                                cudaStream_t stream) {
    planned p(desc_of(dtype, vocab, rows), stream);
    raffle_params params = raffle_params_init();
    raffle_logits input = raffle_logits_init();
    raffle_output output = raffle_output_init();
    float *const temperature = to_device(std::vector<float>(rows, 0.8f));
    params.temperature = temperature;
    input.data = logits;
    input.rows = rows;
    output.data = probs;
    output.dtype = probs_dtype;
    must(raffle_softmax(p.plan, &input, &params, &output, &p.launch, &p.error), p.error);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(temperature));
}

/* ---- time -------------------------------------------------------------------------------------------- */

static inline double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* Median over `times` of the microseconds that `work` takes on the stream; the first two do not count. */
template <class function> static double time_of(cudaStream_t stream, int times, function work) {
    std::vector<double> us;
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    for (int i = 0; i < times + 2; ++i) {
        float ms;
        CHECK(cudaEventRecord(start, stream));
        work();
        CHECK(cudaEventRecord(stop, stream));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        if (i >= 2) us.push_back(ms * 1e3);
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    return median(us);
}

/* Median microseconds per call, of a graph that holds call(0) .. call(calls - 1). */
template <class function> static double time_captured(cudaStream_t stream, int calls, function call) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) call(i);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const double us = time_of(stream, 9, [&] { CHECK(cudaGraphLaunch(exec, stream)); });
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return us / calls;
}

/* Bytes a second, read and written together. */
static inline double copy_bandwidth(cudaStream_t stream) {
    const size_t bytes = (size_t)1 << 30;
    char *a, *b;
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    CHECK(cudaMemset(a, 1, bytes));
    const double us = time_of(stream, 12, [&] { CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, stream)); });
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    return 2.0 * bytes / (us * 1e-6);
}

#endif
