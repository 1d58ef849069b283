/* block.cpp - runs a block: its threads in turns, each until it has to wait for others.
 *
 * A thread that comes to a warp's or block's meeting waits there; whoever comes last works out everybody's result. Only
 * what can go wrong on a GPU is an error here: lanes at different meetings, a lane that is waited for and has returned, a
 * value asked of a lane that does not take part, nobody who can go on.
 *
 * Order: warp 0 as far as it gets, then warp 1, ...; lanes upwards. Shuffled: warps and lanes in any order, and threads may
 * be left at atomic operations, too. What depends on the order lacks a barrier. */
#include "block.h"

#include <stdarg.h>
#include <stdio.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulate {
namespace {

const char *const meeting_name[] = {
    "__syncwarp", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync",
    "__all_sync", "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync",
    "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync", "__match_any_sync", "__match_all_sync",
    "__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count", "cluster_wait", "barrier_wait"};

cuda_block *self; /* the block that runs */

/* A bit that is set: by chance, the first at or behind any place of `places`. In order: the first. */
int some_bit(uint32_t bits, int places) {
    static uint32_t luck, digits;
    if (!seed) return __builtin_ctz(bits);
    if (!digits) luck = chance(1u << 30), digits = 6;
    const uint32_t place = (luck & 31) * (uint32_t)places / 32;
    luck >>= 5, --digits;
    return (int)((uint32_t)__builtin_ctz(bits >> place | bits << (-place & 31)) + place) & 31;
}

/* ---- errors --------------------------------------------------------------------------------------------- */

void say_where(const cuda_thread &t) {
    if (t.returned) fprintf(stderr, "has returned");
    else if (!t.waits) fprintf(stderr, "can go on");
    else fprintf(stderr, "waits at %s:%d: %s", t.at.file, t.at.line, meeting_name[t.at.what]);
    if (!t.returned && t.waits && t.at.mask) fprintf(stderr, " with mask %08x", t.at.mask);
}

bool same_place(const cuda_thread &a, const cuda_thread &b) {
    if (a.returned || b.returned || !a.waits || !b.waits) return a.returned == b.returned && a.waits == b.waits;
    return a.at == b.at;
}

} // namespace

void die(const char *format, ...) {
    va_list values;
    fflush(stdout);
    fprintf(stderr, "emulation: block (%u, %u, %u) of (%u, %u, %u), thread %d: ", blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x,
            gridDim.y, gridDim.z, self->now);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n");
    for (int i = 0, end; i < self->threads; i = end) {
        for (end = i + 1; end < self->threads && same_place(self->thread[i], self->thread[end]); ++end) continue;
        if (end - i == 1) fprintf(stderr, "    thread %d ", i);
        else fprintf(stderr, "    threads %d to %d: each ", i, end - 1);
        say_where(self->thread[i]);
        fprintf(stderr, "\n");
    }
    if (seed) fprintf(stderr, "    RAFFLE_EMULATE_SEED=%llu\n", (unsigned long long)seed);
    abort();
}

void make_ready(int thread) {
    self->thread[thread].waits = false;
    self->warp[thread / warpSize].ready |= 1u << thread % warpSize;
    self->ready |= 1u << thread / warpSize;
}

namespace {

/* ---- turns ---------------------------------------------------------------------------------------------- */

/* The thread that goes on, or -1. */
int choose() {
    if (!self->ready) return -1;
    int warp = self->now < 0 ? 0 : self->now / warpSize;
    if (self->mixed) warp = some_bit(self->ready, self->warps);
    else if (self->now < 0 || !self->warp[warp].ready)
        for (int i = 0; !(self->ready >> (warp = self->order[i]) & 1); ++i) continue;
    return warp * warpSize + some_bit(self->warp[warp].ready, warpSize);
}

/* Lets threads go on that wait for what has come; if there are none, waits for the other blocks of the cluster. */
void look_around() {
    cuda_block *const own = self;
    bool any = false;
    for (int i = 0; i < own->threads; ++i) {
        if (!own->thread[i].waits || !wait_over(own->thread[i])) continue;
        make_ready(i);
        any = true;
    }
    if (any) return;
    const bool others = others_go_on();
    self = own;
    blockIdx = own->index;
    if (!others) die("nobody can go on");
}

/* Leaves the running thread for the one chosen. */
void go_on(fiber *from, bool last) {
    int next;
    while ((next = choose()) < 0) look_around();
    uint32_t &left = self->warp[next / warpSize].ready;
    left &= ~(1u << next % warpSize);
    if (!left) self->ready &= ~(1u << next / warpSize);
    threadIdx = self->thread[next].index;
    if (next == self->now && !last) return;
    self->now = next;
    fiber_switch(from, &self->thread[next].run, last);
}

/* Lets the threads at the block's barrier go if all are there. */
void barrier_open() {
    if (!self->arrived || self->arrived < self->live) return;
    const cuda_thread *one = nullptr;
    int count = 0;
    for (int i = 0; i < self->threads; ++i) {
        const cuda_thread &t = self->thread[i];
        if (t.returned) continue;
        if (!one) one = &t;
        if (!(t.at == one->at)) die("threads wait at different barriers");
        count += self->warp[i / warpSize].value[i % warpSize] != 0;
    }
    const meeting what = one->at.what;
    const int result = what == MEET_BLOCK_OR ? count > 0 : what == MEET_BLOCK_AND ? count == self->live : count;
    for (int i = 0; i < self->threads; ++i) {
        if (self->thread[i].returned) continue;
        self->warp[i / warpSize].result[i % warpSize] = (uint64_t)result;
        make_ready(i);
    }
    self->arrived = 0;
}

void thread_start() {
    fiber_begun(&self->host);
    (*self->body)();
    cuda_thread &t = self->thread[self->now];
    t.returned = true;
    --self->live;
    barrier_open();
    if (self->live) go_on(&t.run, true);
    else fiber_switch(&t.run, &self->host, true);
    abort();
}

/* ---- a warp's meetings ------------------------------------------------------------------------------------ */

/* What all lanes get alike; lanes that are not in the mask have brought nothing. */
template <class type, class function> uint64_t reduce(const cuda_warp &w, uint32_t mask, type start, function add) {
    for (uint32_t left = mask; left; left &= left - 1) start = add(start, (type)w.value[__builtin_ctz(left)]);
    return (uint64_t)start;
}

uint32_t lanes_equal(const cuda_warp &w, uint32_t mask, uint64_t value) {
    uint32_t lanes = 0;
    for (uint32_t left = mask; left; left &= left - 1)
        if (w.value[__builtin_ctz(left)] == value) lanes |= left & -left;
    return lanes;
}

uint64_t all_get(meeting what, const cuda_warp &w, uint32_t mask) {
    typedef uint32_t u;
    switch (what) {
    case MEET_BALLOT: return mask & ~lanes_equal(w, mask, 0);
    case MEET_ANY: return lanes_equal(w, mask, 0) != mask;
    case MEET_ALL: return !lanes_equal(w, mask, 0);
    case MEET_ADD: return reduce<u>(w, mask, 0, [](u a, u b) { return a + b; });
    case MEET_MIN: return reduce<u>(w, mask, ~0u, [](u a, u b) { return a < b ? a : b; });
    case MEET_MAX: return reduce<u>(w, mask, 0, [](u a, u b) { return a > b ? a : b; });
    case MEET_MIN_SIGNED: return reduce<int>(w, mask, INT32_MAX, [](int a, int b) { return a < b ? a : b; });
    case MEET_MAX_SIGNED: return reduce<int>(w, mask, INT32_MIN, [](int a, int b) { return a > b ? a : b; });
    case MEET_AND: return reduce<u>(w, mask, ~0u, [](u a, u b) { return a & b; });
    case MEET_OR: return reduce<u>(w, mask, 0, [](u a, u b) { return a | b; });
    case MEET_XOR: return reduce<u>(w, mask, 0, [](u a, u b) { return a ^ b; });
    case MEET_MATCH_ALL: return lanes_equal(w, mask, w.value[__builtin_ctz(mask)]) == mask ? mask : 0;
    default: return 0;
    }
}

/* The lane whose value a lane gets. */
int source(meeting what, const cuda_warp &w, int lane) {
    const int first = lane & -w.width[lane], last = lane | (w.width[lane] - 1), given = w.lane[lane];
    int from = lane;
    if (what == MEET_SHFL) from = first | (given & (w.width[lane] - 1));
    if (what == MEET_SHFL_UP) from = lane - given;
    if (what == MEET_SHFL_DOWN) from = lane + given;
    if (what == MEET_SHFL_XOR) from = lane ^ given;
    return from < first || from > last ? lane : from;
}

void warp_finish(cuda_warp &w, uint32_t mask, meeting what) {
    const bool moves = what >= MEET_SHFL && what <= MEET_SHFL_XOR;
    const uint64_t alike = all_get(what, w, mask);
    for (uint32_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        w.result[lane] = what == MEET_MATCH_ANY ? lanes_equal(w, mask, w.value[lane]) : alike;
        if (!moves) continue;
        const int from = source(what, w, lane);
        if (!(mask >> from & 1)) die("lane %d asks for the value of lane %d, which is not in the mask", lane, from);
        w.result[lane] = w.value[from];
    }
}

} // namespace

uint64_t warp_meet(meeting what, uint32_t mask, uint64_t value, int lane_given, int width, const char *file, int line) {
    const int lane = self->now % warpSize;
    cuda_thread &t = self->thread[self->now], *lanes = &t - lane;
    cuda_warp &w = self->warp[self->now / warpSize];
    t.waits = true;
    t.at = {file, line, what, mask};
    w.mask[lane] = mask, w.value[lane] = value, w.lane[lane] = lane_given, w.width[lane] = width;
    if (!(mask >> lane & 1)) die("calls with a mask that it is not in");
    w.meeting |= 1u << lane;
    if ((w.meeting & mask) == mask) {
        bool all = true; /* some may wait with another mask, which comes first for them */
        for (uint32_t left = mask; left; left &= left - 1) all = all && w.mask[__builtin_ctz(left)] == mask;
        if (all) {
            for (uint32_t left = mask; left; left &= left - 1)
                if (!(t.at == lanes[__builtin_ctz(left)].at)) die("lanes of a warp meet at different places");
            warp_finish(w, mask, what);
            for (uint32_t left = mask; left; left &= left - 1) lanes[__builtin_ctz(left)].waits = false;
            w.meeting &= ~mask;
            w.ready |= mask;
            self->ready |= 1u << self->now / warpSize;
        }
    }
    go_on(&t.run, false);
    return w.result[lane];
}

int block_meet(meeting what, int value, const char *file, int line) {
    cuda_thread &t = self->thread[self->now];
    cuda_warp &w = self->warp[self->now / warpSize];
    const int lane = self->now % warpSize;
    t.waits = true;
    t.at = {file, line, what, 0};
    w.value[lane] = (uint64_t)(int64_t)value;
    ++self->arrived;
    barrier_open();
    go_on(&t.run, false);
    return (int)w.result[lane];
}

void pause() {
    if (!seed || chance(8)) return;
    make_ready(self->now);
    go_on(&self->thread[self->now].run, false);
}

void promised(bool holds, const char *condition, const char *file, int line) {
    if (!holds) die("%s:%d: assumes %s, which does not hold", file, line, condition);
}

void wait_here(meeting what, uint64_t on, const char *file, int line) {
    cuda_thread &t = self->thread[self->now];
    t.waits = true;
    t.at = {file, line, what, 0};
    t.on = on;
    go_on(&t.run, false);
}

cuda_block &running() { return *self; }

void block_run(cuda_block *block, const std::function<void()> &body) {
    const dim3 d = blockDim;
    self = block;
    blockIdx = block->index;
    block->body = &body;
    block->threads = block->live = (int)(d.x * d.y * d.z);
    block->warps = (block->threads + warpSize - 1) / warpSize;
    block->arrived = 0;
    block->ready = 0;
    block->met = false;
    block->now = -1;
    block->mixed = seed && chance(2);
    for (int i = 0; i < block->warps; ++i) {
        const int j = seed ? (int)chance((uint32_t)i + 1) : i;
        block->order[i] = block->order[j];
        block->order[j] = i;
        block->warp[i].ready = block->warp[i].meeting = 0;
    }
    if (!block->stacks) block->stacks = fiber_stacks(THREADS_MAX);
    for (int i = 0; i < block->threads; ++i) {
        cuda_thread &t = block->thread[i];
        const unsigned n = (unsigned)i;
        t.index = {n % d.x, n / d.x % d.y, n / d.x / d.y};
        t.returned = t.arrived = t.unknown = false;
        fiber_make(&t.run, block->stacks + i * fiber_stack_bytes(), thread_start);
        make_ready(i);
    }
    block->host.stack = nullptr;
    go_on(&block->host, false);
}

} // namespace emulate
