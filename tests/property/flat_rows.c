/* flat_rows.c - top-p on rows of which thousands of tokens stay, where a sketch of the row says where to look
 * (src/cpu/row_flat.h): rows that it sees right, rows made so that it is wrong by much in either direction, and rows of so many
 * equal logits that no list holds them. Vocabularies of 16 n groups and a rest, because lists are made of 16 groups at a time.
 * The oracle has each token and ticket. */
#include <math.h>
#include <stdlib.h>

#include "../common/batch.h"

enum { BELL, NARROW, EVEN, EQUAL, TWO, COARSE, FEW_VALUES, SLOPED, FOOLED_UP, FOOLED_DOWN, HIDDEN, HOLES, EDGE, FLAT_KINDS };
static const char *const flat_names[FLAT_KINDS] = {"bell",   "narrow bell",  "even",         "equal",       "two values",
                                                   "coarse", "few values",   "sloped",       "sketch above", "sketch below",
                                                   "hidden peak", "holes",   "heavy edge"};

/* Whether a sketch of every 32nd vector sees token i; rows take turns with the lengths of vectors. */
static int in_sketch(int64_t i, int64_t row) {
    static const int64_t lanes[] = {16, 8, 4, 1};
    return i / lanes[row % 4] % 32 == 0;
}

static float flat_logit(int kind, int64_t i, int64_t row, int64_t vocab, test_random *r) {
    const float x = random_bell(r);
    switch (kind) {
    case NARROW: return 20.0f + 0.05f * x;
    case EVEN: return (float)(i * 7919 % 4099) * 0x1p-10f;
    case EQUAL: return -3.0f;
    case TWO: return random_below(r, 3) ? 0.0f : 0.5f;
    case COARSE: return floorf(8.0f * x) * 0.125f;
    case FEW_VALUES: return (float)random_below(r, 5) * 0.25f;
    case SLOPED: return x + 4.0f * (float)i / (float)vocab;
    case FOOLED_UP: return in_sketch(i, row) ? x + 1.5f : x;
    case FOOLED_DOWN: return in_sketch(i, row) ? x - 1.5f : x;
    case HIDDEN: return i == vocab - 7 ? 6.0f : 0.5f * x;
    case HOLES: return i % 3 ? x : i % 2 ? -INFINITY : NAN;
    case EDGE: return i >= vocab / 256 * 256 ? 2.0f + 0.1f * x : x; /* the threshold is among the tokens of the last group */
    default: return x;
    }
}

static void flat_fill(batch *b, test_random *r) {
    for (int64_t row = 0; row < b->rows; ++row) {
        const int kind = (int)(row % FLAT_KINDS);
        b->kind[row] = flat_names[kind];
        b->row_seed[row] = r->state;
        for (int64_t i = 0; i < b->vocab; ++i) {
            const float x = flat_logit(kind, i, row / FLAT_KINDS + b->vocab, b->vocab, r);
            vector_store(b->data + row * b->stride * element_bytes(b->dtype), b->dtype, i, float_bits(x));
        }
    }
}

/* Top-p mostly alone, sometimes with top-k so large that no list holds it, or min-p; with every flag. */
static void flat_params(batch *b, test_random *r) {
    static const float shares[] = {0.9f, 0.5f, 0.99f, 0.1f, 0.999f, 0x1.fffffep-1f, 0.75f, 0.05f};
    static const float temperatures[] = {0.8f, 1.0f, 2.5f, 0.5f};
    b->flags = random_below(r, 2) ? (uint32_t)random_below(r, 32) : 0;
    for (int64_t i = 0; i < b->rows; ++i) {
        b->temperature[i] = temperatures[random_below(r, 4)];
        b->top_p[i] = random_below(r, 3) ? shares[random_below(r, 8)] : (float)random_unit(r);
        b->top_k[i] = random_below(r, 4) ? 0 : (int32_t)(1 + random_below(r, b->vocab));
        b->min_p[i] = random_below(r, 4) ? 0.0f : (float)(0.3 * random_unit(r));
        b->seed[i] = random_bits(r);
        b->position[i] = random_bits(r) >> 40;
    }
}

static void flat_explain(const batch *b, runner r, const raffle_logits *logits, const raffle_params *params, const char *isa) {
    for (int64_t i = 0; i < b->rows; ++i) {
        const oracle_answer *w = &b->wanted[i];
        raffle_explanation e = raffle_explanation_init();
        CHECK_STATUS(raffle_explain(r.plan, logits, params, i, &e, &r.launch, NULL), RAFFLE_OK);
        if (test_note(e.token == w->token && e.fates[RAFFLE_KEPT] == w->kept_count &&
                      (w->greedy || (e.row_tickets == w->row_mass && e.draw_tickets == w->draw_mass && e.drawn == w->drawn)))) {
            printf("%s: %s: kept %lld tickets %llu, oracle %lld %llu\n", test_state.name, isa, (long long)e.fates[RAFFLE_KEPT],
                   (unsigned long long)e.draw_tickets, (long long)w->kept_count, (unsigned long long)w->draw_mass);
            batch_print(b, i);
        }
    }
}

static void flat_run(const batch *b) {
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        const char *name = raffle_isa_name(every_isa[i]);
        runner r = runner_make(b->dtype, b->vocab, every_isa[i]);
        outputs o;
        outputs_poison(&o);
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
        outputs_check(&o, b, NULL, name);
        flat_explain(b, r, &logits, &params, name);
        runner_free(r);
    }
}

static void flat_batches(int64_t vocab, int64_t batches) {
    test_random r = {(uint64_t)vocab};
    for (int64_t n = 0; n < test_amount(batches); ++n) {
        batch b;
        batch_alloc(&b, FLAT_KINDS, vocab, (int)((n + vocab) % 3), n % 2 ? 5 : 0, 0);
        flat_fill(&b, &r);
        if ((n + vocab) % 4 == 3) batch_allow(&b, &r);
        for (int round = 0; round < (getenv("RAFFLE_TEST_QUICK") ? 1 : 3); ++round) {
            flat_params(&b, &r);
            batch_ask_oracle(&b);
            flat_run(&b);
        }
        batch_free(&b);
    }
}

TEST(below_the_least_vocabulary) { flat_batches(8191, 2); }
TEST(whole_groups) { flat_batches(8192, 4); }
TEST(sixteen_groups_and_a_rest) {
    flat_batches(8192 + 1, 4);
    flat_batches(8192 + 209, 4);
    flat_batches(16384 + 132, 4);
    flat_batches(12288 + 255, 4);
}
TEST(other_groups_and_a_rest) {
    flat_batches(9001, 4);
    flat_batches(32000 + 31, 3);
}
TEST(large) {
    if (getenv("RAFFLE_TEST_QUICK")) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    flat_batches(128256, 2);
}

int main(void) {
    RUN(below_the_least_vocabulary);
    RUN(whole_groups);
    RUN(sixteen_groups_and_a_rest);
    RUN(other_groups_and_a_rest);
    RUN(large);
    return test_report("flat_rows");
}
