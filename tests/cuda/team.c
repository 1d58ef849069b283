/* team.c - few rows with a top-p or a top-k, and more of them with a top-p alone: the blocks of a row are clusters, and read it again
 * together where many tokens stay (src/cuda/team.cuh). Rows of every kind, layout and size, and rows that many tokens stay of; logits and
 * probabilities. */
#include "flat_rows.h"

/* On a GPU of 132 multiprocessors up to 6 rows have teams, and up to 42 with a top-p alone: of eight blocks, of seven (16 and 33 rows) or
 * six (20). tests/emulate has such a GPU for this program. */
static const int64_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 20, 33, 43};
static const int64_t quick_counts[] = {1, 4, 7};
enum { ROWS_MOST = 43, COUNTS = sizeof row_counts / sizeof row_counts[0], QUICK_COUNTS = sizeof quick_counts / sizeof quick_counts[0] };
static int counts(void) { return gpu_quick() ? QUICK_COUNTS : COUNTS; }
static int64_t rows_of(int i) { return gpu_quick() ? quick_counts[i] : row_counts[i]; }
static int rounds_of(int64_t rows) { return gpu_quick() ? 1 : rows > 7 ? 3 : 8; }
static long rows_checked;

/* Elsewhere these rows have no teams, and comparing them shows nothing. */
#define NEED_TEAMS()                                                                                                   \
    do {                                                                                                               \
        int processors = 0, clusters = 0;                                                                              \
        NEED_GPU();                                                                                                    \
        CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));                                  \
        CUDA(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, 0));                                          \
        if (processors < 128 || !clusters) SKIP("fewer than 128 multiprocessors, or no clusters");                     \
    } while (0)

static void compare(match *m, const char *how) {
    match_compare(m, how);
    rows_checked += m->rows;
}

/* Parameters of every kind, of which more than usual leave many tokens. */
static void params_pick(match *m, test_random *r) {
    static const float shares[] = {0.45f, 0.9f, 0.3f, 0.999f}, temperatures[] = {0.8f, 1.0f, 1.5f, 3.0f};
    const int32_t most[] = {0, 600, 5000, (int32_t)(m->vocab / 2)};
    m->flags = pick_flags(r);
    m->slots = m->rows;
    const unsigned cuts = random_below(r, 2) ? HAS_TOP_P : random_below(r, 3) ? HAS_TOP_P | HAS_TOP_K : HAS_TOP_K;
    m->has = cuts | HAS_FLAGS | (m->input == RAFFLE_PROBS ? 0 : HAS_TEMPERATURE) | (random_below(r, 2) ? HAS_MIN_P : 0);
    if (random_below(r, 4) == 0) m->has |= HAS_ALLOW;
    if (random_below(r, 4) == 0) m->has |= HAS_SLOT;
    match_pick(m, r);
    for (int64_t i = 0; i < m->rows; ++i) {
        if (random_below(r, 4) == 0) continue;
        m->control->top_p[i] = shares[random_below(r, 4)];
        m->control->top_k[i] = most[random_below(r, 4)];
        m->control->temperature[i] = temperatures[random_below(r, 4)];
        m->control->min_p[i] = random_below(r, 2) ? 0.0f : 1e-5f;
    }
    if (m->has & HAS_ALLOW) match_mask(m);
}

static void rounds_run(match *m, test_random *r, int rounds, const char *how) {
    match_send_rows(m);
    for (int i = 0; i < rounds && !match_hopeless(); ++i) {
        params_pick(m, r);
        compare(m, how);
        if (m->input == RAFFLE_LOGITS && i % 4 == 0) match_check_oracle(m, 1, r);
    }
    match_check_space(m, how);
}

static void logits_of(int dtype, int64_t vocab) {
    test_random r = {(uint64_t)(vocab + dtype)};
    match *m = match_make(dtype, vocab, ROWS_MOST);
    for (int i = 0; i < counts(); ++i) {
        const int64_t rows = rows_of(i);
        const int layout = (int)((rows + dtype) % LAYOUTS);
        match_lay_out(m, layout, rows, &r);
        rounds_run(m, &r, rounds_of(rows), "rows of every kind");
        match_layout(m, rows, vocab + (rows % 3 == 2), rows % 3 == 2, 0); /* some are not aligned */
        flat_rows(m, rows * 5);
        rounds_run(m, &r, rounds_of(rows), "rows that many tokens stay of");
    }
    match_free(m);
}

#define VOCAB(vocab)                                                                                                   \
    TEST(vocab_##vocab) {                                                                                              \
        NEED_TEAMS();                                                                                                  \
        for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype)                                                    \
            if (!gpu_quick() || dtype == (vocab) % 3) logits_of(dtype, vocab);                                         \
    }
VOCAB(65281)  /* 256 groups, the last of one token: as few as have teams, */
VOCAB(65280)  /* and one less */
VOCAB(99001)
VOCAB(128256)
VOCAB(270336) /* as many groups as the short ways know, */
VOCAB(270337) /* and one more */

TEST(probabilities) {
    NEED_TEAMS();
    static const int64_t vocabs[] = {66000, 151936};
    for (int n = 0; n < (gpu_quick() ? 1 : 2); ++n) {
        for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
            test_random r = {(uint64_t)dtype + 9};
            match *m = match_probs(dtype, vocabs[n], ROWS_MOST);
            for (int i = 0; i < counts(); ++i) {
                const int64_t rows = rows_of(i);
                match_layout(m, rows, vocabs[n] + (rows % 3 == 2 ? 3 : 0), 0, 0);
                match_fill_weights(m, &r);
                rounds_run(m, &r, rounds_of(rows), "probabilities");
            }
            match_free(m);
        }
    }
}

int main(void) {
    gpu_start("cuda_team", 180);
    RUN(vocab_65281);
    RUN(vocab_65280);
    RUN(vocab_99001);
    RUN(vocab_128256);
    RUN(vocab_270336);
    RUN(vocab_270337);
    RUN(probabilities);
    printf("%ld rows compared\n", rows_checked);
    return test_report("cuda_team");
}
