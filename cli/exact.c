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

void exact_rank(const void *row, raffle_dtype dtype, int64_t vocab, float temperature, ranked *list) {
    for (int64_t i = 0; i < vocab; ++i) {
        const float x = logit_of(row, dtype, i);
        list[i].token = (int32_t)i;
        list[i].logit = isnan(x) ? -INFINITY : x;
    }
    qsort(list, (size_t)vocab, sizeof *list, by_logit);
    const double best = list[0].logit, divisor = temperature < 1e-5f ? 1.0 : temperature;
    for (int64_t i = 0; i < vocab; ++i) {
        const double x = list[i].logit;
        if (x == -INFINITY)
            list[i].probability = 0;
        else if (x == best || divisor >= 0x1p100) /* the library's uniform */
            list[i].probability = best == INFINITY && x != best ? 0 : 1;
        else
            list[i].probability = exp((x - best) / divisor);
    }
    const double sum = exact_mass(list, vocab);
    for (int64_t i = 0; sum > 0 && i < vocab; ++i) list[i].probability /= sum;
}
