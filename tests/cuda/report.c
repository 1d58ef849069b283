/* report.c - raffle_report on the GPU: every number is the CPU's, bit for bit, at the three points, and nothing around the
 * arrays is written; some rows are compared with long double. RAFFLE_TEST_QUICK: fewer rows of small vocabularies. */
#include <float.h>
#include <math.h>

#include "match.h"

#include "../common/report_row.h"

static long rows_checked, exact_checked;

/* ---- where reports go ---- */

enum { GIVEN_MAX = 19, LIST_MAX = 3000, PAGE_GUARD = 64 };
enum { CHOSEN, RANK, ENTROPY, TOP_TOKEN, TOP, GIVEN_LOGPROB, GIVEN_RANK, ALL, KEPT, KEPT_LIST, KEPT_COUNT, PAGES };

static const char *const page_name[PAGES] = {"chosen", "rank", "entropy", "top_token", "top", "given_logprob", "given_rank", "all",
                                             "kept", "kept_list", "kept_count"};

/* One array a page, of 4-byte elements, in three copies: the CPU's, the GPU's, and what came back of it. */
typedef struct book {
    raffle_report cpu, gpu;
    int32_t *wanted[PAGES], *got[PAGES], *device[PAGES];
    size_t count[PAGES]; /* elements, without the guard; 0: NULL */
    size_t room[PAGES];
    int32_t *given, *device_given; /* [rows, GIVEN_MAX] */
} book;

static book *book_make(int64_t rows, int64_t vocab) {
    book *b = (book *)calloc(1, sizeof *b);
    if (!b) abort();
    for (int i = 0; i < PAGES; ++i) {
        const int64_t words = (vocab + 31) / 32, top = RAFFLE_TOP_MAX;
        const int64_t each[PAGES] = {1, 1, 1, top, top, GIVEN_MAX, GIVEN_MAX, vocab + 9, words + 3, LIST_MAX, 1};
        b->room[i] = (size_t)(rows * each[i] + PAGE_GUARD);
        b->wanted[i] = (int32_t *)host_alloc(b->room[i] * 4);
        b->got[i] = (int32_t *)host_alloc(b->room[i] * 4);
        b->device[i] = (int32_t *)gpu_alloc(b->room[i] * 4);
    }
    b->given = (int32_t *)host_alloc((size_t)rows * GIVEN_MAX * 4);
    b->device_given = (int32_t *)gpu_alloc((size_t)rows * GIVEN_MAX * 4);
    return b;
}

static void book_free(book *b) {
    for (int i = 0; i < PAGES; ++i) {
        free(b->wanted[i]);
        free(b->got[i]);
        CUDA(cudaFree(b->device[i]));
    }
    free(b->given);
    CUDA(cudaFree(b->device_given));
    free(b);
}

static void report_aim(raffle_report *r, int32_t *const page[PAGES], const int32_t *given) {
    r->chosen = (float *)page[CHOSEN];
    r->rank = page[RANK];
    r->entropy = (float *)page[ENTROPY];
    r->top_token = page[TOP_TOKEN];
    r->top = (float *)page[TOP];
    r->given = given;
    r->given_logprob = (float *)page[GIVEN_LOGPROB];
    r->given_rank = page[GIVEN_RANK];
    r->all = (float *)page[ALL];
    r->kept = (uint32_t *)page[KEPT];
    r->kept_list = page[KEPT_LIST];
    r->kept_count = page[KEPT_COUNT];
}

/* A wish: point, counts, and which pages (bits). */
typedef struct wish {
    int point;
    int32_t top_count, given_count;
    unsigned pages;
    int64_t all_stride, kept_more, list; /* kept_more: words behind a row's own */
} wish;

static int64_t words_of(int64_t vocab) { return (vocab + 31) / 32; }

static void book_open(book *b, const match *m, const wish *w, test_random *r) {
    const int64_t words = words_of(m->vocab) + w->kept_more;
    const int64_t each[PAGES] = {1, 1, 1, w->top_count, w->top_count, w->given_count, w->given_count, w->all_stride, words, w->list, 1};
    int32_t *cpu[PAGES], *gpu[PAGES];
    for (int i = 0; i < PAGES; ++i) {
        const int has = w->pages >> i & 1;
        b->count[i] = has ? (size_t)(m->rows * each[i]) : 0;
        cpu[i] = has ? b->wanted[i] : NULL;
        gpu[i] = has ? b->device[i] : NULL;
        memset(b->wanted[i], POISON, b->room[i] * 4);
        CUDA(cudaMemsetAsync(b->device[i], POISON, b->room[i] * 4, m->stream));
    }
    for (int64_t i = 0; i < m->rows * GIVEN_MAX; ++i) {
        static const int32_t odd[] = {-1, INT32_MIN, INT32_MAX};
        const int64_t choice = random_below(r, 12);
        b->given[i] = choice < 3 ? odd[choice] : choice == 3 ? (int32_t)m->vocab : (int32_t)random_below(r, m->vocab);
    }
    CUDA(cudaMemcpyAsync(b->device_given, b->given, (size_t)m->rows * GIVEN_MAX * 4, cudaMemcpyHostToDevice, m->stream));
    b->cpu = raffle_report_init();
    b->cpu.point = w->point;
    b->cpu.top_count = w->top_count;
    b->cpu.given_count = w->given_count;
    b->cpu.all_stride = w->all_stride;
    b->cpu.kept_stride = words;
    b->cpu.kept_list_stride = w->list;
    b->gpu = b->cpu;
    report_aim(&b->cpu, cpu, b->given);
    report_aim(&b->gpu, gpu, b->device_given);
}

static void book_fetch(book *b, const match *m) {
    for (int i = 0; i < PAGES; ++i)
        CUDA(cudaMemcpyAsync(b->got[i], b->device[i], b->room[i] * 4, cudaMemcpyDeviceToHost, m->stream));
    CUDA(cudaStreamSynchronize(m->stream));
}

/* Every page, the guards behind them included. */
static void book_check(const book *b, const match *m, const wish *w, const char *how) {
    for (int i = 0; i < PAGES; ++i) {
        if (!test_note(!memcmp(b->wanted[i], b->got[i], b->room[i] * 4))) continue;
        for (size_t n = 0; n < b->room[i]; ++n) {
            if (b->wanted[i][n] == b->got[i][n]) continue;
            const int64_t row = b->count[i] ? (int64_t)(n / (b->count[i] / (size_t)m->rows)) : 0;
            float a, c;
            memcpy(&a, &b->got[i][n], 4);
            memcpy(&c, &b->wanted[i][n], 4);
            printf("%s: %s: point %d top %d given %d pages %x: %s[%zu] is %d (%a), not %d (%a)\n", test_state.name, how, w->point,
                   w->top_count, w->given_count, w->pages, page_name[i], n, b->got[i][n], (double)a, b->wanted[i][n], (double)c);
            if (row < m->rows) match_print(m, row);
            break;
        }
    }
}

/* raffle_mask writes the same kept sets, where the report's have been. */
static void masks_check(book *b, const match *m, const wish *w) {
    raffle_output output = raffle_output_init();
    output.kept = b->gpu.kept;
    output.kept_stride = b->gpu.kept_stride;
    output.kept_list = b->gpu.kept_list;
    output.kept_list_stride = b->gpu.kept_list_stride;
    output.kept_count = b->gpu.kept_count;
    if (!output.kept && !output.kept_list && !output.kept_count) return;
    for (int i = KEPT; i <= KEPT_COUNT; ++i) CUDA(cudaMemsetAsync(b->device[i], POISON, b->room[i] * 4, m->stream));
    const raffle_params params = match_params(m, m->device_control, m->device_allow);
    raffle_logits logits = raffle_logits_init();
    logits.data = m->device + m->first * element_bytes(m->dtype);
    logits.rows = m->rows;
    logits.row_stride = m->stride;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = m->space;
    launch.workspace_bytes = m->space_bytes;
    launch.stream = m->stream;
    MUST(raffle_mask(m->gpu, &logits, &params, &output, &launch, &must_error));
    book_fetch(b, m);
    book_check(b, m, w, "raffle_mask");
}

/* ---- against long double ---- */

/* Chosen and top of a row, from the logits that its point shows, by the definition. */
static void exact_check(const book *b, const match *m, const wish *w, int64_t row) {
    oracle_case c = match_case(m, row), at;
    raffle_extra unused;
    at = report_case(c, w->point, &unused);
    const size_t vocab = (size_t)m->vocab;
    float *x = (float *)malloc(vocab * 4);
    uint8_t *kept = (uint8_t *)malloc(vocab);
    oracle_answer a = oracle_sample(&at, kept, NULL);
    oracle_logits(&at, x);
    long double best = -INFINITY, sum = 0, T = (long double)at.temperature;
    for (size_t i = 0; i < vocab; ++i)
        if (kept[i] && (long double)x[i] > best) best = (long double)x[i];
    for (size_t i = 0; i < vocab; ++i)
        if (kept[i]) sum += expl(((long double)x[i] - best) / T);
    /* Beyond 2^30 powers of two two different logits are infinitely far apart: docs/determinism.md. */
    if (!a.greedy && isfinite(best) && at.temperature < 1e30f && fabsl(best / T) < 0x1p29L) {
        const int32_t token = oracle_sample(&c, NULL, NULL).row_flags & RAFFLE_ROW_EMPTY ? -1 : m->got->token[row];
        for (int32_t n = -1; n < w->top_count; ++n) {
            const int32_t id = n < 0 ? (b->count[CHOSEN] ? token : -1) : b->count[TOP] && b->count[TOP_TOKEN] ? b->got[TOP_TOKEN][row * w->top_count + n] : -1;
            if (id < 0 || id >= m->vocab || !kept[id]) continue;
            float told;
            memcpy(&told, n < 0 ? &b->got[CHOSEN][row] : &b->got[TOP][row * w->top_count + n], 4);
            const long double exact = ((long double)x[id] - best) / T - logl(sum), off = fabsl(exact - (long double)told);
            const int beyond = exact < -(long double)FLT_MAX && told == -INFINITY;
            if (test_note(beyond || off <= 1e-6L * fmaxl(1, fabsl(exact)))) {
                printf("%s: point %d: token %d is %a, exactly %.10Lg\n", test_state.name, w->point, id, (double)told, exact);
                match_print(m, row);
            }
            ++exact_checked;
        }
    }
    free(kept);
    free(x);
}

/* ---- one launch ---- */

static void wish_run(match *m, book *b, const wish *w, test_random *r, int exact) {
    book_open(b, m, w, r);
    m->cpu_report = &b->cpu;
    m->gpu_report = &b->gpu;
    match_run_gpu(m);
    book_fetch(b, m);
    match_run_cpu(m);
    match_check(m, 0, m->rows, "with a report");
    book_check(b, m, w, "eager");
    masks_check(b, m, w);
    for (int i = 0; i < exact; ++i) exact_check(b, m, w, random_below(r, m->rows));
    rows_checked += m->rows;
}

static wish wish_pick(test_random *r, int64_t vocab) {
    static const int32_t tops[] = {0, 1, 5, 20, 64, 65, 200, 512, 513, 1024};
    wish w = {(int)random_below(r, 3), tops[random_below(r, 10)], 0, (1u << PAGES) - 1, vocab, random_below(r, 4), 0};
    w.list = 1 + random_below(r, random_below(r, 2) ? LIST_MAX : 9);
    if (random_below(r, 2)) w.given_count = 1 + (int32_t)random_below(r, GIVEN_MAX);
    if (random_below(r, 3)) w.pages &= ~(1u << ALL);
    else w.all_stride += random_below(r, 9);
    if (random_below(r, 2)) w.pages &= ~(1u << ENTROPY);
    if (random_below(r, 3) == 0) w.pages &= (unsigned)random_bits(r);
    if (!(w.pages & (1u << TOP | 1u << TOP_TOKEN))) w.top_count = 0; /* the host refuses it */
    return w;
}

static void params_pick(match *m, test_random *r) {
    m->flags = pick_flags(r);
    m->slots = m->rows;
    m->has = HAS_USUAL;
    if (random_below(r, 4) == 0) {
        m->has |= HAS_SLOT;
        m->slots = 1 + random_below(r, 2 * m->rows);
    }
    if (random_below(r, 3) == 0) m->has |= HAS_ALLOW;
    match_pick(m, r);
    if (random_below(r, 2)) { /* what engines ask for */
        static const float usual[] = {0.0f, 0.7f, 1.0f, 1.0f, 1.3f};
        for (int64_t i = 0; i < m->slots; ++i) {
            m->control->temperature[i] = usual[random_below(r, 5)];
            m->control->top_k[i] = random_below(r, 2) ? 50 : 0;
            m->control->top_p[i] = random_below(r, 2) ? 0.9f : 1.0f;
            m->control->min_p[i] = random_below(r, 4) ? 0.0f : 0.05f;
        }
    }
    if (m->has & HAS_ALLOW) match_mask(m);
}

static void report_vocab(int64_t vocab, int64_t rows, int64_t rounds) {
    test_random r = {(uint64_t)vocab * 7919};
    if (gpu_quick()) {
        if (vocab > 4097) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
        rows = 8;
        rounds = 2;
    }
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        match *m = match_make_for(dtype, vocab, rows + 3, RAFFLE_PLAN_REPORT);
        book *b = book_make(rows, vocab);
        for (int layout = 0; layout < LAYOUTS && !match_hopeless(); ++layout) {
            match_lay_out(m, layout, rows, &r);
            match_send_rows(m);
            for (int64_t i = 0; i < rounds && !match_hopeless(); ++i) {
                params_pick(m, &r);
                const wish w = wish_pick(&r, vocab);
                wish_run(m, b, &w, &r, vocab < 5000 || i % 8 == 0);
            }
            match_check_space(m, "with a report");
        }
        book_free(b);
        match_free(m);
    }
}

#define VOCAB(vocab, rows, rounds)                                                                                     \
    TEST(vocab_##vocab) {                                                                                              \
        NEED_GPU();                                                                                                    \
        report_vocab(vocab, rows, rounds);                                                                             \
    }
VOCAB(1, 24, 4)
VOCAB(2, 24, 4)
VOCAB(31, 24, 4)
VOCAB(33, 24, 4)
VOCAB(255, 32, 8)
VOCAB(256, 32, 8)
VOCAB(257, 32, 8)
VOCAB(513, 32, 12)
VOCAB(999, 32, 16)
VOCAB(4097, 32, 16)
VOCAB(32000, 16, 24)
VOCAB(128256, 12, 16)
VOCAB(151936, 8, 8)
VOCAB(262144, 8, 8)
VOCAB(262208, 8, 8)
VOCAB(300001, 6, 4)

/* ---- every point, every n, every kind of row ---- */

TEST(grid) {
    NEED_GPU();
    static const int32_t tops[] = {1, 5, 20, 64, 512, 513, 1024};
    static const float temperature[] = {0.0f, 1.0f, 0.7f, 2.0f, INFINITY, 0.7f};
    static const int32_t top_k[] = {0, 0, 50, 3, 0, 1};
    static const float top_p[] = {1.0f, 1.0f, 0.9f, 1.0f, 0.5f, 0.95f};
    const int64_t vocab = gpu_quick() ? 1500 : 20000, rows = 2 * ROW_KINDS;
    test_random r = {5};
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        match *m = match_make_for(dtype, vocab, rows, RAFFLE_PLAN_REPORT);
        book *b = book_make(rows, vocab);
        match_lay_out(m, TIGHT, rows, &r);
        match_send_rows(m);
        for (int n = 0; n < 7 && !match_hopeless(); ++n)
            for (int point = RAFFLE_RAW; point <= RAFFLE_FILTERED; ++point) {
                if (gpu_quick() && (n + point) % 3) continue;
                const wish w = {point, tops[n], 3, (1u << PAGES) - 1, vocab, point, 70};
                match_pick(m, &r);
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t mix = (i / ROW_KINDS + i + n * 2) % 6;
                    m->control->temperature[i] = temperature[mix];
                    m->control->top_k[i] = top_k[mix];
                    m->control->top_p[i] = top_p[mix];
                    m->control->min_p[i] = i % 5 ? 0.0f : 0.02f;
                }
                wish_run(m, b, &w, &r, gpu_quick() ? 1 : 2);
            }
        book_free(b);
        match_free(m);
    }
}

/* ---- rows that only the GPU can refuse ---- */

TEST(bad_rows) {
    NEED_GPU();
    enum { ROWS = 12, VOCAB = 700 };
    test_random r = {11};
    match *m = match_make_for(RAFFLE_BF16, VOCAB, ROWS, RAFFLE_PLAN_REPORT);
    book *b = book_make(ROWS, VOCAB);
    match_lay_out(m, TIGHT, ROWS, &r);
    match_send_rows(m);
    for (int point = RAFFLE_RAW; point <= RAFFLE_FILTERED; ++point) {
        const wish w = {point, 5, 4, (1u << PAGES) - 1, VOCAB + 3, 2, 60};
        match_pick(m, &r);
        book_open(b, m, &w, &r);
        m->cpu_report = &b->cpu;
        m->gpu_report = &b->gpu;
        match_run_cpu(m);
        for (int64_t i = 1; i < ROWS; i += 3) { /* what the CPU would refuse as a whole */
            const float nan = NAN;
            if (i % 2) m->control->temperature[i] = nan;
            else m->control->top_p[i] = nan;
            m->wanted->token[i] = RAFFLE_NO_TOKEN;
            m->wanted->row_flags[i] = RAFFLE_ROW_ARGUMENT;
            const int64_t words = words_of(VOCAB);
            const int64_t each[PAGES] = {1, 1, 1, w.top_count, w.top_count, w.given_count, w.given_count, VOCAB + 3, words + 2, 60, 1};
            for (int page = 0; page < PAGES; ++page)
                for (int64_t n = i * each[page]; n < i * each[page] + (page == ALL ? VOCAB : page == KEPT ? words : each[page]); ++n) {
                    const int none = page == RANK || page == GIVEN_RANK || page == KEPT || page == KEPT_COUNT;
                    b->wanted[page][n] = none ? 0 : page == TOP_TOKEN ? -1 : 0x7fc00000;
                }
            memset(b->wanted[KEPT_LIST] + i * 60, POISON, 60 * 4); /* as it was */
        }
        match_run_gpu(m);
        book_fetch(b, m);
        match_check(m, 0, ROWS, "with bad rows");
        book_check(b, m, &w, "with bad rows");
        masks_check(b, m, &w);
    }
    book_free(b);
    match_free(m);
}

/* ---- graphs: one captured call serves every later content ---- */

TEST(graph) {
    NEED_GPU();
    enum { ROWS = 16, VOCAB = 5003 };
    test_random r = {12};
    match *m = match_make_for(RAFFLE_BF16, VOCAB, ROWS, RAFFLE_PLAN_REPORT);
    book *b = book_make(ROWS, VOCAB);
    match_lay_out(m, TIGHT, ROWS, &r);
    const wish w = {RAFFLE_RAW, 5, 2, (1u << PAGES) - 1, VOCAB, 0, 100};
    book_open(b, m, &w, &r);
    m->cpu_report = &b->cpu;
    m->gpu_report = &b->gpu;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamSynchronize(m->stream));
    CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal));
    MUST(match_call(m, 0, ROWS, m->stream, &must_error));
    CUDA(cudaStreamEndCapture(m->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < (gpu_quick() ? 3 : 20) && !match_hopeless(); ++i) {
        match_fill_any(m, &r);
        match_pick(m, &r);
        match_send_rows(m);
        book_open(b, m, &w, &r);
        match_send_controls(m);
        CUDA(cudaGraphLaunch(exec, m->stream));
        match_fetch(m);
        book_fetch(b, m);
        match_run_cpu(m);
        match_check(m, 0, ROWS, "graph");
        book_check(b, m, &w, "graph");
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    book_free(b);
    match_free(m);
}

/* ---- what the host refuses ---- */

TEST(refusals) {
    NEED_GPU();
    test_random r = {13};
    match *m = match_make(RAFFLE_F32, 300, 4);
    match_lay_out(m, TIGHT, 4, &r);
    raffle_report report = raffle_report_init();
    raffle_error error = raffle_error_init();
    m->gpu_report = &report;
    CHECK_STATUS(match_call(m, 0, 4, m->stream, &error), RAFFLE_E_ARGUMENT); /* the plan lacks RAFFLE_PLAN_REPORT */
    match_free(m);
    m = match_make_for(RAFFLE_F32, 300, 4, RAFFLE_PLAN_REPORT);
    match_lay_out(m, TIGHT, 4, &r);
    match_fill_any(m, &r);
    match_send_rows(m);
    match_pick(m, &r);
    match_send_controls(m);
    m->gpu_report = &report;
    report.top_count = RAFFLE_TOP_MAX + 1;
    CHECK_STATUS(match_call(m, 0, 4, m->stream, &error), RAFFLE_E_ARGUMENT);
    report.top_count = 0;
    CHECK_STATUS(match_call(m, 0, 4, m->stream, &error), RAFFLE_OK);
    CUDA(cudaStreamSynchronize(m->stream));
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan = NULL;
    desc.backend = RAFFLE_CUDA;
    desc.vocab = 300;
    desc.rows_max = 4;
    desc.flags = RAFFLE_PLAN_REPORT;
    desc.input = RAFFLE_PROBS;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), RAFFLE_E_UNSUPPORTED);
    match_free(m);
}

TEST(enough_rows) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: fewer rows");
    CHECK(rows_checked >= 10000, "only %ld rows were compared with the CPU", rows_checked);
    CHECK(exact_checked >= 5000, "only %ld logarithms were compared with long double", exact_checked);
}

int main(void) {
    gpu_start("cuda_report", 150);
    RUN(vocab_1);
    RUN(vocab_2);
    RUN(vocab_31);
    RUN(vocab_33);
    RUN(vocab_255);
    RUN(vocab_256);
    RUN(vocab_257);
    RUN(vocab_513);
    RUN(vocab_999);
    RUN(vocab_4097);
    RUN(grid);
    RUN(bad_rows);
    RUN(graph);
    RUN(refusals);
    RUN(vocab_32000);
    RUN(vocab_128256);
    RUN(vocab_151936);
    RUN(vocab_262144);
    RUN(vocab_262208);
    RUN(vocab_300001);
    RUN(enough_rows);
    printf("%ld rows compared with the CPU, %ld logarithms with long double\n", rows_checked, exact_checked);
    return test_report("cuda_report");
}
