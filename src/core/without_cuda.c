/* without_cuda.c - stands in for src/cuda in builds without it. */
#include <stdio.h>

#include "args.h"

static const char why[] = "this build of raffle has no CUDA backend: build it with make cuda";

static raffle_status create(raffle_plan *plan, raffle_error *error) {
    (void)plan;
    return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "%s", why);
}

static raffle_status change(const state_call *call, raffle_error *error) {
    (void)call;
    return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "%s", why);
}

const backend raffle_backend_cuda = {create, NULL, NULL, NULL, NULL, NULL, NULL, change};

int raffle_cuda_available(char *text, size_t bytes) {
    if (text && bytes) snprintf(text, bytes, "%s", why);
    return 0;
}
