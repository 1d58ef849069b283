#include "device.h"

#include <stdio.h>

#include <cuda_runtime_api.h>

/* The runtime's code as a status, with a sentence. */
static raffle_status status_of(cudaError_t code, const char *doing, raffle_error *error) {
    if (code == cudaSuccess) return RAFFLE_OK;
    cudaGetLastError(); /* told here: the next call should not tell it again */
    const raffle_status status = code == cudaErrorMemoryAllocation ? RAFFLE_E_MEMORY : RAFFLE_E_DEVICE;
    error->status = (int32_t)status;
    snprintf(error->text, sizeof error->text, "%s: %s", doing, cudaGetErrorString(code));
    return status;
}

raffle_status device_new(void **memory, size_t bytes, raffle_error *error) {
    char doing[64];
    *memory = NULL;
    snprintf(doing, sizeof doing, "allocating %zu bytes on the GPU", bytes);
    raffle_status status = status_of(cudaMalloc(memory, bytes), doing, error);
    if (status) *memory = NULL;
    if (!status) status = status_of(cudaMemset(*memory, 0, bytes), "clearing memory of the GPU", error);
    if (status) device_free(*memory), *memory = NULL;
    return status;
}

void device_free(void *memory) { cudaFree(memory); }

raffle_status device_put(void *to, const void *from, size_t bytes, raffle_error *error) {
    return status_of(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the GPU", error);
}

raffle_status device_get(void *to, const void *from, size_t bytes, raffle_error *error) {
    return status_of(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the GPU", error);
}

raffle_status device_copy(void *to, const void *from, size_t bytes, raffle_error *error) {
    return status_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, NULL), "copying on the GPU", error);
}

raffle_status device_clock_open(device_clock *clock, raffle_error *error) {
    clock->start = clock->stop = NULL;
    const raffle_status status = status_of(cudaEventCreate(&clock->start), "creating an event", error);
    return status ? status : status_of(cudaEventCreate(&clock->stop), "creating an event", error);
}

void device_clock_close(device_clock *clock) {
    if (clock->start) cudaEventDestroy(clock->start);
    if (clock->stop) cudaEventDestroy(clock->stop);
    clock->start = clock->stop = NULL;
}

raffle_status device_clock_start(const device_clock *clock, raffle_error *error) {
    return status_of(cudaEventRecord(clock->start, NULL), "recording an event", error);
}

raffle_status device_clock_stop(const device_clock *clock, double *us, raffle_error *error) {
    float ms = 0;
    cudaError_t code = cudaEventRecord(clock->stop, NULL);
    if (code == cudaSuccess) code = cudaEventSynchronize(clock->stop);
    if (code == cudaSuccess) code = cudaEventElapsedTime(&ms, clock->start, clock->stop);
    *us = (double)ms * 1e3;
    return status_of(code, "waiting for the GPU", error);
}
