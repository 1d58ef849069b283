/* bench_verify.c - the part of raffle bench about raffle_verify: requests with four drafts, beside sampling all their rows. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "picture.h"
#include "text.h"

enum { REQUESTS = 8, DRAFTS = 4, ROWS = REQUESTS * (DRAFTS + 1), TRIES = 9 };

typedef struct verify_route {
    const char *name;
    settings settings;
    int32_t method;
    int knows_logits;
} verify_route;

static const verify_route verify_routes[] = {
    {"greedy", {0.0f, 1.0f, 0.0f, 0, 0, 7}, RAFFLE_REJECTION, 0},
    {"rejection, draft logits", {0.8f, 1.0f, 0.0f, 0, 0, 7}, RAFFLE_REJECTION, 1},
    {"the same, top-k 50 + top-p 0.9", {0.8f, 0.9f, 0.0f, 50, 0, 7}, RAFFLE_REJECTION, 1},
    {"rejection, tokens alone", {0.8f, 1.0f, 0.0f, 0, 0, 7}, RAFFLE_REJECTION, 0},
    {"block, draft logits", {0.8f, 1.0f, 0.0f, 0, 0, 7}, RAFFLE_BLOCK, 1},
    {"match", {0.8f, 1.0f, 0.0f, 0, 0, 7}, RAFFLE_MATCH, 0},
};
enum { VERIFY_ROUTES = sizeof verify_routes / sizeof *verify_routes };

/* The first ROWS rows of a pool as target rows, the same with noise as draft rows. */
typedef struct verify_rows {
    const float *target;
    float *draft; /* [REQUESTS * DRAFTS, vocab] */
    int64_t vocab;
} verify_rows;

static exit_code rows_open(verify_rows *v, const pool *pool) {
    uint32_t state = 9;
    v->vocab = pool->vocab;
    v->target = pool->f32[PEAKED];
    v->draft = malloc((size_t)(REQUESTS * DRAFTS * v->vocab) * sizeof *v->draft);
    if (!v->draft || pool->rows < ROWS) return complain("not enough memory to measure raffle_verify"), EXIT_MACHINE;
    for (int64_t i = 0; i < REQUESTS * DRAFTS; ++i) {
        const float *const from = v->target + (i + i / DRAFTS) * v->vocab;
        for (int64_t t = 0; t < v->vocab; ++t) {
            state = state * 1664525u + 1013904223u;
            v->draft[i * v->vocab + t] = from[t] + (float)(state >> 8) * 0x1p-24f;
        }
    }
    return EXIT_FINE;
}

/* Microseconds per request: of raffle_verify in us[0], of raffle_sample over the same target rows in us[1]. Each request is
 * timed alone: short, so that a busy machine interrupts few of them, and medians do not see those. */
static raffle_status measure_route(const runner *run, const verify_rows *v, const verify_route *route, double us[2], double *accepted) {
    static const int32_t slots[ROWS];
    enum { TIMES = TRIES * REQUESTS };
    int32_t draft[DRAFTS], token[DRAFTS + 1], count;
    double times[2][TIMES];
    const raffle_launch launch = runner_launch(run, 0);
    int64_t sum = 0;
    for (int n = 0; n < TIMES; ++n) {
        const int64_t request = n % REQUESTS;
        const uint64_t position = (uint64_t)n;
        raffle_params params = settings_params(&route->settings, &position, slots);
        raffle_logits logits = raffle_logits_init(), draft_logits = raffle_logits_init();
        raffle_result result = raffle_result_init();
        draft_logits.data = v->draft + request * DRAFTS * v->vocab;
        draft_logits.rows = DRAFTS;
        result.token = draft;
        params.draft_step = 1;
        raffle_status status = raffle_sample(run->plan, &draft_logits, &params, &result, &launch, NULL);
        params.draft_step = 0;
        logits.data = v->target + request * (DRAFTS + 1) * v->vocab;
        logits.rows = DRAFTS + 1;
        result.token = token;
        double start = seconds_now();
        if (!status) status = raffle_sample(run->plan, &logits, &params, &result, &launch, NULL);
        times[1][n] = seconds_now() - start;
        raffle_drafts drafts = raffle_drafts_init();
        raffle_verified verified = raffle_verified_init();
        drafts.method = route->method;
        drafts.requests = 1;
        drafts.each = DRAFTS;
        drafts.token = draft;
        if (route->knows_logits) drafts.logits = &draft_logits, drafts.params = &params;
        verified.token = token;
        verified.accepted = &count;
        start = seconds_now();
        if (!status) status = raffle_verify(run->plan, &logits, &params, &drafts, &verified, &launch, NULL);
        times[0][n] = seconds_now() - start;
        if (status) return status;
        sum += count;
    }
    for (int i = 0; i < 2; ++i) us[i] = median(times[i], TIMES) * 1e6;
    *accepted = (double)sum / TIMES;
    return RAFFLE_OK;
}

exit_code bench_verify(const pool *pool, raffle_isa isa) {
    const picture plain = picture_of_stdout(0);
    verify_rows rows;
    runner run;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = pool->vocab;
    desc.isa = (int32_t)isa;
    exit_code code = rows_open(&rows, pool);
    if (!code) code = runner_open(&run, &desc, 1);
    if (!code) {
        putchar('\n');
        ink_start(&plain, INK_BOLD);
        printf("%-30s %7s %-4s %-6s | %11s %8s | %18s\n", "verify: 4 drafts a request", "vocab", "type", "isa", "us/request",
               "accepted", "5 rows sampled, us");
        ink_end(&plain, INK_BOLD);
        raffle_status status = RAFFLE_OK;
        for (int i = 0; i < VERIFY_ROUTES && !status; ++i) {
            double us[2], accepted;
            status = measure_route(&run, &rows, &verify_routes[i], us, &accepted);
            if (!status)
                printf("%-30s %7lld %-4s %-6s | %11.1f %8.2f | %18.1f\n", verify_routes[i].name, (long long)pool->vocab, "f32",
                       raffle_isa_name(isa), us[0], accepted, us[1]);
        }
        if (status) code = (complain("raffle_verify: %s", raffle_status_name(status)), EXIT_MACHINE);
        runner_close(&run);
    }
    free(rows.draft);
    return code;
}
