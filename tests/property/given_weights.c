/* given_weights.c - rows of probabilities or unnormalised weights instead of logits, and rows shared by several results:
 * the oracle's tokens on every instruction set, the exact law, and agreement with sampling from the logits. */
#include <math.h>

#include "common/batch.h"
#include "common/pick.h"
#include "common/weight_rows.h"

enum { VOCAB_LARGE = 6000 };

static runner plan_of(int dtype, int64_t vocab, raffle_isa isa) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.dtype = dtype;
    desc.vocab = vocab;
    desc.isa = isa;
    desc.input = RAFFLE_PROBS;
    return runner_open(&desc);
}

static void batch_weights(batch *b, test_random *r, int64_t vocab) {
    batch_alloc(b, 1 + random_below(r, 8), vocab, (int)random_below(r, 3), random_below(r, 4), random_below(r, 8));
    b->flags = pick_flags(r);
    for (int64_t i = 0; i < b->rows; ++i) {
        b->kind[i] = weight_kinds[random_below(r, WEIGHT_KINDS)];
        b->row_seed[i] = random_bits(r) >> 40;
        for (int64_t t = 0; t < vocab; ++t)
            vector_store(b->data + i * b->stride * element_bytes(b->dtype), b->dtype, t,
                         float_bits(weight_at(b->kind[i], b->row_seed[i], vocab, t)));
        b->temperature[i] = 1.0f; /* the oracle must not look at it */
        b->top_k[i] = pick_top_k(r, vocab);
        b->top_p[i] = pick_top_p(r);
        b->min_p[i] = pick_min_p(r);
        b->seed[i] = random_bits(r);
        b->position[i] = random_bits(r) >> 50;
    }
    if (random_below(r, 3) == 0) {
        b->allow = test_alloc((size_t)(b->rows * b->words) * 4);
        for (int64_t i = 0; i < b->rows; ++i) vector_allow_make(b->row_seed[i], vocab, b->allow + i * b->words);
    }
}

static oracle_case case_of(const batch *b, int64_t row) {
    oracle_case c = batch_case(b, row);
    c.input = RAFFLE_PROBS;
    return c;
}

static int64_t a_vocab(test_random *r) {
    static const int64_t some[] = {1, 2, 3, 15, 17, 255, 256, 257, 512, 1023, 4096, 4097};
    return random_below(r, 2) ? some[random_below(r, 12)] : 1 + random_below(r, VOCAB_LARGE);
}

static raffle_logits logits_of(const batch *b) {
    raffle_logits l = batch_logits(b);
    return l;
}

TEST(tokens_of_weights) {
    test_random r = {21};
    for (int64_t n = 0; n < test_amount(1500); ++n) {
        batch b;
        batch_weights(&b, &r, a_vocab(&r));
        for (int64_t i = 0; i < b.rows; ++i) {
            oracle_case c = case_of(&b, i);
            b.wanted[i] = oracle_sample(&c, NULL, NULL);
        }
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            runner own = plan_of(b.dtype, b.vocab, every_isa[i]);
            raffle_params params = batch_params(&b);
            raffle_logits logits = logits_of(&b);
            raffle_error error = raffle_error_init();
            outputs o;
            outputs_poison(&o);
            params.temperature = NULL;
            CHECK(raffle_sample(own.plan, &logits, &params, &o.result, &own.launch, &error) == RAFFLE_OK, "%s", error.text);
            outputs_check(&o, &b, NULL, raffle_isa_name(every_isa[i]));
            runner_free(own);
        }
        batch_free(&b);
    }
}

/* What a batch becomes: to [rows, vocab]. No seed is needed. */
typedef enum form { RENORMALISED, LOGARITHM, MASKED } form;
static void weights_write(const batch *b, raffle_isa isa, form form, float *to) {
    runner own = plan_of(b->dtype, b->vocab, isa);
    raffle_params params = batch_params(b);
    raffle_logits logits = logits_of(b);
    raffle_output o = raffle_output_init();
    raffle_error error = raffle_error_init();
    params.temperature = NULL;
    params.seed = params.position = NULL;
    o.data = to;
    o.flags = form == LOGARITHM ? RAFFLE_LOG : 0;
    CHECK((form == MASKED ? raffle_mask : raffle_softmax)(own.plan, &logits, &params, &o, &own.launch, &error) == RAFFLE_OK, "%s",
          error.text);
    runner_free(own);
}

/* Renormalised probabilities: the oracle's bits, and x / sum over the kept tokens in long double. */
TEST(weights_renormalised) {
    test_random r = {22};
    for (int64_t n = 0; n < test_amount(500); ++n) {
        batch b;
        batch_weights(&b, &r, a_vocab(&r));
        float *wanted = test_alloc((size_t)b.vocab * 4), *got = test_alloc((size_t)(b.rows * b.vocab) * 4);
        float *masked = test_alloc((size_t)(b.rows * b.vocab) * 4);
        uint8_t *kept = test_alloc((size_t)b.vocab);
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            weights_write(&b, every_isa[i], RENORMALISED, got);
            weights_write(&b, every_isa[i], MASKED, masked);
            for (int64_t row = 0; row < b.rows; ++row) {
                oracle_case c = case_of(&b, row);
                oracle_answer a = oracle_sample(&c, kept, NULL);
                oracle_probabilities(&c, 0, wanted);
                const float *p = got + row * b.vocab;
                long double sum = 0;
                double worst = 0;
                int64_t wrong = 0;
                for (int64_t t = 0; t < b.vocab; ++t) {
                    float x = oracle_load(c.row, c.dtype, t);
                    wrong += float_bits(masked[row * b.vocab + t]) != float_bits(kept[t] ? x : 0.0f);
                    sum += kept[t] ? (long double)x : 0;
                }
                for (int64_t t = 0; t < b.vocab && !a.greedy && a.kept_count; ++t) {
                    long double exact = kept[t] ? (long double)oracle_load(c.row, c.dtype, t) / sum : 0;
                    if (isinf((double)sum)) exact = isinf(oracle_load(c.row, c.dtype, t)) ? (long double)p[t] : 0;
                    double error_of = exact >= 0x1p-126L ? (double)(fabsl(p[t] - exact) / exact) / 2e-7 : (double)p[t] / 0x1p-126;
                    if (error_of > worst) worst = error_of;
                }
                if (test_note(!memcmp(p, wanted, (size_t)b.vocab * 4) && !wrong && worst <= 1)) {
                    printf("%s: %s: bits differ, %lld masked values wrong, or error %.3g of what is allowed\n", test_state.name,
                           raffle_isa_name(every_isa[i]), (long long)wrong, worst);
                    batch_print(&b, row);
                }
            }
        }
        free(wanted);
        free(got);
        free(masked);
        free(kept);
        batch_free(&b);
    }
}

/* Logarithms of the same: the oracle's bits, and within 1e-6 of long double, relative where they are large. */
TEST(logarithms_of_weights) {
    test_random r = {25};
    for (int64_t n = 0; n < test_amount(300); ++n) {
        batch b;
        batch_weights(&b, &r, a_vocab(&r));
        float *wanted = test_alloc((size_t)b.vocab * 4), *got = test_alloc((size_t)(b.rows * b.vocab) * 4);
        uint8_t *kept = test_alloc((size_t)b.vocab);
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            weights_write(&b, every_isa[i], LOGARITHM, got);
            for (int64_t row = 0; row < b.rows; ++row) {
                oracle_case c = case_of(&b, row);
                oracle_answer a = oracle_sample(&c, kept, NULL);
                long double sum = 0, worst = 0;
                oracle_probabilities(&c, 1, wanted);
                for (int64_t t = 0; t < b.vocab; ++t) sum += kept[t] ? (long double)oracle_load(c.row, c.dtype, t) : 0;
                for (int64_t t = 0; t < b.vocab && !a.greedy && !isinf((double)sum); ++t) {
                    long double exact = kept[t] ? logl((long double)oracle_load(c.row, c.dtype, t) / sum) : -INFINITY;
                    long double off = kept[t] ? fabsl((long double)got[row * b.vocab + t] - exact) / fmaxl(1, fabsl(exact))
                                              : got[row * b.vocab + t] != -INFINITY;
                    if (off > worst) worst = off;
                }
                if (test_note(!memcmp(got + row * b.vocab, wanted, (size_t)b.vocab * 4) && worst < 1e-6L)) {
                    printf("%s: %s: bits differ, or off by %Lg\n", test_state.name, raffle_isa_name(every_isa[i]), worst);
                    batch_print(&b, row);
                }
            }
        }
        free(wanted);
        free(got);
        free(kept);
        batch_free(&b);
    }
}

/* ---- rows shared by several results --------------------------------------------------------------- */

/* What a result asks for beyond its parameters: nothing, a filter, chance among them, or an edit that shows. */
static raffle_extra an_extra(test_random *r, int64_t vocab) {
    static const int32_t ids[] = {0, 1, 2};
    static const float bias[] = {30.0f};
    raffle_extra e = {0};
    switch (random_below(r, 8)) {
    case 0: e.epsilon = 1e-4f; break;
    case 1: e.keep_least = 3; break;
    case 2: e.typical_p = 0.8f; break;
    case 3:
        e.xtc_probability = 0.5f;
        e.xtc_threshold = random_below(r, 2) ? -1.0f : 0.001f; /* all tokens are likely, or many */
        break;
    case 4:
    case 5:
        e.bias_id = ids + random_below(r, vocab < 3 ? vocab : 3);
        e.bias = bias;
        e.bias_count = 1;
        break;
    case 6: e.flags = RAFFLE_TOP_K_EXACT; break;
    default: break;
    }
    return e;
}

TEST(rows_by_index) {
    test_random r = {23};
    for (int64_t n = 0; n < test_amount(150); ++n) {
        batch b;
        int probs = n % 2, masked = n / 2 % 2, asked = !probs && n / 4 % 2, told = !probs && n / 8 % 2;
        batch_weights(&b, &r, a_vocab(&r));
        enum { RESULTS = BATCH_ROWS_MAX };
        const int64_t words = (b.vocab + 31) / 32;
        uint32_t *allow = test_alloc((size_t)(RESULTS * words) * sizeof *allow);
        raffle_extra extra[RESULTS];
        int32_t index[RESULTS], slot[RESULTS];
        uint64_t seed[RESULTS], position[RESULTS];
        float temperature[RESULTS], top_p[RESULTS], min_p[RESULTS];
        int32_t top_k[RESULTS];
        for (int i = 0; i < RESULTS; ++i) { /* runs of one row with one set of parameters, and changes of each */
            int same = i && random_below(&r, 4);
            index[i] = same ? index[i - 1] : (int32_t)random_below(&r, b.rows);
            int own = same && random_below(&r, 6) ? -1 : (int)random_below(&r, b.rows);
            temperature[i] = own < 0 ? temperature[i - 1] : pick_temperature(&r);
            top_k[i] = own < 0 ? top_k[i - 1] : b.top_k[own];
            top_p[i] = own < 0 ? top_p[i - 1] : b.top_p[own];
            min_p[i] = own < 0 ? min_p[i - 1] : b.min_p[own];
            extra[i] = i && random_below(&r, 2) ? extra[i - 1] : an_extra(&r, b.vocab);
            const int mask_again = i && random_below(&r, 4) > 0, sparse = random_below(&r, 3) == 0;
            for (int64_t w = 0; w < words; ++w) {
                const uint64_t bits = random_bits(&r);
                const uint32_t one = sparse ? (uint32_t)(bits & bits >> 16 & bits >> 32) : (uint32_t)(bits | bits >> 32);
                allow[i * words + w] = mask_again ? allow[(i - 1) * words + w] : one;
            }
            if (mask_again && random_below(&r, 8) == 0) allow[i * words + random_below(&r, words)] ^= 1u << random_below(&r, 32);
            seed[i] = random_bits(&r);
            position[i] = (uint64_t)i;
            slot[i] = i;
        }
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            runner own = probs ? plan_of(b.dtype, b.vocab, every_isa[i])
                               : runner_make_for(b.dtype, b.vocab, every_isa[i],
                                                 (asked ? RAFFLE_PLAN_EXTRA : 0) | (told ? RAFFLE_PLAN_REPORT : 0), 0);
            raffle_params params = raffle_params_init();
            raffle_logits logits = logits_of(&b);
            raffle_result result = raffle_result_init();
            raffle_error error = raffle_error_init();
            int32_t token[RESULTS];
            uint32_t row_flags[RESULTS];
            params.flags = b.flags;
            params.slot = slot;
            params.slots = RESULTS;
            params.temperature = probs ? NULL : temperature;
            params.top_k = top_k;
            params.top_p = top_p;
            params.min_p = min_p;
            params.seed = seed;
            params.position = position;
            params.allow = masked ? allow : NULL;
            params.allow_stride = masked ? words : 0;
            params.extra = asked ? extra : NULL;
            params.extra_bytes = asked ? sizeof extra[0] : 0;
            raffle_report report = raffle_report_init();
            float chosen[RESULTS];
            report.chosen = chosen;
            if (told) result.report = &report;
            logits.row_index = index;
            logits.rows = RESULTS;
            logits.data_rows = b.rows;
            result.token = token;
            result.row_flags = row_flags;
            CHECK(raffle_sample(own.plan, &logits, &params, &result, &own.launch, &error) == RAFFLE_OK, "%s", error.text);
            for (int j = 0; j < RESULTS; ++j) {
                oracle_case c = batch_case(&b, index[j]);
                c.input = probs ? RAFFLE_PROBS : RAFFLE_LOGITS;
                c.allow = masked ? allow + j * words : NULL;
                c.extra = asked ? &extra[j] : NULL;
                c.temperature = temperature[j];
                c.top_k = top_k[j];
                c.top_p = top_p[j];
                c.min_p = min_p[j];
                c.seed = seed[j];
                c.position = position[j];
                oracle_answer a = oracle_sample(&c, NULL, NULL);
                CHECK(token[j] == a.token && row_flags[j] == a.row_flags, "%s: result %d of row %d: %d for %d",
                      raffle_isa_name(every_isa[i]), j, index[j], token[j], a.token);
            }
            runner_free(own);
        }
        free(allow);
        batch_free(&b);
    }
}

/* ---- what softmax says is what is drawn -------------------------------------------------------------- */

/* Samples from softmax's output: the kept sets, the masks and greedy are those of the logits. Logits are multiples of
 * 1/64, so that no two become one probability. */
TEST(softmax_then_filters) {
    test_random r = {24};
    enum { V = 3000 };
    float *x = test_alloc(V * 4), *p = test_alloc(V * 4);
    uint32_t kept[2][(V + 31) / 32];
    runner logits_plan = runner_make(RAFFLE_F32, V, RAFFLE_ISA_BEST), probs_plan = plan_of(RAFFLE_F32, V, RAFFLE_ISA_BEST);
    for (int64_t n = 0; n < test_amount(1000); ++n) {
        for (int i = 0; i < V; ++i) x[i] = rintf(64 * vector_bell(random_bits(&r))) / 64;
        float temperature = 0.2f + 2 * (float)random_unit(&r), top_p = n % 3 ? pick_top_p(&r) : 1.0f;
        float min_p = n % 2 ? pick_min_p(&r) : 0.0f;
        int32_t top_k = n % 5 ? pick_top_k(&r, V) : 0;
        raffle_params params = raffle_params_init();
        raffle_logits rows = raffle_logits_init();
        raffle_output o = raffle_output_init();
        params.temperature = &temperature;
        rows.data = x;
        rows.rows = 1;
        o.data = p;
        CHECK_STATUS(raffle_softmax(logits_plan.plan, &rows, &params, &o, &logits_plan.launch, NULL), RAFFLE_OK);
        params.flags = (uint32_t)random_below(&r, 16) & ~(uint32_t)RAFFLE_FILTERS_FIRST;
        params.top_k = &top_k;
        params.top_p = &top_p;
        params.min_p = &min_p;
        o.data = NULL;
        o.kept = kept[0];
        CHECK_STATUS(raffle_mask(logits_plan.plan, &rows, &params, &o, &logits_plan.launch, NULL), RAFFLE_OK);
        params.temperature = NULL;
        rows.data = p;
        o.kept = kept[1];
        CHECK_STATUS(raffle_mask(probs_plan.plan, &rows, &params, &o, &probs_plan.launch, NULL), RAFFLE_OK);
        int64_t differ = 0;
        for (int i = 0; i < V; ++i) differ += (kept[0][i / 32] ^ kept[1][i / 32]) >> (i % 32) & 1;
        CHECK(differ == 0, "T %g k %d p %g min_p %g flags %u: %lld tokens kept by one and not the other", (double)temperature,
              top_k, (double)top_p, (double)min_p, params.flags, (long long)differ);
    }
    runner_free(logits_plan);
    runner_free(probs_plan);
    free(x);
    free(p);
}

/* Draws from softmax's output follow softmax: chi-square, fixed seed. */
TEST(draws_from_softmax) {
    enum { V = 64, DRAWS = 400000 };
    float x[V], p[V], temperature = 0.7f;
    long double law[V], sum = 0;
    for (int i = 0; i < V; ++i) x[i] = vector_bell(vector_hash(5, (uint64_t)i)) * 0.6f;
    for (int i = 0; i < V; ++i) sum += law[i] = expl((long double)x[i] / (long double)temperature);
    runner own = runner_make(RAFFLE_F32, V, RAFFLE_ISA_BEST), from = plan_of(RAFFLE_F32, V, RAFFLE_ISA_BEST);
    raffle_params params = raffle_params_init();
    raffle_logits rows = raffle_logits_init();
    raffle_output o = raffle_output_init();
    params.temperature = &temperature;
    rows.data = x;
    rows.rows = 1;
    o.data = p;
    CHECK_STATUS(raffle_softmax(own.plan, &rows, &params, &o, &own.launch, NULL), RAFFLE_OK);
    int32_t *token = test_alloc(DRAWS * 4), *index = test_alloc(DRAWS * 4);
    uint64_t *seed = test_alloc(DRAWS * 8), *position = test_alloc(DRAWS * 8);
    for (int i = 0; i < DRAWS; ++i) index[i] = 0, seed[i] = 99, position[i] = (uint64_t)i;
    raffle_result result = raffle_result_init();
    result.token = token;
    params.temperature = NULL;
    params.seed = seed;
    params.position = position;
    rows.data = p;
    rows.rows = DRAWS;
    rows.row_index = index;
    rows.data_rows = 1;
    CHECK_STATUS(raffle_sample(from.plan, &rows, &params, &result, &from.launch, NULL), RAFFLE_OK);
    double count[V] = {0}, chi = 0;
    for (int i = 0; i < DRAWS; ++i) count[token[i]]++;
    for (int i = 0; i < V; ++i) {
        double expected = (double)(law[i] / sum) * DRAWS;
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    CHECK(chi < 63 + 4 * sqrt(2 * 63), "chi-square of 63 degrees of freedom is %.1f", chi); /* 4 standard deviations */
    runner_free(own);
    runner_free(from);
    free(token);
    free(index);
    free(seed);
    free(position);
}

int main(void) {
    RUN(tokens_of_weights);
    RUN(weights_renormalised);
    RUN(logarithms_of_weights);
    RUN(rows_by_index);
    RUN(softmax_then_filters);
    RUN(draws_from_softmax);
    return test_report("given_weights");
}
