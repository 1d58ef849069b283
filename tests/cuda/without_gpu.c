/* without_gpu.c - where there is no driver or no GPU, a CUDA plan is refused with a sentence and the CPU works on. */
#include <stdlib.h>

#include "../common/test.h"

#include "raffle/raffle.h"

static int gpu_present(void) { return raffle_cuda_available(NULL, 0); }

static raffle_plan_desc desc_make(raffle_backend backend) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.backend = backend;
    desc.vocab = 1000;
    desc.rows_max = 4;
    return desc;
}

TEST(plan_is_refused) {
    if (gpu_present()) SKIP("a GPU is present");
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        raffle_plan *plan = (raffle_plan *)&plan;
        raffle_error error = raffle_error_init();
        raffle_plan_desc desc = desc_make(RAFFLE_CUDA);
        desc.dtype = dtype;
        CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), RAFFLE_E_DEVICE);
        CHECK_EQ(error.status, RAFFLE_E_DEVICE);
        CHECK_EQ(error.row, -1);
        CHECK(!plan, "a plan was made");
        CHECK(strlen(error.text) > 10, "the sentence is \"%s\"", error.text);
        CHECK(memchr(error.text, 0, sizeof error.text), "the sentence does not end");
        CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_E_DEVICE);
        if (!dtype) printf("     raffle_plan_create says: %s\n", error.text);
    }
}

TEST(the_reason_is_told) {
    if (gpu_present()) SKIP("a GPU is present");
    char why[112], little[8];
    memset(why, 'x', sizeof why);
    memset(little, 'x', sizeof little);
    CHECK_EQ(raffle_cuda_available(why, sizeof why), 0);
    CHECK(memchr(why, 0, sizeof why) && strlen(why) > 10, "no sentence");
    CHECK_EQ(raffle_cuda_available(little, 4), 0);
    CHECK(strlen(little) == 3 && little[4] == 'x', "it does not fit its room");
    CHECK_EQ(raffle_cuda_available(NULL, 0), 0);
    raffle_error error = raffle_error_init();
    raffle_plan *plan;
    raffle_plan_desc desc = desc_make(RAFFLE_CUDA);
    raffle_plan_create(&desc, &plan, &error);
    CHECK(!strcmp(error.text, why), "\"%s\" is not \"%s\"", error.text, why);
}

/* What is wrong with the wish itself comes first. */
TEST(arguments_are_checked_first) {
    if (gpu_present()) SKIP("a GPU is present");
    raffle_plan *plan;
    raffle_plan_desc desc = desc_make(RAFFLE_CUDA);
    desc.rows_max = 0;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_E_ARGUMENT);
    desc = desc_make(RAFFLE_CUDA);
    desc.isa = RAFFLE_ISA_SCALAR;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_E_ARGUMENT);
}

/* Slots in device memory: refused with the sentence of a plan, after what is wrong with the call itself. */
TEST(slots_are_refused) {
    if (gpu_present()) SKIP("a GPU is present");
    char why[112];
    raffle_error error = raffle_error_init();
    raffle_state state = raffle_state_init();
    state.backend = RAFFLE_CUDA;
    state.slots = 3;
    state.history_max = 10;
    state.vocab = 100;
    const size_t bytes = raffle_state_bytes(&state);
    unsigned char *memory = (unsigned char *)aligned_alloc(64, bytes);
    memset(memory, 0xa5, bytes);
    state.memory = memory;
    raffle_cuda_available(why, sizeof why);
    CHECK_STATUS(raffle_state_clear(&state, NULL, &error), RAFFLE_E_DEVICE);
    CHECK(!strcmp(error.text, why), "\"%s\" is not \"%s\"", error.text, why);
    const int32_t token[3] = {1, 2, 3};
    raffle_status (*const change[])(const raffle_state *, const raffle_tokens *, raffle_error *) = {
        raffle_state_prompt, raffle_state_accept, raffle_state_truncate, raffle_state_reset, raffle_state_fork};
    for (size_t i = 0; i < sizeof change / sizeof *change; ++i) {
        raffle_tokens tokens = raffle_tokens_init();
        error = raffle_error_init();
        tokens.token = tokens.count = token;
        tokens.rows = 3;
        CHECK_STATUS(change[i](&state, &tokens, &error), RAFFLE_E_DEVICE);
        CHECK(!strcmp(error.text, why), "\"%s\" is not \"%s\"", error.text, why);
        tokens.rows = 4;
        CHECK_STATUS(change[i](&state, &tokens, &error), RAFFLE_E_ARGUMENT);
        tokens.rows = 0;
        CHECK_STATUS(change[i](&state, &tokens, NULL), RAFFLE_OK);
    }
    for (size_t i = 0; i < bytes; ++i)
        if (memory[i] != 0xa5) CHECK(0, "byte %zu was written", i);
    free(memory);
}

/* A refused CUDA plan leaves the CPU as it was. */
TEST(the_cpu_works_on) {
    enum { VOCAB = 1000 };
    raffle_plan *plan;
    raffle_plan_desc desc = desc_make(RAFFLE_CUDA);
    if (!raffle_plan_create(&desc, &plan, NULL)) raffle_plan_destroy(plan);
    desc.backend = RAFFLE_CPU;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_OK);
    if (!plan) return;
    float row[VOCAB] = {0};
    row[77] = 50.0f;
    const float temperature = 1.0f;
    const uint64_t seed = 1, position = 2;
    raffle_logits logits = raffle_logits_init();
    logits.data = row;
    logits.rows = 1;
    raffle_params params = raffle_params_init();
    params.temperature = &temperature;
    params.seed = &seed;
    params.position = &position;
    int32_t token = -2;
    raffle_result result = raffle_result_init();
    result.token = &token;
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(64, (launch.workspace_bytes + 63) / 64 * 64);
    CHECK_STATUS(raffle_sample(plan, &logits, &params, &result, &launch, NULL), RAFFLE_OK);
    CHECK_EQ(token, 77);
    free(launch.workspace);
    raffle_plan_destroy(plan);
}

int main(void) {
    RUN(plan_is_refused);
    RUN(the_reason_is_told);
    RUN(arguments_are_checked_first);
    RUN(slots_are_refused);
    RUN(the_cpu_works_on);
    return test_report("cuda_without_gpu");
}
