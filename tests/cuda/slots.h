/* slots.h - a pool of slots on the GPU and the same one on the CPU: a call on both, which rows of it must be refused by a rule
 * written down here, and the comparison. Two slots are equal if they have the same history and the same counts: entries may
 * come in any order. */
#ifndef RAFFLE_TESTS_SLOTS_H
#define RAFFLE_TESTS_SLOTS_H

#include "gpu.h"

enum { POOL_GUARD = 4096, POOL_POISON = 0x5a };
enum { PROMPT, ACCEPT, TRUNCATE, RESET, FORK, ACTIONS };

/* A call; its arrays are those of the pool. */
typedef struct turn {
    int action;
    int64_t rows, stride;
    int has_slot, has_count, has_flags, has_first; /* has_first: where rows of tokens are, instead of the stride */
} turn;

/* What a call gets, on one side. */
typedef struct arrays {
    int32_t *slot, *token, *count, *first;
    uint32_t *flags;
} arrays;

typedef struct pool {
    raffle_state cpu, gpu;
    size_t bytes, slot_bytes;
    char *device, *fetched; /* | guard | slots | guard |, there and here */
    unsigned char *lost;    /* [slots] whether the GPU must have noted that a change was refused */
    int64_t tokens_max;
    arrays host, there;
    uint32_t *wanted; /* [slots] flags */
    uint64_t *sorted[2];
    unsigned char *seen;
    cudaStream_t stream;
} pool;

static inline raffle_status slots_call(int action, const raffle_state *s, const raffle_tokens *t, raffle_error *e) {
    raffle_status (*const call[])(const raffle_state *, const raffle_tokens *, raffle_error *) = {
        raffle_state_prompt, raffle_state_accept, raffle_state_truncate, raffle_state_reset, raffle_state_fork};
    return call[action](s, t, e);
}

/* ---- a pool ---- */

static inline int64_t entry_max_of(const raffle_state *s) {
    const int64_t most = s->history_max + s->history_max / 8 + 16;
    return most < s->vocab ? most : s->vocab;
}

/* Both sides get `byte` everywhere, and are not cleared. */
static inline void pool_wipe(pool *p, int byte) {
    memset(p->cpu.memory, byte, p->bytes);
    gpu_fill(p->device, POOL_POISON, p->bytes + 2 * POOL_GUARD);
    gpu_fill(p->gpu.memory, byte, p->bytes);
    CUDA(cudaDeviceSynchronize());
}

static inline void pool_clear(pool *p) {
    MUST(raffle_state_clear(&p->cpu, NULL, &must_error));
    MUST(raffle_state_clear(&p->gpu, p->stream, &must_error));
    memset(p->lost, 0, (size_t)p->cpu.slots);
}

static inline pool *pool_make(int64_t slots, int64_t history_max, int64_t vocab, int64_t tokens_max) {
    pool *p = (pool *)calloc(1, sizeof *p);
    if (!p) abort();
    p->cpu = raffle_state_init();
    p->cpu.slots = slots;
    p->cpu.history_max = history_max;
    p->cpu.vocab = vocab;
    p->bytes = raffle_state_bytes(&p->cpu);
    p->slot_bytes = p->bytes / (size_t)slots;
    p->cpu.memory = host_alloc(p->bytes);
    p->device = (char *)gpu_alloc(p->bytes + 2 * POOL_GUARD);
    p->fetched = (char *)host_alloc(p->bytes + 2 * POOL_GUARD);
    p->gpu = p->cpu;
    p->gpu.backend = RAFFLE_CUDA;
    p->gpu.memory = p->device + POOL_GUARD;
    p->tokens_max = tokens_max;
    const size_t row_bytes = (size_t)slots * 4, token_bytes = (size_t)tokens_max * 4;
    p->host.slot = (int32_t *)host_alloc(row_bytes);
    p->host.count = (int32_t *)host_alloc(row_bytes);
    p->host.first = (int32_t *)host_alloc(row_bytes + 4);
    p->host.flags = (uint32_t *)host_alloc(row_bytes + POOL_GUARD);
    p->host.token = (int32_t *)host_alloc(token_bytes);
    p->there.slot = (int32_t *)gpu_alloc(row_bytes);
    p->there.count = (int32_t *)gpu_alloc(row_bytes);
    p->there.first = (int32_t *)gpu_alloc(row_bytes + 4);
    p->there.flags = (uint32_t *)gpu_alloc(row_bytes + POOL_GUARD);
    p->there.token = (int32_t *)gpu_alloc(token_bytes);
    p->wanted = (uint32_t *)host_alloc(row_bytes);
    p->lost = (unsigned char *)host_alloc((size_t)slots);
    for (int i = 0; i < 2; ++i) p->sorted[i] = (uint64_t *)host_alloc((size_t)entry_max_of(&p->cpu) * 8);
    p->seen = (unsigned char *)host_alloc((size_t)entry_max_of(&p->cpu));
    CUDA(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
    pool_wipe(p, 0xee);
    pool_clear(p);
    return p;
}

static inline void pool_free(pool *p) {
    void *const host[] = {p->cpu.memory, p->fetched, p->host.slot, p->host.count, p->host.first, p->host.flags, p->host.token, p->wanted,
                          p->lost,       p->sorted[0], p->sorted[1], p->seen};
    void *const there[] = {p->device, p->there.slot, p->there.count, p->there.first, p->there.flags, p->there.token};
    CUDA(cudaStreamSynchronize(p->stream));
    for (size_t i = 0; i < sizeof host / sizeof *host; ++i) free(host[i]);
    for (size_t i = 0; i < sizeof there / sizeof *there; ++i) CUDA(cudaFree(there[i]));
    CUDA(cudaStreamDestroy(p->stream));
    free(p);
}

/* ---- the rule ---- */

static inline int64_t turn_slot(const pool *p, const turn *t, int64_t row) { return t->has_slot ? p->host.slot[row] : row; }
static inline const int32_t *turn_token(const pool *p, const turn *t, int64_t row) {
    return p->host.token + (t->has_first ? p->host.first[row] : row * t->stride);
}
static inline int64_t turn_room(const pool *p, const turn *t, int64_t row) {
    return t->has_first ? (int64_t)p->host.first[row + 1] - p->host.first[row] : t->stride;
}
static inline int64_t turn_changed(const pool *p, const turn *t, int64_t row) {
    return t->action == FORK ? *turn_token(p, t, row) : turn_slot(p, t, row);
}
static inline int slot_is(const pool *p, int64_t slot) { return slot >= 0 && slot < p->cpu.slots; }

/* Slots that another row changes, or copies. */
static inline int turn_clashes(const pool *p, const turn *t, int64_t row) {
    const int64_t changed = turn_changed(p, t, row);
    for (int64_t i = 0; i < t->rows; ++i) {
        if (i != row && turn_changed(p, t, i) == changed) return 1;
        if (t->action == FORK && (turn_slot(p, t, i) == changed || turn_changed(p, t, i) == turn_slot(p, t, row))) return 1;
    }
    return 0;
}

/* The flags of a row; *count is how many of its tokens are there. */
static inline uint32_t turn_flags(const pool *p, const turn *t, int64_t row, int64_t *count) {
    int64_t prompt, length;
    *count = t->action == RESET || t->action == FORK ? 1 : t->has_count ? p->host.count[row] : turn_room(p, t, row);
    if (!slot_is(p, turn_slot(p, t, row)) || !slot_is(p, turn_changed(p, t, row)) || turn_clashes(p, t, row) || *count < 0)
        return RAFFLE_ROW_ARGUMENT;
    raffle_state_history(&p->cpu, turn_slot(p, t, row), &prompt, &length);
    if (t->action == TRUNCATE) return *count > length - prompt ? RAFFLE_ROW_STATE : 0;
    if (t->action != PROMPT && t->action != ACCEPT) return 0;
    if (*count > turn_room(p, t, row) || (t->has_first && p->host.first[row] < 0)) return RAFFLE_ROW_ARGUMENT;
    const int64_t room = p->cpu.history_max - (t->action == ACCEPT ? length : 0);
    for (int64_t i = 0; i < *count; ++i) {
        const int32_t id = turn_token(p, t, row)[i];
        if (t->action == ACCEPT && id == RAFFLE_NO_TOKEN) *count = i;
        else if (id < 0 || id >= p->cpu.vocab) return RAFFLE_ROW_ARGUMENT;
        else if (i == room) return RAFFLE_ROW_STATE;
    }
    return 0;
}

/* ---- a call ---- */

static inline raffle_tokens turn_tokens(const turn *t, const arrays *a) {
    raffle_tokens made = raffle_tokens_init();
    made.rows = t->rows;
    made.stride = t->has_first ? 0 : t->stride;
    made.first = t->has_first ? a->first : NULL;
    made.slot = t->has_slot ? a->slot : NULL;
    made.token = a->token;
    made.count = t->has_count ? a->count : NULL;
    made.row_flags = t->has_flags ? a->flags : NULL;
    return made;
}

/* On the CPU: the rows that the rule does not refuse, one by one. */
static inline void turn_run_cpu(pool *p, const turn *t) {
    int64_t *counts = (int64_t *)host_alloc((size_t)(t->rows ? t->rows : 1) * sizeof *counts);
    for (int64_t row = 0; row < t->rows; ++row) p->wanted[row] = turn_flags(p, t, row, &counts[row]);
    for (int64_t row = 0; row < t->rows; ++row) {
        const int64_t changed = turn_changed(p, t, row);
        if (p->wanted[row]) {
            if (slot_is(p, changed)) p->lost[changed] = 1;
            continue;
        }
        const int32_t slot = (int32_t)turn_slot(p, t, row), count = (int32_t)counts[row];
        if (t->action == PROMPT || t->action == RESET) p->lost[slot] = 0;
        if (t->action == FORK) p->lost[changed] = p->lost[slot];
        uint32_t flags = 77;
        raffle_tokens one = raffle_tokens_init();
        one.rows = 1;
        one.slot = &slot;
        one.token = t->has_first ? p->host.token : turn_token(p, t, row);
        one.count = &count;
        one.stride = t->has_first ? 0 : t->stride;
        one.first = t->has_first ? p->host.first + row : NULL;
        one.row_flags = &flags;
        MUST(slots_call(t->action, &p->cpu, &one, &must_error));
        CHECK_EQ(flags, 0);
    }
    free(counts);
}

/* The arrays, and poison for the flags. */
static inline void turn_send(pool *p, const turn *t) {
    const int lists = t->action == PROMPT || t->action == ACCEPT || t->action == FORK;
    const size_t row_bytes = (size_t)t->rows * 4;
    CUDA(cudaMemcpyAsync(p->there.slot, p->host.slot, row_bytes, cudaMemcpyHostToDevice, p->stream));
    CUDA(cudaMemcpyAsync(p->there.count, p->host.count, row_bytes, cudaMemcpyHostToDevice, p->stream));
    CUDA(cudaMemcpyAsync(p->there.first, p->host.first, row_bytes + 4, cudaMemcpyHostToDevice, p->stream));
    if (lists) CUDA(cudaMemcpyAsync(p->there.token, p->host.token, row_bytes * (size_t)t->stride, cudaMemcpyHostToDevice, p->stream));
    CUDA(cudaMemsetAsync(p->there.flags, POOL_POISON, (size_t)p->cpu.slots * 4 + POOL_GUARD, p->stream));
}

static inline void turn_run_gpu(pool *p, const turn *t) {
    raffle_tokens tokens = turn_tokens(t, &p->there);
    tokens.stream = p->stream;
    MUST(slots_call(t->action, &p->gpu, &tokens, &must_error));
}

/* ---- the comparison ---- */

static inline int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

typedef struct slot_view {
    const int32_t *head, *token, *index;
    const uint64_t *entry;
    int64_t index_count;
} slot_view;

/* As raffle.h draws it. */
static inline slot_view view_of(const pool *p, const void *memory, int64_t slot) {
    const char *at = (const char *)memory + (size_t)slot * p->slot_bytes;
    slot_view v = {(const int32_t *)(const void *)at, (const int32_t *)(const void *)(at + 64), NULL, NULL, 16};
    at += 64 + (p->cpu.history_max * 4 + 63) / 64 * 64;
    v.entry = (const uint64_t *)(const void *)at;
    at += (entry_max_of(&p->cpu) * 8 + 63) / 64 * 64;
    v.index = (const int32_t *)(const void *)at;
    while (v.index_count < entry_max_of(&p->cpu) + entry_max_of(&p->cpu) / 2) v.index_count *= 2;
    return v;
}

/* Entries that count something, sorted. */
static inline size_t entries_sort(const slot_view *v, uint64_t *to) {
    size_t n = 0;
    for (int32_t i = 0; i < v->head[2]; ++i)
        if (v->entry[i] >> 21) to[n++] = v->entry[i];
    qsort(to, n, sizeof *to, by_value);
    return n;
}

/* Every entry once in the index, and nothing else. */
static inline int index_is_whole(pool *p, const slot_view *v) {
    int64_t found = 0;
    memset(p->seen, 0, (size_t)v->head[2]);
    for (int64_t i = 0; i < v->index_count; ++i) {
        const int32_t number = v->index[i];
        if (number == -1) continue;
        if (number < 0 || number >= v->head[2] || p->seen[number]) return 0;
        p->seen[number] = 1;
        ++found;
    }
    return found == v->head[2];
}

static inline void pool_check_slot(pool *p, const void *memory, int64_t slot, const char *what) {
    const slot_view wanted = view_of(p, p->cpu.memory, slot), got = view_of(p, memory, slot);
    const int32_t length = wanted.head[0];
    CHECK(got.head[0] == length && got.head[1] == wanted.head[1], "%s: slot %lld has %d tokens, %d of the prompt: wanted %d and %d",
          what, (long long)slot, got.head[0], got.head[1], length, wanted.head[1]);
    CHECK(got.head[3] == p->lost[slot], "%s: slot %lld has flags %d, wanted %d", what, (long long)slot, got.head[3], p->lost[slot]);
    if (got.head[0] != length || got.head[2] < 0 || got.head[2] > entry_max_of(&p->cpu)) {
        CHECK(0, "%s: slot %lld has %d entries", what, (long long)slot, got.head[2]);
        return;
    }
    CHECK(!memcmp(got.token, wanted.token, (size_t)length * 4), "%s: slot %lld has another history", what, (long long)slot);
    const size_t n = entries_sort(&wanted, p->sorted[0]), m = entries_sort(&got, p->sorted[1]);
    CHECK(n == m && !memcmp(p->sorted[0], p->sorted[1], n * 8), "%s: slot %lld counts otherwise", what, (long long)slot);
    CHECK(index_is_whole(p, &got), "%s: the index of slot %lld has other numbers than its entries", what, (long long)slot);
}

static inline void pool_fetch(pool *p) {
    CUDA(cudaMemcpyAsync(p->fetched, p->device, p->bytes + 2 * POOL_GUARD, cudaMemcpyDeviceToHost, p->stream));
    CUDA(cudaStreamSynchronize(p->stream));
}

/* Nothing was written around the slots of what was fetched. */
static inline void pool_check_guards(const pool *p, const char *what) {
    size_t spoilt = 0;
    for (size_t i = 0; i < POOL_GUARD; ++i)
        spoilt += (p->fetched[i] != POOL_POISON) + (p->fetched[POOL_GUARD + p->bytes + i] != POOL_POISON);
    CHECK(!spoilt, "%s: %zu bytes were written outside", what, spoilt);
}

static inline void pool_check(pool *p, const char *what) {
    pool_fetch(p);
    pool_check_guards(p, what);
    for (int64_t slot = 0; slot < p->cpu.slots; ++slot) pool_check_slot(p, p->fetched + POOL_GUARD, slot, what);
}

static inline void turn_check_flags(pool *p, const turn *t, const char *what) {
    const size_t all = (size_t)p->cpu.slots + POOL_GUARD / 4;
    CUDA(cudaMemcpyAsync(p->host.flags, p->there.flags, all * 4, cudaMemcpyDeviceToHost, p->stream));
    CUDA(cudaStreamSynchronize(p->stream));
    for (size_t i = 0; i < all; ++i) {
        const uint32_t wanted = t->has_flags && i < (size_t)t->rows ? p->wanted[i] : 0x5a5a5a5au;
        CHECK(p->host.flags[i] == wanted, "%s: row %zu of action %d has flags %u, wanted %u", what, i, t->action, p->host.flags[i], wanted);
    }
}

/* The call on both sides, and everything compared. */
static inline void turn_take(pool *p, const turn *t, const char *what) {
    turn_send(p, t);
    turn_run_gpu(p, t);
    turn_run_cpu(p, t);
    turn_check_flags(p, t, what);
    pool_check(p, what);
}

#endif
