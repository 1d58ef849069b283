/* speculative.c - tokens that come through raffle_verify follow the law of plain sampling, and drafts are accepted as often as they
 * should be. Seeds are fixed, so a result is a fact; README.md says how often others would refuse a right sampler. */
#include <math.h>
#include <stdlib.h>

#include "../common/fit.h"
#include "../oracle/verify_oracle.h"
#include "texts.h"

/* A fit fails below P_LEAST, 1e-4. Of a long text there are 19, so that each has to be worse to fail. */
static const double P_LEAST_LONG = 1e-6;
static const double Z_MOST = 4.0;

/* ---- checks ---- */

/* Each token of the texts and each pair of consecutive tokens, against plain sampling. */
static void check_law(const model *m, const tally *sum, const char *what) {
    static text_law law;
    const double least = m->text == LONG_TEXT ? P_LEAST_LONG : P_LEAST;
    double worst_token = 1, worst_pair = 1;
    int cells;
    text_law_of(m, &law);
    for (int32_t k = 0; k < m->text; ++k) {
        const double p = fit(sum->token[k], law.token[k], m->vocab, sum->texts, &cells);
        CHECK(p > least, "%s, %s: token %d: p = %g", what, m->name, k, p);
        worst_token = fmin(worst_token, p);
    }
    for (int32_t k = 0; k + 1 < m->text; ++k) {
        const double p = fit(sum->pair[k], law.pair[k], m->vocab * m->vocab, sum->texts, &cells);
        CHECK(p > least, "%s, %s: tokens %d and %d: p = %g", what, m->name, k, k + 1, p);
        worst_pair = fmin(worst_pair, p);
    }
    printf("     %-34s %-13s %6lld texts of %2d, %4.2f accepted a call, least p of tokens %.4f, of pairs %.4f\n", what, m->name,
           (long long)sum->texts, m->text, (double)sum->accepted / (double)sum->calls, worst_token, worst_pair);
}

/* At each depth of a call the share of drafts that is accepted is 1 - total variation of the rows they are judged by. Errors are about
 * normal where many drafts are judged. Where few are they are not: so four drafts more or less are always let pass. */
static void check_rate(const model *m, const tally *sum) {
    double worst = 0;
    for (int k = 0; k < m->drafts; ++k) {
        const double off = fabs((double)sum->stood[k] - sum->expected[k]), error = sqrt(sum->variance[k]);
        const double most = error > 0 ? Z_MOST * error + 4 : 1e-9 * (double)sum->judged[k]; /* none or all: no chance is left */
        CHECK(off <= most, "%s: depth %d: %lld of %lld accepted, expected %.1f, error %.1f", m->name, k, (long long)sum->stood[k],
              (long long)sum->judged[k], sum->expected[k], error);
        if (most > 0) worst = fmax(worst, off / most);
    }
    printf("     %-13s first drafts: %.5f accepted, 1 - total variation %.5f; at the worst depth %.0f %% of what may be off\n", m->name,
           (double)sum->stood[0] / (double)sum->judged[0], sum->expected[0] / (double)sum->judged[0], 100 * worst);
}

static tally check_model(const model *m, int64_t texts, const char *what) {
    tally sum = run_model(m, test_amount(texts));
    check_law(m, &sum, what);
    if (has_rate(m)) check_rate(m, &sum);
    return sum;
}

/* ---- every way to verify ---- */

/* Relations from near to equal, with up to 1 draft, 2, ... 8. */
static void check_relations(chosen by, int32_t method, const char *what, int64_t texts) {
    for (relation how = NEAR; how <= EQUAL; ++how) {
        model m = model_make(how, by, method, 1 + (int32_t)how, 5 + (int32_t)how, 40 + (uint64_t)how);
        tally sum = check_model(&m, texts, what);
        if (how == DISJOINT && !is_tree(&m)) CHECK(sum.accepted == 0, "disjoint models: %lld accepted", (long long)sum.accepted);
        if (how == EQUAL && by == BY_LOGITS)
            CHECK(sum.accepted == sum.drafted, "equal models: %lld of %lld", (long long)sum.accepted, (long long)sum.drafted);
    }
}

/* Up to 8 drafts, all of which may be accepted, and texts long enough to show each: without filters, and with filters on both sides. */
static void check_long_texts(chosen by, int32_t method, const char *what) {
    static const relation some[] = {NEAR, SHARP, FAR};
    const int count = by == BY_LOGITS || by == BY_PROBABILITIES ? 3 : 2; /* of tokens alone a far model has hardly any accepted */
    for (int i = 0; i < 2 * count; ++i) {
        model m = model_make(some[i / 2], by, method, DRAFTS, 6, 140 + (uint64_t)i);
        char name[64];
        m.text = LONG_TEXT;
        if (i % 2) m.how.top_k = 4, m.how.temperature = 0.8f, m.draft_how.top_p = 0.9f;
        snprintf(name, sizeof name, "%s%s", what, i % 2 ? ", filters" : "");
        check_model(&m, 4000, name);
    }
}

TEST(rejection_by_logits) {
    check_relations(BY_LOGITS, RAFFLE_REJECTION, "rejection, logits", 60000);
    check_long_texts(BY_LOGITS, RAFFLE_REJECTION, "rejection, logits");
}
TEST(rejection_by_probabilities) {
    check_relations(BY_PROBABILITIES, RAFFLE_REJECTION, "rejection, probabilities", 20000);
    check_long_texts(BY_PROBABILITIES, RAFFLE_REJECTION, "rejection, probabilities");
}
TEST(rejection_by_tokens) {
    check_relations(BY_TOKENS, RAFFLE_REJECTION, "rejection, tokens", 60000);
    check_long_texts(BY_TOKENS, RAFFLE_REJECTION, "rejection, tokens");
}
TEST(block_by_logits) {
    check_relations(BY_LOGITS, RAFFLE_BLOCK, "block, logits", 60000);
    check_long_texts(BY_LOGITS, RAFFLE_BLOCK, "block, logits");
}
TEST(block_by_probabilities) {
    check_relations(BY_PROBABILITIES, RAFFLE_BLOCK, "block, probabilities", 10000);
    check_long_texts(BY_PROBABILITIES, RAFFLE_BLOCK, "block, probabilities");
}
TEST(block_by_tokens) {
    check_relations(BY_TOKENS, RAFFLE_BLOCK, "block, tokens", 40000);
    check_long_texts(BY_TOKENS, RAFFLE_BLOCK, "block, tokens");
}
TEST(match_by_tokens) {
    check_relations(BY_TOKENS, RAFFLE_MATCH, "match", 40000);
    check_long_texts(BY_TOKENS, RAFFLE_MATCH, "match");
}
TEST(trees) {
    check_relations(BY_TREE, RAFFLE_REJECTION, "tree", 60000);
    check_long_texts(BY_DEEP_TREE, RAFFLE_REJECTION, "deep tree");
}
TEST(tree_match) {
    check_relations(BY_TREE, RAFFLE_MATCH, "tree, match", 20000);
    check_long_texts(BY_DEEP_TREE, RAFFLE_MATCH, "deep tree, match");
}

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
        check_model(&m, 60000, what);
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
        m.text = 6; /* all that 4 drafts and the token behind them come to; of longer ones there are too many to add up */
        m.penalised = 1;
        m.extra.repetition = 1.5f, m.extra.frequency = 0.6f, m.extra.presence = 0.8f;
        m.draft_extra = m.extra;
        if (i == 1) m.draft_extra.repetition = 1.0f, m.draft_extra.presence = -0.5f; /* another law, but the one drawn from */
        check_model(&m, 40000, ways[i].what);
    }
}

/* The expected number of accepted drafts of a block is at least that of rejection, and larger where it can be. */
TEST(blocks_accept_more) {
    for (relation how = NEAR; how < RELATIONS; ++how) {
        if (how == DISJOINT) continue; /* where neither accepts any */
        model m = model_make(how, BY_LOGITS, RAFFLE_REJECTION, DRAFTS, 6, 90 + (uint64_t)how);
        const int slow = how == SHARP_TARGET || how == SHARP_DRAFT || how == TOUCHING; /* many calls a text */
        const int64_t texts = slow ? 13200 : 18000;
        m.text = LONG_TEXT;
        tally by_step = check_model(&m, texts, "8 drafts, rejection");
        m.method = RAFFLE_BLOCK;
        tally by_block = check_model(&m, texts, "8 drafts, block");
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
    RUN(block_by_probabilities);
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
