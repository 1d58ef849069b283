/* 02_batch_params.c - a batch in which every request has its own parameters, kept in a pool of slots.
 *
 * An engine gives a request a slot when it arrives and leaves its parameters there. Each step only says which
 * slot a row belongs to, so nothing is moved when requests come and go.
 */
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 1000, SLOTS = 4, ROWS = 3 };

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

int main(void) {
    /* Slot:                      0: creative  1: greedy  2: free     3: careful */
    float temperature[SLOTS] = {1.2f, 0.0f, 1.0f, 0.7f};
    float top_p[SLOTS] = {1.0f, 1.0f, 1.0f, 0.9f};
    float min_p[SLOTS] = {0.05f, 0.0f, 0.0f, 0.0f};
    int32_t top_k[SLOTS] = {0, 0, 0, 50};
    uint64_t seed[SLOTS] = {11, 22, 33, 44};
    uint64_t position[SLOTS] = {0, 0, 0, 0};

    /* This step decodes three requests; slot 2 has none. */
    const int32_t slot[ROWS] = {3, 0, 1};
    static float data[ROWS][VOCAB];
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < VOCAB; ++i) data[row][i] = (float)((i * 7919 + row * 104729) % 1009) * 0.01f;
    data[2][123] = 20.0f;

    raffle_error error = raffle_error_init();
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = VOCAB;
    check(raffle_plan_create(&desc, &plan, &error) == RAFFLE_OK, error.text);
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);

    raffle_logits logits = raffle_logits_init();
    logits.data = data;
    logits.rows = ROWS;
    raffle_params params = raffle_params_init();
    params.slots = SLOTS;
    params.slot = slot;
    params.temperature = temperature;
    params.top_p = top_p;
    params.min_p = min_p;
    params.top_k = top_k;
    params.seed = seed;
    params.position = position;
    int32_t token[ROWS];
    uint32_t row_flags[ROWS];
    raffle_result result = raffle_result_init();
    result.token = token;
    result.row_flags = row_flags;

    for (int step = 0; step < 3; ++step) {
        check(raffle_sample(plan, &logits, &params, &result, &launch, &error) == RAFFLE_OK, error.text);
        printf("step %d: tokens %d %d %d\n", step, token[0], token[1], token[2]);
        check(token[2] == 123, "slot 1 is greedy: it takes the largest logit");
        for (int row = 0; row < ROWS; ++row) {
            check(row_flags[row] == 0, "all logits are plain numbers");
            position[slot[row]]++; /* the next token of this request */
        }
    }

    /* A bad parameter is an error that names the field and the row, and no token is written. */
    temperature[0] = -1.0f;
    token[0] = token[1] = token[2] = -7;
    check(raffle_sample(plan, &logits, &params, &result, &launch, &error) == RAFFLE_E_ARGUMENT, "it must be refused");
    printf("refused: %s\n", error.text);
    check(error.row == 1 && token[0] == -7, "row 1 uses slot 0");

    free(launch.workspace);
    raffle_plan_destroy(plan);
    return 0;
}
