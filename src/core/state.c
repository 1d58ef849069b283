/* state.c - the raffle_state functions: where the parts of a slot are, the checks, and on to the backend. */
#include <string.h>

#include "args.h"

static int64_t padded(int64_t bytes) { return (bytes + RAFFLE_WORKSPACE_ALIGN - 1) / RAFFLE_WORKSPACE_ALIGN * RAFFLE_WORKSPACE_ALIGN; }

/* history_max and vocab are in range. */
static slot_layout layout_make(int64_t history_max, int64_t vocab) {
    slot_layout l;
    int64_t entries = history_max + history_max / 8 + 16; /* more than tokens: see history_recount */
    l.entry_max = entries < vocab ? entries : vocab;
    l.index_count = 16;
    while (l.index_count < l.entry_max + l.entry_max / 2) l.index_count *= 2;
    l.token_at = RAFFLE_WORKSPACE_ALIGN;
    l.entry_at = l.token_at + padded(history_max * 4);
    l.index_at = l.entry_at + padded(l.entry_max * 8);
    l.slot_bytes = l.index_at + padded(l.index_count * 4);
    return l;
}

/* All but the memory. */
static raffle_status check_shape(const raffle_state *given, raffle_state *state, slot_layout *layout, raffle_error *error) {
    raffle_status status = TAKE(state, given, raffle_state);
    if (status) return status;
    if (state->backend != RAFFLE_CPU && state->backend != RAFFLE_CUDA)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.backend is %d: not a raffle_backend", state->backend);
    if (state->device < 0 || (state->device && state->backend == RAFFLE_CPU))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.device is %d: must be %s", state->device,
                           state->backend == RAFFLE_CPU ? "0 for the CPU" : "a device ordinal");
    if (state->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_state.reserved is not 0");
    if (state->slots < 1 || state->slots > INT32_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.slots is %lld: must be 1 to 2147483647", (long long)state->slots);
    if (state->history_max < 1 || state->history_max > RAFFLE_HISTORY_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.history_max is %lld: must be 1 to %d",
                           (long long)state->history_max, RAFFLE_HISTORY_MAX);
    if (state->vocab < 1 || state->vocab > RAFFLE_VOCAB_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.vocab is %lld: must be 1 to %d", (long long)state->vocab,
                           RAFFLE_VOCAB_MAX);
    *layout = layout_make(state->history_max, state->vocab);
    return RAFFLE_OK;
}

raffle_status raffle_check_state(const raffle_state *given, raffle_state *state, slot_layout *layout, raffle_error *error) {
    raffle_status status = check_shape(given, state, layout, error);
    if (status) return status;
    if (!state->memory) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.memory is NULL");
    if ((uintptr_t)state->memory % RAFFLE_WORKSPACE_ALIGN)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.memory is not aligned to %d bytes", RAFFLE_WORKSPACE_ALIGN);
    return RAFFLE_OK;
}

size_t raffle_state_bytes(const raffle_state *given) {
    raffle_state state;
    slot_layout layout = {0};
    return check_shape(given, &state, &layout, NULL) ? 0 : (size_t)(layout.slot_bytes * state.slots);
}

const int32_t *raffle_state_history(const raffle_state *given, int64_t slot, int64_t *prompt, int64_t *length) {
    raffle_state state;
    slot_layout layout = {0};
    if (prompt) *prompt = 0;
    if (length) *length = 0;
    if (raffle_check_state(given, &state, &layout, NULL) || state.backend != RAFFLE_CPU || slot < 0 || slot >= state.slots)
        return NULL;
    const char *memory = (const char *)state.memory + slot * layout.slot_bytes;
    int32_t head[2];
    memcpy(head, memory, sizeof head);
    if (prompt) *prompt = head[1];
    if (length) *length = head[0];
    return (const int32_t *)(const void *)(memory + layout.token_at);
}

/* A call that changes slots; `tokens` may be NULL for STATE_CLEAR. */
static raffle_status change(const raffle_state *state, const raffle_tokens *tokens, state_action action,
                            struct CUstream_st *stream, raffle_error *error) {
    state_call call;
    memset(&call, 0, sizeof call);
    call.action = action;
    raffle_status status = raffle_check_state(state, &call.state, &call.layout, error);
    if (!status && action != STATE_CLEAR) status = TAKE_TOKENS(&call.tokens, tokens);
    if (status) return status;
    raffle_tokens *t = &call.tokens;
    if (action == STATE_CLEAR) t->stream = stream;
    if (t->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_tokens.reserved is not 0");
    if (t->stream && call.state.backend == RAFFLE_CPU)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "stream is set, but the backend is the CPU");
    if (t->rows < 0 || t->rows > call.state.slots)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "rows is %lld: must be 0 to slots, %lld", (long long)t->rows,
                           (long long)call.state.slots);
    if (t->stride < 0) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "stride is %lld: must be 0 or more", (long long)t->stride);
    const int appends = action == STATE_PROMPT || action == STATE_ACCEPT, reads = appends || action == STATE_FORK;
    if (t->first && !appends)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "tokens.first is set: only prompts and accepted tokens have it");
    if (t->first && t->stride)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "stride is %lld: must be 0 where first is set", (long long)t->stride);
    if (!t->stride && !t->first) t->stride = 1;
    if (reads && t->rows && !t->token) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "tokens.token is NULL");
    if (reads) status = raffle_check_stride(t->rows, t->stride, "stride", error);
    if (status) return status;
    if (action == STATE_TRUNCATE && t->rows && !t->count) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "tokens.count is NULL");
    return (call.state.backend == RAFFLE_CUDA ? &raffle_backend_cuda : &raffle_backend_cpu)->change(&call, error);
}

raffle_status raffle_state_clear(const raffle_state *state, struct CUstream_st *stream, raffle_error *error) {
    return change(state, NULL, STATE_CLEAR, stream, error);
}
raffle_status raffle_state_prompt(const raffle_state *state, const raffle_tokens *prompt, raffle_error *error) {
    return change(state, prompt, STATE_PROMPT, NULL, error);
}
raffle_status raffle_state_accept(const raffle_state *state, const raffle_tokens *tokens, raffle_error *error) {
    return change(state, tokens, STATE_ACCEPT, NULL, error);
}
raffle_status raffle_state_truncate(const raffle_state *state, const raffle_tokens *tokens, raffle_error *error) {
    return change(state, tokens, STATE_TRUNCATE, NULL, error);
}
raffle_status raffle_state_reset(const raffle_state *state, const raffle_tokens *slots, raffle_error *error) {
    return change(state, slots, STATE_RESET, NULL, error);
}
raffle_status raffle_state_fork(const raffle_state *state, const raffle_tokens *pairs, raffle_error *error) {
    return change(state, pairs, STATE_FORK, NULL, error);
}

/* ---- lists of ids ---------------------------------------------------------------------------------- */

/* By insertion: lists of a request are short, and mostly sorted already. */
int64_t raffle_ids_sort(int32_t *ids, float *values, int64_t count) {
    int64_t left = 0;
    for (int64_t i = 0; ids && i < count; ++i) { /* in, behind those that are larger */
        int64_t low = 0, high = left;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (ids[middle] < ids[i]) low = middle + 1;
            else high = middle;
        }
        int32_t id = ids[i];
        float value = values ? values[i] : 0.0f;
        int there = low < left && ids[low] == id;
        if (!there) {
            memmove(ids + low + 1, ids + low, (size_t)(left - low) * sizeof *ids);
            if (values) memmove(values + low + 1, values + low, (size_t)(left - low) * sizeof *values);
            ++left;
        }
        ids[low] = id;
        if (values) values[low] = value;
    }
    return left;
}
