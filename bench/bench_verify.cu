/* bench_verify.cu - raffle_verify on a GPU: 64 requests with 4 drafts, 128256 bf16 logits a row.
 *
 *   bench_verify
 *
 * Medians over graph replays; the inputs of a graph together are several times the L2. Drafts are drawn by raffle_sample from
 * the draft rows, which are the target rows with noise. floor = bytes of target and draft rows / copy bandwidth of this run. */
#include "timing.cuh"

enum { REQUESTS = 64, DRAFTS = 4, ROWS = REQUESTS * (DRAFTS + 1), DRAFT_ROWS = REQUESTS * DRAFTS, VOCAB = 128256, INPUTS = 3 };

struct way {
    const char *name;
    int method;
    float temperature, top_p;
    int top_k;
    int draft;             /* what is known of the drafts beside their tokens, of the below */
    bool plain;            /* drafts are drawn without filters */
    float noise;           /* draft rows: target rows and this much of a uniform number */
    double factor, offset; /* target: factor x floor + offset us; 0: none */
};
enum { TOKENS, LOGITS, PROBS }; /* PROBS: f32, the softmax of the logits */
static const way ways[] = {
    {"greedy", RAFFLE_REJECTION, 0.0f, 1.0f, 0, TOKENS, false, 0.0f, 1.15, 3},
    {"greedy, rejected", RAFFLE_REJECTION, 0.0f, 1.0f, 0, TOKENS, false, 20.0f, 1.15, 3},
    {"rejection, draft logits", RAFFLE_REJECTION, 0.8f, 1.0f, 0, LOGITS, false, 1.0f, 1.6, 8},
    {"rejection, rejected", RAFFLE_REJECTION, 0.8f, 1.0f, 0, LOGITS, false, 20.0f, 1.6, 8},
    {"draft probabilities", RAFFLE_REJECTION, 0.8f, 1.0f, 0, PROBS, false, 1.0f, 1.6, 8},
    {"top-k 50 top-p 0.9", RAFFLE_REJECTION, 0.8f, 0.9f, 50, LOGITS, false, 1.0f, 1.6, 8},
    {"top-k 50 top-p 0.9, target", RAFFLE_REJECTION, 0.8f, 0.9f, 50, LOGITS, true, 1.0f, 1.6, 8},
    {"the same, probabilities", RAFFLE_REJECTION, 0.8f, 0.9f, 50, PROBS, true, 1.0f, 1.6, 8},
    {"tokens alone", RAFFLE_REJECTION, 0.8f, 1.0f, 0, TOKENS, false, 1.0f, 0, 0},
    {"match", RAFFLE_MATCH, 0.8f, 1.0f, 0, TOKENS, false, 1.0f, 0, 0},
    {"block, draft logits", RAFFLE_BLOCK, 0.8f, 1.0f, 0, LOGITS, false, 1.0f, 0, 0},
};

/* Draft row i of every input: the target row it stands for, and noise. */
__global__ static void noisy(const __nv_bfloat16 *target, __nv_bfloat16 *draft, float noise) {
    const int64_t count = (int64_t)INPUTS * DRAFT_ROWS * VOCAB;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = i / VOCAB, from = row + row / DRAFTS; /* as many draft rows before it as requests have bonus rows */
        draft[i] = (__nv_bfloat16)((float)target[from * VOCAB + i % VOCAB] + noise * uniform(i + 77));
    }
}

static double measure(const way &w, const char *target, char *draft, char *probs, cudaStream_t stream, double *accepted) {
    planned p(desc_of(RAFFLE_BF16, VOCAB, ROWS + DRAFT_ROWS), stream);
    noisy<<<4096, 256>>>((const __nv_bfloat16 *)target, (__nv_bfloat16 *)draft, w.noise);
    CHECK(cudaDeviceSynchronize());
    if (w.draft == PROBS) rows_softmax(draft, RAFFLE_BF16, probs, RAFFLE_F32, INPUTS * DRAFT_ROWS, VOCAB, stream);
    std::vector<uint64_t> seed(REQUESTS);
    std::vector<int32_t> slot(DRAFT_ROWS);
    for (int i = 0; i < REQUESTS; ++i) seed[i] = 1000 + i;
    for (int i = 0; i < DRAFT_ROWS; ++i) slot[i] = i / DRAFTS;
    raffle_params params = raffle_params_init(), drawn;
    float *temperature = to_device(std::vector<float>(REQUESTS, w.temperature)), *top_p = to_device(std::vector<float>(REQUESTS, w.top_p));
    int32_t *top_k = to_device(std::vector<int32_t>(REQUESTS, w.top_k)), *slots = to_device(slot), *token[INPUTS], *out, *count;
    uint64_t *seeds = to_device(seed), *positions = to_device(std::vector<uint64_t>(REQUESTS, 0));
    params.temperature = temperature;
    params.top_p = top_p;
    params.top_k = top_k;
    params.seed = seeds;
    params.position = positions;
    raffle_params of_drafts = params;
    if (w.plain) of_drafts.top_k = NULL, of_drafts.top_p = NULL;
    drawn = of_drafts;
    drawn.slots = REQUESTS;
    drawn.slot = slots;
    drawn.draft_step = 1;
    raffle_logits rows[INPUTS], draft_rows[INPUTS];
    for (int i = 0; i < INPUTS; ++i) {
        rows[i] = draft_rows[i] = raffle_logits_init();
        rows[i].data = target + (size_t)i * ROWS * VOCAB * 2;
        rows[i].rows = ROWS;
        draft_rows[i].data = draft + (size_t)i * DRAFT_ROWS * VOCAB * 2;
        draft_rows[i].rows = DRAFT_ROWS;
        raffle_result result = raffle_result_init();
        CHECK(cudaMalloc(&token[i], DRAFT_ROWS * 4));
        result.token = token[i];
        must(raffle_sample(p.plan, &draft_rows[i], &drawn, &result, &p.launch, &p.error), p.error);
    }
    CHECK(cudaMalloc(&out, ROWS * 4));
    CHECK(cudaMalloc(&count, REQUESTS * 4));
    const double us = time_captured(stream, 4 * INPUTS, [&](int i) {
        raffle_drafts d = raffle_drafts_init();
        raffle_verified v = raffle_verified_init();
        d.method = w.method;
        d.requests = REQUESTS;
        d.each = DRAFTS;
        d.token = token[i % INPUTS];
        raffle_probabilities known = raffle_probabilities_init();
        known.data = (const float *)probs + (size_t)(i % INPUTS) * DRAFT_ROWS * VOCAB;
        known.rows = DRAFT_ROWS;
        if (w.draft == LOGITS) d.logits = &draft_rows[i % INPUTS], d.params = &of_drafts;
        if (w.draft == PROBS) d.probabilities = &known;
        v.token = out;
        v.accepted = count;
        must(raffle_verify(p.plan, &rows[i % INPUTS], &params, &d, &v, &p.launch, &p.error), p.error);
    });
    std::vector<int32_t> counts(REQUESTS);
    CHECK(cudaMemcpy(counts.data(), count, REQUESTS * 4, cudaMemcpyDeviceToHost));
    *accepted = 0.0;
    for (int32_t c : counts) *accepted += c / (double)REQUESTS;
    for (void *q : {(void *)temperature, (void *)top_p, (void *)top_k, (void *)slots, (void *)seeds, (void *)positions, (void *)out, (void *)count})
        CHECK(cudaFree(q));
    for (int32_t *q : token) CHECK(cudaFree(q));
    return us;
}

int main(void) {
    char why[112];
    if (!raffle_cuda_available(why, sizeof why)) return printf("skipped: %s\n", why), 0;
    cudaDeviceProp device;
    cudaStream_t stream;
    CHECK(cudaGetDeviceProperties(&device, 0));
    CHECK(cudaStreamCreate(&stream));
    const double bandwidth = copy_bandwidth(stream);
    char *target, *draft, *probs;
    CHECK(cudaMalloc(&target, (size_t)INPUTS * ROWS * VOCAB * 2));
    CHECK(cudaMalloc(&draft, (size_t)INPUTS * DRAFT_ROWS * VOCAB * 2));
    CHECK(cudaMalloc(&probs, (size_t)INPUTS * DRAFT_ROWS * VOCAB * 4));
    rows_fill(target, RAFFLE_BF16, INPUTS * ROWS, VOCAB, false);
    int missed = 0, figures = 0;
    printf("%s, copy bandwidth %.2f TB/s; %d requests with %d drafts, %d bf16 logits a row; us per call of one or two launches\n", device.name,
           bandwidth * 1e-12, REQUESTS, DRAFTS, VOCAB);
    printf("%-26s%10s%10s%10s%12s\n", "", "floor", "time", "target", "accepted");
    for (const way &w : ways) {
        double accepted;
        const int of_draft = w.draft == PROBS ? 4 : w.draft == LOGITS ? 2 : 0; /* bytes */
        const double floor = (ROWS * 2 + DRAFT_ROWS * of_draft) * (double)VOCAB / bandwidth * 1e6;
        const double us = measure(w, target, draft, probs, stream, &accepted), wanted = w.factor * floor + w.offset;
        printf("%-26s%10.2f%10.2f", w.name, floor, us);
        if (w.factor > 0) printf("%10.2f%c", wanted, us > wanted ? '*' : ' ');
        else printf("%11s", "");
        printf("%11.2f\n", accepted);
        missed += w.factor > 0 && us > wanted;
        figures += w.factor > 0;
    }
    printf("%d of %d figures miss their target (*)\n", missed, figures);
    return 0;
}
