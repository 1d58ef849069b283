/* given.c - tokens from rows of probabilities, and from rows shared by several results: the GPU's are the CPU's. */
#include "match.h"

static long rows_checked;

/* Draws the rows with parameters that are picked, on both. */
static void compare(match *m, const char *how) {
    match_compare(m, how);
    rows_checked += m->rows;
}

static void equal_vocab(int64_t vocab, int64_t rows, int64_t rounds) {
    if (gpu_small_only() && vocab > 5000) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    if (gpu_quick()) rows = vocab > 5000 ? 3 : rows < 16 ? rows : 16, rounds = 2;
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        test_random r = {(uint64_t)(vocab * 5 + dtype)};
        match *m = match_probs(dtype, vocab, rows);
        for (int64_t n = 0; n < rounds && !match_hopeless(); ++n) {
            match_layout(m, n % 2 ? rows : 1 + random_below(&r, rows), n % 3 == 2 ? vocab + 3 : (vocab + 7) / 8 * 8, n % 3 == 2 ? 1 : 0, n % 5 == 4);
            match_fill_weights(m, &r);
            match_send_rows(m);
            m->has = HAS_TOP_P | HAS_MIN_P | HAS_TOP_K | HAS_FLAGS | (n % 4 == 1 ? HAS_ALLOW : 0);
            if (n % 4 == 3) m->has = HAS_FLAGS;
            m->flags = pick_flags(&r);
            m->slots = m->rows;
            match_pick(m, &r);
            if (m->has & HAS_ALLOW) match_mask(m);
            compare(m, "probabilities");
        }
        match_check_space(m, "probabilities");
        match_free(m);
    }
}

#define VOCAB(n, rows, rounds)                                                                                         \
    TEST(vocab_##n) {                                                                                                  \
        NEED_GPU();                                                                                                    \
        equal_vocab(n, rows, rounds);                                                                                  \
    }
VOCAB(1, 64, 6)
VOCAB(257, 64, 8)
VOCAB(999, 256, 12)
VOCAB(4097, 128, 12)
VOCAB(32000, 64, 12)
VOCAB(151936, 16, 8)
/* As many groups as the short ways know, and one more. */
VOCAB(270336, 6, 6)
VOCAB(270337, 4, 3)

/* Shares and sizes of which from one token to nearly all of the row stay: every way to finish a row has some of them. */
static void nuclei(int dtype, int64_t vocab) {
    static const char *const kinds[] = {"normalised", "wide", "uniform", "powers", "ties", "few"};
    static const float share[] = {0.01f, 0.3f, 0.7f, 0.9f, 0.97f, 0.9999f};
    enum { ROWS = 36 };
    test_random r = {(uint64_t)dtype + 40};
    match *m = match_probs(dtype, vocab, ROWS);
    for (int n = 0; n < 3 && !match_hopeless(); ++n) { /* top-p; top-k; both, and min-p */
        match_layout(m, ROWS, (vocab + 7) / 8 * 8, 0, 0);
        match_fill_weights(m, &r);
        for (int i = 0; i < ROWS; ++i) m->kind[i] = kinds[i % 6];
        crew_run(match_weights_part, m);
        match_send_rows(m);
        m->has = HAS_TOP_P | HAS_MIN_P | HAS_TOP_K | HAS_FLAGS;
        m->slots = m->rows;
        match_pick(m, &r);
        for (int i = 0; i < ROWS; ++i) {
            m->control->top_p[i] = n == 1 ? 1.0f : share[i / 6];
            m->control->top_k[i] = n == 0 ? 0 : (int32_t)((float)vocab * share[i / 6] * (i % 2 ? 0.02f : 1.0f));
            m->control->min_p[i] = n == 2 && i % 4 == 3 ? 0.001f : 0.0f;
        }
        compare(m, "nuclei");
    }
    match_check_space(m, "nuclei");
    match_free(m);
}
TEST(nuclei_of_all_sizes) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) nuclei(dtype, gpu_quick() ? 9000 : 128256);
}

/* ---- by index ---- */

/* `of`: a new row comes after about so many results. */
static void by_index(int probs, int dtype, int64_t vocab, int64_t of) {
    enum { DATA = 12, RESULTS = 600 };
    const int results = gpu_quick() ? 150 : RESULTS;
    test_random r = {(uint64_t)(probs * 3 + dtype + vocab)};
    match *m = probs ? match_probs(dtype, vocab, RESULTS) : match_make(dtype, vocab, RESULTS);
    int32_t index[RESULTS], *device_index = (int32_t *)gpu_alloc(sizeof index);
    for (int n = 0; n < (gpu_quick() || vocab > 5000 ? 3 : 12) && !match_hopeless(); ++n) {
        match_layout(m, DATA, vocab, 0, 0);
        if (probs) match_fill_weights(m, &r);
        else match_fill_any(m, &r);
        match_send_rows(m);
        m->has = HAS_TOP_P | HAS_MIN_P | HAS_TOP_K | HAS_FLAGS | (probs ? 0 : HAS_TEMPERATURE);
        if (n % 3 == 2) m->has &= ~(unsigned)(HAS_TOP_P | HAS_MIN_P | HAS_TOP_K);
        m->flags = pick_flags(&r);
        m->rows = m->slots = results;
        match_pick(m, &r);
        for (int i = 0; i < results; ++i) { /* runs of one row, most of them with the same parameters */
            controls *c = m->control;
            const int same = i && random_below(&r, of);
            index[i] = same ? index[i - 1] : (int32_t)random_below(&r, DATA);
            if (!same || random_below(&r, 2 * of) == 0) continue;
            c->temperature[i] = c->temperature[i - 1];
            c->top_k[i] = c->top_k[i - 1];
            c->top_p[i] = c->top_p[i - 1];
            c->min_p[i] = c->min_p[i - 1];
        }
        CUDA(cudaMemcpy(device_index, index, sizeof index, cudaMemcpyHostToDevice));
        m->index = index;
        m->device_index = device_index;
        m->data_rows = DATA;
        compare(m, "by index");
        m->index = m->device_index = NULL;
        m->rows = DATA; /* what match_layout made */
    }
    match_check_space(m, "by index");
    CUDA(cudaFree(device_index));
    match_free(m);
}

TEST(logits_by_index) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) by_index(0, dtype, 5000, 5);
    by_index(0, RAFFLE_BF16, 700, 300);
}
TEST(probabilities_by_index) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) by_index(1, dtype, 5000, 5);
    by_index(1, RAFFLE_F32, 700, 300);
}
TEST(long_rows_by_index) { /* more groups than shared memory has room for */
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    by_index(0, RAFFLE_F16, 263000, 5);
    by_index(1, RAFFLE_BF16, 300000, 5);
}

int main(void) {
    gpu_start("cuda_given", 100);
    RUN(vocab_1);
    RUN(vocab_257);
    RUN(vocab_999);
    RUN(vocab_4097);
    RUN(vocab_32000);
    RUN(vocab_151936);
    RUN(vocab_270336);
    RUN(vocab_270337);
    RUN(nuclei_of_all_sizes);
    RUN(logits_by_index);
    RUN(probabilities_by_index);
    RUN(long_rows_by_index);
    printf("%ld results compared with the CPU\n", rows_checked);
    return test_report("cuda_given");
}
