/* verify_errors.c - every documented error of raffle_verify: its status, a sentence that names the field, the request, and
 * that nothing was written. Each case starts from a call that works and spoils one thing. */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/refusal.h"

enum { REQUESTS = 3, DRAFTS = 5, ROWS = REQUESTS + DRAFTS, VOCAB = 300, WORDS = (VOCAB + 31) / 32 };

/* A call that works, and everything it points to. */
static struct fixture {
    raffle_plan *plan;
    raffle_logits logits, draft_logits;
    raffle_params params, draft_params;
    raffle_probabilities probabilities;
    raffle_drafts drafts;
    raffle_verified verified;
    raffle_launch launch;
    float data[ROWS * VOCAB], draft_data[DRAFTS * VOCAB], temperature[REQUESTS], top_p[REQUESTS], min_p[REQUESTS];
    int32_t slot[REQUESTS], first[REQUESTS + 1], draft[DRAFTS], parent[DRAFTS];
    uint64_t seed[REQUESTS], position[REQUESTS];
    int32_t token[ROWS], accepted[REQUESTS], last[REQUESTS], path[ROWS];
    uint32_t row_flags[ROWS], allow[ROWS * WORDS];
    _Alignas(RAFFLE_WORKSPACE_ALIGN) char workspace[1 << 18];
} f;
static unsigned char outputs_before[offsetof(struct fixture, allow) - offsetof(struct fixture, token)];

static void fixture_reset(void) {
    raffle_plan *plan = f.plan;
    memset(&f, 0, sizeof f);
    f.plan = plan;
    for (int i = 0; i < ROWS * VOCAB; ++i) f.data[i] = (float)(i % 17) * 0.25f;
    for (int i = 0; i < DRAFTS * VOCAB; ++i) f.draft_data[i] = (float)(i % 13) / 2048.0f;
    for (int i = 0; i < REQUESTS; ++i) f.temperature[i] = 0.8f, f.top_p[i] = 0.9f, f.slot[i] = i, f.seed[i] = 7;
    for (int i = 0; i < DRAFTS; ++i) f.draft[i] = i * 40, f.parent[i] = -1;
    f.first[1] = 2, f.first[2] = 2, f.first[3] = DRAFTS;
    memset(f.allow, 0xff, sizeof f.allow);
    memset(f.token, 0x5a, sizeof outputs_before);
    memcpy(outputs_before, f.token, sizeof outputs_before);
    f.logits = f.draft_logits = raffle_logits_init();
    f.logits.data = f.data;
    f.logits.rows = ROWS;
    f.draft_logits.data = f.draft_data;
    f.draft_logits.rows = DRAFTS;
    f.probabilities = raffle_probabilities_init();
    f.probabilities.data = f.draft_data;
    f.probabilities.rows = DRAFTS;
    f.params = raffle_params_init();
    f.params.slots = REQUESTS;
    f.params.slot = f.slot;
    f.params.temperature = f.temperature;
    f.params.top_p = f.top_p;
    f.params.min_p = f.min_p;
    f.params.allow = f.allow;
    f.draft_params = f.params;
    f.params.seed = f.seed;
    f.params.position = f.position;
    f.drafts = raffle_drafts_init();
    f.drafts.requests = REQUESTS;
    f.drafts.first = f.first;
    f.drafts.token = f.draft;
    f.verified = raffle_verified_init();
    f.verified.token = f.token;
    f.verified.accepted = f.accepted;
    f.verified.last = f.last;
    f.verified.path = f.path;
    f.verified.row_flags = f.row_flags;
    f.launch = raffle_launch_init();
    f.launch.workspace = f.workspace;
    f.launch.workspace_bytes = raffle_plan_workspace(f.plan);
}

static void with_logits(void) {
    f.drafts.logits = &f.draft_logits;
    f.drafts.params = &f.draft_params;
}

static int call(raffle_error *error) {
    return raffle_verify(f.plan, &f.logits, &f.params, &f.drafts, &f.verified, &f.launch, error);
}

static void refused_call(int status, int got, const raffle_error *error, int64_t row, const char *field) {
    CHECK(got == status, "%s: status %d, wanted %d", field, got, status);
    error_tells(error, status, row, field);
    CHECK(!memcmp(f.token, outputs_before, sizeof outputs_before), "%s: outputs were written", field);
    fixture_reset();
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
    accepted("tokens");
    with_logits(), accepted("logits");
    f.drafts.probabilities = &f.probabilities, accepted("probabilities");
    f.drafts.parent = f.parent, accepted("tree");
    f.drafts.first = NULL, f.drafts.each = 1, f.logits.rows = 6, accepted("the same number each");
    f.drafts.first = NULL, f.logits.rows = 3, f.drafts.token = NULL, accepted("no drafts");
    f.verified.last = f.verified.path = NULL, f.verified.row_flags = NULL, accepted("few results");
    f.draft[0] = -1, accepted("a draft that ends");
}

TEST(empty_batch) {
    f.logits.rows = f.drafts.requests = 0;
    f.drafts.first = NULL;
    f.logits.data = NULL;
    f.drafts.token = NULL;
    f.params.seed = f.params.position = NULL;
    f.verified.token = f.verified.accepted = NULL;
    f.launch.workspace = NULL;
    accepted("nothing");
}

TEST(null_structs) {
    raffle_error error = raffle_error_init();
#define REFUSED_NULL(field, plan, logits, params, drafts, verified, launch)                                            \
    error = raffle_error_init();                                                                                       \
    refused_call(RAFFLE_E_ARGUMENT, raffle_verify(plan, logits, params, drafts, verified, launch, &error), &error, -1, field)
    REFUSED_NULL("plan", NULL, &f.logits, &f.params, &f.drafts, &f.verified, &f.launch);
    REFUSED_NULL("raffle_logits", f.plan, NULL, &f.params, &f.drafts, &f.verified, &f.launch);
    REFUSED_NULL("raffle_params", f.plan, &f.logits, NULL, &f.drafts, &f.verified, &f.launch);
    REFUSED_NULL("raffle_drafts", f.plan, &f.logits, &f.params, NULL, &f.verified, &f.launch);
    REFUSED_NULL("raffle_verified", f.plan, &f.logits, &f.params, &f.drafts, NULL, &f.launch);
    REFUSED_NULL("raffle_launch", f.plan, &f.logits, &f.params, &f.drafts, &f.verified, NULL);
}

TEST(null_arrays) {
    f.logits.data = NULL, refused(RAFFLE_E_ARGUMENT, -1, "logits.data");
    f.params.seed = NULL, refused(RAFFLE_E_ARGUMENT, -1, "seed");
    f.params.position = NULL, refused(RAFFLE_E_ARGUMENT, -1, "position");
    f.drafts.token = NULL, refused(RAFFLE_E_ARGUMENT, -1, "drafts.token");
    f.verified.token = NULL, refused(RAFFLE_E_ARGUMENT, -1, "verified.token");
    f.verified.accepted = NULL, refused(RAFFLE_E_ARGUMENT, -1, "verified.accepted");
    with_logits(), f.draft_logits.data = NULL, refused(RAFFLE_E_ARGUMENT, -1, "drafts.logits.data");
    f.drafts.probabilities = &f.probabilities, f.probabilities.data = NULL, refused(RAFFLE_E_ARGUMENT, -1, "drafts.probabilities.data");
    f.launch.workspace = NULL, refused(RAFFLE_E_WORKSPACE, -1, "workspace");
}

TEST(struct_sizes) {
    const uint32_t wrong[] = {0, 4, UINT32_MAX};
    for (int i = 0; i < 3; ++i) {
        f.logits.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_logits");
        f.params.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_params");
        f.drafts.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_drafts");
        f.verified.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_verified");
        f.launch.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_launch");
        with_logits(), f.draft_logits.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_logits");
        with_logits(), f.draft_params.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_params");
        f.drafts.probabilities = &f.probabilities, f.probabilities.size = wrong[i], refused(RAFFLE_E_STRUCT, -1, "raffle_probabilities");
    }
    f.params.size = offsetof(raffle_params, draft_step), accepted("a caller of the first release");
    f.drafts.size = offsetof(raffle_drafts, draw_bits), f.drafts.draw_bits = (const uint64_t *)8, accepted("drafts without draw_bits");
    f.drafts.size = offsetof(raffle_drafts, draw_bits) - 8, refused(RAFFLE_E_STRUCT, -1, "raffle_drafts");
    f.logits.reserved = 1, refused(RAFFLE_E_STRUCT, -1, "raffle_logits.reserved");
    f.params.reserved = 1, refused(RAFFLE_E_STRUCT, -1, "raffle_params.reserved");
    f.drafts.reserved = 1, refused(RAFFLE_E_STRUCT, -1, "raffle_drafts.reserved");
    f.verified.reserved = 1, refused(RAFFLE_E_STRUCT, -1, "raffle_verified.reserved");
    f.launch.reserved = 1, refused(RAFFLE_E_STRUCT, -1, "raffle_launch.reserved");
    f.drafts.probabilities = &f.probabilities, f.probabilities.reserved = 1, refused(RAFFLE_E_STRUCT, -1, "raffle_probabilities.reserved");
}

TEST(shape) {
    f.logits.rows = -1, refused(RAFFLE_E_ARGUMENT, -1, "logits.rows");
    f.logits.rows = 2, refused(RAFFLE_E_ARGUMENT, -1, "logits.rows");
    f.drafts.requests = -1, refused(RAFFLE_E_ARGUMENT, -1, "requests");
    f.drafts.requests = 1ll << 31, refused(RAFFLE_E_ARGUMENT, -1, "requests");
    f.drafts.each = -1, refused(RAFFLE_E_ARGUMENT, -1, "each");
    f.drafts.each = 2, refused(RAFFLE_E_ARGUMENT, -1, "each"); /* and first */
    f.drafts.first = NULL, f.drafts.each = 2, refused(RAFFLE_E_ARGUMENT, -1, "logits.rows");
    f.drafts.first = NULL, f.drafts.each = INT64_MAX;
    refused(RAFFLE_E_ARGUMENT, -1, "drafts.each is 9223372036854775807: too large for 3 requests");
    f.drafts.first = NULL, f.drafts.each = INT64_MAX / 2 + 1, refused(RAFFLE_E_ARGUMENT, -1, "drafts.each"); /* 3 times that wraps */
    f.first[0] = 1, refused(RAFFLE_E_ARGUMENT, 0, "first[0]");
    f.first[1] = 6, refused(RAFFLE_E_ARGUMENT, 1, "first[1]");
    f.first[2] = 1, refused(RAFFLE_E_ARGUMENT, 2, "first[2]");
    f.first[3] = 4, refused(RAFFLE_E_ARGUMENT, 2, "first[3]"); /* where the last request ends */
    f.first[1] = INT32_MIN, refused(RAFFLE_E_ARGUMENT, 1, "first[1]");
    with_logits(), f.draft_logits.rows = 4, refused(RAFFLE_E_ARGUMENT, -1, "drafts.logits.rows");
    f.drafts.probabilities = &f.probabilities, f.probabilities.rows = 6, refused(RAFFLE_E_ARGUMENT, -1, "drafts.probabilities.rows");
    f.drafts.probabilities = &f.probabilities, f.probabilities.row_stride = INT64_MAX, refused(RAFFLE_E_ARGUMENT, -1, "row_stride");
    f.logits.row_stride = INT64_MIN, refused(RAFFLE_E_ARGUMENT, -1, "row_stride");
    int32_t index[ROWS] = {0};
    f.logits.row_index = index, refused(RAFFLE_E_UNSUPPORTED, -1, "logits.row_index is set");
    with_logits(), f.draft_logits.row_index = index, refused(RAFFLE_E_UNSUPPORTED, -1, "drafts.logits.row_index is set");
    f.params.slots = 2, f.params.slot = NULL, refused(RAFFLE_E_ARGUMENT, -1, "slots");
    f.launch.part = 3, f.launch.parts = 3, refused(RAFFLE_E_ARGUMENT, -1, "part");
    f.launch.workspace_bytes -= 1, refused(RAFFLE_E_WORKSPACE, -1, "workspace_bytes");
}

TEST(ids) {
    f.draft[3] = VOCAB, refused(RAFFLE_E_ARGUMENT, 2, "draft 1 of request 2 is 300");
    f.draft[0] = -2, refused(RAFFLE_E_ARGUMENT, 0, "draft 0 of request 0 is -2");
    f.draft[4] = INT32_MAX, refused(RAFFLE_E_ARGUMENT, 2, "draft 2 of request 2");
    f.drafts.parent = f.parent, f.parent[0] = 0, refused(RAFFLE_E_ARGUMENT, 0, "parent of draft 0 of request 0");
    f.drafts.parent = f.parent, f.parent[3] = 1, refused(RAFFLE_E_ARGUMENT, 2, "parent of draft 1 of request 2");
    f.drafts.parent = f.parent, f.parent[4] = -2, refused(RAFFLE_E_ARGUMENT, 2, "parent of draft 2 of request 2");
}

TEST(values_of_requests) {
    f.slot[1] = 3, refused(RAFFLE_E_ARGUMENT, 1, "slot of request 1");
    f.temperature[2] = -1.0f, refused(RAFFLE_E_ARGUMENT, 2, "temperature of request 2");
    f.top_p[0] = NAN, refused(RAFFLE_E_ARGUMENT, 0, "top_p of request 0");
    f.min_p[1] = NAN, refused(RAFFLE_E_ARGUMENT, 1, "min_p of request 1");
    float bad[REQUESTS] = {1.0f, NAN, 1.0f};
    with_logits(), f.draft_params.temperature = bad, refused(RAFFLE_E_ARGUMENT, 1, "temperature of drafts.params of request 1");
    int32_t slots[REQUESTS] = {0, -1, 0};
    with_logits(), f.draft_params.slot = slots, refused(RAFFLE_E_ARGUMENT, 1, "slot of drafts.params of request 1");
}

/* What is not supported together is refused, never ignored. */
TEST(combinations) {
    f.drafts.method = 4, refused(RAFFLE_E_ARGUMENT, -1, "method");
    f.drafts.method = -1, refused(RAFFLE_E_ARGUMENT, -1, "method");
    with_logits(), f.drafts.probabilities = &f.probabilities, refused(RAFFLE_E_ARGUMENT, -1, "both logits and probabilities");
    with_logits(), f.drafts.params = NULL, refused(RAFFLE_E_ARGUMENT, -1, "drafts.params");
    f.drafts.params = &f.draft_params, refused(RAFFLE_E_ARGUMENT, -1, "drafts.params");
    with_logits(), f.drafts.parent = f.parent, refused(RAFFLE_E_UNSUPPORTED, -1, "parent");
    f.drafts.probabilities = &f.probabilities, f.drafts.parent = f.parent, refused(RAFFLE_E_UNSUPPORTED, -1, "parent");
    f.drafts.parent = f.parent, f.drafts.method = RAFFLE_BLOCK, refused(RAFFLE_E_UNSUPPORTED, -1, "parent");
    with_logits(), f.drafts.method = RAFFLE_MATCH, refused(RAFFLE_E_UNSUPPORTED, -1, "drafts.logits is set: RAFFLE_MATCH");
    f.drafts.probabilities = &f.probabilities, f.drafts.method = RAFFLE_SYNTHETIC, refused(RAFFLE_E_UNSUPPORTED, -1, "probabilities");
    const uint64_t bits[2 * ROWS] = {0};
    f.drafts.method = RAFFLE_MATCH, f.drafts.accept_bits = bits;
    refused(RAFFLE_E_UNSUPPORTED, -1, "drafts.accept_bits is set: RAFFLE_MATCH");
    f.drafts.method = RAFFLE_MATCH, f.drafts.recover_bits = bits;
    refused(RAFFLE_E_UNSUPPORTED, -1, "drafts.recover_bits is set: RAFFLE_MATCH");
    f.drafts.method = RAFFLE_SYNTHETIC, f.drafts.recover_bits = bits;
    refused(RAFFLE_E_UNSUPPORTED, -1, "drafts.recover_bits is set: RAFFLE_SYNTHETIC");
    f.drafts.method = RAFFLE_SYNTHETIC, f.drafts.accept_bits = f.drafts.draw_bits = bits, accepted("bits of RAFFLE_SYNTHETIC");
    f.drafts.method = RAFFLE_MATCH, f.drafts.draw_bits = bits, accepted("bits of RAFFLE_MATCH");
    f.drafts.method = RAFFLE_BLOCK, f.drafts.accept_bits = f.drafts.recover_bits = f.drafts.draw_bits = bits;
    accepted("bits of RAFFLE_BLOCK");
    with_logits(), f.drafts.threshold_single = 0.5f, refused(RAFFLE_E_UNSUPPORTED, -1, "threshold_single");
    f.drafts.method = RAFFLE_BLOCK, f.drafts.threshold_sum = 0.5f, refused(RAFFLE_E_UNSUPPORTED, -1, "threshold_sum");
    const float bad[] = {-0.5f, 1.5f, NAN, INFINITY};
    for (int i = 0; i < 4; ++i) {
        f.drafts.threshold_single = bad[i], refused(RAFFLE_E_ARGUMENT, -1, "threshold_single");
        f.drafts.threshold_sum = bad[i], refused(RAFFLE_E_ARGUMENT, -1, "threshold_sum");
        f.drafts.method = RAFFLE_SYNTHETIC, f.drafts.rate = bad[i], refused(RAFFLE_E_ARGUMENT, -1, "rate");
    }
    f.drafts.rate = 0.5f, refused(RAFFLE_E_ARGUMENT, -1, "rate");
    f.params.draft_step = 1, refused(RAFFLE_E_ARGUMENT, -1, "draft_step");
    f.params.seed_offset = 1, refused(RAFFLE_E_ARGUMENT, -1, "seed_offset or position_offset");
    f.params.position_offset = 1, refused(RAFFLE_E_ARGUMENT, -1, "seed_offset or position_offset");
    with_logits(), f.draft_params.position_offset = 1, refused(RAFFLE_E_ARGUMENT, -1, "drafts.params: seed_offset or position_offset");
    with_logits(), f.draft_params.draft_step = 1, refused(RAFFLE_E_ARGUMENT, -1, "drafts.params.draft_step");
    f.params.flags = 1u << 30, refused(RAFFLE_E_ARGUMENT, -1, "params.flags");
    with_logits(), f.draft_params.flags = 1u << 30, refused(RAFFLE_E_ARGUMENT, -1, "drafts.params.flags");
}

TEST(a_plan_of_probabilities) {
    raffle_plan *logits_plan = f.plan;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = VOCAB;
    desc.input = RAFFLE_PROBS;
    CHECK_STATUS(raffle_plan_create(&desc, &f.plan, NULL), RAFFLE_OK);
    raffle_plan *plan = f.plan;
    f.params.temperature = NULL;
    refused(RAFFLE_E_UNSUPPORTED, -1, "input");
    raffle_plan_destroy(plan);
    f.plan = logits_plan;
    fixture_reset();
}

/* The plan that all of these need, and a state for it. */
static raffle_plan *plan_with_all(raffle_state *state) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = VOCAB;
    desc.flags = RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT;
    desc.history_max = 16;
    if (raffle_plan_create(&desc, &plan, NULL)) abort();
    *state = raffle_state_init();
    state->slots = REQUESTS, state->history_max = 16, state->vocab = VOCAB;
    state->memory = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, raffle_state_bytes(state));
    CHECK_STATUS(raffle_state_clear(state, NULL, NULL), RAFFLE_OK);
    return plan;
}

static raffle_extra extra[REQUESTS], draft_extra[REQUESTS];
static raffle_report report;

static void with_extras(const raffle_state *state) {
    memset(extra, 0, sizeof extra);
    memset(draft_extra, 0, sizeof draft_extra);
    with_logits();
    for (int i = 0; i < REQUESTS; ++i) extra[i].repetition = draft_extra[i].frequency = 1.5f;
    f.params.extra = extra, f.draft_params.extra = draft_extra;
    f.params.extra_bytes = f.draft_params.extra_bytes = sizeof *extra;
    f.params.state = f.draft_params.state = state;
    report = raffle_report_init();
    f.verified.report = &report;
}

TEST(extras_and_reports) {
    raffle_plan *const bare = f.plan;
    raffle_state state;
    raffle_plan *const plan = plan_with_all(&state);
    with_extras(&state), refused(RAFFLE_E_ARGUMENT, -1, "RAFFLE_PLAN_EXTRA");
    report = raffle_report_init(), f.verified.report = &report, refused(RAFFLE_E_ARGUMENT, -1, "RAFFLE_PLAN_REPORT");
    f.plan = plan;
    fixture_reset();
    with_extras(&state), accepted("extras and a report");
    with_extras(&state), f.verified.size = offsetof(raffle_verified, report), accepted("a caller of the first release");
    with_extras(&state), f.params.extra_bytes = 8, refused(RAFFLE_E_STRUCT, -1, "extra_bytes");
    with_extras(&state), f.draft_params.extra_bytes = 8, refused(RAFFLE_E_STRUCT, -1, "drafts: params.extra_bytes");
    with_extras(&state), report.point = 3, refused(RAFFLE_E_ARGUMENT, -1, "report.point");
    with_extras(&state), report.kept_stride = -1, refused(RAFFLE_E_ARGUMENT, -1, "report.kept_stride");
    with_extras(&state), report.size = offsetof(raffle_report, kept), accepted("a report of the first release");
    with_extras(&state), extra[1].repetition = -1.0f, refused(RAFFLE_E_ARGUMENT, 1, "repetition of request 1");
    with_extras(&state), draft_extra[2].frequency = NAN, refused(RAFFLE_E_ARGUMENT, 2, "drafts.params: frequency of request 2");
    with_extras(&state), f.params.state = NULL, refused(RAFFLE_E_ARGUMENT, 0, "repetition of request 0 needs a history");
    with_extras(&state), f.draft_params.state = NULL;
    refused(RAFFLE_E_ARGUMENT, 0, "drafts.params: frequency of request 0 needs a history");
    with_extras(&state), draft_extra[1].xtc_probability = 0.5f;
    refused(RAFFLE_E_UNSUPPORTED, 1, "drafts.params: xtc_probability of request 1");
    with_extras(&state), extra[1].xtc_probability = 0.5f, accepted("XTC of the target");
    f.params.state = &state, f.drafts.requests = 1, f.drafts.first = NULL, f.drafts.each = 257, f.logits.rows = 258;
    refused(RAFFLE_E_ARGUMENT, 0, "257 drafts");
    raffle_state wrong = state;
    wrong.vocab = VOCAB + 1;
    with_extras(&wrong), refused(RAFFLE_E_ARGUMENT, -1, "state.vocab");
    raffle_plan_destroy(plan);
    free(state.memory);
    f.plan = bare;
    fixture_reset();
}

int main(void) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = VOCAB;
    if (raffle_plan_create(&desc, &f.plan, NULL)) abort();
    fixture_reset();
    RUN(good_calls);
    RUN(empty_batch);
    RUN(null_structs);
    RUN(null_arrays);
    RUN(struct_sizes);
    RUN(shape);
    RUN(ids);
    RUN(values_of_requests);
    RUN(combinations);
    RUN(a_plan_of_probabilities);
    RUN(extras_and_reports);
    raffle_plan_destroy(f.plan);
    return test_report("verify_errors");
}
