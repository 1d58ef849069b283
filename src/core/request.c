/* request.c - one request's values by the names that engines have for them, into what a slot holds. */
#include <string.h>

#include "args.h"

enum { V = 1 << RAFFLE_DIALECT_VLLM, O = 1 << RAFFLE_DIALECT_OPENAI, L = 1 << RAFFLE_DIALECT_LLAMA_CPP, ALL = V | O | L };
typedef enum kind { REAL, WHOLE, SEED, NOTHING } kind; /* NOTHING: only its neutral value, `low`, is supported */

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
    {"logprobs", V | O, WHOLE, AT(logprobs), -1, RAFFLE_TOP_MAX},
    {"top_logprobs", O, WHOLE, AT(logprobs), 0, 20},
    {"n_probs", L, WHOLE, AT(logprobs), 0, RAFFLE_TOP_MAX},
    {"repetition_penalty", V, REAL, AT(extra.repetition), 1e-9, 1e9},
    {"repeat_penalty", L, REAL, AT(extra.repetition), 1e-9, 1e9},
    {"repeat_last_n", V | L, WHOLE, AT(extra.penalty_window), -1, INT32_MAX},
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
    {"dry_penalty_last_n", V | L, WHOLE, AT(extra.dry_range), -1, INT32_MAX},
    {"use_beam_search", V, NOTHING, 0, 0, 0},
    {"best_of", V | O, NOTHING, 0, 1, 0},
    {"length_penalty", V, NOTHING, 0, 1, 0},
    {"mirostat", L, NOTHING, 0, 0, 0},
    {"dynatemp_range", L, NOTHING, 0, 0, 0},
};

raffle_status raffle_request_start(raffle_request *request, raffle_dialect dialect, raffle_error *error) {
    if (!request) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "raffle_request is NULL");
    if (dialect < RAFFLE_DIALECT_VLLM || dialect > RAFFLE_DIALECT_LLAMA_CPP)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "dialect is %d: not a raffle_dialect", (int)dialect);
    memset(request, 0, sizeof *request);
    request->size = (uint32_t)sizeof *request;
    request->dialect = (int32_t)dialect;
    request->temperature = 1.0f;
    request->top_p = 1.0f;
    request->logprobs = -1;
    if (dialect != RAFFLE_DIALECT_LLAMA_CPP) return RAFFLE_OK;
    request->temperature = 0.8f; /* its default chain: filters before temperature, penalties over the last 64 tokens */
    request->top_k = 40;
    request->top_p = 0.95f;
    request->min_p = 0.05f;
    request->extra.penalty_window = 64;
    request->extra.flags = RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST | RAFFLE_COUNT_PROMPT;
    return RAFFLE_OK;
}

static const name *name_find(const char *text, int dialect) {
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (!strcmp(names[i].name, text) && names[i].dialects >> dialect & 1) return &names[i];
    return NULL;
}

raffle_status raffle_request_set(raffle_request *request, const char *text, double value, raffle_error *error) {
    static const char *const dialects[] = {"vLLM", "OpenAI", "llama.cpp"};
    raffle_request checked;
    raffle_status status = TAKE(&checked, request, raffle_request);
    if (status) return status;
    if (checked.dialect < 0 || checked.dialect > RAFFLE_DIALECT_LLAMA_CPP)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "dialect is %d: not a raffle_dialect", checked.dialect);
    if (!text) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "the name is NULL");
    const name *n = name_find(text, checked.dialect);
    if (!n) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%.40s: %s has no such parameter that raffle knows", text, dialects[checked.dialect]);
    if (n->kind == NOTHING) {
        if (value == n->low) return RAFFLE_OK;
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "%s is %g: raffle does not do that", n->name, value);
    }
    const int whole = n->kind != REAL, seed = n->kind == SEED;
    if (whole && (!(value >= -9007199254740992.0 && value <= 9007199254740992.0) || value != (double)(int64_t)value))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %g: must be a whole number", n->name, value);
    if (!seed && !(value >= n->low && value <= n->high))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %g: must be %g to %g", n->name, value, n->low, n->high);
    char *field = (char *)request + n->at;
    const uint64_t bits = (uint64_t)(int64_t)(seed ? value : 0);
    const int32_t count = (int32_t)(whole && !seed ? value : 0);
    const float real = (float)(whole ? 0 : value);
    const int32_t all = count < 0 && n->at != AT(logprobs) ? 0 : count; /* -1 is how engines write "off" or "all" */
    if (seed) memcpy(field, &bits, sizeof bits);
    else if (whole) memcpy(field, &all, sizeof all);
    else memcpy(field, &real, sizeof real);
    return RAFFLE_OK;
}

raffle_status raffle_request_check(const raffle_request *given, int64_t vocab, raffle_error *error) {
    raffle_request r;
    raffle_status status = TAKE(&r, given, raffle_request);
    if (status) return status;
    if (vocab < 1 || vocab > RAFFLE_VOCAB_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "vocab is %lld: must be 1 to %d", (long long)vocab, RAFFLE_VOCAB_MAX);
    if (!(r.temperature >= 0.0f)) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "temperature is %g: must be 0 or more", (double)r.temperature);
    if (r.top_p != r.top_p || r.min_p != r.min_p) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is NaN", r.top_p != r.top_p ? "top_p" : "min_p");
    if (r.extra.min_tokens > 0 && !r.extra.stop_count)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "min_tokens is %d, but there are no stop ids to ban", r.extra.min_tokens);
    const float most = r.dialect == RAFFLE_DIALECT_OPENAI ? 100.0f : 1e30f;
    for (int32_t i = 0; r.extra.bias && i < r.extra.bias_count; ++i)
        if (r.extra.bias[i] > most || (r.dialect == RAFFLE_DIALECT_OPENAI && r.extra.bias[i] < -most))
            return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "logit_bias[%d] is %g: must be -100 to 100", i, (double)r.extra.bias[i]);
    call one;
    memset(&one, 0, sizeof one);
    one.params.extra = &r.extra;
    one.params.state = (const raffle_state *)&one.state; /* a history is a matter of the call */
    one.vocab = vocab;
    return raffle_check_extra(&one, 0, 0, error);
}
