/* requests_write.h - raffle_softmax and raffle_mask with requests: values, kept sets, counts and flags are the CPU's, bit for bit.
 * Part of requests.c. */

/* What a call writes, one part behind the other in one piece of memory, which is poisoned before. */
typedef struct written {
    int form, dtype, sets; /* form: 0 probabilities, 1 logarithms, 2 logits */
    int64_t rows, stride, words, room;
    size_t kept_at, list_at, count_at, flags_at, bytes;
} written;

static written written_make(const batch *b, test_random *r) {
    written w = {.form = (int)random_below(r, 3), .dtype = (int)random_below(r, 3), .sets = random_below(r, 3) != 0};
    w.rows = b->rows;
    w.stride = b->vocab + (random_below(r, 2) ? random_below(r, 9) : -b->vocab & 7);
    w.words = b->words + random_below(r, 2);
    w.room = 1 + random_below(r, b->vocab + 2);
    w.kept_at = ((size_t)(w.rows * w.stride) * 4 + 64 + 15) / 16 * 16;
    w.list_at = w.kept_at + (size_t)(w.rows * w.words) * 4 + 16;
    w.count_at = w.list_at + (size_t)(w.rows * w.room) * 4 + 16;
    w.flags_at = w.count_at + (size_t)w.rows * 4 + 16;
    w.bytes = w.flags_at + (size_t)w.rows * 4 + 16;
    return w;
}

/* Where it goes, with its first byte at `at`. `data`: elsewhere than there, or NULL. */
static raffle_output written_output(const written *w, char *at, void *data) {
    raffle_output o = raffle_output_init();
    o.flags = w->form == 1 ? RAFFLE_LOG : 0;
    o.dtype = w->dtype;
    o.data = data ? data : at;
    o.row_stride = w->stride;
    o.row_flags = (uint32_t *)(at + w->flags_at);
    if (!w->sets) return o;
    o.kept = (uint32_t *)(at + w->kept_at);
    o.kept_stride = w->words;
    o.kept_list = (int32_t *)(at + w->list_at);
    o.kept_list_stride = w->room;
    o.kept_count = (int32_t *)(at + w->count_at);
    return o;
}

static raffle_status written_call(const written *w, const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                  const raffle_output *output, const raffle_launch *launch, raffle_error *error) {
    return (w->form == 2 ? raffle_mask : raffle_softmax)(plan, logits, params, output, launch, error);
}

static void written_cpu(const batch *b, const written *w, const raffle_logits *logits, const raffle_params *params,
                        const raffle_output *output) {
    runner own = runner_make_for(b->dtype, b->vocab, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA, params->state ? params->state->history_max : 0);
    MUST(written_call(w, own.plan, logits, params, output, &own.launch, &must_error));
    runner_free(own);
}

static void written_gpu(const runner_gpu *own, const written *w, const raffle_logits *logits, const raffle_params *params, char *at,
                        void *data) {
    const raffle_output output = written_output(w, at, data);
    raffle_launch launch = raffle_launch_init();
    launch.workspace = own->space;
    launch.workspace_bytes = own->bytes;
    MUST(written_call(w, own->plan, logits, params, &output, &launch, &must_error));
    CUDA(cudaDeviceSynchronize());
}

/* Compares row i, and tells what differs. */
static void written_compare(const batch *b, const written *w, const char *wanted, const char *got, int64_t i, const int32_t *index) {
    const size_t bytes = (size_t)element_bytes(w->dtype), row = (size_t)(i * w->stride) * bytes;
    int64_t token = 0;
    const int values = memcmp(wanted + row, got + row, (size_t)w->stride * bytes) != 0;
    const int kept = memcmp(wanted + w->kept_at + i * w->words * 4, got + w->kept_at + i * w->words * 4, (size_t)w->words * 4) != 0;
    const int list = memcmp(wanted + w->list_at + i * w->room * 4, got + w->list_at + i * w->room * 4, (size_t)w->room * 4) != 0;
    const int count = memcmp(wanted + w->count_at + i * 4, got + w->count_at + i * 4, 4) != 0;
    const int flags = memcmp(wanted + w->flags_at + i * 4, got + w->flags_at + i * 4, 4) != 0;
    if (!test_note(!values && !kept && !list && !count && !flags)) return;
    while (token < b->vocab && !memcmp(wanted + row + (size_t)token * bytes, got + row + (size_t)token * bytes, bytes)) ++token;
    printf("%s: form %d to %s%s:%s%s%s%s%s differ; token %lld: %a, CPU %a; flags %u, CPU %u\n", test_state.name, w->form,
           dtype_names[w->dtype], index ? " by index" : "", values ? " values" : "", kept ? " mask" : "", list ? " list" : "", count ? " count" : "",
           flags ? " flags" : "", (long long)token, token < b->vocab ? (double)oracle_load(got + row, w->dtype, token) : 0.0,
           token < b->vocab ? (double)oracle_load(wanted + row, w->dtype, token) : 0.0, *(const uint32_t *)(got + w->flags_at + i * 4),
           *(const uint32_t *)(wanted + w->flags_at + i * 4));
    batch_print(b, i);
}

/* Any form to any type, of rows in their order or by index; with seeds or without. */
static void write_check(const sent *s, const batch *b, const runner_gpu *own, int seedless, test_random *r) {
    const written w = written_make(b, r);
    char *wanted = (char *)host_alloc(w.bytes), *got = (char *)host_alloc(w.bytes), *device = (char *)gpu_alloc(w.bytes);
    int32_t index[BATCH_ROWS_MAX], *device_index = (int32_t *)gpu_alloc(sizeof index);
    const int indexed = random_below(r, 3) == 0, bare = random_below(r, 8) == 0;
    raffle_logits here = batch_logits(b), there = s->logits;
    raffle_params params = batch_params(b), device_params = s->params;
    for (int64_t i = 0; i < b->rows; ++i) index[i] = (int32_t)random_below(r, b->rows);
    CUDA(cudaMemcpy(device_index, index, sizeof index, cudaMemcpyHostToDevice));
    if (indexed) here.row_index = index, there.row_index = device_index;
    if (bare) params.extra = device_params.extra = NULL; /* though histories are given */
    if (seedless) params.seed = params.position = device_params.seed = device_params.position = NULL;
    memset(wanted, POISON, w.bytes);
    gpu_fill(device, POISON, w.bytes);
    const raffle_output output = written_output(&w, wanted, NULL);
    written_cpu(b, &w, &here, &params, &output);
    written_gpu(own, &w, &there, &device_params, device, NULL);
    CUDA(cudaMemcpy(got, device, w.bytes, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < b->rows; ++i) written_compare(b, &w, wanted, got, i, indexed ? index : NULL);
    CHECK(!memcmp(wanted, got, w.bytes), "something was written outside of the rows");
    free(wanted);
    free(got);
    CUDA(cudaFree(device));
    CUDA(cudaFree(device_index));
}

/* Where the logits were. */
static void in_place_check(const sent *s, const batch *b, const runner_gpu *own, int64_t offset, test_random *r) {
    written w = written_make(b, r);
    const size_t bytes = batch_bytes(b, offset);
    w.dtype = b->dtype == RAFFLE_F32 ? RAFFLE_F32 : RAFFLE_F16 + (int)random_below(r, 2); /* types of as many bytes */
    w.stride = b->stride;
    char *wanted = (char *)host_alloc(bytes), *got = (char *)host_alloc(bytes), *device = (char *)gpu_alloc(bytes);
    char *rest = (char *)host_alloc(w.bytes), *device_rest = (char *)gpu_alloc(w.bytes);
    memcpy(wanted, b->memory, bytes);
    CUDA(cudaMemcpy(device, b->memory, bytes, cudaMemcpyHostToDevice));
    raffle_logits here = batch_logits(b), there = s->logits;
    const raffle_params params = batch_params(b);
    here.data = wanted + offset;
    there.data = device + offset;
    const raffle_output output = written_output(&w, rest, wanted + offset);
    written_cpu(b, &w, &here, &params, &output);
    written_gpu(own, &w, &there, &s->params, device_rest, device + offset);
    CUDA(cudaMemcpy(got, device, bytes, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < b->rows; ++i) {
        const size_t row = (size_t)(offset + i * b->stride * element_bytes(b->dtype));
        if (!test_note(!memcmp(wanted + row, got + row, (size_t)(b->stride * element_bytes(b->dtype))))) continue;
        printf("%s: form %d of %s to %s in place differs\n", test_state.name, w.form, dtype_names[b->dtype], dtype_names[w.dtype]);
        batch_print(b, i);
    }
    CHECK(!memcmp(wanted, got, bytes), "something was written outside of the rows, in place");
    free(wanted);
    free(got);
    free(rest);
    CUDA(cudaFree(device));
    CUDA(cudaFree(device_rest));
}

/* Rows of which `bad` ones are wrong: flagged and without a token; the others are what the CPU writes of each alone. */
static void write_wrong_check(const sent *s, const batch *b, const runner_gpu *own, const int *bad, test_random *r) {
    written w = written_make(b, r);
    w.sets = 1;
    char *wanted = (char *)host_alloc(w.bytes), *got = (char *)host_alloc(w.bytes), *device = (char *)gpu_alloc(w.bytes);
    memset(wanted, POISON, w.bytes);
    gpu_fill(device, POISON, w.bytes);
    written_gpu(own, &w, &s->logits, &s->params, device, NULL);
    CUDA(cudaMemcpy(got, device, w.bytes, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < b->rows; ++i) {
        const int32_t slot = (int32_t)i;
        raffle_logits logits = batch_logits(b);
        raffle_params params = batch_params(b);
        raffle_output o = written_output(&w, wanted, NULL);
        o.data = wanted + i * w.stride * element_bytes(w.dtype);
        o.kept += i * w.words, o.kept_list += i * w.room, o.kept_count += i, o.row_flags += i;
        params.slot = &slot;
        params.allow = b->allow ? b->allow + i * b->words : NULL;
        logits.data = batch_row(b, i);
        logits.rows = 1;
        if (!bad[i]) {
            written_cpu(b, &w, &logits, &params, &o);
        } else {
            for (int64_t id = 0; id < b->vocab; ++id) vector_store(o.data, w.dtype, id, w.form ? 0xff800000u : 0u);
            memset(o.kept, 0, (size_t)b->words * 4);
            *o.kept_count = 0;
            *o.row_flags = RAFFLE_ROW_ARGUMENT;
        }
        written_compare(b, &w, wanted, got, i, NULL);
    }
    CHECK(!memcmp(wanted, got, w.bytes), "something was written outside of the rows");
    free(wanted);
    free(got);
    CUDA(cudaFree(device));
}

/* The flags of rows that are written are those of rows that are drawn. */
static void write_flags_check(const sent *s, const batch *b, const runner_gpu *own) {
    const written w = {.rows = b->rows};
    uint32_t got[BATCH_ROWS_MAX], *device = (uint32_t *)gpu_alloc(sizeof got);
    raffle_output output = raffle_output_init();
    output.row_flags = device;
    raffle_launch launch = raffle_launch_init();
    launch.workspace = own->space;
    launch.workspace_bytes = own->bytes;
    MUST(written_call(&w, own->plan, &s->logits, &s->params, &output, &launch, &must_error));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(got, device, (size_t)b->rows * 4, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < b->rows; ++i) {
        if (!test_note(got[i] == b->wanted[i].row_flags)) continue;
        printf("%s: flags %u of a row that is written, %u drawn\n", test_state.name, got[i], b->wanted[i].row_flags);
        batch_print(b, i);
    }
    CUDA(cudaFree(device));
}
