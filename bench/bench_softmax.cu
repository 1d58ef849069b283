/* bench_softmax.cu - raffle_softmax on a GPU against the time it takes to read the logits and write the probabilities once.
 *
 *   bench_softmax [--quick]
 *
 * Medians over graph replays; inputs and outputs together are several times the L2. Target: 1.2 x floor + 4 us. */
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

struct pass {
    const char *name;
    int from, to;
    bool in_place, filters, mask;
    double factor, offset; /* target: factor x floor + offset us; 0: none */
};
static const pass passes[] = {
    {"bf16 to bf16", RAFFLE_BF16, RAFFLE_BF16, false, false, false, 1.2, 4},
    {"bf16 in place", RAFFLE_BF16, RAFFLE_BF16, true, false, false, 1.2, 4},
    {"bf16 to f32", RAFFLE_BF16, RAFFLE_F32, false, false, false, 1.2, 4},
    {"f32 to f32", RAFFLE_F32, RAFFLE_F32, false, false, false, 1.2, 4},
    {"f32 in place", RAFFLE_F32, RAFFLE_F32, true, false, false, 1.2, 4},
    {"top-k 50 top-p 0.9, f32", RAFFLE_F32, RAFFLE_F32, false, true, false, 0, 0},
    {"mask top-k 50, bf16", RAFFLE_BF16, RAFFLE_BF16, false, true, true, 0, 0},
};

static int64_t bytes_of(int dtype) { return dtype == RAFFLE_F32 ? 4 : 2; }

/* Bit patterns of ordinary logits: about -8 to 8, both signs. */
__global__ static void fill(uint32_t *words, size_t count, bool f32) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ull;
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9ull;
        h ^= h >> 31;
        const uint32_t exponent = 0x3f000000u + ((uint32_t)(h >> 40) & 0x1800000u);
        const uint32_t x = ((uint32_t)h & 0x807fffffu) | exponent;
        words[i] = f32 ? x : (x & 0xffff0000u) | (((uint32_t)(h >> 32) & 0x807fu) | exponent >> 16);
    }
}

static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

static double time_of(cudaStream_t stream, cudaGraphExec_t graph, int calls) {
    std::vector<double> us;
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    for (int i = 0; i < 9; ++i) {
        float ms;
        CHECK(cudaEventRecord(start, stream));
        CHECK(cudaGraphLaunch(graph, stream));
        CHECK(cudaEventRecord(stop, stream));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        if (i > 1) us.push_back(ms * 1e3 / calls);
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    return median(us);
}

static double measure(const pass &p, int64_t rows, int64_t vocab, char *input, char *output, size_t spread, cudaStream_t stream) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_error error = raffle_error_init();
    raffle_plan *plan;
    desc.backend = RAFFLE_CUDA;
    desc.dtype = p.from;
    desc.vocab = vocab;
    desc.rows_max = rows;
    if (raffle_plan_create(&desc, &plan, &error)) fprintf(stderr, "%s\n", error.text), exit(3);
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    CHECK(cudaMalloc(&launch.workspace, launch.workspace_bytes));
    CHECK(cudaMemset(launch.workspace, 0, launch.workspace_bytes));
    launch.stream = stream;
    std::vector<float> t(rows, 0.8f), top(rows, 0.9f);
    std::vector<int32_t> k(rows, 50);
    float *temperature, *top_p;
    int32_t *top_k;
    CHECK(cudaMalloc(&temperature, rows * 4));
    CHECK(cudaMalloc(&top_p, rows * 4));
    CHECK(cudaMalloc(&top_k, rows * 4));
    CHECK(cudaMemcpy(temperature, t.data(), rows * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(top_p, top.data(), rows * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(top_k, k.data(), rows * 4, cudaMemcpyHostToDevice));
    raffle_params params = raffle_params_init();
    params.temperature = temperature;
    if (p.filters) params.top_k = top_k;
    if (p.filters && !p.mask) params.top_p = top_p;
    const size_t in_bytes = rows * vocab * bytes_of(p.from), out_bytes = rows * vocab * bytes_of(p.to);
    const int inputs = (int)std::max<size_t>(1, std::min<size_t>(512, spread / std::max(in_bytes, out_bytes)));
    const int calls = std::max(inputs, 20);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) {
        raffle_logits logits = raffle_logits_init();
        raffle_output o = raffle_output_init();
        logits.data = input + i % inputs * in_bytes;
        logits.rows = rows;
        o.dtype = p.to;
        o.data = p.in_place ? input + i % inputs * in_bytes : output + i % inputs * out_bytes;
        if ((p.mask ? raffle_mask : raffle_softmax)(plan, &logits, &params, &o, &launch, &error)) fprintf(stderr, "%s\n", error.text), exit(3);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const double us = time_of(stream, exec, calls);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    for (void *q : {(void *)temperature, (void *)top_p, (void *)top_k, launch.workspace}) CHECK(cudaFree(q));
    raffle_plan_destroy(plan);
    return us;
}

int main(int argc, char **argv) {
    std::vector<int64_t> all_rows = {1, 8, 32, 64, 128, 160, 256, 512}, vocabs = {32000, 128256, 151936, 262144};
    if (argc > 1 && !strcmp(argv[1], "--quick")) all_rows = {1, 8, 32, 128, 512}, vocabs = {32000, 128256};
    char why[112];
    if (!raffle_cuda_available(why, sizeof why)) return printf("skipped: %s\n", why), 0;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    const size_t spread = 1200ull << 20; /* inputs, and as much outputs */
    char *input, *output;
    CHECK(cudaMalloc(&input, spread));
    CHECK(cudaMalloc(&output, spread));
    std::vector<double> copies;
    for (int i = 0; i < 12; ++i) {
        cudaEvent_t start, stop;
        float ms;
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&stop));
        CHECK(cudaEventRecord(start, stream));
        CHECK(cudaMemcpyAsync(output, input, spread, cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaEventRecord(stop, stream));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        copies.push_back(2.0 * spread / (ms * 1e-3));
    }
    const double bandwidth = median(copies);
    int missed = 0, figures = 0;
    printf("copy bandwidth %.2f TB/s; us per call (floor in brackets); * misses 1.2 x floor + 4\n", bandwidth * 1e-12);
    for (int64_t vocab : vocabs) {
        printf("\nvocab %lld\n%-24s", (long long)vocab, "rows");
        for (int64_t rows : all_rows) printf("%17lld", (long long)rows);
        for (const pass &p : passes) {
            fill<<<4096, 256>>>((uint32_t *)input, spread / 4, p.from == RAFFLE_F32);
            CHECK(cudaDeviceSynchronize());
            printf("\n%-24s", p.name);
            for (int64_t rows : all_rows) {
                const double floor = rows * vocab * (double)(bytes_of(p.from) + bytes_of(p.to)) / bandwidth * 1e6;
                const double us = measure(p, rows, vocab, input, output, spread, stream);
                const bool miss = p.factor > 0 && us > p.factor * floor + p.offset;
                printf("%8.2f (%5.1f)%s", us, floor, miss ? "*" : " ");
                missed += miss;
                figures += p.factor > 0;
            }
            fflush(stdout);
        }
        printf("\n");
    }
    printf("\n%d of %d figures miss their target\n", missed, figures);
    return 0;
}
