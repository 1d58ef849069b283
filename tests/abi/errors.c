/* errors.c - every documented error of the API: its status, a sentence that names the field, the row, and
 * that nothing was written. Each case starts from a call that works and spoils one thing. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "common/refusal.h"

enum { ROWS = 3, VOCAB = 300, WORDS = (VOCAB + 31) / 32, TOP = 4 };
static const int32_t TOKEN_BEFORE = 0x5a5a5a5a;
static const uint32_t FLAGS_BEFORE = 0xa5a5a5a5u;

/* A call that works, and everything it points to. */
typedef struct fixture {
    raffle_plan *plan;
    raffle_logits logits;
    raffle_params params;
    raffle_result result;
    raffle_launch launch;
    raffle_explanation explanation;
    int64_t explain_row;
    float data[ROWS * VOCAB], temperature[ROWS], top_p[ROWS], min_p[ROWS];
    int32_t top_k[ROWS], slot[ROWS], token[ROWS];
    uint32_t row_flags[ROWS], allow[ROWS * WORDS];
    uint64_t seed[ROWS], position[ROWS];
    raffle_candidate top[TOP];
    _Alignas(RAFFLE_WORKSPACE_ALIGN) char workspace[1 << 18];
} fixture;
static fixture f;

static void fixture_reset(void) {
    raffle_plan *plan = f.plan;
    memset(&f, 0, sizeof f);
    f.plan = plan;
    for (int i = 0; i < ROWS * VOCAB; ++i) f.data[i] = (float)(i % 17) * 0.25f;
    for (int i = 0; i < ROWS; ++i) {
        f.temperature[i] = 0.8f;
        f.top_p[i] = 0.9f;
        f.min_p[i] = 0.01f;
        f.top_k[i] = 40;
        f.slot[i] = i;
        f.seed[i] = 7;
        f.position[i] = (uint64_t)i;
        f.token[i] = TOKEN_BEFORE;
        f.row_flags[i] = FLAGS_BEFORE;
    }
    memset(f.allow, 0xff, sizeof f.allow);
    f.logits = raffle_logits_init();
    f.logits.data = f.data;
    f.logits.rows = ROWS;
    f.params = raffle_params_init();
    f.params.slots = ROWS;
    f.params.slot = f.slot;
    f.params.temperature = f.temperature;
    f.params.top_p = f.top_p;
    f.params.min_p = f.min_p;
    f.params.top_k = f.top_k;
    f.params.seed = f.seed;
    f.params.position = f.position;
    f.params.allow = f.allow;
    f.result = raffle_result_init();
    f.result.token = f.token;
    f.result.row_flags = f.row_flags;
    f.launch = raffle_launch_init();
    f.launch.workspace = f.workspace;
    f.launch.workspace_bytes = raffle_plan_workspace(f.plan);
    f.explanation = raffle_explanation_init();
    f.explanation.top = f.top;
    f.explanation.top_count = TOP;
}

static int untouched(const raffle_explanation *before, const raffle_candidate *top_before) {
    for (int i = 0; i < ROWS; ++i)
        if (f.token[i] != TOKEN_BEFORE || f.row_flags[i] != FLAGS_BEFORE) return 0;
    return !memcmp(before, &f.explanation, sizeof f.explanation) && !memcmp(top_before, f.top, sizeof f.top);
}

/* A call as public pointers: a NULL here is a NULL there. */
typedef struct pointers {
    const raffle_plan *plan;
    const raffle_logits *logits;
    const raffle_params *params;
    const raffle_result *result;
    const raffle_launch *launch;
    raffle_explanation *explanation;
} pointers;
static pointers good(void) {
    pointers p = {f.plan, &f.logits, &f.params, &f.result, &f.launch, &f.explanation};
    return p;
}

enum { SAMPLE = 1, EXPLAIN = 2, BOTH = 3 };

static void refused_by(int which, pointers p, int status, int64_t row, const char *field) {
    raffle_explanation before = f.explanation;
    raffle_candidate top_before[TOP];
    memcpy(top_before, f.top, sizeof f.top);
    if (which & SAMPLE) {
        raffle_error error = raffle_error_init();
        CHECK_STATUS(raffle_sample(p.plan, p.logits, p.params, p.result, p.launch, &error), status);
        error_tells(&error, status, row, field);
        CHECK_STATUS(raffle_sample(p.plan, p.logits, p.params, p.result, p.launch, NULL), status);
    }
    if (which & EXPLAIN) {
        raffle_error error = raffle_error_init();
        CHECK_STATUS(raffle_explain(p.plan, p.logits, p.params, f.explain_row, p.explanation, p.launch, &error), status);
        error_tells(&error, status, row, field);
        CHECK_STATUS(raffle_explain(p.plan, p.logits, p.params, f.explain_row, p.explanation, p.launch, NULL), status);
    }
    CHECK(untouched(&before, top_before), "outputs were written (%s)", field);
    fixture_reset();
}

static void refused(int status, int64_t row, const char *field) { refused_by(BOTH, good(), status, row, field); }

static void accepted(const char *what) {
    raffle_error error = raffle_error_init();
    pointers p = good();
    int status = raffle_sample(p.plan, p.logits, p.params, p.result, p.launch, &error);
    CHECK(status == RAFFLE_OK, "%s: %s", what, error.text);
    status = raffle_explain(p.plan, p.logits, p.params, f.explain_row, p.explanation, p.launch, &error);
    CHECK(status == RAFFLE_OK, "%s: explain: %s", what, error.text);
    CHECK(error.status == 0 && error.text[0] == 0, "%s: an error was written", what);
    fixture_reset();
}

/* ---- plan_create -------------------------------------------------------------------------------- */

static void plan_refused(raffle_plan_desc desc, int status, const char *field) {
    raffle_error error = raffle_error_init();
    raffle_plan *plan = (raffle_plan *)&desc; /* anything but NULL */
    CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), status);
    CHECK(plan == NULL, "plan was not set to NULL (%s)", field);
    error_tells(&error, status, -1, field);
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), status);
}

static raffle_plan_desc desc_good(void) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = VOCAB;
    return desc;
}
#define PLAN_REFUSED(field, value, status, name)                                                                       \
    do {                                                                                                               \
        raffle_plan_desc desc = desc_good();                                                                           \
        desc.field = value;                                                                                            \
        plan_refused(desc, status, name);                                                                              \
    } while (0)

TEST(plan_arguments) {
    PLAN_REFUSED(backend, -1, RAFFLE_E_ARGUMENT, "backend");
    PLAN_REFUSED(backend, 2, RAFFLE_E_ARGUMENT, "backend");
    PLAN_REFUSED(dtype, -1, RAFFLE_E_ARGUMENT, "dtype");
    PLAN_REFUSED(dtype, 3, RAFFLE_E_ARGUMENT, "dtype");
    PLAN_REFUSED(isa, -1, RAFFLE_E_ARGUMENT, "isa");
    PLAN_REFUSED(isa, 5, RAFFLE_E_ARGUMENT, "isa");
    PLAN_REFUSED(vocab, 0, RAFFLE_E_ARGUMENT, "vocab");
    PLAN_REFUSED(vocab, -1, RAFFLE_E_ARGUMENT, "vocab");
    PLAN_REFUSED(vocab, RAFFLE_VOCAB_MAX + 1, RAFFLE_E_ARGUMENT, "vocab");
    PLAN_REFUSED(vocab, INT64_MAX, RAFFLE_E_ARGUMENT, "vocab");
    PLAN_REFUSED(vocab, INT64_MIN, RAFFLE_E_ARGUMENT, "vocab");
    PLAN_REFUSED(rows_max, -1, RAFFLE_E_ARGUMENT, "rows_max");
    PLAN_REFUSED(rows_max, (int64_t)INT32_MAX + 1, RAFFLE_E_ARGUMENT, "rows_max");
    PLAN_REFUSED(device, 1, RAFFLE_E_ARGUMENT, "device");
    PLAN_REFUSED(device, -1, RAFFLE_E_ARGUMENT, "device");
    PLAN_REFUSED(flags, 4, RAFFLE_E_ARGUMENT, "flags");
    PLAN_REFUSED(flags, -1, RAFFLE_E_ARGUMENT, "flags");
    PLAN_REFUSED(history_max, -1, RAFFLE_E_ARGUMENT, "history_max");
    PLAN_REFUSED(history_max, RAFFLE_HISTORY_MAX + 1, RAFFLE_E_ARGUMENT, "history_max");
    PLAN_REFUSED(input, -1, RAFFLE_E_ARGUMENT, "input");
    PLAN_REFUSED(input, 2, RAFFLE_E_ARGUMENT, "input");
    PLAN_REFUSED(reserved, 1, RAFFLE_E_STRUCT, "raffle_plan_desc.reserved");
    raffle_plan_desc desc = desc_good();
    desc.backend = RAFFLE_CUDA; /* rows_max is 0 */
    plan_refused(desc, RAFFLE_E_ARGUMENT, "rows_max");
    desc.rows_max = 1;
    desc.isa = RAFFLE_ISA_SCALAR;
    plan_refused(desc, RAFFLE_E_ARGUMENT, "isa");
}

TEST(plan_pointers) {
    raffle_error error = raffle_error_init();
    raffle_plan_desc desc = desc_good();
    raffle_plan *plan = (raffle_plan *)&desc;
    CHECK_STATUS(raffle_plan_create(&desc, NULL, &error), RAFFLE_E_ARGUMENT);
    error_tells(&error, RAFFLE_E_ARGUMENT, -1, "plan");
    CHECK_STATUS(raffle_plan_create(NULL, &plan, &error), RAFFLE_E_ARGUMENT);
    error_tells(&error, RAFFLE_E_ARGUMENT, -1, "raffle_plan_desc");
    CHECK(plan == NULL, "plan was not set to NULL");
    CHECK_STATUS(raffle_plan_create(NULL, NULL, NULL), RAFFLE_E_ARGUMENT);
}

TEST(plan_limits_are_fine) {
    const int64_t vocabs[] = {1, 2, RAFFLE_VOCAB_MAX};
    for (int i = 0; i < 3; ++i) {
        raffle_plan_desc desc = desc_good();
        raffle_plan *plan = NULL;
        desc.vocab = vocabs[i];
        desc.rows_max = INT32_MAX;
        CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_OK);
        CHECK(raffle_plan_workspace(plan) > 0, "vocab %lld", (long long)desc.vocab);
        raffle_plan_destroy(plan);
    }
}

/* An instruction set this machine lacks is a wish, not a mistake. */
TEST(plan_unsupported_isa) {
    int lacking = 0;
    for (int isa = RAFFLE_ISA_BEST; isa <= RAFFLE_ISA_NEON; ++isa) {
        raffle_plan_desc desc = desc_good();
        desc.isa = isa;
        if (!raffle_isa_available((raffle_isa)isa)) {
            plan_refused(desc, RAFFLE_E_UNSUPPORTED, raffle_isa_name((raffle_isa)isa));
            ++lacking;
        }
    }
    CHECK(lacking > 0, "no machine has both AVX and NEON");
    CHECK_EQ(raffle_isa_available((raffle_isa)99), 0);
    CHECK_EQ(raffle_isa_available(RAFFLE_ISA_BEST), 1);
    CHECK_EQ(raffle_isa_available(RAFFLE_ISA_SCALAR), 1);
}

TEST(plan_without_cuda) {
    char why[128] = "";
    if (raffle_cuda_available(why, sizeof why)) SKIP("this machine has CUDA");
    raffle_error error = raffle_error_init();
    raffle_plan_desc desc = desc_good();
    raffle_plan *plan = NULL;
    desc.backend = RAFFLE_CUDA;
    desc.rows_max = 1;
    int status = raffle_plan_create(&desc, &plan, &error);
    CHECK(status == RAFFLE_E_UNSUPPORTED || status == RAFFLE_E_DEVICE, "status %d", status);
    CHECK(!plan && error.status == status && error.text[0], "no sentence");
    CHECK(why[0] != 0, "raffle_cuda_available gave no reason");
    CHECK_EQ(raffle_cuda_available(NULL, 0), 0);
    char tiny[4] = {'x', 'x', 'x', 'x'};
    CHECK_EQ(raffle_cuda_available(tiny, 3), 0);
    CHECK(tiny[2] == 0 && tiny[3] == 'x', "wrote past the end");
}

/* ---- sample and explain ------------------------------------------------------------------------- */

TEST(the_fixture_works) {
    accepted("fixture");
    raffle_error error = raffle_error_init();
    CHECK_STATUS(raffle_sample(f.plan, &f.logits, &f.params, &f.result, &f.launch, &error), RAFFLE_OK);
    for (int i = 0; i < ROWS; ++i) {
        CHECK(f.token[i] >= 0 && f.token[i] < VOCAB, "token %d", f.token[i]);
        CHECK_EQ(f.row_flags[i], 0);
    }
    fixture_reset();
}

TEST(null_pointers) {
    pointers p = good();
    p.plan = NULL;
    refused_by(BOTH, p, RAFFLE_E_ARGUMENT, -1, "plan");
    p = good(), p.logits = NULL;
    refused_by(BOTH, p, RAFFLE_E_ARGUMENT, -1, "raffle_logits");
    p = good(), p.params = NULL;
    refused_by(BOTH, p, RAFFLE_E_ARGUMENT, -1, "raffle_params");
    p = good(), p.launch = NULL;
    refused_by(BOTH, p, RAFFLE_E_ARGUMENT, -1, "raffle_launch");
    p = good(), p.result = NULL;
    refused_by(SAMPLE, p, RAFFLE_E_ARGUMENT, -1, "raffle_result");
    p = good(), p.explanation = NULL;
    refused_by(EXPLAIN, p, RAFFLE_E_ARGUMENT, -1, "raffle_explanation");
    f.logits.data = NULL;
    refused(RAFFLE_E_ARGUMENT, -1, "data");
    f.params.seed = NULL;
    refused(RAFFLE_E_ARGUMENT, -1, "seed");
    f.params.position = NULL;
    refused(RAFFLE_E_ARGUMENT, -1, "position");
    f.result.token = NULL;
    refused_by(SAMPLE, good(), RAFFLE_E_ARGUMENT, -1, "token");
}

TEST(optional_pointers) {
    f.params.slot = NULL;
    f.params.temperature = f.params.top_p = f.params.min_p = NULL;
    f.params.top_k = NULL;
    f.params.allow = NULL;
    f.params.slots = 0;
    accepted("all optional arrays NULL");
    f.result.row_flags = NULL;
    accepted("row_flags NULL");
}

TEST(no_rows) {
    f.logits = raffle_logits_init();
    f.params = raffle_params_init();
    f.result = raffle_result_init();
    CHECK_STATUS(raffle_sample(f.plan, &f.logits, &f.params, &f.result, &f.launch, NULL), RAFFLE_OK);
    fixture_reset();
    f.logits.rows = 0;
    CHECK_STATUS(raffle_sample(f.plan, &f.logits, &f.params, &f.result, &f.launch, NULL), RAFFLE_OK);
    CHECK_EQ(f.token[0], TOKEN_BEFORE);
    f.launch = raffle_launch_init(); /* nothing is done, so no workspace is needed */
    CHECK_STATUS(raffle_sample(f.plan, &f.logits, &f.params, &f.result, &f.launch, NULL), RAFFLE_OK);
    fixture_reset();
    f.logits.rows = 0;
    refused_by(EXPLAIN, good(), RAFFLE_E_ARGUMENT, 0, "row"); /* there is no row 0 */
}

TEST(ranges) {
    f.logits.rows = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "rows");
    f.logits.rows = INT64_MIN;
    refused(RAFFLE_E_ARGUMENT, -1, "rows");
    f.params.flags = 64;
    refused(RAFFLE_E_ARGUMENT, -1, "flags");
    f.params.flags = 0x80000000u;
    refused(RAFFLE_E_ARGUMENT, -1, "flags");
    f.params.slots = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "slots");
    f.params.slots = (int64_t)INT32_MAX + 1;
    refused(RAFFLE_E_ARGUMENT, -1, "slots");
    f.params.slot = NULL, f.params.slots = ROWS - 1;
    refused(RAFFLE_E_ARGUMENT, -1, "slots");
    f.params.allow_stride = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "allow_stride");
    f.params.allow_stride = WORDS - 1;
    refused(RAFFLE_E_ARGUMENT, -1, "allow_stride");
    f.params.allow_stride = INT64_MAX / 4;
    refused(RAFFLE_E_ARGUMENT, -1, "allow_stride");
    f.logits.row_stride = INT64_MAX / 4; /* offsets of 3 rows would overflow */
    refused(RAFFLE_E_ARGUMENT, -1, "row_stride");
    f.logits.row_stride = INT64_MIN / 4;
    refused(RAFFLE_E_ARGUMENT, -1, "row_stride");
    f.logits.reserved = 1;
    refused(RAFFLE_E_STRUCT, -1, "raffle_logits.reserved");
    f.launch.reserved = 1;
    refused(RAFFLE_E_STRUCT, -1, "raffle_launch.reserved");
    f.result.reserved = 1;
    refused_by(SAMPLE, good(), RAFFLE_E_STRUCT, -1, "raffle_result.reserved");
    f.params.flags = 63;
    accepted("every known flag");
    f.logits.rows = 1, f.logits.row_stride = -5;
    accepted("any row stride");
}

TEST(row_index) {
    static int32_t index[ROWS];
    const int32_t bad[] = {-1, ROWS, INT32_MIN, INT32_MAX};
    for (int i = 0; i < ROWS; ++i) index[i] = 1;
    for (int i = 0; i < 4; ++i) {
        index[2] = bad[i], f.logits.row_index = index;
        refused(RAFFLE_E_ARGUMENT, 2, "row_index");
    }
    index[2] = 1, f.logits.row_index = index, f.logits.data_rows = 1;
    refused(RAFFLE_E_ARGUMENT, 0, "row_index");
    f.logits.row_index = index, f.logits.data_rows = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "data_rows");
    f.logits.row_index = index, f.logits.data_rows = (int64_t)INT32_MAX + 1;
    refused(RAFFLE_E_ARGUMENT, -1, "data_rows");
    f.logits.data_rows = ROWS;
    refused(RAFFLE_E_ARGUMENT, -1, "data_rows");
    f.logits.row_index = index, f.logits.data_rows = 2;
    accepted("one row for all");
}

/* Probabilities have no temperature. */
TEST(probabilities_have_no_temperature) {
    raffle_plan_desc desc = desc_good();
    raffle_plan *plan = NULL, *shared = f.plan;
    desc.input = RAFFLE_PROBS;
    for (int report = 0; report < 2; ++report) {
        raffle_error error = raffle_error_init();
        desc.flags = report ? RAFFLE_PLAN_REPORT : RAFFLE_PLAN_EXTRA;
        CHECK_STATUS(raffle_plan_create(&desc, &plan, &error), RAFFLE_E_UNSUPPORTED);
        CHECK(strstr(error.text, report ? "RAFFLE_PLAN_REPORT" : "RAFFLE_PLAN_EXTRA") && strstr(error.text, "input"), "%s", error.text);
    }
    desc.flags = 0;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_OK);
    f.plan = plan;
    refused(RAFFLE_E_ARGUMENT, -1, "temperature");
    f.params.temperature = NULL;
    accepted("without a temperature");
    raffle_plan_destroy(plan);
    f.plan = shared;
    fixture_reset();
}

TEST(rows_max) {
    raffle_plan_desc desc = desc_good();
    raffle_plan *plan = NULL, *shared = f.plan;
    desc.rows_max = ROWS - 1;
    CHECK_STATUS(raffle_plan_create(&desc, &plan, NULL), RAFFLE_OK);
    f.plan = plan;
    refused(RAFFLE_E_ARGUMENT, -1, "rows");
    f.logits.rows = ROWS - 1;
    accepted("as many as rows_max");
    raffle_plan_destroy(plan);
    f.plan = shared;
    fixture_reset();
}

TEST(workspace) {
    f.launch.workspace = NULL;
    refused(RAFFLE_E_WORKSPACE, -1, "workspace");
    f.launch.workspace_bytes -= 1;
    refused(RAFFLE_E_WORKSPACE, -1, "workspace_bytes");
    f.launch.workspace_bytes = 0;
    refused(RAFFLE_E_WORKSPACE, -1, "workspace_bytes");
    for (int shift = 1; shift < RAFFLE_WORKSPACE_ALIGN; shift *= 2) {
        f.launch.workspace = f.workspace + shift;
        refused(RAFFLE_E_WORKSPACE, -1, "aligned");
    }
    f.launch.workspace_bytes += 1;
    accepted("a larger workspace");
}

TEST(launch) {
    f.launch.stream = (struct CUstream_st *)f.workspace;
    refused(RAFFLE_E_ARGUMENT, -1, "stream");
    const int bad[][2] = {{-1, 0}, {1, 0}, {-1, 2}, {2, 2}, {3, 2}, {0, -1}, {-2, -1}, {INT_MIN, INT_MIN}, {INT_MAX, INT_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        f.launch.part = bad[i][0], f.launch.parts = bad[i][1];
        refused(RAFFLE_E_ARGUMENT, -1, "part");
    }
    f.launch.part = INT_MAX - 1, f.launch.parts = INT_MAX; /* more parts than rows: the last holds the last row */
    accepted("the last of many parts");
}

/* Every part of a batch is written by its own call, and by no other. */
TEST(parts_cover_the_batch) {
    for (int parts = 1; parts <= ROWS + 2; ++parts) {
        int written[ROWS] = {0};
        for (int part = 0; part < parts; ++part) {
            for (int i = 0; i < ROWS; ++i) f.token[i] = TOKEN_BEFORE;
            f.launch.part = part, f.launch.parts = parts;
            CHECK_STATUS(raffle_sample(f.plan, &f.logits, &f.params, &f.result, &f.launch, NULL), RAFFLE_OK);
            for (int i = 0; i < ROWS; ++i) {
                int inside = i >= ROWS * part / parts && i < ROWS * (part + 1) / parts;
                CHECK_EQ(f.token[i] != TOKEN_BEFORE, inside);
                written[i] += f.token[i] != TOKEN_BEFORE;
            }
        }
        for (int i = 0; i < ROWS; ++i) CHECK_EQ(written[i], 1);
    }
    fixture_reset();
}

/* A wrong value is told by field and by row; which slot the row uses does not matter. */
TEST(row_values) {
    const float not_temperatures[] = {NAN, -NAN, -1.0f, -0x1p-149f, -INFINITY};
    for (int row = 0; row < ROWS; ++row) {
        char named[16];
        snprintf(named, sizeof named, "row %d", row);
        for (size_t i = 0; i < sizeof not_temperatures / sizeof *not_temperatures; ++i) {
            f.temperature[row] = not_temperatures[i];
            refused(RAFFLE_E_ARGUMENT, row, "temperature");
            f.temperature[row] = not_temperatures[i];
            refused(RAFFLE_E_ARGUMENT, row, named);
        }
        f.top_p[row] = NAN;
        refused(RAFFLE_E_ARGUMENT, row, "top_p");
        f.min_p[row] = NAN;
        refused(RAFFLE_E_ARGUMENT, row, "min_p");
        const int32_t not_slots[] = {-1, ROWS, INT32_MIN, INT32_MAX};
        for (int i = 0; i < 4; ++i) {
            f.slot[row] = not_slots[i];
            refused(RAFFLE_E_ARGUMENT, row, "slot");
        }
    }
    f.slot[0] = 2, f.slot[2] = 0, f.temperature[0] = NAN; /* row 2 uses slot 0 */
    refused(RAFFLE_E_ARGUMENT, 2, "temperature");
    f.slot[0] = f.slot[1] = f.slot[2] = 1, f.temperature[0] = f.top_p[2] = NAN;
    accepted("a wrong value in a slot that no row uses");
    f.temperature[ROWS - 1] = NAN, f.launch.part = 0, f.launch.parts = ROWS;
    refused(RAFFLE_E_ARGUMENT, ROWS - 1, "temperature"); /* also by the parts that do not hold the row */
}

TEST(row_values_at_their_edges) {
    const float temperatures[] = {0.0f, -0.0f, 0x1p-149f, 1e-5f, 3.4e38f, INFINITY};
    const float shares[] = {-INFINITY, -1.0f, -0.0f, 0.0f, 0x1p-149f, 0.5f, 1.0f, 2.0f, INFINITY};
    const int32_t counts[] = {INT32_MIN, -1, 0, 1, 2, VOCAB - 1, VOCAB, VOCAB + 1, INT32_MAX};
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; ++i) {
        f.temperature[1] = temperatures[i];
        accepted("temperature");
    }
    for (size_t i = 0; i < sizeof shares / sizeof *shares; ++i) {
        f.top_p[1] = shares[i];
        accepted("top_p");
        f.min_p[1] = shares[i];
        accepted("min_p");
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        f.top_k[1] = counts[i];
        accepted("top_k");
    }
}

TEST(explain_arguments) {
    const int64_t rows[] = {-1, ROWS, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 4; ++i) {
        f.explain_row = rows[i];
        refused_by(EXPLAIN, good(), RAFFLE_E_ARGUMENT, rows[i], "row");
    }
    f.explanation.top_count = -1;
    refused_by(EXPLAIN, good(), RAFFLE_E_ARGUMENT, -1, "top_count");
    f.explanation.top = NULL;
    refused_by(EXPLAIN, good(), RAFFLE_E_ARGUMENT, -1, "top");
    f.explanation.reserved = 1;
    refused_by(EXPLAIN, good(), RAFFLE_E_STRUCT, -1, "raffle_explanation.reserved");
    f.explanation.top = NULL, f.explanation.top_count = 0;
    accepted("no candidates wanted");
}

/* Greedy is decided before any filter: nothing else cuts, and tickets are told at temperature 1. */
TEST(explain_greedy) {
    f.temperature[0] = 0.0f;
    CHECK_STATUS(raffle_explain(f.plan, &f.logits, &f.params, 0, &f.explanation, &f.launch, NULL), RAFFLE_OK);
    CHECK_EQ(f.explanation.greedy, 1);
    CHECK_EQ(f.explanation.fates[RAFFLE_KEPT], 1);
    CHECK_EQ(f.explanation.fates[RAFFLE_CUT_GREEDY], VOCAB - 1);
    CHECK(f.explanation.row_tickets > f.top[0].tickets && f.top[0].tickets > 0, "%llu of %llu tickets",
          (unsigned long long)f.top[0].tickets, (unsigned long long)f.explanation.row_tickets);
    fixture_reset();
}

/* ---- struct sizes ------------------------------------------------------------------------------- */

/* A caller's struct in the memory of a newer one. */
static union { unsigned char bytes[8192]; uint64_t align; } wide;

static void *widened(const void *given, size_t known, uint32_t size) {
    memset(&wide, 0, sizeof wide);
    memcpy(wide.bytes, given, known);
    memcpy(wide.bytes, &size, sizeof size);
    return wide.bytes;
}

/* Sizes a struct may not have, one it may, and a field that this version does not know. `first` is the size of the
 * struct in the first release. */
#define SIZES(which, given, pointer, type, first)                                                                      \
    do {                                                                                                               \
        const uint32_t wrong[] = {0, 1, 4, (uint32_t)(first) - 1, 4097, UINT32_MAX};                                   \
        for (int i = 0; i < 6; ++i) {                                                                                  \
            pointers p = good();                                                                                       \
            p.pointer = widened(&f.given, sizeof(type), wrong[i]);                                                     \
            refused_by(which, p, RAFFLE_E_STRUCT, -1, #type);                                                          \
        }                                                                                                              \
        for (size_t at = sizeof(type); at < sizeof(type) + 24; ++at) {                                                 \
            pointers p = good();                                                                                       \
            p.pointer = widened(&f.given, sizeof(type), (uint32_t)sizeof(type) + 24);                                  \
            wide.bytes[at] = 0x80;                                                                                     \
            refused_by(which, p, RAFFLE_E_STRUCT, -1, #type);                                                          \
        }                                                                                                              \
        pointers p = good();                                                                                           \
        p.pointer = widened(&f.given, sizeof(type), (uint32_t)sizeof(type) + 24);                                      \
        raffle_error error = raffle_error_init();                                                                      \
        wide.bytes[sizeof(type) + 24] = 0xff; /* outside */                                                            \
        int status = which & SAMPLE ? raffle_sample(p.plan, p.logits, p.params, p.result, p.launch, &error)            \
                                    : raffle_explain(p.plan, p.logits, p.params, 0, p.explanation, p.launch, &error);  \
        CHECK(status == RAFFLE_OK, "a longer " #type ": %s", error.text);                                              \
        fixture_reset();                                                                                               \
    } while (0)

TEST(struct_sizes) {
    SIZES(BOTH, logits, logits, raffle_logits, 32);
    SIZES(BOTH, params, params, raffle_params, 88);
    SIZES(SAMPLE, result, result, raffle_result, 24);
    SIZES(BOTH, launch, launch, raffle_launch, sizeof(raffle_launch));
    SIZES(EXPLAIN, explanation, explanation, raffle_explanation, sizeof(raffle_explanation));
}

TEST(plan_desc_sizes) {
    raffle_plan_desc desc = desc_good();
    const uint32_t first = 40, wrong[] = {0, 1, 4, first - 1, 4097, UINT32_MAX}; /* its size in the first release */
    raffle_plan *plan;
    for (int i = 0; i < 6; ++i) {
        raffle_error error = raffle_error_init();
        plan = (raffle_plan *)&desc;
        CHECK_STATUS(raffle_plan_create(widened(&desc, sizeof desc, wrong[i]), &plan, &error), RAFFLE_E_STRUCT);
        CHECK(plan == NULL, "plan was not set to NULL");
        error_tells(&error, RAFFLE_E_STRUCT, -1, "raffle_plan_desc");
    }
    CHECK_STATUS(raffle_plan_create(widened(&desc, sizeof desc, sizeof desc + 8), &plan, NULL), RAFFLE_OK);
    raffle_plan_destroy(plan);
    CHECK_STATUS(raffle_plan_create(widened(&desc, first, first), &plan, NULL), RAFFLE_OK);
    raffle_plan_destroy(plan);
    widened(&desc, sizeof desc, sizeof desc + 8);
    wide.bytes[sizeof desc + 7] = 1;
    CHECK_STATUS(raffle_plan_create((const raffle_plan_desc *)&wide, &plan, NULL), RAFFLE_E_STRUCT);
}

/* An error struct that is too short to hold ours is left alone; the status still says it all. */
TEST(error_sizes) {
    const uint32_t sizes[] = {0, 8, (uint32_t)sizeof(raffle_error) - 1};
    for (int i = 0; i < 3; ++i) {
        raffle_error error, before;
        memset(&error, 0x77, sizeof error);
        error.size = sizes[i];
        before = error;
        CHECK_STATUS(raffle_sample(NULL, NULL, NULL, NULL, NULL, &error), RAFFLE_E_ARGUMENT);
        CHECK(!memcmp(&before, &error, sizeof error), "size %u: written", sizes[i]);
    }
    raffle_error longer = raffle_error_init(); /* as a caller of a later version would hand it in */
    longer.size += 8;
    CHECK_STATUS(raffle_sample(NULL, NULL, NULL, NULL, NULL, &longer), RAFFLE_E_ARGUMENT);
    CHECK(longer.status == RAFFLE_E_ARGUMENT && longer.text[0], "a longer struct: status %d", longer.status);
}

/* ---- the small functions ------------------------------------------------------------------------ */

TEST(small_functions) {
    raffle_plan_destroy(NULL);
    CHECK_EQ(raffle_plan_workspace(NULL), 0);
    char text[256] = "x", part[8];
    CHECK_EQ(raffle_plan_describe(NULL, text, sizeof text), 0);
    CHECK_EQ(text[0], 0);
    size_t wanted = raffle_plan_describe(f.plan, text, sizeof text);
    CHECK(wanted > 0 && wanted < sizeof text && wanted == strlen(text), "wanted %zu of \"%s\"", wanted, text);
    CHECK(strstr(text, "300"), "\"%s\" lacks the vocab", text);
    CHECK_EQ(raffle_plan_describe(f.plan, NULL, 0), wanted);
    CHECK_EQ(raffle_plan_describe(f.plan, NULL, 100), wanted);
    memset(part, 'x', sizeof part);
    CHECK_EQ(raffle_plan_describe(f.plan, part, 7), wanted);
    CHECK(part[6] == 0 && part[7] == 'x' && !strncmp(part, text, 6), "cut at 7 bytes");
    for (int status = -1; status <= 8; ++status) {
        const char *name = raffle_status_name((raffle_status)status);
        CHECK(name && name[0], "status %d", status);
        CHECK_EQ(!strncmp(name, "RAFFLE_", 7), status >= 0 && status <= RAFFLE_E_DEVICE);
    }
    CHECK(!strcmp(raffle_status_name(RAFFLE_E_ARGUMENT), "RAFFLE_E_ARGUMENT"), "name");
    for (int isa = -1; isa <= 6; ++isa) {
        const char *name = raffle_isa_name((raffle_isa)isa);
        CHECK(name && name[0], "isa %d", isa);
    }
    CHECK(!strcmp(raffle_isa_name(RAFFLE_ISA_AVX512), "avx512"), "name");
}

int main(void) {
    raffle_plan_desc desc = desc_good();
    if (raffle_plan_create(&desc, &f.plan, NULL) || raffle_plan_workspace(f.plan) > sizeof f.workspace) {
        printf("FAIL fixture\nerrors: 0 passed, 1 failed\n");
        return 1;
    }
    fixture_reset();
    RUN(plan_arguments);
    RUN(plan_pointers);
    RUN(plan_limits_are_fine);
    RUN(plan_unsupported_isa);
    RUN(plan_without_cuda);
    RUN(the_fixture_works);
    RUN(null_pointers);
    RUN(optional_pointers);
    RUN(no_rows);
    RUN(ranges);
    RUN(row_index);
    RUN(probabilities_have_no_temperature);
    RUN(rows_max);
    RUN(workspace);
    RUN(launch);
    RUN(parts_cover_the_batch);
    RUN(row_values);
    RUN(row_values_at_their_edges);
    RUN(explain_arguments);
    RUN(explain_greedy);
    RUN(struct_sizes);
    RUN(plan_desc_sizes);
    RUN(error_sizes);
    RUN(small_functions);
    raffle_plan_destroy(f.plan);
    return test_report("errors");
}
