/* device_none.c - device.h in a build without CUDA: plans for GPUs cannot be made, so none of this is reached. */
#include "device.h"

static const char *const absent = "this build has no CUDA";

const char *device_fill_arrays(int device, const device_fill *fills, int count, void *stream) {
    (void)device, (void)fills, (void)count, (void)stream;
    return absent;
}
const char *device_write(int device, void *to, const void *from, size_t bytes, void *stream) {
    (void)device, (void)to, (void)from, (void)bytes, (void)stream;
    return absent;
}
const char *device_advance(int device, uint64_t *position, int64_t slots, const int32_t *slot, const int32_t *more, int64_t rows,
                           void *stream) {
    (void)device, (void)position, (void)slots, (void)slot, (void)more, (void)rows, (void)stream;
    return absent;
}
const char *device_add(int device, uint64_t *to, uint64_t value, void *stream) {
    (void)device, (void)to, (void)value, (void)stream;
    return absent;
}
const char *device_read(int device, void *to, const void *from, size_t bytes, void *stream) {
    (void)device, (void)to, (void)from, (void)bytes, (void)stream;
    return absent;
}
const char *device_record_begin(int device, void **stream) {
    (void)device, (void)stream;
    return absent;
}
const char *device_record_end(int device, void *stream, void **graph) {
    (void)device, (void)stream, (void)graph;
    return absent;
}
const char *device_replay(int device, void *graph, void *stream) {
    (void)device, (void)graph, (void)stream;
    return absent;
}
void device_forget(int device, void *graph) { (void)device, (void)graph; }
int device_is_capturing(int device, void *stream) {
    (void)device, (void)stream;
    return 0;
}
