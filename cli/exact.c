#include "exact.h"

#include <math.h>
#include <stdlib.h>

#include "input.h"

static int by_logit(const void *a, const void *b) {
    const ranked *const x = a, *const y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

double exact_mass(const ranked *list, int64_t count) {
    double sum = 0;
    for (int64_t i = count; i-- > 0;) sum += list[i].probability; /* the small ones first */
    return sum;
}

/* How likely a logit is beside the best one, which is not -inf. */
static double likelihood(double x, double best, double temperature) {
    if (x == -INFINITY) return 0;
    if (temperature == (double)EXACT_WEIGHTS) return best == INFINITY ? x == best : x / best;
    if (x == best) return 1;
    if (best == INFINITY) return 0;
    const double divisor = temperature < 1e-5 ? 1.0 : temperature;
    return divisor >= 0x1p100 ? 1 : exp((x - best) / divisor); /* the library's uniform */
}

void exact_law(ranked *list, int64_t count, float temperature) {
    for (int64_t i = 0; i < count; ++i)
        list[i].probability = likelihood(list[i].logit, list[0].logit, temperature);
    const double sum = exact_mass(list, count);
    for (int64_t i = 0; sum > 0 && i < count; ++i) list[i].probability /= sum;
}

void exact_rank(const void *row, raffle_dtype dtype, int64_t vocab, float temperature, ranked *list) {
    for (int64_t i = 0; i < vocab; ++i) {
        const float x = logit_of(row, dtype, i);
        list[i].token = (int32_t)i;
        list[i].logit = isnan(x) ? -INFINITY : x;
    }
    qsort(list, (size_t)vocab, sizeof *list, by_logit);
    exact_law(list, vocab, temperature);
}
