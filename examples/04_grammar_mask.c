/* 04_grammar_mask.c - only tokens that a grammar allows: one bit per token, in 32-bit words.
 *
 * The "grammar" is a number with one decimal point: [0-9]+\.[0-9]+ and then the end.
 */
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 64, WORDS = (VOCAB + 31) / 32 };
static const char tokens[] = "0123456789.$abcdefghijklmnopqrstuvwxyz"; /* "$" ends the text */

static void allow(uint32_t *words, const char *characters) {
    memset(words, 0, WORDS * sizeof *words);
    for (; *characters; ++characters) {
        const long id = strchr(tokens, *characters) - tokens;
        words[id / 32] |= 1u << (id % 32);
    }
}

/* Which characters may follow. */
static const char *allowed_after(const char *text) {
    const size_t length = strlen(text);
    const char *const point = strchr(text, '.');
    if (length == 0) return "0123456789";
    if (!point) return "0123456789.";
    return point[1] ? "0123456789$" : "0123456789";
}

int main(void) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = VOCAB;
    if (raffle_plan_create(&desc, &plan, NULL)) return 1;
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);

    /* A model that would rather write letters than numbers. */
    float row[VOCAB];
    for (int i = 0; i < VOCAB; ++i) row[i] = i < 12 ? 0.0f : 5.0f;

    uint32_t mask[WORDS], row_flags;
    uint64_t seed = 7, position = 0;
    int32_t token;
    raffle_logits logits = raffle_logits_init();
    logits.data = row;
    logits.rows = 1;
    raffle_params params = raffle_params_init();
    params.seed = &seed;
    params.position = &position;
    params.allow = mask;
    raffle_result result = raffle_result_init();
    result.token = &token;
    result.row_flags = &row_flags;

    for (int n = 0; n < 5; ++n) {
        char text[256] = "";
        for (size_t length = 0; length < 200; ++length, ++position) {
            allow(mask, allowed_after(text));
            if (raffle_sample(plan, &logits, &params, &result, &launch, NULL) || row_flags) return 1;
            if (!strchr(allowed_after(text), tokens[token])) return 1;
            if (tokens[token] == '$') break;
            text[length] = tokens[token];
            text[length + 1] = 0;
        }
        char *end;
        strtod(text, &end);
        printf("%s\n", text);
        if (*end) return 1; /* all of it must be a number */
    }

    /* A mask that allows nothing has no token, and says so. */
    memset(mask, 0, sizeof mask);
    if (raffle_sample(plan, &logits, &params, &result, &launch, NULL)) return 1;
    const int empty = token == RAFFLE_NO_TOKEN && row_flags == RAFFLE_ROW_EMPTY;
    printf("nothing allowed: token %d, %s\n", token, empty ? "RAFFLE_ROW_EMPTY" : "wrong flags");
    free(launch.workspace);
    raffle_plan_destroy(plan);
    return empty ? 0 : 1;
}
