/* slots.c - raffle_state in host memory. */
#include <string.h>

#include "args.h"
#include "prepare.h"

static int64_t slot_at(const state_call *c, int64_t row) { return c->tokens.slot ? c->tokens.slot[row] : row; }
/* A row's tokens, and how many there is room for. */
static const int32_t *tokens_at(const state_call *c, int64_t row) {
    return c->tokens.token + (c->tokens.first ? c->tokens.first[row] : row * c->tokens.stride);
}
static int64_t room_at(const state_call *c, int64_t row) {
    return c->tokens.first ? (int64_t)c->tokens.first[row + 1] - c->tokens.first[row] : c->tokens.stride;
}
static int64_t count_at(const state_call *c, int64_t row) {
    if (c->action == STATE_RESET || c->action == STATE_FORK) return 1;
    return c->tokens.count ? c->tokens.count[row] : room_at(c, row);
}
static history slot_history(const state_call *c, int64_t slot) { return raffle_slot_history(&c->state, &c->layout, slot); }

/* Tokens of a row of STATE_ACCEPT before the RAFFLE_NO_TOKEN that may end them. */
static int64_t row_length(const state_call *c, int64_t row) {
    const int32_t *token = tokens_at(c, row);
    int64_t count = count_at(c, row), n = 0;
    while (n < count && (c->action != STATE_ACCEPT || token[n] != RAFFLE_NO_TOKEN)) ++n;
    return n;
}

static raffle_status check_slot(const state_call *c, int64_t row, int64_t slot, raffle_error *error) {
    if (slot >= 0 && slot < c->state.slots) return RAFFLE_OK;
    return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "slot of row %lld is %lld: must be 0 to %lld", (long long)row,
                       (long long)slot, (long long)c->state.slots - 1);
}

static raffle_status check_tokens(const state_call *c, int64_t row, raffle_error *error) {
    const int32_t *token = tokens_at(c, row);
    int64_t length = row_length(c, row), room = c->state.history_max;
    if (c->action == STATE_ACCEPT) room -= slot_history(c, slot_at(c, row)).head->length;
    for (int64_t i = 0; i < length; ++i) {
        int32_t id = token[i];
        if (id < 0 || id >= c->state.vocab)
            return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "token %lld of row %lld is %d: must be 0 to %lld", (long long)i,
                               (long long)row, id, (long long)c->state.vocab - 1);
    }
    if (length > room)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "row %lld has %lld tokens: its history has room for %lld",
                           (long long)row, (long long)length, (long long)room);
    return RAFFLE_OK;
}

static raffle_status check_row(const state_call *c, int64_t row, raffle_error *error) {
    raffle_status status = check_slot(c, row, slot_at(c, row), error);
    if (status) return status;
    const int32_t to = c->action == STATE_FORK ? tokens_at(c, row)[0] : 0;
    if (to < 0 || to >= c->state.slots)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "token of row %lld is %d: must be a slot, 0 to %lld", (long long)row, to,
                           (long long)c->state.slots - 1);
    const int made_anew = c->action == STATE_PROMPT || c->action == STATE_RESET;
    if (!made_anew) status = raffle_check_history(&c->state, &c->layout, slot_at(c, row), row, "row", error);
    if (status) return status;
    int reads = c->action == STATE_PROMPT || c->action == STATE_ACCEPT;
    const int32_t *first = c->tokens.first;
    if (first && (first[row] < 0 || first[row + 1] < first[row]))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "first of row %lld is %d, and %d behind it: must be 0 or more, and not fall",
                           (long long)row, first[row], first[row + 1]);
    int64_t count = count_at(c, row);
    if (reads && (count < 0 || count > room_at(c, row)))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "count of row %lld is %lld: must be 0 to %lld", (long long)row,
                           (long long)count, (long long)room_at(c, row));
    if (count < 0)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "count of row %lld is %lld: must be 0 or more", (long long)row, (long long)count);
    if (c->action == STATE_TRUNCATE) {
        history h = slot_history(c, slot_at(c, row));
        if (count > h.head->length - h.head->prompt)
            return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "count of row %lld is %lld: the output has %d tokens",
                               (long long)row, (long long)count, h.head->length - h.head->prompt);
    }
    return reads ? check_tokens(c, row, error) : RAFFLE_OK;
}

/* The slot that a row changes. */
static int64_t changed_at(const state_call *c, int64_t row) {
    return c->action == STATE_FORK ? tokens_at(c, row)[0] : slot_at(c, row);
}

/* No slot is changed twice, nor copied and changed. Slots are marked for a moment, all of which are in range. */
static raffle_status check_apart(const state_call *c, raffle_error *error) {
    enum { MARK = 1 << 30 };
    int64_t marked = 0, row = 0, twice = -1;
    for (; marked < c->tokens.rows; ++marked) {
        history_head *head = slot_history(c, changed_at(c, marked)).head;
        if (head->flags & MARK) break;
        head->flags |= MARK;
    }
    if (marked < c->tokens.rows) row = marked, twice = changed_at(c, marked);
    for (int64_t i = 0; c->action == STATE_FORK && twice < 0 && i < c->tokens.rows; ++i)
        if (slot_history(c, slot_at(c, i)).head->flags & MARK) row = i, twice = slot_at(c, i);
    while (marked > 0) slot_history(c, changed_at(c, --marked)).head->flags &= ~(uint32_t)MARK;
    if (twice < 0) return RAFFLE_OK;
    return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "slot %lld of row %lld is in the call twice", (long long)twice, (long long)row);
}

static void reset(const history *h) {
    memset(h->head, 0, sizeof *h->head);
    history_forget(h);
}

static void fork(const history *from, const history *to) {
    *to->head = *from->head;
    memcpy(to->token, from->token, (size_t)from->head->length * sizeof *to->token);
    memcpy(to->entry, from->entry, (size_t)from->head->entries * sizeof *to->entry);
    memcpy(to->index, from->index, ((size_t)from->index_mask + 1) * sizeof *to->index);
}

static void change_row(const state_call *c, int64_t row) {
    const int32_t *token = c->tokens.token ? tokens_at(c, row) : NULL;
    history h = slot_history(c, slot_at(c, row));
    if (c->action == STATE_RESET || c->action == STATE_PROMPT) reset(&h);
    if (c->action == STATE_FORK) {
        history to = slot_history(c, token[0]);
        fork(&h, &to);
    } else if (c->action == STATE_TRUNCATE) {
        history_truncate(&h, (int32_t)count_at(c, row));
    } else if (c->action == STATE_ACCEPT) {
        for (int64_t i = 0, length = row_length(c, row); i < length; ++i) history_accept(&h, token[i]);
    } else if (c->action == STATE_PROMPT) {
        h.head->length = h.head->prompt = (int32_t)row_length(c, row);
        memcpy(h.token, token, (size_t)h.head->length * sizeof *token);
        history_recount(&h);
    }
}

raffle_status raffle_cpu_change(const state_call *c, raffle_error *error) {
    raffle_status status = RAFFLE_OK;
    for (int64_t slot = 0; c->action == STATE_CLEAR && slot < c->state.slots; ++slot) {
        history h = slot_history(c, slot);
        reset(&h);
    }
    for (int64_t row = 0; !status && row < c->tokens.rows; ++row) status = check_row(c, row, error);
    if (!status) status = check_apart(c, error);
    for (int64_t row = 0; !status && row < c->tokens.rows; ++row) {
        change_row(c, row);
        if (c->tokens.row_flags) c->tokens.row_flags[row] = 0;
    }
    return status;
}
