/* batches.c - a row's token does not depend on its batch, its place, its stream or the size of the whole. */
#include "match.h"

/* ---- the same row alone, first, last and in the middle ---- */

/* `rows` rows of every kind; 64 different ones, repeated with other parameters. */
static match *crowd_make(int dtype, int64_t vocab, int64_t rows, uint64_t seed) {
    test_random r = {seed};
    match *m = match_make(dtype, vocab, rows);
    match_layout(m, rows, vocab, 0, 0);
    for (int64_t i = 0; i < rows; ++i) {
        m->kind[i] = i < 64 ? row_kinds[i % ROW_KINDS] : NULL;
        m->row_seed[i] = random_bits(&r) >> 40;
    }
    match_fill(m);
    for (int64_t i = 64; i < rows; ++i) {
        memcpy(match_row(m, i), match_row(m, i % 64), (size_t)(vocab * element_bytes(dtype)));
        m->kind[i] = m->kind[i % 64];
        m->row_seed[i] = m->row_seed[i % 64];
    }
    match_pick(m, &r);
    for (int64_t i = 0; i < rows; ++i) m->control->slot[i] = (int32_t)i;
    m->has |= HAS_SLOT;
    m->flags = (uint32_t)random_below(&r, 32);
    match_send_rows(m);
    match_run_cpu(m);
    return m;
}

static void crowd_check(match *m, int64_t from, int64_t rows) {
    match_send_controls(m);
    MUST(match_call(m, from, rows, m->stream, &must_error));
    match_fetch(m);
    match_check(m, from, rows, "part of a batch");
}

static void any_batch(int dtype, int64_t vocab) {
    const int64_t rows = gpu_quick() ? 40 : 600, probes = gpu_quick() ? 1 : 4;
    test_random r = {(uint64_t)vocab};
    match *m = crowd_make(dtype, vocab, rows, (uint64_t)vocab + (uint64_t)dtype);
    for (int64_t n = 1; n <= rows && !match_hopeless(); n += gpu_quick() ? 7 : 1)
        crowd_check(m, random_below(&r, rows - n + 1), n);
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 33, 64, 131, 132, 133, 256, 300};
    for (int64_t probe = rows / 2 - probes; probe < rows / 2 + probes && !match_hopeless(); ++probe)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
            const int64_t n = sizes[i];
            if (n > rows / 2 - probes) break;
            crowd_check(m, probe, n);         /* first */
            crowd_check(m, probe - n / 2, n); /* in the middle */
            crowd_check(m, probe - n + 1, n); /* last */
        }
    match_check_space(m, "batches of all sizes");
    match_free(m);
}

TEST(any_place_4097) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) any_batch(dtype, gpu_quick() ? 999 : 4097);
}
TEST(any_place_32000) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) any_batch(dtype, 32000);
}

/* A workspace made for many rows serves few, and the rows of a batch may share one slot. */
TEST(one_slot_for_all) {
    NEED_GPU();
    test_random r = {5};
    const int64_t rows = gpu_quick() ? 32 : 256;
    match *m = match_make(RAFFLE_BF16, 4097, 5000);
    match_layout(m, rows, 4104, 0, 0);
    match_fill_any(m, &r);
    match_send_rows(m);
    m->slots = 1;
    m->has |= HAS_SLOT;
    for (int i = 0; i < (gpu_quick() ? 4 : 40) && !match_hopeless(); ++i) {
        match_pick(m, &r);
        m->flags = pick_flags(&r);
        match_compare(m, "one slot");
    }
    match_check_space(m, "one slot");
    match_free(m);
}

/* ---- two streams, two workspaces, one plan each ---- */

TEST(two_streams) {
    NEED_GPU();
    enum { TURNS = 60, ROWS = 48 };
    const int turns = gpu_quick() ? 4 : TURNS;
    match *m[2] = {crowd_make(RAFFLE_BF16, gpu_quick() ? 999 : 32000, ROWS, 21),
                   crowd_make(RAFFLE_F32, gpu_quick() ? 999 : 32000, ROWS, 22)};
    answers *got[2];
    for (int s = 0; s < 2; ++s) {
        CUDA(cudaMallocHost((void **)&got[s], TURNS * sizeof(answers)));
        match_send_controls(m[s]);
    }
    CUDA(cudaDeviceSynchronize());
    for (int turn = 0; turn < turns; ++turn) /* nothing waits in between: calls of both streams run side by side */
        for (int s = 0; s < 2; ++s) {
            CUDA(cudaMemsetAsync(m[s]->device_answers, POISON, sizeof(answers), m[s]->stream));
            MUST(match_call(m[s], 0, ROWS - turn % 5, m[s]->stream, &must_error));
            CUDA(cudaMemcpyAsync(got[s] + turn, m[s]->device_answers, sizeof(answers), cudaMemcpyDeviceToHost,
                                 m[s]->stream));
        }
    CUDA(cudaDeviceSynchronize());
    for (int s = 0; s < 2; ++s) {
        for (int turn = 0; turn < turns && !match_hopeless(); ++turn) {
            memcpy(m[s]->got, got[s] + turn, sizeof(answers));
            match_check(m[s], 0, ROWS - turn % 5, "two streams");
        }
        match_check_space(m[s], "two streams");
        CUDA(cudaFreeHost(got[s]));
    }
    match_free(m[0]);
    match_free(m[1]);
}

/* One plan, two workspaces, two streams, both on the same logits. */
TEST(one_plan_two_workspaces) {
    NEED_GPU();
    enum { ROWS = 40, TURNS = 30 };
    match *m = crowd_make(RAFFLE_F16, gpu_quick() ? 999 : 49152, ROWS, 23), other = *m;
    CUDA(cudaStreamCreateWithFlags(&other.stream, cudaStreamNonBlocking));
    other.space = (char *)gpu_alloc(m->space_bytes + SPACE_GUARD);
    gpu_fill(other.space, 0, m->space_bytes);
    gpu_fill(other.space + m->space_bytes, POISON, SPACE_GUARD);
    other.device_answers = (answers *)gpu_alloc(sizeof(answers));
    other.got = (answers *)host_alloc(sizeof(answers));
    gpu_fill(other.device_answers, POISON, sizeof(answers));
    match_send_controls(m);
    CUDA(cudaDeviceSynchronize());
    for (int turn = 0; turn < (gpu_quick() ? 3 : TURNS); ++turn) {
        MUST(match_call(m, 0, ROWS, m->stream, &must_error));
        MUST(match_call(&other, 0, ROWS, other.stream, &must_error));
    }
    match_fetch(m);
    match_fetch(&other);
    match_check(m, 0, ROWS, "first workspace");
    match_check(&other, 0, ROWS, "second workspace");
    match_check_space(m, "first workspace");
    match_check_space(&other, "second workspace");
    CUDA(cudaFree(other.space));
    CUDA(cudaFree(other.device_answers));
    CUDA(cudaStreamDestroy(other.stream));
    free(other.got);
    match_free(m);
}

/* ---- rows * vocab > 2^31 ---- */

enum { HUGE_ROWS = 8200, HUGE_PATTERNS = 24 };

/* Which of the different rows is row r: the ends, the middle and the neighbourhood of element 2^31 have their own. */
static int64_t huge_pattern(int64_t row) {
    if (row < 2) return 8 + row;
    if (row >= HUGE_ROWS - 2) return 10 + row - (HUGE_ROWS - 2);
    if (row >= 8190 && row < 8194) return 12 + row - 8190;
    if (row >= 4094 && row < 4100) return 16 + row - 4094;
    return row % 8;
}

static void huge_cpu(void *given, int member, int members) {
    match *m = (match *)given;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = m->cpu_space[member];
    launch.workspace_bytes = raffle_plan_workspace(m->cpu);
    for (int64_t row = member; row < HUGE_ROWS; row += members) {
        int32_t slot = (int32_t)row;
        raffle_params params = match_params(m, m->control, NULL);
        params.slots = HUGE_ROWS;
        params.slot = &slot;
        raffle_logits logits = raffle_logits_init();
        logits.data = m->host + huge_pattern(row) * m->vocab * 2;
        logits.rows = 1;
        raffle_result result = raffle_result_init();
        result.token = m->wanted->token + row;
        result.row_flags = m->wanted->row_flags + row;
        if (raffle_sample(m->cpu, &logits, &params, &result, &launch, NULL)) abort();
    }
}

static void huge_check(const match *m, int backwards) {
    for (int64_t i = 0; i < HUGE_ROWS; ++i) {
        const int64_t row = backwards ? HUGE_ROWS - 1 - i : i;
        if (test_note(m->got->token[i] == m->wanted->token[row] && m->got->row_flags[i] == m->wanted->row_flags[row]))
            printf("huge: row %lld, pattern %lld (%s): GPU token %d flags %u, CPU token %d flags %u\n", (long long)row,
                   (long long)huge_pattern(row), m->kind[huge_pattern(row)], m->got->token[i], m->got->row_flags[i],
                   m->wanted->token[row], m->wanted->row_flags[row]);
    }
}

TEST(more_than_2_31_logits) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: no large memory");
    const int64_t vocab = 262144;
    const size_t row_bytes = (size_t)vocab * 2, all = HUGE_ROWS * row_bytes;
    size_t memory_free = 0, memory_all = 0;
    CUDA(cudaMemGetInfo(&memory_free, &memory_all));
    if (memory_free < all + ((size_t)1 << 30)) SKIP("less than 6 GB of GPU memory are free");
    test_random r = {31};
    match *m = match_make(RAFFLE_BF16, vocab, HUGE_ROWS);
    match_layout(m, HUGE_PATTERNS, vocab, 0, 0);
    match_fill_any(m, &r);
    char *device = (char *)gpu_alloc(all);
    CUDA(cudaFree(m->device));
    m->device = device;
    /* The first eight, then the same again and again, doubling; then those with a row of their own. */
    CUDA(cudaMemcpyAsync(device, m->host, 8 * row_bytes, cudaMemcpyHostToDevice, m->stream));
    for (size_t done = 8 * row_bytes; done < all; done *= 2)
        CUDA(cudaMemcpyAsync(device + done, device, done < all - done ? done : all - done, cudaMemcpyDeviceToDevice,
                             m->stream));
    for (int64_t row = 0; row < HUGE_ROWS; ++row)
        if (huge_pattern(row) >= 8)
            CUDA(cudaMemcpyAsync(device + (size_t)row * row_bytes, m->host + (size_t)huge_pattern(row) * row_bytes,
                                 row_bytes, cudaMemcpyHostToDevice, m->stream));
    m->rows = m->slots = HUGE_ROWS;
    match_pick(m, &r);
    match_run_gpu(m);
    crew_run(huge_cpu, m);
    huge_check(m, 0);
    /* From the last row to the first. */
    for (int64_t i = 0; i < HUGE_ROWS; ++i) m->control->slot[i] = (int32_t)(HUGE_ROWS - 1 - i);
    m->has |= HAS_SLOT;
    m->first = (HUGE_ROWS - 1) * vocab;
    m->stride = -vocab;
    match_run_gpu(m);
    huge_check(m, 1);
    match_check_space(m, "huge");
    match_free(m);
}

int main(void) {
    gpu_start("cuda_batches", 120);
    RUN(any_place_4097);
    RUN(any_place_32000);
    RUN(one_slot_for_all);
    RUN(two_streams);
    RUN(one_plan_two_workspaces);
    RUN(more_than_2_31_logits);
    return test_report("cuda_batches");
}
