/* block.h - a block and its threads, and what the files here ask of each other. */
#ifndef RAFFLE_EMULATE_BLOCK_H
#define RAFFLE_EMULATE_BLOCK_H

#include "device.h"
#include "fiber.h"

namespace emulate {

enum { THREADS_MAX = 1024, WARPS_MAX = THREADS_MAX / warpSize, CLUSTER_MAX = 16, DYNAMIC_MAX = 227 << 10 };

/* Where a thread waits. */
struct place {
    const char *file;
    int line;
    meeting what;
    uint32_t mask; /* 0 for all of the block */
    bool operator==(const place &o) const { return file == o.file && line == o.line && what == o.what && mask == o.mask; }
};

struct cuda_thread {
    fiber run;
    uint3 index;
    bool returned, waits;
    place at;
    uint64_t on; /* a barrier's address, the round of the cluster's barrier */
    bool arrived; /* at the cluster's barrier, and has not waited since */
    bool unknown; /* has made barriers that others may not know of */
    uint64_t round; /* of the cluster's barrier, when it arrived */
};

struct cuda_warp {
    uint32_t ready;   /* lanes that can go on, as bits */
    uint32_t meeting; /* and that wait for other lanes */
    /* What each lane brings to a meeting, and what it gets. */
    uint32_t mask[warpSize];
    uint64_t value[warpSize], result[warpSize];
    int lane[warpSize], width[warpSize];
};

struct cuda_block {
    cuda_thread thread[THREADS_MAX];
    cuda_warp warp[WARPS_MAX];
    int order[WARPS_MAX]; /* which warp goes first */
    uint32_t ready;       /* warps with a lane that can go on, as bits */
    bool mixed;           /* shuffled: any thread next, not the warp that comes first */
    int threads, warps;
    int live, arrived; /* threads that have not returned, wait at the barrier */
    int now;           /* the thread that runs */
    fiber host;
    char *stacks;
    const std::function<void()> *body;
    /* its place in the grid and in its cluster */
    uint3 index;
    int rank;
    bool met;              /* knows that the cluster's other blocks have begun */
    bool parked, finished; /* waits for the cluster's other blocks; has ended */
    char *shared;          /* its shared memory: where its host thread has thread-local variables */
};

/* block.cpp */
void block_run(cuda_block *block, const std::function<void()> &body); /* block->index is set */
cuda_block &running();
void wait_here(meeting what, uint64_t on, const char *file, int line); /* until somebody makes the thread ready, or wait_over */
void make_ready(int thread);
[[noreturn]] void die(const char *format, ...); /* says what is wrong and where all threads are, and ends the program */

/* grid.cpp */
extern uint64_t seed; /* 0: everything in order */
uint32_t chance(uint32_t below);
void grid_run(dim3 grid, dim3 threads, unsigned cluster, const void *kernel, size_t dynamic, const std::function<void()> &body);
unsigned cluster_size();
cuda_block *block_of(unsigned rank); /* of the cluster that runs */
bool others_go_on(); /* lets the other blocks of the cluster go on until this one can; false if none can */

/* cluster.cpp */
void cluster_begin();
bool wait_over(const cuda_thread &t); /* looked at when nobody of the block can go on: lands what it waits for */
void flights_check();                 /* a block ends when nothing is on its way to it */

/* shared.cpp */
char *shared_base();
void shared_spoil(const void *kernel, size_t dynamic); /* a block finds rubbish */
void shared_check(size_t dynamic);                     /* and leaves what is behind its dynamic memory alone */

} // namespace emulate

#endif
