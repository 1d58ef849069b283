/* device_none.c - stands in for device.c in builds without CUDA. Nothing here is reached: plans are refused. */
#include <string.h>

#include "device.h"

static raffle_status missing(raffle_error *error) {
    error->status = RAFFLE_E_UNSUPPORTED;
    raffle_cuda_available(error->text, sizeof error->text);
    return RAFFLE_E_UNSUPPORTED;
}

raffle_status device_new(void **memory, size_t bytes, raffle_error *error) {
    (void)bytes;
    *memory = NULL;
    return missing(error);
}

void device_free(void *memory) { (void)memory; }

static raffle_status move(void *to, const void *from, size_t bytes, raffle_error *error) {
    (void)to, (void)from, (void)bytes;
    return missing(error);
}

raffle_status device_put(void *to, const void *from, size_t n, raffle_error *error) { return move(to, from, n, error); }
raffle_status device_get(void *to, const void *from, size_t n, raffle_error *error) { return move(to, from, n, error); }
raffle_status device_copy(void *to, const void *from, size_t n, raffle_error *error) {
    return move(to, from, n, error);
}

raffle_status device_clock_open(device_clock *clock, raffle_error *error) {
    memset(clock, 0, sizeof *clock);
    return missing(error);
}

void device_clock_close(device_clock *clock) { (void)clock; }

raffle_status device_clock_start(const device_clock *clock, raffle_error *error) {
    (void)clock;
    return missing(error);
}

raffle_status device_clock_stop(const device_clock *clock, double *us, raffle_error *error) {
    (void)clock;
    *us = 0;
    return missing(error);
}
