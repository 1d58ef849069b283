/* pick.h - parameters for random tests: common values, extreme ones, and anything between. */
#ifndef RAFFLE_TESTS_PICK_H
#define RAFFLE_TESTS_PICK_H

#include <math.h>

#include "test.h"

static inline float pick_temperature(test_random *r) {
    static const float some[] = {0.0f,  1e-6f,  1e-5f, 1.01e-5f, 1e-4f,    1e-3f,    0.05f,     0.3f,
                                 0.7f,  0.71f,  1.0f,  1.0f,     1.0f,     1.9999f,  2.0f,      3.0f,
                                 10.0f, 100.0f, 1e9f,  0x1p99f,  0x1p100f, INFINITY, 0x1.8p60f, 1e30f};
    if (random_below(r, 3)) return some[random_below(r, (int64_t)(sizeof some / sizeof *some))];
    return (float)exp(-11.5 + 16.1 * random_unit(r)); /* 1e-5 to 100 */
}

static inline int32_t pick_top_k(test_random *r, int64_t vocab) {
    static const int32_t some[] = {0, 0, 0, 0, 1, 2, 3, 20, 50, 64, 65, 127, 128, 256, 1000, 5000, -1, 0x7fffffff};
    int64_t choice = random_below(r, 22);
    if (choice < 18) return some[choice];
    if (choice == 18) return (int32_t)vocab - 1;
    if (choice == 19) return (int32_t)vocab;
    return (int32_t)(1 + random_below(r, vocab));
}

static inline float pick_top_p(test_random *r) {
    static const float some[] = {0.001f, 0.01f,   0.1f, 0.3f,  0.5f, 0.8f,      0.9f,  0.95f,          0.99f,
                                 0.999f, 0.9999f, 0.0f, -1.0f, 1.5f, 0x1p-149f, 1e-9f, 0x1.fffffep-1f, 0x1p-1f};
    int64_t choice = random_below(r, 40);
    if (choice < 18) return some[choice];
    return choice < 25 ? (float)random_unit(r) : 1.0f;
}

static inline float pick_min_p(test_random *r) {
    static const float some[] = {0.05f,  0.1f,   0.01f,     0.5f,           0.9f,  1.0f,  2.0f,
                                 1e-10f, 1e-20f, 0x1p-149f, 0x1.fffffep-1f, -0.5f, 1e-38f};
    int64_t choice = random_below(r, 32);
    return choice < 13 ? some[choice] : choice < 15 ? (float)random_unit(r) : 0.0f;
}

static inline uint32_t pick_flags(test_random *r) { return random_below(r, 3) ? (uint32_t)random_below(r, 32) : 0; }

#endif
