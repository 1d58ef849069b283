/* models.h - a target and a draft model for speculative.c, and the exact law of the texts that the target writes.
 *
 * Both models are chains: the row of the next token depends on the token before, so that pairs of tokens have a law too. Row 0 begins a
 * text. With penalties the row depends on all tokens before. */
#ifndef RAFFLE_TESTS_MODELS_H
#define RAFFLE_TESTS_MODELS_H

#include "../common/ask.h"
#include "../oracle/softmax.h"

/* A call with 8 drafts emits 9 tokens: in a long text all of them are tested, and the first of the call behind it. */
enum { VOCAB_MAX = 12, DRAFTS = 8, SHORT_TEXT = 3, LONG_TEXT = 10 };

typedef enum chosen { BY_LOGITS, BY_PROBABILITIES, BY_TOKENS, BY_TREE, BY_DEEP_TREE } chosen;

/* Two models, and how they are sampled. */
typedef struct model {
    const char *name;
    int32_t vocab, text; /* tokens of a text that are tested */
    float target[VOCAB_MAX][VOCAB_MAX], draft[VOCAB_MAX][VOCAB_MAX];
    oracle_case how, draft_how; /* parameters only */
    raffle_extra extra, draft_extra; /* penalties, if `penalised`; texts begin without a history */
    int penalised;
    chosen by;
    int32_t method, drafts; /* drafts of a call: 1 to so many */
} model;

static int is_tree(const model *m) { return m->by == BY_TREE || m->by == BY_DEEP_TREE; }

/* Whether each draft is judged alone, by what is known of its law: then it is accepted with the probability 1 - total variation. */
static int has_rate(const model *m) {
    return m->method == RAFFLE_REJECTION && (m->by == BY_LOGITS || m->by == BY_PROBABILITIES) && !m->penalised;
}

/* ---- random pairs ---- */

/* How the draft relates to the target. */
typedef enum relation { NEAR, FAR, SHARP_TARGET, SHARP_DRAFT, FLAT, TOUCHING, DISJOINT, EQUAL, SHARP, RELATIONS } relation;
static const char *const relations[] = {"near", "far", "sharp target", "sharp draft", "flat", "touching", "disjoint", "equal", "sharp"};

static float target_logit(relation how, double a) {
    if (how == SHARP_TARGET || how == SHARP) a *= 4;
    return (float)(how == FLAT ? 1 : a);
}

static float draft_logit(relation how, double a, double b) {
    if (how == NEAR) return (float)(a + 0.4 * b);
    if (how == SHARP) return (float)(4 * a + 0.4 * b);
    if (how == EQUAL) return (float)a;
    return (float)(how == SHARP_DRAFT ? 4 * b : b);
}

static model model_make(relation how, chosen by, int32_t method, int32_t drafts, int32_t vocab, uint64_t seed) {
    model m;
    test_random r = {seed};
    memset(&m, 0, sizeof m);
    m.name = relations[how];
    m.vocab = vocab;
    m.text = SHORT_TEXT;
    m.by = by;
    m.method = method;
    m.drafts = drafts;
    m.how = m.draft_how = ask_row(NULL, RAFFLE_F32, vocab);
    for (int i = 0; i < vocab; ++i)
        for (int j = 0; j < vocab; ++j) {
            double a = 3 * random_unit(&r), b = 3 * random_unit(&r);
            m.target[i][j] = target_logit(how, a);
            m.draft[i][j] = draft_logit(how, a, b);
            if (how == TOUCHING || how == DISJOINT) { /* one token of the target's half can be drafted, or none */
                if (j < vocab / 2) m.target[i][j] = -INFINITY;
                if (j >= vocab / 2 + (how == TOUCHING)) m.draft[i][j] = -INFINITY;
            }
        }
    return m;
}

/* ---- exact laws ---- */

/* The law of one row, which is f32. */
static void row_law(const float *row, int32_t vocab, const oracle_case *how, long double *law) {
    oracle_case c = *how;
    c.row = row;
    c.dtype = RAFFLE_F32;
    c.vocab = vocab;
    int64_t doubtful = 0;
    softmax_law(&c, law, &doubtful);
    CHECK(doubtful == 0, "a border hangs on rounding; choose another parameter");
}

/* 1 - total variation of the target's law and the draft's, behind token `before`. */
static double overlap(const model *m, int32_t before) {
    long double p[VOCAB_MAX], q[VOCAB_MAX], same = 0;
    row_law(m->target[before], m->vocab, &m->how, p);
    row_law(m->draft[before], m->vocab, &m->draft_how, q);
    for (int32_t i = 0; i < m->vocab; ++i) same += p[i] < q[i] ? p[i] : q[i];
    return (double)same;
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

/* The probabilities of a text's tokens, and of its pairs of consecutive tokens: pair[k] is of the tokens k and k + 1. */
typedef struct text_law {
    long double token[LONG_TEXT][VOCAB_MAX], pair[LONG_TEXT - 1][VOCAB_MAX * VOCAB_MAX];
} text_law;

/* Of a chain: where the token before is known, those before it do not matter. */
static void add_chain(const model *m, text_law *law) {
    long double next[VOCAB_MAX];
    next_law(m, NULL, 0, law->token[0]);
    for (int32_t k = 0; k + 1 < m->text; ++k)
        for (int32_t a = 0; a < m->vocab; ++a) {
            next_law(m, &a, 1, next);
            for (int32_t b = 0; b < m->vocab; ++b) {
                const long double chance = law->token[k][a] * next[b];
                law->pair[k][a * m->vocab + b] = chance;
                law->token[k + 1][b] += chance;
            }
        }
}

/* Of any model: all texts that begin with said[count], which has this chance, one by one. */
static void add_every_text(const model *m, int32_t *said, int32_t count, long double chance, text_law *law) {
    long double next[VOCAB_MAX];
    if (count == m->text) return;
    next_law(m, said, count, next);
    for (int32_t t = 0; t < m->vocab; ++t) {
        const long double both = chance * next[t];
        law->token[count][t] += both;
        if (count) law->pair[count - 1][said[count - 1] * m->vocab + t] += both;
        said[count] = t;
        add_every_text(m, said, count + 1, both, law);
    }
}

static void text_law_of(const model *m, text_law *law) {
    int32_t said[LONG_TEXT];
    memset(law, 0, sizeof *law);
    if (m->penalised) add_every_text(m, said, 0, 1, law);
    else add_chain(m, law);
}

#endif
