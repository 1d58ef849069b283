#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static exit_code failed(const npy_output *out) { return complain("%s: %s", out->path, strerror(errno)), EXIT_MACHINE; }

exit_code output_open(npy_output *out, const char *path, const npy_view *view, int64_t rows, const char *descr) {
    static const char ending[] = ".part";
    char header[NPY_HEADER_BYTES];
    if (!path) return EXIT_FINE;
    out->path = path;
    out->part = malloc(strlen(path) + sizeof ending);
    if (!out->part) return complain("out of memory"), EXIT_MACHINE;
    strcpy(out->part, path);
    strcat(out->part, ending);
    if (!(out->file = fopen(out->part, "wb"))) return failed(out);
    npy_header(view, rows, descr, header);
    return output_write(out, header, sizeof header);
}

exit_code output_write(npy_output *out, const void *data, size_t bytes) {
    if (!out->file || fwrite(data, 1, bytes, out->file) == bytes) return EXIT_FINE;
    return failed(out);
}

exit_code output_close(npy_output *out, int complete) {
    exit_code code = EXIT_FINE;
    if (out->file && fclose(out->file) && complete) code = failed(out);
    if (out->file && complete && !code && rename(out->part, out->path)) code = failed(out);
    if (out->file && (!complete || code)) remove(out->part);
    free(out->part);
    out->part = NULL;
    out->file = NULL;
    return code;
}
