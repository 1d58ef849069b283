/* hot_path.c - raffle_sample and raffle_verify allocate nothing: the linker sends every allocation through the counters here
 * (--wrap=malloc and so on), and no call may move them. */
#define _DEFAULT_SOURCE
#include <stdlib.h>

#include "../common/ask.h"
#include "../common/draft_batch.h"

static volatile long allocations; /* volatile: a compiler may assume that malloc changes no variable of ours */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *p);
void *__real_aligned_alloc(size_t align, size_t bytes);
int __real_posix_memalign(void **p, size_t align, size_t bytes);

void *__wrap_malloc(size_t bytes) { return ++allocations, __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) { return ++allocations, __real_calloc(count, bytes); }
void *__wrap_realloc(void *old, size_t bytes) { return ++allocations, __real_realloc(old, bytes); }
void __wrap_free(void *p) { ++allocations, __real_free(p); }
void *__wrap_aligned_alloc(size_t align, size_t bytes) { return ++allocations, __real_aligned_alloc(align, bytes); }
int __wrap_posix_memalign(void **p, size_t align, size_t bytes) {
    return ++allocations, __real_posix_memalign(p, align, bytes);
}

TEST(counters_count) {
    long before = allocations;
    void *volatile p = malloc(10);
    free(p);
    CHECK(allocations == before + 2, "the allocator is not wrapped, so this program would prove nothing");
    before = allocations;
    runner r = runner_make(RAFFLE_F32, 100, RAFFLE_ISA_BEST);
    CHECK(allocations >= before + 2,
          "raffle_plan_create does not go through the wrapped allocator: the library is not wrapped");
    runner_free(r);
}

static void check_batch(test_random *random, int64_t vocab, int dtype, raffle_isa isa) {
    batch b;
    batch_alloc(&b, 16, vocab, dtype, 3, 0);
    b.flags = pick_flags(random);
    b.allow = malloc((size_t)(b.rows * b.words) * 4);
    for (int64_t i = 0; i < b.rows; ++i) {
        vector_allow_make((uint64_t)i, vocab, b.allow + i * b.words);
        vector_row_make(row_kinds[i], 1, vocab, dtype, b.data + i * b.stride * element_bytes(dtype));
        b.temperature[i] = pick_temperature(random);
        b.top_k[i] = pick_top_k(random, vocab);
        b.top_p[i] = pick_top_p(random);
        b.min_p[i] = pick_min_p(random);
        b.seed[i] = b.position[i] = (uint64_t)i;
    }
    runner r = runner_make(dtype, vocab, isa);
    raffle_params params = batch_params(&b);
    raffle_logits logits = batch_logits(&b);
    raffle_error error = raffle_error_init();
    outputs o;
    outputs_poison(&o);
    long before = allocations;
    int status = raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, &error);
    long after = allocations;
    b.temperature[3] = -1.0f; /* errors do not allocate either */
    int refused = raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, &error);
    long after_error = allocations;
    CHECK_EQ(status, RAFFLE_OK);
    CHECK_EQ(refused, RAFFLE_E_ARGUMENT);
    CHECK_EQ(after - before, 0);
    CHECK_EQ(after_error - after, 0);
    runner_free(r);
    batch_free(&b);
}

TEST(sample_never_allocates) {
    static const int64_t vocabs[] = {1, 255, 999, 4097, 49152, 128256};
    test_random random = {31};
    for (int v = 0; v < 6; ++v)
        for (int i = 0; i < ISA_COUNT; ++i)
            for (int again = 0; raffle_isa_available(every_isa[i]) && again < (vocabs[v] > 5000 ? 3 : 12); ++again)
                check_batch(&random, vocabs[v], again % 3, every_isa[i]);
}

TEST(verify_never_allocates) {
    test_random random = {32};
    for (int i = 0; i < 60; ++i) {
        draft_kind kind = (draft_kind)(i % 4);
        draft_batch *b = draft_batch_make(&random, kind, kind == DRAFT_TREE ? i / 4 % 2 * RAFFLE_MATCH : i / 4 % 2, 1000,
                                          i / 8 % 2 ? (uint32_t)random_bits(&random) & PICK_ALL : 0);
        verify_structs s;
        verify_outputs o;
        verify_structs_make(&s, b);
        verify_outputs_poison(&o);
        runner r = draft_runner(b, RAFFLE_ISA_BEST);
        long before = allocations;
        int status = raffle_verify(r.plan, &s.logits, &s.params, &s.drafts, &o.verified, &r.launch, NULL);
        CHECK_EQ(allocations - before, 0);
        CHECK_EQ(status, RAFFLE_OK);
        runner_free(r);
        draft_batch_free(b);
    }
}

int main(void) {
    RUN(counters_count);
    RUN(sample_never_allocates);
    RUN(verify_never_allocates);
    return test_report("hot_path");
}
