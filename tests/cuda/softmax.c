/* softmax.c - raffle_softmax and raffle_mask: the GPU writes the CPU's bits, of values, kept sets, counts and flags, in
 * every form, between all types, in place and with any stride. RAFFLE_TEST_QUICK: fewer rows of small vocabularies. */
#include "match.h"

static long rows_checked;

/* What a call writes, on both sides; everything is poisoned before it. */
typedef struct written {
    int dtype, form; /* form: 0 probabilities, 1 logarithms, 2 logits */
    int64_t stride, words, room;
    size_t data_bytes, kept_bytes, list_bytes;
    char *data[3]; /* wanted, got, device */
    uint32_t *kept[3], *row_flags[3];
    int32_t *list[3], *count[3];
} written;

static void *a_block(int side, size_t bytes) {
    void *p = side == 2 ? gpu_alloc(bytes) : host_alloc(bytes);
    if (side == 2) gpu_fill(p, POISON, bytes);
    else memset(p, POISON, bytes);
    return p;
}

static written written_make(const match *m, int dtype, int form, int64_t padding, int64_t room) {
    written w = {.dtype = dtype, .form = form, .stride = m->vocab + padding, .words = (m->vocab + 31) / 32 + padding % 2, .room = room};
    w.data_bytes = (size_t)(m->rows * w.stride + 64) * (size_t)element_bytes(dtype);
    w.kept_bytes = (size_t)(m->rows * w.words + 16) * 4;
    w.list_bytes = (size_t)(m->rows * room + 16) * 4;
    for (int side = 0; side < 3; ++side) {
        w.data[side] = (char *)a_block(side, w.data_bytes);
        w.kept[side] = (uint32_t *)a_block(side, w.kept_bytes);
        w.list[side] = (int32_t *)a_block(side, w.list_bytes);
        w.count[side] = (int32_t *)a_block(side, (size_t)(m->rows + 16) * 4);
        w.row_flags[side] = (uint32_t *)a_block(side, (size_t)(m->rows + 16) * 4);
    }
    return w;
}

static void written_free(written *w) {
    for (int side = 0; side < 3; ++side) {
        void *all[5] = {w->data[side], w->kept[side], w->list[side], w->count[side], w->row_flags[side]};
        for (int i = 0; i < 5; ++i) {
            if (side == 2) CUDA(cudaFree(all[i]));
            else free(all[i]);
        }
    }
}

static raffle_output written_output(const written *w, int side, int sets) {
    raffle_output o = raffle_output_init();
    o.dtype = w->dtype;
    o.flags = w->form == 1 ? RAFFLE_LOG : 0;
    o.data = w->data[side];
    o.row_stride = w->stride;
    o.row_flags = w->row_flags[side];
    if (!sets) return o;
    o.kept = w->kept[side];
    o.kept_stride = w->words;
    o.kept_list = w->list[side];
    o.kept_list_stride = w->room;
    o.kept_count = w->count[side];
    return o;
}

typedef struct cpu_job {
    match *m;
    const written *w;
    raffle_output output;
    const int32_t *row_index;
    int64_t rows;
} cpu_job;

static void cpu_part(void *given, int member, int members) {
    const cpu_job *j = (const cpu_job *)given;
    match *m = j->m;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = m->cpu_space[member];
    launch.workspace_bytes = raffle_plan_workspace(m->cpu);
    launch.part = member;
    launch.parts = members;
    raffle_params params = match_params(m, m->control, m->allow);
    raffle_logits logits = raffle_logits_init();
    logits.data = m->host + m->first * element_bytes(m->dtype);
    logits.rows = j->rows;
    logits.row_stride = m->stride;
    logits.row_index = j->row_index;
    logits.data_rows = j->row_index ? m->rows : 0;
    raffle_error error = raffle_error_init();
    if ((j->w->form == 2 ? raffle_mask : raffle_softmax)(m->cpu, &logits, &params, &j->output, &launch, &error)) {
        printf("the CPU says: %s\n", error.text);
        abort();
    }
}

static raffle_status gpu_call(const match *m, const written *w, const raffle_output *output, const int32_t *row_index,
                              raffle_error *error) {
    raffle_params params = match_params(m, m->device_control, m->device_allow);
    raffle_logits logits = raffle_logits_init();
    logits.data = m->device + m->first * element_bytes(m->dtype);
    logits.rows = m->rows;
    logits.row_stride = m->stride;
    logits.row_index = row_index;
    logits.data_rows = row_index ? m->rows : 0;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = m->space;
    launch.workspace_bytes = m->space_bytes;
    launch.stream = m->stream;
    params.seed = params.position = NULL;
    return (w->form == 2 ? raffle_mask : raffle_softmax)(m->gpu, &logits, &params, output, &launch, error);
}

static void fetch(const match *m, void *to, const void *from, size_t bytes) {
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, m->stream));
}

static void compare(const match *m, written *w, const char *how) {
    fetch(m, w->data[1], w->data[2], w->data_bytes);
    fetch(m, w->kept[1], w->kept[2], w->kept_bytes);
    fetch(m, w->list[1], w->list[2], w->list_bytes);
    fetch(m, w->count[1], w->count[2], (size_t)(m->rows + 16) * 4);
    fetch(m, w->row_flags[1], w->row_flags[2], (size_t)(m->rows + 16) * 4);
    CUDA(cudaStreamSynchronize(m->stream));
    const size_t bytes = (size_t)element_bytes(w->dtype);
    for (int64_t row = 0; row < m->rows; ++row) {
        const size_t at = (size_t)(row * w->stride) * bytes;
        int values = memcmp(w->data[0] + at, w->data[1] + at, (size_t)w->stride * bytes) != 0;
        int kept = memcmp(w->kept[0] + row * w->words, w->kept[1] + row * w->words, (size_t)w->words * 4) != 0;
        int list = memcmp(w->list[0] + row * w->room, w->list[1] + row * w->room, (size_t)w->room * 4) != 0;
        int count = w->count[0][row] != w->count[1][row], flags = w->row_flags[0][row] != w->row_flags[1][row];
        if (!test_note(!values && !kept && !list && !count && !flags)) continue;
        printf("%s: %s, form %d to %s:%s%s%s%s%s differ\n", test_state.name, how, w->form, dtype_names[w->dtype],
               values ? " values" : "", kept ? " mask" : "", list ? " list" : "", count ? " count" : "", flags ? " flags" : "");
        for (int64_t i = 0, shown = 0; i < w->stride && shown < 3; ++i) {
            if (!memcmp(w->data[0] + at + (size_t)i * bytes, w->data[1] + at + (size_t)i * bytes, bytes)) continue;
            printf("    token %lld: CPU %a GPU %a\n", (long long)i, (double)oracle_load(w->data[0] + at, w->dtype, i),
                   (double)oracle_load(w->data[1] + at, w->dtype, i));
            ++shown;
        }
        match_print(m, row);
    }
    CHECK(!memcmp(w->data[0], w->data[1], w->data_bytes) && !memcmp(w->kept[0], w->kept[1], w->kept_bytes) &&
              !memcmp(w->list[0], w->list[1], w->list_bytes),
          "%s wrote outside its rows", how);
}

/* One call on each side, and the comparison. */
static void both_write(match *m, written *w, int sets, const char *how) {
    cpu_job job = {m, w, written_output(w, 0, sets), NULL, m->rows};
    crew_run(cpu_part, &job);
    raffle_output output = written_output(w, 2, sets);
    MUST(gpu_call(m, w, &output, NULL, &must_error));
    compare(m, w, how);
    rows_checked += m->rows;
}

/* One batch with fresh parameters, in one form. */
static void round_run(match *m, test_random *r, int filters, int sets, const char *how) {
    m->flags = pick_flags(r);
    m->has = (m->input == RAFFLE_PROBS ? 0 : HAS_TEMPERATURE) | HAS_FLAGS | (filters ? HAS_TOP_P | HAS_MIN_P | HAS_TOP_K : 0);
    m->slots = m->rows;
    if (random_below(r, 3) == 0) {
        m->has |= HAS_SLOT;
        m->slots = 1 + random_below(r, 2 * m->rows);
    }
    if (random_below(r, 4) == 0) m->has |= HAS_ALLOW;
    match_pick(m, r);
    if (m->has & HAS_ALLOW) match_mask(m);
    match_send_controls(m);
    written w = written_make(m, (int)random_below(r, 3), (int)random_below(r, 3), random_below(r, 4) ? 8 * random_below(r, 2) : random_below(r, 9),
                             1 + random_below(r, m->vocab + 2));
    both_write(m, &w, sets, how);
    written_free(&w);
}

static void equal_vocab(int64_t vocab, int64_t rows, int64_t rounds, int input) {
    if (gpu_small_only() && vocab > 5000) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    if (gpu_quick()) rows = vocab > 500000 ? 1 : vocab > 5000 ? 3 : rows < 16 ? rows : 16, rounds = 2;
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        test_random r = {(uint64_t)(vocab * 3 + dtype)};
        match *m = match_make_of(dtype, vocab, rows, 0, input);
        for (int64_t n = 0; n < rounds && !match_hopeless(); ++n) {
            int odd = n % 3 == 2;
            match_layout(m, n % 2 ? rows : 1 + random_below(&r, rows), odd ? vocab + 1 + random_below(&r, 9) : (vocab + 7) / 8 * 8,
                         odd ? random_below(&r, 8) : 0, n % 5 == 4);
            if (input == RAFFLE_PROBS) match_fill_weights(m, &r);
            else match_fill_any(m, &r);
            match_send_rows(m);
            round_run(m, &r, 0, 0, "softmax alone");
            round_run(m, &r, 0, 1, "softmax with sets");
            round_run(m, &r, 1, n % 2 == 0, "filters");
        }
        match_check_space(m, "softmax");
        match_free(m);
    }
}

#define VOCAB(n, rows, rounds)                                                                                         \
    TEST(vocab_##n) {                                                                                                  \
        NEED_GPU();                                                                                                    \
        equal_vocab(n, rows, rounds, RAFFLE_LOGITS);                                                                   \
    }
VOCAB(1, 64, 6)
VOCAB(2, 64, 6)
VOCAB(33, 64, 6)
VOCAB(256, 64, 8)
VOCAB(257, 64, 8)
VOCAB(999, 256, 8)
VOCAB(4097, 128, 8)
VOCAB(32000, 48, 10)
VOCAB(128256, 16, 8)
VOCAB(262144, 8, 6)
VOCAB(2097152, 2, 3)

/* The same of rows that are probabilities. */
#define WEIGHTS(n, rows, rounds)                                                                                       \
    TEST(weights_##n) {                                                                                                \
        NEED_GPU();                                                                                                    \
        equal_vocab(n, rows, rounds, RAFFLE_PROBS);                                                                    \
    }
WEIGHTS(1, 64, 6)
WEIGHTS(257, 64, 8)
WEIGHTS(4097, 128, 12)
WEIGHTS(32000, 48, 10)

/* Every number of rows has its own way of being spread over the GPU. */
TEST(many_shapes) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    const int64_t rows[] = {1, 2, 3, 8, 16, 33, 64, 128, 160, 300, 512}, vocab = 32000;
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; dtype += 2) {
        test_random r = {(uint64_t)dtype};
        match *m = match_make(dtype, vocab, 512);
        for (int i = 0; i < 11 && !match_hopeless(); ++i) {
            match_layout(m, rows[i], vocab, 0, 0);
            match_fill_any(m, &r);
            match_send_rows(m);
            round_run(m, &r, 0, 0, "softmax alone");
        }
        match_free(m);
    }
}

/* In place: the same bytes, where the logits were. */
TEST(in_place) {
    NEED_GPU();
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        test_random r = {(uint64_t)dtype + 5};
        const int64_t vocab = gpu_quick() ? 999 : 20000, rows = gpu_quick() ? 8 : 64;
        match *m = match_make(dtype, vocab, rows);
        for (int n = 0; n < 9; ++n) {
            match_layout(m, rows, n % 3 == 2 ? vocab + 3 : (vocab + 7) / 8 * 8, 0, 0);
            match_fill_any(m, &r);
            match_send_rows(m);
            m->has = HAS_TEMPERATURE | HAS_FLAGS | (n % 2 ? HAS_TOP_K | HAS_TOP_P : 0);
            m->flags = 0;
            match_pick(m, &r);
            match_send_controls(m);
            written w = written_make(m, dtype, n % 3, 0, 1);
            w.stride = m->stride;
            raffle_output cpu = written_output(&w, 0, 0), gpu = written_output(&w, 2, 0);
            cpu.data = m->host;
            gpu.data = m->device;
            MUST(gpu_call(m, &w, &gpu, NULL, &must_error));
            char *got = (char *)host_alloc(m->bytes);
            fetch(m, got, m->device, m->bytes);
            CUDA(cudaStreamSynchronize(m->stream));
            cpu_job job = {m, &w, cpu, NULL, m->rows};
            crew_run(cpu_part, &job);
            CHECK(!memcmp(got, m->host, m->bytes), "form %d of %s in place differs", n % 3, dtype_names[dtype]);
            rows_checked += m->rows;
            free(got);
            w.stride = m->vocab; /* nothing else changes */
            written_free(&w);
        }
        match_free(m);
    }
}

/* Rows by index, and rows whose parameters are out of range: flagged, and zero. `more`: what else the call has. */
static void index_and_bad(uint32_t more) {
    enum { ROWS = 24 };
    const int64_t vocab = 3000;
    test_random r = {8};
    match *m = match_make(RAFFLE_BF16, vocab, ROWS);
    match_layout(m, ROWS, vocab, 0, 0);
    match_fill_any(m, &r);
    match_send_rows(m);
    m->has = HAS_TEMPERATURE | HAS_FLAGS | HAS_SLOT | more;
    match_pick(m, &r);
    if (more & HAS_ALLOW) match_mask(m);
    int32_t index[ROWS], *device_index = (int32_t *)gpu_alloc(sizeof index);
    for (int i = 0; i < ROWS; ++i) index[i] = (int32_t)random_below(&r, ROWS), m->control->slot[i] = i;
    CUDA(cudaMemcpy(device_index, index, sizeof index, cudaMemcpyHostToDevice));
    match_send_controls(m);
    written w = written_make(m, RAFFLE_F32, 0, 0, 1);
    cpu_job job = {m, &w, written_output(&w, 0, 1), index, ROWS};
    crew_run(cpu_part, &job);
    raffle_output output = written_output(&w, 2, 1);
    MUST(gpu_call(m, &w, &output, device_index, &must_error));
    compare(m, &w, "by index");
    rows_checked += ROWS;
    /* rows 3, 5 and 7 are wrong, and 9 and 11 if there are filters; the others stay what they were */
    m->control->temperature[3] = -1.0f;
    m->control->slot[5] = ROWS;
    index[7] = -1;
    m->control->top_p[9] = m->control->min_p[11] = NAN;
    CUDA(cudaMemcpy(device_index, index, sizeof index, cudaMemcpyHostToDevice));
    match_send_controls(m);
    for (int i = 3; i <= 11; i += 2) {
        if ((i == 9 && !(more & HAS_TOP_P)) || (i == 11 && !(more & HAS_MIN_P))) continue;
        memset(w.data[0] + i * w.stride * 4, 0, (size_t)vocab * 4);
        memset(w.kept[0] + i * w.words, 0, (size_t)((vocab + 31) / 32) * 4);
        w.row_flags[0][i] = RAFFLE_ROW_ARGUMENT;
        w.count[0][i] = 0;
        memset(w.list[0] + i * w.room, POISON, (size_t)w.room * 4);
    }
    gpu_fill(w.list[2], POISON, w.list_bytes);
    MUST(gpu_call(m, &w, &output, device_index, &must_error));
    m->control->slot[5] = 5; /* match_print looks there */
    compare(m, &w, "out of range");
    written_free(&w);
    CUDA(cudaFree(device_index));
    match_free(m);
}
TEST(index_and_bad_rows) {
    NEED_GPU();
    index_and_bad(0);
    index_and_bad(HAS_TOP_K | HAS_TOP_P);
    index_and_bad(HAS_TOP_K | HAS_TOP_P | HAS_MIN_P | HAS_ALLOW);
}

/* Weights up to 2^124, whose units are so large that groups behind the row's end seem near: nothing may be written there. */
TEST(large_weights) {
    NEED_GPU();
    static const int64_t vocabs[] = {256, 1280, 4104, 12800};
    static const float sizes[] = {1.0f, 1e19f, 1e20f, 1e30f, 0x1p123f};
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; ++v)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !match_hopeless(); ++i) {
            match *m = match_probs(RAFFLE_F32, vocabs[v], 3);
            match_layout(m, 3, vocabs[v], 0, 0);
            for (int64_t row = 0; row < m->rows; ++row) {
                m->kind[row] = "large weights";
                for (int64_t n = 0; n < m->vocab; ++n)
                    vector_store(match_row(m, row), RAFFLE_F32, n, float_bits(sizes[i] * (1.0f + (float)((n + row) % 7) / 8.0f)));
            }
            match_send_rows(m);
            m->has = HAS_FLAGS;
            match_send_controls(m);
            written w = written_make(m, v % 2 ? RAFFLE_BF16 : RAFFLE_F32, 0, 0, 1);
            both_write(m, &w, 0, "large weights");
            written_free(&w);
            match_free(m);
        }
}

/* A captured call serves later contents. */
TEST(graph) {
    NEED_GPU();
    const int64_t vocab = 5000, rows = 20;
    test_random r = {9};
    match *m = match_make(RAFFLE_F32, vocab, rows);
    match_layout(m, rows, vocab, 0, 0);
    for (int filters = 0; filters < 2; ++filters) {
        m->has = HAS_TEMPERATURE | HAS_FLAGS | (filters ? HAS_TOP_K | HAS_TOP_P : 0);
        m->flags = 0;
        written w = written_make(m, RAFFLE_F32, 0, 0, 1);
        raffle_output output = written_output(&w, 2, 0);
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        match_fill_any(m, &r);
        CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal));
        MUST(gpu_call(m, &w, &output, NULL, &must_error));
        CUDA(cudaStreamEndCapture(m->stream, &graph));
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        for (int n = 0; n < 20 && !match_hopeless(); ++n) {
            match_fill_any(m, &r);
            match_send_rows(m);
            match_pick(m, &r);
            match_send_controls(m);
            CUDA(cudaGraphLaunch(exec, m->stream));
            cpu_job job = {m, &w, written_output(&w, 0, 0), NULL, rows};
            crew_run(cpu_part, &job);
            compare(m, &w, "graph");
            rows_checked += rows;
        }
        CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
        written_free(&w);
    }
    match_free(m);
}

int main(void) {
    gpu_start("cuda_softmax", 150);
    RUN(vocab_1);
    RUN(vocab_2);
    RUN(vocab_33);
    RUN(vocab_256);
    RUN(vocab_257);
    RUN(vocab_999);
    RUN(vocab_4097);
    RUN(vocab_32000);
    RUN(vocab_128256);
    RUN(vocab_262144);
    RUN(vocab_2097152);
    RUN(weights_1);
    RUN(weights_257);
    RUN(weights_4097);
    RUN(weights_32000);
    RUN(many_shapes);
    RUN(in_place);
    RUN(index_and_bad_rows);
    RUN(large_weights);
    RUN(graph);
    printf("%ld rows compared with the CPU\n", rows_checked);
    return test_report("cuda_softmax");
}
