/* field_requests.c - defects that users and reviewers found in other samplers, in softmax, penalties, filters and
 * log-probabilities: each a named case that must not exist here. field.c holds those of plain sampling. */
#include <float.h>
#include <math.h>

#include "../common/batch.h"

enum { V = 8, HISTORY = 16 };

/* One request on a row of V logits, by default plain. */
typedef struct request {
    float x[V], temperature, top_p;
    int32_t top_k;
    raffle_extra extra;
    int32_t said[HISTORY], length, prompt;
    uint64_t seed;
} request;

typedef struct answer {
    float p[V], chosen[3];
    int32_t token, rank[3];
    uint32_t kept, row_flags;
} answer;

static request plain(void) {
    const request r = {
        .x = {0.5f, 3.0f, 1.0f, 3.0f, -2.0f, 0.25f, -0.75f, 2.0f}, .temperature = 1.0f, .top_p = 1.0f, .seed = 3};
    return r;
}

/* Asks for `count` requests in one batch. */
static void ask_all(const request *r, answer *a, int count) {
    runner own = runner_make_for(RAFFLE_F32, V, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, HISTORY);
    float x[16 * V], temperature[16], top_p[16];
    int32_t top_k[16];
    uint64_t seed[16], position[16] = {0};
    raffle_extra extra[16];
    raffle_state state = raffle_state_init();
    raffle_params params = raffle_params_init();
    raffle_logits logits = raffle_logits_init();
    state.slots = count, state.history_max = HISTORY, state.vocab = V;
    state.memory = test_alloc(raffle_state_bytes(&state));
    CHECK_STATUS(raffle_state_clear(&state, NULL, NULL), RAFFLE_OK);
    for (int32_t i = 0; i < count; ++i) {
        const int32_t counts[2] = {r[i].prompt, r[i].length - r[i].prompt};
        raffle_tokens t = raffle_tokens_init();
        memcpy(x + i * V, r[i].x, sizeof r[i].x);
        temperature[i] = r[i].temperature, top_p[i] = r[i].top_p, top_k[i] = r[i].top_k, seed[i] = r[i].seed,
        extra[i] = r[i].extra;
        t.rows = 1, t.slot = &i, t.stride = HISTORY, t.token = r[i].said, t.count = &counts[0];
        CHECK_STATUS(raffle_state_prompt(&state, &t, NULL), RAFFLE_OK);
        t.token = r[i].said + r[i].prompt, t.count = &counts[1];
        CHECK_STATUS(raffle_state_accept(&state, &t, NULL), RAFFLE_OK);
    }
    params.temperature = temperature, params.top_p = top_p, params.top_k = top_k, params.seed = seed,
    params.position = position;
    params.extra = extra, params.extra_bytes = sizeof *extra, params.state = &state;
    logits.data = x, logits.rows = count;
    float p[16 * V], chosen[16];
    int32_t token[16], rank[16];
    uint32_t kept[16], row_flags[16];
    raffle_output o = raffle_output_init();
    o.data = p, o.kept = kept;
    CHECK_STATUS(raffle_softmax(own.plan, &logits, &params, &o, &own.launch, NULL), RAFFLE_OK);
    for (int point = 0; point < 3; ++point) {
        raffle_result result = raffle_result_init();
        raffle_report report = raffle_report_init();
        report.point = point, report.chosen = chosen, report.rank = rank;
        result.token = token, result.row_flags = row_flags, result.report = &report;
        CHECK_STATUS(raffle_sample(own.plan, &logits, &params, &result, &own.launch, NULL), RAFFLE_OK);
        for (int i = 0; i < count; ++i) a[i].chosen[point] = chosen[i], a[i].rank[point] = rank[i];
    }
    for (int i = 0; i < count; ++i) {
        memcpy(a[i].p, p + i * V, sizeof a[i].p);
        a[i].token = token[i], a[i].kept = kept[i], a[i].row_flags = row_flags[i];
    }
    free(state.memory);
    runner_free(own);
}

static answer ask(const request *r) {
    answer a;
    ask_all(r, &a, 1);
    return a;
}

static double sum_of(const answer *a) {
    double sum = 0;
    for (int i = 0; i < V; ++i) sum += (double)a->p[i];
    return sum;
}

/* ---- softmax ---- */

/* Scaled before the maximum was subtracted: low temperatures and large logits gave NaN (SGLang 20501). */
TEST(softmax_of_large_logits_at_low_temperature) {
    const float size[] = {1.0f, 1e4f, 1e30f, FLT_MAX / 4}, temperature[] = {1e-5f, 1e-3f, 0.5f, 100.0f};
    for (int i = 0; i < 16; ++i) {
        request r = plain();
        for (int t = 0; t < V; ++t) r.x[t] *= size[i / 4];
        r.temperature = temperature[i % 4];
        answer a = ask(&r);
        CHECK(fabs(sum_of(&a) - 1) < 1e-6 && a.p[1] == a.p[3] && a.p[1] >= a.p[7], "size %g T %g: sum %g",
              (double)size[i / 4], (double)temperature[i % 4], sum_of(&a));
    }
}

/* Temperature 0 divided by zero (SGLang 20501), or made the row uniform (FlashInfer). */
TEST(softmax_at_temperature_0_is_one_hot) {
    request r = plain();
    r.temperature = 0;
    answer a = ask(&r);
    for (int i = 0; i < V; ++i) CHECK(a.p[i] == (float)(i == 1), "token %d: %g", i, (double)a.p[i]);
}

/* All probability of tied logits fell on the smallest id (TokenSpeed 280); ties at the border of top-k depended on the
 * batch (vLLM). */
TEST(ties_have_equal_probability) {
    request r[12];
    answer a[12];
    for (int count = 1; count <= 12; count += 11) {
        for (int i = 0; i < count; ++i) r[i] = plain(), r[i].top_k = 2;
        ask_all(r, a, count);
        for (int i = 0; i < count; ++i)
            CHECK(a[i].p[1] == 0.5f && a[i].p[3] == 0.5f && a[i].kept == 0xau, "kept %x", a[i].kept);
    }
    request one = plain();
    one.x[1] = 2.5f, one.top_k = 2, one.x[7] = 2.5f; /* the second place is shared */
    CHECK_EQ(ask(&one).kept, 0x8au);
}

/* A running sum in f32 is off by up to 1e-3 (llama.cpp). */
TEST(long_rows_sum_to_one) {
    enum { LONG = 262144 };
    float *x = test_alloc(LONG * 4), *p = test_alloc(LONG * 4);
    vector_row_make("flat", 1, LONG, RAFFLE_F32, x);
    runner own = runner_make(RAFFLE_F32, LONG, RAFFLE_ISA_BEST);
    raffle_logits logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_output o = raffle_output_init();
    logits.data = x, logits.rows = 1, o.data = p;
    CHECK_STATUS(raffle_softmax(own.plan, &logits, &params, &o, &own.launch, NULL), RAFFLE_OK);
    double sum = 0;
    for (int i = 0; i < LONG; ++i) sum += (double)p[i];
    CHECK(fabs(sum - 1) < 1e-6, "the sum is 1 %+g", sum - 1);
    runner_free(own);
    free(x);
    free(p);
}

/* The kept set could not be handed out, so a trainer renormalised over another one (vLLM 49577, SGLang 27408). */
TEST(the_kept_set_replays) {
    request r = plain();
    r.top_k = 5, r.top_p = 0.9f, r.temperature = 0.7f;
    answer first = ask(&r);
    int32_t kept[V], count = 0;
    for (int i = 0; i < V; ++i)
        if (first.kept >> i & 1) kept[count++] = i;
    request again = plain();
    again.temperature = 0.7f, again.extra.allowed = kept, again.extra.allowed_count = count;
    answer second = ask(&again);
    CHECK(!memcmp(first.p, second.p, sizeof first.p) && first.token == second.token, "%d kept tokens", count);
    CHECK(first.chosen[RAFFLE_FILTERED] == second.chosen[RAFFLE_FILTERED], "the log-probability differs");
}

/* ---- log-probabilities ---- */

/* What they are of was not said; RL users want them after temperature, before filters (trl 4159). */
TEST(log_probabilities_at_their_point) {
    request r = plain();
    r.temperature = 0.5f, r.top_k = 3, r.extra.bias_count = 1;
    const int32_t id = 7;
    const float bias = 1.0f;
    r.extra.bias_id = &id, r.extra.bias = &bias;
    answer a = ask(&r);
    for (int point = 0; point < 3; ++point) {
        double sum = 0, own = 0;
        for (int i = 0; i < V; ++i) {
            double x = (double)r.x[i] + (point && i == 7 ? 1 : 0), e = exp(point ? x / 0.5 : x);
            if (point == RAFFLE_FILTERED && !(a.kept >> i & 1)) e = 0;
            sum += e;
            if (i == a.token) own = e;
        }
        CHECK(fabs((double)a.chosen[point] - log(own / sum)) < 1e-6, "point %d: %g for %g", point,
              (double)a.chosen[point], log(own / sum));
    }
}

/* A rank counted the tokens that are as likely (vLLM), so that the best of two was second. */
TEST(rank_counts_the_strictly_likelier) {
    request r = plain();
    r.temperature = 0;
    CHECK_EQ(ask(&r).rank[RAFFLE_RAW], 1);
    const int32_t banned[2] = {1, 3};
    r.extra.banned = banned, r.extra.banned_count = 2;
    answer a = ask(&r);
    CHECK(a.token == 7 && a.rank[RAFFLE_RAW] == 3 && a.rank[RAFFLE_TEMPERED] == 1, "ranks %d and %d", a.rank[0],
          a.rank[1]);
}

/* ---- requests beside each other ---- */

/* A token changed when a batch-mate turned a filter on (SGLang 35697); a mate's min_p = 0 became a cut (TokenSpeed
 * 280). */
TEST(mates_with_every_feature_do_not_matter) {
    static const int32_t ids[] = {1, 3}, words[] = {2, 7, -1};
    request r[9];
    answer a[9], alone;
    for (int i = 0; i < 9; ++i) {
        r[i] = plain();
        r[i].length = 4, r[i].prompt = 1, r[i].said[0] = 3, r[i].said[1] = 1, r[i].said[2] = 3, r[i].said[3] = 2;
    }
    r[1].extra.repetition = 1.5f, r[2].extra.banned = ids, r[2].extra.banned_count = 2, r[3].extra.epsilon = 0.1f;
    r[4].extra.typical_p = 0.5f, r[5].extra.xtc_probability = 1, r[6].extra.dry_multiplier = 2,
    r[7].extra.no_repeat_ngram = 1;
    r[8].extra.bad_words = words, r[8].extra.bad_words_count = 3;
    ask_all(r, a, 9);
    for (int i = 0; i < 9; ++i) {
        alone = ask(&r[i]);
        CHECK(!memcmp(&alone, &a[i], sizeof alone), "request %d is another in a batch", i);
    }
    CHECK_EQ(a[0].kept, 0xffu);
}

/* One seed served the whole batch (FlashInfer): XTC's chance, too, is the row's own. */
TEST(xtc_chance_is_the_rows_own) {
    request r[16];
    answer a[16];
    int cut = 0;
    for (int i = 0; i < 16; ++i) r[i] = plain(), r[i].seed = (uint64_t)i, r[i].extra.xtc_probability = 0.5f;
    ask_all(r, a, 16);
    for (int i = 0; i < 16; ++i) cut += a[i].kept != 0xff;
    CHECK(cut > 2 && cut < 14, "%d of 16 seeds cut", cut);
}

/* Off is off: a value of 0 became a cut of tokens below 1e-20. */
TEST(filters_at_zero_are_off) {
    request r = plain();
    for (int i = 0; i < V; ++i) r.x[i] = -60.0f * (float)i;
    r.extra.repetition = 1, r.extra.xtc_threshold = 0.2f, r.extra.keep_least = 1;
    CHECK_EQ(ask(&r).kept, 0xffu);
}

/* ---- penalties ---- */

/* Prompt and output, the output alone, or a window: engines differ, and some silently (FIELD: SGLang, TokenSpeed,
 * llama.cpp). */
TEST(whose_tokens_a_penalty_counts) {
    request r = plain();
    r.length = 4, r.prompt = 2, r.said[0] = 1, r.said[1] = 7, r.said[2] = 3, r.said[3] = 0;
    r.extra.repetition = 4;
    r.temperature = 0;
    CHECK_EQ(ask(&r).token, 2); /* 1, 7, 3 and 0 are at most 0.75 now */
    r.extra.flags = RAFFLE_REPETITION_OUTPUT;
    CHECK_EQ(ask(&r).token, 1); /* which the prompt alone has */
    r.extra.flags = 0, r.extra.penalty_window = 1;
    CHECK_EQ(ask(&r).token, 1); /* the last token is 0 */
    r.extra.penalty_window = 3;
    CHECK_EQ(ask(&r).token, 1);
    r.extra.repetition = 0, r.extra.penalty_window = 0, r.extra.presence = 2;
    CHECK_EQ(ask(&r).token, 1); /* presence looks at the output */
    r.extra.flags = RAFFLE_COUNT_PROMPT;
    CHECK_EQ(ask(&r).token, 1); /* 1 and 3 are both 1 now, as 2 is: the lowest id */
    r.said[3] = 1, r.extra.presence = 0, r.extra.frequency = 1.5f;
    CHECK_EQ(ask(&r).token, 3); /* 1 was said twice */
}

/* NaN rows gave ids out of range (vLLM 53029): what is out stays out, whatever penalties compute. */
TEST(penalties_of_infinities_and_nan) {
    for (int sign = -1; sign <= 1; ++sign) {
        request r = plain();
        const int32_t id[3] = {0, 1, 2};
        const float bias[3] = {5, 5, -FLT_MAX};
        r.x[0] = -INFINITY, r.x[1] = NAN, r.x[2] = -FLT_MAX, r.x[3] = FLT_MAX;
        for (int i = 0; i < 8; ++i) r.said[r.length++] = i % 4;
        r.extra.repetition = sign < 0 ? 1e-9f : 1e9f, r.extra.frequency = 1e9f * (float)sign, r.extra.presence = -1e9f;
        r.extra.dry_multiplier = 1e9f, r.extra.dry_base = 1e9f, r.extra.bias_id = id, r.extra.bias = bias,
        r.extra.bias_count = 3;
        answer a = ask(&r);
        CHECK(a.token > 1 && a.token < V && !(a.kept & 3) && a.p[0] == 0 && a.p[1] == 0, "token %d kept %x", a.token,
              a.kept);
        CHECK(a.row_flags & RAFFLE_ROW_NAN && fabs(sum_of(&a) - 1) < 1e-6, "flags %u sum %g", a.row_flags, sum_of(&a));
    }
}

int main(void) {
    RUN(softmax_of_large_logits_at_low_temperature);
    RUN(softmax_at_temperature_0_is_one_hot);
    RUN(ties_have_equal_probability);
    RUN(long_rows_sum_to_one);
    RUN(the_kept_set_replays);
    RUN(log_probabilities_at_their_point);
    RUN(rank_counts_the_strictly_likelier);
    RUN(mates_with_every_feature_do_not_matter);
    RUN(xtc_chance_is_the_rows_own);
    RUN(filters_at_zero_are_off);
    RUN(whose_tokens_a_penalty_counts);
    RUN(penalties_of_infinities_and_nan);
    return test_report("field_requests");
}
