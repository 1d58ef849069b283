/* mixture.h - a batch of rows with random requests, a history for each, and the oracle's answers. */
#ifndef RAFFLE_TESTS_MIXTURE_H
#define RAFFLE_TESTS_MIXTURE_H

#include "batch.h"
#include "pick_extra.h"

enum { HISTORY_MAX = 300 };

/* A state with one slot per row. */
typedef struct pool {
    raffle_state state;
} pool;

static inline pool pool_make(int64_t slots, int64_t vocab) {
    pool p = {raffle_state_init()};
    p.state.slots = slots;
    p.state.history_max = HISTORY_MAX;
    p.state.vocab = vocab;
    p.state.memory = test_alloc(raffle_state_bytes(&p.state));
    memset(p.state.memory, 0xa5, raffle_state_bytes(&p.state));
    CHECK_STATUS(raffle_state_clear(&p.state, NULL, NULL), RAFFLE_OK);
    return p;
}

/* Fills slot i by ways that all must come to the same: prompt, tokens accepted in pieces, drafts taken back. */
static inline void pool_fill(pool *p, int64_t slot, test_random *r, const int32_t *token, int64_t length, int64_t prompt) {
    raffle_tokens t = raffle_tokens_init();
    int32_t at = (int32_t)slot, count = (int32_t)prompt;
    t.rows = 1;
    t.slot = &at;
    t.token = token;
    t.count = &count;
    t.stride = HISTORY_MAX;
    CHECK_STATUS(raffle_state_prompt(&p->state, &t, NULL), RAFFLE_OK);
    for (int64_t done = prompt; done < length;) {
        int32_t drafts[4], taken = (int32_t)random_below(r, 5);
        for (int i = 0; i < 4; ++i) drafts[i] = (int32_t)random_below(r, p->state.vocab);
        if (done + taken <= HISTORY_MAX) {
            t.token = drafts;
            t.stride = 4;
            count = taken;
            CHECK_STATUS(raffle_state_accept(&p->state, &t, NULL), RAFFLE_OK);
            CHECK_STATUS(raffle_state_truncate(&p->state, &t, NULL), RAFFLE_OK);
        }
        count = (int32_t)(1 + random_below(r, length - done));
        t.token = token + done;
        t.stride = count;
        CHECK_STATUS(raffle_state_accept(&p->state, &t, NULL), RAFFLE_OK);
        done += count;
    }
    int64_t told_prompt, told_length;
    const int32_t *told = raffle_state_history(&p->state, slot, &told_prompt, &told_length);
    CHECK(told && told_prompt == prompt && told_length == length && !memcmp(told, token, (size_t)length * 4),
          "the slot has %lld tokens of %lld", (long long)told_length, (long long)length);
}

/* One batch: what is in `b` points into it. */
typedef struct mixture {
    batch b;
    pool p;
    arena lists;
} mixture;

/* Rows of `wish`, some without any; row 0 is `offset` bytes behind an aligned address. The oracle is asked. */
static inline void mixture_make(mixture *m, test_random *r, uint32_t wish, int64_t vocab, int64_t rows, int dtype, int64_t offset) {
    batch *b = &m->b;
    m->p = pool_make(rows, vocab);
    m->lists.count = 0;
    batch_alloc(b, rows, vocab, dtype, random_below(r, 2) ? random_below(r, 70) : 0, offset);
    b->flags = pick_flags(r) | pick_later_flags(r);
    b->extra = calloc((size_t)rows, sizeof *b->extra);
    b->state = &m->p.state;
    for (int64_t i = 0; i < rows; ++i) {
        int32_t token[HISTORY_MAX];
        int64_t length = random_below(r, random_below(r, 3) ? 40 : HISTORY_MAX + 1), prompt = pick_history(r, vocab, token, length);
        b->kind[i] = row_kinds[random_below(r, 3) ? random_below(r, 8) : random_below(r, ROW_KINDS)];
        b->row_seed[i] = random_bits(r) >> 40;
        vector_row_make(b->kind[i], b->row_seed[i], vocab, dtype, b->data + i * b->stride * element_bytes(dtype));
        b->temperature[i] = random_below(r, 3) ? (float)(0.3 + random_unit(r) * 2) : pick_temperature(r);
        b->top_k[i] = random_below(r, 3) ? 0 : pick_top_k(r, vocab);
        b->top_p[i] = random_below(r, 2) ? 1.0f : pick_top_p(r);
        b->min_p[i] = random_below(r, 2) ? 0.0f : pick_min_p(r);
        b->seed[i] = random_bits(r);
        b->position[i] = random_bits(r) >> random_below(r, 64);
        pool_fill(&m->p, i, r, token, length, prompt);
        if (!random_below(r, 8)) continue;
        b->extra[i] = pick_extra(r, &m->lists, wish, vocab, token, length, length - prompt);
        b->extra[i].flags |= pick_later_extra(r, wish);
    }
    if (random_below(r, 5) == 0) {
        batch_allow(b, r);
    } else if (random_below(r, 4) == 0) {
        b->allow = malloc((size_t)(rows * b->words) * 4);
        for (int64_t i = 0; i < rows; ++i) vector_allow_make(random_bits(r) >> 40, vocab, b->allow + i * b->words);
    }
    batch_ask_oracle(b);
}

static inline void mixture_free(mixture *m) {
    free(m->b.extra);
    free(m->p.state.memory);
    batch_free(&m->b);
    arena_free(&m->lists);
}

/* Features of a mixture: all of them or few. */
static inline uint32_t some_wishes(test_random *r) {
    uint32_t wish = (uint32_t)random_bits(r) & PICK_ALL;
    return random_below(r, 3) ? wish & (uint32_t)random_bits(r) : wish;
}

#endif
