/* output.h - .npy files that are written row by row. A file appears under its name when it is complete: until then what
 * was there before stays, so it may be the file that is read. What is no file (a FIFO, a device) is written to as it is, and of
 * a link the file that it leads to. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdio.h>

#include "cli.h"
#include "npy.h"

typedef struct npy_output {
    const char *path; /* NULL: nothing is written */
    char *target;     /* where the file will be, links followed; NULL: it is written in place */
    char *part;       /* its name until then */
    FILE *file;
} npy_output;

/* Starts a file with the columns of `view`, and `rows` rows; complains when it fails. path NULL: does nothing. */
exit_code output_open(npy_output *out, const char *path, const npy_view *view, int64_t rows, const char *descr);
exit_code output_write(npy_output *out, const void *data, size_t bytes);
/* Gives the file its name if `complete`, else removes it. */
exit_code output_close(npy_output *out, int complete);

/* Whether two paths are one file, as far as can be known before they are written. */
int output_same(const char *path, const char *other);

#endif
