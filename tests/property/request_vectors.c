/* request_vectors.c - tests/vectors/requests.txt holds for every instruction set. (The oracle wrote it.) */
#include "../common/test.h"
#include "../vectors/request_run.h"

#ifndef RAFFLE_REQUESTS
#define RAFFLE_REQUESTS "tests/vectors/requests.txt"
#endif

static void check_file(raffle_isa isa) {
    static request_vector v;
    int got, count = 0, same;
    if (!raffle_isa_available(isa)) SKIP("this machine or build does not have the instruction set");
    FILE *in = fopen(RAFFLE_REQUESTS, "r");
    CHECK(in, "%s cannot be opened", RAFFLE_REQUESTS);
    if (!in) return;
    while ((got = request_next(in, &v)) == 1) {
        raffle_error error = raffle_error_init();
        raffle_status status = request_run(&v, isa, &same, &error);
        CHECK(!status && same, "case %d (%s %llu vocab %lld): %s", count, v.kind, (unsigned long long)v.row_seed,
              (long long)v.vocab, status ? error.text : "another answer than the frozen one");
        ++count;
    }
    fclose(in);
    CHECK(got == 0, "the line after case %d does not parse", count);
    CHECK(count >= 300, "only %d cases", count);
}

TEST(scalar) { check_file(RAFFLE_ISA_SCALAR); }
TEST(avx2) { check_file(RAFFLE_ISA_AVX2); }
TEST(avx512) { check_file(RAFFLE_ISA_AVX512); }
TEST(neon) { check_file(RAFFLE_ISA_NEON); }

int main(void) {
    RUN(scalar);
    RUN(avx2);
    RUN(avx512);
    RUN(neon);
    return test_report("request_vectors");
}
