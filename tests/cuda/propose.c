/* propose.c - raffle_verify where masses are estimates (src/cuda/verify_propose.cuh): drafts next to the chance that accepts them, and tokens that
 * are proposed in their place, next to a border of their draw, to the chance that keeps them, or never kept. Of each request one draft; every
 * answer is the CPU's. */
#include "gpu.h"

#include <math.h>

#include "../common/batch.h"
#include "../common/borders.h"

enum { PROPOSE = 4 }; /* the stream of proposals */
#define ONES UINT64_MAX

/* A batch: two target rows and a draft row a request. */
typedef struct trial {
    int dtype;
    int64_t vocab, requests;
    char *target, *draft; /* draft NULL: probabilities */
    float *probabilities; /* [requests, vocab] */
    int32_t *token, *first; /* first: NULL, or where requests' drafts begin */
    float *temperature;
    int32_t *top_k; /* of target rows */
    uint64_t *seed, *position, *accept;
    raffle_plan *cpu, *gpu;
    void *cpu_space, *gpu_space;
} trial;

typedef struct verdicts {
    int32_t *token, *accepted;
} verdicts;

static char *target_row(const trial *t, int64_t i) { return t->target + i * t->vocab * element_bytes(t->dtype); }

static oracle_case case_of(const trial *t, int64_t request) {
    oracle_case c = {.row = target_row(t, 2 * request), .dtype = t->dtype, .vocab = t->vocab, .top_p = 1, .temperature = t->temperature[request],
                     .seed = t->seed[request], .position = t->position[request]};
    return c;
}

static raffle_plan *plan_of(const trial *t, int backend, size_t *bytes) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan = NULL;
    desc.backend = backend;
    desc.dtype = t->dtype;
    desc.vocab = t->vocab;
    desc.rows_max = 3 * t->requests;
    raffle_error error = raffle_error_init();
    CHECK(raffle_plan_create(&desc, &plan, &error) == RAFFLE_OK, "%s", error.text);
    *bytes = raffle_plan_workspace(plan);
    return plan;
}

/* As many requests as have estimates on this GPU (ABOUT_GROUPS of run.cu). */
static trial trial_make(int dtype, int64_t vocab, int by_logits) {
    int processors = 0;
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    trial t = {.dtype = dtype, .vocab = vocab, .requests = (int64_t)120 * processors / (vocab / 256) / 3 + 1};
    const size_t row = (size_t)(vocab * element_bytes(dtype)), count = (size_t)t.requests;
    static const char *const kinds[] = {"normal", "flat", "normal", "ascending", "peaked"};
    size_t bytes;
    t.target = malloc(2 * count * row);
    t.draft = by_logits ? malloc(count * row) : NULL;
    t.probabilities = by_logits ? NULL : malloc(count * (size_t)vocab * sizeof *t.probabilities);
    t.token = malloc(count * sizeof *t.token);
    t.temperature = malloc(count * sizeof *t.temperature);
    t.top_k = calloc(count, sizeof *t.top_k);
    t.seed = malloc(count * sizeof *t.seed);
    t.position = malloc(count * sizeof *t.position);
    t.accept = malloc(2 * count * sizeof *t.accept);
    for (int64_t i = 0; i < t.requests; ++i) {
        for (int n = 0; n < 2; ++n) vector_row_make(kinds[i % 5], (uint64_t)(i + n), vocab, dtype, target_row(&t, 2 * i + n));
        if (by_logits) vector_row_make(kinds[(i + 1) % 3], (uint64_t)i + 500, vocab, dtype, t.draft + (size_t)i * row);
        t.token[i] = (int32_t)((i * 7919 + 11) % vocab);
        t.temperature[i] = i % 3 ? 1.0f : 0.7f;
        t.seed[i] = (uint64_t)i + 3;
        t.position[i] = 100;
        t.accept[2 * i] = t.accept[2 * i + 1] = ONES;
    }
    t.cpu = plan_of(&t, RAFFLE_CPU, &bytes);
    t.cpu_space = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, (bytes + RAFFLE_WORKSPACE_ALIGN - 1) / RAFFLE_WORKSPACE_ALIGN * RAFFLE_WORKSPACE_ALIGN);
    t.gpu = plan_of(&t, RAFFLE_CUDA, &bytes);
    t.gpu_space = gpu_alloc(bytes);
    gpu_fill(t.gpu_space, 0, bytes);
    return t;
}

static void trial_free(trial *t) {
    raffle_plan_destroy(t->cpu);
    raffle_plan_destroy(t->gpu);
    CUDA(cudaFree(t->gpu_space));
    free(t->target), free(t->draft), free(t->probabilities), free(t->token), free(t->temperature), free(t->seed), free(t->position);
    free(t->accept), free(t->cpu_space), free(t->top_k), free(t->first);
}

/* Verifies with these pointers, which are of one side. */
static void verify_with(const trial *t, raffle_plan *plan, void *space, void *const p[10], verdicts to) {
    raffle_logits logits = raffle_logits_init(), draft_logits = raffle_logits_init();
    raffle_params params = raffle_params_init(), draft_params;
    raffle_probabilities known = raffle_probabilities_init();
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    raffle_launch launch = raffle_launch_init();
    raffle_error error = raffle_error_init();
    logits.data = p[0];
    logits.rows = 2 * t->requests;
    params.temperature = p[3];
    params.seed = p[4];
    params.position = p[5];
    draft_params = params;
    params.top_k = p[8];
    drafts.method = RAFFLE_REJECTION;
    drafts.requests = t->requests;
    drafts.each = p[9] ? 0 : 1;
    drafts.first = p[9];
    drafts.token = p[2];
    drafts.accept_bits = p[6];
    if (t->draft) {
        draft_logits.data = p[1];
        draft_logits.rows = t->requests;
        drafts.logits = &draft_logits;
        drafts.params = &draft_params;
    } else {
        known.data = p[7];
        known.rows = t->requests;
        drafts.probabilities = &known;
    }
    verified.token = to.token;
    verified.accepted = to.accepted;
    launch.workspace = space;
    launch.workspace_bytes = raffle_plan_workspace(plan);
    CHECK(raffle_verify(plan, &logits, &params, &drafts, &verified, &launch, &error) == RAFFLE_OK, "%s", error.text);
}

static void verify_cpu(const trial *t, verdicts to) {
    void *const p[10] = {t->target, t->draft, t->token, t->temperature, t->seed, t->position, t->accept, t->probabilities, t->top_k, t->first};
    verify_with(t, t->cpu, t->cpu_space, p, to);
}

static void *sent(const void *from, size_t bytes) {
    void *to = from ? gpu_alloc(bytes) : NULL;
    if (from) CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    return to;
}

static verdicts verdicts_make(const trial *t) {
    verdicts v = {malloc(2 * (size_t)t->requests * sizeof *v.token), malloc((size_t)t->requests * sizeof *v.accepted)};
    return v;
}
static void verdicts_free(verdicts v) { free(v.token), free(v.accepted); }

/* The GPU's answers, which must be the CPU's. */
static void compare(const trial *t, const char *what) {
    const size_t count = (size_t)t->requests, row = (size_t)(t->vocab * element_bytes(t->dtype));
    verdicts wanted = verdicts_make(t), got = verdicts_make(t);
    void *p[10] = {sent(t->target, 2 * count * row), sent(t->draft, count * row), sent(t->token, count * 4), sent(t->temperature, count * 4),
                  sent(t->seed, count * 8), sent(t->position, count * 8), sent(t->accept, count * 16),
                  sent(t->probabilities, count * (size_t)t->vocab * 4), sent(t->top_k, count * 4), sent(t->first, (count + 1) * 4)};
    const verdicts device = {gpu_alloc(count * 8), gpu_alloc(count * 4)};
    verify_cpu(t, wanted);
    verify_with(t, t->gpu, t->gpu_space, p, device);
    CUDA(cudaMemcpy(got.token, device.token, count * 8, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(got.accepted, device.accepted, count * 4, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < t->requests; ++i)
        CHECK(got.accepted[i] == wanted.accepted[i] && !memcmp(got.token + 2 * i, wanted.token + 2 * i, 8),
              "%s, dtype %d, %lld tokens, request %lld: %d drafts, then %d, not %d and %d", what, t->dtype, (long long)t->vocab, (long long)i,
              got.accepted[i], got.token[2 * i + got.accepted[i]], wanted.accepted[i], wanted.token[2 * i + wanted.accepted[i]]);
    for (int i = 0; i < 10; ++i)
        if (p[i]) CUDA(cudaFree(p[i]));
    CUDA(cudaFree(device.token));
    CUDA(cudaFree(device.accepted));
    verdicts_free(wanted), verdicts_free(got);
}

/* Drafts whose bits are the last that accept, and those around them. */
static void next_to_ratios(int dtype, int64_t vocab) {
    static const int64_t beside[] = {0, 1, -1, 1ll << 41, -(1ll << 41), 1ll << 44, -(1ll << 44), 1ll << 46, -(1ll << 46), 1ll << 48};
    trial t = trial_make(dtype, vocab, 1);
    verdicts v = verdicts_make(&t);
    uint64_t *low = calloc((size_t)t.requests, sizeof *low);
    int64_t within = 0;
    for (int bit = 63; bit >= 0; --bit) { /* the largest that accept */
        for (int64_t i = 0; i < t.requests; ++i) t.accept[2 * i] = low[i] | 1ull << bit;
        verify_cpu(&t, v);
        for (int64_t i = 0; i < t.requests; ++i)
            if (v.accepted[i]) low[i] |= 1ull << bit;
    }
    for (int64_t i = 0; i < t.requests; ++i) within += low[i] && low[i] != ONES;
    CHECK(within > t.requests / 8, "%lld of %lld drafts are neither always accepted nor never", (long long)within, (long long)t.requests);
    for (int n = 0; n < (int)(sizeof beside / sizeof *beside); ++n) {
        for (int64_t i = 0; i < t.requests; ++i) t.accept[2 * i] = low[i] + (uint64_t)beside[n];
        compare(&t, "next to its ratio");
    }
    free(low);
    verdicts_free(v);
    trial_free(&t);
}

/* Proposals whose draws are nearest to a border, and then the next. */
static void next_to_borders(int dtype, int64_t vocab, int tokens) {
    enum { NEAREST = 3 };
    trial t = trial_make(dtype, vocab, 1);
    uint64_t(*position)[NEAREST] = calloc((size_t)t.requests, sizeof *position);
    for (int64_t i = 0; i < t.requests; ++i) {
        const oracle_case c = case_of(&t, i);
        borders_find(&c, PROPOSE, tokens, 0, tokens ? 200000 : 1000000, position[i], NEAREST);
    }
    for (int n = 0; n < NEAREST; ++n) {
        for (int64_t i = 0; i < t.requests; ++i) t.position[i] = position[i][n];
        compare(&t, tokens ? "next to a token" : "next to a border");
    }
    free(position);
    trial_free(&t);
}

/* The row of probabilities that a request's draft was drawn from: the target's own. */
static void as_the_target(const trial *t, int64_t request, float *p) {
    const oracle_case c = case_of(t, request);
    float most = -INFINITY;
    double sum = 0.0;
    oracle_logits(&c, p);
    for (int64_t i = 0; i < t->vocab; ++i) most = fmaxf(most, p[i]);
    for (int64_t i = 0; i < t->vocab; ++i) sum += exp(((double)p[i] - (double)most) / (double)c.temperature);
    for (int64_t i = 0; i < t->vocab; ++i) p[i] = (float)(exp(((double)p[i] - (double)most) / (double)c.temperature) / sum);
}

/* The first proposal's chance in the draft is what just keeps it, or just not; other tokens' are the target's. */
static void next_to_chances(int dtype, int64_t vocab) {
    static const int beside[] = {0, 1, -1, 3, -3, 10, -10, 40, -40, 200};
    trial t = trial_make(dtype, vocab, 0);
    verdicts v = verdicts_make(&t);
    int64_t *first = calloc((size_t)t.requests, sizeof *first), within = 0;
    uint32_t *low = calloc((size_t)t.requests, sizeof *low), *high = calloc((size_t)t.requests, sizeof *high);
    for (int64_t i = 0; i < t.requests; ++i) {
        const oracle_case c = case_of(&t, i);
        const borders b = borders_make(&c);
        uint64_t inside;
        as_the_target(&t, i, t.probabilities + i * vocab);
        borders_distance(&b, PROPOSE, c.seed, c.position, &inside, &first[i]);
        memcpy(&high[i], t.probabilities + i * vocab + first[i], 4);
        t.token[i] = (int32_t)((first[i] + 1 + i) % vocab);
        borders_free(b);
    }
    for (int step = 0; step < 32; ++step) { /* the largest with which it is kept, by the bits of floats */
        for (int64_t i = 0; i < t.requests; ++i) {
            const uint32_t middle = low[i] + (high[i] - low[i]) / 2;
            memcpy(t.probabilities + i * vocab + first[i], &middle, 4);
        }
        verify_cpu(&t, v);
        for (int64_t i = 0; i < t.requests; ++i) {
            const uint32_t middle = low[i] + (high[i] - low[i]) / 2;
            if (!v.accepted[i] && v.token[2 * i] == first[i]) low[i] = middle;
            else high[i] = middle;
        }
    }
    for (int64_t i = 0; i < t.requests; ++i) within += low[i] > 1000;
    CHECK(within > t.requests / 4, "%lld of %lld proposals are kept or not", (long long)within, (long long)t.requests);
    for (int n = 0; n < (int)(sizeof beside / sizeof *beside); ++n) {
        for (int64_t i = 0; i < t.requests; ++i) {
            const uint32_t bits = low[i] > 1000 ? low[i] + (uint32_t)beside[n] : low[i];
            memcpy(t.probabilities + i * vocab + first[i], &bits, 4);
        }
        compare(&t, "next to its chance");
    }
    free(first), free(low), free(high);
    verdicts_free(v);
    trial_free(&t);
}

/* Hardly anything is left over: the draft's row is the target's, but for the draft. No proposal is kept then. */
static void never_kept(int dtype, int64_t vocab) {
    trial t = trial_make(dtype, vocab, 0);
    for (int64_t i = 0; i < t.requests; ++i) {
        float *p = t.probabilities + i * vocab;
        as_the_target(&t, i, p);
        p[t.token[i]] = p[t.token[i]] * 1.01f + 1e-7f;
    }
    compare(&t, "never kept");
    trial_free(&t);
}

/* Rows among the others that no estimate suits: of a temperature that is too low for the usual references, or with an infinite logit; and drafts
 * without a filter beside target rows with one. */
static void among_others(int dtype, int64_t vocab) {
    trial t = trial_make(dtype, vocab, 1);
    const uint16_t infinite = dtype == RAFFLE_BF16 ? 0x7f80 : 0x7c00;
    for (int64_t i = 0; i < t.requests; ++i) {
        if (i % 4 == 0) t.temperature[i] = 0.0007f;
        if (i % 4 == 1) memcpy(target_row(&t, 2 * i) + 2 * (i % vocab), &infinite, 2);
        if (i % 4 == 2) memcpy(t.draft + 2 * (i * vocab + (i + 5) % vocab), &infinite, 2);
        if (i % 4 == 3) t.top_k[i] = 40;
    }
    for (int n = 0; n < 4; ++n) {
        for (int64_t i = 0; i < t.requests; ++i) t.position[i] += (uint64_t)n;
        compare(&t, "among others");
    }
    trial_free(&t);
}

/* Batches in which all is greedy, which the second kernel leaves at once, and others, by turns in one workspace. */
static void greedy_by_turns(int dtype, int64_t vocab) {
    trial t = trial_make(dtype, vocab, 1);
    for (int n = 0; n < 10; ++n) {
        if (n == 6) { /* counters of requests with offsets are made ready by the second kernel */
            t.first = malloc((size_t)(t.requests + 1) * sizeof *t.first);
            for (int64_t i = 0; i <= t.requests; ++i) t.first[i] = (int32_t)i;
        }
        for (int64_t i = 0; i < t.requests; ++i) {
            t.temperature[i] = n % 2 ? (i % 5 ? 1.0f : 0.0f) : i % 3 ? 0.0f : 1e-6f;
            t.top_k[i] = n == 4 ? 1 : n == 5 ? 30 : 0;
            if (n == 4) t.temperature[i] = 1.0f; /* greedy by top-k */
            t.position[i] += 1;
        }
        compare(&t, n % 2 ? "some greedy" : "all greedy");
    }
    trial_free(&t);
}

static const int64_t vocabs[] = {4097 * 4 + 3, 32000, 128256};
#define EACH_BATCH(call)                                                                                               \
    for (int i = 0; i < (gpu_quick() ? 1 : 3); ++i)                                                                    \
        for (int dtype = RAFFLE_F16; dtype <= RAFFLE_BF16; ++dtype) call

TEST(drafts_next_to_their_ratio) {
    NEED_GPU();
    EACH_BATCH(next_to_ratios(dtype, vocabs[i]));
}
TEST(proposals_next_to_borders) {
    NEED_GPU();
    EACH_BATCH(next_to_borders(dtype, vocabs[i], 0));
}
TEST(proposals_next_to_tokens) {
    NEED_GPU();
    EACH_BATCH(next_to_borders(dtype, vocabs[i], 1));
}
TEST(proposals_next_to_their_chance) {
    NEED_GPU();
    EACH_BATCH(next_to_chances(dtype, vocabs[i]));
}
TEST(rows_that_are_not_estimated) {
    NEED_GPU();
    EACH_BATCH(among_others(dtype, vocabs[i]));
}
TEST(all_greedy_by_turns) {
    NEED_GPU();
    EACH_BATCH(greedy_by_turns(dtype, vocabs[i]));
}
TEST(proposals_never_kept) {
    NEED_GPU();
    EACH_BATCH(never_kept(dtype, vocabs[i]));
    never_kept(RAFFLE_F32, 4097);
}

int main(void) {
    gpu_start("cuda_propose", 240);
    RUN(drafts_next_to_their_ratio);
    RUN(proposals_next_to_borders);
    RUN(proposals_next_to_tokens);
    RUN(proposals_next_to_their_chance);
    RUN(rows_that_are_not_estimated);
    RUN(all_greedy_by_turns);
    RUN(proposals_never_kept);
    return test_report("cuda_propose");
}
