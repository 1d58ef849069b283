/* 07_speculative.c - a small model drafts, a large one verifies, and the text has the large model's law.
 *
 * Both "models" here are tables: the row of the next token is chosen by the token before. The draft model is the target
 * with some noise, as real ones are.
 */
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 1000, DRAFTS = 4, TOKENS = 400 };
static float target_model[VOCAB][VOCAB], draft_model[VOCAB][VOCAB];

static float noise(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-24f;
}

int main(void) {
    for (int i = 0; i < VOCAB; ++i)
        for (int j = 0; j < VOCAB; ++j) {
            target_model[i][j] = 8 * noise();
            draft_model[i][j] = target_model[i][j] + 2 * noise();
        }
    raffle_error error = raffle_error_init();
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = VOCAB;
    if (raffle_plan_create(&desc, &plan, &error)) return puts(error.text), 1;
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);

    const float temperature = 0.5f, top_p = 0.9f;
    const uint64_t seed = 42;
    uint64_t position = 0;
    raffle_params params = raffle_params_init(); /* of the request; the draft is sampled with the same */
    params.temperature = &temperature;
    params.top_p = &top_p;
    params.seed = &seed;
    params.position = &position;

    static float target_rows[DRAFTS + 1][VOCAB], draft_rows[DRAFTS][VOCAB];
    int32_t text[TOKENS + DRAFTS + 1] = {0}, draft[DRAFTS], token[DRAFTS + 1], accepted, calls = 0;
    raffle_drafted drafted = raffle_drafted_init(); /* what is kept of each draft: its token, and the row it was drawn from */
    drafted.each = DRAFTS;
    drafted.token = draft;
    drafted.logits = draft_rows;
    while (position < TOKENS) {
        int32_t last = text[position];
        memcpy(target_rows[0], target_model[last], sizeof target_rows[0]);
        for (int i = 0; i < DRAFTS; ++i) { /* drafts: position stays, draft_step counts */
            raffle_logits logits = raffle_logits_init();
            logits.data = draft_model[last]; /* a real draft model writes every step's row to the same place */
            logits.rows = 1;
            raffle_result result = raffle_result_init();
            result.token = &last;
            params.draft_step = (uint32_t)i + 1;
            if (raffle_draft(plan, &logits, &params, &result, &drafted, &launch, &error)) return puts(error.text), 1;
            memcpy(target_rows[i + 1], target_model[last], sizeof target_rows[i + 1]); /* one step of the large model */
        }
        params.draft_step = 0;
        raffle_logits logits = raffle_logits_init(), draft_logits = raffle_logits_init();
        logits.data = target_rows;
        logits.rows = DRAFTS + 1;
        draft_logits.data = draft_rows;
        draft_logits.rows = DRAFTS;
        raffle_drafts drafts = raffle_drafts_init();
        drafts.method = RAFFLE_BLOCK; /* or RAFFLE_REJECTION: the same law */
        drafts.requests = 1;
        drafts.each = DRAFTS;
        drafts.token = draft;
        drafts.logits = &draft_logits;
        drafts.params = &params;
        raffle_verified verified = raffle_verified_init();
        verified.token = token;
        verified.accepted = &accepted;
        if (raffle_verify(plan, &logits, &params, &drafts, &verified, &launch, &error)) return puts(error.text), 1;
        memcpy(text + position + 1, token, sizeof *token * (size_t)(accepted + 1));
        position += (uint64_t)accepted + 1;
        ++calls;
    }
    printf("%d tokens in %d steps of the large model, %.2f of %d drafts accepted a step\n", (int)position, calls,
           (double)position / calls - 1, DRAFTS);
    free(launch.workspace);
    raffle_plan_destroy(plan);
    return calls < TOKENS / 2 ? 0 : 1;
}
