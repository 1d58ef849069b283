/* installed.c - a program of a user: built by tests/tools/install.py against the installed package. */
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    static const float logits_data[5] = {0.5f, 2.0f, -1.0f, 9.0f, 3.0f};
    const uint64_t seed = 1, position = 0;
    const float temperature = 0.0f;
    int32_t token = RAFFLE_NO_TOKEN;
    raffle_error error = raffle_error_init();
    raffle_plan *plan;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = 5;
    if (raffle_plan_create(&desc, &plan, &error)) return puts(error.text), 1;
    raffle_logits logits = raffle_logits_init();
    logits.data = logits_data;
    logits.rows = 1;
    raffle_params params = raffle_params_init();
    params.temperature = &temperature;
    params.seed = &seed;
    params.position = &position;
    raffle_result result = raffle_result_init();
    result.token = &token;
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);
    if (raffle_sample(plan, &logits, &params, &result, &launch, &error)) return puts(error.text), 1;
    printf("%u.%u.%u token %d\n", raffle_version() / 10000, raffle_version() / 100 % 100, raffle_version() % 100, token);
    free(launch.workspace);
    raffle_plan_destroy(plan);
    return 0;
}
