/* bench_request.c - the part of raffle bench about everything that a request can ask for: one row without, with one thing
 * more at a time, and with all of them, in one run. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "picture.h"
#include "text.h"

enum { HISTORY = 2000, BIAS = 300, TOP = 5, REPEATS = 41, CALLS = 4 };

/* What a row asks for. */
enum { FILTERS = 1, MASK = 2, BIASED = 4, PENALTIES = 8, ANSWERS = 16 };
#define EDITS (MASK | BIASED | PENALTIES)

typedef struct request_route {
    const char *name;
    int wish;
    int32_t point; /* raffle_point, with ANSWERS */
} request_route;

static const request_route request_routes[] = {
    {"no filter", 0, 0},
    {"  log-probabilities", ANSWERS, RAFFLE_TEMPERED},
    {"  raw log-probabilities", ANSWERS, RAFFLE_RAW},
    {"top-k 50 + top-p 0.9", FILTERS, 0},
    {"  log-probabilities, filtered", FILTERS | ANSWERS, RAFFLE_FILTERED},
    {"  log-probabilities, tempered", FILTERS | ANSWERS, RAFFLE_TEMPERED},
    {"  log-probabilities, raw", FILTERS | ANSWERS, RAFFLE_RAW},
    {"  bitmask", FILTERS | MASK, 0},
    {"  300 biases", FILTERS | BIASED, 0},
    {"  penalties, 2000 tokens", FILTERS | PENALTIES, 0},
    {"  these three", FILTERS | EDITS, 0},
    {"  all, filtered", FILTERS | EDITS | ANSWERS, RAFFLE_FILTERED},
    {"  all, tempered", FILTERS | EDITS | ANSWERS, RAFFLE_TEMPERED},
    {"  all, raw", FILTERS | EDITS | ANSWERS, RAFFLE_RAW},
};
enum { REQUEST_ROUTES = sizeof request_routes / sizeof *request_routes };

/* One request's lists and state. */
typedef struct request_rows {
    const pool *pool;
    uint32_t *allow;
    int32_t bias_count, bias_id[BIAS];
    float bias[BIAS];
    raffle_state state;
} request_rows;

static exit_code rows_open(request_rows *r, const pool *pool) {
    const int64_t words = (pool->vocab + 31) / 32;
    uint32_t bits = 5;
    int32_t said[HISTORY], count = HISTORY;
    memset(r, 0, sizeof *r);
    r->pool = pool;
    r->state = raffle_state_init();
    r->state.slots = 1;
    r->state.history_max = HISTORY;
    r->state.vocab = pool->vocab;
    r->allow = malloc((size_t)words * sizeof *r->allow);
    if (posix_memalign(&r->state.memory, RAFFLE_WORKSPACE_ALIGN, raffle_state_bytes(&r->state))) r->state.memory = NULL;
    if (!r->allow || !r->state.memory) return complain("not enough memory to measure requests"), EXIT_MACHINE;
    for (int64_t i = 0; i < words; ++i) r->allow[i] = ~(1u << (bits = bits * 1664525u + 1013904223u) / (1u << 27));
    r->bias_count = pool->vocab < BIAS ? (int32_t)pool->vocab : BIAS;
    for (int32_t i = 0; i < r->bias_count; ++i) {
        r->bias_id[i] = (int32_t)(pool->vocab * i / r->bias_count);
        r->bias[i] = (float)(i % 7) - 3.0f;
    }
    for (int i = 0; i < HISTORY; ++i) said[i] = (int32_t)((bits = bits * 1664525u + 1013904223u) % pool->vocab);
    raffle_tokens tokens = raffle_tokens_init();
    tokens.rows = 1, tokens.token = said, tokens.count = &count, tokens.stride = HISTORY;
    raffle_status status = raffle_state_clear(&r->state, NULL, NULL);
    if (!status) status = raffle_state_accept(&r->state, &tokens, NULL);
    return status ? (complain("raffle_state: %s", raffle_status_name(status)), EXIT_MACHINE) : EXIT_FINE;
}

static void rows_close(request_rows *r) {
    free(r->allow);
    free(r->state.memory);
}

/* The time of one row, in microseconds. */
static raffle_status time_row(const runner *run, const request_rows *r, const request_route *route, int64_t row, double *us) {
    const int wish = route->wish;
    const uint64_t position = (uint64_t)row;
    const settings s = {0.8f, wish & FILTERS ? 0.9f : 1.0f, 0.0f, wish & FILTERS ? 50 : 0, 0, 7};
    float chosen, top[TOP];
    int32_t token, top_token[TOP];
    raffle_extra extra = {0};
    raffle_params params = settings_params(&s, &position, NULL);
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    raffle_report report = raffle_report_init();
    logits.data = pool_row(r->pool, PEAKED, RAFFLE_F32, row);
    logits.rows = 1;
    result.token = &token;
    if (wish & MASK) params.allow = r->allow;
    if (wish & BIASED) extra.bias_count = r->bias_count, extra.bias_id = r->bias_id, extra.bias = r->bias;
    if (wish & PENALTIES) extra.repetition = 1.1f, extra.frequency = 0.1f, extra.presence = 0.2f;
    if (wish & (BIASED | PENALTIES)) params.extra = &extra, params.extra_bytes = sizeof extra, params.state = &r->state;
    report.point = route->point;
    report.chosen = &chosen;
    report.top_count = TOP, report.top_token = top_token, report.top = top;
    if (wish & ANSWERS) result.report = &report;
    const double start = seconds_now();
    raffle_status status = RAFFLE_OK;
    for (int i = 0; i < CALLS && !status; ++i) status = runner_sample(run, 0, &logits, &params, &result, 0, 1, NULL);
    *us = (seconds_now() - start) * 1e6 / CALLS;
    return status;
}

/* All routes take turns, each row in cache. */
static raffle_status measure(const runner *run, const request_rows *r, double median_us[REQUEST_ROUTES]) {
    double us[REQUEST_ROUTES][REPEATS], once;
    raffle_status status = RAFFLE_OK;
    for (int n = 0; n < REPEATS; ++n) {
        for (int i = 0; i < REQUEST_ROUTES && !status; ++i) {
            status = time_row(run, r, &request_routes[i], n % r->pool->rows, &once); /* into the cache */
            if (!status) status = time_row(run, r, &request_routes[i], n % r->pool->rows, &us[i][n]);
        }
    }
    for (int i = 0; i < REQUEST_ROUTES && !status; ++i) median_us[i] = median(us[i], REPEATS);
    return status;
}

exit_code bench_request(const pool *pool, raffle_isa isa) {
    const picture plain = picture_of_stdout(0);
    request_rows rows;
    runner run;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = pool->vocab;
    desc.isa = (int32_t)isa;
    desc.flags = RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT;
    desc.history_max = HISTORY;
    exit_code code = rows_open(&rows, pool);
    if (!code) code = runner_open(&run, &desc, 1);
    if (!code) {
        double us[REQUEST_ROUTES];
        const raffle_status status = measure(&run, &rows, us);
        putchar('\n');
        ink_start(&plain, INK_BOLD);
        printf("%-30s %7s %-4s %-6s | %9s | %20s\n", "what a request asks for", "vocab", "type", "isa", "us/row", "ratio to the same row");
        ink_end(&plain, INK_BOLD);
        double without = 0;
        for (int i = 0; i < REQUEST_ROUTES && !status; ++i) {
            if (!(request_routes[i].wish & ~FILTERS)) without = us[i];
            printf("%-30s %7lld %-4s %-6s | %9.1f | %21.2f\n", request_routes[i].name, (long long)pool->vocab, "f32",
                   raffle_isa_name(isa), us[i], us[i] / without);
        }
        if (status) code = (complain("raffle_sample: %s", raffle_status_name(status)), EXIT_MACHINE);
        runner_close(&run);
    }
    rows_close(&rows);
    return code;
}
