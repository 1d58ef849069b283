/* graphs.c - a captured call serves every later content of logits and parameters, as often as it is replayed. */
#include "match.h"

static cudaGraphExec_t graph_make(match *m, int64_t rows) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeGlobal));
    MUST(match_call(m, 0, rows, m->stream, &must_error));
    CUDA(cudaStreamEndCapture(m->stream, &graph));
    size_t nodes = 0;
    CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 1, "the call is %zu launches, not one", nodes);
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
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
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeGlobal));
    CHECK_STATUS(match_call(m, 0, 5, m->stream, NULL), RAFFLE_E_ARGUMENT);
    CHECK_STATUS(match_call(m, 0, 0, m->stream, NULL), RAFFLE_OK);
    MUST(match_call(m, 0, 4, m->stream, &must_error));
    CUDA(cudaStreamEndCapture(m->stream, &graph));
    size_t nodes = 0;
    CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK_EQ(nodes, 1);
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, m->stream));
    match_fetch(m);
    match_run_cpu(m);
    match_check(m, 0, 4, "captured after a refusal");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    match_free(m);
}

int main(void) {
    gpu_start("cuda_graphs", 120);
    RUN(replays_follow_memory);
    RUN(a_hundred_thousand_replays);
    RUN(refused_while_capturing);
    return test_report("cuda_graphs");
}
