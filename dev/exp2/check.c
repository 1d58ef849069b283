/* Exhaustive check of the exp2 polynomial: every f32 r of [-2^-11, 1 + 2^-11] against exp2l, and the
 * whole sequence y -> p(r) 2^n over every f32 y of [-64, 64].
 *
 *   gcc -O2 -mfma -ffp-contract=off check.c -o check -lm     (-fopenmp: faster)
 *   ./check                     the coefficients of README.md
 *   ./check K0 K1 ... K5        others (hex floats)
 *
 * The exit status is 0 when all K are positive, p < 2, the seam holds and no y has a larger value than
 * the float above it.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 12582912.0f /* 1.5 * 2^23 */
#define FACTOR (1 - 0x1p-10L)
#define BEYOND 0x1p-11f /* how far r may leave [0, 1] */

static float K[6] = {
    0x1.ff8p-1f,    0x1.628bfcp-1f, 0x1.eb6136p-3f,
    0x1.c8a06p-5f,  0x1.275f9cp-7f, 0x1.e858d2p-10f,
};

static inline float bits_f(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t f_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

static inline float poly(float r) {
    float p = K[5];
    p = fmaf(p, r, K[4]);
    p = fmaf(p, r, K[3]);
    p = fmaf(p, r, K[2]);
    p = fmaf(p, r, K[1]);
    return fmaf(p, r, K[0]);
}

static inline float value(float y) {
    float n = (y + MAGIC) - MAGIC;
    float r1 = y - n; /* exact */
    float p = poly(r1 + 0.5f);
    return p * bits_f((uint32_t)((int32_t)n + 127) << 23); /* |n| <= 64: exact */
}

typedef struct result {
    double worst, sum, width; /* sum of error * spacing, and of spacing */
    float at, top;            /* where the worst is; the largest value */
    uint64_t pairs, descents;
    double drop;              /* the largest descent, relative */
} result;

/* Every float from a to b (one sign, |a| <= |b|), and the descents between neighbours. */
static result scan(float (*fn)(float), long double factor, float a, float b) {
    const uint32_t first = f_bits(a), last = f_bits(b);
    const int neg = signbit(a) != 0;
    result out = {0};
    out.pairs = last - first;
#pragma omp parallel
    {
        result m = {0};
#pragma omp for schedule(dynamic, 16)
        for (uint32_t c = first; c <= last; c += 4096) {
            uint32_t end = last - c < 4096 ? last : c + 4095;
            for (uint32_t u = c; u <= end; u++) {
                float x = bits_f(u), v = fn(x);
                /* below 2^-40, 2^x is 1 */
                long double want = fabsf(x) < 0x1p-40f ? factor : factor * exp2l(x);
                double e = (double)(v / want - 1.0L);
                double g = fabs((double)bits_f(u + 1) - x);
                if (fabs(e) > m.worst) m.worst = fabs(e), m.at = x;
                if (v > m.top) m.top = v;
                m.sum += e * g, m.width += g;
                if (u < last) {
                    float w = fn(bits_f(u + 1));
                    float less = neg ? w : v, more = neg ? v : w;
                    if (!(less <= more)) {
                        double d = ((double)less - more) / more;
                        m.descents++;
                        if (d > m.drop) m.drop = d;
                    }
                }
            }
        }
#pragma omp critical
        {
            if (m.worst > out.worst) out.worst = m.worst, out.at = m.at;
            if (m.top > out.top) out.top = m.top;
            if (m.drop > out.drop) out.drop = m.drop;
            out.sum += m.sum, out.width += m.width, out.descents += m.descents;
        }
    }
    return out;
}

static result show(const char *name, result s) {
    printf("%-22s max rel. error %.5e at %-15a mean %+.2e  %llu descents in %llu pairs", name, s.worst, s.at,
           s.sum / s.width, (unsigned long long)s.descents, (unsigned long long)s.pairs);
    if (s.descents) printf(" (largest %.1e)", s.drop);
    printf("\n");
    fflush(stdout);
    return s;
}

int main(int argc, char **argv) {
    if (argc == 7)
        for (int i = 0; i < 6; i++) K[i] = strtof(argv[i + 1], NULL);
    int ok = 1;
    for (int i = 0; i < 6; i++) {
        printf("K%d = %af\n", i, K[i]);
        ok &= K[i] > 0;
    }

    result pos = show("p, r in [0, 1+2^-11]", scan(poly, FACTOR, 0.0f, 1.0f + BEYOND));
    show("p, r in [-2^-11, -0]", scan(poly, FACTOR, -0.0f, -BEYOND));
    printf("largest p: %a: %s\n", pos.top, pos.top < 2 ? "below 2" : "NOT BELOW 2");
    printf("seam: p(1) = %a, 2 p(0) = %a: %s\n", poly(1), 2 * poly(0), poly(1) <= 2 * poly(0) ? "ok" : "BROKEN");
    printf("1 / p(0.5) = %af\n", 1 / poly(0.5f));
    ok &= pos.top < 2 && poly(1) <= 2 * poly(0) && pos.descents == 0;

    const long double factor = FACTOR * sqrtl(2);
    result up = show("value, y in [0, 64]", scan(value, factor, 0.0f, 64.0f));
    result down = show("value, y in [-64, -0]", scan(value, factor, -0.0f, -64.0f));
    ok &= up.descents == 0 && down.descents == 0 && value(-0.0f) == value(0.0f);
    printf("%s\n", ok ? "ok" : "FAILED");
    return !ok;
}
