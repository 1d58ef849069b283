/* bench_cuda.cu - raffle_sample on a GPU: every route against the time it takes to read the logits once.
 *
 *   bench_cuda [--quick] [--csv FILE] [--dtype bf16|f32] [--vocab N] [--rows N] [--route NAME]
 *
 * Each figure is the median over graph replays. A graph holds one call per input; cold inputs together are
 * several times the L2, a warm graph calls one input again and again. floor = bytes / copy bandwidth of this run. */
#include "timing.cuh"

struct route {
    const char *name;
    float temperature, top_p, min_p;
    int top_k;
    bool flat;             /* logits of standard deviation 1 instead of 2.5 with peaks */
    double factor, offset; /* target: factor x floor + offset us */
    double factor_f32;
    unsigned asks = 0;     /* what the requests ask for besides, of the below */
    int top = -1; /* 0 and more: reports the token's log-probability and those of so many others, of the row as it came */
    unsigned flags = 0; /* of raffle_params */
    bool probs = false; /* rows are probabilities: the softmax of the others at temperature 0.8 */
    int share = 1;      /* results that are drawn from each row, by row_index */
};
enum { NOTHING = 1, MASK = 2, BIAS = 4, PENALTIES = 8 }; /* NOTHING: a raffle_extra that asks for nothing */

static const route routes[] = {
    {"greedy", 0.0f, 1.0f, 0.0f, 0, false, 1.15, 3, 1.15},
    {"no filter", 0.8f, 1.0f, 0.0f, 0, false, 1.6, 5, 1.3},
    {"top-k 50", 0.8f, 1.0f, 0.0f, 50, false, 1.3, 6, 1.3},
    {"top-k 50 top-p 0.9", 0.8f, 0.9f, 0.0f, 50, false, 1.3, 6, 1.3},
    {"top-k 256 top-p 0.9", 0.8f, 0.9f, 0.0f, 256, false, 1.3, 6, 1.3},
    {"top-k 1000", 0.8f, 1.0f, 0.0f, 1000, false, 4.0, 10, 4.0}, /* more tokens than the short ways list */
    {"min-p 0.05", 0.8f, 1.0f, 0.05f, 0, false, 1.3, 6, 1.3},
    /* its default values and order: filters before the temperature, top-k of exactly 40 */
    {"llama.cpp's chain", 0.8f, 0.95f, 0.05f, 40, false, 1.3, 6, 1.3, 0, -1, RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST | RAFFLE_TOP_K_EXACT},
    {"top-p 0.9 peaked", 0.5f, 0.9f, 0.0f, 0, false, 1.8, 6, 1.8},
    {"top-p 0.95 broad", 1.0f, 0.95f, 0.0f, 0, false, 4.0, 10, 4.0}, /* peaks, and thousands of tokens that stay with them */
    {"top-p 0.9 flat", 0.8f, 0.9f, 0.0f, 0, true, 4.0, 10, 4.0},
    {"logprobs", 0.8f, 0.9f, 0.0f, 50, false, 1.6, 10, 1.3, 0, 5},
    {"logprobs greedy", 0.0f, 1.0f, 0.0f, 0, false, 1.6, 10, 1.3, 0, 5},
    {"logprobs no filter", 0.8f, 1.0f, 0.0f, 0, false, 2.2, 10, 1.6, 0, 5},
    /* top-k 50 and top-p 0.9, and what else a request may have: 300 biases, three penalties over 2,000 tokens, a bitmask. */
    {"request: nothing", 0.8f, 0.9f, 0.0f, 50, false, 1.6, 12, 1.6, NOTHING},
    {"request: mask", 0.8f, 0.9f, 0.0f, 50, false, 1.6, 12, 1.6, MASK},
    {"request: bias", 0.8f, 0.9f, 0.0f, 50, false, 1.6, 12, 1.6, BIAS},
    {"request: penalties", 0.8f, 0.9f, 0.0f, 50, false, 1.6, 12, 1.6, PENALTIES},
    {"request: all", 0.8f, 0.9f, 0.0f, 50, false, 1.6, 12, 1.6, MASK | BIAS | PENALTIES},
    {"request: all, logprobs", 0.8f, 0.9f, 0.0f, 50, false, 1.6, 12, 1.6, MASK | BIAS | PENALTIES, 5},
    {"probs: no filter", 0.8f, 1.0f, 0.0f, 0, false, 1.6, 5, 1.3, 0, -1, 0, true},
    {"probs: top-k 50 top-p 0.9", 0.8f, 0.9f, 0.0f, 50, false, 1.3, 6, 1.3, 0, -1, 0, true},
    {"probs: top-p 0.9", 0.8f, 0.9f, 0.0f, 0, false, 1.8, 6, 1.8, 0, -1, 0, true},
    {"probs: top-p 0.9 flat", 0.8f, 0.9f, 0.0f, 0, true, 4.0, 10, 4.0, 0, -1, 0, true},
    {"probs: min-p 0.05", 0.8f, 1.0f, 0.05f, 0, false, 1.3, 6, 1.3, 0, -1, 0, true},
    {"8 of a row: no filter", 0.8f, 1.0f, 0.0f, 0, false, 1.6, 5, 1.3, 0, -1, 0, false, 8},
    {"8 of a row: top-k 50 top-p 0.9", 0.8f, 0.9f, 0.0f, 50, false, 1.3, 6, 1.3, 0, -1, 0, false, 8},
    {"8 of a row: probs", 0.8f, 1.0f, 0.0f, 0, false, 1.6, 5, 1.3, 0, -1, 0, true, 8},
};

/* Rows that `count` results of a route are drawn from. */
static int64_t rows_of(const route &r, int64_t count) { return (count + r.share - 1) / r.share; }

/* What the requests of a batch ask for, on the GPU: lists, histories and masks of their own for each row. */
struct asked {
    enum { BIASES = 300, HISTORY = 2000, PROMPT = 1000 };
    std::vector<void *> memory;
    raffle_state state;

    template <class type> type *keep(const std::vector<type> &host) {
        memory.push_back(to_device(host));
        return (type *)memory.back();
    }
    static uint64_t random(uint64_t *seed) { return (*seed = *seed * 6364136223846793005ull + 1442695040888963407ull) >> 33; }

    /* The histories of all slots are made on the host. */
    void histories(int64_t rows, int64_t vocab, uint64_t *seed) {
        state = raffle_state_init();
        state.slots = rows;
        state.history_max = HISTORY;
        state.vocab = vocab;
        const size_t bytes = raffle_state_bytes(&state);
        std::vector<int32_t> token(rows * HISTORY), prompt(rows, PROMPT), output(rows, HISTORY - PROMPT);
        for (int32_t &t : token) t = (int32_t)(random(seed) % vocab);
        raffle_tokens tokens = raffle_tokens_init();
        raffle_error error = raffle_error_init();
        state.memory = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, bytes);
        tokens.rows = rows;
        tokens.stride = HISTORY;
        tokens.token = token.data();
        tokens.count = prompt.data();
        must(raffle_state_clear(&state, nullptr, &error), error);
        must(raffle_state_prompt(&state, &tokens, &error), error);
        tokens.token += PROMPT;
        tokens.count = output.data();
        must(raffle_state_accept(&state, &tokens, &error), error);
        char *host = (char *)state.memory;
        state.memory = keep(std::vector<char>(host, host + bytes));
        state.backend = RAFFLE_CUDA;
        free(host);
    }

    asked(unsigned asks, int64_t rows, int64_t vocab, raffle_params *params) {
        uint64_t seed = 7;
        std::vector<raffle_extra> extra(rows, raffle_extra());
        if (!asks) return;
        for (int64_t i = 0; i < rows && asks & BIAS; ++i) {
            std::vector<int32_t> ids(BIASES);
            std::vector<float> bias(BIASES);
            for (int j = 0; j < BIASES; ++j) ids[j] = (int32_t)(random(&seed) % vocab), bias[j] = (float)(j % 7) - 3.0f;
            extra[i].bias_count = (int32_t)raffle_ids_sort(ids.data(), bias.data(), BIASES);
            extra[i].bias_id = keep(ids);
            extra[i].bias = keep(bias);
        }
        if (asks & PENALTIES) {
            histories(rows, vocab, &seed);
            params->state = &state;
            for (raffle_extra &e : extra) e.repetition = 1.1f, e.frequency = 0.2f, e.presence = 0.3f;
        }
        if (asks & MASK) { /* seven of eight tokens */
            std::vector<uint32_t> allow(rows * ((vocab + 31) / 32));
            for (uint32_t &word : allow) word = (uint32_t)(random(&seed) | random(&seed) << 17 | random(&seed) << 9);
            params->allow = keep(allow);
        }
        params->extra = keep(extra);
        params->extra_bytes = sizeof(raffle_extra);
    }
    ~asked() {
        for (void *m : memory) CHECK(cudaFree(m));
    }
};

/* One route and shape, microseconds a call. `inputs` lie behind each other in `logits`. */
static double measure(const route &r, int dtype, int64_t rows, int64_t vocab, char *logits, int inputs, cudaStream_t stream) {
    raffle_plan_desc desc = desc_of(dtype, vocab, rows);
    if (r.probs) desc.input = RAFFLE_PROBS;
    if (r.top >= 0) desc.flags |= RAFFLE_PLAN_REPORT;
    if (r.asks) desc.flags |= RAFFLE_PLAN_EXTRA, desc.history_max = asked::HISTORY;
    planned p(desc, stream);
    std::vector<uint64_t> seed(rows), position(rows);
    for (int64_t i = 0; i < rows; ++i) seed[i] = 1000 + i;
    raffle_params params = raffle_params_init();
    float *temperature = to_device(std::vector<float>(rows, r.temperature));
    float *top_p = to_device(std::vector<float>(rows, r.top_p)), *min_p = to_device(std::vector<float>(rows, r.min_p));
    int32_t *top_k = to_device(std::vector<int32_t>(rows, r.top_k));
    uint64_t *seeds = to_device(seed), *positions = to_device(position);
    if (!r.probs) params.temperature = temperature; /* arrays that no row needs are left out, as engines do */
    if (r.top_p < 1.0f) params.top_p = top_p;
    if (r.min_p > 0.0f) params.min_p = min_p;
    if (r.top_k) params.top_k = top_k;
    params.seed = seeds;
    params.position = positions;
    params.flags = r.flags;
    const asked requests(r.asks, rows, vocab, &params);
    raffle_result result = raffle_result_init();
    CHECK(cudaMalloc(&result.token, rows * sizeof(int32_t)));
    raffle_report report = raffle_report_init();
    if (r.top >= 0) {
        report.top_count = r.top;
        CHECK(cudaMalloc(&report.chosen, rows * sizeof(float)));
        CHECK(cudaMalloc(&report.top_token, rows * (r.top + 1) * sizeof(int32_t)));
        CHECK(cudaMalloc(&report.top, rows * (r.top + 1) * sizeof(float)));
        result.report = &report;
    }
    std::vector<int32_t> from(rows);
    for (int64_t i = 0; i < rows; ++i) from[i] = (int32_t)(i / r.share);
    int32_t *const row_index = to_device(from);
    const double us = time_captured(stream, std::max(inputs, 20), [&](int i) {
        raffle_logits input = raffle_logits_init();
        input.data = logits + (i % inputs) * (size_t)(rows_of(r, rows) * vocab * bytes_of(dtype));
        input.rows = rows;
        if (r.share > 1) input.row_index = row_index, input.data_rows = rows_of(r, rows);
        must(raffle_sample(p.plan, &input, &params, &result, &p.launch, &p.error), p.error);
    });
    std::vector<int32_t> token(rows);
    CHECK(cudaMemcpy(token.data(), result.token, rows * sizeof(int32_t), cudaMemcpyDeviceToHost));
    for (int32_t t : token)
        if (t < 0 || t >= vocab) fprintf(stderr, "%s: token %d out of range\n", r.name, t), exit(1);
    for (void *q : {(void *)temperature, (void *)top_p, (void *)min_p, (void *)top_k, (void *)seeds, (void *)positions, (void *)result.token,
                    (void *)report.chosen, (void *)report.top_token, (void *)report.top, (void *)row_index})
        CHECK(cudaFree(q));
    return us;
}

int main(int argc, char **argv) {
    std::vector<int64_t> all_rows = {1, 8, 32, 64, 128, 160, 256, 512}, vocabs = {32000, 128256, 151936, 262144};
    std::vector<int> dtypes = {RAFFLE_BF16, RAFFLE_F32};
    const char *csv_name = nullptr, *only = "";
    for (int i = 1; i < argc; ++i) {
        if (!strcmp(argv[i], "--quick")) all_rows = {1, 8, 32, 128, 512}, vocabs = {128256};
        else if (!strcmp(argv[i], "--csv") && i + 1 < argc) csv_name = argv[++i];
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc) all_rows = {atoll(argv[++i])};
        else if (!strcmp(argv[i], "--vocab") && i + 1 < argc) vocabs = {atoll(argv[++i])};
        else if (!strcmp(argv[i], "--dtype") && i + 1 < argc) dtypes = {!strcmp(argv[++i], "f32") ? RAFFLE_F32 : RAFFLE_BF16};
        else if (!strcmp(argv[i], "--route") && i + 1 < argc) only = argv[++i];
        else return fprintf(stderr, "usage: bench_cuda [--quick] [--csv FILE] [--dtype bf16|f32] [--vocab N] [--rows N] [--route NAME]\n"), 2;
    }
    char why[112];
    if (!raffle_cuda_available(why, sizeof why)) return printf("skipped: %s\n", why), 0;
    cudaDeviceProp device;
    cudaStream_t stream;
    CHECK(cudaGetDeviceProperties(&device, 0));
    CHECK(cudaStreamCreate(&stream));
    const double bandwidth = copy_bandwidth(stream);
    const size_t spread = std::max<size_t>(3 * (size_t)device.l2CacheSize, 256u << 20), largest = 512ull * 262144 * 4;
    FILE *csv = csv_name ? fopen(csv_name, "w") : nullptr;
    if (csv) fprintf(csv, "dtype,vocab,rows,route,floor_us,cold_us,warm_us,target_us,launches\n");
    printf("%s, copy bandwidth %.2f TB/s; us per call of one launch, cold L2 (warm L2 in brackets); * misses its target\n",
           device.name, bandwidth * 1e-12);
    char *logits[2], *probs[2];
    for (int flat = 0; flat < 2; ++flat) CHECK(cudaMalloc(&logits[flat], largest + spread));
    for (int flat = 0; flat < 2; ++flat) CHECK(cudaMalloc(&probs[flat], largest + spread));
    int missed = 0, figures = 0;
    for (int dtype : dtypes)
        for (int64_t vocab : vocabs) {
            const size_t bytes = bytes_of(dtype);
            const int64_t filled = (int64_t)((largest + spread) / bytes / vocab);
            for (int flat = 0; flat < 2; ++flat) rows_fill(logits[flat], dtype, filled, vocab, flat);
            for (int flat = 0; flat < 2; ++flat) rows_softmax(logits[flat], dtype, probs[flat], dtype, filled, vocab, stream);
            printf("\n%s, vocab %lld\n%-31s", dtype == RAFFLE_F32 ? "f32" : "bf16", (long long)vocab, "rows");
            for (int64_t rows : all_rows) printf("%17lld", (long long)rows);
            printf("\n%-31s", "floor");
            for (int64_t rows : all_rows) printf("%17.2f", rows * vocab * bytes / bandwidth * 1e6);
            for (const route &r : routes) {
                if (!strstr(r.name, only)) continue;
                printf("\n%-31s", r.name);
                for (int64_t rows : all_rows) {
                    const size_t input = rows_of(r, rows) * vocab * bytes;
                    char *const data = (r.probs ? probs : logits)[r.flat];
                    const int inputs = (int)std::max<size_t>(1, std::min<size_t>({1024, spread / input + 1, (largest + spread) / input}));
                    double floor = input / bandwidth * 1e6;
                    double target = (dtype == RAFFLE_F32 ? r.factor_f32 : r.factor) * floor + r.offset;
                    double cold = measure(r, dtype, rows, vocab, data, inputs, stream);
                    double warm = measure(r, dtype, rows, vocab, data, 1, stream);
                    printf("%8.2f (%5.1f)%s", cold, warm, cold > target ? "*" : " ");
                    missed += cold > target;
                    figures += 1;
                    if (csv)
                        fprintf(csv, "%s,%lld,%lld,\"%s\",%.3f,%.3f,%.3f,%.3f,1\n", dtype == RAFFLE_F32 ? "f32" : "bf16",
                                (long long)vocab, (long long)rows, r.name, floor, cold, warm, target);
                }
                fflush(stdout);
            }
            printf("\n");
        }
    printf("\n%d of %d figures miss their target\n", missed, figures);
    if (csv) fclose(csv);
    return 0;
}
