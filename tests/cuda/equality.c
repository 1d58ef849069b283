/* equality.c - the GPU returns the CPU's token and row flags, bit for bit, on more than 100,000 rows; more than
 * 10,000 of them are compared with the oracle as well. RAFFLE_TEST_QUICK: about 2,000 rows of small vocabularies. */
#include "match.h"

#ifndef RAFFLE_DATA_DIR
#define RAFFLE_DATA_DIR "data"
#endif

static long rows_checked, oracle_checked;

/* ---- one launch with fresh parameters ---- */

static void round_run(match *m, test_random *r, int64_t oracle_rows) {
    static const unsigned every[] = {HAS_TEMPERATURE, HAS_TOP_P, HAS_MIN_P, HAS_TOP_K, HAS_FLAGS};
    m->flags = pick_flags(r);
    m->slots = m->rows;
    m->has = HAS_USUAL;
    if (random_below(r, 3) == 0) { /* a pool of slots, in any order, some of them used twice */
        m->has |= HAS_SLOT;
        m->slots = 1 + random_below(r, 2 * m->rows);
    }
    if (random_below(r, 3) == 0) m->has |= HAS_ALLOW;
    if (random_below(r, 4) == 0) m->has &= ~every[random_below(r, 5)];
    match_pick(m, r);
    if (m->slots >= m->rows && random_below(r, 2)) match_shuffle_slots(m, r); /* so that calls can advance them */
    if (m->has & HAS_ALLOW) match_mask(m);
    match_compare(m, "eager");
    match_check_oracle(m, oracle_rows, r);
    rows_checked += m->rows;
    oracle_checked += oracle_rows;
}

/* `rounds` launches of `rows` rows for every dtype and layout. */
static void equal_vocab(int64_t vocab, int64_t rows, int64_t rounds) {
    test_random r = {(uint64_t)vocab * 1000003};
    if (gpu_quick()) {
        if (vocab > 4097 && gpu_small_only()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
        rows = vocab > 4097 ? 4 : 16;
        rounds = vocab < 999 || vocab > 4097 ? 1 : 2;
    }
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        match *m = match_make(dtype, vocab, rows + 3);
        for (int layout = 0; layout < LAYOUTS && !match_hopeless(); ++layout) {
            match_lay_out(m, layout, rows, &r);
            match_send_rows(m);
            for (int64_t i = 0; i < rounds && !match_hopeless(); ++i)
                round_run(m, &r, vocab < 5000 ? (gpu_quick() || vocab > 4000 ? 4 : 8) : i % 4 == 0 && vocab < 200000 ? 2 : i % 8 == 0);
            match_check_space(m, "eager");
        }
        match_free(m);
    }
}

#define VOCAB(vocab, rows, rounds)                                                                                     \
    TEST(vocab_##vocab) {                                                                                              \
        NEED_GPU();                                                                                                    \
        equal_vocab(vocab, rows, rounds);                                                                              \
    }
VOCAB(1, 64, 4)
VOCAB(2, 64, 4)
VOCAB(255, 64, 8)
VOCAB(256, 64, 8)
VOCAB(257, 64, 8)
VOCAB(511, 64, 8)
VOCAB(512, 64, 8)
VOCAB(513, 64, 8)
VOCAB(264, 64, 8) /* ends in the midst of a group, between two loads; so do 1000, and 4100 for f32 */
VOCAB(999, 64, 16)
VOCAB(1000, 64, 16)
VOCAB(4097, 64, 20)
VOCAB(4100, 64, 8)
VOCAB(32000, 32, 30)
VOCAB(49152, 32, 16)
VOCAB(128256, 16, 24)
VOCAB(151936, 16, 20)
VOCAB(262144, 16, 16)
VOCAB(262208, 16, 16) /* more groups than a power of two; */
VOCAB(270337, 4, 16)  /* and more than shared memory has room for */

/* ---- each listed value of each parameter, alone and together, on every kind of row ---- */

TEST(parameter_grid) {
    NEED_GPU();
    static const int32_t k[] = {0, 1, 2, 20, 50, 64, 65, 127, 128, 256, 1000, 5000, -2, -3};
    static const float p[] = {1.0f, 0.001f, 0.1f, 0.5f, 0.9f, 0.95f, 0.99f, 0.9999f, 0x1.fffffep-1f, 0x1p-149f, 0.0f};
    static const float min_p[] = {0.0f, 1e-6f, 0.02f, 0.3f, 1.0f};
    static const float temperature[] = {1.0f, 0.0f, 1e-5f, 1e-4f, 0.01f, 0.6f, 1.7f, 100.0f, INFINITY};
    const int64_t vocab = gpu_quick() ? 999 : 32000, rows = gpu_quick() ? 32 : 512;
    test_random r = {77};
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        match *m = match_make(dtype, vocab, rows);
        match_layout(m, rows, vocab, 0, 0);
        match_fill_any(m, &r);
        match_send_rows(m);
        for (uint32_t flags = 0; flags < 16 && !match_hopeless(); flags += gpu_quick() ? 5 : 1) {
            m->flags = flags;
            match_pick(m, &r);
            for (int64_t i = 0; i < rows; ++i) { /* a different mixture for every row, every value often */
                const int64_t n = i + (int64_t)flags * rows;
                const int32_t wanted = k[n % 14];
                m->control->top_k[i] = wanted == -2 ? (int32_t)vocab - 1 : wanted == -3 ? (int32_t)vocab : wanted;
                m->control->top_p[i] = p[n / 3 % 11];
                m->control->min_p[i] = min_p[n / 7 % 5];
                m->control->temperature[i] = temperature[n / 2 % 9];
            }
            match_compare(m, "grid");
            match_check_oracle(m, gpu_quick() ? 4 : 12, &r);
            rows_checked += rows;
            oracle_checked += gpu_quick() ? 4 : 12;
        }
        match_check_space(m, "grid");
        match_free(m);
    }
}

/* ---- real rows ---- */

static void equal_real(const char *file, int64_t rows, int64_t vocab) {
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", RAFFLE_DATA_DIR, file);
    FILE *in = fopen(path, "rb");
    if (!in) SKIP("the file of real rows was not found");
    const size_t all = (size_t)(rows * vocab);
    uint16_t *stored = (uint16_t *)malloc(all * 2);
    int good = stored && fseek(in, 128, SEEK_SET) == 0 && fread(stored, 2, all, in) == all;
    fclose(in);
    CHECK(good, "%s is too short", path);
    for (int dtype = RAFFLE_F32; good && dtype <= RAFFLE_BF16; ++dtype) {
        test_random r = {(uint64_t)vocab};
        match *m = match_make(dtype, vocab, rows);
        match_layout(m, rows, vocab, 0, 0);
        for (int64_t i = 0; i < rows; ++i) {
            m->kind[i] = file;
            m->row_seed[i] = (uint64_t)i;
            for (int64_t j = 0; j < vocab; ++j)
                vector_store(match_row(m, i), dtype, j, float_bits(oracle_load(stored, RAFFLE_F16, i * vocab + j)));
        }
        match_send_rows(m);
        for (int i = 0; i < 24 && !match_hopeless(); ++i) round_run(m, &r, i % 4 == 0 ? 2 : 0);
        match_free(m);
    }
    free(stored);
}

TEST(real_smollm2) {
    NEED_GPU();
    equal_real("smollm2.npy", 16, 49152);
}
TEST(real_gemma3) {
    NEED_GPU();
    equal_real("gemma3.npy", 4, 262144);
}

TEST(enough_rows) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: fewer rows");
    CHECK(rows_checked >= 100000, "only %ld rows were compared with the CPU", rows_checked);
    CHECK(oracle_checked >= 10000, "only %ld rows were compared with the oracle", oracle_checked);
}

int main(void) {
    gpu_start("cuda_equality", 150);
    RUN(vocab_1);
    RUN(vocab_2);
    RUN(vocab_255);
    RUN(vocab_256);
    RUN(vocab_257);
    RUN(vocab_511);
    RUN(vocab_512);
    RUN(vocab_513);
    RUN(vocab_264);
    RUN(vocab_999);
    RUN(vocab_1000);
    RUN(vocab_4097);
    RUN(vocab_4100);
    RUN(parameter_grid);
    RUN(vocab_32000);
    RUN(vocab_49152);
    RUN(vocab_128256);
    RUN(vocab_151936);
    RUN(vocab_262144);
    RUN(vocab_262208);
    RUN(vocab_270337);
    RUN(real_smollm2);
    RUN(real_gemma3);
    RUN(enough_rows);
    printf("%ld rows compared with the CPU, %ld of them with the oracle\n", rows_checked, oracle_checked);
    return test_report("cuda_equality");
}
