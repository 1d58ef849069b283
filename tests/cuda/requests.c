/* requests.c - raffle_params.extra on the GPU: random mixtures of everything a request can ask for against the oracle and
 * the CPU, bit for bit, drawn (also by index, with a report) and written; the frozen requests; and records that are wrong, which
 * host and kernel must refuse alike. */
#include "gpu.h"

#include <math.h>
#include <string.h>

#include "../common/mixture.h"
#include "../vectors/request_file.h"

enum { OUT_GUARD = 64, SPACE_GUARD = 4096, POISON = 0x5a, STOP_AFTER = 20 };

static long rows_checked, mixtures_checked;

static int hopeless(void) { return test_state.failures > STOP_AFTER; }

/* ---- all that a call reads, in one piece of memory, so that one copy brings it over and one shows that nothing changed ---- */

typedef struct image {
    char *host, *device;
    size_t used, room;
} image;

static image image_make(size_t room) {
    image made = {(char *)host_alloc(room), (char *)gpu_alloc(room), 0, room};
    return made;
}

static void image_free(image *m) {
    free(m->host);
    CUDA(cudaFree(m->device));
}

/* Copies `bytes` bytes in, `offset` behind an address aligned to 256. Returns where they will be on the GPU. */
static void *image_put(image *m, const void *data, size_t bytes, size_t offset) {
    size_t at = (m->used + 255) / 256 * 256 + offset;
    if (!data) return NULL;
    if (at + bytes > m->room) abort();
    memset(m->host + m->used, POISON, at - m->used);
    memcpy(m->host + at, data, bytes);
    m->used = at + bytes;
    return m->device + at;
}

static void image_send(image *m) { CUDA(cudaMemcpy(m->device, m->host, m->used, cudaMemcpyHostToDevice)); }

static void image_check(const image *m, const char *how) {
    char *back = (char *)host_alloc(m->used);
    CUDA(cudaMemcpy(back, m->device, m->used, cudaMemcpyDeviceToHost));
    CHECK(!memcmp(back, m->host, m->used), "%s: the call changed what it was given", how);
    free(back);
}

/* A record whose lists are on the GPU. */
static raffle_extra image_extra(image *m, const raffle_extra *from) {
    raffle_extra e = *from;
    e.bias_id = (const int32_t *)image_put(m, e.bias_id, (size_t)e.bias_count * 4, 0);
    e.bias = (const float *)image_put(m, e.bias, (size_t)e.bias_count * 4, 0);
    e.banned = (const int32_t *)image_put(m, e.banned, (size_t)e.banned_count * 4, 4);
    e.allowed = (const int32_t *)image_put(m, e.allowed, (size_t)e.allowed_count * 4, 8);
    e.stop = (const int32_t *)image_put(m, e.stop, (size_t)e.stop_count * 4, 0);
    e.breaker = (const int32_t *)image_put(m, e.breaker, (size_t)e.breaker_count * 4, 0);
    e.bad_words = (const int32_t *)image_put(m, e.bad_words, (size_t)e.bad_words_count * 4, 12);
    return e;
}

/* ---- a plan on the GPU --------------------------------------------------------------------------------------- */

typedef struct runner_gpu {
    raffle_plan *plan;
    char *space;
    size_t bytes;
} runner_gpu;

static runner_gpu gpu_open(int dtype, int64_t vocab, int64_t rows, int64_t history_max) {
    runner_gpu r;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.backend = RAFFLE_CUDA;
    desc.dtype = dtype;
    desc.vocab = vocab;
    desc.rows_max = rows;
    desc.flags = RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT;
    desc.history_max = history_max;
    MUST(raffle_plan_create(&desc, &r.plan, &must_error));
    r.bytes = raffle_plan_workspace(r.plan);
    r.space = (char *)gpu_alloc(r.bytes + SPACE_GUARD);
    gpu_fill(r.space, 0, r.bytes);
    gpu_fill(r.space + r.bytes, POISON, SPACE_GUARD);
    return r;
}

static void gpu_close(runner_gpu *r, const char *how) {
    unsigned char guard[SPACE_GUARD];
    size_t touched = 0;
    CUDA(cudaMemcpy(guard, r->space + r->bytes, SPACE_GUARD, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < SPACE_GUARD; ++i) touched += guard[i] != POISON;
    CHECK(!touched, "%s wrote %zu bytes behind the workspace", how, touched);
    CUDA(cudaFree(r->space));
    raffle_plan_destroy(r->plan);
}

/* Results of a call: tokens, flags, and what a report tells. */
enum { TOP = 7, GIVEN = 3, LIST = 40, KEPT_ROOM = 8 * (262144 / 32 + 1) }; /* 8 rows of the largest vocabulary */
typedef struct results {
    outputs o;
    uint32_t kept[KEPT_ROOM]; /* of all rows */
    int32_t kept_list[BATCH_ROWS_MAX * LIST + 1], kept_count[BATCH_ROWS_MAX + 1];
    int32_t rank[BATCH_ROWS_MAX + 1], top_token[BATCH_ROWS_MAX * TOP + 1], given_rank[BATCH_ROWS_MAX * GIVEN + 1];
    float chosen[BATCH_ROWS_MAX + 1], entropy[BATCH_ROWS_MAX + 1], top[BATCH_ROWS_MAX * TOP + 1], given[BATCH_ROWS_MAX * GIVEN + 1];
} results;

/* A report that goes to `r`, which may be on the GPU. */
static raffle_report report_to(results *r, const batch *b, int point, const int32_t *ids) {
    raffle_report report = raffle_report_init();
    CHECK(b->rows * (b->words + 1) <= KEPT_ROOM, "no room for kept sets");
    report.kept = r->kept;
    report.kept_stride = b->words + b->vocab % 2;
    report.kept_list = r->kept_list;
    report.kept_list_stride = 1 + b->vocab % LIST;
    report.kept_count = r->kept_count;
    report.point = point;
    report.chosen = r->chosen;
    report.rank = r->rank;
    report.entropy = r->entropy;
    report.top_count = TOP;
    report.top_token = r->top_token;
    report.top = r->top;
    report.given_count = GIVEN;
    report.given = ids;
    report.given_logprob = r->given;
    report.given_rank = r->given_rank;
    return report;
}

/* Runs a call whose inputs are on the GPU; fills `o`, which was poisoned. */
static void gpu_run(const runner_gpu *r, const raffle_logits *logits, const raffle_params *params, outputs *o) {
    static outputs *device;
    if (!device) device = (outputs *)gpu_alloc(sizeof *device);
    raffle_launch launch = raffle_launch_init();
    raffle_result result = raffle_result_init();
    outputs_poison(o);
    CUDA(cudaMemcpy(device, o, sizeof *device, cudaMemcpyHostToDevice));
    launch.workspace = r->space;
    launch.workspace_bytes = r->bytes;
    result.token = device->token;
    result.row_flags = device->row_flags;
    MUST(raffle_sample(r->plan, logits, params, &result, &launch, &must_error));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(o->token, device->token, sizeof o->token, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(o->row_flags, device->row_flags, sizeof o->row_flags, cudaMemcpyDeviceToHost));
}

/* ---- a batch on the GPU --------------------------------------------------------------------------------------- */

typedef struct sent {
    image all;
    raffle_logits logits;
    raffle_params params;
    raffle_state state;
    raffle_extra extra[BATCH_ROWS_MAX]; /* with the GPU's addresses */
} sent;

static size_t batch_bytes(const batch *b, int64_t offset) {
    return (size_t)((b->rows * b->stride + 64) * element_bytes(b->dtype) + offset);
}

static void batch_send(sent *s, const batch *b, int64_t offset) {
    const size_t rows = (size_t)b->rows, state = raffle_state_bytes(b->state);
    size_t lists = 0;
    for (int64_t i = 0; i < b->rows; ++i) {
        const raffle_extra *e = &b->extra[i];
        lists += 8 * 512 + 4 * (size_t)(2 * e->bias_count + e->banned_count + e->allowed_count + e->stop_count + e->breaker_count + e->bad_words_count);
    }
    s->all = image_make(batch_bytes(b, offset) + state + lists + rows * (size_t)b->words * 4 + rows * 512 + 16384);
    image *m = &s->all;
    s->logits = raffle_logits_init();
    s->logits.data = (char *)image_put(m, b->memory, batch_bytes(b, offset), 0) + offset;
    s->logits.rows = b->rows;
    s->logits.row_stride = b->stride;
    s->params = raffle_params_init();
    s->params.flags = b->flags;
    s->params.slots = b->rows;
    s->params.temperature = (const float *)image_put(m, b->temperature, rows * 4, 0);
    s->params.top_p = (const float *)image_put(m, b->top_p, rows * 4, 4);
    s->params.min_p = (const float *)image_put(m, b->min_p, rows * 4, 0);
    s->params.top_k = (const int32_t *)image_put(m, b->top_k, rows * 4, 0);
    s->params.seed = (const uint64_t *)image_put(m, b->seed, rows * 8, 8);
    s->params.position = (const uint64_t *)image_put(m, b->position, rows * 8, 0);
    s->params.allow = (const uint32_t *)image_put(m, b->allow, rows * (size_t)b->words * 4, 0);
    for (int64_t i = 0; i < b->rows; ++i) s->extra[i] = image_extra(m, &b->extra[i]);
    s->params.extra = (const raffle_extra *)image_put(m, s->extra, rows * sizeof *s->extra, 0);
    s->params.extra_bytes = sizeof *s->extra;
    s->state = *b->state;
    s->state.backend = RAFFLE_CUDA;
    s->state.memory = image_put(m, b->state->memory, state, 0);
    s->params.state = &s->state;
    image_send(m);
}

/* Every second or third row alone: no result may depend on the neighbours. */
static void alone_check(const sent *s, const batch *b, const runner_gpu *own, test_random *r) {
    int32_t *slot = (int32_t *)gpu_alloc(4);
    for (int64_t i = random_below(r, 3); i < b->rows; i += 2 + random_below(r, 6)) {
        static outputs o;
        const int32_t at = (int32_t)i;
        raffle_logits logits = s->logits;
        raffle_params params = s->params;
        CUDA(cudaMemcpy(slot, &at, 4, cudaMemcpyHostToDevice));
        params.slot = slot;
        params.allow = params.allow ? params.allow + i * b->words : NULL;
        logits.data = (const char *)logits.data + i * b->stride * element_bytes(b->dtype);
        logits.rows = 1;
        gpu_run(own, &logits, &params, &o);
        const oracle_answer *w = &b->wanted[i];
        if (test_note(o.token[0] == w->token && o.row_flags[0] == w->row_flags)) {
            printf("alone: token %d flags %u, oracle %d flags %u\n", o.token[0], o.row_flags[0], w->token, w->row_flags);
            batch_print(b, i);
        }
    }
    CUDA(cudaFree(slot));
}

/* `bare`: without the requests, though the histories are given. */
static void cpu_run(const batch *b, const int32_t *index, int bare, outputs *o, const raffle_report *report) {
    runner own = runner_make_for(b->dtype, b->vocab, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, b->state->history_max);
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    logits.row_index = index;
    if (bare) params.extra = NULL;
    outputs_poison(o);
    o->result.report = report;
    MUST(raffle_sample(own.plan, &logits, &params, &o->result, &own.launch, &must_error));
    runner_free(own);
}

/* The same call with a report at any point, if it is below 3, of rows in their order or by index: every bit is the CPU's. */
static void report_check(const sent *s, const batch *b, const runner_gpu *own, int point, const int32_t *index, test_random *r) {
    static results *device, got, wanted;
    static int32_t *device_ids, *device_index, ids[BATCH_ROWS_MAX * GIVEN];
    if (!device) {
        device = (results *)gpu_alloc(sizeof *device);
        device_ids = (int32_t *)gpu_alloc(sizeof ids);
        device_index = (int32_t *)gpu_alloc(BATCH_ROWS_MAX * sizeof *index);
    }
    for (int64_t i = 0; i < b->rows * GIVEN; ++i) ids[i] = (int32_t)random_below(r, b->vocab + 1);
    memset(&got, POISON, sizeof got);
    memset(&wanted, POISON, sizeof wanted);
    CUDA(cudaMemcpy(device_ids, ids, sizeof ids, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(device, &got, sizeof got, cudaMemcpyHostToDevice));
    const raffle_report there = report_to(device, b, point, device_ids), here = report_to(&wanted, b, point, ids);
    const int bare = index && random_below(r, 4) == 0;
    raffle_logits logits = s->logits;
    raffle_params params = s->params;
    if (bare) params.extra = NULL;
    if (index) {
        CUDA(cudaMemcpy(device_index, index, (size_t)b->rows * sizeof *index, cudaMemcpyHostToDevice));
        logits.row_index = device_index;
    }
    raffle_launch launch = raffle_launch_init();
    raffle_result result = raffle_result_init();
    launch.workspace = own->space;
    launch.workspace_bytes = own->bytes;
    result.token = device->o.token;
    result.row_flags = device->o.row_flags;
    result.report = point < 3 ? &there : NULL;
    MUST(raffle_sample(own->plan, &logits, &params, &result, &launch, &must_error));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(&got, device, sizeof got, cudaMemcpyDeviceToHost));
    cpu_run(b, index, bare, &wanted.o, point < 3 ? &here : NULL);
    for (int64_t i = 0; i < b->rows; ++i) {
        const int same = got.o.token[i] == wanted.o.token[i] && got.o.row_flags[i] == wanted.o.row_flags[i] &&
                         !memcmp(&got.chosen[i], &wanted.chosen[i], 4) && !memcmp(&got.entropy[i], &wanted.entropy[i], 4) &&
                         got.rank[i] == wanted.rank[i] && !memcmp(&got.top_token[i * TOP], &wanted.top_token[i * TOP], TOP * 4) &&
                         !memcmp(&got.top[i * TOP], &wanted.top[i * TOP], TOP * 4) && !memcmp(&got.given[i * GIVEN], &wanted.given[i * GIVEN], GIVEN * 4) &&
                         !memcmp(&got.given_rank[i * GIVEN], &wanted.given_rank[i * GIVEN], GIVEN * 4);
        if (!test_note(same)) continue;
        printf("report at %d%s%s: token %d chosen %a rank %d entropy %a top %d %a given %a %d, CPU %d %a %d %a %d %a %a %d\n",
               point, index ? " by index" : "", bare ? " without requests" : "", got.o.token[i], (double)got.chosen[i], got.rank[i], (double)got.entropy[i], got.top_token[i * TOP], (double)got.top[i * TOP],
               (double)got.given[i * GIVEN], got.given_rank[i * GIVEN], wanted.o.token[i], (double)wanted.chosen[i], wanted.rank[i],
               (double)wanted.entropy[i], wanted.top_token[i * TOP], (double)wanted.top[i * TOP], (double)wanted.given[i * GIVEN],
               wanted.given_rank[i * GIVEN]);
        batch_print(b, i);
    }
    for (int64_t i = 0; i < b->rows; ++i) {
        const int64_t stride = here.kept_stride, list = here.kept_list_stride;
        const int same = got.kept_count[i] == wanted.kept_count[i] &&
                         !memcmp(got.kept + i * stride, wanted.kept + i * stride, (size_t)stride * 4) &&
                         !memcmp(got.kept_list + i * list, wanted.kept_list + i * list, (size_t)list * 4);
        if (!test_note(same)) continue;
        printf("kept set at %d%s%s: %d tokens, CPU %d\n", point, index ? " by index" : "", bare ? " without requests" : "",
               got.kept_count[i], wanted.kept_count[i]);
        batch_print(b, i);
    }
    CHECK(!memcmp(got.kept, wanted.kept, sizeof got.kept) && !memcmp(got.kept_list, wanted.kept_list, sizeof got.kept_list) &&
              !memcmp(got.kept_count, wanted.kept_count, sizeof got.kept_count), "a report wrote behind the kept sets");
}

#include "requests_write.h"

/* Takes the CPU's answers for the oracle's. */
static void cpu_answers(batch *b) {
    static outputs o;
    cpu_run(b, NULL, 0, &o, NULL);
    for (int64_t i = 0; i < b->rows; ++i) b->wanted[i].token = o.token[i], b->wanted[i].row_flags = o.row_flags[i];
}

static void batch_check(const batch *b, int64_t offset, test_random *r) {
    static sent s;
    static outputs o;
    int32_t index[BATCH_ROWS_MAX];
    runner_gpu own = gpu_open(b->dtype, b->vocab, b->rows, b->state->history_max);
    batch_send(&s, b, offset);
    gpu_run(&own, &s.logits, &s.params, &o);
    outputs_check(&o, b, NULL, "GPU");
    gpu_run(&own, &s.logits, &s.params, &o);
    outputs_check(&o, b, NULL, "GPU, the same workspace again");
    alone_check(&s, b, &own, r);
    report_check(&s, b, &own, (int)random_below(r, 3), NULL, r);
    for (int64_t i = 0; i < b->rows; ++i) index[i] = (int32_t)random_below(r, b->rows);
    report_check(&s, b, &own, (int)random_below(r, 4), index, r);
    write_check(&s, b, &own, random_below(r, 2) == 0, r);
    in_place_check(&s, b, &own, offset, r);
    image_check(&s.all, "GPU");
    gpu_close(&own, "GPU");
    cpu_run(b, NULL, 0, &o, NULL);
    outputs_check(&o, b, NULL, "CPU");
    image_free(&s.all);
    rows_checked += b->rows;
    ++mixtures_checked;
}

static void check(test_random *r, uint32_t wish, int64_t vocab, int64_t rows) {
    static mixture m;
    const int dtype = (int)random_below(r, 3);
    const int64_t offset = random_below(r, 3) ? 0 : random_below(r, 16) * element_bytes(dtype);
    if (hopeless()) return;
    mixture_make(&m, r, wish, vocab, rows, dtype, offset);
    batch_check(&m.b, offset, r);
    mixture_free(&m);
}

TEST(alone) {
    NEED_GPU();
    test_random r = {201};
    for (uint32_t wish = 1; wish <= PICK_ALL; wish *= 2)
        for (int i = 0; i < test_amount(10); ++i) check(&r, wish, 1 + random_below(&r, 1500), 16);
}
TEST(small_vocab) {
    NEED_GPU();
    test_random r = {202};
    for (int i = 0; i < test_amount(300); ++i) check(&r, some_wishes(&r), 1 + random_below(&r, 64), 40);
}
TEST(middle_vocab) {
    NEED_GPU();
    test_random r = {203};
    for (int i = 0; i < test_amount(220); ++i) check(&r, some_wishes(&r), 200 + random_below(&r, 2000), 32);
}
TEST(large_vocab) {
    NEED_GPU();
    test_random r = {204};
    for (int i = 0; i < test_amount(40); ++i) check(&r, some_wishes(&r), 30000 + random_below(&r, 120000), 4);
    check(&r, some_wishes(&r), 262144, gpu_quick() ? 1 : 4);
    check(&r, some_wishes(&r), 300001, gpu_quick() ? 1 : 3); /* more groups than shared memory has room for */
}
TEST(enough) {
    NEED_GPU();
    if (test_part()) SKIP("RAFFLE_TEST_PART: other processes have the rest");
    CHECK(rows_checked >= test_amount(20000), "only %ld rows were checked", rows_checked);
    CHECK(mixtures_checked >= test_amount(200), "only %ld mixtures were checked", mixtures_checked);
}

/* ---- parts with more edited tokens than shared memory has room for ---------------------------------------------- */

/* A history of `length` tokens, some of them said often, and words that follow each other again. */
static void long_history(test_random *r, int64_t vocab, int32_t *token, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
        token[i] = (int32_t)(random_below(r, 4) ? random_below(r, vocab) : random_below(r, vocab < 50 ? vocab : 50));
        if (i < 100 || random_below(r, 40)) continue;
        for (int64_t from = random_below(r, i - 80), n = 1 + random_below(r, 70); n && i < length; --n, ++i, ++from) token[i] = token[from];
        --i;
    }
}

/* Rows of which nearly every token is edited, and some of which few are. */
static void crowded(test_random *r, int dtype, int64_t vocab, int64_t rows, int64_t length) {
    static batch b;
    static arena lists;
    raffle_state state = raffle_state_init();
    int32_t *token = (int32_t *)malloc((size_t)length * 4);
    if (hopeless()) return;
    state.slots = rows;
    state.history_max = length;
    state.vocab = vocab;
    state.memory = test_alloc(raffle_state_bytes(&state));
    CHECK_STATUS(raffle_state_clear(&state, NULL, NULL), RAFFLE_OK);
    batch_alloc(&b, rows, vocab, dtype, 8 - vocab % 8, 0);
    b.flags = 0;
    b.extra = (raffle_extra *)calloc((size_t)rows, sizeof *b.extra);
    b.state = &state;
    for (int64_t i = 0; i < rows; ++i) {
        raffle_extra *e = &b.extra[i];
        raffle_tokens t = raffle_tokens_init();
        const int32_t slot = (int32_t)i, prompt = (int32_t)(length / 3), rest = (int32_t)length - prompt;
        b.kind[i] = row_kinds[random_below(r, 8)];
        b.row_seed[i] = random_bits(r) >> 40;
        vector_row_make(b.kind[i], b.row_seed[i], vocab, dtype, b.data + i * b.stride * element_bytes(dtype));
        b.temperature[i] = i % 5 ? 0.9f : 0.0f;
        b.top_k[i] = i % 2 ? 50 : 0;
        b.top_p[i] = i % 3 ? 0.9f : 1.0f;
        b.min_p[i] = 0.0f;
        b.seed[i] = random_bits(r);
        b.position[i] = (uint64_t)i;
        long_history(r, vocab, token, length);
        t.rows = 1;
        t.slot = &slot;
        t.token = token;
        t.count = &prompt;
        t.stride = length;
        CHECK_STATUS(raffle_state_prompt(&state, &t, NULL), RAFFLE_OK);
        t.token = token + prompt;
        t.count = &rest;
        t.stride = rest;
        CHECK_STATUS(raffle_state_accept(&state, &t, NULL), RAFFLE_OK);
        e->repetition = 1.2f, e->frequency = 0.1f, e->presence = 0.3f;
        if (i % 4 == 1) e->flags = RAFFLE_REPETITION_OUTPUT, e->penalty_window = (int32_t)(length / 2);
        if (i % 4 == 2) e->dry_multiplier = 0.8f, e->no_repeat_ngram = 3;
        if (i % 4 == 3) continue; /* the history alone */
        int32_t *ids = (int32_t *)arena_take(&lists, (size_t)vocab * 4);
        float *bias = (float *)arena_take(&lists, (size_t)vocab * 4);
        for (int64_t id = 0; id < vocab; ++id) {
            if (id % 7 == 3) continue;
            ids[e->bias_count] = (int32_t)id;
            bias[e->bias_count++] = (float)(random_unit(r) * 2 - 1);
        }
        e->bias_id = ids;
        e->bias = bias;
    }
    cpu_answers(&b); /* the oracle would take minutes for lists as long as the vocabulary */
    batch_check(&b, 0, r);
    free(b.extra);
    free(state.memory);
    free(token);
    batch_free(&b);
    arena_free(&lists);
}

TEST(crowded_parts) {
    NEED_GPU();
    test_random r = {205};
    if (gpu_quick()) {
        crowded(&r, RAFFLE_BF16, 70001, 1, 900);
        return;
    }
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        crowded(&r, dtype, 262144, 8, 6000);
        crowded(&r, dtype, 50257, 40, 4000);
        crowded(&r, dtype, 300001, 4, 3000);
    }
}

/* ---- the frozen requests ------------------------------------------------------------------------------------------ */

static void vector_check(const request_vector *v, int number) {
    static sent s;
    static outputs o;
    static batch b;
    raffle_state state = raffle_state_init();
    raffle_tokens tokens = raffle_tokens_init();
    raffle_extra extra = v->extra;
    const int32_t output = v->length - v->prompt;
    state.slots = 1;
    state.history_max = 2 * REQUEST_LIST_MAX;
    state.vocab = v->vocab;
    state.memory = test_alloc(raffle_state_bytes(&state));
    tokens.rows = 1;
    tokens.stride = 2 * REQUEST_LIST_MAX;
    tokens.token = v->history;
    tokens.count = &v->prompt;
    CHECK_STATUS(raffle_state_clear(&state, NULL, NULL), RAFFLE_OK);
    CHECK_STATUS(raffle_state_prompt(&state, &tokens, NULL), RAFFLE_OK);
    tokens.token = v->history + v->prompt;
    tokens.count = &output;
    CHECK_STATUS(raffle_state_accept(&state, &tokens, NULL), RAFFLE_OK);
    batch_alloc(&b, 1, v->vocab, v->dtype, 0, 0);
    vector_row_make(v->kind, v->row_seed, v->vocab, v->dtype, b.data);
    if (v->allow_seed) {
        b.allow = (uint32_t *)malloc((size_t)b.words * 4);
        vector_allow_make(v->allow_seed, v->vocab, b.allow);
    }
    b.flags = v->flags;
    b.temperature[0] = v->temperature, b.top_p[0] = v->top_p, b.min_p[0] = v->min_p, b.top_k[0] = v->top_k;
    b.seed[0] = v->seed, b.position[0] = v->position;
    b.extra = &extra;
    b.state = &state;
    runner_gpu own = gpu_open(v->dtype, v->vocab, 1, state.history_max);
    batch_send(&s, &b, 0);
    gpu_run(&own, &s.logits, &s.params, &o);
    CHECK(o.token[0] == v->token && o.row_flags[0] == v->row_flags, "case %d (%s %llu vocab %lld): token %d flags %u, frozen %d %u",
          number, v->kind, (unsigned long long)v->row_seed, (long long)v->vocab, o.token[0], o.row_flags[0], v->token, v->row_flags);
    gpu_close(&own, "a frozen request");
    image_free(&s.all);
    free(state.memory);
    batch_free(&b);
}

TEST(frozen) {
    NEED_GPU();
    static request_vector v;
    int got, count = 0;
    FILE *in = fopen(RAFFLE_REQUESTS, "r");
    CHECK(in, "%s cannot be opened", RAFFLE_REQUESTS);
    if (!in) return;
    while ((got = request_next(in, &v)) == 1 && !hopeless()) {
        if (!gpu_quick() || count % 10 == 0) vector_check(&v, count);
        ++count;
    }
    fclose(in);
    CHECK(got == 0, "the line after case %d does not parse", count);
    CHECK(count >= 300, "only %d cases", count);
}

/* ---- what is wrong ------------------------------------------------------------------------------------------------- */

enum { WRONG_ROWS = 12, WRONG_VOCAB = 700 };

static float wrong_float(test_random *r) {
    static const float some[] = {NAN, INFINITY, -INFINITY, -1.0f, 0.5f, 1e9f, 1.1e9f, -1.1e9f, 0.0f, -0.0f, 0x1p-149f, 2.0f, -1e9f, 1.0f};
    return some[random_below(r, (int64_t)(sizeof some / sizeof *some))];
}

static int32_t wrong_count(test_random *r, int32_t now) {
    static const int32_t some[] = {-1, INT32_MIN, WRONG_VOCAB + 1, INT32_MAX, 0};
    return random_below(r, 3) ? some[random_below(r, 5)] : now;
}

/* Makes one thing of a list wrong, mostly. */
static void wrong_list(test_random *r, const int32_t **list, int32_t *count) {
    int32_t *ids = (int32_t *)*list;
    static const int32_t some[] = {-1, -2, WRONG_VOCAB, WRONG_VOCAB - 1, INT32_MAX, INT32_MIN, 0};
    if (!*count) return;
    int64_t at = random_below(r, *count);
    switch (random_below(r, 5)) {
    case 0: *list = NULL; return;
    case 1: *count = wrong_count(r, *count); return;
    case 2: ids[at] = at ? ids[at - 1] : ids[at]; return; /* twice */
    case 3: ids[at] = at ? ids[0] : ids[at]; return;      /* not ascending */
    default: ids[at] = some[random_below(r, 7)]; return;
    }
}

static void spoil(test_random *r, raffle_extra *e) {
    float *number[] = {&e->repetition, &e->frequency, &e->presence, &e->dry_multiplier, &e->dry_base, &e->top_n_sigma,
                       &e->epsilon,    &e->eta,       &e->typical_p, &e->xtc_probability, &e->xtc_threshold};
    int32_t *whole[] = {&e->penalty_window, &e->no_repeat_ngram, &e->dry_allowed, &e->dry_range, &e->min_tokens, &e->keep_least};
    switch (random_below(r, 12)) {
    case 0: case 1: *number[random_below(r, 11)] = wrong_float(r); return;
    case 2: *whole[random_below(r, 6)] = random_below(r, 2) ? -1 : random_below(r, 2) ? INT32_MIN : INT32_MAX; return;
    case 3: e->flags |= 1u << random_below(r, 32); return;
    case 4: wrong_list(r, &e->bias_id, &e->bias_count); return;
    case 5: wrong_list(r, &e->banned, &e->banned_count); return;
    case 6: wrong_list(r, &e->allowed, &e->allowed_count); return;
    case 7: wrong_list(r, &e->stop, &e->stop_count); return;
    case 8: wrong_list(r, &e->breaker, &e->breaker_count); return;
    case 9: case 10: wrong_list(r, &e->bad_words, &e->bad_words_count); return;
    default:
        if (e->bias_count) ((float *)e->bias)[random_below(r, e->bias_count)] = wrong_float(r);
        if (!random_below(r, 4)) e->bias = NULL;
    }
}

/* Whether the CPU refuses row i of the batch. */
static int cpu_refuses(const batch *b, runner own, int64_t i) {
    static outputs o;
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    const int32_t slot = (int32_t)i;
    params.slot = &slot;
    params.allow = b->allow ? b->allow + i * b->words : NULL;
    logits.data = batch_row(b, i);
    logits.rows = 1;
    outputs_poison(&o);
    return raffle_sample(own.plan, &logits, &params, &o.result, &own.launch, NULL) != RAFFLE_OK;
}

/* The lists of a record that is wrong cannot be copied by their counts: room for all of them, as long as they were. */
static void wrong_batch(test_random *r, long *refused) {
    static mixture m;
    static sent s;
    static outputs o;
    const int with_state = random_below(r, 4) != 0;
    mixture_make(&m, r, PICK_ALL, WRONG_VOCAB, WRONG_ROWS, (int)random_below(r, 3), 0);
    batch *b = &m.b;
    raffle_extra good[WRONG_ROWS];
    int bad[WRONG_ROWS], any = 0;
    for (int64_t i = 0; i < WRONG_ROWS; ++i)
        if (!with_state) { /* nothing that looks back, mostly */
            raffle_extra *e = &b->extra[i];
            e->repetition = e->frequency = e->presence = e->dry_multiplier = 0.0f;
            e->no_repeat_ngram = e->min_tokens = e->bad_words_count = 0;
            if (random_below(r, 3) == 0) e->presence = 0.5f;
        }
    memcpy(good, b->extra, sizeof good);
    batch_send(&s, b, 0); /* lists as they are: those below are changed in place, too */
    for (int64_t i = 0; i < WRONG_ROWS; ++i)
        if (random_below(r, 3)) spoil(r, &b->extra[i]);
    if (!with_state) b->state = NULL, s.params.state = NULL;
    runner cpu = runner_make_for(b->dtype, b->vocab, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA, with_state ? HISTORY_MAX : 0);
    for (int64_t i = 0; i < WRONG_ROWS; ++i) {
        bad[i] = cpu_refuses(b, cpu, i);
        any += bad[i];
    }
    /* The same on the GPU: numbers and counts of the spoilt record, its lists' contents, NULL where it has NULL. */
    const image *all = &s.all;
    for (int64_t i = 0; i < WRONG_ROWS; ++i) {
        raffle_extra e = b->extra[i];
        const raffle_extra *at = &s.extra[i];
#define LIST(list, count)                                                                                              \
    if (e.list) {                                                                                                      \
        memcpy(all->host + ((const char *)at->list - all->device), e.list, (size_t)good[i].count * 4);                 \
        e.list = at->list;                                                                                             \
    }
        LIST(bias_id, bias_count) LIST(bias, bias_count) LIST(banned, banned_count) LIST(allowed, allowed_count)
        LIST(stop, stop_count) LIST(breaker, breaker_count) LIST(bad_words, bad_words_count)
#undef LIST
        memcpy(all->host + ((const char *)(s.params.extra + i) - all->device), &e, sizeof e);
    }
    image_send(&s.all);
    runner_gpu own = gpu_open(b->dtype, b->vocab, b->rows, with_state ? HISTORY_MAX : 0);
    gpu_run(&own, &s.logits, &s.params, &o);
    for (int64_t i = 0; i < WRONG_ROWS; ++i) {
        if (!bad[i]) { /* the oracle knows it, whatever its neighbours are */
            oracle_case c = batch_case(b, i);
            b->wanted[i] = oracle_sample(&c, NULL, NULL);
        } else {
            b->wanted[i].token = RAFFLE_NO_TOKEN;
            b->wanted[i].row_flags = RAFFLE_ROW_ARGUMENT;
        }
    }
    outputs_check(&o, b, NULL, "records that are wrong");
    write_wrong_check(&s, b, &own, bad, r);
    image_check(&s.all, "records that are wrong");
    gpu_close(&own, "records that are wrong");
    *refused += any;
    runner_free(cpu);
    image_free(&s.all);
    b->state = &m.p.state;
    mixture_free(&m);
}

TEST(wrong_records) {
    NEED_GPU();
    test_random r = {206};
    long refused = 0;
    for (int i = 0; i < test_amount(400) && !hopeless(); ++i) wrong_batch(&r, &refused);
    CHECK(refused >= test_amount(1000), "only %ld rows were wrong", refused);
}

/* Histories in memory that nobody cleared: rows may draw anything that is a token, but the call comes back. */
TEST(wild_state) {
    NEED_GPU();
    test_random r = {207};
    for (int i = 0; i < test_amount(60) && !hopeless(); ++i) {
        static mixture m;
        static sent s;
        static outputs o;
        mixture_make(&m, &r, PICK_ALL, 1 + random_below(&r, 3000), 16, (int)random_below(&r, 3), 0);
        uint32_t *words = (uint32_t *)m.p.state.memory;
        const size_t count = raffle_state_bytes(&m.p.state) / 4;
        for (size_t w = 0; w < count; ++w)
            if (i % 2 || !random_below(&r, 8)) words[w] = (uint32_t)random_bits(&r) >> random_below(&r, 32);
        batch_send(&s, &m.b, 0);
        runner_gpu own = gpu_open(m.b.dtype, m.b.vocab, m.b.rows, HISTORY_MAX);
        gpu_run(&own, &s.logits, &s.params, &o);
        for (int64_t row = 0; row < m.b.rows; ++row)
            CHECK(o.token[row] >= RAFFLE_NO_TOKEN && o.token[row] < m.b.vocab, "token %d of %lld", o.token[row], (long long)m.b.vocab);
        image_check(&s.all, "a wild state");
        gpu_close(&own, "a wild state");
        image_free(&s.all);
        mixture_free(&m);
    }
}

/* A slot whose history is not what its calls asked for flags the rows that look at it, and only those. */
TEST(lost_histories) {
    NEED_GPU();
    test_random r = {208};
    for (int i = 0; i < test_amount(60) && !hopeless(); ++i) {
        static mixture m;
        static sent s;
        static outputs o;
        mixture_make(&m, &r, some_wishes(&r), 1 + random_below(&r, 900), 16, (int)random_below(&r, 3), 0);
        for (int64_t row = 0; row < m.b.rows; ++row) {
            if (random_below(&r, 2)) continue;
            history_lose(&m.p.state, row);
            if (extra_looks_back(&m.b.extra[row])) m.b.wanted[row].row_flags |= RAFFLE_ROW_STATE;
        }
        batch_send(&s, &m.b, 0);
        runner_gpu own = gpu_open(m.b.dtype, m.b.vocab, m.b.rows, HISTORY_MAX);
        gpu_run(&own, &s.logits, &s.params, &o);
        outputs_check(&o, &m.b, NULL, "lost histories");
        write_flags_check(&s, &m.b, &own);
        gpu_close(&own, "lost histories");
        image_free(&s.all);
        mixture_free(&m);
    }
}

/* A captured draw with requests serves whatever memory holds later: parameters, requests, histories, masks, logits. */
TEST(captured_draws) {
    NEED_GPU();
    enum { ROWS = 16, VOCAB = 900 };
    static mixture m;
    static sent s;
    static outputs o, *device;
    test_random r = {212};
    mixture_make(&m, &r, PICK_ALL, VOCAB, ROWS, RAFFLE_BF16, 0);
    batch *b = &m.b;
    if (!b->allow) batch_allow(b, &r);
    batch_send(&s, b, 0);
    runner_gpu own = gpu_open(b->dtype, b->vocab, b->rows, HISTORY_MAX);
    cudaStream_t stream;
    cudaGraphExec_t exec;
    raffle_launch launch = raffle_launch_init();
    raffle_result result = raffle_result_init();
    device = (outputs *)gpu_alloc(sizeof *device);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    launch.workspace = own.space;
    launch.workspace_bytes = own.bytes;
    launch.stream = stream;
    result.token = device->token;
    result.row_flags = device->row_flags;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(raffle_sample(own.plan, &s.logits, &s.params, &result, &launch, &must_error));
    const size_t launches = gpu_capture_end(stream, &exec);
    CHECK(launches == 1, "the call is %zu launches, not one", launches);
    for (int n = 0; n < (gpu_quick() ? 8 : 40) && !hopeless(); ++n) {
        batch_ask_oracle(b);
        outputs_poison(&o);
        CUDA(cudaMemcpy(device, &o, sizeof *device, cudaMemcpyHostToDevice));
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaStreamSynchronize(stream));
        CUDA(cudaMemcpy(o.token, device->token, sizeof o.token, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(o.row_flags, device->row_flags, sizeof o.row_flags, cudaMemcpyDeviceToHost));
        outputs_check(&o, b, NULL, "a replay");
        image_check(&s.all, "a replay");
        /* Everything moves on, each to where it was sent: requests by a row, histories by a token, the rest anew. */
        const raffle_extra first = b->extra[0], first_sent = s.extra[0];
        for (int i = 0; i < ROWS; ++i) {
            const int32_t slot = i, count = 1;
            int64_t prompt, length;
            raffle_state_history(b->state, i, &prompt, &length);
            raffle_tokens t = raffle_tokens_init();
            t.rows = 1, t.slot = &slot, t.token = &o.token[i], t.count = &count, t.stride = 1;
            if (o.token[i] >= 0 && length < HISTORY_MAX) MUST(raffle_state_accept(b->state, &t, &must_error));
            b->extra[i] = i + 1 < ROWS ? b->extra[i + 1] : first, s.extra[i] = i + 1 < ROWS ? s.extra[i + 1] : first_sent;
            b->temperature[i] = random_below(&r, 3) ? (float)(0.3 + random_unit(&r) * 2) : pick_temperature(&r);
            b->top_k[i] = random_below(&r, 3) ? 0 : pick_top_k(&r, VOCAB);
            b->top_p[i] = random_below(&r, 2) ? 1.0f : pick_top_p(&r);
            b->min_p[i] = random_below(&r, 2) ? 0.0f : pick_min_p(&r);
            b->position[i] += 1;
            vector_allow_make(random_bits(&r) >> 40, VOCAB, b->allow + i * b->words);
            if (n % 2) vector_row_make(b->kind[i], random_bits(&r) >> 40, VOCAB, b->dtype, b->data + i * b->stride * 2);
        }
        const struct {
            const void *there, *here;
            size_t bytes;
        } part[] = {{s.params.extra, s.extra, ROWS * sizeof *s.extra}, {s.params.temperature, b->temperature, ROWS * 4}, {s.params.top_k, b->top_k, ROWS * 4},
                    {s.params.top_p, b->top_p, ROWS * 4}, {s.params.min_p, b->min_p, ROWS * 4}, {s.params.position, b->position, ROWS * 8},
                    {s.params.allow, b->allow, (size_t)(ROWS * b->words) * 4}, {s.logits.data, b->data, (size_t)(ROWS * b->stride) * 2},
                    {s.state.memory, b->state->memory, raffle_state_bytes(b->state)}};
        for (size_t i = 0; i < sizeof part / sizeof *part; ++i)
            memcpy(s.all.host + ((const char *)part[i].there - s.all.device), part[i].here, part[i].bytes);
        image_send(&s.all);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(device));
    gpu_close(&own, "captured draws");
    image_free(&s.all);
    mixture_free(&m);
}

/* A captured call serves later contents: here, other requests. */
TEST(captured) {
    NEED_GPU();
    static mixture m;
    static sent s;
    test_random r = {210};
    mixture_make(&m, &r, PICK_ALL, 900, 12, RAFFLE_BF16, 0);
    batch_send(&s, &m.b, 0);
    runner_gpu own = gpu_open(m.b.dtype, m.b.vocab, m.b.rows, HISTORY_MAX);
    const written w = {.rows = 12, .stride = 900, .kept_at = 12 * 900 * 4, .flags_at = 12 * 900 * 4, .bytes = 12 * 901 * 4};
    char *wanted = (char *)host_alloc(w.bytes), *got = (char *)host_alloc(w.bytes), *device = (char *)gpu_alloc(w.bytes);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    raffle_output output = written_output(&w, device, NULL);
    raffle_launch launch = raffle_launch_init();
    launch.workspace = own.space;
    launch.workspace_bytes = own.bytes;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    launch.stream = stream;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(written_call(&w, own.plan, &s.logits, &s.params, &output, &launch, &must_error));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 3; ++n) {
        const raffle_logits logits = batch_logits(&m.b);
        const raffle_params params = batch_params(&m.b);
        output = written_output(&w, wanted, NULL);
        written_cpu(&m.b, &w, &logits, &params, &output);
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaMemcpyAsync(got, device, w.bytes, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        CHECK(!memcmp(wanted, got, w.bytes), "replay %d of a captured call differs", n);
        const raffle_extra first = m.b.extra[0], first_sent = s.extra[0]; /* requests move on by one row */
        for (int i = 0; i < 11; ++i) m.b.extra[i] = m.b.extra[i + 1], s.extra[i] = s.extra[i + 1];
        m.b.extra[11] = first, s.extra[11] = first_sent;
        CUDA(cudaMemcpy((void *)s.params.extra, s.extra, 12 * sizeof *s.extra, cudaMemcpyHostToDevice));
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(stream));
    gpu_close(&own, "a captured call");
    CUDA(cudaFree(device));
    free(wanted);
    free(got);
    image_free(&s.all);
    mixture_free(&m);
}

/* XTC is a matter of chance also where no seed is given: which of many chances come true is the CPU's. */
TEST(chance_without_seeds) {
    NEED_GPU();
    static mixture m;
    static sent s;
    test_random r = {211};
    mixture_make(&m, &r, PICK_ALL, 400, BATCH_ROWS_MAX, RAFFLE_F32, 0);
    batch *b = &m.b;
    for (int i = 0; i < BATCH_ROWS_MAX; ++i) {
        const raffle_extra xtc = {.xtc_probability = ((float)i + 0.5f) / BATCH_ROWS_MAX, .xtc_threshold = 0.005f};
        vector_row_make("normal", 7, b->vocab, b->dtype, b->data + i * b->stride * 4);
        b->temperature[i] = b->top_p[i] = 1.0f;
        b->top_k[i] = 0;
        b->min_p[i] = 0.0f;
        b->extra[i] = xtc;
    }
    batch_send(&s, b, 0);
    runner_gpu own = gpu_open(b->dtype, b->vocab, b->rows, HISTORY_MAX);
    for (int i = 0; i < 4; ++i) write_check(&s, b, &own, 1, &r);
    gpu_close(&own, "no seeds");
    image_free(&s.all);
    mixture_free(&m);
}

/* Rows that are not there are flagged, and nothing of them is read. */
TEST(wrong_index) {
    NEED_GPU();
    static mixture m;
    static sent s;
    static outputs o;
    test_random r = {209};
    int32_t index[8] = {0, -1, 1, 8, 2, INT32_MAX, 3, INT32_MIN}, *device_index = (int32_t *)gpu_alloc(sizeof index);
    mixture_make(&m, &r, PICK_ALL, 600, 8, RAFFLE_BF16, 0);
    batch_send(&s, &m.b, 0);
    runner_gpu own = gpu_open(m.b.dtype, m.b.vocab, m.b.rows, HISTORY_MAX);
    const written w = {.rows = 8, .stride = 600, .kept_at = 8 * 600 * 4, .flags_at = 8 * 600 * 4, .bytes = 8 * 601 * 4};
    char *got = (char *)host_alloc(w.bytes), *device = (char *)gpu_alloc(w.bytes);
    CUDA(cudaMemcpy(device_index, index, sizeof index, cudaMemcpyHostToDevice));
    s.logits.row_index = device_index;
    gpu_run(&own, &s.logits, &s.params, &o);
    written_gpu(&own, &w, &s.logits, &s.params, device, NULL);
    CUDA(cudaMemcpy(got, device, w.bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; ++i) {
        const uint32_t flags = *(const uint32_t *)(got + w.flags_at + i * 4);
        const float *row = (const float *)(const void *)got + i * 600;
        int zero = 1;
        for (int64_t id = 0; id < 600; ++id) zero = zero && row[id] == 0.0f;
        CHECK((o.row_flags[i] == RAFFLE_ROW_ARGUMENT) == (i % 2) && (flags == RAFFLE_ROW_ARGUMENT) == (i % 2),
              "row_index %d: flags %u and %u", index[i], o.row_flags[i], flags);
        CHECK(i % 2 == 0 || (o.token[i] == RAFFLE_NO_TOKEN && zero), "row_index %d: token %d", index[i], o.token[i]);
    }
    gpu_close(&own, "a wrong index");
    CUDA(cudaFree(device));
    CUDA(cudaFree(device_index));
    free(got);
    image_free(&s.all);
    mixture_free(&m);
}

int main(void) {
    gpu_start("cuda_requests", 180);
    RUN(alone);
    RUN(small_vocab);
    RUN(middle_vocab);
    RUN(large_vocab);
    RUN(enough);
    RUN(crowded_parts);
    RUN(frozen);
    RUN(wrong_records);
    RUN(wild_state);
    RUN(lost_histories);
    RUN(captured_draws);
    RUN(captured);
    RUN(chance_without_seeds);
    RUN(wrong_index);
    printf("%ld rows, %ld mixtures\n", rows_checked, mixtures_checked);
    return test_report("cuda_requests");
}
