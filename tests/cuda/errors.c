/* errors.c - what a CUDA call refuses before the work, and what only the GPU can see. */
#include <math.h>

#include "match.h"

enum { ROWS = 24, VOCAB = 999 };

static match *ready_make(test_random *r) {
    match *m = match_make(RAFFLE_F32, VOCAB, ROWS);
    match_layout(m, ROWS, VOCAB, 0, 0);
    match_fill_any(m, r);
    match_send_rows(m);
    match_pick(m, r);
    for (int64_t i = 0; i < ROWS; ++i) m->control->slot[i] = (int32_t)i;
    m->has |= HAS_SLOT;
    return m;
}

/* ---- on the device ---- */

/* Row i of the batch goes wrong in a way of its own, or not at all (0). */
static int spoil(match *m, int64_t i) {
    controls *c = m->control;
    switch (i % 12) {
    case 1: c->temperature[i] = NAN; return 1;
    case 2: c->temperature[i] = -1.0f; return 1;
    case 3: c->temperature[i] = -INFINITY; return 1;
    case 4: c->top_p[i] = NAN; return 1;
    case 5: c->min_p[i] = NAN; return 1;
    case 6: c->slot[i] = -1; return 1;
    case 7: c->slot[i] = ROWS; return 1;
    case 8: c->slot[i] = INT32_MAX; return 1;
    case 9: c->slot[i] = INT32_MIN; return 1;
    case 10: c->temperature[i] = -0.0f; return 0; /* greedy: -0 is 0 */
    default: return 0;
    }
}

static void bad_rows(uint32_t flags, unsigned has) {
    test_random r = {3 + flags};
    match *m = ready_make(&r);
    m->flags = flags;
    m->has |= has;
    if (has & HAS_ALLOW) match_mask(m);
    match_run_cpu(m);
    match_run_gpu(m);
    match_check(m, 0, ROWS, "before");
    controls *good = (controls *)malloc(sizeof *good);
    *good = *m->control;
    for (int64_t i = 0; i < ROWS; ++i) good->temperature[i] = i % 12 == 10 ? 0.0f : good->temperature[i];
    int bad[ROWS];
    for (int64_t i = 0; i < ROWS; ++i) bad[i] = spoil(m, i);
    match_run_gpu(m);
    controls *spoilt = m->control;
    m->control = good; /* the CPU knows what the others must be */
    match_run_cpu(m);
    for (int64_t i = 0; i < ROWS; ++i)
        if (bad[i]) {
            m->wanted->token[i] = RAFFLE_NO_TOKEN;
            m->wanted->row_flags[i] = RAFFLE_ROW_ARGUMENT;
        }
    match_check(m, 0, ROWS, "with bad rows");
    match_check_space(m, "bad rows");
    /* The same workspace goes on. */
    match_compare(m, "after");
    free(spoilt);
    match_free(m);
}

TEST(bad_parameters_cost_one_row) {
    NEED_GPU();
    bad_rows(0, 0);
    bad_rows(RAFFLE_EMPTY_IS_ZERO | RAFFLE_FILTERS_FIRST, 0);
    bad_rows(RAFFLE_TOP_K_EXACT, HAS_ALLOW);
}

/* Every row is wrong, also with several blocks to a row. */
TEST(all_rows_bad) {
    NEED_GPU();
    test_random r = {8};
    match *m = match_make(RAFFLE_BF16, 32000, 9);
    match_layout(m, 9, 32000, 0, 0);
    match_fill_any(m, &r);
    match_send_rows(m);
    for (int turn = 0; turn < 3; ++turn) {
        match_pick(m, &r);
        for (int64_t i = 0; i < 9; ++i) m->control->temperature[i] = turn == 1 ? 0.8f : -1.0f;
        match_run_gpu(m);
        if (turn == 1) match_run_cpu(m);
        for (int64_t i = 0; i < 9 && turn != 1; ++i) {
            m->wanted->token[i] = RAFFLE_NO_TOKEN;
            m->wanted->row_flags[i] = RAFFLE_ROW_ARGUMENT;
        }
        match_check(m, 0, 9, turn == 1 ? "all good" : "all bad");
        match_check_space(m, "bad rows");
    }
    match_free(m);
}

/* ---- on the host ---- */

typedef struct given {
    match *m;
    raffle_logits logits;
    raffle_params params;
    raffle_result result;
    raffle_launch launch;
} given;

static given given_make(match *m) {
    given g = {m, raffle_logits_init(), match_params(m, m->device_control, m->device_allow), raffle_result_init(),
               raffle_launch_init()};
    g.logits.data = m->device;
    g.logits.rows = ROWS;
    g.result.token = m->device_answers->token;
    g.result.row_flags = m->device_answers->row_flags;
    g.launch.workspace = m->space;
    g.launch.workspace_bytes = m->space_bytes;
    g.launch.stream = m->stream;
    return g;
}

/* The call must be refused with a sentence, and must not have touched anything. */
static void refused(const given *g, raffle_status wanted, const char *word) {
    raffle_error error = raffle_error_init();
    match_send_controls(g->m);
    CHECK_STATUS(raffle_sample(g->m->gpu, &g->logits, &g->params, &g->result, &g->launch, &error), wanted);
    CHECK(strstr(error.text, word), "the sentence \"%s\" does not say %s", error.text, word);
    CHECK_EQ(error.status, wanted);
    CHECK_EQ(error.row, -1);
    CHECK_STATUS(raffle_sample(g->m->gpu, &g->logits, &g->params, &g->result, &g->launch, NULL), wanted);
    match_fetch(g->m);
    match_check(g->m, 0, 0, word); /* all poison */
    match_check_space(g->m, word);
}

TEST(host_errors_write_nothing) {
    NEED_GPU();
    test_random r = {9};
    match *m = ready_make(&r);
    given g;
#define REFUSED(change, status, word)                                                                                  \
    do {                                                                                                               \
        g = given_make(m);                                                                                             \
        change;                                                                                                        \
        refused(&g, status, word);                                                                                     \
    } while (0)
    REFUSED(g.launch.parts = 2, RAFFLE_E_ARGUMENT, "parts");
    REFUSED(g.launch.parts = 1, RAFFLE_E_ARGUMENT, "parts");
    REFUSED(g.launch.part = 1, RAFFLE_E_ARGUMENT, "part");
    REFUSED(g.launch.workspace = NULL, RAFFLE_E_WORKSPACE, "workspace");
    REFUSED(g.launch.workspace_bytes -= 1, RAFFLE_E_WORKSPACE, "workspace_bytes");
    REFUSED(g.launch.workspace_bytes = 0, RAFFLE_E_WORKSPACE, "workspace_bytes");
    REFUSED(g.launch.workspace = m->space + 16, RAFFLE_E_WORKSPACE, "aligned");
    REFUSED(g.logits.rows = ROWS + 1, RAFFLE_E_ARGUMENT, "rows_max");
    REFUSED(g.logits.rows = -1, RAFFLE_E_ARGUMENT, "rows");
    REFUSED(g.logits.data = NULL, RAFFLE_E_ARGUMENT, "data");
    REFUSED(g.params.seed = NULL, RAFFLE_E_ARGUMENT, "seed");
    REFUSED(g.params.position = NULL, RAFFLE_E_ARGUMENT, "position");
    REFUSED(g.params.flags = 1u << 20, RAFFLE_E_ARGUMENT, "flags");
    REFUSED(g.params.allow_stride = 1, RAFFLE_E_ARGUMENT, "allow_stride");
    REFUSED((g.params.slot = NULL, g.params.slots = ROWS - 1), RAFFLE_E_ARGUMENT, "slots");
    REFUSED(g.result.token = NULL, RAFFLE_E_ARGUMENT, "token");
#undef REFUSED
    /* No rows is fine, and nothing happens. */
    g = given_make(m);
    g.logits.rows = 0;
    match_send_controls(m);
    CHECK_STATUS(raffle_sample(m->gpu, &g.logits, &g.params, &g.result, &g.launch, NULL), RAFFLE_OK);
    match_fetch(m);
    match_check(m, 0, 0, "no rows");
    /* And after all this a good call is good. */
    match_compare(m, "after the errors");
    match_free(m);
}

TEST(plan_errors) {
    NEED_GPU();
    raffle_plan *plan = (raffle_plan *)&plan;
    raffle_error error = raffle_error_init();
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.backend = RAFFLE_CUDA;
    desc.vocab = VOCAB;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "rows_max") && !plan, "%s", error.text);
    desc.rows_max = 4;
    desc.isa = RAFFLE_ISA_SCALAR;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "isa") && !plan, "%s", error.text);
    desc.isa = RAFFLE_ISA_BEST;
    desc.device = 4096;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "device") && !plan, "%s", error.text);
    desc.device = 0;
    MUST(raffle_plan_create(&desc, &plan, &must_error));
    char text[256];
    size_t length = raffle_plan_describe(plan, text, sizeof text);
    CHECK(length == strlen(text) && strstr(text, "cuda") && strstr(text, "f32"), "describes itself as \"%s\"", text);
    CHECK_EQ(raffle_plan_describe(plan, NULL, 0), length);
    /* Explaining is the CPU's. */
    raffle_explanation explanation = raffle_explanation_init();
    test_random r = {10};
    match *m = ready_make(&r);
    given g = given_make(m);
    CHECK_STATUS(raffle_explain(m->gpu, &g.logits, &g.params, 0, &explanation, &g.launch, NULL), RAFFLE_E_UNSUPPORTED);
    match_free(m);
    raffle_plan_destroy(plan);
    CHECK(cudaGetLastError() == cudaSuccess, "an error was left behind for the caller's next CUDA call");
}

/* An error that the caller has left behind is the caller's: the call works and reports its own status only. */
TEST(errors_of_others) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: sanitizers would report the error that is made here on purpose");
    test_random r = {11};
    match *m = ready_make(&r);
    void *nothing = NULL;
    match_run_cpu(m);
    match_send_controls(m);
    if (cudaMalloc(&nothing, (size_t)1 << 60) == cudaSuccess) CUDA(cudaFree(nothing)); /* fails, and stays pending */
    CHECK_STATUS(match_call(m, 0, ROWS, m->stream, NULL), RAFFLE_OK);
    (void)cudaGetLastError();
    match_fetch(m);
    match_check(m, 0, ROWS, "after another's error");
    match_free(m);
}

int main(void) {
    gpu_start("cuda_errors", 60);
    RUN(bad_parameters_cost_one_row);
    RUN(all_rows_bad);
    RUN(host_errors_write_nothing);
    RUN(plan_errors);
    RUN(errors_of_others);
    return test_report("cuda_errors");
}
