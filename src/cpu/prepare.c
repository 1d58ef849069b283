#include "prepare.h"

#include <string.h>

#include "args.h"
#include "edit.h"
#include "extra_rules.h"

/* ---- workspace ------------------------------------------------------------------------------------- */

static int64_t power_from(int64_t least) {
    int64_t power = 16;
    while (power < least) power *= 2;
    return power;
}

size_t edit_carve(edit_scratch *s, const raffle_plan_desc *desc, void *memory) {
    size_t used = 0;
    memset(s, 0, sizeof *s);
    if (!(desc->flags & RAFFLE_PLAN_EXTRA)) return used;
    s->row = raffle_carve(memory, &used, desc->vocab, sizeof *s->row);
    s->draft_row = raffle_carve(memory, &used, desc->vocab, sizeof *s->draft_row);
    s->mask = raffle_carve(memory, &used, (desc->vocab + 31) / 32, sizeof *s->mask);
    if (!desc->history_max) return used;
    s->count_max = desc->history_max + TAIL_MAX;
    s->entry = raffle_carve(memory, &used, s->count_max, sizeof *s->entry);
    s->index = raffle_carve(memory, &used, power_from(2 * s->count_max), sizeof *s->index);
    s->joined = raffle_carve(memory, &used, s->count_max, sizeof *s->joined);
    return used;
}

history raffle_slot_history(const raffle_state *state, const slot_layout *l, int64_t slot) {
    char *memory = (char *)state->memory + slot * l->slot_bytes;
    history h = {(history_head *)(void *)memory,
                 (int32_t *)(void *)(memory + l->token_at),
                 (uint64_t *)(void *)(memory + l->entry_at),
                 (int32_t *)(void *)(memory + l->index_at),
                 (int32_t)state->history_max,
                 (int32_t)l->entry_max,
                 (uint32_t)l->index_count - 1};
    return h;
}

/* ---- what a row looks back at ------------------------------------------------------------------------ */

/* What was said: token[0 .. length-1], the first `prompt` of them the prompt; and each token with its counts. */
typedef struct said {
    const int32_t *token;
    int32_t length, prompt;
    const uint64_t *entry;
    int32_t entries;
} said;

/* An empty table of counts in the workspace, for at most `most` tokens. */
static history table_make(const edit_scratch *s, history_head *head, int64_t most) {
    history h = {head, NULL, s->entry, s->index, 0, (int32_t)s->count_max, (uint32_t)power_from(2 * most) - 1};
    memset(head, 0, sizeof *head);
    history_forget(&h);
    return h;
}

static said said_make(const call *call, int64_t slot, tail tail, const edit_scratch *s) {
    said made = {NULL, 0, 0, NULL, 0};
    if (!call->params.state) return made;
    history h = raffle_slot_history(&call->state, &call->layout, slot);
    made.token = h.token;
    made.length = h.head->length;
    made.prompt = h.head->prompt;
    made.entry = h.entry;
    made.entries = h.head->entries;
    if (tail.count) {
        memcpy(s->joined, h.token, (size_t)made.length * sizeof *s->joined);
        memcpy(s->joined + made.length, tail.token, (size_t)tail.count * sizeof *s->joined);
        made.token = s->joined;
        made.length += tail.count;
    }
    return made;
}

/* The entries of the last `window` tokens (0: all), counted anew where the slot's own do not tell. */
static void said_count(said *all, int32_t window, int tailed, const edit_scratch *s) {
    if (!tailed && (!window || window >= all->length)) return;
    history_head head;
    int32_t first = window && window < all->length ? all->length - window : 0;
    history h = table_make(s, &head, all->length - first);
    for (int32_t i = first; i < all->length; ++i)
        history_count(&h, all->token[i], i < all->prompt ? ENTRY_PROMPT : ENTRY_OUTPUT);
    all->entry = h.entry;
    all->entries = head.entries;
}

/* ---- edits ------------------------------------------------------------------------------------------- */

static void ban(float *x, const int32_t *ids, int32_t count) {
    for (int32_t i = 0; i < count; ++i) x[ids[i]] = MINUS_INF;
}

/* The last token of each sequence whose other tokens end the history. */
static void ban_words(float *x, const raffle_extra *e, const said *h) {
    for (int32_t i = 0; i < e->bad_words_count; ++i)
        if (e->bad_words[i] < 0 && word_ready(e->bad_words, i, h->token, h->length)) x[e->bad_words[i - 1]] = MINUS_INF;
}

/* Whatever followed the last n - 1 tokens when they were said before. */
static void ban_ngrams(float *x, int32_t n, const said *h) {
    for (int32_t i = 0; i <= h->length - n; ++i) /* n tokens fit */
        if (ends_with(h->token, h->length, h->token + i, n - 1)) x[h->token[i + n - 1]] = MINUS_INF;
}

static void penalise(float *x, const raffle_extra *e, const said *h) {
    const penalties p = {e->repetition == 0.0f ? 1.0f : e->repetition, e->frequency, e->presence};
    const int output = (e->flags & RAFFLE_REPETITION_OUTPUT) != 0, prompt = (e->flags & RAFFLE_COUNT_PROMPT) != 0;
    for (int32_t i = 0; i < h->entries; ++i) {
        uint64_t entry = h->entry[i];
        uint32_t said_out = entry_output(entry), said_in = entry_prompt(entry);
        int32_t token = entry_token(entry);
        x[token] = edit_penalise(x[token], &p, said_out || (said_in && !output), said_out + (prompt ? said_in : 0));
    }
}

/* DRY: for each token that would lengthen a repetition, the longest one. */
static void dry(float *x, const raffle_extra *e, const said *h, const edit_scratch *s) {
    const int32_t allowed = e->dry_allowed ? e->dry_allowed : 2;
    const int32_t first = e->dry_range && e->dry_range < h->length ? h->length - e->dry_range : 0;
    const int32_t *token = h->token + first, length = h->length - first;
    const float base = e->dry_base == 0.0f ? 1.75f : e->dry_base;
    if (length < 2 || ids_find(e->breaker, e->breaker_count, token[length - 1]) >= 0) return;
    history_head head;
    history longest = {0};
    for (int32_t i = 0; i + 1 < length; ++i) {
        if (token[i] != token[length - 1]) continue;
        int32_t next = token[i + 1], same = dry_length(token, length, i, e->breaker, e->breaker_count);
        if (same < allowed || ids_find(e->breaker, e->breaker_count, next) >= 0) continue;
        if (!longest.entry) longest = table_make(s, &head, length);
        history_count(&longest, next, 0);
        uint64_t *entry = &longest.entry[longest.index[history_find(&longest, next)]];
        if (entry_output(*entry) < (uint32_t)same) *entry = (uint64_t)next + (uint64_t)same * ENTRY_OUTPUT;
    }
    for (int32_t i = 0; longest.entry && i < head.entries; ++i) {
        int32_t id = entry_token(longest.entry[i]), same = (int32_t)entry_output(longest.entry[i]);
        x[id] = edit_dry(x[id], dry_penalty(e->dry_multiplier, base, same, allowed));
    }
}

/* ---- a row ------------------------------------------------------------------------------------------- */

int raffle_edits(const raffle_extra *e) {
    return e->bias_count || e->banned_count || e->allowed_count || e->bad_words_count || (e->min_tokens && e->stop_count) ||
           e->no_repeat_ngram || e->dry_multiplier != 0.0f || extra_penalises(e);
}

/* The allowed ids as bits, less what the row's own mask forbids. */
static void mask_make(const raffle_extra *e, const uint32_t *allow, int64_t vocab, uint32_t *mask) {
    memset(mask, 0, (size_t)((vocab + 31) / 32) * sizeof *mask);
    for (int32_t i = 0; i < e->allowed_count; ++i) {
        int32_t id = e->allowed[i];
        uint32_t bit = 1u << id % 32;
        mask[id / 32] |= allow ? allow[id / 32] & bit : bit;
    }
}

void raffle_prepare(const call *call, const cpu_table *table, int dtype, int64_t slot, tail tail, const edit_scratch *s,
                    cpu_row *row) {
    const raffle_extra *e = extra_of(&call->params, slot);
    said h = said_make(call, slot, tail, s);
    float *x = s->row;
    if (e->allowed_count) {
        mask_make(e, row->allow, row->params.vocab, s->mask);
        row->allow = s->mask;
    }
    table->copy[dtype](row, x);
    ban(x, e->banned, e->banned_count);
    if (h.length - h.prompt < e->min_tokens) ban(x, e->stop, e->stop_count);
    if (e->bad_words_count) ban_words(x, e, &h);
    if (e->no_repeat_ngram) ban_ngrams(x, e->no_repeat_ngram, &h);
    for (int32_t i = 0; i < e->bias_count; ++i) x[e->bias_id[i]] = edit_bias(x[e->bias_id[i]], e->bias[i]);
    if (extra_penalises(e)) {
        said_count(&h, e->penalty_window, tail.count != 0, s);
        penalise(x, e, &h);
    }
    if (e->dry_multiplier != 0.0f) dry(x, e, &h, s);
    row->logits = (const char *)x;
    row->allow = NULL;
}
