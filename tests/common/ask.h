/* ask.h - one row, one question: what every instruction set and the oracle say, which must be the same. */
#ifndef RAFFLE_TESTS_ASK_H
#define RAFFLE_TESTS_ASK_H

#include <math.h>

#include "batch.h"

/* A row with every parameter at its default. */
static inline oracle_case ask_row(const void *row, int dtype, int64_t vocab) {
    oracle_case c = {.row = row, .dtype = dtype, .vocab = vocab, .temperature = 1.0f, .top_p = 1.0f, .seed = 1};
    return c;
}

/* The library's call for a case: params of one slot. The case must outlive them. */
static inline raffle_params ask_params(const oracle_case *c) {
    raffle_params p = raffle_params_init();
    p.flags = c->flags;
    p.temperature = &c->temperature;
    p.top_p = &c->top_p;
    p.min_p = &c->min_p;
    p.top_k = &c->top_k;
    p.seed = &c->seed;
    p.position = &c->position;
    p.draft_step = c->draft_step;
    p.allow = c->allow;
    return p;
}

static inline raffle_logits ask_logits(const oracle_case *c) {
    raffle_logits l = raffle_logits_init();
    l.data = c->row;
    l.rows = 1;
    return l;
}

/* The answer, after checking that all agree: token and flags by raffle_sample, kept tokens by raffle_explain. */
static inline oracle_answer ask(const oracle_case *c, uint8_t *kept) {
    oracle_answer wanted = oracle_sample(c, kept, NULL);
    raffle_params params = ask_params(c);
    raffle_logits logits = ask_logits(c);
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        const char *isa = raffle_isa_name(every_isa[i]);
        runner r = runner_make(c->dtype, c->vocab, every_isa[i]);
        outputs o;
        outputs_poison(&o);
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
        CHECK(o.token[0] == wanted.token && o.row_flags[0] == wanted.row_flags,
              "%s: token %d flags %u, oracle %d flags %u", isa, o.token[0], o.row_flags[0], wanted.token,
              wanted.row_flags);
        raffle_explanation e = raffle_explanation_init();
        CHECK_STATUS(raffle_explain(r.plan, &logits, &params, 0, &e, &r.launch, NULL), RAFFLE_OK);
        CHECK(e.token == wanted.token && e.fates[RAFFLE_KEPT] == wanted.kept_count,
              "%s: explained token %d kept %lld, oracle %d %lld", isa, e.token, (long long)e.fates[RAFFLE_KEPT],
              wanted.token, (long long)wanted.kept_count);
        runner_free(r);
    }
    return wanted;
}

/* How many tokens are kept. */
static inline int64_t ask_kept(const oracle_case *c) { return ask(c, NULL).kept_count; }

/* Counts draws per token over `draws` positions from the case's on. */
static inline void ask_count(const oracle_case *c, int64_t draws, int64_t *count) {
    runner r = runner_make(c->dtype, c->vocab, RAFFLE_ISA_BEST);
    oracle_case at = *c;
    raffle_params params = ask_params(&at);
    raffle_logits logits = ask_logits(&at);
    int32_t token = -77;
    raffle_result result = raffle_result_init();
    result.token = &token;
    memset(count, 0, (size_t)c->vocab * sizeof *count);
    for (int64_t i = 0; i < draws; ++i, ++at.position) {
        raffle_status status = raffle_sample(r.plan, &logits, &params, &result, &r.launch, NULL);
        CHECK(!status && token >= 0 && token < c->vocab, "status %d, token %d", status, token);
        if (token >= 0 && token < c->vocab) ++count[token];
    }
    runner_free(r);
}

#endif
