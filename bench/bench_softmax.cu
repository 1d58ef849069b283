/* bench_softmax.cu - raffle_softmax on a GPU against the time it takes to read the logits and write the probabilities once.
 *
 *   bench_softmax [--quick]
 *
 * Medians over graph replays; inputs and outputs together are several times the L2. Target: 1.2 x floor + 4 us. */
#include "timing.cuh"

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

static double measure(const pass &p, int64_t rows, int64_t vocab, char *input, char *output, size_t spread, cudaStream_t stream) {
    planned made(desc_of(p.from, vocab, rows), stream);
    float *temperature = to_device(std::vector<float>(rows, 0.8f)), *top_p = to_device(std::vector<float>(rows, 0.9f));
    int32_t *top_k = to_device(std::vector<int32_t>(rows, 50));
    raffle_params params = raffle_params_init();
    params.temperature = temperature;
    if (p.filters) params.top_k = top_k;
    if (p.filters && !p.mask) params.top_p = top_p;
    const size_t in_bytes = rows * vocab * bytes_of(p.from), out_bytes = rows * vocab * bytes_of(p.to);
    const int inputs = (int)std::max<size_t>(1, std::min<size_t>(512, spread / std::max(in_bytes, out_bytes)));
    const double us = time_captured(stream, std::max(inputs, 20), [&](int i) {
        raffle_logits logits = raffle_logits_init();
        raffle_output o = raffle_output_init();
        logits.data = input + i % inputs * in_bytes;
        logits.rows = rows;
        o.dtype = p.to;
        o.data = p.in_place ? input + i % inputs * in_bytes : output + i % inputs * out_bytes;
        must((p.mask ? raffle_mask : raffle_softmax)(made.plan, &logits, &params, &o, &made.launch, &made.error), made.error);
    });
    for (void *q : {(void *)temperature, (void *)top_p, (void *)top_k}) CHECK(cudaFree(q));
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
    const double bandwidth = copy_bandwidth(stream);
    int missed = 0, figures = 0;
    printf("copy bandwidth %.2f TB/s; us per call (floor in brackets); * misses 1.2 x floor + 4\n", bandwidth * 1e-12);
    for (int64_t vocab : vocabs) {
        printf("\nvocab %lld\n%-24s", (long long)vocab, "rows");
        for (int64_t rows : all_rows) printf("%17lld", (long long)rows);
        for (const pass &p : passes) {
            rows_fill(input, p.from, (int64_t)(spread / (size_t)(vocab * bytes_of(p.from))), vocab, false);
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
