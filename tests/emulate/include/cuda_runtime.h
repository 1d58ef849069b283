/* cuda_runtime.h - CUDA C++ for a host compiler: the runtime, the words of the language, launches of typed kernels. */
#ifndef RAFFLE_EMULATE_CUDA_RUNTIME_H
#define RAFFLE_EMULATE_CUDA_RUNTIME_H

#include "../device.h"
#include "../launch.h"
#include "cuda_runtime_api.h"

#endif
