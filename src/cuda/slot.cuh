/* slot.cuh - slots of a raffle_state in device memory: how kernels are told of them, and how they find one. raffle.h draws
 * a slot, src/math/history.h knows its parts. Include a vector layer first. */
#ifndef RAFFLE_CUDA_SLOT_CUH
#define RAFFLE_CUDA_SLOT_CUH

#include "history.h"
#include "plan.h"

/* A state as a kernel's argument. */
struct slot_pool {
    char *memory; /* NULL: there is no state */
    int64_t slots, slot_bytes, token_at, entry_at, index_at;
    int32_t vocab, history_max, entry_max;
    uint32_t index_mask;
};

/* On the host: a checked state and its layout. */
static inline slot_pool slot_pool_make(const raffle_state *s, const slot_layout *l) {
    slot_pool p = {(char *)s->memory, s->slots,          l->slot_bytes,
                   l->token_at,       l->entry_at,       l->index_at,
                   (int32_t)s->vocab, (int32_t)s->history_max, (int32_t)l->entry_max,
                   (uint32_t)l->index_count - 1};
    return p;
}

/* The parts of a slot; it is in range. */
static __device__ __forceinline__ history slot_parts(const slot_pool *p, int64_t slot) {
    char *memory = p->memory + slot * p->slot_bytes;
    history h = {(history_head *)memory, (int32_t *)(memory + p->token_at), (uint64_t *)(memory + p->entry_at),
                 (int32_t *)(memory + p->index_at), p->history_max, p->entry_max, p->index_mask};
    return h;
}

/* No kernel may read or write outside because of a slot that was never cleared. */
static __device__ __forceinline__ bool head_sound(const history_head *head, const slot_pool *p) {
    return history_sound(head, p->history_max, p->entry_max);
}

/* Whether histories go on with drafts: those of raffle_verify do. */
#ifndef SAID_TAIL
#define SAID_TAIL 0
#endif

#if SAID_TAIL
/* The tokens of a history, used like a pointer to them: the last lie in another place. */
struct said_tokens {
    const int32_t *token, *tail;
    int32_t kept; /* tokens before those of the tail */
    said_tokens() = default;
    __device__ __forceinline__ said_tokens(const int32_t *all) : token(all), tail(nullptr), kept(INT32_MAX) {}
    __device__ __forceinline__ int32_t operator[](int32_t i) const { return i < kept ? token[i] : tail[i - kept]; }
    __device__ __forceinline__ said_tokens operator+(int32_t n) const {
        said_tokens from = *this;
        from.token += n;
        from.kept -= n;
        return from;
    }
};
#define SAID_TOKENS said_tokens
#else
#define SAID_TOKENS const int32_t *
#endif

/* What a slot's request has said, for kernels that only read it. The lengths are safe; ids, in memory that was never
 * cleared, need not be: look whether one is below vocab before you use it as a place. */
struct slot_said {
    SAID_TOKENS token;     /* [length], the first `prompt` of them the prompt */
    const uint64_t *entry; /* [entries] entry_token, entry_output and entry_prompt of history.h */
    int32_t length, prompt, entries;
    uint32_t row_flags; /* RAFFLE_ROW_STATE where the history is not what the caller gave, else 0 */
};

static __device__ __forceinline__ slot_said slot_read(const slot_pool *p, int64_t slot) {
    const history h = slot_parts(p, slot);
    slot_said said = {h.token, h.entry, h.head->length, h.head->prompt, h.head->entries,
                      h.head->flags & HISTORY_LOST ? RAFFLE_ROW_STATE : 0u};
    if (!head_sound(h.head, p)) {
        said.length = said.prompt = said.entries = 0;
        said.row_flags = RAFFLE_ROW_STATE;
    }
    return said;
}

#if SAID_TAIL
/* The same history, and `count` tokens of the output behind it, which the entries do not count. */
static __device__ __forceinline__ slot_said said_behind(slot_said said, const int32_t *tail, int32_t count) {
    said.token.tail = tail;
    said.token.kept = said.length;
    said.length += count;
    return said;
}
#endif

#endif
