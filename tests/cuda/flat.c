/* flat.c - rows of which top-p, large top-k and min-p, alone and together, leave many tokens: flat ones, which blocks sum up by value
 * (src/cuda/sums.cuh), ones that only look so, and ones that are flat in some of their parts only. In batches of several sizes, because
 * these decide how large parts are. */
#include <float.h>

#include "flat_rows.h"

/* Draws from the rows several times: every share of the mass and temperature meets every kind. From a half on a share alone needs no threshold
 * (nucleus.c). */
static void flat_rounds(match *m, test_random *r) {
    static const float shares[] = {0.9f, 0.02f, 0.4999f, 0.3f, 0.45f, 0x1.fffffep-1f}, temperatures[] = {0.8f, 1.0f, 2.5f, 0.4f};
    static const float least[] = {0.0f, 0.001f, 0.0f, 0.2f, 1e-5f, 0.0f, 0.0f};
    static const uint32_t flags[] = {RAFFLE_FILTERS_FIRST, RAFFLE_TOP_P_JOINT, RAFFLE_MIN_P_LAST, 0};
    const int32_t most[] = {513, 600, 1000, 5000, (int32_t)(m->vocab / 2), (int32_t)(m->vocab - 1), 0};
    const uint64_t rounds = gpu_quick() ? 2 : 24;
    for (uint64_t round = 0; round < rounds && !match_hopeless(); ++round) {
        for (int64_t i = 0; i < m->rows; ++i) {
            const uint64_t turn = (uint64_t)i / FLAT_KINDS + round;
            m->control->temperature[i] = temperatures[turn % 4];
            m->control->top_p[i] = round % 6 == 3 ? 1.0f : shares[(turn + turn / 4) % 6];
            m->control->top_k[i] = round % 2 ? most[(turn + turn / 3) % 7] : 0;
            m->control->min_p[i] = round % 2 ? least[turn % 7] : 0.0f;
            m->control->seed[i] = 77 + (uint64_t)i;
            m->control->position[i] = round;
        }
        m->flags = round % 2 ? flags[(round / 2 + (uint64_t)(m->vocab + m->rows)) % 4] : round % 6 == 4 ? RAFFLE_FILTERS_FIRST : 0;
        match_compare(m, "flat");
        if (round < 2) match_check_oracle(m, m->vocab < 40000 ? 4 : 1, r);
    }
}

/* Batches of `rows` rows, one behind the other, until every kind was there. */
static void flat_kinds(match *m, int64_t rows) {
    const int64_t vocab = m->vocab;
    test_random r = {(uint64_t)(vocab + rows)};
    for (int64_t first = 0; first < FLAT_KINDS && !match_hopeless(); first += rows) {
        match_layout(m, rows, (vocab + 7) / 8 * 8, 0, 0);
        flat_rows(m, first);
        match_send_rows(m);
        flat_rounds(m, &r);
    }
    match_check_space(m, "flat");
}

static match *flat_make(int dtype, int64_t vocab, int64_t rows_max) {
    match *m = match_make(dtype, vocab, rows_max);
    m->has = HAS_USUAL;
    return m;
}
static void flat_batches(int dtype, int64_t vocab, int64_t rows) {
    match *m = flat_make(dtype, vocab, rows);
    flat_kinds(m, rows);
    match_free(m);
}

/* Parts of 8 groups, of some dozens, and of hundreds. */
TEST(one_row) {
    NEED_GPU();
    flat_batches(RAFFLE_BF16, 128256, 1);
    if (!gpu_quick()) flat_batches(RAFFLE_F32, 262144, 1);
    if (!gpu_quick()) flat_batches(RAFFLE_BF16, 262208, 1);
}
TEST(short_rows) {
    NEED_GPU();
    flat_batches(RAFFLE_F32, 9001, 11);
    flat_batches(RAFFLE_F32, 32000, FLAT_KINDS); /* few of these are equal */
    flat_batches(RAFFLE_F16, 32000, 3);
    flat_batches(RAFFLE_BF16, 4097, 40);
    flat_batches(RAFFLE_BF16, 4096, gpu_quick() ? 140 : 2200); /* more rows than are divided into parts */
}
TEST(some_rows) {
    NEED_GPU();
    flat_batches(RAFFLE_BF16, 151936, gpu_quick() ? 11 : 32);
    if (!gpu_quick()) flat_batches(RAFFLE_F16, 128256, 22);
}
/* Parts of more than 64 groups have several sections. With 132 multiprocessors 32 rows, with 6 as in tests/emulate 2 rows have parts of
 * 65 to 128 groups, of which the last, its last section and its last group are shorter. */
TEST(sections) {
    NEED_GPU();
    flat_batches(RAFFLE_BF16, 151936, 32);
    flat_batches(RAFFLE_F32, 151936, 2);
    if (gpu_quick()) return;
    flat_batches(RAFFLE_F16, 262144, 33);
    flat_batches(RAFFLE_BF16, 151001, 64);
}
/* Calls with fewer rows than the plan has room for: these may have more sections together. */
TEST(fewer_rows) {
    NEED_GPU();
    static const int64_t rows[] = {1, 2, 5, 11, 31, 66, 67, 140};
    const size_t count = sizeof rows / sizeof *rows;
    match *m = flat_make(RAFFLE_BF16, 32000, rows[count - 1]);
    for (size_t i = 0; i < count && !match_hopeless(); ++i) flat_kinds(m, rows[i]);
    match_free(m);
}
TEST(many_rows) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: few rows only");
    flat_batches(RAFFLE_BF16, 128256, 140);
    flat_batches(RAFFLE_F32, 128256, 143);
    flat_batches(RAFFLE_BF16, 32000, 600);
}

/* Top-k counts as many tokens as are allowed, and the smallest of them is -FLT_MAX: that is no threshold, and the row's mass is then the sum
 * of its groups', not of its tokens'. The group with the lowest maximum decides how far down a threshold is looked for (wide_guess). */
static float lowest_logit(int64_t i, uint64_t *state) {
    const int64_t g = i / 256;
    const float x = 0.3f * flat_bell(state);
    if (i == 490 * 256 + 7) return -FLT_MAX;
    if (g == 499) return -1.1342e38f;
    if (g % 2 && g < 400 && i % 256 == 5) return -3.401e38f;
    if (g == 300 && i % 2) return -INFINITY;
    return i ? x - 14.0f - 0.05f * (float)(g % 40) : 0.0f;
}
TEST(lowest) {
    NEED_GPU();
    enum { ROWS = 6 };
    match *m = flat_make(RAFFLE_F32, 128256, ROWS);
    match_layout(m, ROWS, m->vocab, 0, 0);
    for (int64_t row = 0; row < ROWS; ++row) {
        uint64_t state = 112 + (uint64_t)row;
        m->kind[row] = "lowest";
        m->control->top_k[row] = (int32_t)m->vocab - 128;
        m->control->temperature[row] = m->control->top_p[row] = 1.0f;
        m->control->seed[row] = 18 + (uint64_t)row; /* of three of these rows a draw among the first shows it */
        for (int64_t i = 0; i < m->vocab; ++i) vector_store(match_row(m, row), m->dtype, i, float_bits(lowest_logit(i, &state)));
    }
    match_send_rows(m);
    for (uint64_t round = 0; round < (gpu_quick() ? 12 : 200) && !match_hopeless(); ++round) {
        for (int64_t row = 0; row < ROWS; ++row) m->control->position[row] = round;
        match_compare(m, "lowest");
    }
    match_free(m);
}

/* A row whose last group is cut short and where memory soon ends: what is read four at a time ends there, too. */
TEST(memory_ends) {
    NEED_GPU();
    enum { V = 137 * 256 + 64 }; /* and 64 more tokens behind it (match_layout), so that the emulation has no byte to spare */
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        match *m = flat_make(dtype, V, 1);
        match_layout(m, 1, V, 0, 0);
        uint64_t state = 5;
        m->kind[0] = "bell, its end the likeliest";
        m->control->top_k[0] = V / 64 - 4; /* few of the row (wide.cuh), and more than fast.cuh takes */
        m->control->temperature[0] = m->control->top_p[0] = 1.0f;
        m->control->seed[0] = 3;
        for (int64_t i = 0; i < V; ++i) vector_store(match_row(m, 0), dtype, i, float_bits(flat_bell(&state) + (i < V - 64 ? 0.0f : 1.0f)));
        match_send_rows(m);
        for (uint64_t round = 0; round < 8 && !match_hopeless(); ++round) {
            m->control->position[0] = round;
            match_compare(m, "memory ends");
        }
        match_free(m);
    }
}

/* What a token adds to the sums is exact: its tickets are a whole number of units, which the kernels count in 26 bits. */
cudaError_t units_count(unsigned *wrong, unsigned *seen, float temperature, float top, cudaStream_t stream); /* capacities.cu */
TEST(units) {
    NEED_GPU();
    static const float temperatures[] = {0.01f, 0.3f, 0.8f, 1.0f, 1.7f, 30.0f}, tops[] = {-3.3f, 0.0f, 0.7f, 11.0f, 20.05f};
    unsigned *count = (unsigned *)gpu_alloc(2 * sizeof *count), found[2];
    gpu_fill(count, 0, 2 * sizeof *count);
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; ++t)
        for (size_t i = 0; i < sizeof tops / sizeof *tops; ++i) CUDA(units_count(count, count + 1, temperatures[t], tops[i], NULL));
    CUDA(cudaMemcpy(found, count, sizeof found, cudaMemcpyDeviceToHost));
    CHECK_EQ(found[0], 0);
    CHECK(found[1] > 10000000, "%u tokens", found[1]);
    CUDA(cudaFree(count));
}

int main(void) {
    gpu_start("cuda_flat", 150);
    RUN(units);
    RUN(one_row);
    RUN(short_rows);
    RUN(some_rows);
    RUN(sections);
    RUN(fewer_rows);
    RUN(many_rows);
    RUN(lowest);
    RUN(memory_ends);
    return test_report("cuda_flat");
}
