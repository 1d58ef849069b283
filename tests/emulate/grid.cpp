/* grid.cpp - runs a grid: block after block, or cluster after cluster. The blocks of a cluster have a host thread each, and
 * with it shared memory of their own, but only one of them runs at a time. */
#include <condition_variable>
#include <mutex>
#include <thread>

#include "block.h"

namespace emulate {

uint64_t seed;

uint32_t chance(uint32_t below) { /* splitmix64 */
    static uint64_t state = seed;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

namespace {

/* The cluster that runs. */
struct {
    unsigned blocks;
    cuda_block *block[CLUSTER_MAX]; /* made when first needed, and used again */
    std::mutex lock;
    int turn; /* the rank of the block that may run; -1: none, all are finished */
    std::condition_variable changed[CLUSTER_MAX + 1]; /* where block `rank` waits, at rank + 1, and at 0 whoever runs the cluster */
} cluster;

/* Chooses the block that runs next, one that is parked if there is no other; the lock is held. */
void turn_pass() {
    unsigned ready[CLUSTER_MAX], count = 0;
    for (int parked = 0; parked < 2 && !count; ++parked)
        for (unsigned i = 0; i < cluster.blocks; ++i)
            if (!cluster.block[i]->finished && (parked || !cluster.block[i]->parked)) ready[count++] = i;
    cluster.turn = count ? (int)ready[seed ? chance(count) : 0] : -1;
    cluster.changed[cluster.turn + 1].notify_one();
}

void turn_wait(std::unique_lock<std::mutex> &hold, int rank) {
    cluster.changed[rank + 1].wait(hold, [=] { return cluster.turn == rank; });
}

void block_with_memory(cuda_block *b, const void *kernel, size_t dynamic, const std::function<void()> &body) {
    b->shared = shared_base();
    shared_spoil(kernel, dynamic);
    block_run(b, body);
    shared_check(dynamic);
    flights_check();
}

void cluster_run(const void *kernel, size_t dynamic, const std::function<void()> &body) {
    std::thread host[CLUSTER_MAX];
    cluster.turn = -2;
    for (unsigned i = 0; i < cluster.blocks; ++i) {
        cuda_block *b = cluster.block[i];
        b->parked = b->finished = false;
        b->shared = nullptr;
        host[i] = std::thread([=, &body] {
            std::unique_lock<std::mutex> hold(cluster.lock);
            b->shared = shared_base(); /* before anybody runs */
            cluster.changed[0].notify_one();
            turn_wait(hold, (int)i);
            block_with_memory(b, kernel, dynamic, body);
            b->finished = true;
            turn_pass();
        });
    }
    std::unique_lock<std::mutex> hold(cluster.lock);
    cluster.changed[0].wait(hold, [] {
        for (unsigned i = 0; i < cluster.blocks; ++i)
            if (!cluster.block[i]->shared) return false;
        return true;
    });
    turn_pass();
    turn_wait(hold, -1);
    hold.unlock();
    for (unsigned i = 0; i < cluster.blocks; ++i) host[i].join();
}

} // namespace

unsigned cluster_size() { return cluster.blocks; }

cuda_block *block_of(unsigned rank) {
    if (!cluster.block[rank]) cluster.block[rank] = new cuda_block();
    cluster.block[rank]->rank = (int)rank;
    return cluster.block[rank];
}

bool others_go_on() {
    cuda_block &own = running();
    if (cluster.blocks == 1) return false;
    std::unique_lock<std::mutex> hold(cluster.lock, std::adopt_lock); /* held by whoever runs */
    own.parked = true;
    turn_pass();
    turn_wait(hold, own.rank);
    hold.release();
    return !own.parked; /* the turn came, but nobody has let it go on */
}

void grid_run(dim3 grid, dim3 threads, unsigned blocks_each, const void *kernel, size_t dynamic, const std::function<void()> &body) {
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, clusters = blocks / blocks_each;
    gridDim = grid;
    blockDim = threads;
    cluster.blocks = blocks_each;
    /* Any number that has no divisor in common with `clusters` walks through all of them. */
    uint64_t step = 1, at = 0;
    if (seed && clusters > 2) {
        auto divisor = [](uint64_t a, uint64_t b) {
            while (b) {
                const uint64_t rest = a % b;
                a = b, b = rest;
            }
            return a;
        };
        at = chance(0x7fffffff) % clusters;
        do step = 1 + chance(0x7fffffff) % (clusters - 1);
        while (divisor(step, clusters) != 1);
    }
    for (uint64_t i = 0; i < clusters; ++i, at = (at + step) % clusters) {
        for (unsigned rank = 0; rank < blocks_each; ++rank) {
            const uint64_t n = at * blocks_each + rank; /* a cluster's blocks are neighbours along x */
            block_of(rank)->index = {(unsigned)(n % grid.x), (unsigned)(n / grid.x % grid.y), (unsigned)(n / grid.x / grid.y)};
        }
        cluster_begin();
        if (blocks_each > 1) cluster_run(kernel, dynamic, body);
        else block_with_memory(block_of(0), kernel, dynamic, body);
    }
}

} // namespace emulate
