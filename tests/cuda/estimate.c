/* estimate.c - rows without filters, and such that are proposed: the first reading estimates what their groups weigh, and only draws that
 * this does not settle are of rows that are weighed (src/cuda/group.cuh). So draws and proposals next to the borders between stretches,
 * in every layout, and proposals of tokens at top-p's threshold; and the error that the estimates' instruction may have. */
#include "match.h"

#include "../common/borders.h"
#include "../common/largest.h"

cudaError_t powers_off(double *most, unsigned step, cudaStream_t stream); /* powers.cu */

/* Few of them in the emulator, whose powers are the host's. */
TEST(powers_of_two) {
    NEED_GPU();
    double *device = (double *)gpu_alloc(sizeof *device), most = 1.0;
    gpu_fill(device, 0, sizeof *device);
    CUDA(powers_off(device, gpu_quick() ? 4099 : 1, NULL));
    CUDA(cudaMemcpy(&most, device, sizeof most, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(device));
    printf("     2^x is off by 2^%.2f at most\n", log2(most));
    CHECK(most > 0.0 && most <= 0x1p-22, "off by %g", most);
}

enum { NEAREST = 6 };

/* Where a row is next to borders; of a row that is proposed, the last two are next to its threshold, if there are such. */
static void nearest_find(const oracle_case *c, uint64_t position[NEAREST]) {
    borders_find(c, 0, 0, c->position, 200000, position, NEAREST);
    if (!(c->top_p < 1.0f)) return;
    oracle_case fewer = *c, more = *c;
    fewer.top_p = ulps_from(c->top_p, c->top_p > 0.5f ? -1000 : 0); /* below, nothing is proposed */
    more.top_p = ulps_from(c->top_p, 1000);
    borders_edge(&fewer, &more, position + NEAREST - 2, 2);
}

/* Rows whose positions are the n-th nearest to a border, and then the next; of `has`, top-k is off. */
static void near_borders(int dtype, int64_t vocab, int64_t rows, int layout, unsigned has, float top_p) {
    static const char *const kinds[] = {"normal", "flat", "peaked", "ascending", "ties", "normal", "constant", "spiky"};
    static const float temperatures[] = {1.0f, 0.7f, 2.0f, 1.3f, 0.4f};
    match *m = match_make(dtype, vocab, rows);
    test_random r = {(uint64_t)(vocab + rows + dtype + layout)};
    uint64_t(*position)[NEAREST] = (uint64_t(*)[NEAREST])calloc((size_t)rows, sizeof *position);
    m->has = has;
    match_lay_out(m, layout, rows, &r);
    for (int64_t i = 0; i < rows; ++i) {
        m->kind[i] = kinds[i % 8];
        m->row_seed[i] = (uint64_t)(i + vocab % 100);
    }
    match_fill(m);
    match_send_rows(m);
    for (int64_t i = 0; i < rows; ++i) {
        m->control->temperature[i] = temperatures[i % 5];
        m->control->top_p[i] = top_p;
        m->control->seed[i] = (uint64_t)i;
        m->control->position[i] = 0;
        const oracle_case c = match_case(m, i);
        nearest_find(&c, position[i]);
    }
    for (int n = 0; n < NEAREST && !match_hopeless(); ++n) {
        for (int64_t i = 0; i < rows; ++i) m->control->position[i] = position[i][n] - match_position_offset(m);
        match_compare(m, "near a border");
        match_check_oracle(m, 1, &r);
    }
    match_check_space(m, "near a border");
    free(position);
    match_free(m);
}

/* As many rows as have estimates on this GPU (ABOUT_GROUPS of run.cu). */
static int64_t rows_for(int64_t vocab) {
    int processors = 0;
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    return (int64_t)120 * processors / (vocab / 256) + 1;
}

TEST(batches) {
    static const int64_t vocabs[] = {32000, 49152, 128256, 262208};
    NEED_GPU();
    for (int i = 0; i < (gpu_quick() ? 1 : 4); ++i)
        for (int dtype = RAFFLE_F16; dtype <= RAFFLE_BF16; ++dtype)
            near_borders(dtype, vocabs[i], rows_for(vocabs[i]), i % 2 ? ALIGNED_BACKWARDS : TIGHT, HAS_TEMPERATURE | HAS_FLAGS, 1.0f);
}

/* Rows that are weighed at once: few of them, of f32, or of a vocabulary that is too large. */
TEST(weighed_rows) {
    NEED_GPU();
    for (int dtype = 0; dtype < 3; ++dtype) near_borders(dtype, 32000, 1, TIGHT, HAS_TEMPERATURE | HAS_FLAGS, 1.0f);
    near_borders(RAFFLE_F32, 32000, gpu_quick() ? 4 : 140, TIGHT, HAS_TEMPERATURE | HAS_FLAGS, 1.0f);
    if (!gpu_quick()) near_borders(RAFFLE_BF16, 300000, 20, TIGHT, HAS_TEMPERATURE | HAS_FLAGS, 1.0f);
}

/* A vocabulary whose last group is read otherwise, rows that lie anywhere, and kernels of calls with a top-p. */
TEST(layouts) {
    NEED_GPU();
    for (int layout = TIGHT; layout <= ODD_BACKWARDS; ++layout)
        near_borders(RAFFLE_F16 + layout % 2, 4097 * 4 + 3, rows_for(4097 * 4), layout, HAS_TEMPERATURE | HAS_FLAGS, 1.0f);
    near_borders(RAFFLE_BF16, gpu_quick() ? 66560 : 128256, gpu_quick() ? 5 : 36, TIGHT, HAS_TEMPERATURE | HAS_TOP_P | HAS_FLAGS, 1.0f);
}

/* Of one row, which is weighed, and of many, which are estimated. */
TEST(proposed_rows) {
    static const float shares[] = {0.9f, 0.5f, 0.99f};
    NEED_GPU();
    for (int i = 0; i < (gpu_quick() ? 1 : 3); ++i)
        for (int dtype = 0; dtype < 3; ++dtype) {
            const unsigned has = HAS_TEMPERATURE | HAS_TOP_P | HAS_FLAGS;
            near_borders(dtype, i ? 49152 : 32000, 1, TIGHT, has, shares[i]);
            near_borders(dtype, i ? 128256 : 32000, gpu_quick() ? 5 : i ? 36 : 140, i % 2 ? ODD : TIGHT, has, shares[i]);
        }
}

int main(void) {
    gpu_start("cuda_estimate", 180);
    RUN(powers_of_two);
    RUN(batches);
    RUN(weighed_rows);
    RUN(layouts);
    RUN(proposed_rows);
    return test_report("cuda_estimate");
}
