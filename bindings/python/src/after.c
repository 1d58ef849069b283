/* after.c - what a draw does to its requests: positions advance, histories go on with the tokens. On their device, and there in
 * the stream of the draw: nothing waits. */
#include "core.h"

/* The histories that go on, or NULL. */
static const raffle_state *after_state(const batch *b, const batch_after *a) {
    if (!b->requests || !(a->what & AFTER_ACCEPT)) return NULL;
    const raffle_state *state = b->plan->desc.backend == RAFFLE_CUDA ? &b->requests->there.state : &b->requests->state;
    return state->memory ? state : NULL;
}

int after_check(const batch *b, const batch_after *a) {
    requests_object *q = b->requests;
    const raffle_state *state = after_state(b, a);
    if (!state) return 0;
    if (!requests_idle(q)) return -1;
    if (state->vocab != b->plan->desc.vocab) { /* the library says so of requests that look at their histories */
        PyErr_Format(PyExc_ValueError, "vocab is %lld: that of the logits is %lld", (long long)state->vocab,
                     (long long)b->plan->desc.vocab);
        return -1;
    }
    if (!b->slot.on_gpu) return requests_accept_check(q, b->slot.data, b->entries, a->draft, a->each);
    if (b->entries <= q->slots) return 0; /* the rest only the GPU knows: it flags what does not fit */
    PyErr_Format(PyExc_ValueError, "%lld rows have %lld slots: no slot may be there twice", (long long)b->entries, (long long)q->slots);
    return -1;
}

/* NULL, or what went wrong. */
static const char *positions_advance(const batch *b, const batch_after *a) {
    uint64_t *position = (uint64_t *)b->params.position;
    if (b->plan->desc.backend == RAFFLE_CUDA)
        return device_advance(b->plan->desc.device, position, b->slots, b->params.slot, a->accepted, b->entries, b->launch.stream);
    for (int64_t row = 0; row < b->entries; ++row) {
        const int64_t slot = b->params.slot ? b->params.slot[row] : row;
        if (slot < 0 || slot >= b->slots) continue; /* another thread may have written there since the check */
        position[slot] += 1 + (uint64_t)(a->accepted ? a->accepted[row] : 0);
    }
    return NULL;
}

int after_run(const batch *b, const batch_after *a) {
    const raffle_state *state = after_state(b, a);
    if (state) {
        raffle_error error = raffle_error_init();
        raffle_tokens t = raffle_tokens_init();
        t.rows = b->entries;
        t.slot = b->params.slot;
        t.token = b->result.token;
        t.stride = 1 + a->each;
        t.stream = b->launch.stream;
        raffle_status status = raffle_state_accept(state, &t, &error);
        if (status) return core_raise(status, &error), -1;
    }
    const char *wrong = a->what & AFTER_ADVANCE ? positions_advance(b, a) : NULL;
    if (wrong) PyErr_SetString(PyExc_RuntimeError, wrong);
    return wrong ? -1 : 0;
}
