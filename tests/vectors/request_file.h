/* request_file.h - reads requests.txt, line by line. C11, with raffle.h and vector_rows.h. */
#ifndef RAFFLE_TESTS_REQUEST_FILE_H
#define RAFFLE_TESTS_REQUEST_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raffle/raffle.h"

enum { REQUEST_LIST_MAX = 64, REQUEST_LISTS = 8, REQUEST_LINE_MAX = 4096 };

/* What is told at one point of a report, floats as their bits, NaN as 7fc00000. */
typedef struct request_told {
    uint32_t chosen, entropy;
    int32_t rank;
} request_told;

typedef struct request_vector {
    char kind[16];
    uint64_t row_seed, allow_seed; /* allow_seed 0: no mask */
    int64_t vocab;
    int dtype; /* raffle_dtype */
    float temperature, top_p, min_p;
    int32_t top_k;
    uint32_t flags;
    uint64_t seed, position;
    raffle_extra extra; /* its lists are in `list` */
    int32_t history[2 * REQUEST_LIST_MAX], length, prompt;

    int32_t token;
    uint32_t row_flags;
    uint64_t law, log;    /* request_hash of what raffle_softmax writes in f32, without and with RAFFLE_LOG */
    request_told told[3]; /* by raffle_point */

    int32_t list[REQUEST_LISTS][REQUEST_LIST_MAX];
    float value[REQUEST_LIST_MAX];
} request_vector;

/* FNV-1a over the bits of floats, lowest byte first. */
static inline uint64_t request_hash(const float *values, int64_t count) {
    uint64_t hash = 14695981039346656037ull;
    for (int64_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 1099511628211ull;
    }
    return hash;
}

static inline uint32_t request_bits(float x) {
    uint32_t bits = 0x7fc00000u;
    if (x == x) memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The fields of a raffle_extra that are numbers. */
typedef struct request_field {
    const char *name;
    size_t at;
    int real;
} request_field;

static const request_field request_fields[] = {
    {"extra_flags", offsetof(raffle_extra, flags), 0},
    {"repetition", offsetof(raffle_extra, repetition), 1},
    {"frequency", offsetof(raffle_extra, frequency), 1},
    {"presence", offsetof(raffle_extra, presence), 1},
    {"penalty_window", offsetof(raffle_extra, penalty_window), 0},
    {"no_repeat_ngram", offsetof(raffle_extra, no_repeat_ngram), 0},
    {"dry_multiplier", offsetof(raffle_extra, dry_multiplier), 1},
    {"dry_base", offsetof(raffle_extra, dry_base), 1},
    {"dry_allowed", offsetof(raffle_extra, dry_allowed), 0},
    {"dry_range", offsetof(raffle_extra, dry_range), 0},
    {"min_tokens", offsetof(raffle_extra, min_tokens), 0},
    {"top_n_sigma", offsetof(raffle_extra, top_n_sigma), 1},
    {"epsilon", offsetof(raffle_extra, epsilon), 1},
    {"eta", offsetof(raffle_extra, eta), 1},
    {"typical_p", offsetof(raffle_extra, typical_p), 1},
    {"xtc_probability", offsetof(raffle_extra, xtc_probability), 1},
    {"xtc_threshold", offsetof(raffle_extra, xtc_threshold), 1},
    {"keep_least", offsetof(raffle_extra, keep_least), 0},
};
enum { REQUEST_FIELDS = sizeof request_fields / sizeof *request_fields };

/* The lists, by their place in request_vector.list. */
static const char *const request_lists[REQUEST_LISTS] = {"bias",    "banned",    "allowed", "stop",
                                                         "breaker", "bad_words", "prompt",  "output"};

/* "3,1,2", or "3:0x1p+0,..." with values. Returns how many, or -1. */
static inline int32_t request_ids(const char *text, int32_t *ids, float *values) {
    int32_t count = 0;
    char *end;
    for (; *text; text = *end ? end + 1 : end) {
        if (count == REQUEST_LIST_MAX) return -1;
        ids[count] = (int32_t)strtol(text, &end, 10);
        if (end == text) return -1;
        if (values && *end != ':') return -1;
        if (values) values[count] = strtof(end + 1, &end);
        if (*end && *end != ',') return -1;
        ++count;
    }
    return count;
}

/* "name=value". 0, or -1. */
static inline int request_entry(request_vector *v, char *text) {
    char *equals = strchr(text, '=');
    if (!equals) return -1;
    *equals++ = 0;
    for (int i = 0; i < REQUEST_FIELDS; ++i) {
        char *field = (char *)&v->extra + request_fields[i].at;
        if (strcmp(text, request_fields[i].name) != 0) continue;
        float real = strtof(equals, NULL);
        int32_t whole = (int32_t)strtol(equals, NULL, 10);
        if (request_fields[i].real)
            memcpy(field, &real, sizeof real);
        else
            memcpy(field, &whole, sizeof whole);
        return 0;
    }
    int32_t *const counts[REQUEST_LISTS] = {&v->extra.bias_count,
                                            &v->extra.banned_count,
                                            &v->extra.allowed_count,
                                            &v->extra.stop_count,
                                            &v->extra.breaker_count,
                                            &v->extra.bad_words_count,
                                            &v->prompt,
                                            &v->length};
    for (int i = 0; i < REQUEST_LISTS; ++i)
        if (!strcmp(text, request_lists[i]))
            return (*counts[i] = request_ids(equals, v->list[i], i == 0 ? v->value : NULL)) < 0 ? -1 : 0;
    return -1;
}

/* A line that is no comment. 0, or -1 if it does not parse. *v must stay where it is: its extra points into it. */
static inline int request_parse(char *line, request_vector *v) {
    char dtype[8], real[3][32];
    unsigned long long number[4], hash[2];
    long long vocab;
    int used = 0;
    memset(v, 0, sizeof *v);
    int fields = sscanf(line, "%15s %llu %lld %7s %31s %d %31s %31s %u %llu %llu %llu %d %u %llx %llx %n", v->kind,
                        &number[0], &vocab, dtype, real[0], &v->top_k, real[1], real[2], &v->flags, &number[1],
                        &number[2], &number[3], &v->token, &v->row_flags, &hash[0], &hash[1], &used);
    if (fields != 16) return -1;
    line += used;
    for (int point = 0; point < 3; ++point) {
        request_told *t = &v->told[point];
        if (sscanf(line, "%x %d %x %n", &t->chosen, &t->rank, &t->entropy, &used) != 3) return -1;
        line += used;
    }
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"))
        if (request_entry(v, word)) return -1;
    v->dtype = !strcmp(dtype, "f32") ? RAFFLE_F32 : !strcmp(dtype, "f16") ? RAFFLE_F16 : RAFFLE_BF16;
    v->vocab = vocab;
    v->row_seed = number[0], v->allow_seed = number[1], v->seed = number[2], v->position = number[3];
    v->temperature = strtof(real[0], NULL), v->top_p = strtof(real[1], NULL), v->min_p = strtof(real[2], NULL);
    v->law = hash[0], v->log = hash[1];
    memcpy(v->history, v->list[6], (size_t)v->prompt * 4);
    memcpy(v->history + v->prompt, v->list[7], (size_t)v->length * 4);
    v->length += v->prompt;
    v->extra.bias_id = v->list[0], v->extra.bias = v->value;
    v->extra.banned = v->list[1], v->extra.allowed = v->list[2], v->extra.stop = v->list[3];
    v->extra.breaker = v->list[4], v->extra.bad_words = v->list[5];
    return 0;
}

/* The next case: 1, or 0 at the end of the file, or -1 at a line that does not parse. */
static inline int request_next(FILE *in, request_vector *v) {
    char line[REQUEST_LINE_MAX];
    do {
        if (!fgets(line, sizeof line, in)) return 0;
    } while (line[0] == '#' || line[0] == '\n');
    return request_parse(line, v) ? -1 : 1;
}

#endif
