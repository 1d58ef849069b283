/* fuzz.h - what the fuzz targets have in common: a check that ends the process, the input as a stream of numbers, and memory
 * that is exactly as large as it must be. */
#ifndef RAFFLE_TESTS_FUZZ_H
#define RAFFLE_TESTS_FUZZ_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raffle/raffle.h"

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

static inline int64_t below(input *in, int64_t end) { return (int64_t)(take(in, 2) % (uint64_t)end); }
static inline int rarely(input *in) { return take(in, 1) >= 0xf8; }
static inline int often(input *in) { return take(in, 1) & 1; }

static inline float any_float(input *in) {
    uint32_t bits = (uint32_t)take(in, 4);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- parameters: common values, extreme ones, rarely any bits -------------------------------------- */

static inline float a_temperature(input *in) {
    static const float usual[] = {0.0f, 1e-6f, 1e-5f, 1e-4f, 0.05f, 0.3f, 0.7f, 1.0f, 1.3f, 2.0f, 10.0f, 1e4f, 1e30f, INFINITY};
    uint64_t choice = take(in, 1);
    if (choice >= 0xfc) return any_float(in); /* also NaN and negative */
    return choice & 0x80 ? fabsf(any_float(in)) : usual[choice % (sizeof usual / sizeof *usual)];
}

static inline float a_share(input *in) {
    static const float usual[] = {-1.0f, 0.0f, 1e-6f, 0.01f, 0.1f, 0.5f, 0.9f, 0.99f, 0.999999f, 1.0f, 2.0f, INFINITY};
    uint64_t choice = take(in, 1);
    if (choice >= 0xfc) return any_float(in);
    return choice & 0x80 ? (float)take(in, 3) * 0x1p-24f : usual[choice % (sizeof usual / sizeof *usual)];
}

static inline int32_t a_count(input *in, int64_t vocab) {
    uint64_t choice = take(in, 1);
    if (choice >= 0xfc) return (int32_t)take(in, 4);
    return choice & 0x80 ? (int32_t)below(in, vocab + 2) : (int32_t)(choice & 7);
}

/* Takes the rest of the input. */
static inline void fill_logits(input *in, char *data, int64_t count, int bytes) {
    uint8_t pool[64];
    int64_t used = 0, mode = below(in, 4);
    uint64_t state = take(in, 4);
    while (used < 64 && in->at < in->end) pool[used++] = *in->at++;
    if (!used) pool[used++] = 0;
    used = used / bytes * bytes ? used / bytes * bytes : bytes;
    for (int64_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t bits = state >> 32;
        if (mode == 0) memcpy(&bits, pool + i * bytes % used, (size_t)bytes);                      /* a pattern */
        if (mode == 1) memcpy(&bits, pool + (int64_t)(bits % (uint64_t)(used / bytes)) * bytes, (size_t)bytes); /* a few values, shuffled */
        if (mode == 2) /* ordinary numbers: exponents near 1, with ties */
            bits = bytes == 4 ? (bits & 0x80ff0000u) | 0x3f800000u : (bits & 0x83f0u) | (bits & 0x1000u) | 0x3c00u;
        memcpy(data + i * bytes, &bits, (size_t)bytes); /* mode 3: any bits */
    }
}

/* ---- memory that is exactly as large as it must be ---------------------------------------------- */

enum { BLOCKS_MAX = 256 };
static void *blocks[BLOCKS_MAX];
static int block_count;

static inline void *block(size_t bytes) {
    MUST(block_count < BLOCKS_MAX);
    return blocks[block_count++] = calloc(1, bytes ? bytes : 1);
}
static inline void *block_aligned(size_t bytes) {
    MUST(block_count < BLOCKS_MAX);
    return blocks[block_count++] = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, (bytes + 63) / 64 * 64);
}
static inline void blocks_free(void) {
    while (block_count) free(blocks[--block_count]);
}

static inline void error_is_told(const raffle_error *error, int status, int64_t rows) {
    MUST(status >= RAFFLE_E_ARGUMENT && status <= RAFFLE_E_DEVICE);
    MUST(error->status == status && error->text[0] && memchr(error->text, 0, sizeof error->text));
    MUST(error->row >= -1 && (error->row == -1 || error->row < rows));
}

#endif
