/* output_errors.c - every documented error of raffle_softmax and raffle_mask: its status, a sentence that names the
 * field, and that nothing was written. Each case starts from a call that works and spoils one thing. */
#include <math.h>
#include <stdlib.h>

#include "common/refusal.h"

enum { ROWS = 3, VOCAB = 300, WORDS = (VOCAB + 31) / 32, ROOM = 7 };

typedef struct fixture {
    raffle_logits logits;
    raffle_params params;
    raffle_output output;
    raffle_launch launch;
    float logit[ROWS * VOCAB], temperature[ROWS], top_p[ROWS];
    unsigned char data[ROWS * VOCAB * 4];
    uint32_t row_flags[ROWS], kept[ROWS * WORDS];
    int32_t list[ROWS * ROOM], count[ROWS];
} fixture;
static fixture f, before;
static raffle_plan *plan;
static _Alignas(RAFFLE_WORKSPACE_ALIGN) char workspace[1 << 18];

static void fixture_reset(void) {
    memset(&f, 0, sizeof f);
    for (int i = 0; i < ROWS * VOCAB; ++i) f.logit[i] = (float)(i % 17) * 0.25f;
    for (int i = 0; i < ROWS; ++i) f.temperature[i] = 0.8f, f.top_p[i] = 0.9f;
    memset(f.data, 0x5a, sizeof f.data);
    memset(f.row_flags, 0x5a, sizeof f.row_flags);
    memset(f.kept, 0x5a, sizeof f.kept);
    memset(f.list, 0x5a, sizeof f.list);
    memset(f.count, 0x5a, sizeof f.count);
    f.logits = raffle_logits_init();
    f.logits.data = f.logit;
    f.logits.rows = ROWS;
    f.params = raffle_params_init();
    f.params.temperature = f.temperature;
    f.params.top_p = f.top_p;
    f.output = raffle_output_init();
    f.output.data = f.data;
    f.output.row_flags = f.row_flags;
    f.output.kept = f.kept;
    f.output.kept_list = f.list;
    f.output.kept_list_stride = ROOM;
    f.output.kept_count = f.count;
    f.launch = raffle_launch_init();
    f.launch.workspace = workspace;
    f.launch.workspace_bytes = raffle_plan_workspace(plan);
}

typedef raffle_status (*write_function)(const raffle_plan *, const raffle_logits *, const raffle_params *,
                                        const raffle_output *, const raffle_launch *, raffle_error *);
static const write_function functions[2] = {raffle_softmax, raffle_mask};

static void refused_with(const raffle_output *output, int status, int64_t row, const char *field) {
    before = f;
    for (int i = 0; i < 2; ++i) {
        raffle_error error = raffle_error_init();
        CHECK_STATUS(functions[i](plan, &f.logits, &f.params, output, &f.launch, &error), status);
        error_tells(&error, status, row, field);
        CHECK_STATUS(functions[i](plan, &f.logits, &f.params, output, &f.launch, NULL), status);
    }
    CHECK(!memcmp(&before, &f, sizeof f), "something was written (%s)", field);
    fixture_reset();
}

static void refused(int status, int64_t row, const char *field) { refused_with(&f.output, status, row, field); }

static void accepted(const char *what) {
    for (int i = 0; i < 2; ++i) {
        raffle_error error = raffle_error_init();
        raffle_status status = functions[i](plan, &f.logits, &f.params, &f.output, &f.launch, &error);
        CHECK(status == RAFFLE_OK && !error.status, "%s: %s", what, error.text);
    }
    fixture_reset();
}

TEST(fields) {
    f.output.dtype = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "output.dtype");
    f.output.dtype = 3;
    refused(RAFFLE_E_ARGUMENT, -1, "output.dtype");
    f.output.flags = 2;
    refused(RAFFLE_E_ARGUMENT, -1, "output.flags");
    f.output.reserved = 1;
    refused(RAFFLE_E_STRUCT, -1, "raffle_output.reserved");
    f.output.row_stride = VOCAB - 1;
    refused(RAFFLE_E_ARGUMENT, -1, "output.row_stride");
    f.output.row_stride = 1 - VOCAB;
    refused(RAFFLE_E_ARGUMENT, -1, "output.row_stride");
    f.output.row_stride = INT64_MAX / 4;
    refused(RAFFLE_E_ARGUMENT, -1, "output.row_stride");
    f.output.kept_stride = WORDS - 1;
    refused(RAFFLE_E_ARGUMENT, -1, "output.kept_stride");
    f.output.kept_stride = -WORDS;
    refused(RAFFLE_E_ARGUMENT, -1, "output.kept_stride");
    f.output.kept_stride = INT64_MAX / 4;
    refused(RAFFLE_E_ARGUMENT, -1, "output.kept_stride");
    f.output.kept_list_stride = 0;
    refused(RAFFLE_E_ARGUMENT, -1, "output.kept_list_stride");
    f.output.kept_list_stride = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "output.kept_list_stride");
    f.output.kept_list_stride = INT64_MAX / 4;
    refused(RAFFLE_E_ARGUMENT, -1, "output.kept_list_stride");
    raffle_output nothing = raffle_output_init();
    refused_with(&nothing, RAFFLE_E_ARGUMENT, -1, "output.data");
    refused_with(NULL, RAFFLE_E_ARGUMENT, -1, "raffle_output");
}

/* In place needs the same layout. */
TEST(in_place) {
    f.output.data = f.logit, f.output.dtype = RAFFLE_BF16;
    refused(RAFFLE_E_ARGUMENT, -1, "output.data");
    f.output.data = f.logit, f.logits.rows = 1, f.output.row_stride = VOCAB + 1;
    refused(RAFFLE_E_ARGUMENT, -1, "output.data");
    f.output.data = f.logit;
    accepted("in place");
    f.output.data = f.logit, f.output.row_stride = VOCAB;
    accepted("in place, the stride said");
}

/* What raffle_sample checks is checked here too; only the seed is not needed. */
TEST(the_rest_of_the_call) {
    f.temperature[1] = NAN;
    refused(RAFFLE_E_ARGUMENT, 1, "temperature");
    f.top_p[2] = NAN;
    refused(RAFFLE_E_ARGUMENT, 2, "top_p");
    f.logits.data = NULL;
    refused(RAFFLE_E_ARGUMENT, -1, "logits.data");
    f.logits.rows = -1;
    refused(RAFFLE_E_ARGUMENT, -1, "rows");
    f.launch.workspace = NULL;
    refused(RAFFLE_E_WORKSPACE, -1, "workspace");
    f.params.flags = 1u << 31;
    refused(RAFFLE_E_ARGUMENT, -1, "flags");
    accepted("no seed");
}

TEST(parts_of_an_output) {
    f.output.data = NULL;
    accepted("without data");
    f.output.kept = NULL, f.output.kept_list = NULL, f.output.kept_list_stride = 0;
    accepted("without sets");
    f.output.data = NULL, f.output.kept = NULL, f.output.kept_list = NULL, f.output.kept_count = NULL;
    accepted("only row flags");
    f.logits.rows = 0, f.output = raffle_output_init();
    accepted("no rows");
    before = f;
    f.logits.rows = 0;
    for (int i = 0; i < 2; ++i)
        CHECK_STATUS(functions[i](plan, &f.logits, &f.params, &f.output, &f.launch, NULL), RAFFLE_OK);
    f.logits.rows = ROWS;
    CHECK(!memcmp(&before, &f, sizeof f), "no rows, but something was written");
}

/* Every part of a batch is written by its own call, and by no other. */
TEST(parts_of_a_batch) {
    f.output.kept_count = NULL;
    for (int part = 0; part < ROWS; ++part) {
        memset(f.data, 0x5a, sizeof f.data);
        f.launch.part = part, f.launch.parts = ROWS;
        CHECK_STATUS(raffle_softmax(plan, &f.logits, &f.params, &f.output, &f.launch, NULL), RAFFLE_OK);
        for (int i = 0; i < ROWS; ++i) {
            uint32_t bits;
            memcpy(&bits, f.data + i * VOCAB * 4, 4);
            CHECK_EQ(bits != 0x5a5a5a5au, i == part);
        }
    }
    fixture_reset();
}

TEST(struct_size) {
    static union { unsigned char bytes[8192]; uint64_t align; } wide;
    const uint32_t size = (uint32_t)sizeof(raffle_output), wrong[] = {0, 1, 4, size - 1, 4097, UINT32_MAX};
    for (int i = 0; i < 6; ++i) {
        memcpy(&wide, &f.output, sizeof f.output);
        memcpy(&wide, &wrong[i], 4);
        refused_with((const raffle_output *)(const void *)&wide, RAFFLE_E_STRUCT, -1, "raffle_output");
    }
    memset(&wide, 0, sizeof wide);
    memcpy(&wide, &f.output, sizeof f.output);
    const uint32_t longer = size + 16;
    memcpy(&wide, &longer, 4);
    CHECK_STATUS(raffle_softmax(plan, &f.logits, &f.params, (const raffle_output *)(const void *)&wide, &f.launch, NULL), RAFFLE_OK);
    fixture_reset();
    wide.bytes[size + 3] = 1;
    refused_with((const raffle_output *)(const void *)&wide, RAFFLE_E_STRUCT, -1, "raffle_output");
}

int main(void) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.vocab = VOCAB;
    if (raffle_plan_create(&desc, &plan, NULL) || raffle_plan_workspace(plan) > sizeof workspace) {
        printf("FAIL fixture\noutput_errors: 0 passed, 1 failed\n");
        return 1;
    }
    fixture_reset();
    RUN(fields);
    RUN(in_place);
    RUN(the_rest_of_the_call);
    RUN(parts_of_an_output);
    RUN(parts_of_a_batch);
    RUN(struct_size);
    raffle_plan_destroy(plan);
    return test_report("output_errors");
}
