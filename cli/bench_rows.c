#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "convert.h"

const route routes[ROUTES] = {
    {"greedy", PEAKED, {0.0f, 1.0f, 0.0f, 0, 0, 7}, 1.2},
    {"top-k 50", PEAKED, {0.8f, 1.0f, 0.0f, 50, 0, 7}, 2},
    {"top-k 50 + top-p 0.9", PEAKED, {0.8f, 0.9f, 0.0f, 50, 0, 7}, 2},
    {"min-p 0.05", PEAKED, {0.8f, 1.0f, 0.05f, 0, 0, 7}, 2},
    {"no filter", PEAKED, {0.8f, 1.0f, 0.0f, 0, 0, 7}, 7},
    {"top-p 0.9, peaked", PEAKED, {0.8f, 0.9f, 0.0f, 0, 0, 7}, 7},
    {"top-p 0.9, flat", FLAT, {0.8f, 0.9f, 0.0f, 0, 0, 7}, 7},
};

double route_target(const route *r, raffle_isa isa) {
    return isa == RAFFLE_ISA_AVX512 ? r->target : isa == RAFFLE_ISA_AVX2 ? 2 * r->target : 0;
}

enum { NORMALS = 1 << 20 };

/* The splitmix64 generator. */
static uint64_t next_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double next_unit(uint64_t *state) { return ((double)(next_bits(state) >> 11) + 0.5) * 0x1p-53; }

static float *normals_make(void) {
    float *const list = malloc(NORMALS * sizeof *list);
    uint64_t state = 1;
    for (int i = 0; list && i < NORMALS; i += 2) {
        const double radius = sqrt(-2 * log(next_unit(&state))), angle = 6.283185307179586 * next_unit(&state);
        list[i] = (float)(radius * cos(angle));
        list[i + 1] = (float)(radius * sin(angle));
    }
    return list;
}

/* Rows are pieces of one list of normals, each from another place: distinct to the cache and the branches, quick to
 * make. */
static void fill(pool *p, const float *normals) {
    uint64_t state = 2;
    for (int64_t r = 0; r < p->rows; ++r) {
        float *const peaked = p->f32[PEAKED] + r * p->vocab, *const flat = p->f32[FLAT] + r * p->vocab;
        const uint64_t start = next_bits(&state);
        for (int64_t i = 0; i < p->vocab; ++i) {
            const float normal = normals[(start + (uint64_t)i) % NORMALS];
            flat[i] = normal;
            peaked[i] = 2.5f * normal;
        }
        for (int n = 0; n < 20; ++n)
            peaked[next_bits(&state) % (uint64_t)p->vocab] += 8.0f + 4.0f * (float)next_unit(&state);
    }
    for (int s = 0; s < SHAPES; ++s)
        for (int64_t i = 0; i < p->rows * p->vocab; ++i) p->bf16[s][i] = bf16_of_f32(p->f32[s][i]);
}

static size_t cache_bytes(void) {
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (l3 > 0) return (size_t)l3;
#endif
    return (size_t)32 << 20;
}

exit_code pool_open(pool *p, int64_t vocab, int quick) {
    static float *normals; /* the same for all sizes */
    const size_t most = (size_t)(quick ? 128 : 256) << 20;
    size_t bytes = 3 * cache_bytes(); /* so that bf16, at half of it, is out of cache as well */
    if (bytes > most) bytes = most;
    memset(p, 0, sizeof *p);
    p->vocab = vocab;
    p->rows = (int64_t)(bytes / ((size_t)vocab * sizeof(float)));
    if (p->rows < 64) p->rows = 64;
    if (!normals) normals = normals_make();
    int complete = normals != NULL;
    for (int s = 0; s < SHAPES; ++s) {
        const size_t elements = (size_t)(p->rows * vocab);
        if (posix_memalign((void **)&p->f32[s], 64, elements * sizeof(float))) p->f32[s] = NULL;
        if (posix_memalign((void **)&p->bf16[s], 64, elements * sizeof(uint16_t))) p->bf16[s] = NULL;
        complete &= p->f32[s] && p->bf16[s];
    }
    if (!complete) {
        pool_close(p);
        return complain("out of memory for %lld rows of %lld tokens", (long long)p->rows, (long long)vocab),
               EXIT_MACHINE;
    }
    fill(p, normals);
    return EXIT_FINE;
}

void pool_close(pool *p) {
    for (int s = 0; s < SHAPES; ++s) {
        free(p->f32[s]);
        free(p->bf16[s]);
        p->f32[s] = NULL;
        p->bf16[s] = NULL;
    }
}

const void *pool_row(const pool *p, shape s, raffle_dtype dtype, int64_t row) {
    const size_t start = (size_t)(row * p->vocab);
    return dtype == RAFFLE_F32 ? (const void *)(p->f32[s] + start) : (const void *)(p->bf16[s] + start);
}
