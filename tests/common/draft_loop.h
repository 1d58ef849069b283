/* draft_loop.h - the steps of a draft model at random, and what raffle_sample and copies by hand keep of them: what raffle_draft must. */
#ifndef RAFFLE_TESTS_DRAFT_LOOP_H
#define RAFFLE_TESTS_DRAFT_LOOP_H

#include "batch.h"
#include "pick.h"

enum { LOOP_REQUESTS = 9, LOOP_EACH = 5, LOOP_DRAFTS = LOOP_REQUESTS * LOOP_EACH, LOOP_TARGETS = LOOP_DRAFTS + LOOP_REQUESTS };

/* Rows somewhere in memory that has something before, between and behind them. All in elements but bytes. */
typedef struct row_field {
    int64_t rows, stride, first; /* first: where row 0 begins */
    size_t bytes;                /* of all */
} row_field;

typedef struct draft_loop {
    int64_t vocab, requests, each;
    row_field from, to;         /* a step's logits, and what is kept of all */
    int shared;                 /* requests share rows, by index[]; slots are in another order */
    int tokens_alone;           /* rows are not kept */
    char *step[LOOP_EACH];      /* a step's logits, as the draft model would write them over each other */
    char *target;               /* [requests, each + 1, vocab]: what was drawn from, and one row more */
    batch draft;                /* parameters alone, by slot; and the dtype */
    int32_t index[LOOP_REQUESTS], slot[LOOP_REQUESTS];
    /* wanted */
    int32_t drawn[LOOP_EACH][LOOP_REQUESTS], token[LOOP_DRAFTS];
    uint32_t row_flags[LOOP_EACH][LOOP_REQUESTS];
    char *kept;
} draft_loop;

static inline char *field_row(const row_field *f, char *memory, int dtype, int64_t row) {
    return memory + (f->first + row * f->stride) * element_bytes(dtype);
}

/* Strides of either sign, rows at any place that their type allows. Rows of logits may overlap each other. */
static inline row_field field_pick(test_random *r, int64_t rows, int64_t vocab, int dtype, int may_overlap) {
    static const int64_t some[] = {0, 0, 1, 3, 8, 13};
    row_field f = {rows, vocab + some[random_below(r, 6)], 8 + random_below(r, 9), 0};
    if (may_overlap && !random_below(r, 6)) f.stride = 1 + random_below(r, vocab);
    f.bytes = (size_t)((rows * f.stride + vocab + f.first + 16) * element_bytes(dtype));
    if (!random_below(r, 3)) f.first += (rows - 1) * f.stride, f.stride = -f.stride;
    return f;
}

static inline raffle_params loop_params(const draft_loop *l, uint32_t step) {
    raffle_params p = batch_params(&l->draft);
    p.slots = l->requests;
    p.slot = l->shared ? l->slot : NULL;
    p.draft_step = step;
    return p;
}
static inline raffle_logits loop_logits(const draft_loop *l, char *memory) {
    raffle_logits logits = raffle_logits_init();
    logits.data = field_row(&l->from, memory, l->draft.dtype, 0);
    logits.rows = l->requests;
    logits.row_stride = l->from.stride;
    logits.row_index = l->shared ? l->index : NULL;
    logits.data_rows = l->shared ? l->from.rows : 0;
    return logits;
}
/* token: [requests, each]; memory: l->to.bytes. */
static inline raffle_drafted loop_drafted(const draft_loop *l, int32_t *token, char *memory) {
    raffle_drafted d = raffle_drafted_init();
    d.each = l->each;
    d.token = token;
    if (!l->tokens_alone) d.logits = field_row(&l->to, memory, l->draft.dtype, 0);
    d.row_stride = l->to.stride;
    return d;
}

/* What a step draws, and a copy of what it drew from. */
static inline void loop_by_hand(draft_loop *l, runner run, uint32_t step) {
    const int64_t bytes = l->vocab * element_bytes(l->draft.dtype);
    const raffle_params params = loop_params(l, step);
    const raffle_logits logits = loop_logits(l, l->step[step - 1]);
    raffle_result result = raffle_result_init();
    result.token = l->drawn[step - 1];
    result.row_flags = l->row_flags[step - 1];
    if (raffle_sample(run.plan, &logits, &params, &result, &run.launch, NULL)) abort();
    for (int64_t i = 0; i < l->requests; ++i) {
        const int64_t entry = i * l->each + step - 1;
        const char *row = field_row(&l->from, l->step[step - 1], l->draft.dtype, l->shared ? l->index[i] : i);
        l->token[entry] = l->drawn[step - 1][i];
        if (!l->tokens_alone) memcpy(field_row(&l->to, l->kept, l->draft.dtype, entry), row, (size_t)bytes);
        memcpy(l->target + (i * (l->each + 1) + step - 1) * bytes, row, (size_t)bytes);
    }
}

/* Other logits, seeds and positions in the same places; then what is wanted. */
static inline void loop_fill(draft_loop *l, test_random *r) {
    const int dtype = l->draft.dtype;
    for (int64_t i = 0; i < l->requests; ++i) l->draft.seed[i] = random_bits(r), l->draft.position[i] = random_bits(r);
    for (int64_t n = 0; n < l->each; ++n)
        for (int64_t i = 0; i < l->from.rows; ++i) {
            const char *kind = row_kinds[random_below(r, 3) ? 0 : random_below(r, ROW_KINDS)];
            vector_row_make(kind, (uint64_t)random_below(r, 1000), l->vocab, dtype, field_row(&l->from, l->step[n], dtype, i));
        }
    runner run = runner_make(dtype, l->vocab, RAFFLE_ISA_BEST);
    memset(l->kept, GUARD, l->to.bytes);
    for (int64_t n = 1; n <= l->each; ++n) loop_by_hand(l, run, (uint32_t)n);
    runner_free(run);
    for (int64_t i = 0; i < l->requests; ++i)
        vector_row_make("normal", (uint64_t)i, l->vocab, dtype,
                        l->target + (i * (l->each + 1) + l->each) * l->vocab * element_bytes(dtype));
}

static inline draft_loop *loop_make(test_random *r, int64_t vocab_max) {
    draft_loop *l = calloc(1, sizeof *l);
    const int dtype = (int)random_below(r, 3);
    l->draft.dtype = dtype;
    l->vocab = l->draft.vocab = 1 + random_below(r, random_below(r, 3) ? vocab_max : 20);
    l->requests = l->draft.rows = 1 + random_below(r, LOOP_REQUESTS);
    l->each = 1 + random_below(r, LOOP_EACH);
    l->shared = !random_below(r, 3);
    l->tokens_alone = !random_below(r, 6);
    l->from = field_pick(r, l->shared ? 1 + random_below(r, 4) : l->requests, l->vocab, dtype, 1);
    l->to = field_pick(r, l->requests * l->each, l->vocab, dtype, 0);
    for (int64_t i = 0; i < l->requests; ++i) {
        const int plain = random_below(r, 2) > 0;
        l->draft.temperature[i] = plain ? 0.8f : pick_temperature(r);
        l->draft.top_k[i] = plain ? 0 : pick_top_k(r, l->vocab);
        l->draft.top_p[i] = plain ? 0.95f : pick_top_p(r);
        l->draft.min_p[i] = plain ? 0.0f : pick_min_p(r);
        l->index[i] = (int32_t)random_below(r, l->from.rows);
        l->slot[i] = (int32_t)(l->requests - 1 - i);
    }
    l->draft.flags = pick_flags(r);
    for (int64_t n = 0; n < l->each; ++n) {
        l->step[n] = test_alloc(l->from.bytes);
        memset(l->step[n], 0x7f, l->from.bytes);
    }
    l->target = test_alloc((size_t)(l->requests * (l->each + 1) * l->vocab * element_bytes(dtype)));
    l->kept = test_alloc(l->to.bytes);
    loop_fill(l, r);
    return l;
}
static inline void loop_free(draft_loop *l) {
    for (int64_t n = 0; n < l->each; ++n) free(l->step[n]);
    free(l->target);
    free(l->kept);
    free(l);
}

/* ---- the drafts are verified against the rows that they were drawn from ---- */

typedef struct loop_verdict {
    int32_t token[LOOP_TARGETS], path[LOOP_TARGETS], accepted[LOOP_REQUESTS];
    uint32_t row_flags[LOOP_TARGETS];
} loop_verdict;

/* Token and logits as they were kept; the parameters are those of the drafts, wherever these live. */
static inline raffle_status loop_verify(const draft_loop *l, const raffle_plan *plan, const raffle_launch *launch,
                                        const raffle_params *params, const void *target, const raffle_drafted *kept, loop_verdict *out,
                                        raffle_error *error) {
    raffle_logits logits = raffle_logits_init(), draft_logits = logits;
    raffle_params by = *params;
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    by.draft_step = 0;
    logits.data = target;
    logits.rows = l->requests * (l->each + 1);
    draft_logits.data = kept->logits;
    draft_logits.rows = l->requests * l->each;
    draft_logits.row_stride = kept->row_stride;
    drafts.method = l->tokens_alone ? RAFFLE_MATCH : l->each % 2 ? RAFFLE_REJECTION : RAFFLE_BLOCK;
    drafts.requests = l->requests;
    drafts.each = l->each;
    drafts.token = kept->token;
    if (!l->tokens_alone) drafts.logits = &draft_logits, drafts.params = &by;
    verified.token = out->token, verified.path = out->path, verified.accepted = out->accepted, verified.row_flags = out->row_flags;
    return raffle_verify(plan, &logits, &by, &drafts, &verified, launch, error);
}

/* Two equal laws: a draft that was drawn is accepted. If rows are where they belong, all are, up to one that has none. */
static inline void loop_verdict_check(const draft_loop *l, const loop_verdict *v) {
    for (int64_t i = 0; !l->tokens_alone && i < l->requests; ++i) {
        int64_t count = 0;
        while (count < l->each && !(l->row_flags[count][i] & RAFFLE_ROW_EMPTY)) ++count;
        CHECK_EQ(v->accepted[i], count);
        for (int64_t n = 0; n < count; ++n) CHECK_EQ(v->token[i * (l->each + 1) + n], l->drawn[n][i]);
    }
}

#endif
