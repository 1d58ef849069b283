/* draft.c - raffle_draft on the GPU draws the CPU's drafts, and keeps tokens and rows, byte for byte, where raffle_verify looks for them:
 * eager, captured with the verification behind it, and beyond 2^31 elements. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "gpu.h"

#include <sys/mman.h>

#include "../common/draft_loop.h"

static void *sent(const void *from, size_t bytes) {
    void *to = gpu_alloc(bytes + 64);
    CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    return to;
}
static void freed(const void *p) { CUDA(cudaFree((void *)p)); }
static void fetch(void *to, const void *from, size_t bytes) { CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost)); }

static raffle_plan *plan_open(int dtype, int64_t vocab, int64_t rows, raffle_launch *launch) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.backend = RAFFLE_CUDA;
    desc.dtype = dtype;
    desc.vocab = vocab;
    desc.rows_max = rows;
    MUST(raffle_plan_create(&desc, &plan, &must_error));
    *launch = raffle_launch_init();
    launch->workspace_bytes = raffle_plan_workspace(plan);
    launch->workspace = gpu_alloc(launch->workspace_bytes);
    gpu_fill(launch->workspace, 0, launch->workspace_bytes);
    return plan;
}
static void plan_close(raffle_plan *plan, const raffle_launch *launch) {
    raffle_plan_destroy(plan);
    freed(launch->workspace);
}

/* What a loop reads and writes on the GPU. */
typedef struct device_controls {
    float temperature[LOOP_REQUESTS], top_p[LOOP_REQUESTS], min_p[LOOP_REQUESTS];
    int32_t top_k[LOOP_REQUESTS], index[LOOP_REQUESTS], slot[LOOP_REQUESTS];
    uint64_t seed[LOOP_REQUESTS], position[LOOP_REQUESTS];
} device_controls;
typedef struct device_results {
    int32_t drawn[LOOP_EACH][LOOP_REQUESTS], guard, token[LOOP_DRAFTS], guard_too;
    uint32_t row_flags[LOOP_EACH][LOOP_REQUESTS];
    loop_verdict verdict;
} device_results;
typedef struct device_loop {
    const draft_loop *l;
    raffle_plan *plan;
    raffle_launch launch;
    device_controls *control;
    device_results *result;
    char *from, *step[LOOP_EACH], *kept, *target; /* from: where all steps' logits are sampled */
} device_loop;

static size_t target_bytes(const draft_loop *l) {
    return (size_t)(l->requests * (l->each + 1) * l->vocab * element_bytes(l->draft.dtype));
}

/* The content of the loop, and results that nobody has written. */
static void loop_send(const device_loop *d) {
    const draft_loop *l = d->l;
    device_controls c;
    memset(&c, 0, sizeof c);
    for (int64_t i = 0; i < l->requests; ++i) {
        c.temperature[i] = l->draft.temperature[i], c.top_p[i] = l->draft.top_p[i], c.min_p[i] = l->draft.min_p[i];
        c.top_k[i] = l->draft.top_k[i], c.index[i] = l->index[i], c.slot[i] = l->slot[i];
        c.seed[i] = l->draft.seed[i], c.position[i] = l->draft.position[i];
    }
    CUDA(cudaMemcpy(d->control, &c, sizeof c, cudaMemcpyHostToDevice));
    for (int64_t n = 0; n < l->each; ++n) CUDA(cudaMemcpy(d->step[n], l->step[n], l->from.bytes, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(d->target, l->target, target_bytes(l), cudaMemcpyHostToDevice));
    gpu_fill(d->kept, GUARD, l->to.bytes);
    gpu_fill(d->result, GUARD, sizeof *d->result);
}

static device_loop loop_open(const draft_loop *l) {
    device_loop d = {.l = l};
    d.plan = plan_open(l->draft.dtype, l->vocab, l->requests * (2 * l->each + 1), &d.launch);
    d.control = gpu_alloc(sizeof *d.control);
    d.result = gpu_alloc(sizeof *d.result);
    d.from = gpu_alloc(l->from.bytes);
    for (int64_t n = 0; n < l->each; ++n) d.step[n] = gpu_alloc(l->from.bytes);
    d.kept = gpu_alloc(l->to.bytes);
    d.target = gpu_alloc(target_bytes(l));
    loop_send(&d);
    return d;
}
static void loop_close(device_loop *d) {
    plan_close(d->plan, &d->launch);
    freed(d->control), freed(d->result), freed(d->from), freed(d->kept), freed(d->target);
    for (int64_t n = 0; n < d->l->each; ++n) freed(d->step[n]);
}

static raffle_params device_params(const device_loop *d, uint32_t step) {
    raffle_params p = loop_params(d->l, step);
    p.temperature = d->control->temperature, p.top_p = d->control->top_p, p.min_p = d->control->min_p, p.top_k = d->control->top_k;
    p.seed = d->control->seed, p.position = d->control->position;
    if (p.slot) p.slot = d->control->slot;
    return p;
}

/* The whole loop: each step's logits to the one place where drafts are drawn, its drafts; then what becomes of them. */
static void loop_enqueue(const device_loop *d) {
    const draft_loop *l = d->l;
    const raffle_drafted kept = loop_drafted(l, d->result->token, d->kept);
    for (uint32_t step = 1; step <= l->each; ++step) {
        const raffle_params params = device_params(d, step);
        raffle_logits logits = loop_logits(l, d->from);
        if (logits.row_index) logits.row_index = d->control->index;
        raffle_result result = raffle_result_init();
        result.token = d->result->drawn[step - 1];
        result.row_flags = d->result->row_flags[step - 1];
        CUDA(cudaMemcpyAsync(d->from, d->step[step - 1], l->from.bytes, cudaMemcpyDeviceToDevice, d->launch.stream));
        MUST(raffle_draft(d->plan, &logits, &params, &result, &kept, &d->launch, &must_error));
    }
    const raffle_params params = device_params(d, 0);
    MUST(loop_verify(l, d->plan, &d->launch, &params, d->target, &kept, &d->result->verdict, &must_error));
}

/* As the CPU, by hand. */
static void loop_check(const device_loop *d, const char *how) {
    const draft_loop *l = d->l;
    static device_results got;
    const size_t row = (size_t)l->requests * 4, targets = (size_t)(l->requests * (l->each + 1)) * 4;
    const int32_t guard = 0x5a5a5a5a;
    char *kept = test_alloc(l->to.bytes);
    CUDA(cudaDeviceSynchronize());
    fetch(&got, d->result, sizeof got);
    fetch(kept, d->kept, l->to.bytes);
    for (int64_t n = 0; n < l->each; ++n) {
        CHECK(!memcmp(got.drawn[n], l->drawn[n], row), "%s: step %lld draws other tokens", how, (long long)n);
        CHECK(!memcmp(got.row_flags[n], l->row_flags[n], row), "%s: step %lld has other flags", how, (long long)n);
    }
    CHECK(!memcmp(got.token, l->token, (size_t)(l->requests * l->each) * 4), "%s: other tokens were kept", how);
    CHECK(got.guard == guard && got.guard_too == guard, "%s: something beside the tokens was written", how);
    CHECK(!memcmp(kept, l->kept, l->to.bytes), "%s: other rows were kept, or something beside them written", how);
    runner run = runner_make(l->draft.dtype, l->vocab, RAFFLE_ISA_BEST);
    loop_verdict wanted;
    const raffle_params params = loop_params(l, 0);
    const raffle_drafted by_hand = loop_drafted(l, (int32_t *)l->token, l->kept);
    CHECK_STATUS(loop_verify(l, run.plan, &run.launch, &params, l->target, &by_hand, &wanted, NULL), RAFFLE_OK);
    CHECK(!memcmp(got.verdict.token, wanted.token, targets) && !memcmp(got.verdict.path, wanted.path, targets) &&
              !memcmp(got.verdict.row_flags, wanted.row_flags, targets) && !memcmp(got.verdict.accepted, wanted.accepted, row),
          "%s: verified otherwise", how);
    loop_verdict_check(l, &got.verdict);
    runner_free(run);
    free(kept);
}

TEST(as_the_cpu_by_hand) {
    NEED_GPU();
    test_random r = {1};
    for (int64_t i = 0; i < test_amount(400); ++i) {
        draft_loop *l = loop_make(&r, i % 4 ? 700 : 9000);
        device_loop d = loop_open(l);
        for (int again = 0; again < 2; ++again) {
            loop_enqueue(&d);
            loop_check(&d, again ? "again" : "eager");
        }
        loop_close(&d);
        loop_free(l);
    }
}

/* Drafts and verification are one graph, which serves whatever comes into its memory later. */
TEST(replays) {
    NEED_GPU();
    test_random r = {2};
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int64_t i = 0; i < test_amount(80); ++i) {
        draft_loop *l = loop_make(&r, 900);
        device_loop d = loop_open(l);
        cudaGraphExec_t exec;
        d.launch.stream = stream;
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        loop_enqueue(&d);
        gpu_capture_end(stream, &exec);
        for (int turn = 0; turn < 3; ++turn) {
            if (turn) loop_fill(l, &r), loop_send(&d);
            CUDA(cudaGraphLaunch(exec, stream));
            loop_check(&d, "replay");
        }
        CUDA(cudaGraphExecDestroy(exec));
        loop_close(&d);
        loop_free(l);
    }
    CUDA(cudaStreamDestroy(stream));
}

/* A row_index that is out of range costs its row its token; what is kept of it stays as it was. */
TEST(rows_that_are_not_there) {
    NEED_GPU();
    enum { VOCAB = 1000, ROWS = 3, EACH = 2 };
    static float data[ROWS * VOCAB], kept[ROWS * EACH * VOCAB], got[ROWS * EACH * VOCAB];
    const int32_t index[ROWS] = {ROWS, 1, -1};
    const uint64_t seed[ROWS] = {1, 2, 3};
    int32_t token[ROWS * EACH];
    raffle_launch launch;
    raffle_plan *const plan = plan_open(RAFFLE_F32, VOCAB, ROWS, &launch);
    for (int i = 0; i < ROWS; ++i) vector_row_make("normal", (uint64_t)i, VOCAB, RAFFLE_F32, data + i * VOCAB);
    for (int i = 0; i < ROWS * EACH * VOCAB; ++i) kept[i] = (float)i;
    raffle_logits logits = raffle_logits_init();
    logits.data = sent(data, sizeof data), logits.rows = ROWS, logits.row_index = sent(index, sizeof index);
    raffle_params params = raffle_params_init();
    params.seed = params.position = sent(seed, sizeof seed), params.draft_step = EACH;
    raffle_result result = raffle_result_init();
    result.token = gpu_alloc(ROWS * 4);
    raffle_drafted drafted = raffle_drafted_init();
    memset(token, 0, sizeof token);
    drafted.each = EACH, drafted.token = sent(token, sizeof token), drafted.logits = sent(kept, sizeof kept);
    MUST(raffle_draft(plan, &logits, &params, &result, &drafted, &launch, &must_error));
    CUDA(cudaDeviceSynchronize());
    fetch(token, drafted.token, sizeof token);
    fetch(got, drafted.logits, sizeof got);
    memcpy(kept + 3 * VOCAB, data + VOCAB, VOCAB * 4);
    CHECK(!memcmp(got, kept, sizeof got), "rows that nobody asked for were kept");
    CHECK(token[1] == RAFFLE_NO_TOKEN && token[5] == RAFFLE_NO_TOKEN && token[3] >= 0, "tokens %d %d %d", token[1], token[3], token[5]);
    CHECK(!token[0] && !token[2] && !token[4], "tokens of another step were written");
    freed(logits.data), freed(logits.row_index), freed(params.seed);
    freed(result.token), freed(drafted.token), freed(drafted.logits);
    plan_close(plan, &launch);
}

/* What the host refuses adds nothing to the stream. */
TEST(refused) {
    NEED_GPU();
    test_random r = {3};
    draft_loop *l = loop_make(&r, 300);
    l->tokens_alone = 0;
    device_loop d = loop_open(l);
    raffle_drafted kept = loop_drafted(l, d.result->token, d.kept);
    raffle_params params = device_params(&d, 1);
    raffle_logits logits = loop_logits(l, d.from);
    if (logits.row_index) logits.row_index = d.control->index;
    raffle_result result = raffle_result_init();
    raffle_error error = raffle_error_init();
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    d.launch.stream = stream;
    result.token = d.result->drawn[0];
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    kept.logits = (char *)kept.logits + 1;
    CHECK_STATUS(raffle_draft(d.plan, &logits, &params, &result, &kept, &d.launch, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "drafted.logits is not aligned"), "%s", error.text);
    kept.logits = (void *)logits.data;
    CHECK_STATUS(raffle_draft(d.plan, &logits, &params, &result, &kept, &d.launch, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "overlaps"), "%s", error.text);
    kept = loop_drafted(l, d.result->token, d.kept);
    params.draft_step = (uint32_t)l->each + 1;
    CHECK_STATUS(raffle_draft(d.plan, &logits, &params, &result, &kept, &d.launch, &error), RAFFLE_E_ARGUMENT);
    params.draft_step = 1, logits.rows = 0;
    CHECK_STATUS(raffle_draft(d.plan, &logits, &params, &result, &kept, &d.launch, &error), RAFFLE_OK);
    CHECK_EQ(gpu_capture_end(stream, NULL), 0);
    CUDA(cudaStreamDestroy(stream));
    loop_close(&d);
    loop_free(l);
}

/* Many rows, and few that are long: blocks share them in other ways. */
TEST(any_number_of_rows) {
    NEED_GPU();
    static const int64_t shape[][3] = {{1, 128256, 128256}, {3, 50257, 50264}, {700, 64, 64}, {2000, 17, 24}, {1, 1, 1}};
    for (int s = 0; s < 5; ++s) {
        enum { EACH = 2 };
        const int64_t rows = shape[s][0], vocab = shape[s][1], stride = shape[s][2];
        const size_t bytes = (size_t)(rows * vocab) * 2, kept_bytes = (size_t)(rows * EACH * stride) * 2;
        const size_t token_bytes = (size_t)rows * EACH * 4;
        uint16_t *data = host_alloc(bytes), *kept = host_alloc(kept_bytes), *wanted = host_alloc(kept_bytes);
        int32_t *token = host_alloc(token_bytes), *drawn = host_alloc((size_t)rows * 4);
        uint64_t *seed = host_alloc((size_t)rows * 8);
        for (int64_t i = 0; i < rows; ++i) {
            vector_row_make("normal", (uint64_t)i, vocab, RAFFLE_BF16, data + i * vocab);
            seed[i] = (uint64_t)i * 77;
        }
        raffle_launch launch;
        raffle_plan *const plan = plan_open(RAFFLE_BF16, vocab, rows, &launch);
        raffle_logits logits = raffle_logits_init();
        logits.data = sent(data, bytes), logits.rows = rows;
        raffle_params params = raffle_params_init();
        params.seed = params.position = sent(seed, (size_t)rows * 8), params.draft_step = EACH;
        raffle_result result = raffle_result_init();
        result.token = gpu_alloc((size_t)rows * 4);
        raffle_drafted drafted = raffle_drafted_init();
        drafted.each = EACH, drafted.token = gpu_alloc(token_bytes), drafted.logits = gpu_alloc(kept_bytes), drafted.row_stride = stride;
        gpu_fill(drafted.token, GUARD, token_bytes), gpu_fill(drafted.logits, GUARD, kept_bytes);
        MUST(raffle_draft(plan, &logits, &params, &result, &drafted, &launch, &must_error));
        CUDA(cudaDeviceSynchronize());
        fetch(kept, drafted.logits, kept_bytes), fetch(token, drafted.token, token_bytes), fetch(drawn, result.token, (size_t)rows * 4);
        memset(wanted, GUARD, kept_bytes);
        for (int64_t i = 0; i < rows; ++i) {
            memcpy(wanted + (i * EACH + 1) * stride, data + i * vocab, (size_t)vocab * 2);
            CHECK(token[i * EACH + 1] == drawn[i] && drawn[i] >= 0, "token of row %lld of %lld", (long long)i, (long long)rows);
            CHECK_EQ(token[i * EACH], 0x5a5a5a5a);
        }
        CHECK(!memcmp(kept, wanted, kept_bytes), "%lld rows of %lld tokens were not kept as they are", (long long)rows, (long long)vocab);
        freed(logits.data), freed(params.seed), freed(result.token);
        freed(drafted.token), freed(drafted.logits);
        plan_close(plan, &launch);
        free(data), free(kept), free(wanted), free(token), free(drawn), free(seed);
    }
}

/* Rows that are read, and rows that are kept, 2^31 elements apart. */
TEST(beyond_2_31_elements) {
    NEED_GPU();
    enum { VOCAB = 700, ROWS = 2, SIDE = 4096 };
    const int64_t stride = (1ll << 31) + 64;
    const size_t bytes = (size_t)(stride * (ROWS - 1) + 2 * SIDE) * 2;
    static uint16_t row[ROWS][VOCAB], got[VOCAB];
    static const uint64_t seed[ROWS] = {4, 5};
    size_t memory_free = 0, memory_all = 0;
    char *memory = NULL, *far = NULL;
    if (gpu_emulated()) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        far = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || far == MAP_FAILED) SKIP("needs 9 GB of addresses");
    } else {
        CUDA(cudaMemGetInfo(&memory_free, &memory_all));
        if (memory_free < 2 * bytes + ((size_t)1 << 30)) SKIP("needs 10 GB of GPU memory");
        memory = gpu_alloc(bytes), far = gpu_alloc(bytes);
    }
    for (int i = 0; i < ROWS; ++i) {
        vector_row_make("normal", (uint64_t)i, VOCAB, RAFFLE_BF16, row[i]);
        CUDA(cudaMemcpy(memory + i * stride * 2, row[i], sizeof row[i], cudaMemcpyDefault));
    }
    raffle_launch launch;
    raffle_plan *const plan = plan_open(RAFFLE_BF16, VOCAB, ROWS, &launch);
    raffle_logits logits = raffle_logits_init();
    logits.data = memory, logits.rows = ROWS, logits.row_stride = stride;
    raffle_params params = raffle_params_init();
    params.seed = params.position = sent(seed, sizeof seed), params.draft_step = 1;
    raffle_result result = raffle_result_init();
    result.token = gpu_alloc(ROWS * 4);
    raffle_drafted drafted = raffle_drafted_init();
    drafted.each = 1, drafted.token = result.token, drafted.row_stride = -stride;
    drafted.logits = far + stride * (ROWS - 1) * 2;
    MUST(raffle_draft(plan, &logits, &params, &result, &drafted, &launch, &must_error));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < ROWS; ++i) {
        CUDA(cudaMemcpy(got, (char *)drafted.logits - i * stride * 2, sizeof got, cudaMemcpyDefault));
        CHECK(!memcmp(got, row[i], sizeof got), "row %d", i);
    }
    freed(params.seed), freed(result.token);
    plan_close(plan, &launch);
    if (gpu_emulated()) munmap(memory, bytes), munmap(far, bytes);
    else freed(memory), freed(far);
}

int main(void) {
    gpu_start("cuda_draft", 120);
    RUN(as_the_cpu_by_hand);
    RUN(replays);
    RUN(rows_that_are_not_there);
    RUN(refused);
    RUN(any_number_of_rows);
    RUN(beyond_2_31_elements);
    return test_report("cuda_draft");
}
