/* sample.c - raffle sample: tokens, one line per row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "runner.h"
#include "text.h"

/* Tokens drawn at a time, from one row or one from each of so many; bytes of logits converted at a time. */
enum { CHUNK = 1 << 12, BLOCK_BYTES = 1 << 25 };

typedef struct sampling {
    const options *options;
    rows_file rows;
    lines_file vocab;
    request request;
    runner runner;
    raffle_dtype dtype;
    int64_t first, end;  /* rows */
    int64_t block;       /* rows at a time, if one draw each */
    void *buffer;        /* [block, vocab] of dtype */
    int32_t *token;      /* [CHUNK] */
    uint32_t *row_flags; /* [block] */
    int64_t *count;      /* [vocab] with --counts */
    row_notes notes;
    int utf8;
} sampling;

static void print_flags_json(uint32_t flags) {
    static const char *const names[] = {"nan", "inf", "empty"};
    int written = 0;
    printf(", \"flags\": [");
    for (int i = 0; i < 3; ++i)
        if (flags >> i & 1) printf("%s\"%s\"", written++ ? ", " : "", names[i]);
    printf("]");
}

static void print_text(const sampling *s, int32_t token) {
    size_t length;
    const char *const text = line_of(&s->vocab, token, &length);
    if (!s->options->vocab) return;
    if (s->options->json) {
        printf(", \"text\": ");
        if (text)
            json_string(stdout, text, length);
        else
            printf("null");
    } else if (text) {
        putchar(' ');
        text_quoted(stdout, text, length, 0, s->utf8);
    }
}

static void print_logprob(const sampling *s, float logprob) {
    if (s->options->json) {
        printf(", \"logprob\": ");
        json_number(stdout, (double)logprob);
    } else {
        printf(" %.6f", (double)logprob);
    }
}

/* The log-probability, rank and rivals of token number `i` of a chunk. */
static void print_report(const sampling *s, int64_t i) {
    const raffle_report r = report_from(&s->request.report, i);
    const int json = s->options->json;
    print_logprob(s, r.chosen[0]);
    printf(json ? ", \"rank\": %d" : " %d", (int)r.rank[0]);
    if (json) printf(", \"entropy\": "), json_number(stdout, (double)r.entropy[0]), printf(", \"top\": [");
    for (int32_t n = 0; n < r.top_count && r.top_token[n] != RAFFLE_NO_TOKEN; ++n) {
        printf(json ? "%s{\"token\": %d" : "%s%d", json ? (n ? ", " : "") : "  ", (int)r.top_token[n]);
        print_text(s, r.top_token[n]);
        print_logprob(s, r.top[n]);
        if (json) putchar('}');
    }
    if (json) putchar(']');
}

/* Draws `first` to `first + count` of a row, as a part of its line; the first is number `at` of the chunk. With
 * log-probabilities every draw has a line of its own. */
static void print_tokens(const sampling *s, int64_t at, int64_t first, int64_t count) {
    const int json = s->options->json, texts = s->options->vocab != NULL, told = s->request.report.size != 0;
    for (int64_t i = 0; i < count; ++i) {
        const char *const between = json ? ", " : told ? "\n" : texts ? "  " : " ";
        if (first + i) fputs(between, stdout);
        printf(json && (texts || told) ? "{\"token\": %d" : "%d", (int)s->token[at + i]);
        print_text(s, s->token[at + i]);
        if (told) print_report(s, at + i);
        if (json && (texts || told)) putchar('}');
    }
}

typedef struct tally {
    int32_t token;
    int64_t count;
} tally;

static int by_count(const void *a, const void *b) {
    const tally *const x = a, *const y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* Lines `row token count`, most frequent first. `none` draws had no token. */
static exit_code print_counts(const sampling *s, int64_t row, int64_t none) {
    const int64_t vocab = s->rows.view.cols;
    int64_t used = 0;
    for (int64_t i = 0; i < vocab; ++i) used += s->count[i] > 0;
    tally *const list = malloc((size_t)(used + 1) * sizeof *list);
    if (!list) return complain("out of memory"), EXIT_MACHINE;
    used = 0;
    for (int64_t i = 0; i < vocab; ++i)
        if (s->count[i]) list[used].token = (int32_t)i, list[used++].count = s->count[i];
    if (none) list[used].token = RAFFLE_NO_TOKEN, list[used++].count = none;
    qsort(list, (size_t)used, sizeof *list, by_count);
    for (int64_t i = 0; i < used; ++i) {
        const char *const form = s->options->json ? "%s{\"token\": %d, \"count\": %lld" : "%s%d %lld";
        char before[32];
        snprintf(before, sizeof before, "%lld ", (long long)row);
        printf(form, s->options->json ? (i ? ", " : "") : before, (int)list[i].token, (long long)list[i].count);
        print_text(s, list[i].token);
        putchar(s->options->json ? '}' : '\n');
    }
    free(list);
    return EXIT_FINE;
}

static draw_job job_of(const sampling *s, int64_t row, int64_t rows) {
    const draw_job job = {.logits = rows_load(&s->rows, row, rows, s->dtype, s->buffer),
                          .rows = rows,
                          .draws = 1,
                          .settings = settings_of(s->options),
                          .request = &s->request,
                          .position = s->options->position,
                          .token = s->token,
                          .row_flags = s->row_flags};
    return job;
}

static void print_start(const sampling *s) {
    if (!s->options->json) return;
    printf("{\"vocab\": %lld, \"draws\": %lld, \"rows\": [\n", (long long)s->rows.view.cols,
           (long long)s->options->draws);
}

static void print_row_start(const sampling *s, int64_t row) {
    const options *const o = s->options;
    if (o->json) printf("  {\"row\": %lld, \"%s\": [", (long long)row, o->counts ? "counts" : "tokens");
}

/* A row's line is complete, and only then a note may follow it: on a terminal both are seen together. */
static void print_row_end(sampling *s, int64_t row, uint32_t flags) {
    if (s->options->json) {
        putchar(']');
        print_flags_json(flags);
        puts(row + 1 < s->end ? "}," : "}");
    } else if (!s->options->counts) {
        putchar('\n');
    }
    note_flags(&s->notes, row, flags);
}

/* Many draws from one row, in chunks, so that any number of them fits in memory. */
static exit_code sample_row(sampling *s, int64_t row) {
    const options *const o = s->options;
    draw_job job = job_of(s, row, 1);
    int64_t none = 0;
    if (o->counts) memset(s->count, 0, (size_t)s->rows.view.cols * sizeof *s->count);
    for (int64_t done = 0; done < o->draws; done += job.draws) {
        job.position = o->position + (uint64_t)done;
        job.draws = o->draws - done < CHUNK ? o->draws - done : CHUNK;
        const exit_code code = runner_draw(&s->runner, &job);
        if (code) return code;
        if (!done && row == s->first) print_start(s); /* only now: a bad parameter leaves stdout empty */
        if (!done) print_row_start(s, row);
        for (int64_t i = 0; o->counts && i < job.draws; ++i) {
            if (s->token[i] < 0)
                ++none;
            else
                s->count[s->token[i]]++;
        }
        if (!o->counts) print_tokens(s, 0, done, job.draws);
        progress("raffle sample:", ((double)(row - s->first) + (double)(done + job.draws) / (double)o->draws) /
                                       (double)(s->end - s->first));
    }
    const exit_code code = o->counts ? print_counts(s, row, none) : EXIT_FINE;
    print_row_end(s, row, s->row_flags[0]);
    return code;
}

/* One draw from each of some rows. */
static exit_code sample_block(sampling *s, int64_t row, int64_t rows) {
    const draw_job job = job_of(s, row, rows);
    const exit_code code = runner_draw(&s->runner, &job);
    if (!code && row == s->first) print_start(s);
    for (int64_t i = 0; !code && i < rows; ++i) {
        print_row_start(s, row + i);
        print_tokens(s, i, 0, 1);
        print_row_end(s, row + i, s->row_flags[i]);
    }
    progress("raffle sample:", (double)(row + rows - s->first) / (double)(s->end - s->first));
    return code;
}

static exit_code sample_all(sampling *s) {
    const options *const o = s->options;
    const int single = o->draws > 1 || o->counts;
    exit_code code = EXIT_FINE;
    int64_t rows;
    for (int64_t row = s->first; row < s->end && !code; row += rows) {
        rows = single ? 1 : s->end - row < s->block ? s->end - row : s->block;
        code = single ? sample_row(s, row) : sample_block(s, row, rows);
    }
    progress_end();
    if (s->first == s->end) print_start(s);
    if (o->json && !code) printf("]}\n");
    return code;
}

/* Memory and plan for the rows that were asked for. */
static exit_code prepare(sampling *s) {
    const options *const o = s->options;
    const npy_view *const view = &s->rows.view;
    s->dtype = o->dtype < 0 ? (raffle_dtype)view->type : (raffle_dtype)o->dtype;
    s->first = o->row_first;
    s->end = o->row_end;
    exit_code code = rows_range(&s->rows, s->first, &s->end);
    if (!code) code = request_open(&s->request, o, view->cols);
    if (!code) code = request_report(&s->request, o, CHUNK);
    if (code) return code;
    const int64_t fit = BLOCK_BYTES / (int64_t)dtype_bytes(s->dtype) / view->cols;
    s->block = fit < 1 ? 1 : fit > CHUNK ? CHUNK : fit;
    raffle_plan_desc desc = runner_desc(o, s->dtype, view->cols, s->block);
    request_desc(&s->request, &desc);
    code = runner_open(&s->runner, &desc, o->threads < 0 ? 1 : (int)o->threads);
    if (!code) code = vocab_open(&s->vocab, o->vocab, view->cols);
    if (code) return code;
    s->buffer = malloc((size_t)(s->block * view->cols) * dtype_bytes(s->dtype)); /* the plan has checked the vocab */
    s->token = malloc(CHUNK * sizeof *s->token);
    s->row_flags = calloc((size_t)s->block, sizeof *s->row_flags);
    s->count = malloc((size_t)view->cols * sizeof *s->count);
    s->utf8 = text_utf8();
    if (s->buffer && s->token && s->row_flags && s->count) return EXIT_FINE;
    return complain("out of memory"), EXIT_MACHINE;
}

exit_code command_sample(const options *o) {
    sampling s = {.options = o, .notes = {o->probs, 0}};
    exit_code code = rows_open(&s.rows, o->file);
    if (code) return code;
    code = prepare(&s);
    if (!code) code = sample_all(&s);
    free(s.count);
    free(s.row_flags);
    free(s.token);
    free(s.buffer);
    lines_close(&s.vocab);
    request_close(&s.request);
    runner_close(&s.runner);
    rows_close(&s.rows);
    return code;
}
