/* npy.h - reads the header of a NumPy .npy file that is in memory. Never trusts a size in it. */
#ifndef NPY_H
#define NPY_H

#include <stddef.h>
#include <stdint.h>

typedef enum npy_type { NPY_F32 = 0, NPY_F16 = 1 } npy_type; /* the values of raffle_dtype */

typedef struct npy_view {
    npy_type type;
    int dimensions;     /* 1 or 2 */
    int64_t rows, cols; /* a 1-D array is one row */
    const void *data;   /* [rows, cols], little-endian, C order; may be misaligned */
} npy_view;

/* Returns 0, or -1 and a sentence in `error`. Takes versions 1.0 to 3.0, float32 and float16,
 * little-endian, C order, 1-D and 2-D; the array must fill the file to its last byte. */
int npy_open(const void *bytes, size_t size, npy_view *out, char *error, size_t error_bytes);

/* The header of a file with the shape of `view`, rows replaced: `descr` is '<f4', '<f2' or '|b1'. */
enum { NPY_HEADER_BYTES = 128 };
void npy_header(const npy_view *view, int64_t rows, const char *descr, char header[NPY_HEADER_BYTES]);

#endif
