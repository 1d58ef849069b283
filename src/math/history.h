/* history.h - a slot of a raffle_state: the tokens of a request in order, and how often each is among them. For one
 * thread; src/core/state.c knows where the parts of a slot are, raffle.h draws them. */
#ifndef RAFFLE_MATH_HISTORY_H
#define RAFFLE_MATH_HISTORY_H

#include "scalar.h"

enum { HISTORY_LOST = 1 }; /* a flag of a slot: a GPU could not do what a call asked of it, so tokens are missing or too many */
enum { ENTRY_BITS = 21, INDEX_FREE = -1 };

typedef struct history_head {
    int32_t length, prompt, entries;
    uint32_t flags;
    int32_t unused[12];
} history_head;

typedef struct history {
    history_head *head;
    int32_t *token;  /* [token_max] oldest first */
    uint64_t *entry; /* [entry_max] each token that is there, or was, once */
    int32_t *index;  /* [index_mask + 1] number of an entry, or INDEX_FREE; open addressing */
    int32_t token_max, entry_max;
    uint32_t index_mask;
} history;

/* Whether lengths are such as calls leave: memory that was never cleared may hold anything. */
RAFFLE_FN int history_sound(const history_head *head, int32_t token_max, int32_t entry_max) {
    return head->prompt >= 0 && head->prompt <= head->length && head->length <= token_max && head->entries >= 0 &&
           head->entries <= entry_max;
}

/* An entry: token | times in the output << 21 | times in the prompt << 42. */
#define ENTRY_OUTPUT ((uint64_t)1 << ENTRY_BITS)
#define ENTRY_PROMPT ((uint64_t)1 << 2 * ENTRY_BITS)
RAFFLE_FN int32_t entry_token(uint64_t e) { return (int32_t)(e & (ENTRY_OUTPUT - 1)); }
RAFFLE_FN uint32_t entry_output(uint64_t e) { return (uint32_t)(e >> ENTRY_BITS) & (uint32_t)(ENTRY_OUTPUT - 1); }
RAFFLE_FN uint32_t entry_prompt(uint64_t e) { return (uint32_t)(e >> 2 * ENTRY_BITS); }

RAFFLE_FN uint32_t history_place(const history *h, int32_t token) {
    uint32_t mixed = (uint32_t)token * 0x9E3779B1u;
    return (mixed ^ mixed >> 15) & h->index_mask;
}

/* Where the index has a token, or the free place where it would have it. */
RAFFLE_FN uint32_t history_find(const history *h, int32_t token) {
    uint32_t at = history_place(h, token);
    while (h->index[at] != INDEX_FREE && entry_token(h->entry[h->index[at]]) != token) at = (at + 1) & h->index_mask;
    return at;
}

RAFFLE_FN void history_forget(const history *h) {
    for (uint32_t i = 0; i <= h->index_mask; ++i) h->index[i] = INDEX_FREE;
    h->head->entries = 0;
}

/* Counts one more token, in the output or in the prompt. There must be room for its entry. */
RAFFLE_FN void history_count(const history *h, int32_t token, uint64_t once) {
    uint32_t at = history_find(h, token);
    if (h->index[at] == INDEX_FREE) {
        h->index[at] = h->head->entries;
        h->entry[h->head->entries++] = (uint64_t)token;
    }
    h->entry[h->index[at]] += once;
}

/* Counts everything again: tokens that were taken back leave entries of nothing behind. */
RAFFLE_FN void history_recount(const history *h) {
    history_forget(h);
    for (int32_t i = 0; i < h->head->length; ++i)
        history_count(h, h->token[i], i < h->head->prompt ? ENTRY_PROMPT : ENTRY_OUTPUT);
}

/* Appends a token to the output. There must be room for it. */
RAFFLE_FN void history_accept(const history *h, int32_t token) {
    if (h->head->entries == h->entry_max && h->index[history_find(h, token)] == INDEX_FREE) history_recount(h);
    h->token[h->head->length++] = token;
    history_count(h, token, ENTRY_OUTPUT);
}

/* Takes the last tokens of the output back. */
RAFFLE_FN void history_truncate(const history *h, int32_t count) {
    for (; count > 0 && h->head->length > h->head->prompt; --count) {
        int32_t token = h->token[--h->head->length];
        h->entry[h->index[history_find(h, token)]] -= ENTRY_OUTPUT;
    }
}

#endif
