/* fuzz_request.c - libFuzzer target: bytes become requests with everything that they can ask for: a state that is
 * changed in any order, a raffle_extra per slot, a report; mostly sensible, sometimes not.
 *
 * What must hold for every input: no crash and no access outside what the caller owns (every list is a heap block of
 * exactly its size); a call fails if and only if something is wrong with it, with a sentence, and then nothing was
 * written; histories are those of a plain list; tokens, flags, kept sets and reports are the oracle's on every
 * instruction set; a request that raffle_request_check takes is taken by raffle_sample. */
#include "common/report_row.h"
#include "fuzz.h"

enum { VOCAB = 300, ROWS = 3, HISTORY = 40, TOP = 6, GIVEN = 3 };

/* ---- the state, beside plain lists -------------------------------------------------------------------- */

typedef struct model {
    int32_t token[HISTORY];
    int64_t length, prompt;
} model;

typedef struct pool {
    raffle_state state;
    model slot[ROWS];
} pool;

static void pool_make(input *in, pool *p, int64_t vocab) {
    p->state = raffle_state_init();
    p->state.slots = ROWS;
    p->state.history_max = 1 + below(in, HISTORY);
    p->state.vocab = vocab;
    p->state.memory = block_aligned(raffle_state_bytes(&p->state));
    MUST(raffle_state_clear(&p->state, NULL, NULL) == RAFFLE_OK);
}

static void pool_check(const pool *p) {
    for (int slot = 0; slot < ROWS; ++slot) {
        int64_t prompt, length;
        const int32_t *told = raffle_state_history(&p->state, slot, &prompt, &length);
        MUST(length == p->slot[slot].length && prompt == p->slot[slot].prompt);
        MUST(!memcmp(told, p->slot[slot].token, (size_t)length * 4));
    }
}

/* Does to the lists what a call should do to the state; 0: the call is wrong. */
static int model_change(pool *p, int what, int32_t slot, const int32_t *token, int32_t count, int64_t stride) {
    if (slot < 0 || slot >= ROWS) return 0;
    model *m = &p->slot[slot];
    int64_t room = p->state.history_max, n = 0;
    if (what == 2) { /* truncate */
        if (count < 0 || count > m->length - m->prompt) return 0;
        m->length -= count;
        return 1;
    }
    if (what == 3) { /* reset */
        m->length = m->prompt = 0;
        return 1;
    }
    if (what == 4) { /* fork */
        if (token[0] < 0 || token[0] >= ROWS || token[0] == slot) return 0;
        p->slot[token[0]] = *m;
        return 1;
    }
    if (count < 0 || count > stride) return 0;
    while (n < count && (what == 0 || token[n] != RAFFLE_NO_TOKEN)) ++n;
    for (int64_t i = 0; i < n; ++i)
        if (token[i] < 0 || token[i] >= p->state.vocab) return 0;
    if (what == 1) room -= m->length;
    if (n > room) return 0;
    if (what == 0) m->length = 0;
    memcpy(m->token + m->length, token, (size_t)n * 4);
    m->length += n;
    if (what == 0) m->prompt = n;
    return 1;
}

/* The same for rows; no slot is changed twice, nor copied and changed. */
static int model_change_all(pool *p, int what, const int32_t *slot, const int32_t *token, const int32_t *count,
                            int rows, int64_t stride) {
    const pool before = *p;
    int good = 1;
    for (int i = 0; good && i < rows; ++i) good = model_change(p, what, slot[i], token + i * stride, count[i], stride);
    if (good && rows == 2) {
        const int32_t *changed[2] = {what == 4 ? &token[0] : &slot[0], what == 4 ? &token[stride] : &slot[1]};
        good = *changed[0] != *changed[1];
        if (what == 4) good = good && *changed[0] != slot[1] && *changed[1] != slot[0];
    }
    if (!good) *p = before;
    return good;
}

static void pool_change(input *in, pool *p) {
    raffle_status (*const change[])(const raffle_state *, const raffle_tokens *, raffle_error *) = {
        raffle_state_prompt, raffle_state_accept, raffle_state_truncate, raffle_state_reset, raffle_state_fork};
    const uint8_t kind = (uint8_t)take(in, 1);
    const int what = kind % 8 < 5 ? kind % 8 : 1, rows = kind & 64 ? 2 : 1; /* mostly accept */
    int32_t slot[2], count[2];
    int64_t stride = 1;
    for (int i = 0; i < rows; ++i) {
        slot[i] = kind & 128 ? (int32_t)take(in, 1) - 2 : (int32_t)below(in, ROWS);
        count[i] = rarely(in) ? (int32_t)(int8_t)take(in, 1) : (int32_t)below(in, 12);
        if (count[i] > stride) stride = count[i];
    }
    if (stride > 1 && rarely(in)) --stride;
    int32_t *token = block((size_t)(rows * stride) * 4);
    const int64_t ids = what == 4 ? ROWS : p->state.vocab < 5 ? p->state.vocab : 5;
    for (int64_t i = 0; i < rows * stride; ++i) token[i] = rarely(in) ? (int16_t)take(in, 2) : (int32_t)below(in, ids);
    raffle_tokens t = raffle_tokens_init();
    raffle_error error = raffle_error_init();
    t.rows = rows;
    t.slot = slot;
    t.token = token;
    t.count = count;
    t.stride = stride;
    const size_t bytes = raffle_state_bytes(&p->state);
    void *before = memcpy(block(bytes), p->state.memory, bytes);
    const raffle_status status = change[what](&p->state, &t, &error);
    MUST((status == RAFFLE_OK) == model_change_all(p, what, slot, token, count, rows, stride));
    if (status) error_is_told(&error, status, rows);
    if (status) MUST(!memcmp(before, p->state.memory, bytes));
    pool_check(p);
}

/* ---- what a slot asks for -------------------------------------------------------------------------------- */

static float a_number(input *in) {
    static const float usual[] = {0.0f,  1.0f, 0.5f, 2.0f,  1.3f, 0.1f,  -0.5f,
                                  1e-6f, 0.9f, 1e9f, -1e9f, 5.0f, 1e-3f, 0.3f};
    const uint64_t choice = take(in, 1);
    return choice >= 0xfc ? any_float(in) : usual[choice % (sizeof usual / sizeof *usual)];
}

static int32_t a_whole(input *in) { return rarely(in) ? (int32_t)take(in, 4) : (int32_t)below(in, 6); }

/* A list of ids, ascending unless something is wrong with it. */
static const int32_t *some_ids(input *in, int64_t vocab, int32_t *count) {
    const int64_t n = below(in, 6);
    int32_t *ids = block((size_t)n * 4);
    for (int64_t i = 0; i < n; ++i) ids[i] = (int32_t)below(in, vocab);
    *count = (int32_t)raffle_ids_sort(ids, NULL, n);
    if (n && rarely(in)) ids[below(in, n)] = (int32_t)(int16_t)take(in, 2);
    if (!rarely(in)) return ids;
    *count = often(in) ? -1 : (int32_t)(vocab + 1); /* refused before any id is read */
    return ids;
}

static void make_lists(input *in, int64_t vocab, raffle_extra *e) {
    const uint64_t wish = take(in, 1);
    if (wish & 1) {
        e->bias_id = some_ids(in, vocab, &e->bias_count);
        float *bias = block((size_t)(e->bias_count > 0 ? e->bias_count : 0) * 4);
        for (int32_t i = 0; i < e->bias_count && i < 6; ++i) bias[i] = rarely(in) ? -INFINITY : a_number(in);
        e->bias = rarely(in) ? NULL : bias;
    }
    if (wish & 2) e->banned = some_ids(in, vocab, &e->banned_count);
    if (wish & 4) e->allowed = some_ids(in, vocab, &e->allowed_count);
    if (wish & 8) e->stop = some_ids(in, vocab, &e->stop_count);
    if (wish & 16) e->breaker = some_ids(in, vocab, &e->breaker_count);
    if (wish & 32) {
        int32_t *words = block(8 * 4);
        e->bad_words_count = (int32_t)below(in, 9);
        for (int32_t i = 0; i < e->bad_words_count; ++i)
            words[i] = take(in, 1) & 3 || !i ? (int32_t)below(in, vocab < 5 ? vocab : 5)
                       : rarely(in)          ? (int32_t)(int16_t)take(in, 2)
                                             : -1;
        if (e->bad_words_count && !rarely(in)) words[e->bad_words_count - 1] = e->bad_words_count == 1 ? 0 : -1;
        e->bad_words = words;
    }
    if (rarely(in)) e->banned = NULL;
}

static void make_extra(input *in, int64_t vocab, raffle_extra *e) {
    const uint64_t wish = take(in, 2);
    if (wish & 1) e->repetition = a_number(in);
    if (wish & 2) e->frequency = a_number(in);
    if (wish & 4) e->presence = a_number(in);
    if (wish & 8) e->penalty_window = a_whole(in);
    if (wish & 16) e->no_repeat_ngram = a_whole(in);
    if (wish & 32) e->dry_multiplier = a_number(in), e->dry_base = a_number(in);
    if (wish & 64) e->dry_allowed = a_whole(in), e->dry_range = a_whole(in);
    if (wish & 128) e->min_tokens = a_whole(in);
    if (wish & 256) e->top_n_sigma = a_number(in);
    if (wish & 512) e->epsilon = a_share(in);
    if (wish & 1024) e->eta = a_share(in);
    if (wish & 2048) e->typical_p = a_share(in);
    if (wish & 4096) e->xtc_probability = a_share(in), e->xtc_threshold = a_share(in);
    if (wish & 8192) e->keep_least = a_whole(in);
    if (wish & 16384) e->flags = (uint32_t)take(in, 2) & (rarely(in) ? 0xffffu : 0x73fu);
    if (wish & 32768) make_lists(in, vocab, e);
}

static int good_ids(const int32_t *ids, int64_t count, int64_t vocab) {
    if (count < 0 || count > vocab || (count && !ids)) return 0;
    for (int64_t i = 0; i < count; ++i)
        if (ids[i] < 0 || ids[i] >= vocab || (i && ids[i - 1] >= ids[i])) return 0;
    return 1;
}

static int good_words(const raffle_extra *e, int64_t vocab) {
    int length = 0; /* of the word so far */
    for (int32_t i = 0; i < e->bad_words_count; ++i) {
        if (e->bad_words[i] < -1 || e->bad_words[i] >= vocab) return 0;
        if (e->bad_words[i] == -1 && !length) return 0;
        length = e->bad_words[i] == -1 ? 0 : length + 1;
    }
    return !length;
}

static int within(float x, float low, float high) { return x >= low && x <= high; }

static int good_extra(const raffle_extra *e, int64_t vocab, int has_state) {
    const int repeats = e->repetition != 0 && e->repetition != 1;
    if (e->flags & ~0x73fu) return 0;
    if (!(e->repetition == 0 || (e->repetition > 0 && e->repetition <= 1e9f))) return 0;
    if (!within(e->frequency, -1e9f, 1e9f) || !within(e->presence, -1e9f, 1e9f) || !within(e->dry_multiplier, 0, 1e9f))
        return 0;
    if (!(e->dry_base == 0 || within(e->dry_base, 1, 1e9f))) return 0;
    if (e->penalty_window < 0 || e->no_repeat_ngram < 0 || e->dry_allowed < 0 || e->dry_range < 0 || e->min_tokens < 0)
        return 0;
    if (isnan(e->top_n_sigma) || isnan(e->epsilon) || isnan(e->eta) || isnan(e->typical_p)) return 0;
    if (isnan(e->xtc_probability) || isnan(e->xtc_threshold) || e->keep_least < 0) return 0;
    if (!good_ids(e->bias_id, e->bias_count, vocab) || !good_ids(e->banned, e->banned_count, vocab)) return 0;
    if (!good_ids(e->allowed, e->allowed_count, vocab) || !good_ids(e->stop, e->stop_count, vocab)) return 0;
    if (!good_ids(e->breaker, e->breaker_count, vocab) || !good_words(e, vocab)) return 0;
    if (e->bias_count && !e->bias) return 0;
    for (int32_t i = 0; i < e->bias_count; ++i)
        if (isnan(e->bias[i]) || e->bias[i] == INFINITY) return 0;
    return has_state || !(repeats || e->frequency != 0 || e->presence != 0 || e->no_repeat_ngram ||
                          e->dry_multiplier != 0 || e->min_tokens || e->bad_words_count);
}

/* ---- a call ---------------------------------------------------------------------------------------------- */

typedef struct request_batch {
    int64_t vocab, rows;
    int32_t dtype, point;
    char *data;
    pool pool;
    int has_state;
    float temperature[ROWS], top_p[ROWS], min_p[ROWS];
    int32_t top_k[ROWS];
    uint64_t seed[ROWS], position[ROWS];
    raffle_extra extra[ROWS];
    int32_t given[ROWS * GIVEN];
} request_batch;

/* What is written; before a call all bytes are 0x5a. */
enum { KEPT_WORDS = (VOCAB + 31) / 32, KEPT_LIST = 9 };
typedef struct written {
    int32_t token[ROWS], rank[ROWS], top_token[ROWS * TOP], given_rank[ROWS * GIVEN];
    uint32_t row_flags[ROWS], kept[ROWS * KEPT_WORDS];
    int32_t kept_list[ROWS * KEPT_LIST], kept_count[ROWS];
    float chosen[ROWS], entropy[ROWS], top[ROWS * TOP], given[ROWS * GIVEN], all[ROWS * VOCAB];
} written;

static raffle_params params_of(const request_batch *b) {
    raffle_params p = raffle_params_init();
    p.temperature = b->temperature;
    p.top_p = b->top_p;
    p.min_p = b->min_p;
    p.top_k = b->top_k;
    p.seed = b->seed;
    p.position = b->position;
    p.extra = b->extra;
    p.extra_bytes = sizeof *b->extra;
    p.state = b->has_state ? &b->pool.state : NULL;
    return p;
}

static oracle_case case_of(const request_batch *b, int64_t row) {
    const model *m = &b->pool.slot[row];
    oracle_case c = {
        .row = b->data + row * b->vocab * (b->dtype == RAFFLE_F32 ? 4 : 2),
        .dtype = b->dtype,
        .vocab = b->vocab,
        .temperature = b->temperature[row],
        .top_p = b->top_p[row],
        .min_p = b->min_p[row],
        .top_k = b->top_k[row],
        .seed = b->seed[row],
        .position = b->position[row],
        .extra = &b->extra[row],
        .history = m->token,
        .history_length = b->has_state ? m->length : 0,
        .prompt_length = b->has_state ? m->prompt : 0,
    };
    return c;
}

static int good_row(const request_batch *b, int64_t row) {
    return b->temperature[row] >= 0 && !isnan(b->top_p[row]) && !isnan(b->min_p[row]) &&
           good_extra(&b->extra[row], b->vocab, b->has_state);
}

static void check_row(const request_batch *b, int64_t i, const written *w, const raffle_report *report, raffle_plan *plan,
                      const raffle_launch *launch) {
    const oracle_case c = case_of(b, i);
    const oracle_answer right = oracle_sample(&c, NULL, NULL);
    MUST(w->token[i] == right.token && w->row_flags[i] == right.row_flags);
    report_row row = report_row_make(&c, b->point);
    MUST(report_id_is(&row, row.token, w->chosen[i], w->rank[i]) && report_same(w->entropy[i], row.entropy));
    MUST(report_top_is(&row, w->top_token + i * TOP, w->top + i * TOP, TOP));
    for (int64_t id = 0; id < b->vocab; ++id) MUST(report_same(w->all[i * b->vocab + id], row.log[id]));
    for (int64_t n = i * GIVEN; n < (i + 1) * GIVEN; ++n)
        MUST(report_id_is(&row, b->given[n], w->given[n], w->given_rank[n]));
    MUST(report_kept_is(&row, report, i));
    report_row_free(&row);
    raffle_explanation told = raffle_explanation_init();
    raffle_logits logits = raffle_logits_init();
    const raffle_params params = params_of(b);
    logits.data = b->data;
    logits.rows = b->rows;
    MUST(raffle_explain(plan, &logits, &params, i, &told, launch, NULL) == RAFFLE_OK);
    MUST(told.token == right.token && told.fates[RAFFLE_KEPT] == right.kept_count);
}

/* What raffle_softmax writes of a batch that raffle_sample takes. */
static void check_softmax(const request_batch *b, raffle_plan *plan, const raffle_logits *logits,
                          const raffle_launch *launch) {
    const raffle_params params = params_of(b);
    raffle_output output = raffle_output_init();
    float value[VOCAB], *data = block((size_t)(b->rows * b->vocab) * 4);
    output.data = data;
    output.flags = b->point == RAFFLE_RAW ? RAFFLE_LOG : 0;
    MUST(raffle_softmax(plan, logits, &params, &output, launch, NULL) == RAFFLE_OK);
    for (int64_t i = 0; i < b->rows; ++i) {
        const oracle_case c = case_of(b, i);
        oracle_probabilities(&c, output.flags == RAFFLE_LOG, value);
        MUST(!memcmp(data + i * b->vocab, value, (size_t)b->vocab * 4));
    }
}

static void run(const request_batch *b, int isa) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    desc.vocab = b->vocab;
    desc.dtype = b->dtype;
    desc.isa = isa;
    desc.flags = RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT;
    desc.history_max = b->pool.state.history_max;
    MUST(raffle_plan_create(&desc, &plan, NULL) == RAFFLE_OK);
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = memset(block_aligned(launch.workspace_bytes), 0xcc, launch.workspace_bytes);
    written *w = memset(block(sizeof *w), 0x5a, sizeof *w), *before = memset(block(sizeof *w), 0x5a, sizeof *w);
    raffle_error error = raffle_error_init();
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    raffle_report report = raffle_report_init();
    const raffle_params params = params_of(b);
    logits.data = b->data;
    logits.rows = b->rows;
    result.token = w->token, result.row_flags = w->row_flags, result.report = &report;
    report.point = b->point;
    report.chosen = w->chosen, report.rank = w->rank, report.entropy = w->entropy;
    report.top_count = TOP, report.top_token = w->top_token, report.top = w->top;
    report.given_count = GIVEN, report.given = b->given, report.given_logprob = w->given,
    report.given_rank = w->given_rank;
    report.all = w->all;
    report.kept = w->kept, report.kept_stride = (b->vocab + 31) / 32, report.kept_count = w->kept_count;
    report.kept_list = w->kept_list, report.kept_list_stride = KEPT_LIST;
    int good = b->point >= RAFFLE_RAW && b->point <= RAFFLE_FILTERED;
    for (int64_t i = 0; i < b->rows; ++i) good = good && good_row(b, i);
    const raffle_status status = raffle_sample(plan, &logits, &params, &result, &launch, &error);
    MUST((status == RAFFLE_OK) == good);
    if (status) {
        error_is_told(&error, status, b->rows);
        MUST(!memcmp(w, before, sizeof *w));
    } else {
        for (int64_t i = 0; i < b->rows; ++i) check_row(b, i, w, &report, plan, &launch);
        check_softmax(b, plan, &logits, &launch);
    }
    raffle_plan_destroy(plan);
}

/* ---- requests by engines' names ---------------------------------------------------------------------------- */

/* Sets values by name; what the library then calls good must be a slot that it takes. */
static void make_request(input *in, request_batch *b, int64_t row) {
    static const char *const names[] = {"temperature",
                                        "temp",
                                        "top_p",
                                        "min_p",
                                        "top_k",
                                        "seed",
                                        "logprobs",
                                        "n_probs",
                                        "repetition_penalty",
                                        "repeat_penalty",
                                        "repeat_last_n",
                                        "frequency_penalty",
                                        "presence_penalty",
                                        "min_tokens",
                                        "no_repeat_ngram_size",
                                        "typical_p",
                                        "typ_p",
                                        "top_n_sigma",
                                        "epsilon_cutoff",
                                        "eta_cutoff",
                                        "xtc_probability",
                                        "xtc_threshold",
                                        "min_tokens_to_keep",
                                        "min_keep",
                                        "dry_multiplier",
                                        "dry_base",
                                        "dry_allowed_length",
                                        "dry_penalty_last_n",
                                        "mirostat",
                                        "best_of",
                                        "",
                                        "top-p"};
    raffle_request r = raffle_request_init(), before;
    raffle_error error = raffle_error_init();
    MUST(raffle_request_start(&r, (raffle_dialect)(take(in, 1) % 3), NULL) == RAFFLE_OK);
    for (int64_t n = below(in, 8); n > 0; --n) {
        const char *name = names[take(in, 1) % 32];
        double value = (double)a_number(in);
        if (often(in)) value = (double)(int8_t)take(in, 1);
        before = r;
        const raffle_status status = raffle_request_set(&r, name, value, &error);
        if (status) error_is_told(&error, status, 0);
        if (status) MUST(!memcmp(&r, &before, sizeof r));
    }
    make_lists(in, b->vocab, &r.extra);
    if (raffle_request_check(&r, b->vocab, &error)) return; /* the slot stays as it was */
    MUST(good_extra(&r.extra, b->vocab, 1) && r.temperature >= 0);
    b->temperature[row] = r.temperature;
    b->top_p[row] = r.top_p;
    b->min_p[row] = r.min_p;
    b->top_k[row] = r.top_k;
    b->seed[row] = r.seed;
    b->extra[row] = r.extra;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    input data = {bytes, bytes + size}, *in = &data;
    request_batch b = {.rows = 1};
    b.vocab = 1 + below(in, often(in) ? VOCAB : 9);
    b.rows += below(in, ROWS);
    b.dtype = (int32_t)(take(in, 1) % 3);
    b.point = rarely(in) ? (int32_t)take(in, 1) - 1 : (int32_t)(take(in, 1) % 3);
    b.has_state = !rarely(in);
    pool_make(in, &b.pool, b.vocab);
    for (int64_t n = below(in, 16); n > 0; --n) pool_change(in, &b.pool);
    for (int64_t i = 0; i < b.rows; ++i) {
        b.temperature[i] = a_temperature(in);
        b.top_p[i] = often(in) ? 1.0f : a_share(in);
        b.min_p[i] = often(in) ? 0.0f : a_share(in);
        b.top_k[i] = often(in) ? 0 : a_count(in, b.vocab);
        b.seed[i] = take(in, 2);
        b.position[i] = take(in, 2);
        for (int n = 0; n < GIVEN; ++n) b.given[i * GIVEN + n] = (int32_t)below(in, b.vocab + 2) - 1;
        if (often(in))
            make_extra(in, b.vocab, &b.extra[i]);
        else
            make_request(in, &b, i);
    }
    const int element = b.dtype == RAFFLE_F32 ? 4 : 2;
    b.data = block((size_t)(b.rows * b.vocab * element));
    fill_logits(in, b.data, b.rows * b.vocab, element);
    for (int isa = RAFFLE_ISA_SCALAR; isa <= RAFFLE_ISA_NEON; ++isa)
        if (raffle_isa_available((raffle_isa)isa)) run(&b, isa);
    blocks_free();
    return 0;
}
