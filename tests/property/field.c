/* field.c - defects that users and reviewers found in other samplers, each as a named case that must not exist here. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "../common/ask.h"
#include "../common/pick.h"

static float llm_row[999];
static float flat_row[2000];

static oracle_case llm(void) { return ask_row(llm_row, RAFFLE_F32, 999); }

/* ---- seeds and determinism ---- */

/* Only the first seed of a batch was read. */
TEST(every_row_has_its_seed) {
    batch b;
    batch_alloc(&b, 40, 2000, RAFFLE_F32, 0, 0);
    b.flags = 0;
    int distinct = 0;
    for (int64_t i = 0; i < b.rows; ++i) {
        b.kind[i] = "flat";
        b.row_seed[i] = 0;
        memcpy(b.data + i * 8000, flat_row, 8000);
        b.temperature[i] = b.top_p[i] = 1.0f;
        b.min_p[i] = 0.0f;
        b.top_k[i] = 0;
        b.seed[i] = (uint64_t)i;
        b.position[i] = 0;
    }
    batch_ask_oracle(&b);
    runner r = runner_make(RAFFLE_F32, 2000, RAFFLE_ISA_BEST);
    raffle_params params = batch_params(&b);
    raffle_logits logits = raffle_logits_init();
    logits.data = b.data;
    logits.rows = b.rows;
    outputs o;
    outputs_poison(&o);
    CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
    outputs_check(&o, &b, NULL, "best");
    for (int64_t i = 1; i < b.rows; ++i) distinct += o.token[i] != o.token[0];
    CHECK(distinct >= 38, "only %d of 39 seeds made a difference", distinct);
    runner_free(r);
    batch_free(&b);
}

/* A step replayed the noise of the one before; a seed in the high half of the 64 bits was lost. */
TEST(seed_and_position_all_bits_count) {
    oracle_case c = ask_row(flat_row, RAFFLE_F32, 2000);
    int32_t first = ask(&c, NULL).token;
    int same = 0;
    for (int bit = 0; bit < 64; ++bit) {
        c.seed = 1 ^ 1ull << bit;
        same += ask(&c, NULL).token == first;
        c.seed = 1;
        c.position = 1ull << bit;
        same += ask(&c, NULL).token == first;
        c.position = 0;
    }
    CHECK(same <= 3, "%d of 128 changed bits gave the same token of 2000", same);
    CHECK_EQ(ask(&c, NULL).token, first); /* and the same call gives the same token */
}

/* A token changed when a batch-mate turned a filter on, or with the row's place, or with the batch's size. */
TEST(batch_mates_do_not_matter) {
    test_random random = {21};
    int32_t alone = -1;
    for (int round = 0; round < 60; ++round) {
        batch b;
        int64_t rows = 1 + round % 20, mine = random_below(&random, rows);
        batch_alloc(&b, rows, 999, RAFFLE_F32, 0, 0);
        b.flags = 0;
        for (int64_t i = 0; i < rows; ++i) {
            b.kind[i] = i == mine ? "normal" : row_kinds[random_below(&random, ROW_KINDS)];
            b.row_seed[i] = i == mine ? 5 : random_bits(&random) >> 40;
            vector_row_make(b.kind[i], b.row_seed[i], 999, RAFFLE_F32, b.data + i * b.stride * 4);
            b.temperature[i] = i == mine ? 0.8f : pick_temperature(&random);
            b.top_k[i] = i == mine ? 0 : pick_top_k(&random, 999);
            b.top_p[i] = i == mine ? 0.95f : pick_top_p(&random);
            b.min_p[i] = i == mine ? 0.0f : pick_min_p(&random);
            b.seed[i] = i == mine ? 9 : random_bits(&random);
            b.position[i] = i == mine ? 4 : random_bits(&random);
        }
        batch_ask_oracle(&b);
        runner r = runner_make(RAFFLE_F32, 999, RAFFLE_ISA_BEST);
        raffle_params params = batch_params(&b);
        raffle_logits logits = raffle_logits_init();
        logits.data = b.data;
        logits.rows = rows;
        outputs o;
        outputs_poison(&o);
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
        if (alone < 0) alone = o.token[mine];
        CHECK_EQ(o.token[mine], alone);
        outputs_check(&o, &b, NULL, "mixed batch");
        runner_free(r);
        batch_free(&b);
    }
}

/* ---- ids and edges ---- */

/* top_k = 1 drew among ties. */
TEST(top_k_1_is_argmax_among_ties) {
    const float row[5] = {0.0f, 7.0f, 7.0f, 7.0f, 1.0f};
    oracle_case c = ask_row(row, RAFFLE_F32, 5);
    c.top_k = 1;
    for (c.seed = 0; c.seed < 50; ++c.seed) CHECK_EQ(ask(&c, NULL).token, 1);
}

/* A NaN row gave the id that equals the vocabulary's size. */
TEST(nan_never_gives_an_id_out_of_range) {
    test_random random = {22};
    for (int round = 0; round < 300; ++round) {
        float row[300];
        int64_t vocab = 1 + random_below(&random, 300);
        for (int64_t i = 0; i < vocab; ++i)
            row[i] = random_below(&random, 3) ? NAN : random_below(&random, 2) ? -INFINITY : INFINITY;
        if (round % 3 == 0)
            for (int64_t i = 0; i < vocab; ++i) row[i] = NAN;
        oracle_case c = ask_row(row, RAFFLE_F32, vocab);
        c.temperature = pick_temperature(&random);
        c.top_k = pick_top_k(&random, vocab);
        c.top_p = pick_top_p(&random);
        c.min_p = pick_min_p(&random);
        c.flags = pick_flags(&random);
        c.seed = random_bits(&random);
        oracle_answer a = ask(&c, NULL);
        int empty = (a.row_flags & RAFFLE_ROW_EMPTY) != 0;
        CHECK(empty ? a.token == (c.flags & RAFFLE_EMPTY_IS_ZERO ? 0 : RAFFLE_NO_TOKEN)
                    : a.token >= 0 && a.token < vocab,
              "token %d of %lld", a.token, (long long)vocab);
        if (!empty) CHECK(row[a.token] == INFINITY, "token %d has logit %g", a.token, (double)row[a.token]);
    }
}

/* The largest draw fell behind the last token, or on one without probability. */
TEST(tokens_without_probability_are_never_drawn) {
    float row[512];
    for (int i = 0; i < 512; ++i) row[i] = i % 4 == 1 ? (float)(i % 7) : -INFINITY;
    oracle_case c = ask_row(row, RAFFLE_F32, 512);
    int64_t count[512];
    for (int way = 0; way < 3; ++way) {
        c.temperature = way == 1 ? INFINITY : 1.0f;
        c.top_p = way == 2 ? 0.99f : 1.0f;
        ask_count(&c, test_amount(20000), count);
        for (int i = 0; i < 512; ++i) CHECK(i % 4 == 1 || !count[i], "token %d was drawn", i);
    }
}

/* top_k = 0 or T = 0 gave token 0 or a uniform row. */
TEST(top_k_0_and_temperature_0) {
    oracle_case c = llm();
    int32_t best = 0;
    for (int i = 0; i < 999; ++i)
        if (llm_row[i] > llm_row[best]) best = i;
    c.temperature = 0.0f;
    CHECK_EQ(ask(&c, NULL).token, best);
    CHECK(best != 0, "a poor example");
    c.temperature = 1.0f;
    c.top_k = 0;
    CHECK_EQ(ask_kept(&c), 999);
}

/* Non-contiguous logits were read as if they were contiguous; every second, every third row of a larger tensor. */
TEST(rows_of_a_larger_tensor) {
    batch b;
    batch_alloc(&b, 12, 300, RAFFLE_BF16, 17, 6);
    b.flags = 0;
    for (int64_t i = 0; i < 12; ++i) {
        b.kind[i] = "normal";
        b.row_seed[i] = (uint64_t)i;
        vector_row_make("normal", (uint64_t)i, 300, RAFFLE_BF16, b.data + i * b.stride * 2);
        b.temperature[i] = b.top_p[i] = 1.0f;
        b.min_p[i] = 0.0f;
        b.top_k[i] = 40;
        b.seed[i] = 3;
        b.position[i] = (uint64_t)i;
    }
    batch_ask_oracle(&b);
    for (int64_t step = -3; step <= 3; ++step) {
        if (!step) continue;
        int32_t order[12];
        int64_t rows = 12 / llabs(step);
        for (int64_t i = 0; i < rows; ++i) order[i] = (int32_t)(step > 0 ? i * step : 11 + i * step);
        runner r = runner_make(RAFFLE_BF16, 300, RAFFLE_ISA_BEST);
        raffle_params params = batch_params(&b);
        params.slot = order;
        raffle_logits logits = raffle_logits_init();
        logits.data = batch_row(&b, order[0]);
        logits.rows = rows;
        logits.row_stride = b.stride * step;
        outputs o;
        outputs_poison(&o);
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
        for (int64_t i = 0; i < rows; ++i) CHECK_EQ(o.token[i], b.wanted[order[i]].token);
        runner_free(r);
    }
    batch_free(&b);
}

/* ---- wrong distributions ---- */

/* All the probability of equal logits fell on the smallest id. */
TEST(ties_share) {
    const float row[6] = {0, 2, 2, 2, 2, 1};
    oracle_case c = ask_row(row, RAFFLE_F32, 6);
    for (int way = 0; way < 4; ++way) {
        int64_t count[6];
        c.top_k = way & 1 ? 4 : 0;
        c.top_p = way & 2 ? 0.5f : 1.0f;
        ask_count(&c, 8000, count);
        int64_t each = (count[1] + count[2] + count[3] + count[4]) / 4;
        for (int i = 1; i < 5; ++i)
            CHECK(llabs(count[i] - each) < 170, "way %d: token %d drawn %lld, mean %lld", way, i, (long long)count[i],
                  (long long)each);
        if (way) CHECK_EQ(count[0] + count[5], 0);
    }
}

/* Rejection gave up and returned the best token: 43 % of the draws at top-p 0.1, and with top-k 65 to 127. */
TEST(no_collapse_to_greedy) {
    static const struct {
        int32_t k;
        float p;
    } ways[] = {{0, 0.1f}, {0, 0.01f}, {65, 1.0f}, {100, 1.0f}, {127, 1.0f}, {127, 0.1f}};
    static int64_t count[2000];
    static float row[2000];
    const int64_t each = test_amount(200); /* draws for each token that is kept */
    const double far = 6.0 * sqrt((double)each);
    for (int i = 0; i < 2000; ++i) row[i] = (float)i * -0x1p-20f; /* nearly uniform, all different */
    oracle_case c = ask_row(row, RAFFLE_F32, 2000);
    for (int way = 0; way < 6; ++way) {
        c.top_k = ways[way].k;
        c.top_p = ways[way].p;
        int64_t kept = ask_kept(&c), whole = c.top_k ? c.top_k : 2000;
        CHECK(llabs(kept - (int64_t)((float)whole * c.top_p)) <= 1, "k %d p %g keeps %lld", c.top_k, (double)c.top_p,
              (long long)kept);
        ask_count(&c, each * kept, count);
        for (int64_t i = 0; i < 2000; ++i)
            CHECK(i < kept ? (double)llabs(count[i] - each) < far : !count[i], "k %d p %g: token %lld drawn %lld times of %lld",
                  c.top_k, (double)c.top_p, (long long)i, (long long)count[i], (long long)each);
    }
}

/* min_p = 0 became log(1e-20) in a mixed batch and dropped tokens. */
TEST(min_p_0_beside_a_row_with_min_p) {
    batch b;
    batch_alloc(&b, 2, 3, RAFFLE_F32, 0, 0);
    const float row[3] = {-60.0f, -60.0f, 0.0f};
    b.flags = 0;
    for (int64_t i = 0; i < 2; ++i) {
        memcpy(b.data + i * 12, row, 12);
        b.kind[i] = "by hand";
        b.row_seed[i] = 0;
        b.temperature[i] = b.top_p[i] = 1.0f;
        b.min_p[i] = i ? 0.0f : 0.1f;
        b.top_k[i] = 0;
        b.seed[i] = b.position[i] = 1;
    }
    batch_ask_oracle(&b);
    runner r = runner_make(RAFFLE_F32, 3, RAFFLE_ISA_BEST);
    raffle_params params = batch_params(&b);
    raffle_logits logits = raffle_logits_init();
    logits.data = b.data;
    logits.rows = 2;
    for (int64_t i = 0; i < 2; ++i) {
        raffle_explanation e = raffle_explanation_init();
        CHECK_STATUS(raffle_explain(r.plan, &logits, &params, i, &e, &r.launch, NULL), RAFFLE_OK);
        CHECK_EQ(e.fates[RAFFLE_KEPT], i ? 3 : 1);
        CHECK_EQ(e.fates[RAFFLE_CUT_MIN_P], i ? 0 : 2);
    }
    runner_free(r);
    batch_free(&b);
}

/* Scaling before subtracting the maximum overflowed at low temperature and gave NaN. */
TEST(low_temperature_keeps_the_ratio) {
    const float row[3] = {10000.0f, 10000.0f - 0x1p-10f, -10000.0f};
    oracle_case c = ask_row(row, RAFFLE_F32, 3);
    c.temperature = 0x1p-10f; /* the second is e times less likely */
    int64_t count[3];
    ask_count(&c, 10000, count);
    CHECK(llabs(count[1] - 2689) < 180 && !count[2], "%lld %lld %lld", (long long)count[0], (long long)count[1],
          (long long)count[2]);
}

/* Argmax must survive any temperature and uniform logits stay uniform, in small and in large vocabularies. */
TEST(uniform_stays_uniform) {
    static float row[40000];
    static uint64_t tickets[40000];
    static const float temperatures[] = {1e-5f, 0.7f, 1.0f, 50.0f, INFINITY};
    for (int64_t vocab = 100; vocab <= 40000; vocab *= 20)
        for (int i = 0; i < 5; ++i) {
            for (int64_t t = 0; t < vocab; ++t) row[t] = -12.345f;
            oracle_case c = ask_row(row, RAFFLE_F32, vocab);
            c.temperature = temperatures[i];
            ask(&c, NULL);
            oracle_sample(&c, NULL, tickets);
            int64_t odd = 0;
            for (int64_t t = 0; t < vocab; ++t) odd += tickets[t] != tickets[0];
            CHECK_EQ(odd, 0);
        }
}

/* The kept set changed with the batch's size (ties kept below 8 rows, exactly k from 8 on). */
TEST(ties_do_not_depend_on_the_batch) {
    const float row[6] = {1, 3, 2, 3, 2, 2};
    enum { ROWS = 16 };
    float data[ROWS * 6];
    uint64_t seed[ROWS], position[ROWS];
    int32_t k[ROWS];
    for (int i = 0; i < ROWS; ++i) {
        memcpy(data + i * 6, row, sizeof row);
        seed[i] = 1;
        position[i] = 0;
        k[i] = 3;
    }
    runner r = runner_make(RAFFLE_F32, 6, RAFFLE_ISA_BEST);
    raffle_params params = raffle_params_init();
    params.seed = seed;
    params.position = position;
    params.top_k = k;
    raffle_logits logits = raffle_logits_init();
    logits.data = data;
    for (logits.rows = 1; logits.rows <= ROWS; ++logits.rows) {
        raffle_explanation e = raffle_explanation_init();
        CHECK_STATUS(raffle_explain(r.plan, &logits, &params, logits.rows - 1, &e, &r.launch, NULL), RAFFLE_OK);
        CHECK_EQ(e.fates[RAFFLE_KEPT], 5);
    }
    runner_free(r);
}

/* Adding a constant to every logit of a row (exactly) changed speed and result of a bucket sort made for [-10, 10]. */
TEST(a_shift_of_all_logits_keeps_the_set) {
    float row[999], moved[999];
    for (int i = 0; i < 999; ++i) row[i] = floorf(llm_row[i] * 256.0f) / 256.0f;
    for (int shift = -512; shift <= 512; shift += 64) {
        for (int i = 0; i < 999; ++i) moved[i] = row[i] + (float)shift;
        oracle_case a = ask_row(row, RAFFLE_F32, 999), b = ask_row(moved, RAFFLE_F32, 999);
        a.top_k = b.top_k = 50;
        CHECK_EQ(ask_kept(&a), ask_kept(&b));
        a.top_k = b.top_k = 0;
        a.min_p = b.min_p = 0.003f;
        CHECK_EQ(ask_kept(&a), ask_kept(&b));
    }
}

/* No rows: nothing is read and nothing is written. */
TEST(empty_batch) {
    runner r = runner_make(RAFFLE_F32, 100, RAFFLE_ISA_BEST);
    raffle_logits logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_result result = raffle_result_init();
    CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &result, &r.launch, NULL), RAFFLE_OK);
    runner_free(r);
}

int main(void) {
    vector_row_make("normal", 5, 999, RAFFLE_F32, llm_row);
    vector_row_make("flat", 5, 2000, RAFFLE_F32, flat_row);
    RUN(every_row_has_its_seed);
    RUN(seed_and_position_all_bits_count);
    RUN(batch_mates_do_not_matter);
    RUN(top_k_1_is_argmax_among_ties);
    RUN(nan_never_gives_an_id_out_of_range);
    RUN(tokens_without_probability_are_never_drawn);
    RUN(top_k_0_and_temperature_0);
    RUN(rows_of_a_larger_tensor);
    RUN(ties_share);
    RUN(no_collapse_to_greedy);
    RUN(min_p_0_beside_a_row_with_min_p);
    RUN(low_temperature_keeps_the_ratio);
    RUN(uniform_stays_uniform);
    RUN(ties_do_not_depend_on_the_batch);
    RUN(a_shift_of_all_logits_keeps_the_set);
    RUN(empty_batch);
    return test_report("field");
}
