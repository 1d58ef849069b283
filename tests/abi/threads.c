/* threads.c - many threads, one plan: each with its own workspace and part, and the tokens of one thread.
 * Runs in the ThreadSanitizer build too, where a write to shared state would show. */
#include <pthread.h>
#include <stdlib.h>

#include "common/test.h"
#include "raffle/raffle.h"

enum { ROWS = 37, VOCAB = 1001, THREADS = 8, ROUNDS = 12 };

static float data[ROWS * VOCAB], temperature[ROWS], top_p[ROWS], min_p[ROWS];
static int32_t top_k[ROWS], expected[ROWS], shared_token[ROWS];
static uint32_t expected_flags[ROWS], shared_flags[ROWS];
static uint64_t seed[ROWS], position[ROWS];

typedef struct worker {
    const raffle_plan *plan; /* shared; NULL: make an own one each round */
    int part, parts;
    int32_t *token; /* [ROWS] */
    uint32_t *row_flags;
    int failures;
} worker;

static raffle_plan *plan_make(int isa) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan = NULL;
    desc.vocab = VOCAB;
    desc.isa = isa;
    return raffle_plan_create(&desc, &plan, NULL) ? NULL : plan;
}

static void *work(void *context) {
    worker *w = context;
    for (int round = 0; round < ROUNDS; ++round) {
        raffle_plan *own = w->plan ? NULL : plan_make(RAFFLE_ISA_BEST);
        const raffle_plan *plan = own ? own : w->plan;
        raffle_logits logits = raffle_logits_init();
        raffle_params params = raffle_params_init();
        raffle_result result = raffle_result_init();
        raffle_launch launch = raffle_launch_init();
        raffle_error error = raffle_error_init();
        raffle_explanation explanation = raffle_explanation_init();
        logits.data = data;
        logits.rows = ROWS;
        params.temperature = temperature;
        params.top_p = top_p;
        params.min_p = min_p;
        params.top_k = top_k;
        params.seed = seed;
        params.position = position;
        result.token = w->token;
        result.row_flags = w->row_flags;
        launch.workspace_bytes = raffle_plan_workspace(plan);
        launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);
        launch.part = w->part;
        launch.parts = w->parts;
        w->failures += raffle_sample(plan, &logits, &params, &result, &launch, &error) != RAFFLE_OK;
        int64_t row = (w->part * 5 + round) % ROWS;
        w->failures += raffle_explain(plan, &logits, &params, row, &explanation, &launch, &error) != RAFFLE_OK;
        w->failures += explanation.token != expected[row];
        free(launch.workspace);
        raffle_plan_destroy(own);
    }
    return NULL;
}

static int run_all(worker *workers, int count) {
    pthread_t threads[THREADS];
    int failures = 0;
    for (int i = 0; i < count; ++i)
        if (pthread_create(&threads[i], NULL, work, &workers[i])) return -1;
    for (int i = 0; i < count; ++i) {
        pthread_join(threads[i], NULL);
        failures += workers[i].failures;
    }
    return failures;
}

static void as_expected(const int32_t *token, const uint32_t *row_flags) {
    for (int i = 0; i < ROWS; ++i) {
        CHECK(token[i] == expected[i], "row %d: token %d, one thread drew %d", i, token[i], expected[i]);
        CHECK_EQ(row_flags[i], expected_flags[i]);
    }
}

TEST(parts_of_one_batch) {
    for (int isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa) {
        raffle_plan *plan = plan_make(isa);
        if (!plan) continue;
        for (int count = 1; count <= THREADS; count += count < 3 ? 1 : 5) {
            worker workers[THREADS];
            memset(shared_token, 0x55, sizeof shared_token);
            memset(shared_flags, 0x55, sizeof shared_flags);
            for (int i = 0; i < count; ++i) {
                worker w = {plan, i, count, shared_token, shared_flags, 0};
                workers[i] = w;
            }
            CHECK_EQ(run_all(workers, count), 0);
            as_expected(shared_token, shared_flags);
        }
        raffle_plan_destroy(plan);
    }
}

static int32_t own_token[THREADS][ROWS];
static uint32_t own_flags[THREADS][ROWS];

TEST(whole_batches_side_by_side) {
    raffle_plan *plan = plan_make(RAFFLE_ISA_BEST);
    worker workers[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        worker w = {i % 2 ? plan : NULL, 0, 1, own_token[i], own_flags[i], 0}; /* NULL: detection races too */
        workers[i] = w;
    }
    CHECK_EQ(run_all(workers, THREADS), 0);
    for (int i = 0; i < THREADS; ++i) as_expected(own_token[i], own_flags[i]);
    raffle_plan_destroy(plan);
}

int main(void) {
    test_random random = {2024};
    for (int i = 0; i < ROWS * VOCAB; ++i) data[i] = (float)(random_unit(&random) * 12.0 - 6.0);
    data[3 * VOCAB + 7] = bits_float(0x7fc00000u);
    data[4 * VOCAB + 9] = bits_float(0x7f800000u);
    for (int i = 0; i < VOCAB; ++i) data[5 * VOCAB + i] = bits_float(0xff800000u);
    for (int i = 0; i < ROWS; ++i) {
        temperature[i] = i % 7 ? 0.5f + (float)(i % 5) : 0.0f;
        top_p[i] = i % 2 ? 0.8f : 1.0f;
        min_p[i] = i % 3 ? 0.0f : 0.1f;
        top_k[i] = i % 4 ? 0 : 30;
        seed[i] = (uint64_t)i * 11;
        position[i] = (uint64_t)i;
    }
    /* The reference: one thread, the scalar kernels, before any other thread exists. */
    raffle_plan *plan = plan_make(RAFFLE_ISA_SCALAR);
    worker first = {plan, 0, 0, expected, expected_flags, 0};
    work(&first);
    raffle_plan_destroy(plan);
    RUN(parts_of_one_batch);
    RUN(whole_batches_side_by_side);
    return test_report("threads");
}
