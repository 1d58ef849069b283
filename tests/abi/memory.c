/* memory.c - only raffle_plan_create allocates, and it lives through every allocation that fails.
 * Linked with --wrap, so each call the library makes comes through here. */
#include <stdlib.h>

#include "common/test.h"
#include "raffle/raffle.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
int __real_posix_memalign(void **block, size_t align, size_t bytes);
void __real_free(void *block);

static long asked, live, fail_at = -1; /* the fail_at-th request from now on is refused */

static int granted(void) { return asked++ != fail_at; }
static void *counted(void *block) {
    live += block != NULL;
    return block;
}

void *__wrap_malloc(size_t bytes) { return granted() ? counted(__real_malloc(bytes)) : NULL; }
void *__wrap_calloc(size_t count, size_t bytes) { return granted() ? counted(__real_calloc(count, bytes)) : NULL; }
void *__wrap_aligned_alloc(size_t align, size_t bytes) {
    return granted() ? counted(__real_aligned_alloc(align, bytes)) : NULL;
}
void *__wrap_realloc(void *block, size_t bytes) {
    if (!granted()) return NULL;
    void *moved = __real_realloc(block, bytes);
    live += !block && moved;
    return moved;
}
int __wrap_posix_memalign(void **block, size_t align, size_t bytes) {
    if (!granted()) return 12; /* ENOMEM */
    int status = __real_posix_memalign(block, align, bytes);
    live += !status;
    return status;
}
void __wrap_free(void *block) {
    live -= block != NULL;
    __real_free(block);
}

static raffle_plan_desc desc_good(void) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = 1000;
    return desc;
}

TEST(every_allocation_fails_once) {
    raffle_plan_desc desc = desc_good();
    raffle_plan *plan = NULL;
    asked = live = 0;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_OK);
    long needed = asked;
    CHECK(needed > 0, "raffle_plan_create does not allocate: is --wrap in force?");
    raffle_plan_destroy(plan);
    CHECK_EQ(live, 0);
    for (long nth = 0; nth < needed; ++nth) {
        raffle_error error = raffle_error_init();
        plan = (raffle_plan *)&desc;
        asked = 0, fail_at = nth;
        CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), RAFFLE_E_MEMORY);
        fail_at = -1;
        CHECK(plan == NULL, "plan was not set to NULL");
        CHECK_EQ(error.status, RAFFLE_E_MEMORY);
        CHECK_EQ(error.row, -1);
        CHECK(strstr(error.text, "memory"), "\"%s\"", error.text);
        CHECK_EQ(live, 0); /* nothing leaks */
    }
}

TEST(refused_plans_leak_nothing) {
    raffle_plan_desc desc = desc_good();
    raffle_plan *plan;
    live = 0;
    desc.vocab = 0;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_E_ARGUMENT);
    desc = desc_good();
    desc.isa = raffle_isa_available(RAFFLE_ISA_NEON) ? RAFFLE_ISA_AVX2 : RAFFLE_ISA_NEON;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_E_UNSUPPORTED);
    CHECK_EQ(live, 0);
}

/* The hot path: whatever the parameters and however it ends, it neither takes nor gives memory. */
TEST(sample_and_explain_do_not_allocate) {
    enum { VOCAB = 1000, ROWS = 8 };
    static float data[ROWS * VOCAB], temperature[ROWS] = {0, 1, 1, 1, 1, 0.5f, 2, 1}, top_p[ROWS], min_p[ROWS];
    static int32_t top_k[ROWS], token[ROWS];
    static uint64_t seed[ROWS], position[ROWS];
    static raffle_candidate top[16];
    for (int i = 0; i < ROWS * VOCAB; ++i) data[i] = (float)(i * 7919 % 4001) * 0.002f;
    for (int i = 0; i < ROWS; ++i) {
        top_p[i] = i & 1 ? 0.9f : 1.0f;
        min_p[i] = i & 2 ? 0.05f : 0.0f;
        top_k[i] = i & 4 ? 50 : 0;
    }
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        raffle_plan_desc desc = desc_good();
        raffle_plan *plan = NULL;
        desc.dtype = dtype;
        CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_OK);
        raffle_logits logits = raffle_logits_init();
        raffle_params params = raffle_params_init();
        raffle_result result = raffle_result_init();
        raffle_launch launch = raffle_launch_init();
        raffle_error error = raffle_error_init();
        raffle_explanation explanation = raffle_explanation_init();
        explanation.top = top;
        explanation.top_count = 16;
        logits.data = data;
        logits.rows = ROWS;
        params.temperature = temperature;
        params.top_p = top_p;
        params.min_p = min_p;
        params.top_k = top_k;
        params.seed = seed;
        params.position = position;
        result.token = token;
        launch.workspace_bytes = raffle_plan_workspace(plan);
        launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);
        asked = live = 0;
        CHECK_STATUS(raffle_sample(plan, &logits, &params, &result, &launch, &error), RAFFLE_OK);
        CHECK_STATUS(raffle_explain(plan, &logits, &params, 3, &explanation, &launch, &error), RAFFLE_OK);
        temperature[5] = -1.0f;
        CHECK_STATUS(raffle_sample(plan, &logits, &params, &result, &launch, &error), RAFFLE_E_ARGUMENT);
        temperature[5] = 0.5f;
        char text[64];
        raffle_plan_describe(plan, text, sizeof text);
        CHECK_EQ(asked, 0);
        CHECK_EQ(live, 0);
        free(launch.workspace);
        raffle_plan_destroy(plan);
    }
}

int main(void) {
    RUN(every_allocation_fails_once);
    RUN(refused_plans_leak_nothing);
    RUN(sample_and_explain_do_not_allocate);
    return test_report("memory");
}
