/* exp2.c - the polynomial and the weight, for every f32 of their range: never descending, and how far off.
 *
 * Asserted: relative error of the polynomial at most 1.45e-7 on [-2^-11, 1 + 2^-11]; of the weight (before it becomes
 * an integer) at most 1.9e-7 at temperatures 1 and 0.71; both never descend. Several threads share the floats. Compiled
 * with the fma instruction where there is one; soft_fma.c shows that the other way gives the same bits. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "../common/test.h"
#include "vec_one.h"

#include "weigh.h"

enum { THREADS = 4, BLOCKS = 64 };
static const double POLYNOMIAL_BOUND = 1.45e-7, WEIGHT_BOUND = 1.9e-7;

/* One range of floats by bit pattern: the function walks it towards larger magnitudes. */
typedef struct sweep {
    uint32_t first, end; /* bit patterns of |argument| */
    int negative;
    int weight; /* 0: the polynomial, 1: the weight */
    const ref *reference;
    scale s;
    double unit; /* the exact value is unit * 2^(argument * per) */
    double per;
} sweep;

typedef struct outcome {
    double worst;
    uint32_t worst_bits, descent_bits;
    long descents;
    float first_value, last_value;
} outcome;

static float value_of(const sweep *w, uint32_t bits) {
    float x = float_of(bits | (w->negative ? 0x80000000u : 0));
    if (!w->weight) return v_first(v_exp2(v_set(x)));
    return v_first(v_weight(v_set(x), w->reference, w->reference->kind == REF_TALL));
}

/* 2^y; below 2^-26 the first two terms are closer than a double can tell. */
static double exact_of(double y) { return fabs(y) < 0x1p-26 ? 1.0 + y * 0.6931471805599453 : exp2(y); }

static outcome sweep_run(const sweep *w) {
    outcome o = {0, 0, 0, 0, 0, 0};
    float before = value_of(w, w->first);
    o.first_value = before;
    for (uint32_t bits = w->first; bits < w->end; ++bits) {
        float got = value_of(w, bits);
        double y = (double)float_of(bits | (w->negative ? 0x80000000u : 0)) * w->per;
        double wanted = w->unit * exact_of(y), error = fabs((double)got - wanted);
        if (error > o.worst * wanted) o.worst = error / wanted, o.worst_bits = bits;
        if (w->negative ? got > before : got < before) ++o.descents, o.descent_bits = bits;
        before = got;
    }
    o.last_value = before;
    return o;
}

/* ---- threads: block i of a sweep; blocks overlap by one float so that no seam is missed ---- */

typedef struct job {
    sweep whole;
    outcome out[BLOCKS];
    int next;
    pthread_mutex_t lock;
} job;

static void *work(void *given) {
    job *j = given;
    for (;;) {
        pthread_mutex_lock(&j->lock);
        int i = j->next++;
        pthread_mutex_unlock(&j->lock);
        if (i >= BLOCKS) return NULL;
        sweep w = j->whole;
        uint64_t span = w.end - w.first;
        uint32_t first = w.first + (uint32_t)(span * (uint64_t)i / BLOCKS);
        w.end = w.first + (uint32_t)(span * (uint64_t)(i + 1) / BLOCKS) + (i + 1 < BLOCKS);
        w.first = first;
        j->out[i] = sweep_run(&w);
    }
}

static void check_sweep(const char *what, sweep whole, double bound) {
    static job j;
    pthread_t threads[THREADS];
    j.whole = whole;
    j.next = 0;
    pthread_mutex_init(&j.lock, NULL);
    for (int i = 0; i < THREADS; ++i)
        if (pthread_create(&threads[i], NULL, work, &j)) abort();
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&j.lock);
    double worst = 0;
    uint32_t at = 0;
    for (int i = 0; i < BLOCKS; ++i) {
        CHECK(j.out[i].descents == 0, "%s descends %ld times, last at bits %08x", what, j.out[i].descents,
              j.out[i].descent_bits);
        if (j.out[i].worst > worst) worst = j.out[i].worst, at = j.out[i].worst_bits;
    }
    CHECK(worst <= bound, "%s is off by %.4g at bits %08x", what, worst, at);
    printf("     %s: %u floats, largest relative error %.4g at %a\n", what, whole.end - whole.first, worst,
           (double)float_of(at | (whole.negative ? 0x80000000u : 0)));
}

/* ---- the polynomial ---- */

static const double P_UNIT = 1.0 - 0x1p-10; /* P(r) is about (1 - 2^-10) 2^r */

TEST(polynomial_upwards) {
    sweep w = {0, bits_of(1.0f + 0x1p-11f) + 1, 0, 0, NULL, {0, 0, 0, 0, 0}, P_UNIT, 1.0};
    check_sweep("P(r), r in [0, 1 + 2^-11]", w, POLYNOMIAL_BOUND);
}

TEST(polynomial_below_zero) {
    sweep w = {bits_of(0x1p-40f), bits_of(0x1p-11f) + 1, 1, 0, NULL, {0, 0, 0, 0, 0}, P_UNIT, 1.0};
    check_sweep("P(r), r in [-2^-11, -2^-40]", w, POLYNOMIAL_BOUND);
}

TEST(polynomial_seam) {
    float one = v_first(v_exp2(v_set(1.0f))), zero = v_first(v_exp2(v_set(0.0f)));
    CHECK(one <= 2 * zero, "P(1) = %a, 2 P(0) = %a", (double)one, (double)(2 * zero));
    CHECK(v_first(v_exp2(v_set(1.0f + 0x1p-11f))) < 2.0f, "P(1 + 2^-11) reaches 2, so weights would need 33 bits");
    float half = v_first(v_exp2(v_set(0.5f))) * HALF_STEP_INVERSE;
    CHECK(fabsf(half - 1.0f) <= 0x1p-23f, "P(1/2) * HALF_STEP_INVERSE is %a", (double)half);
}

/* ---- the weight: every x from a maximum of 0 down to where nothing is left ---- */

static void check_weight(const char *what, float temperature) {
    scale s = scale_make(temperature);
    ref reference = ref_make(s, 0.0f);
    double per = 1.4426950408889634 / (double)temperature; /* its error, 1e-16 * 60, is far below the bound */
    sweep w = {0, bits_of(s.drop), 1, 1, &reference, s, P_UNIT * sqrt(2.0) * 0x1p31, per};
    check_sweep(what, w, WEIGHT_BOUND);
}

TEST(weight_at_1) { check_weight("weight at T = 1, all x in (-drop, 0]", 1.0f); }
TEST(weight_at_071) { check_weight("weight at T = 0.71, all x in (-drop, 0]", 0.71f); }

#if defined(__x86_64__) && defined(__FMA__)
TEST(needs_fma) { SKIP("compiled for the fma instruction, which this processor lacks"); }
#endif

int main(void) {
#if defined(__x86_64__) && defined(__FMA__)
    if (!__builtin_cpu_supports("fma")) {
        RUN(needs_fma);
        return test_report("exp2");
    }
#endif
    RUN(polynomial_upwards);
    RUN(polynomial_below_zero);
    RUN(polynomial_seam);
    RUN(weight_at_1);
    RUN(weight_at_071);
    return test_report("exp2");
}
