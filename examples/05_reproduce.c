/* 05_reproduce.c - the same token on every instruction set, in every batch.
 *
 * A token depends on its row's logits, parameters, seed and position, and on nothing else. So a user's complaint
 * about one token of one request can be replayed alone, on another machine.
 */
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 50000, ROWS = 16 };

static float data[ROWS][VOCAB];
static uint64_t seed[ROWS], position[ROWS];
static float temperature[ROWS], top_p[ROWS];

/* Samples rows [first, first + count) as one batch on one instruction set. */
static int sample(raffle_isa isa, int first, int count, int32_t *token) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = VOCAB;
    desc.isa = isa;
    if (raffle_plan_create(&desc, &plan, NULL)) return 0;
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);
    raffle_logits logits = raffle_logits_init();
    logits.data = data[first];
    logits.rows = count;
    raffle_params params = raffle_params_init();
    params.temperature = temperature + first;
    params.top_p = top_p + first;
    params.seed = seed + first;
    params.position = position + first;
    raffle_result result = raffle_result_init();
    result.token = token;
    const raffle_status status = raffle_sample(plan, &logits, &params, &result, &launch, NULL);
    free(launch.workspace);
    raffle_plan_destroy(plan);
    return status == RAFFLE_OK;
}

int main(void) {
    uint32_t state = 12345;
    for (int row = 0; row < ROWS; ++row) {
        for (int i = 0; i < VOCAB; ++i) {
            state = state * 1664525u + 1013904223u;
            data[row][i] = (float)(state >> 8) * 0x1p-20f;
        }
        seed[row] = 77 * (uint64_t)row;
        position[row] = 3;
        temperature[row] = 0.5f + 0.1f * (float)row;
        top_p[row] = row % 2 ? 0.95f : 1.0f;
    }

    int32_t together[ROWS], token[ROWS];
    int good = sample(RAFFLE_ISA_BEST, 0, ROWS, together);
    for (int isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa) {
        if (!raffle_isa_available((raffle_isa)isa)) continue;
        const int same = sample((raffle_isa)isa, 0, ROWS, token) && memcmp(token, together, sizeof token) == 0;
        printf("%-7s %s\n", raffle_isa_name((raffle_isa)isa), same ? "the same 16 tokens" : "other tokens");
        good &= same;
    }
    for (int row = 0; row < ROWS; ++row)
        good &= sample(RAFFLE_ISA_BEST, row, 1, &token[row]) && token[row] == together[row];
    printf("alone   %s\n", good ? "the same 16 tokens" : "other tokens");
    return good ? 0 : 1;
}
