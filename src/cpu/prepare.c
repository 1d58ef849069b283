#include "prepare.h"

#include <string.h>

#include "args.h"
#include "edit.h"
#include "extra_rules.h"
#include "half.h"

/* ---- workspace ------------------------------------------------------------------------------------- */

enum { EDIT_SHARE = 128 }; /* a patch is for rows of which at most one token in so many is edited */

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
    const int64_t groups = (desc->vocab + CPU_GROUP - 1) / CPU_GROUP;
    s->head = raffle_carve(memory, &used, groups, sizeof *s->head);
    s->made = raffle_carve(memory, &used, groups, sizeof *s->made);
    s->edit_max = desc->vocab / EDIT_SHARE;
    s->edit = raffle_carve(memory, &used, s->edit_max + 1, sizeof *s->edit); /* one more, for what has no room */
    if (!desc->history_max) return used;
    s->count_max = desc->history_max + TAIL_MAX;
    s->entry = raffle_carve(memory, &used, s->count_max, sizeof *s->entry);
    s->said_next = raffle_carve(memory, &used, s->count_max, sizeof *s->said_next);
    s->said_head = raffle_carve(memory, &used, groups, sizeof *s->said_head);
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

raffle_status raffle_check_history(const raffle_state *state, const slot_layout *l, int64_t slot, int64_t row, const char *what,
                                   raffle_error *error) {
    const history h = raffle_slot_history(state, l, slot);
    const int zeros = !h.head->entries && h.index[0] != INDEX_FREE; /* memory of zero bytes looks empty, but for its index */
    if (history_sound(h.head, h.token_max, h.entry_max) && !zeros) return RAFFLE_OK;
    return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "slot %lld of %s %lld was never cleared, or written over", (long long)slot, what,
                       (long long)row);
}

raffle_status raffle_check_histories(const call *call, const char *what, raffle_error *error) {
    const raffle_params *p = &call->params;
    raffle_status status = RAFFLE_OK;
    for (int64_t row = call->row_first; !status && p->extra && p->state && row < call->row_end; ++row) {
        const int64_t slot = slot_of(p, row);
        if (extra_history_user(&p->extra[slot])) status = raffle_check_history(&call->state, &call->layout, slot, row, what, error);
    }
    return status;
}

raffle_status raffle_check_cpu_rows(const call *call, raffle_error *error) {
    const raffle_status status = raffle_check_call_rows(call, error);
    return status ? status : raffle_check_histories(call, "row", error);
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
    if (!call->params.state || !extra_history_user(&call->params.extra[slot])) return made;
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

/* The entries of the last `window` tokens (0: all), counted anew if asked for, or where the slot's own do not tell. */
static void said_count(said *all, int32_t window, int anew, const edit_scratch *s) {
    if (!anew && (!window || window >= all->length)) return;
    history_head head;
    int32_t first = window && window < all->length ? all->length - window : 0;
    history h = table_make(s, &head, all->length - first);
    for (int32_t i = first; i < all->length; ++i)
        history_count(&h, all->token[i], i < all->prompt ? ENTRY_PROMPT : ENTRY_OUTPUT);
    all->entry = h.entry;
    all->entries = head.entries;
}

/* ---- edits ------------------------------------------------------------------------------------------- */

/* Where the logits to edit are: a whole row, or a patch. */
typedef struct editor {
    float *x;         /* [vocab], or NULL */
    cpu_patch *patch;
} editor;

static inline int bit_of(const uint32_t *bits, int32_t id) { return bits[(uint32_t)id / 32] >> (uint32_t)id % 32 & 1; }

/* A token of the caller's row. */
static inline float logit_at(const char *logits, int dtype, int32_t id) {
    uint16_t half;
    float x;
    if (dtype == RAFFLE_F32) {
        memcpy(&x, logits + (int64_t)id * 4, sizeof x);
        return x;
    }
    memcpy(&half, logits + (int64_t)id * 2, sizeof half);
    return dtype == RAFFLE_F16 ? float_of_f16(half) : float_of_bf16(half);
}

/* A token's logit in a patch, to be edited. Where there is no room left, it goes behind the others: count tells. Chains begin with the
 * largest id, so that those of a sorted list are added at their beginning. */
static inline float *patch_at(cpu_patch *p, int32_t id) {
    int32_t *link = &p->head[(uint32_t)id / CPU_GROUP];
    while (*link >= 0 && p->edit[*link].id > id) link = &p->edit[*link].next;
    if (*link >= 0 && p->edit[*link].id == id) return &p->edit[*link].x;
    if (p->count >= p->room) return p->count = p->room + 1, &p->edit[p->room].x;
    cpu_edit *e = &p->edit[p->count];
    const int masked = p->from.allow && !bit_of(p->from.allow, id);
    e->x = masked ? MINUS_INF : logit_at(p->from.logits, p->dtype, id);
    e->id = id;
    e->next = *link;
    *link = (int32_t)p->count++;
    return &e->x;
}

static inline float *at(const editor *d, int32_t id) { return d->x ? d->x + id : patch_at(d->patch, id); }

static void ban(const editor *d, const int32_t *ids, int32_t count) {
    for (int32_t i = 0; i < count; ++i) *at(d, ids[i]) = MINUS_INF;
}

/* The last token of each sequence whose other tokens end the history, or the output. */
static void ban_words(const editor *d, const raffle_extra *e, const said *h) {
    const int32_t first = e->flags & RAFFLE_BAD_WORDS_OUTPUT ? h->prompt : 0;
    for (int32_t i = 0; i < e->bad_words_count; ++i)
        if (e->bad_words[i] < 0 && word_ready(e->bad_words, i, h->token + first, h->length - first))
            *at(d, e->bad_words[i - 1]) = MINUS_INF;
}

/* Whatever followed the last n - 1 tokens when they were said before. */
static void ban_ngrams(const editor *d, int32_t n, const said *h) {
    for (int32_t i = 0; i <= h->length - n; ++i) /* n tokens fit */
        if (ends_with(h->token, h->length, h->token + i, n - 1)) *at(d, h->token[i + n - 1]) = MINUS_INF;
}

static penalising penalising_make(const raffle_extra *e) {
    const penalising p = {{e->repetition == 0.0f ? 1.0f : e->repetition, e->frequency, e->presence},
                          (e->flags & RAFFLE_REPETITION_OUTPUT) != 0, (e->flags & RAFFLE_COUNT_PROMPT) != 0};
    return p;
}

static inline float penalised_by(const penalising *p, uint64_t entry, float x) {
    const uint32_t out = entry_output(entry), in = entry_prompt(entry);
    return edit_penalise(x, &p->by, out || (in && !p->output), out + (p->prompt ? in : 0));
}

static void penalise(const editor *d, const penalising *p, const said *h) {
    for (int32_t i = 0; i < h->entries; ++i) {
        float *x = at(d, entry_token(h->entry[i]));
        *x = penalised_by(p, h->entry[i], *x);
    }
}

/* The same for a group of a patch; returns whether one of them was the largest. */
static int penalise_group(const cpu_patch *p, int64_t g) {
    const said_chains *c = p->said;
    const float peak = p->peak[g];
    int largest = 0;
    for (int32_t i = c->head[g]; i >= 0; i = c->next[i]) {
        float *x = &p->to[entry_token(c->entry[i])];
        largest |= *x >= peak;
        *x = penalised_by(&c->by, c->entry[i], *x);
    }
    return largest;
}

/* DRY: for each token that would lengthen a repetition, the longest one. */
static void dry(const editor *d, const raffle_extra *e, const said *h, const edit_scratch *s) {
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
        float *x = at(d, id);
        *x = edit_dry(*x, dry_penalty(e->dry_multiplier, base, same, allowed));
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

/* The edits of a row: before, */
static void edit_first(const editor *d, const raffle_extra *e, const said *h) {
    ban(d, e->banned, e->banned_count);
    if (h->length - h->prompt < e->min_tokens) ban(d, e->stop, e->stop_count);
    if (e->bad_words_count) ban_words(d, e, h);
    if (e->no_repeat_ngram) ban_ngrams(d, e->no_repeat_ngram, h);
    for (int32_t i = 0; i < e->bias_count; ++i) {
        float *x = at(d, e->bias_id[i]);
        *x = edit_bias(*x, e->bias[i]);
    }
}

void raffle_prepare(const call *call, const cpu_table *table, int dtype, int64_t slot, tail tail, const edit_scratch *s,
                    cpu_row *row) {
    const raffle_extra *e = extra_of(&call->params, slot);
    const editor whole = {s->row, NULL};
    said h = said_make(call, slot, tail, s);
    if (e->allowed_count) {
        mask_make(e, row->allow, row->params.vocab, s->mask);
        row->allow = s->mask;
    }
    table->copy[dtype](row, s->row);
    edit_first(&whole, e, &h);
    if (extra_penalises(e)) { /* and after */
        const penalising p = penalising_make(e);
        said_count(&h, e->penalty_window, tail.count != 0, s);
        penalise(&whole, &p, &h);
    }
    if (e->dry_multiplier != 0.0f) dry(&whole, e, &h, s);
    row->logits = (const char *)s->row;
    row->allow = NULL;
}

/* ---- a row with a patch -------------------------------------------------------------------------------- */

/* The largest logits of the groups were those of the row before its edits: none may be less than an edited one. */
static void patch_peaks(const cpu_patch *p, float *peak) {
    for (int64_t n = 0; n < p->count; ++n) {
        const uint32_t g = (uint32_t)p->edit[n].id / CPU_GROUP;
        if (p->edit[n].x > peak[g]) peak[g] = p->edit[n].x;
    }
}

/* Penalties that raise no logit wait until their group is made. */
static void patch_penalties(cpu_patch *p, said_chains *chains, const said *h, const edit_scratch *scratch, int64_t groups) {
    const int32_t entries = h->entries;
    const uint64_t *const entry = h->entry;
    int32_t *const head = scratch->said_head, *const next = scratch->said_next;
    memset(head, 0xff, (size_t)groups * sizeof *head);
    for (int32_t i = 0; i < entries; ++i) {
        const uint32_t g = (uint32_t)entry_token(entry[i]) / CPU_GROUP;
        next[i] = head[g];
        head[g] = i;
    }
    chains->entry = entry;
    chains->head = head;
    chains->next = next;
    p->said = chains;
    p->finish = penalise_group;
}

static int only_lowers(const penalties *p) { return p->repetition >= 1.0f && p->frequency >= 0.0f && p->presence >= 0.0f; }

int raffle_prepare_patch(const call *call, const cpu_table *table, int dtype, int64_t slot, const edit_scratch *s,
                         const cpu_scratch *peaks, cpu_patch *patch, said_chains *chains, cpu_row *row) {
    const raffle_extra *e = extra_of(&call->params, slot);
    const editor part = {NULL, patch};
    const int penalises = extra_penalises(e);
    said h = said_make(call, slot, no_tail, s);
    int nan = 0;
    chains->by = penalising_make(e);
    if (penalises && !only_lowers(&chains->by.by)) return 0;
    if (e->dry_multiplier != 0.0f || e->bias_count + e->banned_count > s->edit_max || !table->reads_few(row)) return 0;
    const cpu_patch made = {.from = *row, .dtype = dtype, .to = s->row, .made = s->made, .peak = peaks->peak, .head = s->head,
                            .edit = s->edit, .room = s->edit_max, .make = table->make[dtype]};
    *patch = made;
    if (e->allowed_count) {
        mask_make(e, row->allow, row->params.vocab, s->mask);
        patch->from.allow = s->mask;
    }
    table->scan[dtype](&patch->from, peaks, &nan);
    if (nan) return 0; /* an edit may hide it */
    memset(s->head, 0xff, (size_t)peaks->groups * sizeof *s->head);
    memset(s->made, 0, (size_t)peaks->groups * sizeof *s->made);
    edit_first(&part, e, &h);
    if (patch->count > patch->room) return 0;
    row->logits = (const char *)s->row;
    row->allow = NULL;
    row->patch = patch;
    patch_peaks(patch, peaks->peak);
    if (penalises) {
        said_count(&h, e->penalty_window, h.entries > s->count_max, s); /* a slot keeps more, of tokens that were taken back */
        patch_penalties(patch, chains, &h, s, peaks->groups);
    }
    return 1;
}
