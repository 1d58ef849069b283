/* speculative.c - tokens that come through raffle_verify follow the law of plain sampling. The models are chains: the row
 * of the next token depends on the token before, in the target as in the draft, so that pairs of tokens have a law too.
 * Drafts are drawn by raffle_sample with the seeds that verification uses. Seeds are fixed. */
#include <math.h>
#include <stdlib.h>

#include "../common/ask.h"
#include "../common/fit.h"
#include "../oracle/softmax.h"
#include "../oracle/verify_oracle.h"

enum { VOCAB_MAX = 12, LANES = 64, DRAFTS = 8, TEXT = 3, HISTORY = 32 };
static const double Z_MOST = 4.0;

typedef enum chosen { BY_LOGITS, BY_PROBABILITIES, BY_TOKENS, BY_TREE } chosen;

/* A target and a draft model, and how they are sampled. Row 0 begins a text. */
typedef struct model {
    const char *name;
    int32_t vocab;
    float target[VOCAB_MAX][VOCAB_MAX], draft[VOCAB_MAX][VOCAB_MAX];
    oracle_case how, draft_how; /* parameters only */
    raffle_extra extra, draft_extra; /* penalties, if `penalised`; texts begin without a history */
    int penalised;
    chosen by;
    int32_t method, drafts;
} model;

/* What many texts of a model came to. */
typedef struct tally {
    int64_t first[VOCAB_MAX], pair[2][VOCAB_MAX * VOCAB_MAX]; /* of tokens 0, 1 and 1, 2 */
    int64_t texts, calls, drafted, accepted, first_drafted, first_accepted;
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
    int32_t text[LANES][TEXT + DRAFTS + 1], length[LANES];
    raffle_extra extra[LANES], draft_extra[LANES];
    raffle_state state; /* memory NULL: none */
} lanes;

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

/* The law of one row, and in f32. */
static void row_law(const float *row, int32_t vocab, const oracle_case *how, long double *law) {
    oracle_case c = *how;
    c.row = row;
    c.dtype = RAFFLE_F32;
    c.vocab = vocab;
    int64_t doubtful = 0;
    softmax_law(&c, law, &doubtful);
    CHECK(doubtful == 0, "a border hangs on rounding; choose another parameter");
}

/* Fills in draft `step` (from 1 on) of the requests that have it, drawn from the draft's row behind the one before. */
static void draw_drafts(lanes *l, const model *m, int32_t step) {
    static float rows[LANES][VOCAB_MAX];
    int32_t token[LANES], lane[LANES], drawn = 0;
    for (int32_t i = 0; i < LANES; ++i) {
        int32_t at = l->first[i] + step - 1, before = step > 1 ? l->token[at - 1] : l->length[i] ? l->text[i][l->length[i] - 1] : 0;
        if (step > l->count[i]) continue;
        memcpy(rows[drawn], m->draft[before], sizeof rows[drawn]);
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
        long double law[VOCAB_MAX];
        if (m->by != BY_PROBABILITIES) continue;
        row_law(rows[i], m->vocab, &m->draft_how, law);
        for (int32_t t = 0; t < m->vocab; ++t) l->probabilities[at][t] = (float)law[t];
    }
}

/* A tree: drafts 0 and 1 are siblings at its root, drafts 2 and 3 behind 0, and so on; the second sibling is the next id. */
static void make_tree(lanes *l, const model *m, int32_t lane) {
    int32_t root = l->length[lane] ? l->text[lane][l->length[lane] - 1] : 0;
    for (int32_t i = 0; i < l->count[lane]; ++i) {
        int32_t at = l->first[lane] + i, parent = i / 2 - 1, before = parent < 0 ? root : l->token[l->first[lane] + parent], best = 0;
        for (int32_t t = 1; t < m->vocab; ++t)
            if (m->draft[before][t] > m->draft[before][best]) best = t;
        l->parent[at] = parent;
        l->token[at] = i % 2 ? (best + 1) % m->vocab : best;
    }
}

static void call_verify(lanes *l, const model *m) {
    int32_t rows = 0;
    for (int i = 0; i < LANES; ++i) {
        int32_t root = l->length[i] ? l->text[i][l->length[i] - 1] : 0;
        memcpy(l->target[rows++], m->target[root], sizeof l->target[0]);
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
    if (m->by == BY_TREE) d.parent = l->parent;
    if (m->by == BY_LOGITS) d.logits = &draft_logits, d.params = &draft_params;
    if (m->by == BY_PROBABILITIES) d.probabilities = &probabilities;
    raffle_verified v = raffle_verified_init();
    v.token = l->out;
    v.accepted = l->accepted;
    CHECK_STATUS(raffle_verify(l->run.plan, &logits, &params, &d, &v, &l->run.launch, NULL), RAFFLE_OK);
}

/* Goes on with LANES texts until each has TEXT tokens. Texts need not stop: more tokens than that do no harm. */
static void write_texts(lanes *l, const model *m, uint64_t seed, tally *sum) {
    for (int i = 0; i < LANES; ++i) {
        l->seed[i] = seed + (uint64_t)i;
        l->position[i] = 0;
        l->length[i] = 0;
    }
    if (l->state.memory) CHECK_STATUS(raffle_state_clear(&l->state, NULL, NULL), RAFFLE_OK);
    for (int going = 1; going;) {
        going = 0;
        for (int i = 0; i < LANES; ++i) { /* ragged: texts that are done have no drafts, some begin with fewer */
            l->count[i] = l->length[i] >= TEXT ? 0 : (int32_t)(1 + (l->seed[i] + l->position[i]) % (uint64_t)m->drafts);
            l->first[i + 1] = l->first[i] + l->count[i];
        }
        for (int32_t step = 1; step <= m->drafts && m->by != BY_TREE; ++step) draw_drafts(l, m, step);
        for (int i = 0; i < LANES && m->by != BY_TREE; ++i) lane_say(l, i, NULL, l->count[i]);
        for (int i = 0; i < LANES && m->by == BY_TREE; ++i) make_tree(l, m, i);
        call_verify(l, m);
        for (int i = 0; i < LANES; ++i) {
            if (l->length[i] >= TEXT) continue;
            for (int32_t k = 0; k <= l->accepted[i]; ++k) l->text[i][l->length[i]++] = l->out[l->first[i] + i + k];
            lane_say(l, i, l->out + l->first[i] + i, l->accepted[i] + 1);
            sum->calls += 1;
            sum->drafted += l->count[i];
            sum->accepted += l->accepted[i];
            if (!l->position[i]) sum->first_drafted += 1, sum->first_accepted += l->accepted[i] > 0;
            l->position[i] += (uint64_t)l->accepted[i] + 1;
            going |= l->length[i] < TEXT;
        }
    }
    for (int i = 0; i < LANES; ++i) {
        const int32_t *t = l->text[i];
        CHECK(t[0] >= 0 && t[0] < m->vocab && t[1] >= 0 && t[1] < m->vocab && t[2] >= 0 && t[2] < m->vocab, "no token");
        sum->first[t[0]] += 1;
        sum->pair[0][t[0] * m->vocab + t[1]] += 1;
        sum->pair[1][t[1] * m->vocab + t[2]] += 1;
        sum->texts += 1;
    }
}

static tally run_model(const model *m, int64_t texts) {
    static lanes l;
    tally sum;
    memset(&sum, 0, sizeof sum);
    memset(&l, 0, sizeof l);
    l.run = runner_make_for(RAFFLE_F32, m->vocab, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA, HISTORY);
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

/* ---- models ---- */

typedef enum relation { NEAR, FAR, SHARP_TARGET, SHARP_DRAFT, FLAT, TOUCHING, DISJOINT, EQUAL, RELATIONS } relation;
static const char *const relations[] = {"near", "far", "sharp target", "sharp draft", "flat", "touching", "disjoint", "equal"};

static model model_make(relation how, chosen by, int32_t method, int32_t drafts, int32_t vocab, uint64_t seed) {
    model m;
    test_random r = {seed};
    memset(&m, 0, sizeof m);
    m.name = relations[how];
    m.vocab = vocab;
    m.by = by;
    m.method = method;
    m.drafts = drafts;
    m.how = m.draft_how = ask_row(NULL, RAFFLE_F32, vocab);
    for (int i = 0; i < vocab; ++i)
        for (int j = 0; j < vocab; ++j) {
            double a = 3 * random_unit(&r), b = 3 * random_unit(&r);
            m.target[i][j] = (float)(how == SHARP_TARGET ? 4 * a : how == FLAT ? 1 : a);
            m.draft[i][j] = (float)(how == NEAR ? a + 0.4 * b : how == EQUAL ? a : how == SHARP_DRAFT ? 4 * b : b);
            if (how == TOUCHING || how == DISJOINT) { /* one token of the target's half can be drafted, or none */
                if (j < vocab / 2) m.target[i][j] = -INFINITY;
                if (j >= vocab / 2 + (how == TOUCHING)) m.draft[i][j] = -INFINITY;
            }
        }
    return m;
}

/* The law of the token that plain sampling draws after said[count]. */
static void next_law(const model *m, const int32_t *said, int32_t count, long double *law) {
    float row[VOCAB_MAX];
    const raffle_extra *e = &m->extra;
    memcpy(row, m->target[count ? said[count - 1] : 0], sizeof row);
    for (int32_t t = 0; t < m->vocab && m->penalised; ++t) {
        int32_t times = 0;
        for (int32_t i = 0; i < count; ++i) times += said[i] == t;
        if (!times) continue;
        row[t] = row[t] > 0 ? row[t] / e->repetition : row[t] * e->repetition;
        row[t] -= (float)times * e->frequency + e->presence;
    }
    row_law(row, m->vocab, &m->how, law);
}

static void check_law(const model *m, const tally *sum, const char *what) {
    long double first[VOCAB_MAX], second[VOCAB_MAX], third[VOCAB_MAX], pair[2][VOCAB_MAX * VOCAB_MAX] = {{0}};
    int32_t V = m->vocab;
    next_law(m, NULL, 0, first);
    for (int32_t a = 0; a < V; ++a) {
        next_law(m, &a, 1, second);
        for (int32_t b = 0; b < V; ++b) {
            const int32_t said[2] = {a, b};
            next_law(m, said, 2, third);
            pair[0][a * V + b] = first[a] * second[b];
            for (int32_t c = 0; c < V; ++c) pair[1][b * V + c] += first[a] * second[b] * third[c];
        }
    }
    int cells;
    double p0 = fit(sum->first, first, V, sum->texts, &cells);
    double p1 = fit(sum->pair[0], pair[0], V * V, sum->texts, &cells), p2 = fit(sum->pair[1], pair[1], V * V, sum->texts, &cells);
    printf("     %-34s %-13s %7lld texts, %4.2f accepted a call, p = %.4f %.4f %.4f\n", what, m->name, (long long)sum->texts,
           (double)sum->accepted / (double)sum->calls, p0, p1, p2);
    CHECK(p0 > P_LEAST && p1 > P_LEAST && p2 > P_LEAST, "%s, %s: p = %g %g %g", what, m->name, p0, p1, p2);
}

/* The share of first drafts that is accepted is 1 - total variation. */
static void check_rate(const model *m, const tally *sum) {
    long double p[VOCAB_MAX], q[VOCAB_MAX], same = 0;
    row_law(m->target[0], m->vocab, &m->how, p);
    row_law(m->draft[0], m->vocab, &m->draft_how, q);
    for (int32_t i = 0; i < m->vocab; ++i) same += p[i] < q[i] ? p[i] : q[i];
    double n = (double)sum->first_drafted, wanted = (double)same, got = (double)sum->first_accepted / n;
    double error = sqrt(wanted * (1 - wanted) / n);
    printf("     %-13s accepted %.5f, 1 - total variation %.5f, error %.5f\n", m->name, got, wanted, error);
    CHECK(fabs(got - wanted) <= Z_MOST * error + 1e-9, "%s: accepted %g, wanted %g", m->name, got, wanted);
}

/* Every relation, with up to 1 draft, 2, ... 8. */
static void check_relations(chosen by, int32_t method, const char *what, int64_t texts, int with_rate) {
    for (relation how = NEAR; how < RELATIONS; ++how) {
        model m = model_make(how, by, method, 1 + (int32_t)how, 5 + (int32_t)how, 40 + (uint64_t)how);
        tally sum = run_model(&m, test_amount(texts));
        check_law(&m, &sum, what);
        if (with_rate) check_rate(&m, &sum);
        if (how == DISJOINT && by != BY_TREE) CHECK(sum.accepted == 0, "disjoint models: %lld accepted", (long long)sum.accepted);
        if (how == EQUAL && with_rate) CHECK(sum.accepted == sum.drafted, "equal models: %lld of %lld", (long long)sum.accepted, (long long)sum.drafted);
    }
}

TEST(rejection_by_logits) { check_relations(BY_LOGITS, RAFFLE_REJECTION, "rejection, logits", 60000, 1); }
TEST(rejection_by_probabilities) { check_relations(BY_PROBABILITIES, RAFFLE_REJECTION, "rejection, probabilities", 20000, 0); }
TEST(rejection_by_tokens) { check_relations(BY_TOKENS, RAFFLE_REJECTION, "rejection, tokens", 60000, 0); }
TEST(block_by_logits) { check_relations(BY_LOGITS, RAFFLE_BLOCK, "block, logits", 60000, 0); }
TEST(block_by_tokens) { check_relations(BY_TOKENS, RAFFLE_BLOCK, "block, tokens", 40000, 0); }
TEST(match_by_tokens) { check_relations(BY_TOKENS, RAFFLE_MATCH, "match", 40000, 0); }
TEST(trees) { check_relations(BY_TREE, RAFFLE_REJECTION, "tree", 60000, 0); }
TEST(tree_match) { check_relations(BY_TREE, RAFFLE_MATCH, "tree, match", 20000, 0); }

/* Filters on either side or both, and other temperatures. */
TEST(filters) {
    for (int i = 0; i < 8; ++i) {
        model m = model_make(i % 2 ? NEAR : FAR, BY_LOGITS, i % 3 ? RAFFLE_REJECTION : RAFFLE_BLOCK, 1 + i, 11, 70 + (uint64_t)i);
        char what[64];
        if (i & 1) m.how.top_k = 5;
        if (i & 2) m.how.top_p = 0.83f;
        if (i & 4) m.how.temperature = 0.7f, m.draft_how.temperature = 1.3f;
        if (i >= 6) m.draft_how.top_k = 4;
        if (i == 3) m.how.min_p = 0.2f;
        if (i == 5) m.draft_how.top_p = 0.9f;
        snprintf(what, sizeof what, "filters %d, %d drafts, %s", i, m.drafts, m.method ? "block" : "rejection");
        tally sum = run_model(&m, test_amount(60000));
        check_law(&m, &sum, what);
        if (!m.method) check_rate(&m, &sum);
    }
}

/* Penalties see the drafts before, along their path, and those of the draft model see them too. */
TEST(penalties) {
    static const struct { chosen by; int32_t method; const char *what; } ways[] = {
        {BY_LOGITS, RAFFLE_REJECTION, "penalties, rejection, logits"}, {BY_LOGITS, RAFFLE_BLOCK, "penalties, block, logits"},
        {BY_TOKENS, RAFFLE_REJECTION, "penalties, rejection, tokens"}, {BY_TOKENS, RAFFLE_MATCH, "penalties, match"},
        {BY_TREE, RAFFLE_REJECTION, "penalties, tree"},
    };
    for (int i = 0; i < 5; ++i) {
        model m = model_make(NEAR, ways[i].by, ways[i].method, 4, 5 + i, 110 + (uint64_t)i);
        m.penalised = 1;
        m.extra.repetition = 1.5f, m.extra.frequency = 0.6f, m.extra.presence = 0.8f;
        m.draft_extra = m.extra;
        if (i == 1) m.draft_extra.repetition = 1.0f, m.draft_extra.presence = -0.5f; /* another law, but the one drawn from */
        tally sum = run_model(&m, test_amount(40000));
        check_law(&m, &sum, ways[i].what);
    }
}

/* The expected number of accepted drafts of a block is at least that of rejection, and larger where it can be. */
TEST(blocks_accept_more) {
    for (relation how = NEAR; how < RELATIONS; ++how) {
        if (how == DISJOINT) continue; /* where neither accepts any */
        model m = model_make(how, BY_LOGITS, RAFFLE_REJECTION, 8, 6, 90 + (uint64_t)how);
        tally by_step = run_model(&m, test_amount(40000));
        m.method = RAFFLE_BLOCK;
        tally by_block = run_model(&m, test_amount(40000));
        double step = (double)by_step.accepted / (double)by_step.calls, block = (double)by_block.accepted / (double)by_block.calls;
        double error = DRAFTS / sqrt((double)by_step.calls); /* generous: a call accepts 0 .. DRAFTS */
        printf("     %-13s accepted a call: rejection %.4f, block %.4f\n", m.name, step, block);
        CHECK(block > step - error, "%s: block %g, rejection %g", m.name, block, step);
        if (how == FAR) CHECK(block > step + error, "far: block %g is not above %g", block, step);
    }
}

/* The test must see a law that is off: drafts that are drawn from random bits that verification uses too. */
TEST(shared_noise_is_seen) {
    model m = model_make(FAR, BY_LOGITS, RAFFLE_REJECTION, 1, 6, 41);
    tally sum;
    static lanes l;
    memset(&sum, 0, sizeof sum);
    l.run = runner_make(RAFFLE_F32, m.vocab, RAFFLE_ISA_BEST);
    uint64_t accept[LANES * 2];
    int64_t count[VOCAB_MAX] = {0};
    long double law[VOCAB_MAX];
    int cells;
    row_law(m.target[0], m.vocab, &m.how, law);
    for (int64_t i = 0; i < 400; ++i) {
        for (int lane = 0; lane < LANES; ++lane) {
            l.seed[lane] = (uint64_t)(i * LANES + lane);
            l.position[lane] = 0;
            l.length[lane] = 0;
            l.count[lane] = 1;
            l.first[lane + 1] = lane + 1;
        }
        draw_drafts(&l, &m, 1);
        for (int lane = 0; lane < LANES; ++lane) { /* the draft's own bits */
            uint64_t bits[2];
            oracle_random(l.seed[lane], 0, 1, 1, bits);
            accept[2 * lane] = accept[2 * lane + 1] = bits[1]; /* by which a token is drawn of so few */
            memcpy(l.target[2 * lane], m.target[0], sizeof l.target[0]);
            memcpy(l.target[2 * lane + 1], m.target[l.token[lane]], sizeof l.target[0]);
        }
        raffle_logits logits = raffle_logits_init(), draft_logits = raffle_logits_init();
        logits.data = l.target;
        draft_logits.data = l.draft;
        logits.rows = 2 * LANES;
        draft_logits.rows = LANES;
        logits.row_stride = draft_logits.row_stride = VOCAB_MAX;
        raffle_params params = lane_params(&l, &m, 0), draft_params = lane_params(&l, &m, 1);
        raffle_drafts d = raffle_drafts_init();
        d.requests = LANES;
        d.each = 1;
        d.token = l.token;
        d.logits = &draft_logits;
        d.params = &draft_params;
        d.accept_bits = accept;
        raffle_verified v = raffle_verified_init();
        v.token = l.out;
        v.accepted = l.accepted;
        CHECK_STATUS(raffle_verify(l.run.plan, &logits, &params, &d, &v, &l.run.launch, NULL), RAFFLE_OK);
        for (int lane = 0; lane < LANES; ++lane) count[l.out[2 * lane]] += 1;
    }
    runner_free(l.run);
    CHECK(fit(count, law, m.vocab, 400 * LANES, &cells) < P_LEAST, "shared random bits were not noticed");
}

int main(void) {
    RUN(rejection_by_logits);
    RUN(rejection_by_probabilities);
    RUN(rejection_by_tokens);
    RUN(block_by_logits);
    RUN(block_by_tokens);
    RUN(match_by_tokens);
    RUN(trees);
    RUN(tree_match);
    RUN(filters);
    RUN(penalties);
    RUN(blocks_accept_more);
    RUN(shared_noise_is_seen);
    return test_report("speculative");
}
