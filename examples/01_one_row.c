/* 01_one_row.c - the whole library in one program: a row of logits in, a token out.
 *
 *     cc 01_one_row.c -lraffle -o one_row && ./one_row
 */
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    /* What a model says about five words. */
    static const char *const word[] = {"tea", "coffee", "water", "soup", "petrol"};
    static const float logits_row[] = {2.0f, 2.5f, 1.0f, 0.5f, -9.0f};

    /* 1. A plan: the shape of the rows, made once. */
    raffle_error error = raffle_error_init();
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = 5;
    if (raffle_plan_create(&desc, &plan, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }

    /* 2. Scratch memory, which is yours. */
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);

    /* 3. What to draw from, and how. */
    const float temperature = 0.7f, top_p = 0.9f;
    const uint64_t seed = 42;
    uint64_t position = 0; /* one further for every token of a text */
    int32_t token;
    raffle_logits logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_result result = raffle_result_init();
    logits.data = logits_row;
    logits.rows = 1;
    params.temperature = &temperature;
    params.top_p = &top_p;
    params.seed = &seed;
    params.position = &position;
    result.token = &token;

    /* 4. Draw, as often as you like. */
    int drawn[5] = {0};
    for (; position < 1000; ++position) {
        if (raffle_sample(plan, &logits, &params, &result, &launch, &error)) {
            fprintf(stderr, "%s\n", error.text);
            return 1;
        }
        drawn[token]++;
    }
    for (int i = 0; i < 5; ++i) printf("%-7s %4d of 1000\n", word[i], drawn[i]);

    free(launch.workspace);
    raffle_plan_destroy(plan);

    /* Top-p 0.9 leaves the likeliest three here, and in the order of their logits. */
    return drawn[1] > drawn[0] && drawn[0] > drawn[2] && drawn[2] > 0 && drawn[3] + drawn[4] == 0 ? 0 : 1;
}
