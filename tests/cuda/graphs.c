/* graphs.c - a captured call serves every later content of logits and parameters, as often as it is replayed. */
#include "match.h"

static cudaGraphExec_t graph_make(match *m, int64_t rows) {
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeGlobal));
    MUST(match_call(m, 0, rows, m->stream, &must_error));
    const size_t launches = gpu_capture_end(m->stream, &exec);
    CHECK(launches == 1, "the call is %zu launches, not one", launches);
    return exec;
}

/* Replays follow what is in memory: parameters, seeds, positions, slots, masks, logits. Eager calls go between them. */
static void follow(int dtype, int64_t vocab, int64_t rows, int turns, unsigned has, uint32_t flags) {
    test_random r = {(uint64_t)vocab + flags};
    match *m = match_make(dtype, vocab, rows);
    match_layout(m, rows, vocab + (vocab & 1), 0, 0);
    match_fill_any(m, &r);
    match_send_rows(m);
    m->has = HAS_USUAL | has;
    m->flags = flags;
    match_pick(m, &r);
    match_mask(m);
    match_send_controls(m);
    cudaGraphExec_t exec = graph_make(m, rows);
    for (int turn = 0; turn < turns && !match_hopeless(); ++turn) {
        if (turn % 8 == 7) { /* other logits in the same place */
            match_fill_any(m, &r);
            match_send_rows(m);
        }
        if (turn % 2) match_pick(m, &r);
        else
            for (int64_t s = 0; s < rows; ++s) ++m->control->position[s];
        if (turn % 4 == 3) match_mask(m);
        match_send_controls(m);
        CUDA(cudaGraphLaunch(exec, m->stream));
        match_fetch(m);
        match_run_cpu(m);
        match_check(m, 0, rows, "replay");
        if (turn % 3) continue;
        match_run_gpu(m);
        match_check(m, 0, rows, "eager after a replay");
    }
    match_check_space(m, "replays");
    CUDA(cudaGraphExecDestroy(exec));
    match_free(m);
}

TEST(replays_follow_memory) {
    NEED_GPU();
    const int turns = gpu_quick() ? 4 : 60;
    follow(RAFFLE_BF16, gpu_quick() ? 257 : 32000, 32, turns, 0, 0);
    follow(RAFFLE_F32, 4097, gpu_quick() ? 8 : 64, turns, HAS_SLOT | HAS_ALLOW,
           RAFFLE_FILTERS_FIRST | RAFFLE_TOP_P_JOINT);
    if (gpu_quick()) return;
    follow(RAFFLE_F16, 49152, 20, turns, HAS_ALLOW, RAFFLE_TOP_K_EXACT | RAFFLE_MIN_P_LAST | RAFFLE_EMPTY_IS_ZERO);
    follow(RAFFLE_BF16, 151936, 8, turns, HAS_SLOT, RAFFLE_TOP_K_EXACT);
    follow(RAFFLE_BF16, 128256, 5, turns, 0, 0); /* rows with teams (team.cuh) */
}

/* ---- very many replays ---- */

enum { SOAK_ROWS = 4, SOAK_VOCAB = 1000, SOAK_REPLAYS = 100000 };

typedef struct soak {
    match *m;
    int32_t (*wanted)[SOAK_ROWS];
    uint64_t (*position)[SOAK_ROWS];
    int replays;
} soak;

static void soak_cpu(void *given, int member, int members) {
    soak *s = (soak *)given;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = s->m->cpu_space[member];
    launch.workspace_bytes = raffle_plan_workspace(s->m->cpu);
    for (int i = member; i < s->replays; i += members) {
        raffle_params params = match_params(s->m, s->m->control, NULL);
        params.position = s->position[i];
        raffle_logits logits = raffle_logits_init();
        logits.data = s->m->host;
        logits.rows = SOAK_ROWS;
        raffle_result result = raffle_result_init();
        result.token = s->wanted[i];
        if (raffle_sample(s->m->cpu, &logits, &params, &result, &launch, NULL)) abort();
    }
}

/* Every replay has positions of its own, and every token is compared. */
TEST(a_hundred_thousand_replays) {
    NEED_GPU();
    soak s;
    s.replays = gpu_quick() ? 200 : SOAK_REPLAYS;
    s.m = match_make(RAFFLE_BF16, SOAK_VOCAB, SOAK_ROWS);
    s.wanted = (int32_t(*)[SOAK_ROWS])malloc((size_t)s.replays * sizeof *s.wanted);
    int32_t(*got)[SOAK_ROWS];
    CUDA(cudaMallocHost((void **)&got, (size_t)s.replays * sizeof *got));
    CUDA(cudaMallocHost((void **)&s.position, (size_t)s.replays * sizeof *s.position));
    for (int i = 0; i < s.replays; ++i)
        for (int j = 0; j < SOAK_ROWS; ++j) s.position[i][j] = (uint64_t)i * 7 + (uint64_t)j;
    match *m = s.m;
    match_layout(m, SOAK_ROWS, SOAK_VOCAB, 0, 0);
    static const char *const kinds[SOAK_ROWS] = {"normal", "flat", "ties", "normal"};
    static const float p[SOAK_ROWS] = {1.0f, 0.9f, 1.0f, 0.95f};
    static const int32_t k[SOAK_ROWS] = {0, 0, 300, 50};
    for (int j = 0; j < SOAK_ROWS; ++j) {
        m->kind[j] = kinds[j];
        m->row_seed[j] = (uint64_t)j;
        m->control->temperature[j] = 0.9f;
        m->control->top_p[j] = p[j];
        m->control->top_k[j] = k[j];
        m->control->min_p[j] = 0.0f;
        m->control->seed[j] = 99 + (uint64_t)j;
    }
    match_fill(m);
    match_send_rows(m);
    match_send_controls(m);
    cudaGraphExec_t exec = graph_make(m, SOAK_ROWS);
    for (int i = 0; i < s.replays; ++i) {
        CUDA(cudaMemcpyAsync(m->device_control->position, s.position[i], sizeof *s.position, cudaMemcpyHostToDevice,
                             m->stream));
        CUDA(cudaGraphLaunch(exec, m->stream));
        CUDA(cudaMemcpyAsync(got[i], m->device_answers->token, sizeof *got, cudaMemcpyDeviceToHost, m->stream));
        if (i % 1000 == 999) CUDA(cudaStreamSynchronize(m->stream));
    }
    CUDA(cudaStreamSynchronize(m->stream));
    crew_run(soak_cpu, &s);
    for (int i = 0; i < s.replays; ++i)
        for (int j = 0; j < SOAK_ROWS; ++j)
            CHECK(got[i][j] == s.wanted[i][j], "replay %d row %d (%s): GPU %d, CPU %d", i, j, kinds[j], got[i][j],
                  s.wanted[i][j]);
    match_check_space(m, "replays");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaFreeHost(got));
    CUDA(cudaFreeHost(s.position));
    free(s.wanted);
    match_free(m);
}

/* A call that is refused adds nothing to a capture and does not spoil it. */
TEST(refused_while_capturing) {
    NEED_GPU();
    test_random r = {4};
    match *m = match_make(RAFFLE_F32, 999, 4);
    match_layout(m, 4, 999, 0, 0);
    match_fill_any(m, &r);
    match_send_rows(m);
    match_pick(m, &r);
    match_send_controls(m);
    CUDA(cudaStreamSynchronize(m->stream));
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeGlobal));
    CHECK_STATUS(match_call(m, 0, 5, m->stream, NULL), RAFFLE_E_ARGUMENT);
    CHECK_STATUS(match_call(m, 0, 0, m->stream, NULL), RAFFLE_OK);
    MUST(match_call(m, 0, 4, m->stream, &must_error));
    CHECK_EQ(gpu_capture_end(m->stream, &exec), 1);
    CUDA(cudaGraphLaunch(exec, m->stream));
    match_fetch(m);
    match_run_cpu(m);
    match_check(m, 0, 4, "captured after a refusal");
    CUDA(cudaGraphExecDestroy(exec));
    match_free(m);
}

/* ---- how many launches a call is ---- */

enum { COUNT_ROWS = 6, COUNT_REQUESTS = 2, COUNT_DRAFTS = 2, COUNT_VOCAB = 700, COUNT_HISTORY = 40, COUNT_ROOM = 1 << 20 };
enum { SAMPLE, WRITE, VERIFY, DRAFT };
enum { WITH_EXTRA = 1, WITH_REPORT = 2, WITH_INDEX = 4, WITH_FILTERS = 8, WITH_LISTS = 16, WITH_DRAFT_LOGITS = 32 };

static const struct {
    const char *name;
    int call, plan, input, method;
    unsigned with;
    size_t most;
} counted[] = {
    {"raffle_sample", SAMPLE, 0, RAFFLE_LOGITS, 0, 0, 1},
    {"raffle_sample, filters", SAMPLE, 0, RAFFLE_LOGITS, 0, WITH_FILTERS, 1},
    {"raffle_sample, row_index", SAMPLE, 0, RAFFLE_LOGITS, 0, WITH_INDEX, 1},
    {"raffle_sample of probabilities", SAMPLE, 0, RAFFLE_PROBS, 0, WITH_FILTERS, 1},
    {"raffle_sample of probabilities, row_index", SAMPLE, 0, RAFFLE_PROBS, 0, WITH_INDEX, 1},
    {"raffle_sample, extra", SAMPLE, RAFFLE_PLAN_EXTRA, RAFFLE_LOGITS, 0, WITH_EXTRA | WITH_FILTERS, 1},
    {"raffle_sample, extra and row_index", SAMPLE, RAFFLE_PLAN_EXTRA, RAFFLE_LOGITS, 0, WITH_EXTRA | WITH_INDEX, 1},
    {"raffle_sample, report", SAMPLE, RAFFLE_PLAN_REPORT, RAFFLE_LOGITS, 0, WITH_REPORT, 1},
    {"raffle_sample, all of it", SAMPLE, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, RAFFLE_LOGITS, 0, 15, 1},
    {"raffle_softmax", WRITE, 0, RAFFLE_LOGITS, 0, 0, 2},
    {"raffle_softmax, filters", WRITE, 0, RAFFLE_LOGITS, 0, WITH_FILTERS, 2},
    {"raffle_softmax, extra", WRITE, RAFFLE_PLAN_EXTRA, RAFFLE_LOGITS, 0, WITH_EXTRA, 2},
    {"raffle_softmax, filters and lists", WRITE, 0, RAFFLE_LOGITS, 0, WITH_FILTERS | WITH_LISTS, 3},
    {"raffle_softmax of probabilities", WRITE, 0, RAFFLE_PROBS, 0, WITH_FILTERS, 2},
    {"raffle_softmax of probabilities, lists", WRITE, 0, RAFFLE_PROBS, 0, WITH_FILTERS | WITH_LISTS, 3},
    {"raffle_verify", VERIFY, 0, RAFFLE_LOGITS, RAFFLE_REJECTION, WITH_DRAFT_LOGITS, 2},
    {"raffle_verify, no draft logits", VERIFY, 0, RAFFLE_LOGITS, RAFFLE_REJECTION, WITH_FILTERS, 2},
    {"raffle_verify, blocks", VERIFY, 0, RAFFLE_LOGITS, RAFFLE_BLOCK, WITH_DRAFT_LOGITS, 2},
    {"raffle_verify, match", VERIFY, 0, RAFFLE_LOGITS, RAFFLE_MATCH, 0, 1},
    {"raffle_verify, synthetic", VERIFY, 0, RAFFLE_LOGITS, RAFFLE_SYNTHETIC, 0, 1},
    {"raffle_verify, extra", VERIFY, RAFFLE_PLAN_EXTRA, RAFFLE_LOGITS, RAFFLE_REJECTION, WITH_EXTRA | WITH_DRAFT_LOGITS, 2},
    {"raffle_verify, report", VERIFY, RAFFLE_PLAN_REPORT, RAFFLE_LOGITS, RAFFLE_REJECTION, WITH_REPORT | WITH_DRAFT_LOGITS, 3},
    {"raffle_verify, extra and report", VERIFY, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, RAFFLE_LOGITS, RAFFLE_BLOCK,
     WITH_EXTRA | WITH_REPORT | WITH_DRAFT_LOGITS, 3},
    {"raffle_draft", DRAFT, 0, RAFFLE_LOGITS, 0, WITH_FILTERS | WITH_DRAFT_LOGITS, 2},
    {"raffle_draft, tokens alone", DRAFT, 0, RAFFLE_LOGITS, 0, 0, 2},
    {"raffle_draft, row_index", DRAFT, 0, RAFFLE_LOGITS, 0, WITH_INDEX | WITH_DRAFT_LOGITS, 2},
    {"raffle_draft, extra and report", DRAFT, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, RAFFLE_LOGITS, 0,
     WITH_EXTRA | WITH_REPORT | WITH_DRAFT_LOGITS, 2},
};

/* A plan, and memory for all that a call may point at. */
typedef struct counter {
    raffle_plan *plan;
    raffle_launch launch;
    char *memory;
    raffle_state state;
} counter;

static raffle_params count_params(const counter *c, unsigned with) {
    raffle_params p = raffle_params_init();
    p.seed = p.position = (const uint64_t *)c->memory;
    if (with & WITH_FILTERS) p.top_p = (const float *)c->memory, p.top_k = (const int32_t *)c->memory;
    if (with & WITH_EXTRA) {
        p.extra = (const raffle_extra *)c->memory;
        p.extra_bytes = sizeof *p.extra;
        p.state = &c->state;
    }
    return p;
}

static raffle_status count_call(const counter *c, size_t i, raffle_error *error) {
    const unsigned with = counted[i].with;
    int32_t *whole = (int32_t *)c->memory;
    float *real = (float *)c->memory;
    raffle_params params = count_params(c, with);
    raffle_logits logits = raffle_logits_init(), draft_logits = logits;
    raffle_report report = raffle_report_init();
    logits.data = draft_logits.data = c->memory;
    logits.rows = COUNT_ROWS;
    draft_logits.rows = COUNT_REQUESTS * COUNT_DRAFTS;
    if (with & WITH_INDEX) logits.row_index = whole;
    report.chosen = report.top = real, report.rank = report.top_token = whole, report.top_count = 5;
    report.kept = (uint32_t *)whole, report.kept_list = report.kept_count = whole, report.kept_list_stride = 3;
    if (counted[i].call == SAMPLE || counted[i].call == DRAFT) {
        raffle_result result = raffle_result_init();
        raffle_drafted drafted = raffle_drafted_init();
        result.token = whole;
        if (with & WITH_REPORT) result.report = &report;
        drafted.each = params.draft_step = COUNT_DRAFTS;
        drafted.token = whole + COUNT_ROWS;
        if (with & WITH_DRAFT_LOGITS) drafted.logits = c->memory + COUNT_ROOM / 2;
        if (counted[i].call == DRAFT) return raffle_draft(c->plan, &logits, &params, &result, &drafted, &c->launch, error);
        params.draft_step = 0;
        return raffle_sample(c->plan, &logits, &params, &result, &c->launch, error);
    }
    if (counted[i].call == WRITE) {
        raffle_output output = raffle_output_init();
        output.data = c->memory + COUNT_ROOM / 2;
        if (with & WITH_LISTS) output.kept_list = whole, output.kept_list_stride = 20, output.kept_count = whole;
        return raffle_softmax(c->plan, &logits, &params, &output, &c->launch, error);
    }
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    drafts.method = counted[i].method;
    drafts.requests = COUNT_REQUESTS;
    drafts.each = COUNT_DRAFTS;
    drafts.token = whole;
    if (with & WITH_DRAFT_LOGITS) drafts.logits = &draft_logits, drafts.params = &params;
    verified.token = verified.accepted = whole;
    if (with & WITH_REPORT) verified.report = &report;
    return raffle_verify(c->plan, &logits, &params, &drafts, &verified, &c->launch, error);
}

/* As many as the pages say, or fewer. The calls are captured and not run. */
TEST(launches) {
    NEED_GPU();
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t i = 0; i < sizeof counted / sizeof *counted; ++i) {
        counter c = {NULL, raffle_launch_init(), (char *)gpu_alloc(COUNT_ROOM), raffle_state_init()};
        raffle_plan_desc desc = raffle_plan_desc_init();
        raffle_error error = raffle_error_init();
        desc.backend = c.state.backend = RAFFLE_CUDA;
        desc.vocab = c.state.vocab = COUNT_VOCAB;
        desc.rows_max = COUNT_ROWS + COUNT_REQUESTS * COUNT_DRAFTS;
        desc.flags = counted[i].plan;
        desc.input = counted[i].input;
        desc.history_max = counted[i].plan & RAFFLE_PLAN_EXTRA ? COUNT_HISTORY : 0;
        c.state.history_max = COUNT_HISTORY;
        c.state.slots = COUNT_ROWS;
        c.state.memory = c.memory;
        MUST(raffle_plan_create(&desc, &c.plan, &must_error));
        c.launch.workspace_bytes = raffle_plan_workspace(c.plan);
        c.launch.workspace = gpu_alloc(c.launch.workspace_bytes);
        c.launch.stream = stream;
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        const raffle_status status = count_call(&c, i, &error);
        const size_t found = gpu_capture_end(stream, NULL);
        CHECK(!status, "%s: %s", counted[i].name, error.text);
        CHECK(found >= 1 && found <= counted[i].most, "%s is %zu launches, more than %zu, or none", counted[i].name, found, counted[i].most);
        raffle_plan_destroy(c.plan);
        CUDA(cudaFree(c.launch.workspace));
        CUDA(cudaFree(c.memory));
    }
    CUDA(cudaStreamDestroy(stream));
}

int main(void) {
    gpu_start("cuda_graphs", 120);
    RUN(replays_follow_memory);
    RUN(a_hundred_thousand_replays);
    RUN(refused_while_capturing);
    RUN(launches);
    return test_report("cuda_graphs");
}
