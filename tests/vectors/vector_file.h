/* vector_file.h - reads vectors.txt, line by line. C99, C++ and CUDA host code. */
#ifndef RAFFLE_TESTS_VECTOR_FILE_H
#define RAFFLE_TESTS_VECTOR_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct vector_case {
    char kind[16];
    uint64_t row_seed;
    int64_t vocab;
    int dtype; /* raffle_dtype */
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    uint32_t flags;
    uint64_t allow_seed; /* 0: no mask */
    uint64_t seed, position;
    int32_t token;
    uint32_t row_flags;
} vector_case;

/* The next case: 1, or 0 at the end of the file, or -1 at a line that does not parse. */
static inline int vector_next(FILE *in, vector_case *v) {
    char line[512], dtype[8], temperature[32], top_p[32], min_p[32];
    unsigned long long row_seed, allow_seed, seed, position;
    long long vocab;
    int fields;
    do {
        if (!fgets(line, sizeof line, in)) return 0;
    } while (line[0] == '#' || line[0] == '\n');
    fields = sscanf(line, "%15s %llu %lld %7s %31s %d %31s %31s %u %llu %llu %llu %d %u", v->kind, &row_seed, &vocab,
                    dtype, temperature, &v->top_k, top_p, min_p, &v->flags, &allow_seed, &seed, &position, &v->token,
                    &v->row_flags);
    if (fields != 14) return -1;
    v->dtype = !strcmp(dtype, "f32") ? 0 : !strcmp(dtype, "f16") ? 1 : !strcmp(dtype, "bf16") ? 2 : -1;
    if (v->dtype < 0) return -1;
    v->row_seed = row_seed;
    v->vocab = vocab;
    v->temperature = strtof(temperature, NULL);
    v->top_p = strtof(top_p, NULL);
    v->min_p = strtof(min_p, NULL);
    v->allow_seed = allow_seed;
    v->seed = seed;
    v->position = position;
    return 1;
}

#endif
