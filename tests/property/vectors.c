/* vectors.c - tests/vectors/vectors.txt holds for the oracle and for every instruction set. */
#include <stdlib.h>

#include "../common/batch.h"
#include "../vectors/vector_file.h"

#ifndef RAFFLE_VECTORS
#define RAFFLE_VECTORS "tests/vectors/vectors.txt"
#endif

typedef struct outcome {
    int32_t token;
    uint32_t row_flags;
} outcome;

/* A vector's row and mask in memory. */
typedef struct vector_data {
    void *row;
    uint32_t *allow;
} vector_data;

static vector_data data_make(const vector_case *v) {
    vector_data d = {malloc((size_t)v->vocab * 4), NULL};
    vector_row_make(v->kind, v->row_seed, v->vocab, v->dtype, d.row);
    if (v->allow_seed) {
        d.allow = malloc((size_t)(v->vocab + 31) / 32 * 4);
        vector_allow_make(v->allow_seed, v->vocab, d.allow);
    }
    return d;
}

static outcome by_oracle(const vector_case *v, vector_data d) {
    oracle_case c = {.row = d.row,
                     .dtype = v->dtype,
                     .vocab = v->vocab,
                     .allow = d.allow,
                     .temperature = v->temperature,
                     .top_p = v->top_p,
                     .min_p = v->min_p,
                     .top_k = v->top_k,
                     .flags = v->flags,
                     .seed = v->seed,
                     .position = v->position};
    oracle_answer a = oracle_sample(&c, NULL, NULL);
    return (outcome){a.token, a.row_flags};
}

static outcome by_library(const vector_case *v, vector_data d, raffle_isa isa) {
    outcome o = {-77, 77};
    runner r = runner_make(v->dtype, v->vocab, isa);
    raffle_logits logits = raffle_logits_init();
    logits.data = d.row;
    logits.rows = 1;
    raffle_params p = raffle_params_init();
    p.flags = v->flags;
    p.temperature = &v->temperature;
    p.top_p = &v->top_p;
    p.min_p = &v->min_p;
    p.top_k = &v->top_k;
    p.seed = &v->seed;
    p.position = &v->position;
    p.allow = d.allow;
    raffle_result result = raffle_result_init();
    result.token = &o.token;
    result.row_flags = &o.row_flags;
    CHECK_STATUS(raffle_sample(r.plan, &logits, &p, &result, &r.launch, NULL), RAFFLE_OK);
    runner_free(r);
    return o;
}

static void check_file(int oracle, raffle_isa isa) {
    if (!oracle && !raffle_isa_available(isa)) SKIP("this machine or build does not have the instruction set");
    FILE *in = fopen(RAFFLE_VECTORS, "r");
    CHECK(in, "%s cannot be opened", RAFFLE_VECTORS);
    if (!in) return;
    vector_case v;
    int got, count = 0;
    while ((got = vector_next(in, &v)) == 1) {
        vector_data d = data_make(&v);
        outcome o = oracle ? by_oracle(&v, d) : by_library(&v, d, isa);
        CHECK(o.token == v.token && o.row_flags == v.row_flags,
              "case %d (%s %llu vocab %lld): token %d flags %u, file %d %u", count, v.kind,
              (unsigned long long)v.row_seed, (long long)v.vocab, o.token, o.row_flags, v.token, v.row_flags);
        free(d.allow);
        free(d.row);
        ++count;
    }
    fclose(in);
    CHECK(got == 0, "the line after case %d does not parse", count);
    CHECK(count >= 300, "only %d cases", count);
}

TEST(oracle) { check_file(1, RAFFLE_ISA_BEST); }
TEST(scalar) { check_file(0, RAFFLE_ISA_SCALAR); }
TEST(avx2) { check_file(0, RAFFLE_ISA_AVX2); }
TEST(avx512) { check_file(0, RAFFLE_ISA_AVX512); }
TEST(neon) { check_file(0, RAFFLE_ISA_NEON); }
TEST(best) { check_file(0, RAFFLE_ISA_BEST); }

int main(void) {
    RUN(oracle);
    RUN(scalar);
    RUN(avx2);
    RUN(avx512);
    RUN(neon);
    RUN(best);
    return test_report("vectors");
}
