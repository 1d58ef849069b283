/* request.c - one request's values by the names that engines have for them, into what a slot holds. */
#include <string.h>

#include "args.h"

enum { V = 1 << RAFFLE_DIALECT_VLLM, O = 1 << RAFFLE_DIALECT_OPENAI, L = 1 << RAFFLE_DIALECT_LLAMA_CPP, ALL = V | O | L };
/* WINDOW: the last n tokens, where 0 is "off" and -1 "all". NOTHING: only its neutral value, `low`, is supported. */
typedef enum kind { REAL, WHOLE, SEED, WINDOW, NOTHING } kind;

typedef struct name {
    const char *name;
    int dialects;
    kind kind;
    size_t at; /* of the field, in raffle_request */
    double low, high;
} name;

#define AT(field) offsetof(raffle_request, field)

static const name names[] = {
    {"temperature", V | L, REAL, AT(temperature), 0, 1e30},
    {"temperature", O, REAL, AT(temperature), 0, 2},
    {"temp", L, REAL, AT(temperature), 0, 1e30},
    {"top_p", ALL, REAL, AT(top_p), 0, 1},
    {"min_p", V | L, REAL, AT(min_p), 0, 1},
    {"top_k", V | L, WHOLE, AT(top_k), -1, INT32_MAX},
    {"seed", ALL, SEED, AT(seed), 0, 0},
    {"logprobs", V | O, WHOLE, AT(logprobs), 0, RAFFLE_TOP_MAX},
    {"top_logprobs", O, WHOLE, AT(logprobs), 0, 20},
    {"n_probs", L, WHOLE, AT(logprobs), 0, RAFFLE_TOP_MAX},
    {"repetition_penalty", V, REAL, AT(extra.repetition), 1e-9, 1e9},
    {"repeat_penalty", L, REAL, AT(extra.repetition), 1e-9, 1e9},
    {"repeat_last_n", V, WHOLE, AT(extra.penalty_window), -1, INT32_MAX},
    {"repeat_last_n", L, WINDOW, AT(extra.penalty_window), -1, INT32_MAX},
    {"penalty_last_n", L, WINDOW, AT(extra.penalty_window), -1, INT32_MAX},
    {"frequency_penalty", ALL, REAL, AT(extra.frequency), -2, 2},
    {"presence_penalty", ALL, REAL, AT(extra.presence), -2, 2},
    {"min_tokens", V, WHOLE, AT(extra.min_tokens), 0, INT32_MAX},
    {"no_repeat_ngram_size", V, WHOLE, AT(extra.no_repeat_ngram), 0, INT32_MAX},
    {"typical_p", V | L, REAL, AT(extra.typical_p), 0, 1},
    {"typ_p", L, REAL, AT(extra.typical_p), 0, 1},
    {"top_n_sigma", V | L, REAL, AT(extra.top_n_sigma), -1, 1e9},
    {"epsilon_cutoff", V, REAL, AT(extra.epsilon), 0, 1},
    {"eta_cutoff", V, REAL, AT(extra.eta), 0, 1},
    {"xtc_probability", V | L, REAL, AT(extra.xtc_probability), 0, 1},
    {"xtc_threshold", V | L, REAL, AT(extra.xtc_threshold), 0, 1},
    {"min_tokens_to_keep", V, WHOLE, AT(extra.keep_least), 0, INT32_MAX},
    {"min_keep", L, WHOLE, AT(extra.keep_least), 0, INT32_MAX},
    {"dry_multiplier", V | L, REAL, AT(extra.dry_multiplier), 0, 1e9},
    {"dry_base", V | L, REAL, AT(extra.dry_base), 1, 1e9},
    {"dry_allowed_length", V | L, WHOLE, AT(extra.dry_allowed), 1, INT32_MAX},
    {"dry_penalty_last_n", V, WHOLE, AT(extra.dry_range), -1, INT32_MAX},
    {"dry_penalty_last_n", L, WINDOW, AT(extra.dry_range), -1, INT32_MAX},
    {"use_beam_search", V, NOTHING, 0, 0, 0},
    {"best_of", V | O, NOTHING, 0, 1, 0},
    {"length_penalty", V, NOTHING, 0, 1, 0},
    {"mirostat", L, NOTHING, 0, 0, 0},
    {"dynatemp_range", L, NOTHING, 0, 0, 0},
};

raffle_status raffle_request_start(raffle_request *request, raffle_dialect dialect, raffle_error *error) {
    raffle_request given;
    raffle_status status = TAKE(&given, request, raffle_request);
    if (status) return status;
    if (dialect < RAFFLE_DIALECT_VLLM || dialect > RAFFLE_DIALECT_LLAMA_CPP)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "dialect is %d: not a raffle_dialect", (int)dialect);
    memset(request, 0, given.size); /* the caller's struct may be longer than ours; no shorter one is taken */
    request->size = given.size;
    request->dialect = (int32_t)dialect;
    request->temperature = 1.0f;
    request->top_p = 1.0f;
    request->logprobs = -1;
    if (dialect == RAFFLE_DIALECT_VLLM) request->extra.flags = RAFFLE_BAD_WORDS_OUTPUT; /* v1/sample/ops/bad_words.py */
    if (dialect != RAFFLE_DIALECT_LLAMA_CPP) return RAFFLE_OK;
    request->temperature = 0.8f; /* its default chain: filters before temperature, penalties over the last 64 tokens */
    request->top_k = 40;
    request->top_p = 0.95f;
    request->min_p = 0.05f;
    request->extra.penalty_window = 64;
    request->extra.flags = RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST | RAFFLE_TOP_K_EXACT | RAFFLE_COUNT_PROMPT;
    return RAFFLE_OK;
}

static const name *name_find(const char *text, int dialect) {
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (!strcmp(names[i].name, text) && names[i].dialects >> dialect & 1) return &names[i];
    return NULL;
}

/* All fields that raffle_request_set may write lie in the least size that is taken. */
static raffle_status request_take(raffle_request *to, const raffle_request *from, raffle_error *error) {
    raffle_status status = TAKE(to, from, raffle_request);
    if (status) return status;
    if (to->dialect < RAFFLE_DIALECT_VLLM || to->dialect > RAFFLE_DIALECT_LLAMA_CPP)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "dialect is %d: not a raffle_dialect", to->dialect);
    if (to->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_request.reserved is not 0");
    return RAFFLE_OK;
}

/* A raffle_extra has no window of no tokens. Where a request asks for one, its penalties are 0, and stay so while the window
 * has this length, which no history has. */
enum { WINDOW_OFF = RAFFLE_HISTORY_MAX + 1 };

/* Whether the field is a penalty that looks at such a window. */
static int penalty_off(const raffle_request *r, size_t at) {
    if (r->dialect != RAFFLE_DIALECT_LLAMA_CPP) return 0;
    if (at == AT(extra.dry_multiplier)) return r->extra.dry_range == WINDOW_OFF;
    const int looks = at == AT(extra.repetition) || at == AT(extra.frequency) || at == AT(extra.presence);
    return looks && r->extra.penalty_window == WINDOW_OFF;
}

static raffle_status window_set(raffle_request *r, const name *n, int32_t count, raffle_error *error) {
    raffle_extra *e = &r->extra;
    const int dry = n->at == AT(extra.dry_range);
    int32_t *window = dry ? &e->dry_range : &e->penalty_window;
    if (count && *window == WINDOW_OFF)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %d: it was 0, and the penalties are gone: start the request again",
                           n->name, count);
    *window = !count ? WINDOW_OFF : count < 0 || count > RAFFLE_HISTORY_MAX ? 0 : count;
    if (!count && dry) e->dry_multiplier = 0.0f;
    if (!count && !dry) e->repetition = e->frequency = e->presence = 0.0f;
    return RAFFLE_OK;
}

raffle_status raffle_request_set(raffle_request *request, const char *text, double value, raffle_error *error) {
    static const char *const dialects[] = {"vLLM", "OpenAI", "llama.cpp"};
    raffle_request checked;
    raffle_status status = request_take(&checked, request, error);
    if (status) return status;
    if (!text) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "the name is NULL");
    const name *n = name_find(text, checked.dialect);
    if (!n) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%.40s: %s has no such parameter that raffle knows", text, dialects[checked.dialect]);
    if (n->kind == NOTHING) {
        if (value == n->low) return RAFFLE_OK;
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "%s is %g: raffle does not do that", n->name, value);
    }
    if (n->at == AT(logprobs) && checked.dialect == RAFFLE_DIALECT_VLLM && value == -1)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "logprobs is -1, all tokens: must be 0 to %d here; raffle_report.all tells all",
                           RAFFLE_TOP_MAX);
    const int whole = n->kind != REAL, seed = n->kind == SEED;
    if (!seed && !(value >= n->low && value <= n->high))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, whole ? "%s is %.10g: must be %.10g to %.10g" : "%s is %g: must be %g to %g",
                           n->name, value, n->low, n->high);
    if (seed && !(value >= -9007199254740992.0 && value <= 9007199254740992.0))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "seed is %g: must be -2^53 to 2^53 here; raffle_request.seed takes 64 bits",
                           value);
    if (whole && value != (double)(int64_t)value)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %g: must be a whole number", n->name, value);
    char *field = (char *)request + n->at;
    if (n->kind == WINDOW) return window_set(request, n, (int32_t)value, error);
    const uint64_t bits = (uint64_t)(int64_t)(seed ? value : 0);
    const int32_t count = (int32_t)(whole && !seed && value > 0 ? value : 0); /* -1 is how engines write "off" or "all", 0 here */
    const int unset = (float)value == 0.0f && n->at == AT(extra.xtc_threshold); /* 0 there means its default: below 0 is what 0 says */
    const float real = unset ? -1.0f : (float)(whole || penalty_off(&checked, n->at) ? 0 : value);
    if (seed) memcpy(field, &bits, sizeof bits);
    else if (whole) memcpy(field, &count, sizeof count);
    else memcpy(field, &real, sizeof real);
    return RAFFLE_OK;
}

raffle_status raffle_request_check(const raffle_request *given, int64_t vocab, raffle_error *error) {
    raffle_request r;
    raffle_status status = request_take(&r, given, error);
    if (status) return status;
    if (vocab < 1 || vocab > RAFFLE_VOCAB_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "vocab is %lld: must be 1 to %d", (long long)vocab, RAFFLE_VOCAB_MAX);
    if (!(r.temperature >= 0.0f)) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "temperature is %g: must be 0 or more", (double)r.temperature);
    if (r.top_p != r.top_p || r.min_p != r.min_p) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is NaN", r.top_p != r.top_p ? "top_p" : "min_p");
    if (r.logprobs < -1 || r.logprobs > RAFFLE_TOP_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "logprobs is %d: must be -1 to %d", r.logprobs, RAFFLE_TOP_MAX);
    if (r.extra.min_tokens > 0 && !r.extra.stop_count)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "min_tokens is %d, but there are no stop ids to ban", r.extra.min_tokens);
    const int narrow = r.dialect == RAFFLE_DIALECT_OPENAI;
    for (int32_t i = 0; r.extra.bias && i < r.extra.bias_count; ++i)
        if (r.extra.bias[i] > (narrow ? 100.0f : 1e30f) || (narrow && r.extra.bias[i] < -100.0f))
            return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "logit_bias[%d] is %g: must be %s", i, (double)r.extra.bias[i],
                               narrow ? "-100 to 100" : "at most 1e30");
    call one;
    memset(&one, 0, sizeof one);
    one.params.extra = &r.extra;
    one.params.state = (const raffle_state *)&one.state; /* a history is a matter of the call */
    one.vocab = vocab;
    return raffle_check_extra(&one, 0, 0, "row", error);
}
