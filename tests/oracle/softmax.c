#include "softmax.h"

#include <math.h>
#include <stdlib.h>

typedef struct token {
    long double x, share;
    int64_t id;
    int kept;
} token;

static int descending(const void *left, const void *right) {
    const token *a = left, *b = right;
    if (a->x != b->x) return a->x > b->x ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* exp((x - best) / T): +inf tokens share evenly, so do all tokens at T = +inf. */
static long double likelihood(long double x, long double best, float temperature) {
    if (x == best) return 1;
    if (isinf(best) || x == -INFINITY) return 0;
    if (isinf(temperature)) return 1;
    return expl((x - best) / (long double)temperature);
}

static token *sorted_tokens(const oracle_case *g, int64_t *count) {
    token *list = malloc((size_t)g->vocab * sizeof *list);
    *count = 0;
    for (int64_t i = 0; i < g->vocab; ++i) {
        float x = oracle_load(g->row, g->dtype, i);
        if (g->allow && !(g->allow[i / 32] >> i % 32 & 1)) continue;
        if (x != x || x == -INFINITY) continue;
        list[(*count)++] = (token){(long double)x, 0, i, 1};
    }
    qsort(list, (size_t)*count, sizeof *list, descending);
    return list;
}

static void filter_min_p(const oracle_case *g, token *list, int64_t count, float temperature) {
    if (!(g->min_p > 0)) return;
    for (int64_t i = 0; i < count; ++i)
        if (likelihood(list[i].x, list[0].x, temperature) < (long double)g->min_p && list[i].x < list[0].x)
            list[i].kept = 0;
}

static void filter_top_k(const oracle_case *g, token *list, int64_t count) {
    if (g->top_k <= 0 || g->top_k >= count) return;
    long double border = list[g->top_k - 1].x;
    for (int64_t i = g->top_k; i < count; ++i)
        if (list[i].x < border || g->flags & RAFFLE_TOP_K_EXACT) list[i].kept = 0;
}

static int64_t filter_top_p(const oracle_case *g, token *list, int64_t count) {
    if (!(g->top_p < 1)) return 0;
    long double total = 0, above = 0;
    int64_t doubtful = 0;
    for (int64_t i = 0; i < count; ++i)
        if (list[i].kept || g->flags & RAFFLE_TOP_P_JOINT) total += list[i].share;
    for (int64_t i = 0; i < count;) {
        long double run = 0, over = above / total - (long double)g->top_p;
        int64_t end = i;
        for (; end < count && list[end].x == list[i].x; ++end)
            if (list[end].kept) run += list[end].share;
        for (; i < end; ++i) {
            doubtful += list[i].kept && fabsl(over) < 1e-6L;
            if (above > 0 && over >= 0) list[i].kept = 0;
        }
        above += run;
    }
    return doubtful;
}

void softmax_law(const oracle_case *g, long double *probability, int64_t *doubtful) {
    int64_t count, doubts = 0;
    token *list = sorted_tokens(g, &count);
    for (int64_t i = 0; i < g->vocab; ++i) probability[i] = 0;
    float looked_at = g->flags & RAFFLE_FILTERS_FIRST ? 1.0f : g->temperature;
    if (count && (g->temperature < 1e-5f || g->top_k == 1 || g->top_p <= 0)) {
        probability[list[0].id] = 1;
    } else if (count) {
        for (int64_t i = 0; i < count; ++i) list[i].share = likelihood(list[i].x, list[0].x, looked_at);
        if (!(g->flags & RAFFLE_MIN_P_LAST)) filter_min_p(g, list, count, looked_at);
        filter_top_k(g, list, count);
        doubts = filter_top_p(g, list, count);
        if (g->flags & RAFFLE_MIN_P_LAST) filter_min_p(g, list, count, looked_at);
        long double total = 0;
        for (int64_t i = 0; i < count; ++i)
            if (list[i].kept) total += probability[list[i].id] = likelihood(list[i].x, list[0].x, g->temperature);
        for (int64_t i = 0; i < count; ++i) probability[list[i].id] /= total;
    }
    if (doubtful) *doubtful = doubts;
    free(list);
}
