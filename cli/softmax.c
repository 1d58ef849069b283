/* softmax.c - raffle softmax: the probabilities that tokens are drawn with, as a .npy file. */
#include <stdio.h>
#include <stdlib.h>

#include "input.h"
#include "output.h"
#include "runner.h"
#include "text.h"

enum { BLOCK_BYTES = 1 << 25 }; /* of logits at a time */

typedef struct writing {
    const options *options;
    rows_file rows;
    request request;
    runner runner;
    raffle_dtype dtype;
    int64_t first, end, block; /* rows; at a time */
    void *buffer, *data;       /* [block, vocab] of dtype; of options->out_dtype */
    uint32_t *bits;            /* [block, words] the kept tokens */
    uint8_t *kept;             /* [vocab] the same as booleans */
    int32_t *slot, *count;     /* [block] zeros; how many are kept */
    uint32_t *row_flags;       /* [block] */
    npy_output out, kept_out;
    row_notes notes;
} writing;

/* Asks the library for some rows. */
static exit_code compute(writing *w, int64_t row, int64_t rows) {
    const options *const o = w->options;
    const settings all = settings_of(o);
    write_job job = {o->mask, raffle_logits_init(), settings_params(&all, &o->position, w->slot), raffle_output_init()};
    request_add(&w->request, &job.params);
    job.logits.data = rows_load(&w->rows, row, rows, w->dtype, w->buffer);
    job.logits.rows = rows;
    job.output.flags = o->log ? RAFFLE_LOG : 0;
    job.output.dtype = o->out_dtype;
    job.output.data = o->out ? w->data : NULL;
    job.output.row_flags = w->row_flags;
    job.output.kept = o->kept ? w->bits : NULL;
    job.output.kept_count = w->count;
    return runner_write(&w->runner, &job);
}

/* Opens the files; only after the library has taken the first rows, so that a bad parameter leaves none behind. */
static exit_code files_open(writing *w) {
    const options *const o = w->options;
    const int64_t rows = w->end - w->first;
    const exit_code code =
        output_open(&w->out, o->out, &w->rows.view, rows, o->out_dtype == RAFFLE_F32 ? "<f4" : "<f2");
    return code ? code : output_open(&w->kept_out, o->kept, &w->rows.view, rows, "|b1");
}

static exit_code write_rows(writing *w, int64_t row, int64_t rows) {
    const int64_t vocab = w->rows.view.cols, words = (vocab + 31) / 32;
    exit_code code =
        output_write(&w->out, w->data, (size_t)(rows * vocab) * dtype_bytes((raffle_dtype)w->options->out_dtype));
    for (int64_t i = 0; i < rows && !code; ++i) {
        for (int64_t t = 0; w->options->kept && t < vocab; ++t)
            w->kept[t] = w->bits[i * words + t / 32] >> (t % 32) & 1;
        code = output_write(&w->kept_out, w->kept, (size_t)vocab);
        printf("%lld %d\n", (long long)(row + i), (int)w->count[i]);
        note_flags(&w->notes, row + i, w->row_flags[i]);
    }
    return code;
}

static exit_code write_all(writing *w) {
    exit_code code = EXIT_FINE;
    int64_t rows;
    for (int64_t row = w->first; row < w->end && !code; row += rows) {
        rows = w->end - row < w->block ? w->end - row : w->block;
        code = compute(w, row, rows);
        if (!code && row == w->first) code = files_open(w);
        if (!code) code = write_rows(w, row, rows);
        progress("raffle softmax:", (double)(row + rows - w->first) / (double)(w->end - w->first));
    }
    progress_end();
    return !code && w->first == w->end ? files_open(w) : code;
}

/* Memory and plan for the rows that were asked for. */
static exit_code prepare(writing *w) {
    const options *const o = w->options;
    const npy_view *const view = &w->rows.view;
    w->dtype = o->dtype < 0 ? (raffle_dtype)view->type : (raffle_dtype)o->dtype;
    w->first = o->row_first;
    w->end = o->row_end;
    exit_code code = rows_range(&w->rows, w->first, &w->end);
    if (!code) code = request_open(&w->request, o, view->cols);
    if (code) return code;
    const int64_t fit = BLOCK_BYTES / (int64_t)sizeof(float) / view->cols, words = (view->cols + 31) / 32;
    w->block = w->end - w->first < fit ? w->end - w->first : fit;
    if (w->block < 1) w->block = 1;
    raffle_plan_desc desc = runner_desc(o, w->dtype, view->cols, w->block);
    request_desc(&w->request, &desc);
    code = runner_open(&w->runner, &desc, o->threads < 0 ? 1 : (int)o->threads);
    if (code) return code;
    const size_t rows = (size_t)w->block, tokens = rows * (size_t)view->cols; /* the plan has checked the vocab */
    w->buffer = malloc(tokens * dtype_bytes(w->dtype));
    w->data = malloc(tokens * dtype_bytes((raffle_dtype)o->out_dtype));
    w->bits = malloc(rows * (size_t)words * sizeof *w->bits);
    w->kept = malloc((size_t)view->cols);
    w->slot = calloc(rows, sizeof *w->slot);
    w->count = malloc(rows * sizeof *w->count);
    w->row_flags = malloc(rows * sizeof *w->row_flags);
    if (w->buffer && w->data && w->bits && w->kept && w->slot && w->count && w->row_flags) return EXIT_FINE;
    return complain("out of memory"), EXIT_MACHINE;
}

exit_code command_softmax(const options *o) {
    writing w = {.options = o, .notes = {o->probs, 0}};
    exit_code code = rows_open(&w.rows, o->file);
    if (code) return code;
    code = prepare(&w);
    if (!code) code = write_all(&w);
    const exit_code out = output_close(&w.out, !code);
    if (!code) code = out;
    const exit_code kept = output_close(&w.kept_out, !code);
    if (!code) code = kept;
    free(w.row_flags);
    free(w.count);
    free(w.slot);
    free(w.kept);
    free(w.bits);
    free(w.data);
    free(w.buffer);
    request_close(&w.request);
    runner_close(&w.runner);
    rows_close(&w.rows);
    return code;
}
