#define _POSIX_C_SOURCE 200809L
#include "request.h"

#include <stdlib.h>
#include <string.h>

/* The lists of the command line as those of a raffle_extra. */
static raffle_extra extra_of(const options *o) {
    raffle_extra e = o->request.extra;
    const id_list *const bias = &o->lists[LIST_BIAS], *const banned = &o->lists[LIST_BANNED],
                         *const allowed = &o->lists[LIST_ALLOWED], *const stop = &o->lists[LIST_STOP],
                         *const breaker = &o->lists[LIST_BREAKER], *const words = &o->lists[LIST_WORDS];
    e.bias_count = bias->count, e.bias_id = bias->id, e.bias = bias->value;
    e.banned_count = banned->count, e.banned = banned->id;
    e.allowed_count = allowed->count, e.allowed = allowed->id;
    e.stop_count = stop->count, e.stop = stop->id;
    e.breaker_count = breaker->count, e.breaker = breaker->id;
    e.bad_words_count = words->count, e.bad_words = words->id;
    return e;
}

/* Ids that the rows do not have, by the option's name. */
static exit_code ids_check(const options *o, int64_t vocab) {
    static const char *const names[LISTS] = {"bias", "banned", "allowed", "stop", "bad-words", "dry-breakers", "prompt", "generated"};
    for (int i = 0; i < LISTS; ++i)
        for (int32_t n = 0; n < o->lists[i].count; ++n)
            if (o->lists[i].id[n] >= vocab)
                return complain("--%s has token %d: the file has 0 to %lld", names[i], (int)o->lists[i].id[n],
                                (long long)vocab - 1),
                       EXIT_USAGE;
    return EXIT_FINE;
}

/* Numbers that need a list beside them. */
static exit_code company_check(const options *o) {
    const raffle_extra *const e = &o->request.extra;
    const char *const user = e->repetition != 0.0f && e->repetition != 1.0f ? "repetition-penalty"
                             : e->frequency != 0.0f                         ? "frequency-penalty"
                             : e->presence != 0.0f                          ? "presence-penalty"
                             : e->no_repeat_ngram                           ? "no-repeat-ngram-size"
                             : e->dry_multiplier != 0.0f                    ? "dry-multiplier"
                             : e->min_tokens                                ? "min-tokens"
                             : o->lists[LIST_WORDS].count                   ? "bad-words"
                                                                            : NULL;
    if (e->min_tokens && !o->lists[LIST_STOP].count)
        return complain("--min-tokens is %d, but --stop has no tokens to ban", (int)e->min_tokens), EXIT_USAGE;
    if (user && !o->lists[LIST_PROMPT].given && !o->lists[LIST_GENERATED].given)
        return complain("--%s looks at the history: --prompt or --generated is missing", user), EXIT_USAGE;
    return EXIT_FINE;
}

/* A state whose one slot has said what --prompt and --generated tell. */
static exit_code history_open(request *r, const options *o, int64_t vocab) {
    const id_list *const prompt = &o->lists[LIST_PROMPT], *const generated = &o->lists[LIST_GENERATED];
    raffle_error error = raffle_error_init();
    const int64_t length = (int64_t)prompt->count + generated->count;
    raffle_tokens tokens = raffle_tokens_init();
    if (!prompt->given && !generated->given) return EXIT_FINE;
    if (length > RAFFLE_HISTORY_MAX)
        return complain("--prompt and --generated have %lld tokens: at most %d", (long long)length, RAFFLE_HISTORY_MAX),
               EXIT_USAGE;
    r->state.slots = 1;
    r->state.history_max = length ? length : 1;
    r->state.vocab = vocab;
    if (posix_memalign(&r->state.memory, RAFFLE_WORKSPACE_ALIGN, raffle_state_bytes(&r->state))) {
        r->state.memory = NULL;
        return complain("out of memory for the history"), EXIT_MACHINE;
    }
    tokens.rows = 1;
    raffle_status status = raffle_state_clear(&r->state, NULL, &error);
    tokens.token = prompt->id;
    tokens.stride = prompt->count;
    if (!status && prompt->count) status = raffle_state_prompt(&r->state, &tokens, &error);
    tokens.token = generated->id;
    tokens.stride = generated->count;
    if (!status && generated->count) status = raffle_state_accept(&r->state, &tokens, &error);
    return status ? complain_of(&error) : EXIT_FINE;
}

exit_code request_open(request *r, const options *o, int64_t vocab) {
    raffle_error error = raffle_error_init();
    raffle_request checked = o->request;
    memset(r, 0, sizeof *r);
    r->state = raffle_state_init();
    r->probs = o->probs;
    r->extra_given = o->asks;
    if (!o->asks) return EXIT_FINE;
    r->extra = checked.extra = extra_of(o);
    exit_code code = ids_check(o, vocab);
    if (!code) code = company_check(o);
    if (code) return code;
    if (raffle_request_check(&checked, vocab, &error)) return complain_of(&error);
    return history_open(r, o, vocab);
}

void request_close(request *r) {
    free(r->state.memory);
    free(r->ids);
    free(r->values);
}

void request_desc(const request *r, raffle_plan_desc *desc) {
    desc->input = r->probs ? RAFFLE_PROBS : RAFFLE_LOGITS;
    desc->flags = (r->extra_given ? RAFFLE_PLAN_EXTRA : 0) | (r->report.size ? RAFFLE_PLAN_REPORT : 0);
    desc->history_max = r->state.memory ? r->state.history_max : 0;
}

void request_add(const request *r, raffle_params *params) {
    if (r->probs) params->temperature = NULL;
    if (!r->extra_given) return;
    params->extra = &r->extra;
    params->extra_bytes = sizeof r->extra;
    params->state = r->state.memory ? &r->state : NULL;
}

exit_code request_report(request *r, const options *o, int64_t tokens) {
    const size_t each = (size_t)o->request.logprobs + 1, count = each * (size_t)tokens;
    if (o->request.logprobs < 0) return EXIT_FINE;
    r->ids = malloc(count * sizeof *r->ids);
    r->values = malloc((count + (size_t)tokens) * sizeof *r->values);
    if (!r->ids || !r->values) return complain("out of memory for %zu log-probabilities", count), EXIT_MACHINE;
    r->report = raffle_report_init();
    r->report.point = o->point;
    r->report.rank = r->ids;
    r->report.chosen = r->values;
    r->report.entropy = r->values + tokens;
    r->report.top_count = o->request.logprobs;
    if (!r->report.top_count) return EXIT_FINE;
    r->report.top_token = r->ids + tokens;
    r->report.top = r->values + 2 * tokens;
    return EXIT_FINE;
}

raffle_report report_from(const raffle_report *all, int64_t first) {
    raffle_report part = *all;
    part.rank += first;
    part.chosen += first;
    part.entropy += first;
    if (part.top_count) part.top_token += first * part.top_count;
    if (part.top_count) part.top += first * part.top_count;
    return part;
}
