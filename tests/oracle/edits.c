/* edits.c - docs/determinism.md, section 1: what requests do to logits. Every token by itself, by counting through
 * the whole history again and again. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "inside.h"

static int has(const int32_t *list, int64_t count, int32_t id) {
    for (int64_t i = 0; i < count; ++i)
        if (list[i] == id) return 1;
    return 0;
}

static int ends_with(const oracle_case *g, const int32_t *words, int64_t count) {
    if (count > g->history_length) return 0;
    for (int64_t i = 0; i < count; ++i)
        if (g->history[g->history_length - 1 - i] != words[count - 1 - i]) return 0;
    return 1;
}

void oracle_ban(const oracle_case *g, uint8_t *banned) {
    const raffle_extra *e = g->extra;
    for (int64_t id = 0; e->allowed_count && id < g->vocab; ++id) banned[id] = 1;
    for (int64_t i = 0; i < e->allowed_count; ++i) banned[e->allowed[i]] = 0;
    for (int64_t i = 0; i < e->banned_count; ++i) banned[e->banned[i]] = 1;
    for (int64_t i = 0; i < e->stop_count; ++i)
        if (g->history_length - g->prompt_length < e->min_tokens) banned[e->stop[i]] = 1;
    for (int64_t first = 0, i = 0; i < e->bad_words_count; ++i) {
        if (e->bad_words[i] != -1) continue;
        int64_t before = i - first - 1, said = g->history_length - (e->flags & RAFFLE_BAD_WORDS_OUTPUT ? g->prompt_length : 0);
        if (before <= said && ends_with(g, e->bad_words + first, before)) banned[e->bad_words[i - 1]] = 1;
        first = i + 1;
    }
    int64_t n = e->no_repeat_ngram;
    for (int64_t end = n; n && end <= g->history_length; ++end) /* the n-gram before `end` */
        if (ends_with(g, g->history + end - n, n - 1)) banned[g->history[end - 1]] = 1;
}

/* How much of the history's end, read backwards, is found before token `at`, read backwards. */
static int64_t dry_length(const oracle_case *g, int64_t first, int64_t at) {
    int64_t length = 0;
    for (int64_t i = at - 1, j = g->history_length - 1; i >= first && length < 64; --i, --j, ++length)
        if (g->history[i] != g->history[j] || has(g->extra->breaker, g->extra->breaker_count, g->history[i])) break;
    return length;
}

static float dry_penalty(const raffle_extra *e, int64_t length, int64_t allowed) {
    double power = (double)e->dry_multiplier, square = e->dry_base == 0 ? 1.75 : (double)e->dry_base;
    for (int64_t bit = 1; bit <= length - allowed; bit *= 2) {
        if ((length - allowed) & bit) power *= square;
        square *= square;
    }
    return power < (double)FLT_MAX ? (float)power : FLT_MAX;
}

void oracle_edit(const oracle_case *g, float *x) {
    const raffle_extra *e = g->extra;
    int64_t window = e->penalty_window ? e->penalty_window : g->history_length;
    int64_t first = g->history_length > window ? g->history_length - window : 0;
    int64_t range = e->dry_range ? e->dry_range : g->history_length;
    int64_t dry_first = g->history_length > range ? g->history_length - range : 0;
    int64_t allowed = e->dry_allowed ? e->dry_allowed : 2;
    int64_t *in = calloc((size_t)g->vocab, 8), *out = calloc((size_t)g->vocab, 8), *dry = calloc((size_t)g->vocab, 8);
    for (int64_t i = first; i < g->history_length; ++i) ++(i < g->prompt_length ? in : out)[g->history[i]];
    for (int64_t i = dry_first + 1; i < g->history_length && e->dry_multiplier != 0; ++i) {
        int64_t length = dry_length(g, dry_first, i);
        int32_t id = g->history[i];
        if (length >= allowed && length > dry[id] && !has(e->breaker, e->breaker_count, id)) dry[id] = length;
    }
    for (int64_t id = 0; id < g->vocab; ++id) {
        float v = x[id];
        if (v == -INFINITY) continue;
        for (int64_t i = 0; i < e->bias_count; ++i)
            if (e->bias_id[i] == id) v = e->bias[i] == -INFINITY ? -INFINITY : v + e->bias[i];
        if (v == -INFINITY) {
            x[id] = v;
            continue;
        }
        int seen = out[id] > 0 || (in[id] > 0 && !(e->flags & RAFFLE_REPETITION_OUTPUT));
        int64_t count = out[id] + (e->flags & RAFFLE_COUNT_PROMPT ? in[id] : 0);
        if (seen && e->repetition != 0) v = v > 0 ? v / e->repetition : v * e->repetition;
        float off = (float)count * e->frequency;
        if (count) v = v - off;
        if (count) v = v - e->presence;
        if (dry[id] && v > -INFINITY) v = v - dry_penalty(e, dry[id], allowed);
        x[id] = v;
    }
    free(in);
    free(out);
    free(dry);
}
