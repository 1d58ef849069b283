/* surroundings.c - what lies around a call must not matter and must not change: the caller's float environment, the
 * bytes beside a row, distances beyond 32 bits, what the workspace holds. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../common/ask.h"
#include "../common/pick.h"

/* ---- the float environment ---- */

#if defined(__x86_64__)
#include <xmmintrin.h>
static uint64_t env_get(void) { return _mm_getcsr(); }
static void env_set(uint64_t value) { _mm_setcsr((unsigned)value); }
static const uint64_t env_modes[] = {
    0x1f80,                 /* the default */
    0x1f80 | 0x8000 | 0x40, /* flush to zero, denormals are zero */
    0x1f80 | 0x2000,
    0x1f80 | 0x4000,
    0x1f80 | 0x6000, /* down, up, towards zero */
    0x1f80 | 0x6000 | 0x8000 | 0x40,
    0x1fbf, /* every exception flag already raised */
    0x1900, /* invalid, divide and overflow unmasked */
    0x0000, /* all unmasked: the first inexact result would trap */
};
#define ENV_MODES (sizeof env_modes / sizeof *env_modes)
#elif defined(__aarch64__)
static uint64_t env_get(void) {
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
}
static void env_set(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
static const uint64_t env_modes[] = {0,        1u << 24, 1u << 22,
                                     2u << 22, 3u << 22, 1u << 24 | 3u << 22}; /* FZ and the rounding modes */
#define ENV_MODES (sizeof env_modes / sizeof *env_modes)
#endif

#ifdef ENV_MODES
static void check_environment(const batch *b, raffle_isa isa) {
    runner r = runner_make(b->dtype, b->vocab, isa);
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    uint64_t normal = env_get();
    for (size_t mode = 0; mode < ENV_MODES; ++mode) {
        outputs o;
        outputs_poison(&o);
        raffle_explanation e = raffle_explanation_init();
        env_set(env_modes[mode]);
        int status = raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL);
        uint64_t after = env_get();
        env_set(env_modes[mode]);
        int explained = raffle_explain(r.plan, &logits, &params, 0, &e, &r.launch, NULL);
        uint64_t after_explain = env_get();
        env_set(normal);
        CHECK_EQ(status, RAFFLE_OK);
        CHECK_EQ(explained, RAFFLE_OK);
        CHECK_EQ(after, env_modes[mode]);
        CHECK_EQ(after_explain, env_modes[mode]);
        CHECK_EQ(e.token, b->wanted[0].token);
        outputs_check(&o, b, NULL, raffle_isa_name(isa));
    }
    runner_free(r);
}

TEST(float_environment) {
    test_random random = {11};
    for (int round = 0; round < 60; ++round) {
        batch b;
        batch_alloc(&b, 16, 1 + random_below(&random, 700), round % 3, 0, 0);
        b.flags = pick_flags(&random);
        for (int64_t i = 0; i < b.rows; ++i) {
            b.kind[i] = row_kinds[i];
            b.row_seed[i] = (uint64_t)round;
            vector_row_make(b.kind[i], b.row_seed[i], b.vocab, b.dtype, b.data + i * b.stride * element_bytes(b.dtype));
            b.temperature[i] = pick_temperature(&random);
            b.top_k[i] = pick_top_k(&random, b.vocab);
            b.top_p[i] = pick_top_p(&random);
            b.min_p[i] = pick_min_p(&random);
            b.seed[i] = random_bits(&random);
            b.position[i] = (uint64_t)i;
        }
        batch_ask_oracle(&b);
        for (int i = 0; i < ISA_COUNT; ++i)
            if (raffle_isa_available(every_isa[i])) check_environment(&b, every_isa[i]);
        batch_free(&b);
    }
}

/* A caller who flushes subnormals still gets the larger of two. */
TEST(flushed_subnormals_keep_their_order) {
    const float row[3] = {0x1p-149f, 0x1p-130f, 0.0f};
    oracle_case c = ask_row(row, RAFFLE_F32, 3);
    c.temperature = 0.0f;
    uint64_t normal = env_get();
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        runner r = runner_make(RAFFLE_F32, 3, every_isa[i]);
        raffle_params params = ask_params(&c);
        raffle_logits logits = ask_logits(&c);
        outputs o;
        outputs_poison(&o);
        env_set(env_modes[1]);
        raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL);
        env_set(normal);
        CHECK_EQ(o.token[0], 1);
        runner_free(r);
    }
}
#else
TEST(float_environment) { SKIP("no way to set it on this processor"); }
TEST(flushed_subnormals_keep_their_order) { SKIP("no way to set it on this processor"); }
#endif

/* ---- the bytes beside a row: pages that may not be touched ---- */

/* `bytes` of memory between two forbidden pages, ending (or beginning) exactly at one. */
typedef struct fence {
    char *map, *data;
    size_t map_bytes;
} fence;

static fence fence_make(size_t bytes, int at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    fence f = {NULL, NULL, inner + 2 * page};
    f.map = mmap(NULL, f.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f.map == MAP_FAILED) abort();
    if (mprotect(f.map, page, PROT_NONE) || mprotect(f.map + page + inner, page, PROT_NONE)) abort();
    f.data = f.map + page + (at_end ? inner - bytes : 0);
    return f;
}

static void fence_free(fence f) { munmap(f.map, f.map_bytes); }

/* Reading past either end would end the program. The workspace is fenced as well. */
static void check_fenced(int64_t vocab, int dtype, raffle_isa isa, test_random *random) {
    int at_end = (int)random_below(random, 2);
    int64_t words = (vocab + 31) / 32;
    fence row = fence_make((size_t)(vocab * element_bytes(dtype)), at_end),
          allow = fence_make((size_t)words * 4, at_end);
    vector_row_make(random_below(random, 3) ? "normal" : "ties", (uint64_t)vocab, vocab, dtype, row.data);
    vector_allow_make((uint64_t)random_below(random, 99), vocab, (uint32_t *)(void *)allow.data);
    oracle_case c = ask_row(row.data, dtype, vocab);
    if (random_below(random, 2)) c.allow = (const uint32_t *)(const void *)allow.data;
    c.temperature = pick_temperature(random);
    c.top_k = pick_top_k(random, vocab);
    c.top_p = pick_top_p(random);
    c.min_p = pick_min_p(random);
    c.flags = pick_flags(random);
    c.position = random_bits(random);
    oracle_answer wanted = oracle_sample(&c, NULL, NULL);
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = vocab;
    desc.dtype = dtype;
    desc.isa = isa;
    raffle_plan *plan;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_OK);
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    fence workspace = fence_make((launch.workspace_bytes + 63) / 64 * 64, 1);
    launch.workspace = workspace.data;
    raffle_params params = ask_params(&c);
    raffle_logits logits = ask_logits(&c);
    outputs o;
    outputs_poison(&o);
    CHECK_STATUS(raffle_sample(plan, &logits, &params, &o.result, &launch, NULL), RAFFLE_OK);
    CHECK_EQ(o.token[0], wanted.token);
    raffle_plan_destroy(plan);
    fence_free(workspace);
    fence_free(allow);
    fence_free(row);
}

TEST(never_reads_beside_a_row) {
    test_random random = {12};
    for (int64_t vocab = 1; vocab < 1200; vocab += 1 + vocab / 60)
        for (int i = 0; i < ISA_COUNT; ++i)
            for (int dtype = 0; raffle_isa_available(every_isa[i]) && dtype < 3; ++dtype)
                for (int again = 0; again < 4; ++again) check_fenced(vocab, dtype, every_isa[i], &random);
    for (int i = 0; i < ISA_COUNT; ++i)
        for (int dtype = 0; raffle_isa_available(every_isa[i]) && dtype < 3; ++dtype)
            check_fenced(33000, dtype, every_isa[i], &random);
}

/* ---- distances beyond 32 bits ---- */

/* 9,000 rows of 262,144 tokens are 2.4e9 elements: each row starts one element after the last, in one buffer. */
TEST(more_than_2_31_elements) {
    enum { VOCAB = 262144, ROWS = 9000, SPIKE = 200000 };
    if (test_amount(ROWS) < ROWS / 20) SKIP("RAFFLE_TEST_QUICK: too many for an emulator");
    float *data = malloc((VOCAB + ROWS) * sizeof *data);
    int32_t *token = malloc((ROWS + 1) * sizeof *token);
    uint64_t *seed = calloc(ROWS, sizeof *seed);
    for (int i = 0; i < VOCAB + ROWS; ++i) data[i] = i == SPIKE ? 1.0f : 0.0f;
    runner r = runner_make(RAFFLE_F32, VOCAB, RAFFLE_ISA_BEST);
    raffle_logits logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_result result = raffle_result_init();
    float cold[1] = {0.0f};
    int32_t *slot = calloc(ROWS, sizeof *slot);
    logits.data = data;
    logits.rows = ROWS;
    logits.row_stride = 1;
    params.slots = 1;
    params.slot = slot;
    params.temperature = cold;
    params.seed = params.position = seed;
    result.token = token;
    token[ROWS] = 12345;
    CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &result, &r.launch, NULL), RAFFLE_OK);
    for (int i = 0; i < ROWS; ++i) CHECK_EQ(token[i], SPIKE - i);
    CHECK_EQ(token[ROWS], 12345);
    runner_free(r);
    free(slot);
    free(seed);
    free(token);
    free(data);
}

/* Rows 2^31 + 64 elements apart, forwards and backwards, in memory that is only promised. */
TEST(strides_beyond_32_bits) {
    const int64_t stride = (1ll << 31) + 64, vocab = 1000;
    size_t bytes = (size_t)(2 * stride + vocab) * 2;
    uint16_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) SKIP("no 8 GB of address space");
    batch b = {.rows = 3,
               .vocab = vocab,
               .stride = stride,
               .dtype = RAFFLE_BF16,
               .data = (char *)map,
               .words = (vocab + 31) / 32};
    for (int64_t i = 0; i < 3; ++i) {
        b.kind[i] = "normal";
        b.row_seed[i] = (uint64_t)i;
        vector_row_make("normal", (uint64_t)i, vocab, b.dtype, map + i * stride);
        b.temperature[i] = 1.0f;
        b.top_p[i] = i == 1 ? 0.9f : 1.0f;
        b.seed[i] = 77 + (uint64_t)i;
    }
    batch_ask_oracle(&b);
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        runner r = runner_make(b.dtype, vocab, every_isa[i]);
        static const int32_t backwards[3] = {2, 1, 0};
        for (int back = 0; back < 2; ++back) {
            outputs o;
            outputs_poison(&o);
            raffle_params params = batch_params(&b);
            raffle_logits logits = raffle_logits_init();
            logits.data = back ? map + 2 * stride : map;
            logits.rows = 3;
            logits.row_stride = back ? -stride : stride;
            if (back) params.slot = backwards;
            CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
            outputs_check(&o, &b, back ? backwards : NULL, raffle_isa_name(every_isa[i]));
        }
        runner_free(r);
    }
    munmap(map, bytes);
}

/* ---- the workspace ---- */

TEST(workspace_content_does_not_matter) {
    static const int fills[] = {0x00, 0xff, 0x7f, 0x5a};
    float row[5000];
    vector_row_make("normal", 3, 5000, RAFFLE_F32, row);
    oracle_case c = ask_row(row, RAFFLE_F32, 5000);
    for (int way = 0; way < 8; ++way) {
        c.top_k = way & 1 ? 40 : 0;
        c.top_p = way & 2 ? 0.9f : 1.0f;
        c.min_p = way & 4 ? 0.02f : 0.0f;
        int32_t wanted = oracle_sample(&c, NULL, NULL).token;
        raffle_params params = ask_params(&c);
        raffle_logits logits = ask_logits(&c);
        for (int i = 0; i < ISA_COUNT * 4; ++i) {
            if (!raffle_isa_available(every_isa[i / 4])) continue;
            runner r = runner_make(RAFFLE_F32, 5000, every_isa[i / 4]);
            memset(r.launch.workspace, fills[i % 4], r.launch.workspace_bytes);
            outputs o;
            outputs_poison(&o);
            CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, NULL), RAFFLE_OK);
            CHECK_EQ(o.token[0], wanted);
            runner_free(r);
        }
    }
}

int main(void) {
    RUN(float_environment);
    RUN(flushed_subnormals_keep_their_order);
    RUN(never_reads_beside_a_row);
    RUN(more_than_2_31_elements);
    RUN(strides_beyond_32_bits);
    RUN(workspace_content_does_not_matter);
    return test_report("surroundings");
}
