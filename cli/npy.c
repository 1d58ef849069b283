#include "npy.h"

#include <stdio.h>
#include <string.h>

enum { DIMENSIONS_MAX = 2, HEADER_MAX = 1 << 20 }; /* NumPy pads headers to a few hundred bytes */

/* The header dictionary as text, and how far it was read. */
typedef struct reader {
    const char *at, *end;
    char *error;
    size_t error_bytes;
} reader;

typedef struct header {
    int seen; /* bit 0: descr, 1: fortran_order, 2: shape */
    char descr[24];
    int fortran;
    int dimensions; /* may be above DIMENSIONS_MAX; then only counted */
    int64_t sizes[DIMENSIONS_MAX];
} header;

static int fail(reader *r, const char *text) {
    snprintf(r->error, r->error_bytes, "%s", text);
    return -1;
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) ++r->at;
}

/* Skips `c` and says whether it was there. */
static int accept(reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return 0;
    ++r->at;
    return 1;
}

static int accept_word(reader *r, const char *word) {
    const size_t length = strlen(word);
    skip_space(r);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return 0;
    r->at += length;
    return 1;
}

/* A quoted string without escapes; longer ones are cut, and then match nothing. */
static int read_string(reader *r, char *out, size_t room) {
    const char quote = accept(r, '\'') ? '\'' : accept(r, '"') ? '"' : 0;
    size_t length = 0;
    if (!quote) return fail(r, "the header is not a dictionary that NumPy writes");
    for (; r->at < r->end && *r->at != quote; ++r->at)
        if (length + 1 < room) out[length++] = *r->at;
    out[length] = 0;
    if (r->at == r->end) return fail(r, "the header has a string without an end");
    ++r->at;
    return 0;
}

static int read_size(reader *r, int64_t *size) {
    skip_space(r);
    if (r->at < r->end && *r->at == '-') return fail(r, "the shape has a negative size");
    if (r->at == r->end || *r->at < '0' || *r->at > '9') return fail(r, "the shape is not a tuple of whole numbers");
    int64_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; ++r->at) {
        const int digit = *r->at - '0';
        if (value > (INT64_MAX - digit) / 10) return fail(r, "the shape has a size that is too large");
        value = value * 10 + digit;
    }
    if (r->at < r->end && *r->at == 'L') ++r->at; /* Python 2 wrote (3L, 4L) */
    *size = value;
    return 0;
}

static int read_shape(reader *r, header *h) {
    if (!accept(r, '(')) return fail(r, "the shape is not a tuple of whole numbers");
    while (!accept(r, ')')) {
        int64_t size = 0;
        if (h->dimensions > 0 && !accept(r, ',')) return fail(r, "the shape is not a tuple of whole numbers");
        if (accept(r, ')')) break; /* (3,) */
        if (read_size(r, &size)) return -1;
        if (h->dimensions < DIMENSIONS_MAX) h->sizes[h->dimensions] = size;
        if (h->dimensions <= DIMENSIONS_MAX) h->dimensions++;
    }
    return 0;
}

static int read_entry(reader *r, header *h) {
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    char key[24];
    int which = 0;
    if (read_string(r, key, sizeof key)) return -1;
    while (which < 3 && strcmp(key, names[which]) != 0) ++which;
    if (which == 3) return fail(r, "the header has a key other than descr, fortran_order and shape");
    if (h->seen >> which & 1) return fail(r, "the header has a key twice");
    if (!accept(r, ':')) return fail(r, "the header is not a dictionary that NumPy writes");
    h->seen |= 1 << which;
    if (which == 2) return read_shape(r, h);
    if (which == 1) {
        h->fortran = accept_word(r, "True");
        if (!h->fortran && !accept_word(r, "False")) return fail(r, "fortran_order is neither True nor False");
        return 0;
    }
    skip_space(r);
    if (r->at < r->end && *r->at == '[') return fail(r, "the array has a structured dtype: must be float32 or float16");
    return read_string(r, h->descr, sizeof h->descr);
}

static int read_header(reader *r, header *h) {
    memset(h, 0, sizeof *h);
    if (!accept(r, '{')) return fail(r, "the header is not a dictionary that NumPy writes");
    while (!accept(r, '}')) {
        if (h->seen && !accept(r, ',')) return fail(r, "the header is not a dictionary that NumPy writes");
        if (accept(r, '}')) break;
        if (read_entry(r, h)) return -1;
    }
    skip_space(r);
    if (r->at != r->end) return fail(r, "the header has text after the dictionary");
    if (h->seen != 7) return fail(r, "the header lacks descr, fortran_order or shape");
    return 0;
}

/* The prefix: magic, version and header length. Sets the reader on the header's text. */
static int read_prefix(reader *r, const unsigned char *bytes, size_t size) {
    if (size < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0) return fail(r, "not a .npy file");
    const int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0) {
        snprintf(r->error, r->error_bytes, ".npy version %d.%d: must be 1.0, 2.0 or 3.0", major, minor);
        return -1;
    }
    const size_t prefix = major == 1 ? 10 : 12;
    if (size < prefix) return fail(r, "the file is truncated in its header");
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > HEADER_MAX) {
        snprintf(r->error, r->error_bytes, "the header claims %zu bytes: more than an array needs", length);
        return -1;
    }
    if (length > size - prefix) return fail(r, "the file is truncated in its header");
    r->at = (const char *)bytes + prefix;
    r->end = r->at + length;
    return 0;
}

static int check_type(reader *r, const header *h, npy_view *out) {
    out->type = strcmp(h->descr, "<f4") == 0 ? NPY_F32 : NPY_F16;
    if (out->type == NPY_F32 || strcmp(h->descr, "<f2") == 0) return 0;
    for (const char *c = h->descr; *c; ++c) /* the file's text goes to a terminal only if it is harmless */
        if (*c < ' ' || *c > '~') return fail(r, "the dtype is not float32 ('<f4') or float16 ('<f2')");
    snprintf(r->error, r->error_bytes, "dtype '%s'%s: must be float32 ('<f4') or float16 ('<f2')", h->descr,
             h->descr[0] == '>' ? " is big-endian" : "");
    return -1;
}

static int check_shape(reader *r, const header *h, size_t data_bytes, npy_view *out) {
    if (h->fortran) return fail(r, "the array is in Fortran order: must be in C order");
    if (h->dimensions < 1 || h->dimensions > DIMENSIONS_MAX) {
        return fail(r, h->dimensions ? "the array has more than 2 dimensions: must be [vocab] or [rows, vocab]"
                                     : "the array is a single number: must be [vocab] or [rows, vocab]");
    }
    const int64_t element = out->type == NPY_F32 ? 4 : 2;
    out->dimensions = h->dimensions;
    out->rows = h->dimensions == 1 ? 1 : h->sizes[0];
    out->cols = h->sizes[h->dimensions - 1];
    if (out->cols == 0) return fail(r, "the array has rows without tokens");
    if (out->cols > INT64_MAX / element || (out->rows && out->cols * element > INT64_MAX / out->rows))
        return fail(r, "the shape has a size that is too large");
    const uint64_t wanted = (uint64_t)(out->rows * (out->cols * element));
    if (wanted != data_bytes) {
        snprintf(r->error, r->error_bytes, "the file %s: shape and dtype want %llu bytes of data, it has %zu",
                 wanted > data_bytes ? "is truncated" : "goes on after the array", (unsigned long long)wanted,
                 data_bytes);
        return -1;
    }
    return 0;
}

int npy_open(const void *bytes, size_t size, npy_view *out, char *error, size_t error_bytes) {
    reader r = {NULL, NULL, error, error_bytes};
    header h;
    memset(out, 0, sizeof *out);
    if (read_prefix(&r, bytes, size)) return -1;
    const char *const data = r.end;
    if (read_header(&r, &h) || check_type(&r, &h, out)) return -1;
    out->data = data;
    return check_shape(&r, &h, size - (size_t)(data - (const char *)bytes), out);
}

void npy_header(const npy_view *view, int64_t rows, const char *descr, char header[NPY_HEADER_BYTES]) {
    char shape[48], text[NPY_HEADER_BYTES];
    enum { PREFIX = 10, LENGTH = NPY_HEADER_BYTES - PREFIX };
    if (view->dimensions == 1)
        snprintf(shape, sizeof shape, "%lld,", (long long)view->cols);
    else
        snprintf(shape, sizeof shape, "%lld, %lld", (long long)rows, (long long)view->cols);
    snprintf(text, sizeof text, "{'descr': '%.3s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    memset(header, ' ', NPY_HEADER_BYTES);
    memcpy(header, "\x93NUMPY\1\0", 8);
    header[8] = LENGTH;
    header[9] = 0;
    memcpy(header + PREFIX, text, strlen(text));
    header[NPY_HEADER_BYTES - 1] = '\n';
}
