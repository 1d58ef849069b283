/* nucleus.c - top-p alone, of half of the row or more: tokens are drawn from the whole row until one stays (src/cuda/propose.cuh). Draws that
 * take several of them; proposals of tokens next to the threshold, on both sides, where much of the row has to be read to tell; and draws
 * next to the borders between stretches and between tokens, which estimates do not settle. By every kernel that draws tokens. */
#include <float.h>

#include "flat_rows.h"

#include "../common/borders.h"

enum { TWO, THREE, FOUR, FIVE, LEAST_KEPT, MOST_CUT, STRETCHES, TOKENS, PICKS }; /* what a row's positions are for */

static long rows_checked, several;

/* Of every kind, a position of many that has the most of it. */
typedef struct picks {
    uint64_t position[PICKS];
    double best[PICKS]; /* how far off it is */
    int most;           /* proposals of a draw */
} picks;

static void pick(picks *p, int what, uint64_t position, double off) {
    if (off >= p->best[what]) return;
    p->best[what] = off;
    p->position[what] = position;
}

static picks picks_find(const oracle_case *c, uint64_t tried) {
    picks p = {.most = 0};
    const borders b = borders_make(c);
    float *x = (float *)malloc((size_t)c->vocab * sizeof *x), least = INFINITY, most = -INFINITY;
    oracle_logits(c, x);
    for (int i = 0; i < PICKS; ++i) p.best[i] = DBL_MAX;
    for (int64_t i = 0; i < c->vocab; ++i) {
        if (b.kept[i] && x[i] < least) least = x[i];
        if (!b.kept[i] && x[i] > most) most = x[i];
    }
    for (uint64_t at = c->position; b.proposed && at < c->position + tried; ++at) {
        int n = 0;
        for (int kept = 0; !kept; ++n) {
            uint64_t within;
            int64_t token;
            const uint64_t between = borders_distance(&b, n ? 5 + 256 * (uint32_t)n : 0, c->seed, at, &within, &token);
            kept = b.kept[token];
            pick(&p, kept ? LEAST_KEPT : MOST_CUT, at, kept ? (double)x[token] - least : most - (double)x[token]);
            pick(&p, STRETCHES, at, (double)between);
            pick(&p, TOKENS, at, (double)within);
        }
        if (n > 1) pick(&p, n < 5 ? n - 2 : FIVE, at, n < 5 ? 1 : -n);
        if (n > p.most) p.most = n;
    }
    free(x);
    borders_free(b);
    return p;
}

typedef struct searched {
    const match *m;
    picks *of;
    uint64_t tried;
} searched;

static void search_some(void *given, int member, int members) {
    searched *s = (searched *)given;
    for (int64_t i = member; i < s->m->rows; i += members) {
        const oracle_case c = match_case(s->m, i);
        s->of[i] = picks_find(&c, s->tried);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static void fill_some(void *given, int member, int members) {
    static const char *const usual[] = {"normal", "peaked", "flat", "ties", "spiky", "ascending", "tiny", "constant", "masked", "nan"};
    match *m = (match *)given;
    for (int64_t i = member; i < m->rows; i += members) {
        if (i % 2) continue;
        m->kind[i] = usual[i / 2 % 10];
        vector_row_make(m->kind[i], m->row_seed[i] % 1000, m->vocab, m->dtype, match_row(m, i));
    }
}

/* Rows of every kind, and their parameters. */
static void rows_make(match *m, int64_t rows, int layout, test_random *r) {
    static const float shares[] = {0.9f, 0.5f, 0.99f, 0.7f, 0x1.fffffep-1f, 0.95f, 0.9999f}, temperatures[] = {0.8f, 1.0f, 2.5f, 1.3f, 0.4f};
    match_lay_out(m, layout, rows, r);
    if (m->input == RAFFLE_PROBS) {
        match_fill_weights(m, r);
    } else {
        flat_rows(m, random_below(r, FLAT_KINDS));
        crew_run(fill_some, m);
    }
    match_send_rows(m);
    for (int64_t i = 0; i < rows; ++i) {
        m->control->temperature[i] = temperatures[i % 5];
        m->control->top_p[i] = shares[(i + i / 7) % 7];
        m->control->top_k[i] = i % 4 ? 0 : (int32_t)m->vocab; /* is none */
        m->control->min_p[i] = 0.0f;
        m->control->seed[i] = random_bits(r);
        m->control->position[i] = (uint64_t)i << 40;
    }
    if (m->has & HAS_ALLOW) match_mask(m);
}

static picks *rows_search(const match *m) {
    searched s = {m, (picks *)calloc((size_t)m->rows, sizeof(picks)), gpu_quick() ? 20000 : 60000};
    crew_run(search_some, &s);
    for (int64_t i = 0; i < m->rows; ++i) several += s.of[i].most > 3;
    return s.of;
}

static uint64_t position_of(const match *m, const picks *p, int what, int64_t else_this) {
    return p->best[what] < DBL_MAX ? p->position[what] - match_position_offset(m) : (uint64_t)else_this;
}

static void compare(match *m, const char *how, test_random *r) {
    match_compare(m, how);
    match_check_oracle(m, m->vocab > 40000 ? 1 : 2, r);
    rows_checked += m->rows;
}

/* ---- the kernels ----------------------------------------------------------------------------------------------- */

static void each_pick(match *m, int64_t rows, int layout, const char *how) {
    test_random r = {(uint64_t)(m->vocab + rows + layout + m->dtype)};
    rows_make(m, rows, layout, &r);
    picks *p = rows_search(m);
    for (int what = 0; what < PICKS && !match_hopeless(); ++what) {
        for (int64_t i = 0; i < rows; ++i) m->control->position[i] = position_of(m, p + i, what, i);
        compare(m, how, &r);
    }
    match_check_space(m, how);
    free(p);
}

static void logits(int dtype, int64_t vocab, int64_t rows, int layout, unsigned has) {
    match *m = match_make(dtype, vocab, rows);
    m->has = HAS_TEMPERATURE | HAS_TOP_P | HAS_FLAGS | has;
    each_pick(m, rows, layout, "logits");
    match_free(m);
}

/* Few rows: their groups are weighed. */
TEST(weighed_rows) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        logits(dtype, 700, 40, TIGHT, 0);
        logits(dtype, 32000, gpu_quick() ? 6 : 30, TIGHT, HAS_TOP_K);
        if (!gpu_quick() || dtype == RAFFLE_BF16) logits(dtype, 128256, gpu_quick() ? 4 : 26, ALIGNED_BACKWARDS, 0);
    }
}

/* Misaligned ones, masks, a last group that is cut short, as many groups as the short way knows and one more. */
TEST(layouts) {
    NEED_GPU();
    for (int layout = TIGHT; layout <= ODD_BACKWARDS; ++layout) {
        logits(RAFFLE_F32 + layout % 3, 4097, 30, layout, HAS_TOP_K);
        logits(RAFFLE_F32 + layout % 3, 9001, 26, layout, HAS_ALLOW);
    }
    logits(RAFFLE_F16, 270336, gpu_quick() ? 2 : 8, TIGHT, 0);
    logits(RAFFLE_BF16, 270337, gpu_quick() ? 2 : 8, TIGHT, HAS_TOP_K);
    if (!gpu_quick()) logits(RAFFLE_BF16, 128255, 20, ODD, HAS_ALLOW);
}

/* As many as are estimated on this GPU (ABOUT_GROUPS of run.cu). */
TEST(estimated_rows) {
    NEED_GPU();
    int processors = 0;
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    for (int dtype = RAFFLE_F16; dtype <= RAFFLE_BF16; ++dtype) {
        const int64_t vocab = gpu_quick() ? 16000 : 32000 + 96256 * (dtype == RAFFLE_BF16);
        logits(dtype, vocab, 120 * processors / (vocab / 256) + 1, TIGHT, HAS_TOP_K);
    }
}

static void reported(int dtype, int64_t vocab, int64_t rows) {
    match *m = match_make_for(dtype, vocab, rows, RAFFLE_PLAN_REPORT);
    raffle_report cpu = raffle_report_init(), gpu = cpu;
    int32_t *counts = (int32_t *)calloc((size_t)rows, sizeof *counts), *got = (int32_t *)calloc((size_t)rows, sizeof *got);
    cpu.kept_count = counts;
    gpu.kept_count = (int32_t *)gpu_alloc((size_t)rows * sizeof *got);
    m->cpu_report = &cpu;
    m->gpu_report = &gpu;
    m->has = HAS_TEMPERATURE | HAS_TOP_P | HAS_FLAGS;
    each_pick(m, rows, TIGHT, "with a report");
    CUDA(cudaMemcpy(got, gpu.kept_count, (size_t)rows * sizeof *got, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; ++i) CHECK_EQ(got[i], counts[i]);
    CUDA(cudaFree(gpu.kept_count));
    free(counts);
    free(got);
    match_free(m);
}

/* What is kept is told, too. */
TEST(reports) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        reported(dtype, 4097, 26);
        reported(dtype, 32000, gpu_quick() ? 5 : 26);
    }
    if (!gpu_quick()) reported(RAFFLE_BF16, 128256, 26);
}

/* Several results of each row: one behind the other, or all rows in turns, so that each draws for itself. */
static void shared(int input, int dtype, int64_t vocab, int64_t data) {
    const int64_t results = data * PICKS;
    match *m = match_make_of(dtype, vocab, results, 0, input);
    test_random r = {(uint64_t)(vocab + dtype + input)};
    int32_t *index = (int32_t *)calloc((size_t)results, sizeof *index), *device = (int32_t *)gpu_alloc((size_t)results * sizeof *index);
    controls *c = m->control, *of_rows = (controls *)malloc(sizeof *of_rows);
    m->has = HAS_TOP_P | HAS_FLAGS | (input == RAFFLE_PROBS ? 0 : HAS_TEMPERATURE);
    rows_make(m, data, TIGHT, &r);
    picks *p = rows_search(m);
    *of_rows = *c;
    m->rows = m->slots = results;
    for (int turns = 0; turns < 2; ++turns) {
        for (int64_t i = 0; i < results; ++i) {
            const int64_t row = turns ? i % data : i / PICKS, what = turns ? i / data : i % PICKS;
            index[i] = (int32_t)row;
            c->temperature[i] = of_rows->temperature[row];
            c->top_p[i] = of_rows->top_p[row];
            c->seed[i] = of_rows->seed[row];
            c->position[i] = position_of(m, p + row, (int)what, i);
        }
        CUDA(cudaMemcpy(device, index, (size_t)results * sizeof *index, cudaMemcpyHostToDevice));
        m->index = index;
        m->device_index = device;
        m->data_rows = data;
        compare(m, turns ? "rows in turns" : "results of one row", &r);
    }
    match_check_space(m, "shared rows");
    CUDA(cudaFree(device));
    free(index);
    free(p);
    free(of_rows);
    match_free(m);
}
TEST(shared_rows) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        shared(RAFFLE_LOGITS, dtype, 4097, 26);
        shared(RAFFLE_LOGITS, dtype, 32000, gpu_quick() ? 5 : 26);
        shared(RAFFLE_PROBS, dtype, 4097, 26);
    }
    shared(RAFFLE_LOGITS, RAFFLE_BF16, 270337, 2);
    if (!gpu_quick()) shared(RAFFLE_PROBS, RAFFLE_F32, 128256, 26);
}

/* Rows of probabilities. */
TEST(probabilities) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        for (int of = 0; of < 2; ++of) {
            const int64_t vocab = of ? 32000 : 4097, rows = of && gpu_quick() ? 6 : 30;
            match *m = match_probs(dtype, vocab, rows);
            m->has = HAS_TOP_P | HAS_FLAGS | (of ? HAS_TOP_K : 0);
            each_pick(m, rows, TIGHT, "probabilities");
            match_free(m);
        }
    }
}

/* And there were such. */
TEST(enough) {
    NEED_GPU();
    CHECK(several > 0 && several >= rows_checked / 100, "%ld rows compared, %ld with draws that take four tokens or more", rows_checked, several);
}

int main(void) {
    gpu_start("cuda_nucleus", 240);
    RUN(weighed_rows);
    RUN(layouts);
    RUN(estimated_rows);
    RUN(reports);
    RUN(shared_rows);
    RUN(probabilities);
    RUN(enough);
    printf("%ld rows compared; %ld with draws that take four tokens or more\n", rows_checked, several);
    return test_report("cuda_nucleus");
}
