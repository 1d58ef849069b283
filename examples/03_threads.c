/* 03_threads.c - a batch on several threads: the threads are yours, and the tokens do not depend on them. */
#include <pthread.h>
#include <raffle/raffle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 32000, ROWS = 37, THREADS_MAX = 8 };

/* What all threads share: it is only read. */
static raffle_plan *plan;
static raffle_logits logits;
static raffle_params params;
static raffle_result result; /* each thread writes the tokens of its own rows */

typedef struct worker {
    raffle_launch launch; /* a workspace of its own, and which part of the rows */
    raffle_status status;
} worker;

static void *work(void *given) {
    worker *const w = given;
    w->status = raffle_sample(plan, &logits, &params, &result, &w->launch, NULL);
    return NULL;
}

static int sample_with(int threads) {
    pthread_t thread[THREADS_MAX];
    worker workers[THREADS_MAX];
    int good = 1;
    for (int i = 0; i < threads; ++i) {
        worker *const w = &workers[i];
        w->launch = raffle_launch_init();
        w->launch.part = i;
        w->launch.parts = threads;
        w->launch.workspace_bytes = raffle_plan_workspace(plan);
        w->launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, w->launch.workspace_bytes);
        if (pthread_create(&thread[i], NULL, work, w)) exit(1);
    }
    for (int i = 0; i < threads; ++i) {
        pthread_join(thread[i], NULL);
        good &= workers[i].status == RAFFLE_OK;
        free(workers[i].launch.workspace);
    }
    return good;
}

int main(void) {
    float *const data = malloc(sizeof(float) * ROWS * VOCAB);
    uint64_t seed[ROWS], position[ROWS];
    int32_t alone[ROWS], token[ROWS];
    uint32_t state = 1;
    for (int i = 0; i < ROWS * VOCAB; ++i) {
        state = state * 1664525u + 1013904223u;
        data[i] = (float)(state >> 16) * (1.0f / 8192.0f);
    }
    for (int row = 0; row < ROWS; ++row) {
        seed[row] = 1000 + (uint64_t)row;
        position[row] = 5;
    }

    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = VOCAB;
    if (raffle_plan_create(&desc, &plan, NULL)) return 1;
    logits = raffle_logits_init();
    logits.data = data;
    logits.rows = ROWS;
    params = raffle_params_init();
    params.seed = seed;
    params.position = position;
    result = raffle_result_init();

    result.token = alone;
    int good = sample_with(1);
    result.token = token;
    for (int threads = 2; threads <= THREADS_MAX; ++threads) {
        memset(token, -1, sizeof token);
        good &= sample_with(threads) && memcmp(token, alone, sizeof token) == 0;
        printf("%d threads: %s\n", threads, good ? "the same tokens" : "other tokens");
    }
    raffle_plan_destroy(plan);
    free(data);
    return good ? 0 : 1;
}
