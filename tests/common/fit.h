/* fit.h - how well counts fit a law. */
#ifndef RAFFLE_TESTS_FIT_H
#define RAFFLE_TESTS_FIT_H

#include <math.h>
#include <stdint.h>

static const double P_LEAST = 1e-4;

/* Q(a, x) = Gamma(a, x) / Gamma(a): series below the mean, continued fraction above. */
static inline double gamma_q(double a, double x) {
    double scale = exp(-x + a * log(x) - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (double n = a + 1; fabs(term) > sum * 1e-16; ++n) sum += term *= x / n;
        return 1 - sum * scale;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 100000; ++i) {
        double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return h * scale;
}

/* The probability of a worse fit. Neighbouring tokens share a cell until it is expected to hold 8 draws; impossible
 * tokens must not occur. */
static inline double fit(const int64_t *count, const long double *law, int64_t vocab, int64_t draws, int *cells) {
    double chi = 0, expected = 0, got = 0;
    *cells = 0;
    for (int64_t i = 0; i < vocab; ++i) {
        if (law[i] == 0 && count[i]) return 0;
        expected += (double)(law[i] * (long double)draws);
        got += (double)count[i];
        if (expected < 8) continue;
        chi += (got - expected) * (got - expected) / expected;
        ++*cells;
        expected = got = 0;
    }
    if (got > 8 + 6 * sqrt(expected)) return 0; /* what is left over is too little for a cell */
    return *cells < 2 ? 1 : gamma_q((*cells - 1) / 2.0, chi / 2);
}

#endif
