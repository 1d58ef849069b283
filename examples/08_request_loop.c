/* 08_request_loop.c - two requests from prompt to end: penalties over what was said, a bias, a minimum length, and the
 * log-probability of each token. The model is a toy that likes to repeat itself. */
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 16, ROWS = 2, STEPS = 12, END = 0 };

/* The toy: whoever said token t wants to say t + 1, or t again. */
static void model(const int32_t *last, float *logits) {
    for (int row = 0; row < ROWS; ++row)
        for (int t = 0; t < VOCAB; ++t)
            logits[row * VOCAB + t] = t == last[row] ? 4.0f : t == (last[row] + 1) % VOCAB ? 4.5f : 0.1f * (float)(t % 5);
}

int main(void) {
    raffle_error error = raffle_error_init();
    /* The plan, and a pool for what the requests say: both memories are yours. */
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = VOCAB;
    desc.flags = RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT;
    desc.history_max = 64;
    if (raffle_plan_create(&desc, &plan, &error)) return puts(error.text), 1;
    raffle_state state = raffle_state_init();
    state.slots = ROWS;
    state.history_max = 64;
    state.vocab = VOCAB;
    state.memory = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, raffle_state_bytes(&state));
    if (raffle_state_clear(&state, NULL, &error)) return puts(error.text), 1;

    /* Prompts. */
    const int32_t prompt[ROWS][3] = {{3, 4, 5}, {8, 8, 9}};
    raffle_tokens tokens = raffle_tokens_init();
    tokens.rows = ROWS;
    tokens.token = prompt[0];
    tokens.stride = 3;
    if (raffle_state_prompt(&state, &tokens, &error)) return puts(error.text), 1;

    /* What each asks for. The first fears repetition; the second prefers token 12 and must say 6 tokens before END. */
    static const int32_t end[] = {END}, liked[] = {12};
    static const float much[] = {2.5f};
    const raffle_extra extra[ROWS] = {
        {.repetition = 1.3f, .frequency = 0.8f, .no_repeat_ngram = 3},
        {.bias_id = liked, .bias = much, .bias_count = 1, .stop = end, .stop_count = 1, .min_tokens = 6},
    };
    const float temperature[ROWS] = {0.9f, 0.7f}, top_p[ROWS] = {0.95f, 0.9f};
    const uint64_t seed[ROWS] = {1, 2};
    uint64_t position[ROWS] = {0, 0};
    int32_t token[ROWS], last[ROWS] = {5, 9};
    float chosen[ROWS], logits_data[ROWS * VOCAB];

    raffle_logits logits = raffle_logits_init();
    logits.data = logits_data;
    logits.rows = ROWS;
    raffle_params params = raffle_params_init();
    params.temperature = temperature;
    params.top_p = top_p;
    params.seed = seed;
    params.position = position;
    params.extra = extra;
    params.extra_bytes = sizeof *extra;
    params.state = &state;
    raffle_report report = raffle_report_init();
    report.point = RAFFLE_TEMPERED;
    report.chosen = chosen;
    raffle_result result = raffle_result_init();
    result.token = token;
    result.report = &report;
    result.advance = position; /* each draw moves its request on */
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);

    tokens.token = token; /* what was drawn goes back as it is */
    tokens.stride = 1;
    for (int step = 0; step < STEPS; ++step) {
        model(last, logits_data);
        if (raffle_sample(plan, &logits, &params, &result, &launch, &error)) return puts(error.text), 1;
        if (raffle_state_accept(&state, &tokens, &error)) return puts(error.text), 1;
        for (int row = 0; row < ROWS; ++row) {
            printf("%stoken %2d (%.3f)%s", row ? "    " : "", token[row], (double)chosen[row], row ? "\n" : "");
            if (row == 1 && step < 6 && token[row] == END) return puts("ended too early"), 1;
            last[row] = token[row];
        }
    }

    /* No three tokens of the first request come twice. */
    int64_t length;
    const int32_t *h = raffle_state_history(&state, 0, NULL, &length);
    for (int64_t i = 0; i + 3 <= length; ++i)
        for (int64_t j = i + 1; j + 3 <= length; ++j)
            if (h[i] == h[j] && h[i + 1] == h[j + 1] && h[i + 2] == h[j + 2]) return puts("it repeats itself"), 1;
    printf("%lld tokens, and nothing said twice in a row of three\n", (long long)length);
    free(launch.workspace);
    free(state.memory);
    raffle_plan_destroy(plan);
    return 0;
}
