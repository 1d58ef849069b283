#define _POSIX_C_SOURCE 200809L
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"

exit_code file_open(file_bytes *file, const char *path) {
    struct stat about;
    file->bytes = NULL;
    file->size = 0;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return complain("%s: %s", path, strerror(errno)), EXIT_USAGE;
    exit_code code = EXIT_USAGE;
    if (fstat(descriptor, &about)) {
        complain("%s: %s", path, strerror(errno));
    } else if (!S_ISREG(about.st_mode)) {
        complain("%s: not a regular file", path);
    } else if (about.st_size == 0) {
        complain("%s: the file is empty", path);
    } else {
        void *const bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (bytes == MAP_FAILED) {
            complain("%s: %s", path, strerror(errno));
            code = EXIT_MACHINE;
        } else {
            file->bytes = bytes;
            file->size = (size_t)about.st_size;
            code = EXIT_FINE;
        }
    }
    close(descriptor);
    return code;
}

void file_close(file_bytes *file) {
    if (file->bytes) munmap((void *)file->bytes, file->size);
    file->bytes = NULL;
}

exit_code rows_open(rows_file *rows, const char *path) {
    char error[160];
    const exit_code code = file_open(&rows->file, path);
    if (code) return code;
    if (npy_open(rows->file.bytes, rows->file.size, &rows->view, error, sizeof error)) {
        complain("%s: %s", path, error);
        file_close(&rows->file);
        return EXIT_USAGE;
    }
    return EXIT_FINE;
}

void rows_close(rows_file *rows) { file_close(&rows->file); }

exit_code rows_range(const rows_file *rows, int64_t first, int64_t *end) {
    const int64_t count = rows->view.rows;
    if (*end < 0) *end = count;
    if (first <= count && *end <= count) return EXIT_FINE;
    return complain("--rows: the file has %lld row%s", (long long)count, count == 1 ? "" : "s"), EXIT_USAGE;
}

void note_flags(row_notes *notes, int64_t row, uint32_t flags) {
    enum { NOTES = 10 };
    const int both = flags & RAFFLE_ROW_NAN && flags & RAFFLE_ROW_INF;
    const char *const what = notes->probs ? "probabilities" : "logits";
    if (!flags || ++notes->count > NOTES + 1) return;
    if (notes->count > NOTES)
        complain("note: more rows have NaN or infinite %s", what);
    else if (flags & RAFFLE_ROW_EMPTY)
        complain("note: row %lld has no token to draw: %s", (long long)row,
                 notes->probs ? "every probability is 0, NaN or negative, or its token is banned"
                              : "every logit is -inf or NaN, or its token is banned");
    else
        complain("note: row %lld has %s%s%s%s%s", (long long)row, flags & RAFFLE_ROW_NAN ? "NaN " : "",
                 !(flags & RAFFLE_ROW_NAN) ? ""
                 : notes->probs            ? "or negative probabilities, which count as 0"
                                           : "logits, which count as -inf",
                 both ? ", and " : "", flags & RAFFLE_ROW_INF ? "+inf " : "",
                 !(flags & RAFFLE_ROW_INF) ? ""
                 : notes->probs            ? "probabilities, which share the draw"
                                           : "logits, which share the draw");
}

size_t dtype_bytes(raffle_dtype dtype) { return dtype == RAFFLE_F32 ? 4 : 2; }

float logit_of(const void *row, raffle_dtype dtype, int64_t token) {
    float wide;
    uint16_t half;
    if (dtype == RAFFLE_F32) {
        memcpy(&wide, (const char *)row + token * 4, 4); /* the row may be misaligned */
        return wide;
    }
    memcpy(&half, (const char *)row + token * 2, 2);
    return dtype == RAFFLE_F16 ? f32_of_f16(half) : f32_of_bf16(half);
}

const void *rows_load(const rows_file *rows, int64_t first, int64_t count, raffle_dtype dtype, void *buffer) {
    const raffle_dtype from = (raffle_dtype)rows->view.type;
    const int64_t elements = count * rows->view.cols;
    const size_t bytes = dtype_bytes(from);
    const char *const data = (const char *)rows->view.data + (size_t)first * (size_t)rows->view.cols * bytes;
    if (dtype == from && (uintptr_t)data % bytes == 0) return data;
    for (int64_t i = 0; i < elements; ++i) {
        const float x = logit_of(data, from, i);
        if (dtype == RAFFLE_F32) ((float *)buffer)[i] = x;
        if (dtype == RAFFLE_F16) ((uint16_t *)buffer)[i] = f16_of_f32(x);
        if (dtype == RAFFLE_BF16) ((uint16_t *)buffer)[i] = bf16_of_f32(x);
    }
    return buffer;
}

exit_code lines_open(lines_file *lines, const char *path) {
    lines->count = 0;
    lines->start = NULL;
    const exit_code code = file_open(&lines->file, path);
    if (code) return code;
    const char *const bytes = lines->file.bytes;
    const size_t size = lines->file.size;
    for (size_t i = 0; i < size; ++i) lines->count += bytes[i] == '\n';
    lines->count += bytes[size - 1] != '\n';
    lines->start = malloc(((size_t)lines->count + 1) * sizeof *lines->start);
    if (!lines->start) {
        lines_close(lines);
        return complain("%s: out of memory", path), EXIT_MACHINE;
    }
    int64_t line = 0;
    lines->start[0] = 0;
    for (size_t i = 0; i < size; ++i)
        if (bytes[i] == '\n') lines->start[++line] = i + 1;
    if (bytes[size - 1] != '\n') lines->start[++line] = size + 1; /* as if the newline were there */
    return EXIT_FINE;
}

void lines_close(lines_file *lines) {
    free(lines->start);
    file_close(&lines->file);
    lines->count = 0;
    lines->start = NULL;
}

const char *line_of(const lines_file *lines, int64_t index, size_t *length) {
    *length = 0;
    if (index < 0 || index >= lines->count) return NULL;
    *length = lines->start[index + 1] - lines->start[index] - 1;
    return lines->file.bytes + lines->start[index];
}

exit_code vocab_open(lines_file *lines, const char *path, int64_t vocab) {
    memset(lines, 0, sizeof *lines);
    if (!path) return EXIT_FINE;
    const exit_code code = lines_open(lines, path);
    if (code) return code;
    if (lines->count > vocab) {
        complain("%s: %lld lines for %lld tokens: not the vocabulary of these rows", path, (long long)lines->count,
                 (long long)vocab);
        lines_close(lines);
        return EXIT_USAGE;
    }
    /* Models pad their rows, so fewer lines are fine, but worth a word. */
    if (lines->count < vocab)
        complain("note: %s has %lld lines for %lld tokens", path, (long long)lines->count, (long long)vocab);
    return EXIT_FINE;
}
