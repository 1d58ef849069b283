/* Probabilities: softmax of a row, renormalised after top-p, the kept set, and draws from probabilities. */
#include <math.h>
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 6, DRAWS = 8 };

static raffle_plan *plan_of(raffle_input input, raffle_launch *launch) {
    raffle_error error = raffle_error_init();
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = VOCAB;
    desc.input = input; /* what the rows are */
    if (raffle_plan_create(&desc, &plan, &error)) {
        puts(error.text);
        exit(1);
    }
    *launch = raffle_launch_init();
    launch->workspace_bytes = raffle_plan_workspace(plan);
    launch->workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch->workspace_bytes);
    return plan;
}

int main(void) {
    static const char *const word[VOCAB] = {"tea", "coffee", "milk", "water", "juice", "soup"};
    const float row[VOCAB] = {2.0f, 1.5f, 1.5f, 0.5f, 0.0f, -1.0f};
    const float temperature = 0.8f, top_p = 0.9f;
    float whole[VOCAB], kept[VOCAB];
    int32_t list[VOCAB], count;
    raffle_launch launch, launch_probs;
    raffle_plan *plan = plan_of(RAFFLE_LOGITS, &launch), *plan_probs = plan_of(RAFFLE_PROBS, &launch_probs);

    /* The whole row, then what top-p leaves of it. Nothing is drawn, so there is no seed. */
    raffle_logits logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_output output = raffle_output_init();
    logits.data = row;
    logits.rows = 1;
    params.temperature = &temperature;
    output.data = whole;
    if (raffle_softmax(plan, &logits, &params, &output, &launch, NULL)) return 1;
    params.top_p = &top_p;
    output.data = kept;
    output.kept_list = list;
    output.kept_list_stride = VOCAB;
    output.kept_count = &count;
    if (raffle_softmax(plan, &logits, &params, &output, &launch, NULL)) return 1;
    double sum = 0;
    for (int i = 0; i < VOCAB; ++i) {
        printf("%-7s %.4f %.4f\n", word[i], (double)whole[i], (double)kept[i]);
        sum += (double)kept[i];
    }
    printf("top-p keeps %d tokens, from %s to %s\n", count, word[list[0]], word[list[count - 1]]);

    /* Eight draws from the probabilities: one row, eight results. */
    int32_t index[DRAWS], token[DRAWS];
    uint64_t seed[DRAWS], position[DRAWS];
    for (int i = 0; i < DRAWS; ++i) index[i] = 0, seed[i] = 42, position[i] = (uint64_t)i;
    raffle_logits probs = raffle_logits_init();
    raffle_params chance = raffle_params_init();
    raffle_result result = raffle_result_init();
    probs.data = kept;
    probs.rows = DRAWS;
    probs.row_index = index;
    probs.data_rows = 1;
    chance.seed = seed;
    chance.position = position;
    result.token = token;
    if (raffle_sample(plan_probs, &probs, &chance, &result, &launch_probs, NULL)) return 1;
    for (int i = 0; i < DRAWS; ++i) printf("%s%s", word[token[i]], i + 1 < DRAWS ? " " : "\n");

    int good = fabs(sum - 1) < 1e-6 && count == 4;
    for (int i = 0; i < DRAWS; ++i) good = good && kept[token[i]] > 0; /* what was cut is never drawn */
    free(launch.workspace);
    free(launch_probs.workspace);
    raffle_plan_destroy(plan);
    raffle_plan_destroy(plan_probs);
    return good ? 0 : 1;
}
