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
const char *device_advance(int device, uint64_t *position, int64_t slots, const int32_t *slot, int64_t rows, void *stream) {
    (void)device, (void)position, (void)slots, (void)slot, (void)rows, (void)stream;
    return absent;
}
const char *device_allocate(int device, size_t bytes, void **memory) {
    (void)device, (void)bytes, (void)memory;
    return absent;
}
void device_free(int device, void *memory) { (void)device, (void)memory; }
const char *device_order(int device, void *earlier, void *later) {
    (void)device, (void)earlier, (void)later;
    return absent;
}
int device_is_capturing(int device, void *stream) {
    (void)device, (void)stream;
    return 0;
}
