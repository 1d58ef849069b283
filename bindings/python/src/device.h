/* device.h - the little that the extension itself does on a GPU: parameters and requests written by kernels.
 *
 * They travel as kernel arguments. So there is no pinned memory whose reuse would have to be waited for, a captured graph
 * has the values in it, and nothing synchronises. Functions return NULL or CUDA's sentence. */
#ifndef RAFFLE_PYTHON_DEVICE_H
#define RAFFLE_PYTHON_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* entry i of to, of 4 or 8 bytes, = entry i of from, in host memory; where that is NULL, = value + i * step */
typedef struct device_fill {
    void *to;
    uint64_t value, step;
    int64_t count;
    int32_t bytes;
    const void *from;
} device_fill;

enum { DEVICE_FILLS_MAX = 16 };

/* Up to DEVICE_FILLS_MAX arrays in one launch; of host entries 3200 bytes go with it, the rest as by device_write. */
const char *device_fill_arrays(int device, const device_fill *fills, int count, void *stream);
/* Host bytes to device memory; `bytes` and `to` are multiples of 4. A few thousand per launch; more than 256 KiB are copied,
 * which waits for the stream, unless it is being captured. */
const char *device_write(int device, void *to, const void *from, size_t bytes, void *stream);
/* position[slot ? slot[row] : row] += 1 + (more ? more[row] : 0) for every row; slots out of range are left out. */
const char *device_advance(int device, uint64_t *position, int64_t slots, const int32_t *slot, const int32_t *more, int64_t rows,
                           void *stream);
/* *to += value, in device memory. */
const char *device_add(int device, uint64_t *to, uint64_t value, void *stream);
/* Device memory to the host. Waits. */
const char *device_read(int device, void *to, const void *from, size_t bytes, void *stream);
/* 1: the stream is being captured into a graph. */
int device_is_capturing(int device, void *stream);

/* What is launched into the stream from record_begin until record_end becomes a graph, instead of running; other streams and
 * threads go on. Launching a graph takes the host less than half as long as launching one kernel, however many are in it. */
const char *device_record_begin(int device, void **stream);
const char *device_record_end(int device, void *stream, void **graph);
const char *device_replay(int device, void *graph, void *stream);
void device_forget(int device, void *graph); /* NULL: nothing */

#ifdef __cplusplus
}
#endif
#endif
