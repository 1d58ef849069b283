/* requests.c - raffle_request: engines' names to a slot's values, and a sentence for everything that is wrong. */
#include <math.h>

#include "../common/test.h"
#include "raffle/raffle.h"

static raffle_request start(raffle_dialect dialect) {
    raffle_request r = raffle_request_init();
    CHECK_STATUS(raffle_request_start(&r, dialect, NULL), RAFFLE_OK);
    return r;
}

static void refused(raffle_dialect dialect, const char *name, double value, int status) {
    raffle_request r = start(dialect), before = r;
    raffle_error error = raffle_error_init();
    CHECK_STATUS(raffle_request_set(&r, name, value, &error), status);
    CHECK(strstr(error.text, name) && error.status == status, "\"%s\" should name %s", error.text, name);
    CHECK(!memcmp(&r, &before, sizeof r), "%s: the request was changed", name);
}

static raffle_request with(raffle_dialect dialect, const char *name, double value) {
    raffle_request r = start(dialect);
    raffle_error error = raffle_error_init();
    CHECK(raffle_request_set(&r, name, value, &error) == RAFFLE_OK, "%s", error.text);
    return r;
}

TEST(defaults) {
    raffle_request r = start(RAFFLE_DIALECT_VLLM);
    CHECK(r.temperature == 1 && r.top_p == 1 && r.min_p == 0 && r.top_k == 0 && r.logprobs == -1, "vLLM");
    CHECK_EQ(r.extra.flags, RAFFLE_BAD_WORDS_OUTPUT);
    CHECK_EQ(start(RAFFLE_DIALECT_OPENAI).extra.flags, 0);
    r = start(RAFFLE_DIALECT_LLAMA_CPP);
    CHECK(r.temperature == 0.8f && r.top_k == 40 && r.top_p == 0.95f && r.min_p == 0.05f && r.extra.penalty_window == 64, "llama.cpp");
    CHECK(r.extra.flags == (RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST | RAFFLE_TOP_K_EXACT | RAFFLE_COUNT_PROMPT), "llama.cpp's chain");
    CHECK_STATUS(raffle_request_start(NULL, RAFFLE_DIALECT_VLLM, NULL), RAFFLE_E_ARGUMENT);
    CHECK_STATUS(raffle_request_start(&r, (raffle_dialect)3, NULL), RAFFLE_E_ARGUMENT);
}

TEST(names) {
    CHECK(with(RAFFLE_DIALECT_VLLM, "repetition_penalty", 1.2).extra.repetition == 1.2f, "repetition_penalty");
    CHECK(with(RAFFLE_DIALECT_LLAMA_CPP, "repeat_penalty", 1.2).extra.repetition == 1.2f, "repeat_penalty");
    CHECK(with(RAFFLE_DIALECT_LLAMA_CPP, "repeat_last_n", -1).extra.penalty_window == 0, "-1 is all of it");
    CHECK(with(RAFFLE_DIALECT_VLLM, "repeat_last_n", 7).extra.penalty_window == 7, "a window, which vLLM itself lacks");
    CHECK(with(RAFFLE_DIALECT_VLLM, "top_k", -1).top_k == 0, "-1 is off");
    CHECK(with(RAFFLE_DIALECT_OPENAI, "presence_penalty", -2).extra.presence == -2.0f, "presence_penalty");
    CHECK(with(RAFFLE_DIALECT_OPENAI, "top_logprobs", 20).logprobs == 20, "top_logprobs");
    CHECK(with(RAFFLE_DIALECT_VLLM, "logprobs", 0).logprobs == 0, "the token's own");
    CHECK(with(RAFFLE_DIALECT_VLLM, "seed", 9007199254740991.0).seed == 9007199254740991ull, "seed");
    CHECK(with(RAFFLE_DIALECT_VLLM, "seed", -1).seed == UINT64_MAX, "a negative seed");
    CHECK(with(RAFFLE_DIALECT_LLAMA_CPP, "typ_p", 0.5).extra.typical_p == 0.5f, "typ_p");
    CHECK(with(RAFFLE_DIALECT_LLAMA_CPP, "dry_allowed_length", 3).extra.dry_allowed == 3, "dry_allowed_length");
    CHECK(with(RAFFLE_DIALECT_VLLM, "best_of", 1).size == sizeof(raffle_request), "a neutral value is fine");
}

/* llama.cpp: 0 switches off what looks at the last n tokens, -1 is all of them. Elsewhere the window is raffle's own. */
TEST(windows) {
    static const char *const windows[] = {"repeat_last_n", "penalty_last_n"};
    static const char *const penalties[] = {"repeat_penalty", "frequency_penalty", "presence_penalty"};
    const raffle_dialect llama = RAFFLE_DIALECT_LLAMA_CPP;
    for (int w = 0; w < 2; ++w) {
        CHECK(with(llama, windows[w], 7).extra.penalty_window == 7, "%s 7", windows[w]);
        CHECK(with(llama, windows[w], -1).extra.penalty_window == 0, "%s -1 is all of it", windows[w]);
        CHECK(with(llama, windows[w], INT32_MAX).extra.penalty_window == 0, "%s: longer than any history", windows[w]);
        for (int first = 0; first < 2; ++first) { /* before the penalties, and after */
            raffle_request r = start(llama);
            if (first) CHECK_STATUS(raffle_request_set(&r, windows[w], 0, NULL), RAFFLE_OK);
            for (int p = 0; p < 3; ++p) CHECK_STATUS(raffle_request_set(&r, penalties[p], 1.5, NULL), RAFFLE_OK);
            if (!first) CHECK_STATUS(raffle_request_set(&r, windows[w], 0, NULL), RAFFLE_OK);
            CHECK(r.extra.repetition == 0 && r.extra.frequency == 0 && r.extra.presence == 0, "%s 0 does not switch off", windows[w]);
            CHECK_STATUS(raffle_request_check(&r, 100, NULL), RAFFLE_OK);
            const raffle_request before = r;
            raffle_error error = raffle_error_init();
            CHECK_STATUS(raffle_request_set(&r, windows[w], 64, &error), RAFFLE_E_ARGUMENT); /* what the penalties were is lost */
            CHECK(strstr(error.text, windows[w]) && !memcmp(&r, &before, sizeof r), "\"%s\"", error.text);
            CHECK_STATUS(raffle_request_set(&r, windows[w], 0, NULL), RAFFLE_OK);
            CHECK_STATUS(raffle_request_set(&r, penalties[0], -1, NULL), RAFFLE_E_ARGUMENT); /* checked all the same */
        }
    }
    raffle_request r = with(llama, "dry_penalty_last_n", 0);
    CHECK_STATUS(raffle_request_set(&r, "dry_multiplier", 0.8, NULL), RAFFLE_OK);
    CHECK_STATUS(raffle_request_set(&r, "repeat_penalty", 1.5, NULL), RAFFLE_OK);
    CHECK(r.extra.dry_multiplier == 0 && r.extra.repetition == 1.5f, "DRY, and only DRY, is off");
    r = with(llama, "dry_multiplier", 0.8);
    CHECK_STATUS(raffle_request_set(&r, "dry_penalty_last_n", 0, NULL), RAFFLE_OK);
    CHECK(r.extra.dry_multiplier == 0, "DRY is off");
    r = with(llama, "dry_multiplier", 0.8);
    CHECK_STATUS(raffle_request_set(&r, "dry_penalty_last_n", -1, NULL), RAFFLE_OK);
    CHECK(r.extra.dry_multiplier == 0.8f && r.extra.dry_range == 0, "all of it");
    r = with(RAFFLE_DIALECT_VLLM, "repeat_last_n", 0);
    CHECK_STATUS(raffle_request_set(&r, "repetition_penalty", 1.5, NULL), RAFFLE_OK);
    CHECK(r.extra.penalty_window == 0 && r.extra.repetition == 1.5f, "vLLM has no window: 0 is raffle's own 0");
}

/* A threshold of 0 is not the one that nobody gave. */
TEST(threshold) {
    CHECK(start(RAFFLE_DIALECT_VLLM).extra.xtc_threshold == 0, "not given");
    CHECK(with(RAFFLE_DIALECT_VLLM, "xtc_threshold", 0).extra.xtc_threshold < 0, "given as 0");
    CHECK(with(RAFFLE_DIALECT_LLAMA_CPP, "xtc_threshold", 0).extra.xtc_threshold < 0, "given as 0");
    CHECK(with(RAFFLE_DIALECT_LLAMA_CPP, "xtc_threshold", 0.25).extra.xtc_threshold == 0.25f, "given");
}

TEST(refusals) {
    refused(RAFFLE_DIALECT_VLLM, "logprobs", -1, RAFFLE_E_UNSUPPORTED); /* all tokens, which a request cannot say */
    refused(RAFFLE_DIALECT_OPENAI, "logprobs", -1, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "logprobs", RAFFLE_TOP_MAX + 1, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "seed", 1e19, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "seed", NAN, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_LLAMA_CPP, "repeat_last_n", -2, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_LLAMA_CPP, "repeat_last_n", 0.5, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_OPENAI, "temperature", 2.5, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "temperature", -0.1, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "temperature", NAN, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "top_p", 1.5, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "top_k", 2.5, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "top_k", -2, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "top_k", INFINITY, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "repetition_penalty", 0, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_OPENAI, "repetition_penalty", 1, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_OPENAI, "top_logprobs", 21, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "frequency_penalty", 3, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "no_such_thing", 1, RAFFLE_E_ARGUMENT);
    refused(RAFFLE_DIALECT_VLLM, "use_beam_search", 1, RAFFLE_E_UNSUPPORTED);
    refused(RAFFLE_DIALECT_VLLM, "best_of", 2, RAFFLE_E_UNSUPPORTED);
    refused(RAFFLE_DIALECT_LLAMA_CPP, "mirostat", 2, RAFFLE_E_UNSUPPORTED);
    refused(RAFFLE_DIALECT_LLAMA_CPP, "dynatemp_range", 0.5, RAFFLE_E_UNSUPPORTED);
}

/* Limits in the sentence are those that hold. */
TEST(limits) {
    raffle_request r = start(RAFFLE_DIALECT_VLLM);
    raffle_error error = raffle_error_init();
    CHECK_STATUS(raffle_request_set(&r, "top_k", 3e9, &error), RAFFLE_E_ARGUMENT);
    CHECK(!strcmp(error.text, "top_k is 3000000000: must be -1 to 2147483647"), "%s", error.text);
    CHECK_STATUS(raffle_request_set(&r, "repetition_penalty", 0, &error), RAFFLE_E_ARGUMENT);
    CHECK(!strcmp(error.text, "repetition_penalty is 0: must be 1e-09 to 1e+09"), "%s", error.text);
}

static void check_refused(const raffle_request *r, const char *field) {
    raffle_error error = raffle_error_init();
    CHECK_STATUS(raffle_request_check(r, 100, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, field), "\"%s\" should name %s", error.text, field);
}

TEST(together) {
    static const int32_t ids[] = {1, 99}, outside[] = {1, 100};
    static const float bias[] = {1, 101};
    raffle_request r = start(RAFFLE_DIALECT_OPENAI);
    raffle_error error = raffle_error_init();
    CHECK(raffle_request_check(&r, 100, &error) == RAFFLE_OK, "%s", error.text);
    CHECK_STATUS(raffle_request_check(&r, 0, NULL), RAFFLE_E_ARGUMENT);
    CHECK_STATUS(raffle_request_check(NULL, 100, NULL), RAFFLE_E_ARGUMENT);
    r.extra.bias_id = ids, r.extra.bias = bias, r.extra.bias_count = 2;
    check_refused(&r, "logit_bias[1]");
    r.dialect = RAFFLE_DIALECT_VLLM;
    CHECK(raffle_request_check(&r, 100, &error) == RAFFLE_OK, "%s", error.text);
    static const float high[] = {1, INFINITY};
    r.extra.bias = high;
    check_refused(&r, "logit_bias[1] is inf: must be at most 1e30");
    r.extra.bias = bias;
    r.extra.bias_id = outside;
    check_refused(&r, "bias_id[1]");
    r = start(RAFFLE_DIALECT_VLLM);
    r.extra.min_tokens = 3;
    check_refused(&r, "min_tokens");
    r.extra.stop = ids, r.extra.stop_count = 2;
    CHECK(raffle_request_check(&r, 100, &error) == RAFFLE_OK, "%s", error.text);
    r.temperature = NAN;
    check_refused(&r, "temperature");
    r.temperature = 1;
    r.extra.repetition = 1.1f; /* whether there is a history is a matter of the call */
    CHECK(raffle_request_check(&r, 100, &error) == RAFFLE_OK, "%s", error.text);
    r.logprobs = RAFFLE_TOP_MAX + 1;
    check_refused(&r, "logprobs");
    r.logprobs = -2;
    check_refused(&r, "logprobs");
    r.logprobs = RAFFLE_TOP_MAX;
    CHECK(raffle_request_check(&r, 100, &error) == RAFFLE_OK, "%s", error.text);
    r.dialect = 9;
    check_refused(&r, "dialect");
    r.dialect = RAFFLE_DIALECT_VLLM;
    r.reserved = 1;
    CHECK_STATUS(raffle_request_check(&r, 100, &error), RAFFLE_E_STRUCT);
    CHECK(strstr(error.text, "reserved"), "%s", error.text);
    r.reserved = 0;
    r.size = 8;
    CHECK_STATUS(raffle_request_check(&r, 100, &error), RAFFLE_E_STRUCT);
    CHECK(strstr(error.text, "raffle_request_init()"), "%s", error.text);
}

/* A caller's header may be older or newer than the library: it writes to no byte behind the size that it is given. */
TEST(sizes) {
    enum { MORE = 24 };
    static const uint32_t wrong[] = {0, 4, sizeof(raffle_request) - 1, 4097, UINT32_MAX};
    struct {
        raffle_request known;
        unsigned char more[MORE + 8];
    } wide, before;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        memset(&wide, 0x5a, sizeof wide);
        wide.known.size = wrong[i];
        before = wide;
        CHECK_STATUS(raffle_request_start(&wide.known, RAFFLE_DIALECT_VLLM, NULL), RAFFLE_E_STRUCT);
        CHECK(!memcmp(&wide, &before, sizeof wide), "size %u: written", wrong[i]);
    }
    memset(&wide, 0, sizeof wide);
    memset(wide.more + MORE, 0x5a, 8); /* outside */
    wide.known.size = sizeof wide.known + MORE;
    CHECK_STATUS(raffle_request_start(&wide.known, RAFFLE_DIALECT_LLAMA_CPP, NULL), RAFFLE_OK);
    CHECK_EQ(wide.known.size, sizeof wide.known + MORE);
    CHECK_STATUS(raffle_request_set(&wide.known, "top_k", 7, NULL), RAFFLE_OK);
    CHECK_STATUS(raffle_request_check(&wide.known, 100, NULL), RAFFLE_OK);
    CHECK(wide.known.top_k == 7 && wide.known.min_p == 0.05f, "a longer request works");
    for (int i = 0; i < MORE + 8; ++i) CHECK_EQ(wide.more[i], i < MORE ? 0 : 0x5a);
    wide.more[MORE - 1] = 1; /* a field that this library lacks */
    CHECK_STATUS(raffle_request_start(&wide.known, RAFFLE_DIALECT_VLLM, NULL), RAFFLE_E_STRUCT);
    CHECK_STATUS(raffle_request_set(&wide.known, "top_k", 8, NULL), RAFFLE_E_STRUCT);
    CHECK_STATUS(raffle_request_check(&wide.known, 100, NULL), RAFFLE_E_STRUCT);
    CHECK_EQ(wide.known.top_k, 7);
}

int main(void) {
    RUN(defaults);
    RUN(names);
    RUN(windows);
    RUN(threshold);
    RUN(refusals);
    RUN(limits);
    RUN(together);
    RUN(sizes);
    return test_report("requests");
}
