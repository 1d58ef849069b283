/* request_errors.c - every mistake in raffle_extra, raffle_state and raffle_report: the documented error names field and
 * row, and nothing was written. */
#include <math.h>

#include "../common/batch.h"
#include "../common/refusal.h"

enum { ROWS = 3, VOCAB = 70, HISTORY = 20 };

/* A call that is right until a test spoils it. */
static struct {
    runner run;
    raffle_state state;
    float logits[ROWS][VOCAB];
    uint64_t seed[ROWS], position[ROWS];
    raffle_extra extra[ROWS];
    raffle_params params;
    raffle_report report;
    outputs out;
    float number[ROWS * 8];
    int32_t id[ROWS * 8];
} f;

static const int32_t ids[] = {1, 5, 69}, wrong_ids[] = {1, 5, 70}, negative[] = {-1, 5}, falling[] = {5, 1}, twice[] = {4, 4};
static const int32_t words[] = {1, 2, -1, 3, -1}, endless[] = {1, 2, -1, 3}, hollow[] = {1, -1, -1}, beyond[] = {70, -1};
static const float values[] = {1.0f, -2.0f, -INFINITY}, plus[] = {1.0f, INFINITY, 0.0f}, nans[] = {NAN, 0.0f, 0.0f};

static void good(void) {
    memset(f.extra, 0, sizeof f.extra);
    memset(f.logits, 0, sizeof f.logits);
    f.params = raffle_params_init();
    f.params.seed = f.seed;
    f.params.position = f.position;
    f.params.extra = f.extra;
    f.params.extra_bytes = sizeof *f.extra;
    f.params.state = &f.state;
    f.report = raffle_report_init();
    outputs_poison(&f.out);
    f.out.result.report = &f.report;
    memset(f.number, GUARD, sizeof f.number);
}

static raffle_status call(raffle_error *error) {
    raffle_logits logits = raffle_logits_init();
    logits.data = f.logits;
    logits.rows = ROWS;
    return raffle_sample(f.run.plan, &logits, &f.params, &f.out.result, &f.run.launch, error);
}

static void refused(raffle_status status, int64_t row, const char *field) {
    raffle_error error = raffle_error_init();
    outputs before;
    outputs_poison(&before);
    f.report.chosen = f.report.chosen ? f.report.chosen : f.number;
    CHECK_STATUS(call(&error), status);
    error_tells(&error, status, row, field);
    CHECK(!memcmp(before.token, f.out.token, sizeof before.token) && ((unsigned char *)f.number)[0] == GUARD, "%s: written", field);
    good();
}

#define ROW_REFUSED(field, value)                                                                                      \
    do {                                                                                                               \
        f.extra[1].field = value;                                                                                      \
        refused(RAFFLE_E_ARGUMENT, 1, #field);                                                                         \
    } while (0)
#define LIST_REFUSED(list, counter, values, name)                                                                      \
    do {                                                                                                               \
        f.extra[2].list = values;                                                                                      \
        f.extra[2].counter = (int32_t)(sizeof values / sizeof *values);                                                \
        refused(RAFFLE_E_ARGUMENT, 2, name);                                                                           \
    } while (0)

TEST(fine) {
    f.extra[0].bias_id = ids;
    f.extra[0].bias = values;
    f.extra[0].bias_count = 3;
    f.extra[1].bad_words = words;
    f.extra[1].bad_words_count = 5;
    raffle_error error = raffle_error_init();
    CHECK(call(&error) == RAFFLE_OK, "%s", error.text);
    good();
    f.params.state = NULL;
    CHECK(call(&error) == RAFFLE_OK, "no history is fine where nothing needs one: %s", error.text);
    good();
}

TEST(numbers) {
    ROW_REFUSED(flags, 64);
    ROW_REFUSED(repetition, -1.0f);
    ROW_REFUSED(repetition, NAN);
    ROW_REFUSED(repetition, INFINITY);
    ROW_REFUSED(frequency, NAN);
    ROW_REFUSED(frequency, 2e9f);
    ROW_REFUSED(presence, -INFINITY);
    ROW_REFUSED(presence, NAN);
    ROW_REFUSED(penalty_window, -1);
    ROW_REFUSED(no_repeat_ngram, -1);
    ROW_REFUSED(dry_multiplier, -1.0f);
    ROW_REFUSED(dry_multiplier, NAN);
    ROW_REFUSED(dry_base, 0.5f);
    ROW_REFUSED(dry_base, NAN);
    ROW_REFUSED(dry_allowed, -1);
    ROW_REFUSED(dry_range, -1);
    ROW_REFUSED(min_tokens, -1);
    ROW_REFUSED(top_n_sigma, NAN);
    ROW_REFUSED(epsilon, NAN);
    ROW_REFUSED(eta, NAN);
    ROW_REFUSED(typical_p, NAN);
    ROW_REFUSED(xtc_probability, NAN);
    ROW_REFUSED(xtc_threshold, NAN);
    ROW_REFUSED(keep_least, -1);
}

TEST(lists) {
    LIST_REFUSED(banned, banned_count, wrong_ids, "banned[2]");
    LIST_REFUSED(banned, banned_count, negative, "banned[0]");
    LIST_REFUSED(allowed, allowed_count, falling, "allowed[1]");
    LIST_REFUSED(stop, stop_count, twice, "stop[1]");
    LIST_REFUSED(breaker, breaker_count, wrong_ids, "breaker[2]");
    LIST_REFUSED(bias_id, bias_count, wrong_ids, "bias_id[2]");
    LIST_REFUSED(bad_words, bad_words_count, endless, "bad_words");
    LIST_REFUSED(bad_words, bad_words_count, hollow, "bad_words[2]");
    LIST_REFUSED(bad_words, bad_words_count, beyond, "bad_words[0]");
    f.extra[1].banned_count = 1;
    refused(RAFFLE_E_ARGUMENT, 1, "banned of row 1 is NULL");
    ROW_REFUSED(banned_count, -1);
    f.extra[1].bias_count = -1;
    refused(RAFFLE_E_ARGUMENT, 1, "bias_count of row 1 is -1");
    ROW_REFUSED(allowed_count, VOCAB + 1);
    f.extra[1].bad_words_count = 1;
    refused(RAFFLE_E_ARGUMENT, 1, "bad_words of row 1 is NULL");
    ROW_REFUSED(bad_words_count, RAFFLE_VOCAB_MAX + 1);
    f.extra[0].bias = plus;
    f.extra[0].bias_id = ids;
    f.extra[0].bias_count = 3;
    refused(RAFFLE_E_ARGUMENT, 0, "bias[1]");
    f.extra[0].bias = nans;
    f.extra[0].bias_id = ids;
    f.extra[0].bias_count = 3;
    refused(RAFFLE_E_ARGUMENT, 0, "bias[0]");
    f.extra[0].bias_id = ids;
    f.extra[0].bias_count = 3;
    refused(RAFFLE_E_ARGUMENT, 0, "bias");
}

/* What looks back needs something to look at. */
TEST(needs_a_history) {
    for (int i = 0; i < 7; ++i) {
        static const char *const name[] = {"repetition", "frequency", "presence", "no_repeat_ngram", "dry_multiplier", "min_tokens", "bad_words"};
        raffle_extra *e = &f.extra[1];
        f.params.state = NULL;
        if (i == 0) e->repetition = 1.2f;
        if (i == 1) e->frequency = 1;
        if (i == 2) e->presence = 1;
        if (i == 3) e->no_repeat_ngram = 2;
        if (i == 4) e->dry_multiplier = 1;
        if (i == 5) e->min_tokens = 1;
        if (i == 6) e->bad_words = words, e->bad_words_count = 5;
        refused(RAFFLE_E_ARGUMENT, 1, name[i]);
    }
}

TEST(calls) {
    raffle_state other = f.state;
    f.params.extra_bytes = 0;
    refused(RAFFLE_E_STRUCT, -1, "extra_bytes");
    f.params.extra_bytes = sizeof *f.extra + 8;
    refused(RAFFLE_E_STRUCT, -1, "extra_bytes");
    f.params.state = &other;
    other.vocab = VOCAB + 1;
    refused(RAFFLE_E_ARGUMENT, -1, "vocab");
    other = f.state;
    other.backend = RAFFLE_CUDA;
    f.params.state = &other;
    refused(RAFFLE_E_ARGUMENT, -1, "backend");
    other = f.state;
    other.history_max = HISTORY + 1;
    f.params.state = &other;
    refused(RAFFLE_E_ARGUMENT, -1, "history_max");
    other = f.state;
    other.slots = ROWS - 1;
    f.params.state = &other;
    refused(RAFFLE_E_ARGUMENT, -1, "params.slots");
    other = f.state;
    other.device = 3;
    f.params.state = &other;
    refused(RAFFLE_E_ARGUMENT, -1, "state.device is 3: must be 0 for the CPU");
    other = f.state;
    other.memory = (char *)f.state.memory + 4;
    f.params.state = &other;
    refused(RAFFLE_E_ARGUMENT, -1, "memory");
    other.memory = NULL;
    f.params.state = &other;
    refused(RAFFLE_E_ARGUMENT, -1, "memory");
    other = f.state;
    other.size = 8;
    f.params.state = &other;
    refused(RAFFLE_E_STRUCT, -1, "raffle_state");
    runner plain = runner_make(RAFFLE_F32, VOCAB, RAFFLE_ISA_BEST), own = f.run;
    f.run = plain;
    f.params.state = NULL;
    refused(RAFFLE_E_ARGUMENT, -1, "RAFFLE_PLAN_EXTRA");
    f.params.state = NULL;
    f.params.extra = NULL;
    refused(RAFFLE_E_ARGUMENT, -1, "RAFFLE_PLAN_REPORT");
    f.run = own;
    runner_free(plain);
}

TEST(reports) {
    f.report.point = 3;
    refused(RAFFLE_E_ARGUMENT, -1, "point");
    f.report.top_count = RAFFLE_TOP_MAX + 1;
    f.report.top = f.number;
    refused(RAFFLE_E_ARGUMENT, -1, "top_count");
    f.report.top_count = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "top_count");
    f.report.top_count = 2;
    refused(RAFFLE_E_ARGUMENT, -1, "top");
    f.report.given_count = 2;
    refused(RAFFLE_E_ARGUMENT, -1, "given");
    f.report.given_count = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "given_count");
    f.report.all_stride = VOCAB - 1;
    refused(RAFFLE_E_ARGUMENT, -1, "all_stride");
    f.report.all_stride = INT64_MAX / 2; /* its rows would wrap around memory */
    refused(RAFFLE_E_ARGUMENT, -1, "all_stride");
    f.report.size = 4;
    refused(RAFFLE_E_STRUCT, -1, "raffle_report");
    f.report.size = offsetof(raffle_report, kept) - 1;
    refused(RAFFLE_E_STRUCT, -1, "raffle_report");
}

/* Where kept sets go, as in raffle_output; a caller whose report has no such fields is not asked for them. */
TEST(reports_of_kept_sets) {
    enum { WORDS = (VOCAB + 31) / 32, ROOM = 2 };
    uint32_t kept[ROWS * WORDS] = {0};
    f.report.kept_stride = WORDS - 1;
    refused(RAFFLE_E_ARGUMENT, -1, "report.kept_stride");
    f.report.kept_stride = -WORDS;
    refused(RAFFLE_E_ARGUMENT, -1, "report.kept_stride");
    f.report.kept_stride = INT64_MAX / 4;
    refused(RAFFLE_E_ARGUMENT, -1, "report.kept_stride");
    f.report.kept_list = f.id;
    refused(RAFFLE_E_ARGUMENT, -1, "report.kept_list_stride");
    f.report.kept_list = f.id;
    f.report.kept_list_stride = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "report.kept_list_stride");
    f.report.kept_list = f.id;
    f.report.kept_list_stride = INT64_MAX / 4;
    refused(RAFFLE_E_ARGUMENT, -1, "report.kept_list_stride");
    f.report.kept_list_stride = -1; /* nobody uses it */
    CHECK_STATUS(call(NULL), RAFFLE_OK);
    good();
    memset(f.id, GUARD, sizeof f.id);
    f.report.kept = kept;
    f.report.kept_list = f.id;
    f.report.kept_list_stride = ROOM;
    f.report.kept_count = f.id + ROWS * ROOM;
    CHECK_STATUS(call(NULL), RAFFLE_OK);
    for (int row = 0; row < ROWS; ++row) {
        CHECK(kept[row * WORDS] == ~0u && kept[row * WORDS + 2] == (1u << VOCAB % 32) - 1, "row %d: bits", row);
        CHECK(f.id[row * ROOM] == 0 && f.id[row * ROOM + 1] == 1 && f.id[ROWS * ROOM + row] == VOCAB, "row %d: list, count", row);
    }
    memset(f.id, GUARD, sizeof f.id);
    f.report.size = offsetof(raffle_report, kept); /* a caller of the first release */
    CHECK_STATUS(call(NULL), RAFFLE_OK);
    for (size_t i = 0; i < sizeof f.id; ++i) CHECK_EQ(((unsigned char *)f.id)[i], GUARD);
    good();
}

/* ---- raffle_state_* ---- */

enum { CLEAR, PROMPT, ACCEPT, TRUNCATE, RESET, FORK };
static raffle_status change(int what, const raffle_state *s, const raffle_tokens *t, raffle_error *e) {
    return what == CLEAR      ? raffle_state_clear(s, t ? t->stream : NULL, e)
           : what == PROMPT   ? raffle_state_prompt(s, t, e)
           : what == ACCEPT   ? raffle_state_accept(s, t, e)
           : what == TRUNCATE ? raffle_state_truncate(s, t, e)
           : what == RESET    ? raffle_state_reset(s, t, e)
                              : raffle_state_fork(s, t, e);
}

static void change_refused(int what, const raffle_state *s, const raffle_tokens *t, raffle_status status, int64_t row, const char *field) {
    size_t bytes = raffle_state_bytes(&f.state);
    char *before = malloc(bytes);
    memcpy(before, f.state.memory, bytes);
    raffle_error error = raffle_error_init();
    CHECK_STATUS(change(what, s, t, &error), status);
    CHECK(error.row == row && strstr(error.text, field), "row %lld: \"%s\" should name %s", (long long)error.row, error.text, field);
    CHECK(!memcmp(before, f.state.memory, bytes), "%s: the state was written", field);
    free(before);
}

TEST(states) {
    raffle_tokens t = raffle_tokens_init();
    const int32_t slot[2] = {0, 2}, bad_slot[2] = {0, ROWS}, below[2] = {-1, 0};
    int32_t token[2 * 30], count[2] = {1, 2}, bad_count[2] = {0, 4}, minus[2] = {0, -1};
    for (int i = 0; i < 60; ++i) token[i] = i;
    CHECK_STATUS(raffle_state_clear(&f.state, NULL, NULL), RAFFLE_OK);
    for (int what = PROMPT; what <= FORK; ++what) {
        t = raffle_tokens_init();
        t.rows = 2;
        count[0] = what == TRUNCATE ? 0 : 1;
        t.slot = bad_slot;
        t.token = token;
        t.count = count;
        t.stride = 3;
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "slot");
        t.slot = below;
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, 0, "slot");
        t.slot = slot;
        t.rows = -1;
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "rows");
        t.rows = ROWS + 1;
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "rows");
        t.rows = 2;
        t.stride = -1;
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "stride");
        t.stride = INT64_MAX / 2;
        if (what == PROMPT || what == ACCEPT || what == FORK) change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "stride");
        t.stride = 3;
        t.reserved = 1;
        change_refused(what, &f.state, &t, RAFFLE_E_STRUCT, -1, "reserved");
        t.reserved = 0;
        t.stream = (struct CUstream_st *)&t;
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "stream");
        change_refused(what, &f.state, NULL, RAFFLE_E_ARGUMENT, -1, "raffle_tokens");
        t.size = 3;
        change_refused(what, &f.state, &t, RAFFLE_E_STRUCT, -1, "raffle_tokens");
    }
    t = raffle_tokens_init();
    t.rows = 2;
    t.slot = slot;
    t.stride = 3;
    const int32_t same[2] = {2, 2}, crossed[2] = {2, 0}, away[2] = {0, 1}, nothing[2] = {0, -7};
    for (int what = PROMPT; what <= RESET; ++what) {
        t.slot = same;
        t.token = token;
        t.count = what == TRUNCATE ? (const int32_t[]){0, 0} : count;
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "slot 2 of row 1");
    }
    t.slot = away;
    t.token = same;
    t.stride = 1;
    change_refused(FORK, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "slot 2 of row 1");
    t.slot = slot;
    t.token = crossed;
    change_refused(FORK, &f.state, &t, RAFFLE_E_ARGUMENT, 0, "slot 0 of row 0");
    t.slot = same;
    t.token = away;
    t.count = nothing; /* not used */
    CHECK_STATUS(raffle_state_fork(&f.state, &t, NULL), RAFFLE_OK); /* a slot may be copied twice */
    t.slot = away;
    CHECK_STATUS(raffle_state_reset(&f.state, &t, NULL), RAFFLE_OK);
    t = raffle_tokens_init();
    t.rows = 2;
    t.slot = slot;
    t.stride = 3;
    change_refused(PROMPT, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "token");
    change_refused(FORK, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "token");
    change_refused(TRUNCATE, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "count");
    t.token = token;
    t.count = bad_count;
    change_refused(PROMPT, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "count");
    change_refused(ACCEPT, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "count");
    change_refused(TRUNCATE, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "count");
    t.count = minus;
    change_refused(ACCEPT, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "count");
    t.count = NULL;
    t.stride = HISTORY + 1;
    change_refused(PROMPT, &f.state, &t, RAFFLE_E_ARGUMENT, 0, "room for 20");
    change_refused(ACCEPT, &f.state, &t, RAFFLE_E_ARGUMENT, 0, "room for 20");
    t.stride = 3;
    token[4] = VOCAB;
    change_refused(PROMPT, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "token 1");
    change_refused(ACCEPT, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "token 1");
    token[4] = -2;
    change_refused(ACCEPT, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "token 1");
    token[4] = RAFFLE_NO_TOKEN; /* ends what is accepted, but is no prompt */
    change_refused(PROMPT, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "token 1");
    CHECK_STATUS(raffle_state_accept(&f.state, &t, NULL), RAFFLE_OK);
    int64_t length;
    raffle_state_history(&f.state, 2, NULL, &length);
    CHECK_EQ(length, 1);
    raffle_state_history(&f.state, 0, NULL, &length);
    CHECK_EQ(length, 3);
    CHECK_STATUS(raffle_state_clear(&f.state, NULL, NULL), RAFFLE_OK);
}

/* Offsets of rows that do not belong together, and where there are none. */
TEST(states_of_ragged_rows) {
    int32_t first[3] = {0, 3, 5}, count[2] = {3, 3};
    const int32_t slot[2] = {0, 2}, token[5] = {1, 2, 3, 4, VOCAB};
    CHECK_STATUS(raffle_state_clear(&f.state, NULL, NULL), RAFFLE_OK);
    raffle_tokens good = raffle_tokens_init();
    good.rows = 2;
    good.slot = slot;
    good.token = token;
    good.first = first;
    for (int what = PROMPT; what <= FORK; ++what) {
        raffle_tokens t = good;
        t.count = what == TRUNCATE ? count : NULL;
        if (what > ACCEPT) {
            change_refused(what, &f.state, &t, RAFFLE_E_UNSUPPORTED, -1, "tokens.first");
            continue;
        }
        change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "token 1 of row 1");
        t.stride = 1, change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, -1, "stride"), t = good;
        t.count = count, change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "count of row 1"), t = good;
        first[2] = 2, change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, 1, "first of row 1"), first[2] = 5;
        first[0] = -1, change_refused(what, &f.state, &t, RAFFLE_E_ARGUMENT, 0, "first of row 0"), first[0] = 0;
    }
    good.size = offsetof(raffle_tokens, first); /* a caller of an older header */
    good.stride = 1;
    CHECK_STATUS(raffle_state_accept(&f.state, &good, NULL), RAFFLE_OK);
    CHECK_STATUS(raffle_state_clear(&f.state, NULL, NULL), RAFFLE_OK);
}

/* What the host can see is refused for slots on a GPU as well, whether or not there is one. The memory of this pool is the
 * host's: no call may get through. */
TEST(states_of_cuda) {
    static const int32_t number[2] = {0, 1};
    raffle_state s = f.state;
    s.backend = RAFFLE_CUDA;
    CHECK(raffle_state_bytes(&s) == raffle_state_bytes(&f.state), "slots have another size");
    CHECK(!raffle_state_history(&s, 0, NULL, NULL), "device memory was read by the host");
    for (int what = PROMPT; what <= FORK; ++what) {
        raffle_tokens good = raffle_tokens_init();
        good.rows = 2;
        good.slot = good.token = good.count = number;
        good.stream = (struct CUstream_st *)&good; /* not looked at */
        raffle_tokens t = good;
        t.rows = ROWS + 1, change_refused(what, &s, &t, RAFFLE_E_ARGUMENT, -1, "rows"), t = good;
        t.rows = -1, change_refused(what, &s, &t, RAFFLE_E_ARGUMENT, -1, "rows"), t = good;
        t.stride = -1, change_refused(what, &s, &t, RAFFLE_E_ARGUMENT, -1, "stride"), t = good;
        t.reserved = 1, change_refused(what, &s, &t, RAFFLE_E_STRUCT, -1, "reserved"), t = good;
        t.size = 3, change_refused(what, &s, &t, RAFFLE_E_STRUCT, -1, "raffle_tokens"), t = good;
        t.token = t.count = NULL;
        if (what != RESET) change_refused(what, &s, &t, RAFFLE_E_ARGUMENT, -1, what == TRUNCATE ? "count" : "token");
        raffle_state bad = s;
        bad.device = -1, change_refused(what, &bad, &good, RAFFLE_E_ARGUMENT, -1, "device"), bad = s;
        bad.slots = 0, change_refused(what, &bad, &good, RAFFLE_E_ARGUMENT, -1, "slots"), bad = s;
        bad.memory = NULL, change_refused(what, &bad, &good, RAFFLE_E_ARGUMENT, -1, "memory"), bad = s;
        bad.memory = (char *)s.memory + 16, change_refused(what, &bad, &good, RAFFLE_E_ARGUMENT, -1, "memory");
        if (raffle_cuda_available(NULL, 0)) continue;
        raffle_error error = raffle_error_init();
        const raffle_status status = change(what, &s, &good, &error);
        CHECK(status == RAFFLE_E_UNSUPPORTED || status == RAFFLE_E_DEVICE, "status %d: %s", status, error.text);
    }
}

/* A caller of the first release has no row_flags; others get a 0 for each row. */
TEST(row_flags) {
    static const int32_t token[2] = {3, 4};
    uint32_t flags[3] = {7, 7, 7};
    raffle_tokens t = raffle_tokens_init();
    t.rows = 2;
    t.token = token;
    t.row_flags = flags;
    t.size = offsetof(raffle_tokens, row_flags);
    CHECK_STATUS(raffle_state_accept(&f.state, &t, NULL), RAFFLE_OK);
    CHECK(flags[0] == 7, "written behind the caller's struct");
    t.size = sizeof t;
    CHECK_STATUS(raffle_state_accept(&f.state, &t, NULL), RAFFLE_OK);
    CHECK(!flags[0] && !flags[1] && flags[2] == 7, "%u %u %u", flags[0], flags[1], flags[2]);
    flags[0] = 7;
    t.token = (const int32_t[]){3, VOCAB};
    CHECK_STATUS(raffle_state_accept(&f.state, &t, NULL), RAFFLE_E_ARGUMENT);
    CHECK(flags[0] == 7, "flags of a call that was refused");
    CHECK_STATUS(raffle_state_clear(&f.state, NULL, NULL), RAFFLE_OK);
}

TEST(state_sizes) {
    raffle_state s = f.state;
    CHECK(raffle_state_bytes(NULL) == 0, "NULL has a size");
    s.slots = 0;
    CHECK_EQ(raffle_state_bytes(&s), 0);
    s = f.state;
    s.history_max = RAFFLE_HISTORY_MAX + 1;
    CHECK_EQ(raffle_state_bytes(&s), 0);
    s.history_max = 131072;
    s.vocab = 128256;
    s.slots = 4096;
    s.memory = NULL;
    CHECK(raffle_state_bytes(&s) / 4096 == 64 + 131072 * 4 + 128256 * 8 + 262144 * 4, "%zu", raffle_state_bytes(&s) / 4096);
    s.history_max = 4096;
    CHECK(raffle_state_bytes(&s) / 4096 == 64 + 4096 * 4 + (4096 + 512 + 16) * 8 + 8192 * 4, "%zu bytes a slot", raffle_state_bytes(&s) / 4096);
    CHECK(raffle_state_history(&f.state, ROWS, NULL, NULL) == NULL, "a slot outside has a history");
    CHECK(raffle_state_history(&f.state, -1, NULL, NULL) == NULL, "a slot outside has a history");
}

TEST(ids_sort) {
    int32_t list[] = {9, 3, 9, 1, 3, 7};
    float value[] = {1, 2, 3, 4, 5, 6};
    CHECK_EQ(raffle_ids_sort(list, value, 6), 4);
    const int32_t wanted[] = {1, 3, 7, 9};
    const float wanted_value[] = {4, 5, 6, 3};
    CHECK(!memcmp(list, wanted, sizeof wanted) && !memcmp(value, wanted_value, sizeof wanted_value), "not sorted, or not the last");
    CHECK_EQ(raffle_ids_sort(NULL, NULL, 0), 0);
    CHECK_EQ(raffle_ids_sort(NULL, NULL, 5), 0);
}

int main(void) {
    f.run = runner_make_for(RAFFLE_F32, VOCAB, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, HISTORY);
    f.state = raffle_state_init();
    f.state.slots = ROWS;
    f.state.history_max = HISTORY;
    f.state.vocab = VOCAB;
    f.state.memory = test_alloc(raffle_state_bytes(&f.state));
    raffle_state_clear(&f.state, NULL, NULL);
    good();
    RUN(fine);
    RUN(numbers);
    RUN(lists);
    RUN(needs_a_history);
    RUN(calls);
    RUN(reports);
    RUN(reports_of_kept_sets);
    RUN(states);
    RUN(states_of_ragged_rows);
    RUN(states_of_cuda);
    RUN(row_flags);
    RUN(state_sizes);
    RUN(ids_sort);
    runner_free(f.run);
    free(f.state.memory);
    return test_report("request_errors");
}
