/* device.h - memory and clocks of the GPU. Everything happens in order on its default stream.
 *
 * device.c is the CUDA runtime; in a build without CUDA device_none.c stands in, which fails with the library's
 * sentence.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include "cli.h"

/* Memory of the GPU, all zero bytes. */
raffle_status device_new(void **memory, size_t bytes, raffle_error *error);
void device_free(void *memory); /* NULL is fine */

/* Host to device, device to host; done on return. device_get waits for the work before it and tells its errors. */
raffle_status device_put(void *to, const void *from, size_t bytes, raffle_error *error);
raffle_status device_get(void *to, const void *from, size_t bytes, raffle_error *error);
/* Device to device; only enqueued. */
raffle_status device_copy(void *to, const void *from, size_t bytes, raffle_error *error);

/* Times the work that is enqueued between start and stop. device_clock_stop waits for it. */
typedef struct device_clock {
    struct CUevent_st *start, *stop;
} device_clock;
raffle_status device_clock_open(device_clock *clock, raffle_error *error);
void device_clock_close(device_clock *clock);
raffle_status device_clock_start(const device_clock *clock, raffle_error *error);
raffle_status device_clock_stop(const device_clock *clock, double *us, raffle_error *error);

#endif
