/* input.h - files: rows of logits, token texts, prompts. */
#ifndef INPUT_H
#define INPUT_H

#include "cli.h"
#include "npy.h"

/* A whole file in memory, read-only. */
typedef struct file_bytes {
    const char *bytes;
    size_t size;
} file_bytes;
exit_code file_open(file_bytes *file, const char *path); /* complains when it fails */
void file_close(file_bytes *file);

typedef struct rows_file {
    file_bytes file;
    npy_view view; /* [rows, cols] */
} rows_file;
exit_code rows_open(rows_file *rows, const char *path);
void rows_close(rows_file *rows);

/* The rows [first, first + count) as `dtype`: the file's own memory, or `buffer` [count, cols]. */
const void *rows_load(const rows_file *rows, int64_t first, int64_t count, raffle_dtype dtype, void *buffer);

/* Completes a range of rows: `*end` -1 is the last. Complains if the file has fewer. */
exit_code rows_range(const rows_file *rows, int64_t first, int64_t *end);

/* Words on stderr about rows that are not plain numbers; after a few, one that there are more. */
typedef struct row_notes {
    int probs; /* the rows are probabilities */
    int64_t count;
} row_notes;
void note_flags(row_notes *notes, int64_t row, uint32_t row_flags);

size_t dtype_bytes(raffle_dtype dtype);
float logit_of(const void *row, raffle_dtype dtype, int64_t token);

/* The lines of a text file. */
typedef struct lines_file {
    file_bytes file;
    int64_t count;
    size_t *start; /* [count + 1]; a line ends one byte before the next starts */
} lines_file;
exit_code lines_open(lines_file *lines, const char *path);
void lines_close(lines_file *lines);
/* Line `index` and its length without the newline; NULL if there is none. */
const char *line_of(const lines_file *lines, int64_t index, size_t *length);

/* Token texts for rows of `vocab` tokens, from `path`; an empty file of lines if `path` is NULL. */
exit_code vocab_open(lines_file *lines, const char *path, int64_t vocab);

#endif
