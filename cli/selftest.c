/* selftest.c - raffle selftest: the frozen vectors on every instruction set of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embedded.h"
#include "input.h"
#include "picture.h"
#include "runner.h"
#include "text.h"

#include "request_run.h"

enum { TARGETS_MAX = 8, SHOWN_MAX = 5 };

/* One line of vectors.txt; the file's head says what the columns are. */
typedef struct vector {
    char kind[16];
    uint64_t row_seed, allow_seed;
    int64_t vocab;
    raffle_dtype dtype;
    settings settings;
    uint64_t position;
    int32_t token;
    uint32_t row_flags;
} vector;

/* What the vectors run on. */
typedef struct target {
    const char *name;
    raffle_backend backend;
    raffle_isa isa;
    int64_t passed, failed;
} target;

static int dtype_named(const char *name) {
    for (int i = 0; i < 3; ++i)
        if (strcmp(name, dtype_names[i]) == 0) return i;
    return -1;
}

/* Reads a float and says whether the text was one. */
static int float_read(const char *text, float *out) {
    char *end;
    *out = strtof(text, &end);
    return end != text && !*end;
}

static int vector_parse(const char *line, vector *v) {
    char dtype[8], temperature[32], top_p[32], min_p[32];
    unsigned long long row_seed, allow_seed, seed, position;
    long long vocab;
    int used = 0;
    const int fields = sscanf(line, "%15s %llu %lld %7s %31s %d %31s %31s %u %llu %llu %llu %d %u %n", v->kind,
                              &row_seed, &vocab, dtype, temperature, &v->settings.top_k, top_p, min_p,
                              &v->settings.flags, &allow_seed, &seed, &position, &v->token, &v->row_flags, &used);
    if (fields != 14 || line[used] || dtype_named(dtype) < 0 || vocab < 1 || vocab > RAFFLE_VOCAB_MAX) return -1;
    v->dtype = (raffle_dtype)dtype_named(dtype);
    v->row_seed = row_seed;
    v->allow_seed = allow_seed;
    v->vocab = vocab;
    v->settings.seed = seed;
    v->position = position;
    return float_read(temperature, &v->settings.temperature) && float_read(top_p, &v->settings.top_p) &&
                   float_read(min_p, &v->settings.min_p)
               ? 0
               : -1;
}

static exit_code vector_run(const vector *v, const void *row, const uint32_t *allow, target *t) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.backend = (int32_t)t->backend;
    desc.isa = (int32_t)t->isa;
    desc.dtype = (int32_t)v->dtype;
    desc.vocab = v->vocab;
    desc.rows_max = 1;
    runner own;
    const exit_code code = runner_open(&own, &desc, 1);
    if (code) return code;
    int32_t token = -2;
    uint32_t row_flags = 0;
    raffle_error error = raffle_error_init();
    raffle_logits logits = raffle_logits_init();
    raffle_params params = settings_params(&v->settings, &v->position, NULL);
    raffle_result result = raffle_result_init();
    logits.data = row;
    logits.rows = 1;
    params.allow = allow;
    result.token = &token;
    result.row_flags = &row_flags;
    const raffle_status status = runner_sample(&own, 0, &logits, &params, &result, 0, 1, &error);
    runner_close(&own);
    if (status) return complain_of(&error);
    const int same = token == v->token && row_flags == v->row_flags;
    *(same ? &t->passed : &t->failed) += 1;
    if (!same && t->failed <= SHOWN_MAX)
        printf("%s: %s %llu, vocab %lld, %s: token %d, flags %u; should be %d, %u\n", t->name, v->kind,
               (unsigned long long)v->row_seed, (long long)v->vocab, dtype_names[v->dtype], (int)token, row_flags,
               (int)v->token, v->row_flags);
    return EXIT_FINE;
}

/* One vector on all targets: its row is made once. */
static exit_code vector_run_all(const vector *v, target *targets, int count) {
    void *const row = malloc((size_t)v->vocab * dtype_bytes(v->dtype));
    uint32_t *const allow = malloc((size_t)(v->vocab + 31) / 32 * sizeof *allow);
    exit_code code = EXIT_FINE;
    if (row && allow) {
        vector_row_make(v->kind, v->row_seed, v->vocab, (int)v->dtype, row);
        vector_allow_make(v->allow_seed, v->vocab, allow);
        for (int i = 0; i < count && !code; ++i) code = vector_run(v, row, v->allow_seed ? allow : NULL, &targets[i]);
    } else {
        complain("out of memory");
        code = EXIT_MACHINE;
    }
    free(allow);
    free(row);
    return code;
}

/* Runs a line of vectors.txt, or of requests.txt, on all targets. Returns -1 if it is none. */
typedef int (*line_function)(char *line, target *targets, int count, exit_code *code);

static int vector_line(char *line, target *targets, int count, exit_code *code) {
    vector v;
    if (vector_parse(line, &v)) return -1;
    *code = vector_run_all(&v, targets, count);
    return 0;
}

static raffle_status sample_on_device(const void *given, const raffle_logits *logits, const raffle_params *params,
                                      const raffle_result *result, raffle_error *error) {
    return runner_sample(given, 0, logits, params, result, 0, 1, error);
}

/* A request on the GPU, which draws and reports; the law itself (raffle_softmax) it has no requests for so far. */
static exit_code request_on_device(const request_vector *v, int *same) {
    raffle_plan_desc desc = request_desc_of(v);
    raffle_error error = raffle_error_init();
    request_memory memory = {0};
    runner own;
    desc.backend = RAFFLE_CUDA;
    desc.rows_max = 1;
    exit_code code = runner_open(&own, &desc, 1);
    if (code) return code;
    raffle_status status = request_memory_make(&memory, v, own.plan, &error);
    *same = 1;
    if (!status) status = request_compare_told(v, &memory, sample_on_device, &own, same, &error);
    request_memory_free(&memory);
    runner_close(&own);
    return status ? complain_of(&error) : EXIT_FINE;
}

static exit_code request_on(const target *t, const request_vector *v, int *same) {
    raffle_error error = raffle_error_init();
    if (t->backend == RAFFLE_CUDA) return request_on_device(v, same);
    return request_run(v, t->isa, same, &error) ? complain_of(&error) : EXIT_FINE;
}

static int request_line(char *line, target *targets, int count, exit_code *code) {
    request_vector v;
    if (request_parse(line, &v)) return -1;
    for (int i = 0; i < count && !*code; ++i) {
        int same = 0;
        *code = request_on(&targets[i], &v, &same);
        *(same ? &targets[i].passed : &targets[i].failed) += 1;
        if (!same && targets[i].failed <= SHOWN_MAX)
            printf("%s: a request for %s %llu, vocab %lld, %s: another answer than the frozen one\n", targets[i].name,
                   v.kind, (unsigned long long)v.row_seed, (long long)v.vocab, dtype_names[v.dtype]);
    }
    return 0;
}

static exit_code run_text(const char *name, line_function run, const char *text, size_t bytes, target *targets,
                          int count) {
    exit_code code = EXIT_FINE;
    int64_t number = 0;
    for (size_t at = 0; at < bytes && !code;) {
        char line[REQUEST_LINE_MAX];
        const char *const newline = memchr(text + at, '\n', bytes - at);
        const size_t length = newline ? (size_t)(newline - text) - at : bytes - at;
        const char first = length ? text[at] : '#';
        ++number;
        if (first != '#') {
            const size_t kept = length < sizeof line ? length : sizeof line - 1;
            memcpy(line, text + at, kept);
            line[kept] = 0;
            if (kept < length || run(line, targets, count, &code))
                return complain("%s: line %lld is not a vector", name, (long long)number), EXIT_USAGE;
            progress("raffle selftest:", (double)at / (double)bytes);
        }
        at += length + 1;
    }
    progress_end();
    return code;
}

static int targets_of(const options *o, target *targets) {
    raffle_isa isas[TARGETS_MAX];
    if (o->backend == RAFFLE_CUDA) {
        const target cuda = {"cuda", RAFFLE_CUDA, RAFFLE_ISA_BEST, 0, 0};
        targets[0] = cuda;
        return 1;
    }
    const int count = isas_of(o->isas, isas);
    for (int i = 0; i < count; ++i) {
        const target made = {raffle_isa_name(isas[i]), RAFFLE_CPU, isas[i], 0, 0};
        targets[i] = made;
    }
    return count;
}

static exit_code report(const target *targets, int count) {
    const picture plain = picture_of_stdout(0);
    int64_t failed = 0, all = 0;
    for (int i = 0; i < count; ++i) {
        printf("%-8s %6lld passed, %lld failed\n", targets[i].name, (long long)targets[i].passed,
               (long long)targets[i].failed);
        failed += targets[i].failed;
        all += targets[i].passed + targets[i].failed;
    }
    if (!all) return complain("the file has no vectors"), EXIT_USAGE;
    ink_start(&plain, failed ? INK_DRAWN : INK_AFTER);
    printf(failed ? "selftest: tokens differ from the frozen ones\n" : "selftest: every token is the frozen one\n");
    ink_end(&plain, failed ? INK_DRAWN : INK_AFTER);
    return failed ? EXIT_WRONG : EXIT_FINE;
}

exit_code command_selftest(const options *o) {
    target targets[TARGETS_MAX];
    file_bytes file = {(const char *)vectors_text, vectors_text_bytes};
    const int count = targets_of(o, targets);
    if (!count) return EXIT_MACHINE;
    exit_code code = o->vectors ? file_open(&file, o->vectors) : EXIT_FINE;
    if (code) return code;
    code = run_text(o->vectors ? o->vectors : "vectors", vector_line, file.bytes, file.size, targets, count);
    if (!code && !o->vectors)
        code = run_text("requests", request_line, (const char *)requests_text, requests_text_bytes, targets, count);
    if (!code) code = report(targets, count);
    if (o->vectors) file_close(&file);
    return code;
}
