/* fuzz.h - what the fuzz targets have in common: a check that ends the process, and the input as a stream of numbers. */
#ifndef RAFFLE_TESTS_FUZZ_H
#define RAFFLE_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not (%s)\n", __FILE__, __LINE__, #condition);                                      \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct input { const uint8_t *at, *end; } input;

static inline uint64_t take(input *in, int bytes) { /* zeros once the input is used up */
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= (uint64_t)(in->at < in->end ? *in->at++ : 0) << (8 * i);
    return value;
}

#endif
