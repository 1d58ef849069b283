/* draft_errors.c - every documented error of raffle_draft: its status, a sentence that names the field, the row, and that nothing was
 * written. Each case starts from a call that works and spoils one thing. */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/refusal.h"

enum { REQUESTS = 3, EACH = 4, STEP = 2, VOCAB = 300 };

/* A call that works, and everything it points to. */
static struct fixture {
    raffle_plan *plan;
    raffle_logits logits;
    raffle_params params;
    raffle_result result;
    raffle_drafted drafted;
    raffle_launch launch;
    float data[REQUESTS * VOCAB], temperature[REQUESTS];
    int32_t slot[REQUESTS], index[REQUESTS];
    uint64_t seed[REQUESTS], position[REQUESTS];
    int32_t token[REQUESTS], kept_token[REQUESTS * EACH];
    uint32_t row_flags[REQUESTS];
    float kept[REQUESTS * EACH * VOCAB];
    _Alignas(RAFFLE_WORKSPACE_ALIGN) char workspace[1 << 18];
} f;
static unsigned char outputs_before[offsetof(struct fixture, workspace) - offsetof(struct fixture, token)];

static void fixture_reset(void) {
    raffle_plan *plan = f.plan;
    memset(&f, 0, sizeof f);
    f.plan = plan;
    for (int i = 0; i < REQUESTS * VOCAB; ++i) f.data[i] = (float)(i % 17) * 0.25f;
    for (int i = 0; i < REQUESTS; ++i) f.temperature[i] = 0.8f, f.slot[i] = i, f.seed[i] = 7;
    memset(f.token, 0x5a, sizeof outputs_before);
    memcpy(outputs_before, f.token, sizeof outputs_before);
    f.logits = raffle_logits_init();
    f.logits.data = f.data;
    f.logits.rows = REQUESTS;
    f.params = raffle_params_init();
    f.params.slots = REQUESTS;
    f.params.slot = f.slot;
    f.params.temperature = f.temperature;
    f.params.seed = f.seed;
    f.params.position = f.position;
    f.params.draft_step = STEP;
    f.result = raffle_result_init();
    f.result.token = f.token;
    f.result.row_flags = f.row_flags;
    f.drafted = raffle_drafted_init();
    f.drafted.each = EACH;
    f.drafted.token = f.kept_token;
    f.drafted.logits = f.kept;
    f.launch = raffle_launch_init();
    f.launch.workspace = f.workspace;
    f.launch.workspace_bytes = raffle_plan_workspace(f.plan);
}

static void refused_call(int status, int got, const raffle_error *error, int64_t row, const char *field) {
    CHECK(got == status, "%s: status %d, wanted %d", field, got, status);
    error_tells(error, status, row, field);
    CHECK(!memcmp(f.token, outputs_before, sizeof outputs_before), "%s: outputs were written", field);
    fixture_reset();
}

static int call(raffle_error *error) {
    return raffle_draft(f.plan, &f.logits, &f.params, &f.result, &f.drafted, &f.launch, error);
}
static void refused(int status, int64_t row, const char *field) {
    raffle_error error = raffle_error_init();
    refused_call(status, call(&error), &error, row, field);
}
static void accepted(const char *what) {
    raffle_error error = raffle_error_init();
    int status = call(&error);
    CHECK(status == RAFFLE_OK, "%s: %s", what, error.text);
    fixture_reset();
}

TEST(good_calls) {
    accepted("all of it");
    f.params.draft_step = 1, accepted("the first");
    f.params.draft_step = EACH, accepted("the last");
    f.drafted.logits = NULL, accepted("tokens alone");
    f.drafted.row_stride = VOCAB, accepted("a stride that is said");
    f.drafted.each = f.params.draft_step = 1, f.drafted.row_stride = 1000, accepted("far apart");
    f.drafted.each = f.params.draft_step = 1, f.drafted.logits = f.kept + 2000, f.drafted.row_stride = -VOCAB, accepted("backwards");
    f.drafted.each = f.params.draft_step = 1, f.drafted.token = f.token, accepted("one draft: its token is where it was drawn");
    f.logits.row_index = f.index, accepted("one row for all");
}

TEST(empty_batch) {
    f.logits.rows = 0;
    f.logits.data = NULL;
    f.params.seed = f.params.position = NULL;
    f.result.token = f.drafted.token = NULL;
    f.launch.workspace = NULL;
    accepted("nothing");
    f.logits.rows = 0, f.params.draft_step = 0, refused(RAFFLE_E_ARGUMENT, -1, "params.draft_step is 0");
}

TEST(null_pointers) {
    raffle_error error = raffle_error_init();
#define REFUSED_NULL(field, plan, logits, params, result, drafted, launch)                                             \
    error = raffle_error_init();                                                                                       \
    refused_call(RAFFLE_E_ARGUMENT, raffle_draft(plan, logits, params, result, drafted, launch, &error), &error, -1, field)
    REFUSED_NULL("plan", NULL, &f.logits, &f.params, &f.result, &f.drafted, &f.launch);
    REFUSED_NULL("raffle_logits", f.plan, NULL, &f.params, &f.result, &f.drafted, &f.launch);
    REFUSED_NULL("raffle_params", f.plan, &f.logits, NULL, &f.result, &f.drafted, &f.launch);
    REFUSED_NULL("raffle_result", f.plan, &f.logits, &f.params, NULL, &f.drafted, &f.launch);
    REFUSED_NULL("raffle_drafted", f.plan, &f.logits, &f.params, &f.result, NULL, &f.launch);
    REFUSED_NULL("raffle_launch", f.plan, &f.logits, &f.params, &f.result, &f.drafted, NULL);
    f.drafted.token = NULL, refused(RAFFLE_E_ARGUMENT, -1, "drafted.token is NULL");
    f.logits.data = NULL, refused(RAFFLE_E_ARGUMENT, -1, "logits.data");
    f.result.token = NULL, refused(RAFFLE_E_ARGUMENT, -1, "result.token");
    f.params.seed = NULL, refused(RAFFLE_E_ARGUMENT, -1, "seed");
    f.launch.workspace = NULL, refused(RAFFLE_E_WORKSPACE, -1, "workspace");
}

TEST(struct_sizes) {
    const uint32_t wrong[] = {0, 4, UINT32_MAX};
    for (int i = 0; i < 3; ++i) f.drafted.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_drafted.size");
    f.drafted.reserved = 1, refused(RAFFLE_E_STRUCT, -1, "raffle_drafted.reserved");
    struct { raffle_drafted known; int64_t later; } larger = {f.drafted, 0};
    larger.known.size = sizeof larger;
    raffle_error error = raffle_error_init();
    CHECK_STATUS(raffle_draft(f.plan, &f.logits, &f.params, &f.result, &larger.known, &f.launch, &error), RAFFLE_OK);
    fixture_reset();
    larger.later = 1;
    refused_call(RAFFLE_E_STRUCT, raffle_draft(f.plan, &f.logits, &f.params, &f.result, &larger.known, &f.launch, &error), &error, -1,
                 "raffle_drafted has a field set");
}

TEST(steps) {
    f.params.draft_step = 0, refused(RAFFLE_E_ARGUMENT, -1, "params.draft_step is 0: must be 1 to 4");
    f.params.draft_step = EACH + 1, refused(RAFFLE_E_ARGUMENT, -1, "params.draft_step is 5");
    f.params.draft_step = UINT32_MAX, refused(RAFFLE_E_ARGUMENT, -1, "params.draft_step");
    f.params.size = offsetof(raffle_params, draft_step), refused(RAFFLE_E_ARGUMENT, -1, "params.draft_step is 0");
    f.drafted.each = 0, refused(RAFFLE_E_ARGUMENT, -1, "drafted.each is 0");
    f.drafted.each = -1, refused(RAFFLE_E_ARGUMENT, -1, "drafted.each");
    f.drafted.each = INT64_MAX, refused(RAFFLE_E_ARGUMENT, -1, "drafted.each is 9223372036854775807: too large for 3 rows");
    f.drafted.each = INT32_MAX, refused(RAFFLE_E_ARGUMENT, -1, "drafted.each");
    f.result.advance = f.position, refused(RAFFLE_E_ARGUMENT, -1, "result.advance");
}

TEST(places) {
    f.drafted.row_stride = VOCAB - 1, refused(RAFFLE_E_ARGUMENT, -1, "drafted.row_stride is 299: a row has 300");
    f.drafted.row_stride = 1 - VOCAB, refused(RAFFLE_E_ARGUMENT, -1, "drafted.row_stride");
    f.drafted.row_stride = INT64_MAX / 8, refused(RAFFLE_E_ARGUMENT, -1, "drafted.row_stride");
    f.drafted.row_stride = INT64_MIN, refused(RAFFLE_E_ARGUMENT, -1, "drafted.row_stride");
    static float whole[REQUESTS * EACH * VOCAB + 2 * REQUESTS * VOCAB]; /* what is kept lies in the middle of it */
    float *const middle = whole + REQUESTS * VOCAB, *const end = middle + REQUESTS * EACH * VOCAB;
    f.drafted.logits = middle, f.logits.data = middle, refused(RAFFLE_E_ARGUMENT, -1, "drafted.logits overlaps logits.data");
    f.drafted.logits = middle, f.logits.data = whole + 1, refused(RAFFLE_E_ARGUMENT, -1, "drafted.logits overlaps");
    f.drafted.logits = middle, f.logits.data = end - 1, refused(RAFFLE_E_ARGUMENT, -1, "drafted.logits overlaps");
    f.drafted.logits = middle, f.logits.data = end, accepted("beside it");
    f.drafted.logits = middle, f.logits.data = whole, accepted("before it");
    f.drafted.logits = middle, f.logits.data = end + (REQUESTS - 1) * VOCAB, f.logits.row_stride = -VOCAB, accepted("backwards beside it");
    f.drafted.logits = middle, f.logits.data = end + (REQUESTS - 1) * VOCAB - 1, f.logits.row_stride = -VOCAB;
    refused(RAFFLE_E_ARGUMENT, -1, "drafted.logits overlaps");
    f.drafted.logits = end - VOCAB, f.drafted.row_stride = -VOCAB, f.logits.data = end, accepted("kept backwards");
    f.drafted.logits = end - VOCAB, f.drafted.row_stride = -VOCAB, f.logits.data = whole + 1;
    refused(RAFFLE_E_ARGUMENT, -1, "drafted.logits overlaps");
    f.drafted.logits = middle, f.logits.data = whole, f.logits.row_index = f.index, f.logits.data_rows = REQUESTS + 1;
    refused(RAFFLE_E_ARGUMENT, -1, "drafted.logits overlaps");
    f.drafted.token = f.token, refused(RAFFLE_E_ARGUMENT, -1, "drafted.token overlaps result.token");
    f.result.token = f.kept_token + REQUESTS * EACH - 1, refused(RAFFLE_E_ARGUMENT, -1, "drafted.token overlaps result.token");
    f.drafted.each = f.params.draft_step = 1, f.drafted.token = f.token + 1, refused(RAFFLE_E_ARGUMENT, -1, "drafted.token overlaps");
}

TEST(values_of_rows) {
    f.temperature[1] = -1.0f, refused(RAFFLE_E_ARGUMENT, 1, "temperature of row 1");
    f.temperature[2] = NAN, refused(RAFFLE_E_ARGUMENT, 2, "temperature of row 2");
    f.slot[2] = REQUESTS, refused(RAFFLE_E_ARGUMENT, 2, "slot of row 2");
    f.logits.row_index = f.index, f.index[1] = REQUESTS, refused(RAFFLE_E_ARGUMENT, 1, "row_index of row 1");
    f.temperature[2] = NAN, f.launch.parts = 3, refused(RAFFLE_E_ARGUMENT, 2, "temperature of row 2"); /* of another part */
}

TEST(a_plan_of_probabilities) {
    raffle_plan *logits_plan = f.plan;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = VOCAB;
    desc.input = RAFFLE_PROBS;
    CHECK_STATUS(raffle_plan_create(&desc, &f.plan, NULL), RAFFLE_OK);
    raffle_plan *plan = f.plan;
    f.params.temperature = NULL;
    refused(RAFFLE_E_UNSUPPORTED, -1, "input of the plan is probabilities");
    raffle_plan_destroy(plan);
    f.plan = logits_plan;
    fixture_reset();
}

/* A row that draws no token keeps -1, or with RAFFLE_EMPTY_IS_ZERO what it returns. */
TEST(rows_without_a_token) {
    for (int i = 0; i < VOCAB; ++i) f.data[VOCAB + i] = -INFINITY;
    CHECK_STATUS(call(NULL), RAFFLE_OK);
    CHECK_EQ(f.kept_token[EACH + STEP - 1], RAFFLE_NO_TOKEN);
    CHECK(f.kept_token[STEP - 1] >= 0 && f.kept_token[2 * EACH + STEP - 1] >= 0, "other rows have their tokens");
    f.params.flags = RAFFLE_EMPTY_IS_ZERO;
    CHECK_STATUS(call(NULL), RAFFLE_OK);
    CHECK_EQ(f.kept_token[EACH + STEP - 1], 0);
    fixture_reset();
}

int main(void) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = VOCAB;
    if (raffle_plan_create(&desc, &f.plan, NULL)) abort();
    fixture_reset();
    RUN(good_calls);
    RUN(empty_batch);
    RUN(null_pointers);
    RUN(struct_sizes);
    RUN(steps);
    RUN(places);
    RUN(values_of_rows);
    RUN(a_plan_of_probabilities);
    RUN(rows_without_a_token);
    raffle_plan_destroy(f.plan);
    return test_report("draft_errors");
}
