/* block.cpp - runs a grid: block after block, the threads of a block in turns, each until it has to wait for others.
 *
 * A thread that comes to a warp's or block's meeting waits there; whoever comes last works out everybody's result and goes
 * on. Only what can go wrong on a GPU is an error here: lanes at different meetings, a lane that is waited for and has
 * returned, a value asked of a lane that does not take part, nobody who can go on.
 *
 * Order: warp 0 as far as it gets, then warp 1, ...; lanes upwards. With RAFFLE_EMULATE_SEED=N, N > 0, it is shuffled:
 * blocks, warps, lanes, and threads may be left at atomic operations, too. What depends on the order lacks a barrier. */
#include "block.h"

#include <stdarg.h>
#include <stdio.h>

#include "fiber.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulate {
namespace {

enum { THREADS_MAX = 1024, WARPS_MAX = THREADS_MAX / warpSize };

const char *const meeting_name[] = {
    "__syncwarp", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync",
    "__all_sync", "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync",
    "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync", "__match_any_sync", "__match_all_sync",
    "__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count", "cluster.sync"};

struct cuda_thread {
    fiber run;
    uint3 index;
    bool returned;
    /* What it waits at, and what came of it. */
    bool waits;
    meeting what;
    uint32_t mask;
    int lane, width;
    uint64_t value, result;
    const char *file;
    int line;
};

/* Lanes as bits. */
struct cuda_warp {
    uint32_t ready;   /* can go on */
    uint32_t meeting; /* wait for other lanes */
};

/* The block that runs. */
struct {
    cuda_thread thread[THREADS_MAX];
    cuda_warp warp[WARPS_MAX];
    int order[WARPS_MAX]; /* which warp goes first */
    int threads, warps, live, arrived, now;
    bool mixed; /* shuffled: any thread next, not the warp that comes first */
    fiber host;
    char *stacks;
    const std::function<void()> *body;
} block;

/* ---- chance --------------------------------------------------------------------------------------------- */

uint64_t seed, chance_state;

uint32_t chance(uint32_t below) { /* splitmix64 */
    uint64_t z = chance_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

int nth_bit(uint32_t bits, uint32_t n) {
    while (n--) bits &= bits - 1;
    return __builtin_ctz(bits);
}

/* ---- errors --------------------------------------------------------------------------------------------- */

void say_where(const cuda_thread &t) {
    if (t.returned) fprintf(stderr, "has returned");
    else if (t.waits && t.what < MEET_BLOCK)
        fprintf(stderr, "waits at %s:%d: %s with mask %08x", t.file, t.line, meeting_name[t.what], t.mask);
    else if (t.waits) fprintf(stderr, "waits at %s:%d: %s", t.file, t.line, meeting_name[t.what]);
    else fprintf(stderr, "can go on");
}

bool same_place(const cuda_thread &a, const cuda_thread &b) {
    if (a.returned || b.returned || !a.waits || !b.waits) return a.returned == b.returned && a.waits == b.waits;
    return a.what == b.what && a.file == b.file && a.line == b.line && (a.what >= MEET_BLOCK || a.mask == b.mask);
}

/* Says what is wrong and where all threads are, and ends the program. */
[[noreturn]] void die(const char *format, ...) {
    va_list values;
    fflush(stdout);
    fprintf(stderr, "emulation: block (%u, %u, %u) of (%u, %u, %u), thread %d: ", blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x,
            gridDim.y, gridDim.z, block.now);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n");
    for (int i = 0, end; i < block.threads; i = end) {
        for (end = i + 1; end < block.threads && same_place(block.thread[i], block.thread[end]); ++end) continue;
        if (end - i == 1) fprintf(stderr, "    thread %d ", i);
        else fprintf(stderr, "    threads %d to %d: each ", i, end - 1);
        say_where(block.thread[i]);
        fprintf(stderr, "\n");
    }
    if (seed) fprintf(stderr, "    RAFFLE_EMULATE_SEED=%llu\n", (unsigned long long)seed);
    abort();
}

/* ---- turns ---------------------------------------------------------------------------------------------- */

/* The thread that goes on, or -1. */
int choose() {
    uint32_t ready = 0; /* warps, by their place in the order */
    const int current = block.now / warpSize;
    if (!block.mixed && block.now >= 0 && block.warp[current].ready) {
        const uint32_t lanes = block.warp[current].ready;
        return current * warpSize + (seed ? nth_bit(lanes, chance((uint32_t)__builtin_popcount(lanes))) : __builtin_ctz(lanes));
    }
    for (int i = 0; i < block.warps; ++i)
        if (block.warp[block.order[i]].ready) {
            ready |= 1u << i;
            if (!block.mixed) break;
        }
    if (!ready) return -1;
    const int warp = block.order[nth_bit(ready, block.mixed ? chance((uint32_t)__builtin_popcount(ready)) : 0)];
    const uint32_t lanes = block.warp[warp].ready;
    return warp * warpSize + nth_bit(lanes, seed ? chance((uint32_t)__builtin_popcount(lanes)) : 0);
}

/* Leaves the running thread for the one chosen. */
void go_on(fiber *from, bool last) {
    const int next = choose();
    if (next < 0) die("nobody can go on");
    block.warp[next / warpSize].ready &= ~(1u << next % warpSize);
    if (next == block.now && !last) return;
    block.now = next;
    threadIdx = block.thread[next].index;
    fiber_switch(from, &block.thread[next].run, last);
}

void make_ready(int thread) {
    block.thread[thread].waits = false;
    block.warp[thread / warpSize].ready |= 1u << thread % warpSize;
}

/* Lets the threads at the block's barrier go if all are there. */
void barrier_open() {
    if (!block.arrived || block.arrived < block.live) return;
    int first = 0, count = 0;
    while (block.thread[first].returned) ++first;
    const cuda_thread &one = block.thread[first];
    for (int i = first; i < block.threads; ++i) {
        const cuda_thread &t = block.thread[i];
        if (t.returned) continue;
        if (!same_place(one, t)) die("threads wait at different barriers");
        count += t.value != 0;
    }
    const int result = one.what == MEET_BLOCK_OR ? count > 0 : one.what == MEET_BLOCK_AND ? count == block.live : count;
    for (int i = first; i < block.threads; ++i) {
        if (block.thread[i].returned) continue;
        block.thread[i].result = (uint64_t)result;
        make_ready(i);
    }
    block.arrived = 0;
}

void thread_start() {
    fiber_begun(&block.host);
    (*block.body)();
    cuda_thread &t = block.thread[block.now];
    t.returned = true;
    --block.live;
    barrier_open();
    if (block.live) go_on(&t.run, true);
    else fiber_switch(&t.run, &block.host, true);
    abort();
}

/* ---- a warp's meetings ------------------------------------------------------------------------------------ */

/* What all lanes get alike. */
uint64_t reduce(meeting what, const cuda_thread *lanes, uint32_t mask) {
    uint32_t sum = 0, all = 0xffffffffu, any = 0, odd = 0, least = 0xffffffffu, most = 0, ballot = 0;
    int32_t least_signed = INT32_MAX, most_signed = INT32_MIN;
    bool equal = true;
    for (uint32_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        const uint32_t x = (uint32_t)lanes[lane].value;
        sum += x, all &= x, any |= x, odd ^= x;
        least = min(least, x), most = max(most, x);
        least_signed = min(least_signed, (int32_t)x), most_signed = max(most_signed, (int32_t)x);
        ballot |= (uint32_t)(x != 0) << lane;
        equal = equal && lanes[lane].value == lanes[__builtin_ctz(mask)].value;
    }
    switch (what) {
    case MEET_BALLOT: return ballot;
    case MEET_ANY: return ballot != 0;
    case MEET_ALL: return ballot == mask;
    case MEET_ADD: return sum;
    case MEET_MIN: return least;
    case MEET_MAX: return most;
    case MEET_MIN_SIGNED: return (uint32_t)least_signed;
    case MEET_MAX_SIGNED: return (uint32_t)most_signed;
    case MEET_AND: return all;
    case MEET_OR: return any;
    case MEET_XOR: return odd;
    case MEET_MATCH_ALL: return equal ? mask : 0;
    default: return 0;
    }
}

/* The lane whose value this lane gets. */
int source(const cuda_thread &t, int lane) {
    const int first = lane & ~(t.width - 1), last = lane | (t.width - 1);
    int from = lane;
    if (t.what == MEET_SHFL) from = first | (t.lane & (t.width - 1));
    if (t.what == MEET_SHFL_UP) from = lane - t.lane;
    if (t.what == MEET_SHFL_DOWN) from = lane + t.lane;
    if (t.what == MEET_SHFL_XOR) from = lane ^ t.lane;
    return from < first || from > last ? lane : from;
}

void warp_finish(cuda_thread *lanes, uint32_t mask, meeting what) {
    const bool moves = what >= MEET_SHFL && what <= MEET_SHFL_XOR;
    const uint64_t alike = moves || what == MEET_SYNC || what == MEET_MATCH_ANY ? 0 : reduce(what, lanes, mask);
    for (uint32_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        cuda_thread &t = lanes[lane];
        t.result = alike;
        if (moves) {
            const int from = source(t, lane);
            if (!(mask >> from & 1)) die("lane %d asks for the value of lane %d, which is not in the mask", lane, from);
            t.result = lanes[from].value;
        }
        if (what == MEET_MATCH_ANY)
            for (int i = 0; i < warpSize; ++i)
                if (mask >> i & 1 && lanes[i].value == t.value) t.result |= 1u << i;
    }
}

} // namespace

uint64_t warp_meet(meeting what, uint32_t mask, uint64_t value, int lane_given, int width, const char *file, int line) {
    const int lane = block.now % warpSize;
    cuda_thread &t = block.thread[block.now], *lanes = &t - lane;
    cuda_warp &w = block.warp[block.now / warpSize];
    t.waits = true, t.what = what, t.mask = mask, t.value = value, t.lane = lane_given, t.width = width;
    t.file = file, t.line = line;
    if (!(mask >> lane & 1)) die("calls with a mask that it is not in");
    w.meeting |= 1u << lane;
    bool all = (w.meeting & mask) == mask;
    for (uint32_t left = all ? mask : 0; left; left &= left - 1) all = all && lanes[__builtin_ctz(left)].mask == mask;
    if (all) {
        for (uint32_t left = mask; left; left &= left - 1)
            if (!same_place(t, lanes[__builtin_ctz(left)])) die("lanes of a warp meet at different places");
        warp_finish(lanes, mask, what);
        w.meeting &= ~mask;
        for (uint32_t left = mask; left; left &= left - 1) make_ready(block.now - lane + __builtin_ctz(left));
    }
    go_on(&t.run, false);
    return t.result;
}

int block_meet(meeting what, int value, const char *file, int line) {
    cuda_thread &t = block.thread[block.now];
    t.waits = true, t.what = what, t.value = (uint64_t)(int64_t)value, t.file = file, t.line = line;
    ++block.arrived;
    barrier_open();
    go_on(&t.run, false);
    return (int)t.result;
}

void pause() {
    if (!seed || chance(8)) return;
    make_ready(block.now);
    go_on(&block.thread[block.now].run, false);
}

void promised(bool holds, const char *condition, const char *file, int line) {
    if (!holds) die("%s:%d: assumes %s, which does not hold", file, line, condition);
}

bool is_shared(const void *) { return true; }

/* ---- a grid ----------------------------------------------------------------------------------------------- */

static void block_run() {
    const dim3 d = blockDim;
    block.threads = block.live = (int)(d.x * d.y * d.z);
    block.warps = (block.threads + warpSize - 1) / warpSize;
    block.arrived = 0;
    block.now = -1;
    block.mixed = seed && chance(2);
    for (int i = 0; i < block.warps; ++i) {
        const int j = seed ? (int)chance((uint32_t)i + 1) : i;
        block.order[i] = block.order[j];
        block.order[j] = i;
        block.warp[i].ready = block.warp[i].meeting = 0;
    }
    for (int i = 0; i < block.threads; ++i) {
        cuda_thread &t = block.thread[i];
        const unsigned n = (unsigned)i;
        t.index = {n % d.x, n / d.x % d.y, n / d.x / d.y};
        t.returned = false;
        fiber_make(&t.run, block.stacks + i * fiber_stack_bytes(), thread_start);
        make_ready(i);
    }
    block.host.stack = nullptr;
    go_on(&block.host, false);
}

void shuffle_by(uint64_t number) { seed = chance_state = number; }

void grid_run(dim3 grid, dim3 threads, const std::function<void()> &body) {
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (!block.stacks) block.stacks = fiber_stacks(THREADS_MAX);
    gridDim = grid;
    blockDim = threads;
    block.body = &body;
    /* Any odd number that has no divisor in common with `blocks` walks through all of them. */
    uint64_t step = 1, at = 0;
    if (seed && blocks > 2) {
        auto divisor = [](uint64_t a, uint64_t b) {
            while (b) {
                const uint64_t rest = a % b;
                a = b, b = rest;
            }
            return a;
        };
        at = chance(0x7fffffff) % blocks;
        do step = 1 + chance(0x7fffffff) % (blocks - 1);
        while (divisor(step, blocks) != 1);
    }
    for (uint64_t i = 0; i < blocks; ++i, at = (at + step) % blocks) {
        blockIdx = {(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y), (unsigned)(at / grid.x / grid.y)};
        block_run();
    }
}

} // namespace emulate
