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
    std::condition_variable changed;
    bool met; /* all blocks have begun, and all know it */
    int turn; /* the rank of the block that may run; -1: none, all are finished */
} cluster;

cuda_block *block_of(unsigned rank) {
    if (!cluster.block[rank]) cluster.block[rank] = new cuda_block();
    cluster.block[rank]->rank = (int)rank;
    return cluster.block[rank];
}

/* Chooses the block that runs next; the lock is held. */
void turn_pass() {
    unsigned ready[CLUSTER_MAX], count = 0;
    for (int again = 0; again < 2 && !count; ++again) {
        for (unsigned i = 0; i < cluster.blocks; ++i) {
            cuda_block *b = cluster.block[i];
            if (again) b->parked = false; /* all that have not ended have come */
            if (again && b->begun) cluster.met = true;
            if (!b->finished && !b->parked) ready[count++] = i;
        }
    }
    cluster.turn = count ? (int)ready[seed ? chance(count) : 0] : -1;
    cluster.changed.notify_all();
}

void turn_wait(std::unique_lock<std::mutex> &hold, int rank) {
    cluster.changed.wait(hold, [=] { return cluster.turn == rank; });
}

void block_with_memory(cuda_block *b, const void *kernel, size_t dynamic, const std::function<void()> &body) {
    b->shared = shared_base();
    shared_spoil(kernel, dynamic);
    block_run(b, body);
    shared_check(dynamic);
}

void cluster_run(const void *kernel, size_t dynamic, const std::function<void()> &body) {
    std::thread host[CLUSTER_MAX];
    cluster.met = false;
    cluster.turn = -1;
    for (unsigned i = 0; i < cluster.blocks; ++i) {
        cuda_block *b = cluster.block[i];
        b->parked = b->begun = b->finished = false;
        b->shared = nullptr;
        host[i] = std::thread([=, &body] {
            std::unique_lock<std::mutex> hold(cluster.lock);
            b->shared = shared_base(); /* before anybody runs */
            b->parked = true;
            cluster.changed.notify_all();
            turn_wait(hold, (int)i);
            b->begun = true;
            block_with_memory(b, kernel, dynamic, body);
            b->finished = true;
            turn_pass();
        });
    }
    std::unique_lock<std::mutex> hold(cluster.lock);
    cluster.changed.wait(hold, [] {
        for (unsigned i = 0; i < cluster.blocks; ++i)
            if (!cluster.block[i]->parked) return false;
        return true;
    });
    turn_pass();
    turn_wait(hold, -1);
    hold.unlock();
    for (unsigned i = 0; i < cluster.blocks; ++i) host[i].join();
}

} // namespace

void cluster_meet_others() {
    cuda_block *own = block_of((unsigned)running().rank);
    if (cluster.blocks == 1) return;
    std::unique_lock<std::mutex> hold(cluster.lock, std::adopt_lock); /* held by whoever runs */
    own->parked = true;
    turn_pass();
    turn_wait(hold, own->rank);
    hold.release();
}

unsigned cluster_blocks() { return cluster.blocks; }

void *shared_of_rank(const void *p, unsigned rank) {
    const cuda_block &own = running();
    if (rank >= cluster.blocks) die("asks for the shared memory of block %u of a cluster of %u", rank, cluster.blocks);
    if ((int)rank == own.rank) return (void *)p;
    if (!cluster.met) die("looks into the shared memory of block %u of its cluster, which may not have begun: cluster.sync() first", rank);
    if (cluster.block[rank]->finished) die("looks into the shared memory of block %u of its cluster, which has ended", rank);
    return cluster.block[rank]->shared + ((const char *)p - own.shared);
}

void grid_run(dim3 grid, dim3 threads, unsigned cluster_size, const void *kernel, size_t dynamic, const std::function<void()> &body) {
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, clusters = blocks / cluster_size;
    gridDim = grid;
    blockDim = threads;
    cluster.blocks = cluster_size;
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
        for (unsigned rank = 0; rank < cluster_size; ++rank) {
            const uint64_t n = at * cluster_size + rank; /* a cluster's blocks are neighbours along x */
            block_of(rank)->index = {(unsigned)(n % grid.x), (unsigned)(n / grid.x % grid.y), (unsigned)(n / grid.x / grid.y)};
        }
        if (cluster_size > 1) cluster_run(kernel, dynamic, body);
        else block_with_memory(block_of(0), kernel, dynamic, body);
    }
}

} // namespace emulate
