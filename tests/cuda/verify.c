/* verify.c - raffle_verify on the GPU gives the oracle's answers: the ragged batches of tests/property/verify.c, large ones
 * against the CPU, captured in a graph, and what only the GPU can see. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "gpu.h"

#include <sys/mman.h>

#include "../common/draft_batch.h"

/* Everything of a batch in memory of the GPU, by one copy each. */
static void *sent(const void *from, size_t bytes) {
    void *to = gpu_alloc(bytes + 64);
    CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    return to;
}
static void freed(const void *p) {
    if (p) CUDA(cudaFree((void *)p));
}

/* Memory of the GPU that is freed together. */
typedef struct device_arena {
    void *block[4096];
    int count;
} device_arena;

static const void *arena_send(device_arena *a, const void *from, size_t bytes) {
    if (!from) return NULL;
    if (a->count == 4096) abort();
    return a->block[a->count++] = sent(from, bytes);
}
static void device_arena_free(device_arena *a) {
    while (a->count) freed(a->block[--a->count]);
}

/* Records whose lists are on the GPU, too. */
static const raffle_extra *extras_sent(device_arena *a, const raffle_extra *from, int64_t slots) {
    raffle_extra *made = malloc((size_t)slots * sizeof *made);
    for (int64_t i = 0; i < slots; ++i) {
        raffle_extra e = from[i];
        e.bias_id = arena_send(a, e.bias_id, (size_t)e.bias_count * 4);
        e.bias = arena_send(a, e.bias, (size_t)e.bias_count * 4);
        e.banned = arena_send(a, e.banned, (size_t)e.banned_count * 4);
        e.allowed = arena_send(a, e.allowed, (size_t)e.allowed_count * 4);
        e.stop = arena_send(a, e.stop, (size_t)e.stop_count * 4);
        e.breaker = arena_send(a, e.breaker, (size_t)e.breaker_count * 4);
        e.bad_words = arena_send(a, e.bad_words, (size_t)e.bad_words_count * 4);
        made[i] = e;
    }
    const raffle_extra *there = arena_send(a, made, (size_t)slots * sizeof *made);
    free(made);
    return there;
}

static raffle_params params_sent(const raffle_params *p, int64_t slots, int64_t allow_words) {
    raffle_params d = *p;
    size_t n = (size_t)slots;
    d.temperature = sent(p->temperature, n * 4);
    d.top_p = sent(p->top_p, n * 4);
    d.min_p = sent(p->min_p, n * 4);
    d.top_k = sent(p->top_k, n * 4);
    if (p->seed) d.seed = sent(p->seed, n * 8);
    if (p->position) d.position = sent(p->position, n * 8);
    if (p->allow) d.allow = sent(p->allow, (size_t)allow_words * 4);
    return d;
}
static void params_freed(const raffle_params *p) {
    freed(p->temperature), freed(p->top_p), freed(p->min_p), freed(p->top_k), freed(p->seed), freed(p->position), freed(p->allow);
}

typedef struct gpu_plan {
    raffle_plan *plan;
    raffle_launch launch;
} gpu_plan;

static gpu_plan plan_make_for(int dtype, int64_t vocab, int64_t rows, uint32_t flags, int64_t history_max) {
    gpu_plan g = {NULL, raffle_launch_init()};
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.backend = RAFFLE_CUDA;
    desc.dtype = dtype;
    desc.vocab = vocab;
    desc.rows_max = rows;
    desc.flags = flags;
    desc.history_max = history_max;
    raffle_error must_error = raffle_error_init();
    if (raffle_plan_create(&desc, &g.plan, &must_error)) {
        printf("raffle_plan_create: %s\n", must_error.text);
        gpu_end();
    }
    g.launch.workspace_bytes = raffle_plan_workspace(g.plan);
    g.launch.workspace = gpu_alloc(g.launch.workspace_bytes);
    gpu_fill(g.launch.workspace, 0, g.launch.workspace_bytes);
    return g;
}
static gpu_plan plan_make(int dtype, int64_t vocab, int64_t rows) { return plan_make_for(dtype, vocab, rows, 0, 0); }
static gpu_plan plan_of(const draft_batch *b) {
    const uint32_t flags = b->state.memory ? RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT : 0;
    return plan_make_for(b->target.dtype, b->target.vocab, b->target.rows + b->draft.rows, flags, flags ? DRAFT_HISTORY : 0);
}
static void plan_freed(gpu_plan g) {
    raffle_plan_destroy(g.plan);
    freed(g.launch.workspace);
}

/* A batch on the GPU, and where its results go. */
typedef struct device_batch {
    raffle_logits logits, draft_logits;
    raffle_params params, draft_params;
    raffle_probabilities probabilities;
    raffle_drafts drafts;
    raffle_verified verified;
    verify_outputs *outputs;
    raffle_state state;
    device_arena lists;
} device_batch;

static void device_batch_make(device_batch *d, const draft_batch *b) {
    verify_structs s;
    int64_t drafts = b->first[b->requests], bytes = element_bytes(b->target.dtype);
    verify_structs_make(&s, b);
    memset(d, 0, sizeof *d);
    d->logits = s.logits;
    d->logits.data = sent(b->target.data, (size_t)(b->target.rows * b->target.stride * bytes));
    d->params = params_sent(&s.params, b->requests, b->target.rows * b->target.words);
    d->drafts = s.drafts;
    d->drafts.first = sent(b->first, sizeof b->first);
    d->drafts.token = sent(b->token, sizeof b->token);
    if (s.drafts.parent) d->drafts.parent = sent(b->parent, sizeof b->parent);
    if (s.drafts.accept_bits) d->drafts.accept_bits = sent(b->accept_bits, sizeof b->accept_bits);
    if (s.drafts.recover_bits) d->drafts.recover_bits = sent(b->recover_bits, sizeof b->recover_bits);
    if (s.drafts.draw_bits) d->drafts.draw_bits = sent(b->draw_bits, sizeof b->draw_bits);
    if (s.drafts.logits) {
        d->draft_logits = s.draft_logits;
        d->draft_logits.data = sent(b->draft.data, (size_t)(drafts * b->draft.stride * bytes) + 4);
        d->draft_params = params_sent(&s.draft_params, b->requests, drafts * b->draft.words);
        d->drafts.logits = &d->draft_logits;
        d->drafts.params = &d->draft_params;
    }
    if (s.drafts.probabilities) {
        d->probabilities = s.probabilities;
        d->probabilities.data = sent(b->probabilities, (size_t)(drafts * b->target.vocab + 1) * 4);
        d->drafts.probabilities = &d->probabilities;
    }
    if (b->state.memory) {
        d->state = b->state;
        d->state.backend = RAFFLE_CUDA;
        d->state.memory = (void *)arena_send(&d->lists, b->state.memory, raffle_state_bytes(&b->state));
        d->params.state = &d->state;
        d->params.extra = extras_sent(&d->lists, b->target.extra, b->requests);
        if (s.drafts.logits) {
            d->draft_params.state = &d->state;
            d->draft_params.extra = extras_sent(&d->lists, b->draft.extra, b->requests);
        }
    }
    verify_outputs poison;
    verify_outputs_poison(&poison);
    d->outputs = sent(&poison, sizeof poison);
    d->verified = raffle_verified_init();
    d->verified.token = d->outputs->token;
    d->verified.path = d->outputs->path;
    d->verified.accepted = d->outputs->accepted;
    d->verified.last = d->outputs->last;
    d->verified.row_flags = d->outputs->row_flags;
}
static void device_batch_freed(device_batch *d) {
    freed(d->logits.data), freed(d->draft_logits.data), freed(d->drafts.first), freed(d->drafts.token), freed(d->drafts.parent);
    freed(d->drafts.accept_bits), freed(d->drafts.recover_bits), freed(d->drafts.draw_bits);
    freed(d->outputs), freed(d->probabilities.data);
    params_freed(&d->params), params_freed(&d->draft_params);
    device_arena_free(&d->lists);
}

static raffle_status call(gpu_plan g, device_batch *d, raffle_error *error) {
    return raffle_verify(g.plan, &d->logits, &d->params, &d->drafts, &d->verified, &g.launch, error);
}

static void fetch_and_check(const device_batch *d, const draft_batch *b, const char *how) {
    verify_outputs o;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(&o, d->outputs, sizeof o, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < b->requests; ++i) verify_outputs_check(&o, b, i, i, draft_row_first(b, i), how);
    verify_guards_check(&o, b, how);
}

static void check_batch(const draft_batch *b) {
    static device_batch d;
    raffle_error error = raffle_error_init();
    device_batch_make(&d, b);
    gpu_plan g = plan_of(b);
    for (int again = 0; again < 2; ++again) { /* the second call finds the workspace that the first left */
        raffle_status status = call(g, &d, &error);
        CHECK(status == RAFFLE_OK, "%s", error.text);
        fetch_and_check(&d, b, again ? "again" : "gpu");
    }
    plan_freed(g);
    device_batch_freed(&d);
}

static void check_kind(draft_kind kind, int32_t method, int64_t batches, int64_t vocab_max, uint64_t seed) {
    test_random r = {seed};
    batches = test_amount(batches);
    for (int64_t i = 0; i < batches; ++i) {
        draft_batch *b = draft_batch_make(&r, kind, method, vocab_max, 0);
        check_batch(b);
        draft_batch_free(b);
    }
}

/* Tokens in place of rejected drafts out of lists of what filters have left (verify_kept.cuh). */
static void check_few(draft_kind kind, int64_t batches, int64_t vocab_max, uint64_t seed) {
    test_random r = {seed};
    int64_t rejected = 0, requests = 0;
    for (int64_t i = 0; i < test_amount(batches); ++i) {
        draft_batch *b = draft_batch_make(&r, kind, RAFFLE_REJECTION, vocab_max, 0);
        draft_batch_cut(b, &r);
        check_batch(b);
        for (int64_t n = 0; n < b->requests; ++n) rejected += b->wanted[n].accepted < b->first[n + 1] - b->first[n];
        requests += b->requests;
        draft_batch_free(b);
    }
    CHECK(rejected > requests / 4, "%lld of %lld requests have a rejected draft", (long long)rejected, (long long)requests);
}

/* ---- reports: the CPU's, bit for bit, which tests/property/verify.c compares with the oracle's ---- */

enum { TOP = 5, GIVEN = 3, LIST = 30, WORDS_MAX = 640 };
typedef struct told {
    uint32_t kept[BATCH_ROWS_MAX * WORDS_MAX];
    int32_t kept_list[BATCH_ROWS_MAX * LIST + 1], kept_count[BATCH_ROWS_MAX + 1];
    float chosen[BATCH_ROWS_MAX + 1], entropy[BATCH_ROWS_MAX + 1], top[BATCH_ROWS_MAX * TOP + 1], given_log[BATCH_ROWS_MAX * GIVEN + 1];
    int32_t rank[BATCH_ROWS_MAX + 1], top_token[BATCH_ROWS_MAX * TOP + 1], given_rank[BATCH_ROWS_MAX * GIVEN + 1];
} told;

static int64_t list_room(int64_t vocab) { return 1 + vocab % LIST; }

/* A report that goes to `t` and `all`, here or there. */
static raffle_report report_to(told *t, float *all, const int32_t *given, int64_t vocab, int point, int wanted) {
    raffle_report r = raffle_report_init();
    r.point = point;
    r.kept_stride = (vocab + 31) / 32 + vocab % 3;
    r.kept_list_stride = list_room(vocab);
    if (wanted & 1) r.chosen = t->chosen;
    if (wanted & 2) r.rank = t->rank;
    if (wanted & 4) r.entropy = t->entropy;
    if (wanted & 8) r.top_count = TOP, r.top_token = t->top_token, r.top = t->top;
    if (wanted & 16) r.given_count = GIVEN, r.given = given, r.given_logprob = t->given_log, r.given_rank = t->given_rank;
    if (wanted & 32) r.all = all;
    if (wanted & 64) r.kept = t->kept;
    if (wanted & 128) r.kept_list = t->kept_list, r.kept_count = t->kept_count;
    return r;
}

static void compare_told(const draft_batch *b, const told *got, const told *wanted, const float *all[2], const char *how) {
    for (int64_t i = 0; i < b->target.rows; ++i) {
        const int64_t vocab = b->target.vocab;
        const int same = !memcmp(&got->chosen[i], &wanted->chosen[i], 4) && got->rank[i] == wanted->rank[i] &&
                         !memcmp(&got->entropy[i], &wanted->entropy[i], 4) && !memcmp(&got->top[i * TOP], &wanted->top[i * TOP], TOP * 4) &&
                         !memcmp(&got->top_token[i * TOP], &wanted->top_token[i * TOP], TOP * 4) &&
                         !memcmp(&got->given_log[i * GIVEN], &wanted->given_log[i * GIVEN], GIVEN * 4) &&
                         !memcmp(&got->given_rank[i * GIVEN], &wanted->given_rank[i * GIVEN], GIVEN * 4) &&
                         !memcmp(all[0] + i * vocab, all[1] + i * vocab, (size_t)vocab * 4);
        if (test_note(same))
            printf("%s: %s: report of row %lld, %s, %s: chosen %a rank %d entropy %a top %d %a given %a %d, CPU %a %d %a %d %a %a %d\n",
                   test_state.name, how, (long long)i, draft_kinds[b->kind], method_names[b->method], (double)got->chosen[i], got->rank[i],
                   (double)got->entropy[i], got->top_token[i * TOP], (double)got->top[i * TOP], (double)got->given_log[i * GIVEN],
                   got->given_rank[i * GIVEN], (double)wanted->chosen[i], wanted->rank[i], (double)wanted->entropy[i],
                   wanted->top_token[i * TOP], (double)wanted->top[i * TOP], (double)wanted->given_log[i * GIVEN], wanted->given_rank[i * GIVEN]);
    }
    CHECK(!memcmp(got->chosen + b->target.rows, wanted->chosen + b->target.rows, 4) &&
              !memcmp(got->top + b->target.rows * TOP, wanted->top + b->target.rows * TOP, 4), "%s wrote behind a report", how);
    CHECK(!memcmp(got->kept, wanted->kept, sizeof got->kept), "%s: other bits of kept tokens, %s, %s", how, draft_kinds[b->kind],
          method_names[b->method]);
    CHECK(!memcmp(got->kept_count, wanted->kept_count, sizeof got->kept_count), "%s: other numbers of kept tokens, %s, %s", how,
          draft_kinds[b->kind], method_names[b->method]);
    const int64_t room = list_room(b->target.vocab), end = b->target.rows * room;
    for (int64_t i = 0; i < b->target.rows; ++i) { /* what is behind the last id is undefined */
        const int64_t count = wanted->kept_count[i] < room ? wanted->kept_count[i] : room;
        CHECK(!memcmp(got->kept_list + i * room, wanted->kept_list + i * room, (size_t)count * 4),
              "%s: other kept tokens of row %lld, %s, %s", how, (long long)i, draft_kinds[b->kind], method_names[b->method]);
    }
    CHECK(!memcmp(got->kept_list + end, wanted->kept_list + end, sizeof got->kept_list - (size_t)end * 4), "%s wrote behind the lists",
          how);
}

/* What the CPU tells, in `wanted` and `all`, of whatever the oracle has checked. */
static void told_by_cpu(const draft_batch *b, const raffle_report *report) {
    verify_structs s;
    verify_outputs o;
    runner cpu = runner_make_for(b->target.dtype, b->target.vocab, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, DRAFT_HISTORY);
    verify_structs_make(&s, b);
    verify_outputs_poison(&o);
    o.verified.report = report;
    CHECK_STATUS(raffle_verify(cpu.plan, &s.logits, &s.params, &s.drafts, &o.verified, &cpu.launch, NULL), RAFFLE_OK);
    runner_free(cpu);
}

static void check_report(const draft_batch *b, gpu_plan g, device_batch *d, int point, int parts) {
    static told got, wanted;
    static int32_t given[BATCH_ROWS_MAX * GIVEN];
    const size_t bytes = (size_t)(b->target.rows * b->target.vocab) * 4;
    CHECK(b->target.vocab <= (WORDS_MAX - 2) * 32, "no room for kept sets");
    float *all[2] = {host_alloc(bytes), host_alloc(bytes)};
    for (int64_t i = 0; i < b->target.rows * GIVEN; ++i) given[i] = (int32_t)(i * 7 % (b->target.vocab + 2)) - 1;
    memset(&got, GUARD, sizeof got), memset(&wanted, GUARD, sizeof wanted), memset(all[0], GUARD, bytes), memset(all[1], GUARD, bytes);
    told *there = sent(&got, sizeof got);
    float *all_there = sent(all[0], bytes);
    int32_t *given_there = sent(given, sizeof given);
    raffle_report report = report_to(&wanted, all[1], given, b->target.vocab, point, parts);
    raffle_error error = raffle_error_init();
    told_by_cpu(b, &report);
    report = report_to(there, all_there, given_there, b->target.vocab, point, parts);
    d->verified.report = &report;
    raffle_status status = call(g, d, &error);
    CHECK(status == RAFFLE_OK, "%s", error.text);
    d->verified.report = NULL;
    fetch_and_check(d, b, "with a report");
    CUDA(cudaMemcpy(&got, there, sizeof got, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(all[0], all_there, bytes, cudaMemcpyDeviceToHost));
    compare_told(b, &got, &wanted, (const float *[]){all[0], all[1]}, point == RAFFLE_RAW ? "raw" : point == RAFFLE_TEMPERED ? "tempered" : "filtered");
    freed(there), freed(all_there), freed(given_there);
    free(all[0]), free(all[1]);
}

/* All three points, with all that can be asked or some of it; with or without extras. */
static void check_reports(draft_kind kind, int32_t method, int64_t batches, int64_t vocab_max, uint64_t seed) {
    test_random r = {seed};
    batches = test_amount(batches);
    for (int64_t i = 0; i < batches; ++i) {
        uint32_t wish = i % 3 ? (uint32_t)(random_bits(&r) & random_bits(&r) & random_bits(&r)) & PICK_ALL : 0;
        draft_batch *b = draft_batch_make(&r, kind, method, vocab_max, wish);
        static device_batch d;
        device_batch_make(&d, b);
        gpu_plan g = plan_make_for(b->target.dtype, b->target.vocab, b->target.rows + b->draft.rows,
                                   wish ? RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT : RAFFLE_PLAN_REPORT, wish ? DRAFT_HISTORY : 0);
        for (int point = RAFFLE_RAW; point <= RAFFLE_FILTERED; ++point)
            check_report(b, g, &d, point, random_below(&r, 2) ? 255 : 1 + (int)random_below(&r, 255));
        plan_freed(g);
        device_batch_freed(&d);
        draft_batch_free(b);
    }
}

TEST(reports_of_chains) {
    NEED_GPU();
    check_reports(DRAFT_LOGITS, RAFFLE_REJECTION, 40, 1200, 50);
    check_reports(DRAFT_LOGITS, RAFFLE_BLOCK, 30, 900, 51);
    check_reports(DRAFT_PROBABILITIES, RAFFLE_REJECTION, 20, 900, 52);
    check_reports(DRAFT_TOKENS, RAFFLE_REJECTION, 30, 900, 53);
    check_reports(DRAFT_TOKENS, RAFFLE_MATCH, 30, 900, 54);
    check_reports(DRAFT_TOKENS, RAFFLE_SYNTHETIC, 40, 900, 55); /* also tells of tokens that their rows do not keep */
}
TEST(reports_of_trees) {
    NEED_GPU();
    check_reports(DRAFT_TREE, RAFFLE_REJECTION, 40, 900, 56);
    check_reports(DRAFT_TREE, RAFFLE_MATCH, 30, 900, 57);
    check_reports(DRAFT_TREE, RAFFLE_SYNTHETIC, 20, 600, 58);
}
TEST(reports_of_large_vocabularies) {
    NEED_GPU();
    check_reports(DRAFT_LOGITS, RAFFLE_REJECTION, 3, 20000, 59);
}

/* The same with histories, edits and filters, as tests/property/verify.c asks for them. */
static long extras_accepted, extras_drafts;
static void check_extras(draft_kind kind, int32_t method, int64_t batches, int64_t vocab_max, uint64_t seed) {
    test_random r = {seed};
    batches = test_amount(batches);
    for (int64_t i = 0; i < batches; ++i) {
        uint32_t wish = (uint32_t)random_bits(&r) & PICK_ALL;
        if (i % 4) wish &= (uint32_t)random_bits(&r) & (uint32_t)random_bits(&r);
        draft_batch *b = draft_batch_make(&r, kind, method, vocab_max, wish ? wish : PICK_COUNTS);
        check_batch(b);
        extras_drafts += b->first[b->requests];
        for (int64_t q = 0; q < b->requests; ++q) extras_accepted += b->wanted[q].accepted;
        draft_batch_free(b);
    }
}

TEST(extras_of_chains) {
    NEED_GPU();
    check_extras(DRAFT_LOGITS, RAFFLE_REJECTION, 80, 1200, 30);
    check_extras(DRAFT_LOGITS, RAFFLE_BLOCK, 50, 900, 31);
    check_extras(DRAFT_PROBABILITIES, RAFFLE_REJECTION, 30, 900, 32);
    check_extras(DRAFT_PROBABILITIES, RAFFLE_BLOCK, 30, 900, 33);
    check_extras(DRAFT_TOKENS, RAFFLE_REJECTION, 50, 900, 34);
    check_extras(DRAFT_TOKENS, RAFFLE_BLOCK, 30, 900, 35);
    check_extras(DRAFT_TOKENS, RAFFLE_MATCH, 80, 900, 36);
    check_extras(DRAFT_TOKENS, RAFFLE_SYNTHETIC, 30, 900, 37);
}
TEST(extras_of_trees) {
    NEED_GPU();
    check_extras(DRAFT_TREE, RAFFLE_REJECTION, 80, 900, 38);
    check_extras(DRAFT_TREE, RAFFLE_MATCH, 80, 900, 39);
    check_extras(DRAFT_TREE, RAFFLE_SYNTHETIC, 30, 600, 40);
}
TEST(extras_of_large_vocabularies) {
    NEED_GPU();
    check_extras(DRAFT_LOGITS, RAFFLE_REJECTION, 3, 20000, 41);
    check_extras(DRAFT_TREE, RAFFLE_REJECTION, 3, 20000, 42);
}
TEST(enough_was_decided) {
    NEED_GPU();
    if (test_part()) SKIP("RAFFLE_TEST_PART: other processes have the rest");
    CHECK(extras_accepted * 6 > extras_drafts && extras_accepted * 6 < extras_drafts * 5, "one-sided: %ld of %ld", extras_accepted, extras_drafts);
}

TEST(rejection_of_logits) { NEED_GPU(); check_kind(DRAFT_LOGITS, RAFFLE_REJECTION, 150, 1200, 1); }
TEST(rejection_of_probabilities) { NEED_GPU(); check_kind(DRAFT_PROBABILITIES, RAFFLE_REJECTION, 100, 1200, 2); }
TEST(rejection_of_tokens) { NEED_GPU(); check_kind(DRAFT_TOKENS, RAFFLE_REJECTION, 80, 1200, 3); }
TEST(block_of_logits) { NEED_GPU(); check_kind(DRAFT_LOGITS, RAFFLE_BLOCK, 120, 900, 4); }
TEST(block_of_probabilities) { NEED_GPU(); check_kind(DRAFT_PROBABILITIES, RAFFLE_BLOCK, 80, 900, 5); }
TEST(block_of_tokens) { NEED_GPU(); check_kind(DRAFT_TOKENS, RAFFLE_BLOCK, 60, 900, 6); }
TEST(sample_and_match) { NEED_GPU(); check_kind(DRAFT_TOKENS, RAFFLE_MATCH, 120, 1200, 7); }
TEST(synthetic) { NEED_GPU(); check_kind(DRAFT_TOKENS, RAFFLE_SYNTHETIC, 50, 600, 8); }
TEST(few_of_logits) { NEED_GPU(); check_few(DRAFT_LOGITS, 500, 1200, 11); check_few(DRAFT_LOGITS, 40, 20000, 12); }
TEST(few_of_probabilities) { NEED_GPU(); check_few(DRAFT_PROBABILITIES, 150, 1200, 15); }
TEST(few_of_tokens) { NEED_GPU(); check_few(DRAFT_TOKENS, 80, 1200, 13); }
TEST(few_of_trees) { NEED_GPU(); check_few(DRAFT_TREE, 80, 1200, 14); }
TEST(tree_rejection_and_thresholds) { NEED_GPU(); check_kind(DRAFT_TREE, RAFFLE_REJECTION, 150, 1200, 9); }
TEST(tree_match) { NEED_GPU(); check_kind(DRAFT_TREE, RAFFLE_MATCH, 120, 1200, 10); }
TEST(large_vocabularies) {
    NEED_GPU();
    check_kind(DRAFT_LOGITS, RAFFLE_REJECTION, 3, 20000, 12);
    check_kind(DRAFT_LOGITS, RAFFLE_BLOCK, 3, 20000, 13);
    check_kind(DRAFT_PROBABILITIES, RAFFLE_REJECTION, 3, 20000, 14);
}

/* A captured call serves what memory holds when it is replayed. */
static void replay_batch(draft_batch *b) {
    static device_batch d;
    device_batch_make(&d, b);
    gpu_plan g = plan_of(b);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    CUDA(cudaStreamCreate(&stream));
    g.launch.stream = stream;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_STATUS(call(g, &d, NULL), RAFFLE_OK);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiateWithFlags(&replay, graph, 0));
    for (int i = 0; i < (gpu_quick() ? 10 : 50); ++i) {
        for (int64_t q = 0; q < b->requests; ++q) b->target.position[q] += 3, draft_batch_ask(b, q);
        CUDA(cudaMemcpy((void *)d.params.position, b->target.position, (size_t)b->requests * 8, cudaMemcpyHostToDevice));
        CUDA(cudaGraphLaunch(replay, stream));
        CUDA(cudaStreamSynchronize(stream));
        fetch_and_check(&d, b, "graph");
    }
    CUDA(cudaGraphExecDestroy(replay));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(stream));
    plan_freed(g);
    device_batch_freed(&d);
    draft_batch_free(b);
}

/* How many drafts the requests have whose number is odd (or even). */
static int64_t drafts_of(const draft_batch *b, int odd) {
    int64_t drafts = 0;
    for (int64_t q = odd; q < b->requests; q += 2) drafts += b->first[q + 1] - b->first[q];
    return drafts;
}

/* A batch with draft logits in which odd requests have some drafts, and even ones. */
static draft_batch *batch_with_drafts(test_random *r, int32_t method) {
    for (;;) {
        draft_batch *b = draft_batch_make(r, DRAFT_LOGITS, method, 600, 0);
        if (drafts_of(b, 0) >= 6 && drafts_of(b, 1) >= 6) return b;
        draft_batch_free(b);
    }
}

/* One of which odd requests are greedy and even ones are sampled. */
static draft_batch *half_greedy(test_random *r, int32_t method) {
    draft_batch *b = batch_with_drafts(r, method);
    for (int64_t q = 0; q < b->requests; ++q) {
        b->target.temperature[q] = q % 2 ? 0.0f : 0.8f;
        b->target.top_k[q] = 0, b->target.top_p[q] = 1.0f, b->target.min_p[q] = 0.0f;
        draft_batch_ask(b, q);
    }
    return b;
}

TEST(graph_replays) {
    NEED_GPU();
    test_random r = {21};
    replay_batch(draft_batch_make(&r, DRAFT_LOGITS, RAFFLE_REJECTION, 1200, 0));
    replay_batch(draft_batch_make(&r, DRAFT_LOGITS, RAFFLE_REJECTION, 600, PICK_COUNTS | PICK_BIAS | PICK_DRY | PICK_ALLOWED));
    replay_batch(draft_batch_make(&r, DRAFT_TREE, RAFFLE_MATCH, 600, PICK_REPETITION | PICK_NGRAM | PICK_TYPICAL));
    replay_batch(batch_with_drafts(&r, RAFFLE_BLOCK));
    replay_batch(half_greedy(&r, RAFFLE_REJECTION));
    replay_batch(half_greedy(&r, RAFFLE_BLOCK));
}

/* ---- what only the GPU sees of records and histories ---- */

/* Draft `i` of a request is not used, as if there were none, and its row says so. */
static void expect_unused(draft_batch *b, int64_t request) {
    const float t = b->target.temperature[request];
    const int greedy = t < 1e-5f || b->target.top_k[request] == 1 || !(b->target.top_p[request] > 0.0f);
    int32_t *token = b->token + b->first[request], kept = *token;
    if (greedy || b->first[request + 1] == b->first[request] || kept < 0) return; /* nobody looks at its law */
    *token = -1;
    draft_batch_ask(b, request);
    *token = kept;
    if (!(b->wanted[request].row_flags[0] & RAFFLE_ROW_EMPTY)) b->wanted[request].row_flags[0] |= RAFFLE_ROW_DRAFT;
}

/* The target's own record is wrong: nothing is drawn. */
static void expect_refused(draft_batch *b, int64_t request) {
    verify_answer *w = &b->wanted[request];
    w->accepted = 0;
    w->last = RAFFLE_NO_TOKEN;
    for (int64_t i = 0; i <= b->first[request + 1] - b->first[request]; ++i)
        w->token[i] = RAFFLE_NO_TOKEN, w->path[i] = -1, w->row_flags[i] = i ? 0 : RAFFLE_ROW_ARGUMENT;
}

TEST(wrong_records) {
    NEED_GPU();
    test_random r = {24};
    for (int i = 0; i < test_amount(60); ++i) {
        draft_batch *b = draft_batch_make(&r, DRAFT_LOGITS, RAFFLE_REJECTION, 600, PICK_COUNTS | PICK_BIAS | PICK_BANNED);
        for (int64_t q = 0; q < b->requests; ++q) {
            const int64_t choice = random_below(&r, 6);
            raffle_extra *e = choice < 2 ? &b->target.extra[q] : &b->draft.extra[q];
            static const int32_t outside = 5000;
            if (choice == 0 || choice == 2) e->frequency = NAN;
            if (choice == 1) e->banned_count = 1, e->banned = &outside;
            if (choice == 3) e->xtc_probability = 0.5f;
            if (choice < 2) expect_refused(b, q);
            else if (choice < 4) expect_unused(b, q);
        }
        check_batch(b);
        draft_batch_free(b);
    }
}

/* Tokens of a request whose history is not what its calls asked for have a flag; drafts whose law it makes are not used. */
TEST(lost_histories) {
    NEED_GPU();
    test_random r = {25};
    for (int i = 0; i < test_amount(60); ++i) {
        const draft_kind kind = i % 2 ? DRAFT_TREE : DRAFT_LOGITS;
        draft_batch *b = draft_batch_make(&r, kind, RAFFLE_REJECTION, 600, PICK_COUNTS | PICK_NGRAM | PICK_BIAS);
        for (int64_t q = 0; q < b->requests; ++q) {
            if (random_below(&r, 2)) continue;
            history_lose(&b->state, q);
            if (kind == DRAFT_LOGITS && extra_looks_back(&b->draft.extra[q])) expect_unused(b, q);
            if (extra_looks_back(&b->target.extra[q]))
                for (int n = 0; n <= b->wanted[q].accepted; ++n) b->wanted[q].row_flags[n] |= RAFFLE_ROW_STATE;
        }
        check_batch(b);
        draft_batch_free(b);
    }
}

/* Histories in memory that nobody cleared: any token may come, but the call comes back. */
TEST(wild_histories) {
    NEED_GPU();
    test_random r = {26};
    for (int i = 0; i < test_amount(40); ++i) {
        draft_batch *b = draft_batch_make(&r, i % 2 ? DRAFT_TREE : DRAFT_LOGITS, RAFFLE_REJECTION, 600, PICK_ALL);
        static device_batch d;
        verify_outputs o;
        uint32_t *words = b->state.memory;
        for (size_t w = 0; w < raffle_state_bytes(&b->state) / 4; ++w)
            if (i % 4 < 2 || !random_below(&r, 8)) words[w] = (uint32_t)random_bits(&r) >> random_below(&r, 32);
        device_batch_make(&d, b);
        gpu_plan g = plan_of(b);
        CHECK_STATUS(call(g, &d, NULL), RAFFLE_OK);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemcpy(&o, d.outputs, sizeof o, cudaMemcpyDeviceToHost));
        for (int64_t row = 0; row < b->target.rows; ++row)
            CHECK(o.token[row] >= RAFFLE_NO_TOKEN && o.token[row] < b->target.vocab, "token %d of %lld", o.token[row], (long long)b->target.vocab);
        verify_guards_check(&o, b, "wild");
        plan_freed(g);
        device_batch_freed(&d);
        draft_batch_free(b);
    }
}

/* With a state a request has at most 256 drafts: of 256 all are looked at, and 257 are refused, by whoever sees them. */
TEST(longest_paths) {
    NEED_GPU();
    enum { MOST = 257, WORDS = 32 };
    static float logits[(MOST + 1) * WORDS];
    static int32_t token[MOST], parent[MOST], out[MOST + 1];
    const int32_t said = 3, one = 1;
    raffle_extra extra = {.frequency = 1.0f};
    uint64_t zero = 0;
    int32_t first[2] = {0, 0}, accepted;
    for (int i = 0; i < MOST; ++i) { /* the token before would win, had it not just been said once more */
        token[i] = i % WORDS;
        parent[i] = i - 1;
        logits[i * WORDS + token[i]] = 100.0f;
        if (token[i]) logits[i * WORDS + token[i] - 1] = 100.5f;
    }
    float cold = 0.0f;
    device_arena a = {.count = 0};
    raffle_state state = raffle_state_init();
    state.backend = RAFFLE_CUDA, state.slots = 1, state.history_max = 8, state.vocab = WORDS;
    state.memory = gpu_alloc(raffle_state_bytes(&state));
    CHECK_STATUS(raffle_state_clear(&state, NULL, NULL), RAFFLE_OK);
    raffle_tokens prompt = raffle_tokens_init();
    prompt.rows = 1, prompt.token = arena_send(&a, &said, 4), prompt.count = arena_send(&a, &one, 4);
    CHECK_STATUS(raffle_state_prompt(&state, &prompt, NULL), RAFFLE_OK);
    raffle_logits rows = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    rows.data = arena_send(&a, logits, sizeof logits);
    params.temperature = arena_send(&a, &cold, 4), params.seed = params.position = arena_send(&a, &zero, 8);
    params.extra = arena_send(&a, &extra, sizeof extra), params.extra_bytes = sizeof extra, params.state = &state;
    drafts.requests = 1, drafts.token = arena_send(&a, token, sizeof token);
    int32_t *first_there = gpu_alloc(sizeof first), *tokens_there = gpu_alloc(sizeof out), *accepted_there = gpu_alloc(4);
    uint32_t *flags_there = gpu_alloc(sizeof out), flags;
    const int32_t *parents_there = arena_send(&a, parent, sizeof parent);
    verified.token = tokens_there, verified.accepted = accepted_there, verified.row_flags = flags_there;
    gpu_fill(tokens_there, 0xff, sizeof out);
    gpu_plan g = plan_make_for(RAFFLE_F32, WORDS, MOST + 1, RAFFLE_PLAN_EXTRA, 8);
    for (int32_t count = MOST - 1; count <= MOST; ++count)
        for (int tree = 0; tree < 2; ++tree) {
            raffle_error error = raffle_error_init();
            first[1] = count;
            CUDA(cudaMemcpy(first_there, first, sizeof first, cudaMemcpyHostToDevice));
            rows.rows = count + 1;
            drafts.parent = tree ? parents_there : NULL;
            drafts.each = 0, drafts.first = first_there;
            CHECK_STATUS(raffle_verify(g.plan, &rows, &params, &drafts, &verified, &g.launch, &error), RAFFLE_OK);
            CUDA(cudaMemcpy(&accepted, accepted_there, 4, cudaMemcpyDeviceToHost));
            CUDA(cudaMemcpy(&flags, flags_there, 4, cudaMemcpyDeviceToHost));
            CUDA(cudaMemcpy(out, tokens_there, sizeof out, cudaMemcpyDeviceToHost));
            if (count < MOST) CHECK(accepted == count && !flags && out[count] >= 0, "accepted %d of %d, flags %u", accepted, count, flags);
            else CHECK(!accepted && flags == RAFFLE_ROW_ARGUMENT && out[0] == RAFFLE_NO_TOKEN, "accepted %d, flags %u", accepted, flags);
            drafts.each = count, drafts.first = NULL;
            raffle_status status = raffle_verify(g.plan, &rows, &params, &drafts, &verified, &g.launch, &error);
            if (count < MOST) CHECK_STATUS(status, RAFFLE_OK);
            else CHECK(status == RAFFLE_E_ARGUMENT && error.row == 0 && strstr(error.text, "with a state at most 256"), "%s", error.text);
        }
    plan_freed(g);
    device_arena_free(&a);
    freed(state.memory), freed(first_there), freed(tokens_there), freed(accepted_there), freed(flags_there);
}

/* A batch of which a request is wrong, by what was done to its arrays after `wanted` was asked for: it costs this request a flag, and
 * nothing else. */
static void check_spoiled(draft_batch *b, int64_t request, const char *how) {
    device_batch d;
    if (request < b->requests) b->wanted[request].row_flags[0] |= RAFFLE_ROW_ARGUMENT;
    device_batch_make(&d, b);
    gpu_plan g = plan_of(b);
    CHECK_STATUS(call(g, &d, NULL), RAFFLE_OK);
    fetch_and_check(&d, b, how);
    plan_freed(g);
    device_batch_freed(&d);
    draft_batch_free(b);
}

/* The first request that has drafts, or `requests`. */
static int64_t request_with_drafts(const draft_batch *b) {
    int64_t request = 0;
    while (request < b->requests && b->first[request + 1] == b->first[request]) ++request;
    return request;
}

/* Asks what a request gives without draft `at`. */
static void ask_without(draft_batch *b, int64_t request, int64_t at) {
    const int32_t token = b->token[at];
    b->token[at] = RAFFLE_NO_TOKEN;
    draft_batch_ask(b, request);
    b->token[at] = token;
}

TEST(ids_out_of_range) {
    NEED_GPU();
    test_random r = {22};
    for (int i = 0; i < 20; ++i) {
        static const int32_t bad[] = {INT32_MAX, -2, INT32_MIN, 2000000000};
        draft_batch *b = draft_batch_make(&r, DRAFT_TOKENS, RAFFLE_REJECTION, 600, 0);
        const int64_t request = request_with_drafts(b), at = b->first[request];
        if (request < b->requests) {
            ask_without(b, request, at);
            b->token[at] = bad[i % 4];
        }
        check_spoiled(b, request, "bad id");
    }
}

/* A parent that does not come before its draft, or is below -1: no way leads there. */
TEST(parents_out_of_order) {
    NEED_GPU();
    test_random r = {24};
    for (int i = 0; i < test_amount(300); ++i) {
        static const int32_t methods[] = {RAFFLE_REJECTION, RAFFLE_MATCH, RAFFLE_SYNTHETIC};
        draft_batch *b = draft_batch_make(&r, DRAFT_TREE, methods[i % 3], 600, 0);
        const int64_t request = request_with_drafts(b);
        if (b->method == RAFFLE_SYNTHETIC) { /* all that can be accepted: whoever took such a draft for one would go there */
            b->rate = 1.0f;
            for (int64_t other = 0; other < b->requests; ++other) draft_batch_ask(b, other);
        }
        if (request < b->requests) {
            const int32_t first = b->first[request], count = b->first[request + 1] - first, draft = (int32_t)random_below(&r, count);
            const int32_t bad[] = {draft, draft + 1, count - 1, count, -2, INT32_MIN, INT32_MAX};
            const int32_t parent = bad[random_below(&r, 7)];
            ask_without(b, request, first + draft);
            b->parent[first + draft] = parent < draft && parent > -2 ? draft : parent;
        }
        check_spoiled(b, request, "bad parent");
    }
}

TEST(refused) {
    NEED_GPU();
    test_random r = {23};
    draft_batch *b = draft_batch_make(&r, DRAFT_LOGITS, RAFFLE_REJECTION, 600, 0);
    device_batch d;
    raffle_error error = raffle_error_init();
    device_batch_make(&d, b);
    gpu_plan g = plan_make(b->target.dtype, b->target.vocab, b->target.rows);
    CHECK(b->draft.rows, "a batch without draft rows has room enough");
    CHECK_STATUS(call(g, &d, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "rows_max"), "%s", error.text);
    plan_freed(g);
    device_batch_freed(&d);
    draft_batch_free(b);
}

/* Drafts have the CPU's random bits. */
TEST(drafts_as_the_cpu) {
    NEED_GPU();
    enum { DRAWN = 400, WIDE_VOCAB = 3000 };
    static float row[WIDE_VOCAB];
    static uint64_t seed[DRAWN], position[DRAWN];
    static float top_p[DRAWN];
    static int32_t token[2][DRAWN];
    vector_row_make("normal", 3, WIDE_VOCAB, RAFFLE_F32, row);
    float *rows = host_alloc(sizeof row * DRAWN);
    for (int i = 0; i < DRAWN; ++i) {
        memcpy(rows + (int64_t)i * WIDE_VOCAB, row, sizeof row);
        seed[i] = (uint64_t)i, position[i] = 5, top_p[i] = i % 3 ? 1.0f : 0.9f;
    }
    runner cpu = runner_make(RAFFLE_F32, WIDE_VOCAB, RAFFLE_ISA_BEST);
    gpu_plan g = plan_make(RAFFLE_F32, WIDE_VOCAB, DRAWN);
    raffle_logits logits = raffle_logits_init(), there = raffle_logits_init();
    raffle_params params = raffle_params_init(), sent_params;
    raffle_result result = raffle_result_init();
    logits.data = rows, logits.rows = there.rows = DRAWN;
    there.data = sent(rows, sizeof row * DRAWN);
    params.seed = seed, params.position = position, params.top_p = top_p;
    sent_params = params;
    sent_params.seed = sent(seed, sizeof seed), sent_params.position = sent(position, sizeof position), sent_params.top_p = sent(top_p, sizeof top_p);
    int32_t *out = gpu_alloc(sizeof token[1]);
    for (uint32_t step = 0; step < 4; ++step) {
        params.draft_step = sent_params.draft_step = step;
        result.token = token[0];
        CHECK_STATUS(raffle_sample(cpu.plan, &logits, &params, &result, &cpu.launch, NULL), RAFFLE_OK);
        result.token = out;
        CHECK_STATUS(raffle_sample(g.plan, &there, &sent_params, &result, &g.launch, NULL), RAFFLE_OK);
        CUDA(cudaMemcpy(token[1], out, sizeof token[1], cudaMemcpyDeviceToHost));
        CHECK(!memcmp(token[0], token[1], sizeof token[0]), "step %u: other tokens", step);
    }
    freed(there.data), freed(sent_params.seed), freed(sent_params.position), freed(sent_params.top_p), freed(out);
    runner_free(cpu);
    plan_freed(g);
    free(rows);
}

/* ---- rows that can be read 16 bytes at a time: what is left over of them, against the CPU ---- */

enum { MIXED = 20, MIXED_MOST = 70, MIXED_DRAFTS = MIXED * 5 + MIXED_MOST, MIXED_ROWS = MIXED_DRAFTS + MIXED, MIXED_VOCAB = 2816 };

/* All of a mixed batch, here or there; requests without drafts, short ones, and one longer than a warp. */
typedef struct mixed_batch {
    int32_t first[MIXED + 1], token[MIXED_DRAFTS], parent[MIXED_DRAFTS];
    float temperature[2][MIXED], top_p[2][MIXED]; /* of the target, of the draft */
    int32_t top_k[2][MIXED];
    uint64_t seed[MIXED], position[MIXED];
} mixed_batch;
typedef struct mixed_out {
    int32_t token[MIXED_ROWS], path[MIXED_ROWS], accepted[MIXED], last[MIXED];
    uint32_t row_flags[MIXED_ROWS];
} mixed_out;

static int64_t mixed_depth(int64_t t) { return (t / 256 * 7 + 3) % 11; }

/* A row of one of the kinds: peaks high above the rest, so that a ticket is many weights there; all alike; groups of very different
 * height, some without any ticket, some without a logit. */
static float mixed_logit(int kind, int64_t t, test_random *r) {
    const float noise = (float)(random_unit(r) + random_unit(r) + random_unit(r) + random_unit(r) - 2.0) * 4.0f;
    if (kind == 0) return noise + (t % 613 == 5 ? 12.0f + (float)random_unit(r) * 3.0f : 0.0f);
    if (kind == 1) return noise * 0.2f;
    if (kind == 2) return noise - 4.0f * (float)mixed_depth(t);
    return t / 256 % 3 == 1 ? -INFINITY : noise - 3.0f * (float)(t / 256 % 5);
}

static void mixed_row(char *row, const char *target, int dtype, int64_t vocab, int kind, test_random *r) {
    const float factor = kind == 5 ? 1.0f : 0.05f;
    const int lift = (int)random_below(r, 2);
    for (int64_t t = 0; t < vocab; ++t) {
        float x;
        if (!target || kind < 4) x = mixed_logit(kind & 3, t, r);
        else if (kind == 7) /* neighbours change places, or a few are a little more: so little that floats cannot tell all other tokens */
            x = oracle_load(target, dtype, !lift && mixed_depth(t) > 4 && (t | 1) < vocab ? t ^ 1 : t) +
                (lift && mixed_depth(t) > 4 && t % 97 == 3 ? 1.0f : 0.0f);
        else if (kind == 4) x = oracle_load(target, dtype, t) + (t == 700 ? 1.0f : 0.0f); /* one token is another: floats cannot tell the rest */
        else x = oracle_load(target, dtype, t) + (float)(random_unit(r) - 0.5) * factor;
        vector_store(row, dtype, t, vector_bits(x));
    }
}

/* `fine`: rows differ only in groups so low that they have few tickets, so that one ticket more or less is another token. */
static void mixed_make(mixed_batch *m, char *target, char *draft, int dtype, int64_t vocab, int fine, test_random *r) {
    static const float temperatures[] = {0.8f, 0.8f, 1.0f, 0.3f, 2.0f, 0.0f, INFINITY, 0.01f};
    const int64_t bytes = vocab * element_bytes(dtype);
    for (int64_t i = 0; i < MIXED; ++i) {
        const int32_t most = vocab > MIXED_VOCAB ? i % 5 ? 0 : 3 : i == 3 ? MIXED_MOST : 5, count = (int32_t)random_below(r, most + 1);
        const int kind = fine ? 2 : (int)random_below(r, 4), filtered = !fine && random_below(r, 5) == 0, same = random_below(r, 3) != 0;
        m->first[i + 1] = m->first[i] + count;
        m->seed[i] = random_bits(r), m->position[i] = random_bits(r);
        for (int side = 0; side < 2; ++side) {
            const float other = fine ? 0.8f : temperatures[random_below(r, 8)];
            m->temperature[side][i] = side && same ? m->temperature[0][i] : other;
            m->top_k[side][i] = filtered ? 20 : 0;
            m->top_p[side][i] = filtered ? 0.9f : 1.0f;
        }
        for (int32_t j = 0; j <= count; ++j) {
            char *row = target + (m->first[i] + i + j) * bytes;
            mixed_row(row, NULL, dtype, vocab, kind, r);
            if (j == count) break;
            const int64_t at = m->first[i] + j;
            mixed_row(draft + at * bytes, row, dtype, vocab, fine ? 7 : (int)random_below(r, 8), r);
            m->parent[at] = random_below(r, 2) ? j - 1 : (int32_t)random_below(r, j + 1) - 1;
        }
    }
}

static raffle_status mixed_call(raffle_plan *plan, const raffle_launch *launch, const mixed_batch *m, const void *target, const void *draft,
                                int32_t method, int kind, int32_t drafts, mixed_out *o) {
    raffle_logits rows = raffle_logits_init(), draft_rows = raffle_logits_init();
    raffle_params params = raffle_params_init(), own;
    raffle_drafts d = raffle_drafts_init();
    raffle_verified v = raffle_verified_init();
    rows.data = target, rows.rows = drafts + MIXED;
    draft_rows.data = draft, draft_rows.rows = drafts;
    params.seed = m->seed, params.position = m->position;
    own = params;
    params.temperature = m->temperature[0], params.top_k = m->top_k[0], params.top_p = m->top_p[0];
    own.temperature = m->temperature[1], own.top_k = m->top_k[1], own.top_p = m->top_p[1];
    d.method = method, d.requests = MIXED, d.first = m->first, d.token = m->token;
    if (kind == DRAFT_LOGITS) d.logits = &draft_rows, d.params = &own;
    if (kind == DRAFT_TREE) d.parent = m->parent;
    v.token = o->token, v.path = o->path, v.accepted = o->accepted, v.last = o->last, v.row_flags = o->row_flags;
    return raffle_verify(plan, &rows, &params, &d, &v, launch, NULL);
}

/* Drafts as engines have them, and others. */
static void mixed_tokens(mixed_batch *m, raffle_plan *plan, const raffle_launch *launch, const char *draft, int64_t vocab, int fine, test_random *r) {
    static int32_t slot[MIXED_DRAFTS];
    raffle_logits rows = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_result result = raffle_result_init();
    for (int32_t i = 0; i < MIXED; ++i)
        for (int32_t j = m->first[i]; j < m->first[i + 1]; ++j) slot[j] = i;
    rows.data = draft, rows.rows = m->first[MIXED];
    params.temperature = m->temperature[1], params.top_k = m->top_k[1], params.top_p = m->top_p[1];
    params.seed = m->seed, params.position = m->position, params.slots = MIXED, params.slot = slot, params.draft_step = 1;
    result.token = m->token;
    CHECK_STATUS(raffle_sample(plan, &rows, &params, &result, launch, NULL), RAFFLE_OK);
    for (int32_t j = 0; j < m->first[MIXED]; ++j) {
        const int64_t choice = random_below(r, 24);
        if (choice < 5) m->token[j] = (int32_t)random_below(r, vocab);
        if (choice == 5) m->token[j] = -1;
        while (fine && (m->token[j] < 0 || mixed_depth(m->token[j]) < 5)) m->token[j] = (int32_t)random_below(r, vocab);
    }
}

static long mixed_recovered;
static void check_mixed(int dtype, int64_t vocab, int32_t method, int kind, int fine, uint64_t seed) {
    static mixed_batch m;
    static mixed_out wanted, got;
    test_random r = {seed};
    const size_t bytes = (size_t)(vocab * element_bytes(dtype));
    char *target = host_alloc(MIXED_ROWS * bytes), *draft = host_alloc(MIXED_DRAFTS * bytes);
    memset(&m, 0, sizeof m), memset(&wanted, 0, sizeof wanted), memset(&got, 0, sizeof got);
    mixed_make(&m, target, draft, dtype, vocab, fine, &r);
    runner cpu = runner_make(dtype, vocab, RAFFLE_ISA_BEST);
    mixed_tokens(&m, cpu.plan, &cpu.launch, draft, vocab, fine, &r);
    const int32_t drafts = m.first[MIXED];
    CHECK_STATUS(mixed_call(cpu.plan, &cpu.launch, &m, target, draft, method, kind, drafts, &wanted), RAFFLE_OK);
    void *target_there = sent(target, MIXED_ROWS * bytes), *draft_there = sent(draft, MIXED_DRAFTS * bytes);
    mixed_batch *there = sent(&m, sizeof m);
    mixed_out *out = sent(&got, sizeof got);
    gpu_plan g = plan_make(dtype, vocab, MIXED_ROWS + MIXED_DRAFTS);
    for (int again = 0; again < 2; ++again) {
        gpu_fill(out, 0, sizeof got);
        CHECK_STATUS(mixed_call(g.plan, &g.launch, there, target_there, draft_there, method, kind, drafts, out), RAFFLE_OK);
        CUDA(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
        CHECK(!memcmp(&got, &wanted, sizeof got), "%s, %s, dtype %d, seed %llu%s: not the CPU's answers", method_names[method], draft_kinds[kind],
              dtype, (unsigned long long)seed, again ? ", again" : "");
    }
    for (int i = 0; i < MIXED; ++i) mixed_recovered += wanted.accepted[i] < m.first[i + 1] - m.first[i];
    plan_freed(g);
    freed(target_there), freed(draft_there), freed(there), freed(out);
    runner_free(cpu);
    free(target);
    free(draft);
}

TEST(mixed_batches_as_the_cpu) {
    NEED_GPU();
    const int rounds = (int)test_amount(8);
    for (int i = 0; i < rounds; ++i)
        for (int dtype = 0; dtype < 3; ++dtype) {
            const int64_t vocab = i % 3 ? MIXED_VOCAB : MIXED_VOCAB - 8 * (1 + i % 20); /* a last group that is cut short */
            check_mixed(dtype, vocab, RAFFLE_REJECTION, DRAFT_LOGITS, 0, 100 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_BLOCK, DRAFT_LOGITS, 0, 200 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_REJECTION, DRAFT_TOKENS, 0, 300 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_BLOCK, DRAFT_TOKENS, 0, 400 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_REJECTION, DRAFT_TREE, 0, 500 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_MATCH, DRAFT_TREE, 0, 600 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_REJECTION, DRAFT_LOGITS, 1, 700 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_BLOCK, DRAFT_LOGITS, 1, 800 + (uint64_t)i);
            check_mixed(dtype, vocab, RAFFLE_REJECTION, DRAFT_TOKENS, 1, 900 + (uint64_t)i);
        }
    CHECK(mixed_recovered > 100 * rounds, "only %ld requests ended early", mixed_recovered);
}

/* Rows of more groups than shared memory has room for: whoever finishes them changes records that the second kernel may look at. */
TEST(rows_of_many_groups_as_the_cpu) {
    NEED_GPU();
    enum { MANY_VOCAB = 1100 * 256 };
    for (int i = 0; i < test_amount(2); ++i) {
        check_mixed(RAFFLE_BF16, MANY_VOCAB, RAFFLE_REJECTION, DRAFT_LOGITS, 1, 1000 + (uint64_t)i);
        check_mixed(RAFFLE_BF16, MANY_VOCAB, RAFFLE_BLOCK, DRAFT_LOGITS, 1, 1100 + (uint64_t)i);
        check_mixed(RAFFLE_BF16, MANY_VOCAB, RAFFLE_REJECTION, DRAFT_TOKENS, 0, 1200 + (uint64_t)i);
        check_mixed(RAFFLE_BF16, MANY_VOCAB, RAFFLE_REJECTION, DRAFT_LOGITS, 0, 1300 + (uint64_t)i);
    }
}

/* Drafts in a group of probabilities that is further and further below the best: at last none of it has a ticket, and a draft of which the
 * target has one is accepted. */
TEST(probabilities_far_below) {
    NEED_GPU();
    enum { WORDS = 2 * 256, COUNT = 80 };
    static float logits[2 * COUNT][WORDS], probability[COUNT][WORDS];
    static uint64_t seed[COUNT];
    static int32_t token[COUNT], accepted[COUNT];
    device_arena a = {.count = 0};
    raffle_logits rows = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_probabilities known = raffle_probabilities_init();
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    for (int i = 0; i < COUNT; ++i) {
        for (int t = 0; t < WORDS; ++t) {
            logits[2 * i][t] = logits[2 * i + 1][t] = 0.1f * (float)(t % 11) - (t < 256 ? 0.0f : 26.0f);
            probability[i][t] = t < 256 ? 1.0f : ldexpf((float)(1 + t % 5), -2 * i);
        }
        seed[i] = (uint64_t)i;
        token[i] = 256 + 3 * i;
    }
    rows.data = arena_send(&a, logits, sizeof logits), rows.rows = 2 * COUNT;
    known.data = arena_send(&a, probability, sizeof probability), known.rows = COUNT;
    params.seed = params.position = arena_send(&a, seed, sizeof seed);
    drafts.requests = COUNT, drafts.each = 1, drafts.token = arena_send(&a, token, sizeof token), drafts.probabilities = &known;
    int32_t *token_there = gpu_alloc(2 * sizeof token), *accepted_there = gpu_alloc(sizeof accepted);
    verified.token = token_there, verified.accepted = accepted_there;
    gpu_plan g = plan_make(RAFFLE_F32, WORDS, 3 * COUNT);
    MUST(raffle_verify(g.plan, &rows, &params, &drafts, &verified, &g.launch, &must_error));
    CUDA(cudaMemcpy(accepted, accepted_there, sizeof accepted, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; ++i) {
        oracle_case target[2];
        const float *const of_draft = probability[i];
        for (int n = 0; n < 2; ++n) {
            const oracle_case c = {.row = logits[2 * i + n], .dtype = RAFFLE_F32, .vocab = WORDS, .temperature = 1.0f, .top_p = 1.0f, .seed = seed[i],
                                   .position = seed[i]};
            target[n] = c;
        }
        const verify_case c = {.method = RAFFLE_REJECTION, .count = 1, .target = target, .token = &token[i], .probabilities = &of_draft};
        CHECK(accepted[i] == oracle_verify(&c).accepted, "2^-%d of the best: accepted %d", 2 * i, accepted[i]);
    }
    CHECK(!accepted[0] && accepted[COUNT - 1], "accepted %d at first, %d at last", accepted[0], accepted[COUNT - 1]);
    plan_freed(g);
    device_arena_free(&a);
    freed(token_there), freed(accepted_there);
}

/* Offsets that are not those of the batch: no token outside the vocabulary comes of them, and the next call finds nothing of them. */
TEST(offsets_out_of_order) {
    NEED_GPU();
    test_random r = {25};
    for (int i = 0; i < test_amount(40); ++i) {
        draft_batch *b = draft_batch_make(&r, i % 2 ? DRAFT_LOGITS : DRAFT_TOKENS, i % 3 ? RAFFLE_REJECTION : RAFFLE_BLOCK, 600, 0);
        device_batch d;
        verify_outputs o;
        int32_t wrong[REQUESTS_MAX + 1];
        raffle_error error = raffle_error_init();
        device_batch_make(&d, b);
        gpu_plan g = plan_of(b);
        for (int64_t q = 0; q <= b->requests; ++q) wrong[q] = b->first[q];
        wrong[random_below(&r, b->requests + 1)] = (int32_t)random_below(&r, 60) - 20;
        CUDA(cudaMemcpy((void *)d.drafts.first, wrong, sizeof wrong[0] * (size_t)(b->requests + 1), cudaMemcpyHostToDevice));
        raffle_status status = call(g, &d, &error);
        CHECK(status == RAFFLE_OK, "%s", error.text);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemcpy(&o, d.outputs, sizeof o, cudaMemcpyDeviceToHost));
        int32_t untouched;
        memset(&untouched, GUARD, sizeof untouched);
        for (int64_t t = 0; t < b->target.rows; ++t)
            CHECK(o.token[t] == untouched || (o.token[t] >= -1 && o.token[t] < b->target.vocab), "token %d", o.token[t]);
        for (int64_t q = 0; q < b->requests; ++q) CHECK(o.accepted[q] >= 0 && o.accepted[q] <= b->draft.rows, "accepted %d", o.accepted[q]);
        verify_guards_check(&o, b, "wrong offsets");
        CUDA(cudaMemcpy((void *)d.drafts.first, b->first, sizeof b->first, cudaMemcpyHostToDevice));
        CHECK_STATUS(call(g, &d, NULL), RAFFLE_OK);
        fetch_and_check(&d, b, "after wrong offsets");
        plan_freed(g);
        device_batch_freed(&d);
        draft_batch_free(b);
    }
}

/* Offsets that speak of drafts where the batch has none, nor a list of them: nobody looks for one. */
TEST(offsets_without_drafts) {
    NEED_GPU();
    enum { WORDS = 300 };
    static float logits[2 * WORDS];
    static const int32_t first[3] = {0, 1, 0};
    static const uint64_t zero[2];
    int32_t token[2];
    uint32_t flags[2];
    device_arena a = {.count = 0};
    raffle_logits rows = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    rows.data = arena_send(&a, logits, sizeof logits), rows.rows = 2;
    params.seed = params.position = arena_send(&a, zero, sizeof zero);
    drafts.method = RAFFLE_BLOCK, drafts.requests = 2, drafts.first = arena_send(&a, first, sizeof first);
    int32_t *token_there = gpu_alloc(sizeof token), *accepted_there = gpu_alloc(8);
    uint32_t *flags_there = gpu_alloc(sizeof flags);
    verified.token = token_there, verified.accepted = accepted_there, verified.row_flags = flags_there;
    gpu_plan g = plan_make(RAFFLE_F32, WORDS, 2);
    gpu_fill(token_there, 0, sizeof token);
    CHECK_STATUS(raffle_verify(g.plan, &rows, &params, &drafts, &verified, &g.launch, NULL), RAFFLE_OK);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(token, token_there, sizeof token, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 2; ++i) CHECK(token[i] >= RAFFLE_NO_TOKEN && token[i] < WORDS, "token %d", token[i]);
    plan_freed(g);
    device_arena_free(&a);
    freed(token_there), freed(accepted_there), freed(flags_there);
}

/* A request whose offsets are its own keeps its tokens, though those of another speak of its last row. The next call, with offsets that
 * are right and smaller logits, finds nothing of the rows that no request was completed by. */
TEST(offsets_that_overlap) {
    NEED_GPU();
    enum { WORDS = 300, ROWS = 7 };
    static float logits[ROWS * WORDS];
    static const float cold[3];
    static const int32_t first[4] = {0, 3, 1, 4}, right[4] = {0, 3, 3, 4}, drafted[4] = {0, 1, 2, 3};
    static const uint64_t zero[3];
    int32_t token[ROWS], accepted[3];
    for (int i = 0; i < ROWS; ++i) logits[i * WORDS + i] = 9.0f;
    device_arena a = {.count = 0};
    raffle_logits rows = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_drafts drafts = raffle_drafts_init();
    raffle_verified verified = raffle_verified_init();
    rows.data = arena_send(&a, logits, sizeof logits), rows.rows = ROWS;
    params.temperature = arena_send(&a, cold, sizeof cold), params.seed = params.position = arena_send(&a, zero, sizeof zero);
    drafts.requests = 3, drafts.first = arena_send(&a, first, sizeof first), drafts.token = arena_send(&a, drafted, sizeof drafted);
    int32_t *token_there = gpu_alloc(sizeof token), *accepted_there = gpu_alloc(sizeof accepted);
    verified.token = token_there, verified.accepted = accepted_there;
    gpu_plan g = plan_make(RAFFLE_F32, WORDS, ROWS);
    CHECK_STATUS(raffle_verify(g.plan, &rows, &params, &drafts, &verified, &g.launch, NULL), RAFFLE_OK);
    CUDA(cudaMemcpy(token, token_there, sizeof token, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(accepted, accepted_there, sizeof accepted, cudaMemcpyDeviceToHost));
    CHECK(accepted[0] == 3 && !accepted[1] && !accepted[2], "accepted %d %d %d", accepted[0], accepted[1], accepted[2]);
    for (int i = 0; i < 4; ++i) CHECK(token[i] == i, "token %d is %d", i, token[i]);
    memset(logits, 0, sizeof logits);
    for (int i = 0; i < ROWS; ++i) logits[i * WORDS + i + 50] = 1.0f;
    rows.data = arena_send(&a, logits, sizeof logits), drafts.first = arena_send(&a, right, sizeof right);
    CHECK_STATUS(raffle_verify(g.plan, &rows, &params, &drafts, &verified, &g.launch, NULL), RAFFLE_OK);
    CUDA(cudaMemcpy(token, token_there, sizeof token, cudaMemcpyDeviceToHost));
    CHECK(token[0] == 50 && token[4] == 54 && token[5] == 55, "tokens %d %d %d", token[0], token[4], token[5]);
    plan_freed(g);
    device_arena_free(&a);
    freed(token_there), freed(accepted_there);
}

/* ---- 64 requests with 4 drafts of 128256 bf16: the CPU's answers, and how long it takes ---- */

enum { BIG = 64, BIG_DRAFTS = 4, BIG_ROWS = BIG * (BIG_DRAFTS + 1), BIG_VOCAB = 128256 };

static void big_batch(float temperature, int32_t top_k, float top_p, int32_t method, int with_logits, const char *name) {
    size_t target_bytes = (size_t)BIG_ROWS * BIG_VOCAB * 2, draft_bytes = (size_t)BIG * BIG_DRAFTS * BIG_VOCAB * 2;
    char *target = host_alloc(target_bytes), *draft = host_alloc(draft_bytes);
    for (int i = 0; i < BIG_ROWS; ++i) vector_row_make("peaked", (uint64_t)(i % 16), BIG_VOCAB, RAFFLE_BF16, target + (size_t)i * BIG_VOCAB * 2);
    for (int i = 0; i < BIG * BIG_DRAFTS; ++i) {
        const char *from = target + (size_t)(i + i / BIG_DRAFTS) * BIG_VOCAB * 2;
        char *to = draft + (size_t)i * BIG_VOCAB * 2;
        for (int64_t t = 0; t < BIG_VOCAB; ++t)
            vector_store(to, RAFFLE_BF16, t, vector_bits(oracle_load(from, RAFFLE_BF16, t) + (float)((t * 2654435761u + (unsigned)i * 97u) % 256) / 256.0f));
    }
    static float T[BIG], P[BIG];
    static int32_t K[BIG], token[BIG * BIG_DRAFTS], out[2][BIG_ROWS], accepted[2][BIG];
    static uint64_t seed[BIG], position[BIG];
    for (int i = 0; i < BIG; ++i) T[i] = temperature, P[i] = top_p, K[i] = top_k, seed[i] = (uint64_t)i;
    runner cpu = runner_make(RAFFLE_BF16, BIG_VOCAB, RAFFLE_ISA_BEST);
    gpu_plan g = plan_make(RAFFLE_BF16, BIG_VOCAB, BIG_ROWS + BIG * BIG_DRAFTS);
    raffle_logits logits = raffle_logits_init(), draft_logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    logits.data = target, logits.rows = BIG_ROWS;
    draft_logits.data = draft, draft_logits.rows = BIG * BIG_DRAFTS;
    params.temperature = T, params.top_p = P, params.top_k = K, params.seed = seed, params.position = position;
    static int32_t slot[BIG * BIG_DRAFTS];
    for (int i = 0; i < BIG * BIG_DRAFTS; ++i) slot[i] = i / BIG_DRAFTS;
    raffle_result result = raffle_result_init();
    result.token = token;
    params.slots = BIG, params.slot = slot, params.draft_step = 1;
    CHECK_STATUS(raffle_sample(cpu.plan, &draft_logits, &params, &result, &cpu.launch, NULL), RAFFLE_OK);
    params.slot = NULL, params.draft_step = 0;
    raffle_drafts d = raffle_drafts_init();
    d.method = method, d.requests = BIG, d.each = BIG_DRAFTS, d.token = token;
    if (with_logits) d.logits = &draft_logits, d.params = &params;
    raffle_verified v = raffle_verified_init();
    v.token = out[0], v.accepted = accepted[0];
    CHECK_STATUS(raffle_verify(cpu.plan, &logits, &params, &d, &v, &cpu.launch, NULL), RAFFLE_OK);
    logits.data = sent(target, target_bytes);
    draft_logits.data = sent(draft, draft_bytes);
    params.temperature = sent(T, sizeof T), params.top_p = sent(P, sizeof P), params.top_k = sent(K, sizeof K);
    params.seed = sent(seed, sizeof seed), params.position = sent(position, sizeof position);
    d.token = sent(token, sizeof token);
    v.token = gpu_alloc(sizeof out[0]), v.accepted = gpu_alloc(sizeof accepted[0]);
    cudaEvent_t start, end;
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&end));
    float best = 1e30f;
    for (int i = 0; i < 20; ++i) {
        float ms;
        CUDA(cudaEventRecord(start, NULL));
        CHECK_STATUS(raffle_verify(g.plan, &logits, &params, &d, &v, &g.launch, NULL), RAFFLE_OK);
        CUDA(cudaEventRecord(end, NULL));
        CUDA(cudaEventSynchronize(end));
        CUDA(cudaEventElapsedTime(&ms, start, end));
        if (ms < best) best = ms;
    }
    CUDA(cudaMemcpy(out[1], v.token, sizeof out[1], cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(accepted[1], v.accepted, sizeof accepted[1], cudaMemcpyDeviceToHost));
    int sum = 0;
    for (int i = 0; i < BIG; ++i) sum += accepted[0][i];
    printf("     %-34s %8.1f us, accepted %.2f; reading target %s is %.1f us at 4.3 TB/s\n", name, (double)best * 1e3, (double)sum / BIG,
           with_logits ? "and draft" : "rows", (double)(target_bytes + (with_logits ? draft_bytes : 0)) / 4.3e6);
    CHECK(!memcmp(out[0], out[1], sizeof out[0]) && !memcmp(accepted[0], accepted[1], sizeof accepted[0]), "%s: not the CPU's tokens", name);
    freed(logits.data), freed(draft_logits.data), freed(params.temperature), freed(params.top_p), freed(params.top_k), freed(params.seed);
    freed(params.position), freed(d.token), freed(v.token), freed(v.accepted);
    CUDA(cudaEventDestroy(start));
    CUDA(cudaEventDestroy(end));
    runner_free(cpu);
    plan_freed(g);
    free(target);
    free(draft);
}

TEST(large_batches_as_the_cpu) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small batches only");
    big_batch(0.0f, 0, 1.0f, RAFFLE_REJECTION, 0, "greedy");
    big_batch(0.8f, 0, 1.0f, RAFFLE_REJECTION, 1, "rejection, draft logits");
    big_batch(0.8f, 50, 0.9f, RAFFLE_REJECTION, 1, "the same, top-k 50 + top-p 0.9");
    big_batch(0.8f, 0, 1.0f, RAFFLE_REJECTION, 0, "rejection, tokens alone");
    big_batch(0.8f, 0, 1.0f, RAFFLE_BLOCK, 1, "block, draft logits");
    big_batch(0.8f, 0, 1.0f, RAFFLE_MATCH, 0, "match");
}

/* ---- rows * vocab > 2^31: rows that far apart ---- */

enum { FAR_VOCAB = 1000, FAR_DRAFTS = 2, FAR_SIDE = 4096 }; /* FAR_SIDE: elements from a row of the target to one of the draft */
static const int64_t far_stride = (1ll << 31) + 64;

/* The emulation's memory is the host's: it need only be promised. NULL: there is too little. */
static char *far_memory(size_t bytes) {
    size_t memory_free = 0, memory_all = 0;
    if (gpu_emulated()) {
        void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return map == MAP_FAILED ? NULL : (char *)map;
    }
    CUDA(cudaMemGetInfo(&memory_free, &memory_all));
    return memory_free < bytes + ((size_t)1 << 30) ? NULL : (char *)gpu_alloc(bytes);
}

static void far_verify(char *memory, int32_t method, int by_logits, int edited, uint64_t seed) {
    static uint16_t row[FAR_DRAFTS + 1][FAR_VOCAB], draft_row[FAR_DRAFTS][FAR_VOCAB];
    const int32_t bias_id[2] = {3, 500};
    const float bias[2] = {2.0f, -1.0f};
    raffle_extra extra = {.bias_id = bias_id, .bias = bias, .bias_count = 2, .typical_p = 0.9f};
    oracle_case target[FAR_DRAFTS + 1], draft[FAR_DRAFTS];
    int32_t token[FAR_DRAFTS];
    for (int i = 0; i <= FAR_DRAFTS; ++i) {
        const oracle_case c = {.row = row[i], .dtype = RAFFLE_BF16, .vocab = FAR_VOCAB, .temperature = 1.0f, .top_p = 0.9f, .seed = seed,
                               .extra = edited ? &extra : NULL};
        vector_row_make("normal", seed * 4 + (uint64_t)i, FAR_VOCAB, RAFFLE_BF16, row[i]);
        CUDA(cudaMemcpy(memory + i * far_stride * 2, row[i], sizeof row[i], cudaMemcpyDefault));
        target[i] = c;
        if (i == FAR_DRAFTS) break;
        vector_row_make("normal", seed * 4 + (uint64_t)(i + seed % 2), FAR_VOCAB, RAFFLE_BF16, draft_row[i]); /* the same, or the one behind it */
        CUDA(cudaMemcpy(memory + (i * far_stride + FAR_SIDE) * 2, draft_row[i], sizeof draft_row[i], cudaMemcpyDefault));
        draft[i] = c;
        draft[i].row = draft_row[i];
        token[i] = oracle_sample(&draft[i], NULL, NULL).token;
    }
    verify_case c = {.method = method, .count = FAR_DRAFTS, .target = target, .token = token, .draft = by_logits ? draft : NULL};
    const verify_answer wanted = oracle_verify(&c);
    gpu_plan g = plan_make_for(RAFFLE_BF16, FAR_VOCAB, 2 * FAR_DRAFTS + 1, edited ? RAFFLE_PLAN_EXTRA : 0, 0);
    raffle_params params = raffle_params_init();
    raffle_logits logits = raffle_logits_init(), draft_logits;
    const uint64_t position = 0;
    const float temperature = 1.0f, top_p = 0.9f;
    device_arena lists = {0};
    params.seed = sent(&seed, sizeof seed), params.position = sent(&position, sizeof position);
    params.temperature = sent(&temperature, sizeof temperature), params.top_p = sent(&top_p, sizeof top_p);
    if (edited) params.extra = extras_sent(&lists, &extra, 1), params.extra_bytes = sizeof extra;
    logits.data = memory, logits.rows = FAR_DRAFTS + 1, logits.row_stride = far_stride;
    draft_logits = logits;
    draft_logits.data = memory + FAR_SIDE * 2, draft_logits.rows = FAR_DRAFTS;
    raffle_drafts d = raffle_drafts_init();
    d.method = method, d.requests = 1, d.each = FAR_DRAFTS, d.token = sent(token, sizeof token);
    if (by_logits) d.logits = &draft_logits, d.params = &params;
    int32_t out[FAR_DRAFTS + 2] = {-7, -7, -7, -7}, *there = sent(out, sizeof out);
    raffle_verified v = raffle_verified_init();
    v.token = there, v.accepted = there + FAR_DRAFTS + 1;
    MUST(raffle_verify(g.plan, &logits, &params, &d, &v, &g.launch, &must_error));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(out, there, sizeof out, cudaMemcpyDeviceToHost));
    CHECK(out[FAR_DRAFTS + 1] == wanted.accepted, "%s: accepted %d, oracle %d", method_names[method], out[FAR_DRAFTS + 1], wanted.accepted);
    for (int i = 0; i <= wanted.accepted; ++i) CHECK_EQ(out[i], wanted.token[i]);
    freed(params.seed), freed(params.position), freed(params.temperature), freed(params.top_p), freed(d.token), freed(there);
    device_arena_free(&lists);
    plan_freed(g);
}

TEST(more_than_2_31_logits) {
    NEED_GPU();
    if (gpu_small_only()) SKIP("RAFFLE_TEST_QUICK: no large memory");
    const size_t bytes = (size_t)(FAR_DRAFTS * far_stride + FAR_SIDE + FAR_VOCAB) * 2;
    char *memory = far_memory(bytes);
    if (!memory) SKIP("less than 10 GB of GPU memory are free");
    for (uint64_t seed = 1; seed <= (gpu_quick() ? 2 : 4); ++seed)
        for (int edited = 0; edited < 2; ++edited) {
            far_verify(memory, RAFFLE_REJECTION, 1, edited, seed);
            far_verify(memory, RAFFLE_REJECTION, 0, edited, seed);
            far_verify(memory, RAFFLE_BLOCK, 1, edited, seed);
            far_verify(memory, RAFFLE_MATCH, 0, edited, seed);
        }
    if (gpu_emulated()) munmap(memory, bytes);
    else CUDA(cudaFree(memory));
}

int main(void) {
    gpu_start("cuda_verify", 240);
    RUN(rejection_of_logits);
    RUN(rejection_of_probabilities);
    RUN(rejection_of_tokens);
    RUN(block_of_logits);
    RUN(block_of_probabilities);
    RUN(block_of_tokens);
    RUN(sample_and_match);
    RUN(synthetic);
    RUN(few_of_logits);
    RUN(few_of_probabilities);
    RUN(few_of_tokens);
    RUN(few_of_trees);
    RUN(tree_rejection_and_thresholds);
    RUN(tree_match);
    RUN(large_vocabularies);
    RUN(reports_of_chains);
    RUN(reports_of_trees);
    RUN(reports_of_large_vocabularies);
    RUN(extras_of_chains);
    RUN(extras_of_trees);
    RUN(extras_of_large_vocabularies);
    RUN(enough_was_decided);
    RUN(graph_replays);
    RUN(wrong_records);
    RUN(lost_histories);
    RUN(wild_histories);
    RUN(longest_paths);
    RUN(ids_out_of_range);
    RUN(parents_out_of_order);
    RUN(refused);
    RUN(drafts_as_the_cpu);
    RUN(mixed_batches_as_the_cpu);
    RUN(rows_of_many_groups_as_the_cpu);
    RUN(probabilities_far_below);
    RUN(offsets_out_of_order);
    RUN(offsets_without_drafts);
    RUN(offsets_that_overlap);
    RUN(large_batches_as_the_cpu);
    RUN(more_than_2_31_logits);
    return test_report("cuda_verify");
}
