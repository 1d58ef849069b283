/* test.h - named test cases in one program, with no dependency.
 *
 *     TEST(half_is_exact) { CHECK_EQ(float_bits(x), 0x3f000000); }
 *     int main(void) { RUN(half_is_exact); return test_report("half"); }
 *
 * A case fails if any of its checks does; SKIP("why") ends a case that cannot run here. The last line printed is
 * "NAME: N passed, N failed" and, if there are any, ", N skipped". Checks belong on the main thread. */
#ifndef RAFFLE_TESTS_TEST_H
#define RAFFLE_TESTS_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEST_PRINT_MAX = 12 }; /* failures printed per case; the rest are counted */

static struct {
    const char *name, *skipped;
    long checks, failures, passed, failed, skips;
} test_state;

/* How much of `n` to do: a tenth under RAFFLE_TEST_QUICK (sanitizers, emulators), or the part that its number says; five
 * times as much under RAFFLE_TEST_LONG. */
static inline int64_t test_amount(int64_t n) {
    const char *quick = getenv("RAFFLE_TEST_QUICK");
    if (quick) {
        const int part = atoi(quick) > 1 ? atoi(quick) : 10;
        return n / part > 0 ? n / part : 1;
    }
    return getenv("RAFFLE_TEST_LONG") ? n * 5 : n;
}

#define TEST(name) static void test_##name(void)
#define RUN(name)  test_run(#name, test_##name)

/* RAFFLE_TEST_PART=2/5: only every fifth case, from the second on, for a program that several processes share. */
static inline const char *test_part(void) { return getenv("RAFFLE_TEST_PART"); }
static inline int test_here(void) {
    static long number;
    const char *part = test_part();
    long index = 1, parts = 1;
    if (part && (sscanf(part, "%ld/%ld", &index, &parts) != 2 || index < 1 || index > parts)) {
        fprintf(stderr, "RAFFLE_TEST_PART=%s is not I/N\n", part);
        exit(2);
    }
    return number++ % parts == index - 1;
}

static inline void test_run(const char *name, void (*body)(void)) {
    if (!test_here()) return;
    test_state.name = name;
    test_state.skipped = NULL;
    test_state.checks = test_state.failures = 0;
    clock_t start = clock();
    body();
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC; /* of processor time */
    if (test_state.failures) {
        ++test_state.failed;
        printf("FAIL %s (%ld of %ld checks)\n", name, test_state.failures, test_state.checks);
    } else if (test_state.skipped) {
        ++test_state.skips;
        printf("skip %s: %s\n", name, test_state.skipped);
    } else if (!test_state.checks) { /* a case that checks nothing must not look green */
        ++test_state.failed;
        printf("FAIL %s (no check ran)\n", name);
    } else {
        ++test_state.passed;
        printf("ok   %s (%ld checks, %.1f s)\n", name, test_state.checks, seconds);
    }
    fflush(stdout);
}

static inline int test_report(const char *program) {
    printf("%s: %ld passed, %ld failed", program, test_state.passed, test_state.failed);
    if (test_state.skips) printf(", %ld skipped", test_state.skips);
    printf("\n");
    return test_state.failed || !(test_state.passed + test_state.skips || test_part()) ? 1 : 0;
}

/* 1 if this failure should be printed. */
static inline int test_note(int good) {
    ++test_state.checks;
    if (good) return 0;
    return ++test_state.failures <= TEST_PRINT_MAX;
}

#define SKIP(reason)                                                                                                   \
    do {                                                                                                               \
        test_state.skipped = reason;                                                                                   \
        return;                                                                                                        \
    } while (0)

/* CHECK(condition, "format", values...): the message is printed after file and line. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (test_note(!!(condition))) {                                                                                \
            printf("%s:%d: %s: not (%s): ", __FILE__, __LINE__, test_state.name, #condition);                          \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

/* Integers and bit patterns. */
#define CHECK_EQ(got, wanted)                                                                                          \
    do {                                                                                                               \
        long long test_got = (long long)(got), test_wanted = (long long)(wanted);                                      \
        if (test_note(test_got == test_wanted))                                                                        \
            printf("%s:%d: %s: %s is %lld (0x%llx), wanted %lld (0x%llx)\n", __FILE__, __LINE__, test_state.name,      \
                   #got, test_got, (unsigned long long)test_got, test_wanted, (unsigned long long)test_wanted);        \
    } while (0)

#define CHECK_STATUS(call, wanted)                                                                                     \
    do {                                                                                                               \
        int test_got = (int)(call);                                                                                    \
        if (test_note(test_got == (int)(wanted)))                                                                      \
            printf("%s:%d: %s: %s gave status %d, wanted %d\n", __FILE__, __LINE__, test_state.name, #call, test_got,  \
                   (int)(wanted));                                                                                     \
    } while (0)

static inline uint32_t float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- fixed pseudo-random numbers for tests: splitmix64 ---- */

typedef struct test_random {
    uint64_t state;
} test_random;

static inline uint64_t random_bits(test_random *r) {
    uint64_t z = r->state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static inline int64_t random_below(test_random *r, int64_t end) { return (int64_t)(random_bits(r) % (uint64_t)end); }
static inline double random_unit(test_random *r) { return (double)(random_bits(r) >> 11) * 0x1p-53; }

/* About normal, of deviation 1. */
static inline float random_bell(test_random *r) {
    float sum = 0.0f;
    for (int i = 0; i < 6; ++i) sum += (float)random_unit(r) - 0.5f;
    return sum * 1.41421356f;
}

#endif
