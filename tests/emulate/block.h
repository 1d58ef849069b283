/* block.h - what the runtime asks of block.cpp. */
#ifndef RAFFLE_EMULATE_BLOCK_H
#define RAFFLE_EMULATE_BLOCK_H

#include "device.h"

namespace emulate {

void shuffle_by(uint64_t number); /* 0: in order */
/* Runs `body` once for each thread of the grid. */
void grid_run(dim3 grid, dim3 threads, const std::function<void()> &body);

} // namespace emulate

#endif
