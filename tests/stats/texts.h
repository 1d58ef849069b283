/* texts.h - writes the texts of a model for speculative.c: many at a time, draft by draft and call by call, and counts their tokens.
 * Drafts are drawn by raffle_sample with the seeds that verification uses. */
#ifndef RAFFLE_TESTS_TEXTS_H
#define RAFFLE_TESTS_TEXTS_H

#include "models.h"

enum { LANES = 64, HISTORY = 32 };

/* What many texts of a model came to. */
typedef struct tally {
    int64_t token[LONG_TEXT][VOCAB_MAX], pair[LONG_TEXT - 1][VOCAB_MAX * VOCAB_MAX]; /* as in text_law */
    int64_t texts, calls, drafted, accepted;
    /* By the drafts that were accepted before it in its call: how many drafts were judged and accepted; how many of them should have been,
     * and the variance of that. Only of models that have a rate. */
    int64_t judged[DRAFTS], stood[DRAFTS];
    double expected[DRAFTS], variance[DRAFTS];
} tally;

/* LANES texts at a time, one request each. */
typedef struct lanes {
    runner run;
    uint64_t seed[LANES], position[LANES];
    float temperature[LANES], top_p[LANES], min_p[LANES], draft_temperature[LANES], draft_top_p[LANES];
    int32_t top_k[LANES], draft_top_k[LANES];
    float target[LANES * (DRAFTS + 1)][VOCAB_MAX], draft[LANES * DRAFTS][VOCAB_MAX], probabilities[LANES * DRAFTS][VOCAB_MAX];
    int32_t first[LANES + 1], token[LANES * DRAFTS], parent[LANES * DRAFTS];
    int32_t out[LANES * (DRAFTS + 1)], accepted[LANES], count[LANES];
    int32_t text[LANES][LONG_TEXT + DRAFTS + 1], length[LANES];
    raffle_extra extra[LANES], draft_extra[LANES];
    raffle_state state; /* memory NULL: none */
    float draft_law[VOCAB_MAX][VOCAB_MAX]; /* of each row of the draft model */
    double overlap[VOCAB_MAX];             /* of each row of both */
} lanes;

/* The token behind which a lane's call begins. */
static int32_t lane_root(const lanes *l, int32_t lane) { return l->length[lane] ? l->text[lane][l->length[lane] - 1] : 0; }

static raffle_params lane_params(lanes *l, const model *m, int draft) {
    raffle_params p = raffle_params_init();
    const oracle_case *how = draft ? &m->draft_how : &m->how;
    for (int i = 0; i < LANES; ++i) {
        (draft ? l->draft_temperature : l->temperature)[i] = how->temperature;
        (draft ? l->draft_top_p : l->top_p)[i] = how->top_p;
        (draft ? l->draft_top_k : l->top_k)[i] = how->top_k;
        l->min_p[i] = m->how.min_p;
    }
    p.slots = LANES;
    p.flags = how->flags;
    p.temperature = draft ? l->draft_temperature : l->temperature;
    p.top_p = draft ? l->draft_top_p : l->top_p;
    p.top_k = draft ? l->draft_top_k : l->top_k;
    p.min_p = draft ? NULL : l->min_p;
    p.seed = l->seed;
    p.position = l->position;
    if (!m->penalised) return p;
    for (int i = 0; i < LANES; ++i) (draft ? l->draft_extra : l->extra)[i] = draft ? m->draft_extra : m->extra;
    p.extra = draft ? l->draft_extra : l->extra;
    p.extra_bytes = sizeof *p.extra;
    p.state = &l->state;
    return p;
}

/* Appends `count` tokens to a lane's history, or takes as many back (token NULL). */
static void lane_say(lanes *l, int32_t lane, const int32_t *token, int32_t count) {
    raffle_tokens t = raffle_tokens_init();
    if (!l->state.memory) return;
    t.rows = 1, t.slot = &lane, t.token = token, t.count = &count, t.stride = count ? count : 1;
    CHECK_STATUS(token ? raffle_state_accept(&l->state, &t, NULL) : raffle_state_truncate(&l->state, &t, NULL), RAFFLE_OK);
}

/* ---- drafts ---- */

/* Fills in draft `step` (from 1 on) of the requests that have it, drawn from the draft's row behind the one before. */
static void draw_drafts(lanes *l, const model *m, int32_t step) {
    static float rows[LANES][VOCAB_MAX];
    int32_t token[LANES], lane[LANES], before[LANES], drawn = 0;
    for (int32_t i = 0; i < LANES; ++i) {
        if (step > l->count[i]) continue;
        before[drawn] = step > 1 ? l->token[l->first[i] + step - 2] : lane_root(l, i);
        memcpy(rows[drawn], m->draft[before[drawn]], sizeof rows[drawn]);
        lane[drawn++] = i;
    }
    raffle_logits logits = raffle_logits_init();
    logits.data = rows;
    logits.rows = drawn;
    logits.row_stride = VOCAB_MAX;
    raffle_params p = lane_params(l, m, 1);
    p.slot = lane;
    p.draft_step = (uint32_t)step;
    raffle_result result = raffle_result_init();
    result.token = token;
    CHECK_STATUS(raffle_sample(l->run.plan, &logits, &p, &result, &l->run.launch, NULL), RAFFLE_OK);
    for (int32_t i = 0; i < drawn; ++i) {
        int32_t at = l->first[lane[i]] + step - 1;
        l->token[at] = token[i];
        lane_say(l, lane[i], &token[i], 1); /* the next draft sees it */
        memcpy(l->draft[at], rows[i], sizeof rows[i]);
        memcpy(l->probabilities[at], l->draft_law[before[i]], sizeof l->probabilities[at]);
    }
}

/* A tree of pairs of siblings, of which the second is the next id. Drafts 0 and 1 are at its root. In a bushy tree drafts 2 and 3 are
 * behind 0, 4 and 5 behind 1, 6 and 7 behind 2; in a deep one 2 and 3 are behind 0, 4 and 5 behind 2, 6 and 7 behind 4: four levels. */
static void make_tree(lanes *l, const model *m, int32_t lane) {
    for (int32_t i = 0; i < l->count[lane]; ++i) {
        int32_t at = l->first[lane] + i, parent = i < 2 ? -1 : m->by == BY_DEEP_TREE ? i / 2 * 2 - 2 : i / 2 - 1;
        int32_t before = parent < 0 ? lane_root(l, lane) : l->token[l->first[lane] + parent], best = 0;
        for (int32_t t = 1; t < m->vocab; ++t)
            if (m->draft[before][t] > m->draft[before][best]) best = t;
        l->parent[at] = parent;
        l->token[at] = i % 2 ? (best + 1) % m->vocab : best;
    }
}

/* The drafts of all lanes. They are ragged: texts that are done have none, some have fewer than others. */
static void make_drafts(lanes *l, const model *m) {
    for (int i = 0; i < LANES; ++i) {
        l->count[i] = l->length[i] >= m->text ? 0 : (int32_t)(1 + (l->seed[i] + l->position[i]) % (uint64_t)m->drafts);
        l->first[i + 1] = l->first[i] + l->count[i];
    }
    for (int i = 0; i < LANES && is_tree(m); ++i) make_tree(l, m, i);
    if (is_tree(m)) return;
    for (int32_t step = 1; step <= m->drafts; ++step) draw_drafts(l, m, step);
    for (int i = 0; i < LANES; ++i) lane_say(l, i, NULL, l->count[i]);
}

/* ---- verification ---- */

static void call_verify(lanes *l, const model *m) {
    int32_t rows = 0;
    for (int i = 0; i < LANES; ++i) {
        memcpy(l->target[rows++], m->target[lane_root(l, i)], sizeof l->target[0]);
        for (int32_t k = l->first[i]; k < l->first[i + 1]; ++k) memcpy(l->target[rows++], m->target[l->token[k]], sizeof l->target[0]);
    }
    raffle_logits logits = raffle_logits_init(), draft_logits = raffle_logits_init();
    raffle_probabilities probabilities = raffle_probabilities_init();
    logits.data = l->target;
    draft_logits.data = l->draft;
    probabilities.data = l->probabilities[0];
    logits.rows = rows;
    draft_logits.rows = probabilities.rows = rows - LANES;
    logits.row_stride = draft_logits.row_stride = probabilities.row_stride = VOCAB_MAX;
    raffle_params params = lane_params(l, m, 0), draft_params = lane_params(l, m, 1);
    raffle_drafts d = raffle_drafts_init();
    d.method = m->method;
    d.requests = LANES;
    d.first = l->first;
    d.token = l->token;
    if (is_tree(m)) d.parent = l->parent;
    if (m->by == BY_LOGITS) d.logits = &draft_logits, d.params = &draft_params;
    if (m->by == BY_PROBABILITIES) d.probabilities = &probabilities;
    raffle_verified v = raffle_verified_init();
    v.token = l->out;
    v.accepted = l->accepted;
    CHECK_STATUS(raffle_verify(l->run.plan, &logits, &params, &d, &v, &l->run.launch, NULL), RAFFLE_OK);
}

/* Counts the drafts of a lane's call that were looked at: those that were accepted, and the one behind them. */
static void count_judged(const lanes *l, int32_t lane, tally *sum) {
    for (int32_t k = 0; k < l->count[lane] && k <= l->accepted[lane]; ++k) {
        const double chance = l->overlap[k ? l->token[l->first[lane] + k - 1] : lane_root(l, lane)];
        sum->judged[k] += 1;
        sum->stood[k] += k < l->accepted[lane];
        sum->expected[k] += chance;
        sum->variance[k] += chance * (1 - chance);
    }
}

/* Appends what a call gave to a lane's text. */
static void take_tokens(lanes *l, const model *m, int32_t lane, tally *sum) {
    const int32_t *out = l->out + l->first[lane] + lane, emitted = l->accepted[lane] + 1;
    if (has_rate(m)) count_judged(l, lane, sum);
    memcpy(l->text[lane] + l->length[lane], out, (size_t)emitted * sizeof *out);
    l->length[lane] += emitted;
    l->position[lane] += (uint64_t)emitted;
    lane_say(l, lane, out, emitted);
    sum->calls += 1;
    sum->drafted += l->count[lane];
    sum->accepted += l->accepted[lane];
}

static void count_text(const int32_t *text, const model *m, tally *sum) {
    for (int32_t k = 0; k < m->text; ++k) {
        const int good = text[k] >= 0 && text[k] < m->vocab;
        CHECK(good, "token %d is %d of %d", k, text[k], m->vocab);
        if (!good) return;
        sum->token[k][text[k]] += 1;
        if (k) sum->pair[k - 1][text[k - 1] * m->vocab + text[k]] += 1;
    }
    sum->texts += 1;
}

/* Goes on with LANES texts until each is long enough. Texts need not stop: more tokens than that do no harm. */
static void write_texts(lanes *l, const model *m, uint64_t seed, tally *sum) {
    for (int i = 0; i < LANES; ++i) {
        l->seed[i] = seed + (uint64_t)i;
        l->position[i] = 0;
        l->length[i] = 0;
    }
    if (l->state.memory) CHECK_STATUS(raffle_state_clear(&l->state, NULL, NULL), RAFFLE_OK);
    for (int going = 1; going;) {
        going = 0;
        make_drafts(l, m);
        call_verify(l, m);
        for (int i = 0; i < LANES; ++i) {
            if (l->length[i] >= m->text) continue;
            take_tokens(l, m, i, sum);
            going |= l->length[i] < m->text;
        }
    }
    for (int i = 0; i < LANES; ++i) count_text(l->text[i], m, sum);
}

/* What is known of the model's rows, once for all texts. */
static void know_rows(lanes *l, const model *m) {
    for (int32_t row = 0; row < m->vocab; ++row) {
        long double law[VOCAB_MAX];
        row_law(m->draft[row], m->vocab, &m->draft_how, law);
        for (int32_t t = 0; t < m->vocab; ++t) l->draft_law[row][t] = (float)law[t];
        l->overlap[row] = overlap(m, row);
    }
}

static tally run_model(const model *m, int64_t texts) {
    static lanes l;
    tally sum;
    memset(&sum, 0, sizeof sum);
    memset(&l, 0, sizeof l);
    l.run = runner_make_for(RAFFLE_F32, m->vocab, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA, HISTORY);
    know_rows(&l, m);
    if (m->penalised) {
        l.state = raffle_state_init();
        l.state.slots = LANES, l.state.history_max = HISTORY, l.state.vocab = m->vocab;
        l.state.memory = test_alloc(raffle_state_bytes(&l.state));
    }
    for (int64_t i = 0; i < texts; i += LANES) write_texts(&l, m, (uint64_t)i * 7 + 1000, &sum);
    free(l.state.memory);
    runner_free(l.run);
    return sum;
}

#endif
