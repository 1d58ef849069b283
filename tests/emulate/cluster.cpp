/* cluster.cpp - how warps of a block and blocks of a cluster wait for each other, and what is on its way to shared memory. The
 * functions are those of src/cuda/ptx.cuh.
 *
 * A barrier in shared memory completes when all bytes it expects are on their way, somebody waits for it, and nobody else of
 * the block can go on. They land then and not earlier, so that whoever does not wait finds rubbish. */
#include <vector>

#include "block.h"

namespace emulate {
namespace {

enum { BARRIER_MADE = 0x6d62 };

struct barrier { /* in its eight bytes of shared memory */
    uint16_t made;
    bool told, over; /* what is expected; it has completed, for the first time and the last */
    int32_t bytes;   /* expected less those on their way */
};
static_assert(sizeof(barrier) == sizeof(uint64_t), "");

struct flight {
    cuda_block *block; /* whose memory it goes to */
    char *to;
    const void *from; /* NULL: the value */
    size_t bytes;
    uint64_t value;
    const barrier *counted;
};
std::vector<flight> flights;

/* The cluster's own barrier. Threads that have returned are waited for: a GPU does not. */
uint64_t cluster_arrived, cluster_round;

cuda_thread &thread_now() { return running().thread[running().now]; }

barrier *barrier_at(void *p) {
    barrier *const b = (barrier *)p;
    if (b->made != BARRIER_MADE) die("uses a barrier that is not made");
    return b;
}

barrier *own_barrier(uint64_t *p) {
    if (!is_shared(p) || (size_t)p % sizeof *p) die("a barrier has to be in shared memory, aligned to 8 bytes");
    return barrier_at(p);
}

void send(const flight &what, barrier *to) {
    to->bytes -= (int32_t)what.bytes;
    flights.push_back(what);
    if (to->told && !to->bytes) what.block->parked = false;
}

bool barrier_over(barrier *b) {
    if (b->over) return true;
    if (!b->told || b->bytes) return false;
    for (size_t i = 0; i < flights.size();) {
        const flight f = flights[i];
        if (f.counted != b) {
            ++i;
            continue;
        }
        memcpy(f.to, f.from ? f.from : &f.value, f.bytes);
        flights[i] = flights.back();
        flights.pop_back();
    }
    return b->over = true;
}

} // namespace

void cluster_begin() {
    cluster_arrived = cluster_round = 0;
    flights.clear();
}

void flights_check() {
    for (const flight &f : flights)
        if (f.block == &running()) die("the block ends, and %zu bytes are still on their way into its shared memory", f.bytes);
}

bool wait_over(const cuda_thread &t) {
    if (t.at.what == MEET_CLUSTER) return t.on != cluster_round;
    return t.at.what == MEET_BARRIER && barrier_over((barrier *)t.on);
}

} // namespace emulate

using namespace emulate;

int cluster_blocks() { return (int)cluster_size(); }
int cluster_rank() { return running().rank; }
int cluster_id() { return (int)(blockIdx.x / cluster_size()); }

void cluster_arrive(const char *file, int line) {
    cuda_thread &t = thread_now();
    if (t.arrived) die("%s:%d: arrives at the cluster's barrier and has not waited since it was there last", file, line);
    if (t.unknown) die("%s:%d: arrives at the cluster's barrier before barriers_made", file, line);
    t.arrived = true;
    t.round = cluster_round;
    if (++cluster_arrived == (uint64_t)running().threads * cluster_size()) {
        cluster_arrived = 0;
        ++cluster_round;
        for (unsigned i = 0; i < cluster_size(); ++i) block_of(i)->parked = false;
    }
    pause();
}
void cluster_wait(const char *file, int line) {
    cuda_thread &t = thread_now();
    if (!t.arrived) die("%s:%d: waits for the cluster and has not arrived", file, line);
    if (t.round == cluster_round) wait_here(MEET_CLUSTER, t.round, file, line);
    else pause();
    t.arrived = false;
    running().met = true;
}

void barrier_make(uint64_t *p) {
    if (!is_shared(p) || (size_t)p % sizeof *p) die("a barrier has to be in shared memory, aligned to 8 bytes");
    if (((barrier *)p)->made == BARRIER_MADE) die("makes a barrier that is made");
    *(barrier *)p = {BARRIER_MADE, false, false, 0};
    thread_now().unknown = true;
}
void barriers_made() { thread_now().unknown = false; }

void barrier_expect(uint64_t *p, uint32_t bytes) {
    barrier *const b = own_barrier(p);
    if (b->told) die("a barrier is told twice what to expect");
    b->told = true;
    b->bytes += (int32_t)bytes;
}
void barrier_wait(uint64_t *p, const char *file, int line) {
    if (own_barrier(p)->over) pause();
    else wait_here(MEET_BARRIER, (uint64_t)p, file, line);
}
void barrier_wait_cluster(uint64_t *p, const char *file, int line) { barrier_wait(p, file, line); }

void copy_ask(void *to, const void *from, uint32_t bytes, uint64_t *p) {
    if (!bytes || ((size_t)to | (size_t)from | bytes) % 16) die("copies %u bytes that are not aligned to 16", bytes);
    if (!is_shared(to) || !is_shared((char *)to + bytes - 1)) die("copies to what is not shared memory");
    if (thread_now().unknown) die("copies before barriers_made");
    barrier_expect(p, bytes);
    send({&running(), (char *)to, from, bytes, 0, (barrier *)p}, (barrier *)p);
}

namespace {

/* Block `rank` of the cluster, whose shared memory may be used. */
cuda_block *other_block(int rank) {
    if (rank < 0 || rank >= cluster_blocks()) die("asks for block %d of a cluster of %u", rank, cluster_size());
    cuda_block *const block = block_of((unsigned)rank);
    if (block != &running() && !running().met) die("asks for block %d of its cluster, which may not have begun: cluster_wait first", rank);
    if (block != &running() && block->finished) die("asks for block %d of its cluster, which has ended", rank);
    return block;
}

} // namespace

void *cluster_place_of(void *own, int rank) {
    if (!is_shared(own)) die("asks for a place in another block's shared memory by one that is not in its own");
    return other_block(rank)->shared + ((char *)own - running().shared);
}

void store_remote(uint64_t *place, uint64_t *p, int to, uint64_t value) {
    cuda_block *const block = other_block(to);
    if (!is_shared(place) || (size_t)place % sizeof *place) die("stores to what is not shared memory, aligned to 8 bytes");
    barrier *const there = barrier_at(block->shared + ((char *)p - running().shared));
    send({block, block->shared + ((char *)place - running().shared), nullptr, sizeof value, value, there}, there);
}
