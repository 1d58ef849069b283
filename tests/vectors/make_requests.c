/* make_requests.c - writes requests.txt to stdout from the oracle. See README.md. */
#include "../common/batch.h"
#include "../common/pick_extra.h"
#include "../common/report_row.h"
#include "request_file.h"

static const char head[] =
    "# Requests with all that they can ask for, and what every build and language of raffle must answer; made by\n"
    "# make_requests from the oracle, read by request_file.h. The first 14 columns are those of vectors.txt. Then: a "
    "hash of\n"
    "# what raffle_softmax writes in f32, and with RAFFLE_LOG (FNV-1a over the floats' bits); the log-probability of "
    "the token,\n"
    "# its rank and the entropy as raffle_report tells them at RAFFLE_RAW, RAFFLE_TEMPERED and RAFFLE_FILTERED, floats "
    "as bits;\n"
    "# and fields of raffle_extra by name. bad_words is the list with its -1; prompt and output are the history.\n"
    "# kind row_seed vocab dtype temperature top_k top_p min_p flags allow seed position token row_flags law log\n"
    "#   chosen rank entropy (raw) chosen rank entropy (tempered) chosen rank entropy (filtered) [name=value ...]\n";

static void write_ids(const char *name, const int32_t *ids, const float *values, int64_t count) {
    if (count) printf(" %s=", name);
    for (int64_t i = 0; i < count; ++i) {
        printf("%s%d", i ? "," : "", ids[i]);
        if (values) printf(":%a", (double)values[i]);
    }
}

static void write_extra(const oracle_case *c) {
    const raffle_extra *e = c->extra;
    for (int i = 0; i < REQUEST_FIELDS; ++i) {
        const char *field = (const char *)e + request_fields[i].at;
        float real;
        int32_t whole;
        memcpy(&real, field, sizeof real);
        memcpy(&whole, field, sizeof whole);
        if (whole && request_fields[i].real)
            printf(" %s=%a", request_fields[i].name, (double)real);
        else if (whole)
            printf(" %s=%d", request_fields[i].name, whole);
    }
    write_ids("bias", e->bias_id, e->bias, e->bias_count);
    write_ids("banned", e->banned, NULL, e->banned_count);
    write_ids("allowed", e->allowed, NULL, e->allowed_count);
    write_ids("stop", e->stop, NULL, e->stop_count);
    write_ids("breaker", e->breaker, NULL, e->breaker_count);
    write_ids("bad_words", e->bad_words, NULL, e->bad_words_count);
    write_ids("prompt", c->history, NULL, c->prompt_length);
    write_ids("output", c->history + c->prompt_length, NULL, c->history_length - c->prompt_length);
}

static void write_line(const oracle_case *c, const char *kind, uint64_t row_seed, uint64_t allow_seed) {
    oracle_answer a = oracle_sample(c, NULL, NULL);
    float *value = malloc((size_t)c->vocab * 4);
    printf("%s %llu %lld %s %a %d %a %a %u %llu %llu %llu %d %u", kind, (unsigned long long)row_seed,
           (long long)c->vocab, dtype_names[c->dtype], (double)c->temperature, c->top_k, (double)c->top_p,
           (double)c->min_p, c->flags, (unsigned long long)allow_seed, (unsigned long long)c->seed,
           (unsigned long long)c->position, a.token, a.row_flags);
    for (int logarithms = 0; logarithms < 2; ++logarithms) {
        oracle_probabilities(c, logarithms, value);
        printf(" %016llx", (unsigned long long)request_hash(value, c->vocab));
    }
    for (int point = RAFFLE_RAW; point <= RAFFLE_FILTERED; ++point) {
        report_row r = report_row_make(c, point);
        const int there = r.token >= 0 && !r.empty;
        int rank = there;
        for (int64_t i = 0; there && i < c->vocab; ++i) rank += r.x[i] > r.x[r.token];
        printf(" %08x %d %08x", request_bits(there ? r.log[r.token] : NAN), rank, request_bits(r.entropy));
        report_row_free(&r);
    }
    write_extra(c);
    printf("\n");
    free(value);
}

static int short_lists(const raffle_extra *e) {
    enum { MOST = 14 };
    return e->bias_count <= MOST && e->banned_count <= MOST && e->allowed_count <= MOST && e->stop_count <= MOST &&
           e->breaker_count <= MOST;
}

static void write_case(const char *kind, int64_t vocab, int dtype, uint32_t wish, test_random *r) {
    static arena lists;
    int32_t history[REQUEST_LIST_MAX];
    const uint64_t row_seed = (uint64_t)random_below(r, 1000),
                   allow_seed = random_below(r, 5) ? 0 : 1 + (uint64_t)random_below(r, 1000);
    void *row = malloc((size_t)vocab * 4);
    uint32_t *allow = malloc((size_t)(vocab + 31) / 32 * 4);
    vector_row_make(kind, row_seed, vocab, dtype, row);
    vector_allow_make(allow_seed, vocab, allow);
    const int64_t length = wish ? random_below(r, REQUEST_LIST_MAX + 1) : 0,
                  prompt = pick_history(r, vocab, history, length);
    raffle_extra extra;
    do extra = pick_extra(r, &lists, wish, vocab, history, length, length - prompt);
    while (!short_lists(&extra));
    extra.flags &= ~RAFFLE_EMPTY_IS_ZERO;
    oracle_case c = {.row = row,
                     .dtype = dtype,
                     .vocab = vocab,
                     .allow = allow_seed ? allow : NULL,
                     .extra = &extra,
                     .history = history,
                     .history_length = length,
                     .prompt_length = prompt,
                     .temperature = random_below(r, 3) ? (float)(0.3 + random_unit(r) * 2) : pick_temperature(r),
                     .top_k = random_below(r, 3) ? 0 : pick_top_k(r, vocab),
                     .top_p = random_below(r, 2) ? 1.0f : pick_top_p(r),
                     .min_p = random_below(r, 2) ? 0.0f : pick_min_p(r),
                     .flags = pick_flags(r) & ~RAFFLE_EMPTY_IS_ZERO,
                     .seed = random_bits(r) >> random_below(r, 64),
                     .position = random_bits(r) >> random_below(r, 64)};
    write_line(&c, kind, row_seed, allow_seed);
    free(allow);
    free(row);
    arena_free(&lists);
}

/* What decides of a raffle_extra whether a row is proposed, top-p being 0.6. `proposals`: until one is kept; 0: it is not. */
static const struct {
    raffle_extra extra;
    float temperature;
    int proposals;
} proposed_rows[] = {
    {{.keep_least = 1}, 1.25f, 2},
    {{.keep_least = 2}, 1.25f, 0},
    {{.typical_p = 1.0f, .xtc_probability = 1.0f, .xtc_threshold = 0x1.000002p-1f}, 1.25f, 2}, /* both off */
    {{.typical_p = 0x1.fffffep-1f}, 1.25f, 0},
    {{.xtc_probability = 0x1p-149f, .xtc_threshold = 0.5f}, 1.25f, 0}, /* on, though it never acts */
    {{.epsilon = 0x1p-149f}, 1.25f, 0},
    {{.eta = 0x1p-149f, .flags = RAFFLE_SHAPE_LAST}, 1.25f, 0},
    {{.top_n_sigma = 1e9f}, 1.25f, 0},
    {{.flags = RAFFLE_FILTERS_FIRST}, 1.25f, 0},
    {{.flags = RAFFLE_FILTERS_FIRST}, 1.0f, 3},
    {{.repetition = 1.25f, .frequency = 0.5f}, 1.25f, 2},
};

static void write_proposed(int i, test_random *r) {
    enum { VOCAB = 4097 };
    static float row[VOCAB];
    static const int32_t history[] = {3, 7, 3, 1100};
    oracle_case c = {.row = row, .dtype = RAFFLE_F32, .vocab = VOCAB, .extra = &proposed_rows[i].extra, .history = history,
                     .history_length = 4, .prompt_length = 1, .temperature = proposed_rows[i].temperature, .top_p = 0.6f};
    const uint64_t row_seed = (uint64_t)random_below(r, 1000);
    vector_row_make("flat", row_seed, VOCAB, RAFFLE_F32, row);
    c.seed = random_bits(r) >> 32;
    while (oracle_sample(&c, NULL, NULL).proposals != proposed_rows[i].proposals) ++c.position;
    write_line(&c, "flat", row_seed, 0);
}

int main(void) {
    static const int64_t sizes[] = {7, 257, 999, 4097};
    test_random r = {20261115};
    int turn = 0;
    fputs(head, stdout);
    printf("# Nothing but the row: the bits of softmax.\n");
    for (int k = 0; k < ROW_KINDS; ++k)
        for (int i = 0; i < 4; ++i) write_case(row_kinds[k], sizes[i], turn++ % 3, 0, &r);
    for (int i = 0; i < 6; ++i) write_case(row_kinds[i * 3], 49152, turn++ % 3, 0, &r);
    printf("# Each feature alone, then mixtures.\n");
    for (uint32_t wish = 1; wish <= PICK_ALL; wish *= 2)
        for (int i = 0; i < 5; ++i) write_case(row_kinds[i], sizes[turn % 4], turn % 3, wish, &r), ++turn;
    for (int i = 0; i < 150; ++i, ++turn) { /* in this order, whatever the compiler's is */
        const char *kind = row_kinds[random_below(&r, ROW_KINDS)];
        uint32_t wish = (uint32_t)random_bits(&r) & PICK_ALL;
        wish &= (uint32_t)random_bits(&r);
        write_case(kind, sizes[turn % 4], turn % 3, wish, &r);
    }
    printf("# Rows whose token is proposed, and such that are not, for one thing alone.\n");
    for (int i = 0; i < (int)(sizeof proposed_rows / sizeof *proposed_rows); ++i) write_proposed(i, &r);
    return 0;
}
