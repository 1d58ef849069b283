/* fuzz_npy.c - libFuzzer target: the command line's .npy reader takes any bytes.
 *
 * What must hold: no crash; a refusal comes with a sentence; what is accepted lies inside the file. */
#include <string.h>

#include "fuzz.h"
#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char error[200];
    npy_view view;
    memset(&view, 0x7f, sizeof view);
    memset(error, 'x', sizeof error);
    char *file = malloc(size ? size : 1); /* exactly as long as the file, so that reading on is seen */
    if (size) memcpy(file, bytes, size);
    int status = npy_open(file, size, &view, error, sizeof error);
    MUST(status == 0 || status == -1);
    if (status) {
        MUST(memchr(error, 0, sizeof error) && error[0]);
        char tiny[3] = {'x', 'x', 'x'}; /* a sentence that does not fit is cut, not spilt */
        MUST(npy_open(file, size, &view, tiny, 2) == -1 && memchr(tiny, 0, 2) && tiny[2] == 'x');
    } else {
        size_t element = view.type == NPY_F32 ? 4 : 2;
        MUST(view.type == NPY_F32 || view.type == NPY_F16);
        MUST(view.dimensions == 1 || view.dimensions == 2);
        MUST(view.rows >= 0 && view.cols >= 0 && (view.dimensions == 2 || view.rows == 1));
        MUST((const char *)view.data >= file && (const char *)view.data <= file + size);
        size_t left = size - (size_t)((const char *)view.data - file), cols = (size_t)view.cols, rows = (size_t)view.rows;
        MUST(!cols || rows <= left / element / cols); /* no product that could overflow */
        MUST(rows * cols * element == left);
    }
    free(file);
    return 0;
}
