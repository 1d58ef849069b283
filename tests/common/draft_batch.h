/* draft_batch.h - ragged batches of requests with drafts, at random, and the oracle's answers to them. */
#ifndef RAFFLE_TESTS_DRAFT_BATCH_H
#define RAFFLE_TESTS_DRAFT_BATCH_H

#include "../oracle/verify_oracle.h"
#include "batch.h"
#include "pick.h"
#include "pick_extra.h"

enum { REQUESTS_MAX = 12, DRAFT_HISTORY = 60 };
typedef enum draft_kind { DRAFT_TOKENS, DRAFT_LOGITS, DRAFT_PROBABILITIES, DRAFT_TREE } draft_kind;
static const char *const draft_kinds[] = {"tokens", "logits", "probabilities", "tree"};
static const char *const method_names[] = {"rejection", "block", "match", "synthetic"};

/* Request r's parameters are entry r of target and draft; rows are rows. With extras, both have one history. */
typedef struct draft_batch {
    batch target, draft;
    draft_kind kind;
    int32_t method;
    int64_t requests;
    int32_t first[REQUESTS_MAX + 1], token[BATCH_ROWS_MAX], parent[BATCH_ROWS_MAX];
    float *probabilities; /* [drafts, vocab] */
    float threshold_single, threshold_sum, rate;
    int accept_given, recover_given, draw_given; /* random bits that are handed in, where the method uses them */
    uint64_t accept_bits[BATCH_ROWS_MAX], recover_bits[2 * REQUESTS_MAX], draw_bits[2 * BATCH_ROWS_MAX];
    raffle_state state; /* memory NULL: no extras */
    arena lists;
    verify_answer wanted[REQUESTS_MAX];
} draft_batch;

static inline int64_t draft_row_first(const draft_batch *b, int64_t request) { return b->first[request] + request; }

/* Row `row` of a batch under the parameters of entry `slot`. */
static inline oracle_case case_of(const batch *b, int64_t row, int64_t slot) {
    oracle_case c = batch_case(b, slot);
    c.row = batch_row(b, row);
    c.allow = b->allow ? b->allow + row * b->words : NULL;
    return c;
}

static inline void draft_batch_ask(draft_batch *b, int64_t request) {
    oracle_case target[VERIFY_DRAFTS_MAX + 1], draft[VERIFY_DRAFTS_MAX];
    const float *probabilities[VERIFY_DRAFTS_MAX];
    int64_t first = b->first[request], row = draft_row_first(b, request);
    verify_case c = {.method = b->method, .count = b->first[request + 1] - b->first[request], .target = target};
    for (int64_t i = 0; i <= c.count; ++i) target[i] = case_of(&b->target, row + i, request);
    for (int64_t i = 0; i < c.count; ++i) {
        if (b->kind == DRAFT_LOGITS) draft[i] = case_of(&b->draft, first + i, request);
        if (b->kind == DRAFT_PROBABILITIES) probabilities[i] = b->probabilities + (first + i) * b->target.vocab;
    }
    c.token = b->token + first;
    c.parent = b->kind == DRAFT_TREE ? b->parent + first : NULL;
    c.draft = b->kind == DRAFT_LOGITS ? draft : NULL;
    c.probabilities = b->kind == DRAFT_PROBABILITIES ? probabilities : NULL;
    c.threshold_single = b->threshold_single;
    c.threshold_sum = b->threshold_sum;
    c.rate = b->rate;
    c.accept_bits = b->accept_given ? b->accept_bits + row : NULL;
    c.recover_bits = b->recover_given ? b->recover_bits + 2 * request : NULL;
    c.draw_bits = b->draw_given ? b->draw_bits + 2 * row : NULL;
    b->wanted[request] = oracle_verify(&c);
}

/* ---- batches at random ---- */

/* Filters that leave few tokens. */
static inline void draft_pick_few(batch *b, int64_t requests, test_random *r) {
    for (int64_t i = 0; i < requests; ++i) {
        b->temperature[i] = 0.5f + (float)random_unit(r);
        b->top_k[i] = random_below(r, 4) ? (int32_t)(2 + random_below(r, 100)) : 0;
        b->top_p[i] = (float)(0.5 + 0.6 * random_unit(r));
        b->min_p[i] = (float)(0.02 * (double)random_below(r, 3));
    }
}

static inline void draft_pick_params(batch *b, int64_t requests, test_random *r) {
    const int64_t kind = random_below(r, 4); /* of any, few drafts would be accepted */
    const int plain = kind == 0;
    for (int64_t i = 0; i < requests; ++i) {
        b->temperature[i] = plain ? 0.8f : pick_temperature(r);
        b->top_k[i] = plain ? 0 : pick_top_k(r, b->vocab);
        b->top_p[i] = plain ? 1.0f : pick_top_p(r);
        b->min_p[i] = plain ? 0.0f : pick_min_p(r);
        b->seed[i] = random_bits(r);
        b->position[i] = random_bits(r) >> random_below(r, 64);
    }
    if (kind == 1) draft_pick_few(b, requests, r);
    b->flags = plain ? 0 : pick_flags(r) | pick_later_flags(r);
}

static inline void draft_pick_masks(batch *b, test_random *r) {
    if (random_below(r, 3)) return;
    b->allow = test_alloc((size_t)(b->rows * b->words) * 4 + 4);
    for (int64_t i = 0; i < b->rows * b->words; ++i) b->allow[i] = (uint32_t)(random_bits(r) | random_bits(r));
}

/* Draft rows like their target rows, or like nothing. */
static inline void draft_pick_rows(draft_batch *b, test_random *r) {
    for (int64_t request = 0; request < b->requests; ++request) {
        for (int64_t i = b->first[request]; i < b->first[request + 1]; ++i) {
            int64_t choice = random_below(r, 8);
            char *row = b->draft.data + i * b->draft.stride * element_bytes(b->draft.dtype);
            const char *kind = row_kinds[random_below(r, ROW_KINDS)];
            vector_row_make(choice < 6 ? "normal" : kind, (uint32_t)random_below(r, 1000), b->draft.vocab, b->draft.dtype, row);
            const void *target = batch_row(&b->target, i + request);
            if (choice < 2) memcpy(row, target, (size_t)(b->draft.vocab * element_bytes(b->draft.dtype)));
            for (int64_t t = 0; choice >= 2 && choice < 5 && t < b->draft.vocab; ++t) { /* near it */
                float x = oracle_load(target, b->draft.dtype, t) + (float)(random_unit(r) - 0.5) * 0.5f;
                vector_store(row, b->draft.dtype, t, vector_bits(x));
            }
        }
    }
}

/* A token that may well be accepted: drawn from the draft's row or the target's, the best of the target's, or any. */
static inline int32_t draft_pick_token(const draft_batch *b, int64_t request, int64_t i, test_random *r) {
    int64_t choice = random_below(r, 20);
    int64_t first = b->first[request];
    int from_draft = b->kind == DRAFT_LOGITS && choice < 12;
    int32_t before = b->kind == DRAFT_TREE ? b->parent[i] : (int32_t)(i - first) - 1, said[DRAFT_HISTORY + VERIFY_DRAFTS_MAX], depth = 0;
    oracle_case c = from_draft ? case_of(&b->draft, i, request) : case_of(&b->target, first + request + before + 1, request);
    if (choice == 19) return -1;
    if (choice >= 17) return (int32_t)random_below(r, c.vocab);
    for (int32_t node = before; node >= 0; node = b->kind == DRAFT_TREE ? b->parent[first + node] : node - 1)
        if (b->token[first + node] < 0) return (int32_t)random_below(r, c.vocab); /* it does not count */
    c = oracle_behind(c, b->token + first, b->kind == DRAFT_TREE ? b->parent + first : NULL, before, said, &depth);
    if (b->method == RAFFLE_MATCH && choice < 14) { /* the target's own */
        c.position += (uint64_t)depth;
        if (b->draw_given) c.bits = b->draw_bits + 2 * (first + request + before + 1);
    } else {
        c.seed = random_bits(r);
    }
    int32_t token = oracle_sample(&c, NULL, NULL).token;
    return token < 0 ? (int32_t)random_below(r, c.vocab) : token;
}

static inline void draft_pick_probabilities(draft_batch *b, test_random *r) {
    int64_t vocab = b->target.vocab, drafts = b->first[b->requests];
    b->probabilities = test_alloc((size_t)(drafts * vocab + 1) * 4);
    for (int64_t i = 0; i < drafts; ++i) {
        float *p = b->probabilities + i * vocab;
        double sum = 0;
        int64_t kind = random_below(r, 10);
        for (int64_t t = 0; t < vocab; ++t) sum += p[t] = (float)exp(-6 * random_unit(r));
        for (int64_t t = 0; t < vocab; ++t) p[t] = kind == 9 ? 0.0f : (float)((double)p[t] / sum);
        if (kind == 8) p[random_below(r, vocab)] = random_below(r, 2) ? NAN : -0.25f;
        if (kind == 6) for (int64_t t = 0; t < vocab; ++t) p[t] *= 1e-30f; /* any weights will do */
        if (kind == 7) memset(p, 0, (size_t)vocab * 4), p[random_below(r, vocab)] = 1.0f;
    }
}

/* A history for each request, and an extra with features of `wish` for the target and for the draft, which is often the same. */
static inline void draft_pick_extras(draft_batch *b, test_random *r, uint32_t wish) {
    const int64_t vocab = b->target.vocab;
    b->state = raffle_state_init();
    b->state.slots = b->requests;
    b->state.history_max = DRAFT_HISTORY;
    b->state.vocab = vocab;
    b->state.memory = test_alloc(raffle_state_bytes(&b->state));
    raffle_state_clear(&b->state, NULL, NULL);
    b->target.state = b->draft.state = &b->state;
    b->target.extra = arena_take(&b->lists, (size_t)b->requests * sizeof *b->target.extra);
    b->draft.extra = arena_take(&b->lists, (size_t)b->requests * sizeof *b->draft.extra);
    for (int64_t i = 0; i < b->requests; ++i) {
        int32_t token[DRAFT_HISTORY], slot = (int32_t)i, all = (int32_t)random_below(r, DRAFT_HISTORY + 1);
        int32_t prompt = (int32_t)pick_history(r, vocab, token, all), output = all - prompt;
        raffle_tokens said = raffle_tokens_init();
        said.rows = 1, said.slot = &slot, said.token = token, said.count = &prompt, said.stride = DRAFT_HISTORY;
        CHECK_STATUS(raffle_state_prompt(&b->state, &said, NULL), RAFFLE_OK);
        said.token = token + prompt, said.count = &output;
        CHECK_STATUS(raffle_state_accept(&b->state, &said, NULL), RAFFLE_OK);
        b->target.extra[i] = pick_extra(r, &b->lists, wish, vocab, token, all, output);
        b->target.extra[i].flags |= pick_later_extra(r, wish);
        b->draft.extra[i] = random_below(r, 2) ? b->target.extra[i] : pick_extra(r, &b->lists, wish, vocab, token, all, output);
        b->draft.extra[i].xtc_probability = 0;
    }
}

/* Drafts, and what is wanted of them. */
static inline void draft_pick_drafts(draft_batch *b, test_random *r) {
    for (int64_t request = 0; request < b->requests; ++request)
        for (int64_t i = b->first[request]; i < b->first[request + 1]; ++i) {
            int64_t before = i - b->first[request];
            b->parent[i] = (int32_t)(random_below(r, 3) ? before - 1 : random_below(r, before + 1) - 1);
            b->token[i] = draft_pick_token(b, request, i, r);
        }
    for (int64_t i = 0; i < b->requests; ++i) draft_batch_ask(b, i);
}

/* `wish`: features of raffle_extra; 0: none, not even a history. */
static inline draft_batch *draft_batch_make(test_random *r, draft_kind kind, int32_t method, int64_t vocab_max, uint32_t wish) {
    draft_batch *b = calloc(1, sizeof *b);
    int64_t vocab = 1 + random_below(r, random_below(r, 2) ? vocab_max : 40);
    int dtype = (int)random_below(r, 3);
    b->kind = kind;
    b->method = method;
    b->requests = 1 + random_below(r, REQUESTS_MAX);
    for (int64_t i = 0; i < b->requests; ++i) {
        int64_t left = BATCH_ROWS_MAX - REQUESTS_MAX - b->first[i], most = random_below(r, 8) ? 6 : 36;
        int64_t count = random_below(r, 5) ? random_below(r, most) : 0;
        b->first[i + 1] = b->first[i] + (int32_t)(count < left ? count : left);
    }
    int64_t drafts = b->first[b->requests];
    batch_alloc(&b->target, drafts + b->requests, vocab, dtype, random_below(r, 5), random_below(r, 2) * element_bytes(dtype));
    batch_alloc(&b->draft, drafts, vocab, dtype, random_below(r, 5), 0);
    for (int64_t i = 0; i < b->target.rows; ++i) {
        const char *name = row_kinds[random_below(r, 3) ? 0 : random_below(r, ROW_KINDS)];
        vector_row_make(name, (uint32_t)random_below(r, 1000), vocab, dtype, b->target.data + i * b->target.stride * element_bytes(dtype));
    }
    draft_pick_rows(b, r);
    draft_pick_params(&b->target, b->requests, r);
    draft_pick_params(&b->draft, b->requests, r);
    if (random_below(r, 2)) { /* the same parameters on both sides */
        memcpy(b->draft.temperature, b->target.temperature, sizeof b->draft.temperature);
        memcpy(b->draft.top_k, b->target.top_k, sizeof b->draft.top_k);
        memcpy(b->draft.top_p, b->target.top_p, sizeof b->draft.top_p);
        memcpy(b->draft.min_p, b->target.min_p, sizeof b->draft.min_p);
        b->draft.flags = b->target.flags;
    }
    draft_pick_masks(&b->target, r);
    draft_pick_masks(&b->draft, r);
    if (wish) draft_pick_extras(b, r, wish);
    if (kind == DRAFT_PROBABILITIES) draft_pick_probabilities(b, r);
    if (kind == DRAFT_TREE && method == RAFFLE_REJECTION && random_below(r, 2)) {
        b->threshold_single = random_below(r, 2) ? (float)random_unit(r) : 0.0f;
        b->threshold_sum = random_below(r, 3) ? (float)random_unit(r) : 1.0f;
    }
    if (method == RAFFLE_SYNTHETIC) b->rate = random_below(r, 4) ? (float)random_unit(r) : (float)random_below(r, 2);
    const int given = random_below(r, 2) ? (int)random_below(r, 8) : 0;
    b->accept_given = given & 1 && method != RAFFLE_MATCH;
    b->recover_given = given & 2 && method != RAFFLE_MATCH && method != RAFFLE_SYNTHETIC;
    b->draw_given = given & 4;
    for (int64_t i = 0; i < BATCH_ROWS_MAX; ++i) {
        static const uint64_t some[] = {0, 1, ~0ull, 1ull << 63};
        b->accept_bits[i] = random_below(r, 3) ? random_bits(r) : some[random_below(r, 4)];
        b->draw_bits[2 * i] = random_below(r, 3) ? random_bits(r) : some[random_below(r, 4)];
        b->draw_bits[2 * i + 1] = ~b->draw_bits[2 * i];
    }
    for (int64_t i = 0; i < 2 * REQUESTS_MAX; ++i)
        b->recover_bits[i] = random_below(r, 4) ? random_bits(r) : 0 - (uint64_t)random_below(r, 2);
    draft_pick_drafts(b, r);
    return b;
}

/* Makes of it one whose rows keep few tokens, but for some draft rows. */
static inline void draft_batch_cut(draft_batch *b, test_random *r) {
    draft_pick_few(&b->target, b->requests, r);
    draft_pick_few(&b->draft, b->requests, r);
    for (int64_t i = 0; i < b->requests; ++i) {
        const int64_t choice = random_below(r, 8);
        if (choice < 2) b->draft.temperature[i] = 0; /* greedy */
        if (choice == 2) b->draft.top_k[i] = 0, b->draft.top_p[i] = 1, b->draft.min_p[i] = 0;
    }
    draft_pick_drafts(b, r);
}

static inline void draft_batch_free(draft_batch *b) {
    batch_free(&b->target);
    batch_free(&b->draft);
    free(b->probabilities);
    free(b->state.memory);
    arena_free(&b->lists);
    free(b);
}

/* ---- through the library ---- */

/* A plan for the batch. */
static inline runner draft_runner(const draft_batch *b, raffle_isa isa) {
    if (!b->state.memory) return runner_make(b->target.dtype, b->target.vocab, isa);
    return runner_make_for(b->target.dtype, b->target.vocab, isa, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, DRAFT_HISTORY);
}

typedef struct verify_outputs {
    int32_t token[BATCH_ROWS_MAX + 8], path[BATCH_ROWS_MAX + 8], accepted[REQUESTS_MAX + 8], last[REQUESTS_MAX + 8];
    uint32_t row_flags[BATCH_ROWS_MAX + 8];
    raffle_verified verified;
} verify_outputs;

static inline void verify_outputs_poison(verify_outputs *o) {
    memset(o, GUARD, sizeof *o);
    o->verified = raffle_verified_init();
    o->verified.token = o->token;
    o->verified.path = o->path;
    o->verified.accepted = o->accepted;
    o->verified.last = o->last;
    o->verified.row_flags = o->row_flags;
}

/* The structs of a call; they point into each other and into the batch. */
typedef struct verify_structs {
    raffle_logits logits, draft_logits;
    raffle_params params, draft_params;
    raffle_probabilities probabilities;
    raffle_drafts drafts;
} verify_structs;

static inline void verify_structs_make(verify_structs *s, const draft_batch *b) {
    s->logits = raffle_logits_init();
    s->logits.data = b->target.data;
    s->logits.rows = b->target.rows;
    s->logits.row_stride = b->target.stride;
    s->params = batch_params(&b->target);
    s->params.slots = b->requests;
    s->drafts = raffle_drafts_init();
    s->drafts.method = b->method;
    s->drafts.requests = b->requests;
    s->drafts.first = b->first;
    s->drafts.token = b->token;
    s->drafts.parent = b->kind == DRAFT_TREE ? b->parent : NULL;
    s->drafts.threshold_single = b->threshold_single;
    s->drafts.threshold_sum = b->threshold_sum;
    s->drafts.rate = b->rate;
    s->drafts.accept_bits = b->accept_given ? b->accept_bits : NULL;
    s->drafts.recover_bits = b->recover_given ? b->recover_bits : NULL;
    s->drafts.draw_bits = b->draw_given ? b->draw_bits : NULL;
    if (b->kind == DRAFT_LOGITS) {
        s->draft_logits = raffle_logits_init();
        s->draft_logits.data = b->draft.data;
        s->draft_logits.rows = b->draft.rows;
        s->draft_logits.row_stride = b->draft.stride;
        s->draft_params = batch_params(&b->draft);
        s->draft_params.slots = b->requests;
        s->draft_params.seed = s->draft_params.position = NULL;
        s->drafts.logits = &s->draft_logits;
        s->drafts.params = &s->draft_params;
    } else if (b->kind == DRAFT_PROBABILITIES) {
        s->probabilities = raffle_probabilities_init();
        s->probabilities.data = b->probabilities;
        s->probabilities.rows = b->draft.rows;
        s->drafts.probabilities = &s->probabilities;
    }
}

/* Request r of the outputs, which begins at row `at`, must be `wanted`. */
static inline void verify_outputs_check(const verify_outputs *o, const draft_batch *b, int64_t request, int64_t r, int64_t at,
                                        const char *how) {
    const verify_answer *w = &b->wanted[request];
    int64_t count = b->first[request + 1] - b->first[request];
    int good = o->accepted[r] == w->accepted && o->last[r] == w->last;
    for (int64_t i = 0; i <= count; ++i)
        good = good && o->token[at + i] == w->token[i] && o->path[at + i] == w->path[i] && o->row_flags[at + i] == w->row_flags[i];
    if (!test_note(good)) return;
    printf("%s: %s: request %lld of %lld, %s, %s, %lld drafts: accepted %d last %d, oracle %d %d\n", test_state.name, how,
           (long long)request, (long long)b->requests, draft_kinds[b->kind], method_names[b->method], (long long)count,
           o->accepted[r], o->last[r], w->accepted, w->last);
    for (int64_t i = 0; i <= count; ++i)
        printf("      %lld: draft %d: token %d path %d flags %u, oracle %d %d %u\n", (long long)i,
               i < count ? b->token[b->first[request] + i] : -9, o->token[at + i], o->path[at + i], o->row_flags[at + i], w->token[i],
               w->path[i], w->row_flags[i]);
}

static inline void verify_guards_check(const verify_outputs *o, const draft_batch *b, const char *how) {
    int32_t guard;
    memset(&guard, GUARD, sizeof guard);
    for (int64_t i = b->target.rows; i < b->target.rows + 8; ++i)
        CHECK(o->token[i] == guard && o->path[i] == guard && o->row_flags[i] == (uint32_t)guard, "%s wrote behind", how);
    for (int64_t i = b->requests; i < b->requests + 8; ++i)
        CHECK(o->accepted[i] == guard && o->last[i] == guard, "%s wrote behind", how);
}

#endif
