/* layout.c - the binary interface as numbers: sizes, offsets and values that compiled callers rely on.
 * A change here breaks every program that is already built; new fields go to the end of a struct. */
#include "common/test.h"
#include "raffle/raffle.h"

#define SIZE(type, bytes) CHECK_EQ(sizeof(type), bytes)
#define AT(type, field, offset) CHECK_EQ(offsetof(type, field), offset)

TEST(error_layout) {
    SIZE(raffle_error, 128);
    AT(raffle_error, size, 0);
    AT(raffle_error, status, 4);
    AT(raffle_error, row, 8);
    AT(raffle_error, text, 16);
}

TEST(plan_desc_layout) {
    SIZE(raffle_plan_desc, 56);
    AT(raffle_plan_desc, size, 0);
    AT(raffle_plan_desc, backend, 4);
    AT(raffle_plan_desc, dtype, 8);
    AT(raffle_plan_desc, isa, 12);
    AT(raffle_plan_desc, vocab, 16);
    AT(raffle_plan_desc, rows_max, 24);
    AT(raffle_plan_desc, device, 32);
    AT(raffle_plan_desc, flags, 36);
    AT(raffle_plan_desc, input, 40);
    AT(raffle_plan_desc, reserved, 44);
    AT(raffle_plan_desc, history_max, 48);
}

TEST(logits_layout) {
    SIZE(raffle_logits, 48);
    AT(raffle_logits, size, 0);
    AT(raffle_logits, reserved, 4);
    AT(raffle_logits, data, 8);
    AT(raffle_logits, rows, 16);
    AT(raffle_logits, row_stride, 24);
    AT(raffle_logits, row_index, 32);
    AT(raffle_logits, data_rows, 40);
}

TEST(params_layout) {
    SIZE(raffle_params, 136);
    AT(raffle_params, size, 0);
    AT(raffle_params, flags, 4);
    AT(raffle_params, slots, 8);
    AT(raffle_params, slot, 16);
    AT(raffle_params, temperature, 24);
    AT(raffle_params, top_p, 32);
    AT(raffle_params, min_p, 40);
    AT(raffle_params, top_k, 48);
    AT(raffle_params, seed, 56);
    AT(raffle_params, position, 64);
    AT(raffle_params, allow, 72);
    AT(raffle_params, allow_stride, 80);
    AT(raffle_params, draft_step, 88);
    AT(raffle_params, reserved, 92);
    AT(raffle_params, extra, 96);
    AT(raffle_params, extra_bytes, 104);
    AT(raffle_params, state, 112);
    AT(raffle_params, seed_offset, 120);
    AT(raffle_params, position_offset, 128);
}

TEST(result_layout) {
    SIZE(raffle_result, 40);
    AT(raffle_result, size, 0);
    AT(raffle_result, reserved, 4);
    AT(raffle_result, token, 8);
    AT(raffle_result, row_flags, 16);
    AT(raffle_result, report, 24);
    AT(raffle_result, advance, 32);
}

TEST(extra_layout) {
    SIZE(raffle_extra, 152);
    AT(raffle_extra, flags, 0);
    AT(raffle_extra, repetition, 4);
    AT(raffle_extra, frequency, 8);
    AT(raffle_extra, presence, 12);
    AT(raffle_extra, penalty_window, 16);
    AT(raffle_extra, no_repeat_ngram, 20);
    AT(raffle_extra, dry_multiplier, 24);
    AT(raffle_extra, dry_base, 28);
    AT(raffle_extra, dry_allowed, 32);
    AT(raffle_extra, dry_range, 36);
    AT(raffle_extra, min_tokens, 40);
    AT(raffle_extra, top_n_sigma, 44);
    AT(raffle_extra, epsilon, 48);
    AT(raffle_extra, eta, 52);
    AT(raffle_extra, typical_p, 56);
    AT(raffle_extra, xtc_probability, 60);
    AT(raffle_extra, xtc_threshold, 64);
    AT(raffle_extra, keep_least, 68);
    AT(raffle_extra, bias_count, 72);
    AT(raffle_extra, banned_count, 76);
    AT(raffle_extra, allowed_count, 80);
    AT(raffle_extra, stop_count, 84);
    AT(raffle_extra, breaker_count, 88);
    AT(raffle_extra, bad_words_count, 92);
    AT(raffle_extra, bias_id, 96);
    AT(raffle_extra, bias, 104);
    AT(raffle_extra, banned, 112);
    AT(raffle_extra, allowed, 120);
    AT(raffle_extra, stop, 128);
    AT(raffle_extra, breaker, 136);
    AT(raffle_extra, bad_words, 144);
}

TEST(state_layout) {
    SIZE(raffle_state, 48);
    AT(raffle_state, size, 0);
    AT(raffle_state, backend, 4);
    AT(raffle_state, device, 8);
    AT(raffle_state, reserved, 12);
    AT(raffle_state, slots, 16);
    AT(raffle_state, history_max, 24);
    AT(raffle_state, vocab, 32);
    AT(raffle_state, memory, 40);
    SIZE(raffle_tokens, 72);
    AT(raffle_tokens, reserved, 4);
    AT(raffle_tokens, rows, 8);
    AT(raffle_tokens, slot, 16);
    AT(raffle_tokens, token, 24);
    AT(raffle_tokens, count, 32);
    AT(raffle_tokens, stride, 40);
    AT(raffle_tokens, stream, 48);
    AT(raffle_tokens, row_flags, 56);
    AT(raffle_tokens, first, 64);
}

TEST(request_layout) {
    SIZE(raffle_request, 192);
    AT(raffle_request, size, 0);
    AT(raffle_request, dialect, 4);
    AT(raffle_request, temperature, 8);
    AT(raffle_request, top_p, 12);
    AT(raffle_request, min_p, 16);
    AT(raffle_request, top_k, 20);
    AT(raffle_request, seed, 24);
    AT(raffle_request, logprobs, 32);
    AT(raffle_request, reserved, 36);
    AT(raffle_request, extra, 40);
    CHECK_EQ(RAFFLE_DIALECT_VLLM, 0);
    CHECK_EQ(RAFFLE_DIALECT_OPENAI, 1);
    CHECK_EQ(RAFFLE_DIALECT_LLAMA_CPP, 2);
}

TEST(report_layout) {
    SIZE(raffle_report, 136);
    AT(raffle_report, size, 0);
    AT(raffle_report, point, 4);
    AT(raffle_report, chosen, 8);
    AT(raffle_report, rank, 16);
    AT(raffle_report, entropy, 24);
    AT(raffle_report, top_count, 32);
    AT(raffle_report, given_count, 36);
    AT(raffle_report, top_token, 40);
    AT(raffle_report, top, 48);
    AT(raffle_report, given, 56);
    AT(raffle_report, given_logprob, 64);
    AT(raffle_report, given_rank, 72);
    AT(raffle_report, all, 80);
    AT(raffle_report, all_stride, 88);
    AT(raffle_report, kept, 96);
    AT(raffle_report, kept_stride, 104);
    AT(raffle_report, kept_list, 112);
    AT(raffle_report, kept_list_stride, 120);
    AT(raffle_report, kept_count, 128);
}

TEST(output_layout) {
    SIZE(raffle_output, 80);
    AT(raffle_output, size, 0);
    AT(raffle_output, flags, 4);
    AT(raffle_output, dtype, 8);
    AT(raffle_output, reserved, 12);
    AT(raffle_output, data, 16);
    AT(raffle_output, row_stride, 24);
    AT(raffle_output, row_flags, 32);
    AT(raffle_output, kept, 40);
    AT(raffle_output, kept_stride, 48);
    AT(raffle_output, kept_list, 56);
    AT(raffle_output, kept_list_stride, 64);
    AT(raffle_output, kept_count, 72);
}

TEST(launch_layout) {
    SIZE(raffle_launch, 40);
    AT(raffle_launch, size, 0);
    AT(raffle_launch, reserved, 4);
    AT(raffle_launch, workspace, 8);
    AT(raffle_launch, workspace_bytes, 16);
    AT(raffle_launch, stream, 24);
    AT(raffle_launch, part, 32);
    AT(raffle_launch, parts, 36);
}

TEST(candidate_layout) {
    SIZE(raffle_candidate, 24);
    AT(raffle_candidate, token, 0);
    AT(raffle_candidate, fate, 4);
    AT(raffle_candidate, logit, 8);
    AT(raffle_candidate, reserved, 12);
    AT(raffle_candidate, tickets, 16);
}

TEST(explanation_layout) {
    SIZE(raffle_explanation, 128);
    AT(raffle_explanation, size, 0);
    AT(raffle_explanation, row_flags, 4);
    AT(raffle_explanation, token, 8);
    AT(raffle_explanation, greedy, 12);
    AT(raffle_explanation, fates, 16);
    AT(raffle_explanation, threshold, 80);
    AT(raffle_explanation, reserved, 84);
    AT(raffle_explanation, row_tickets, 88);
    AT(raffle_explanation, draw_tickets, 96);
    AT(raffle_explanation, drawn, 104);
    AT(raffle_explanation, top_count, 112);
    AT(raffle_explanation, top, 120);
}

TEST(probabilities_layout) {
    SIZE(raffle_probabilities, 32);
    AT(raffle_probabilities, size, 0);
    AT(raffle_probabilities, reserved, 4);
    AT(raffle_probabilities, data, 8);
    AT(raffle_probabilities, rows, 16);
    AT(raffle_probabilities, row_stride, 24);
}

TEST(drafts_layout) {
    SIZE(raffle_drafts, 112);
    AT(raffle_drafts, size, 0);
    AT(raffle_drafts, method, 4);
    AT(raffle_drafts, requests, 8);
    AT(raffle_drafts, each, 16);
    AT(raffle_drafts, first, 24);
    AT(raffle_drafts, token, 32);
    AT(raffle_drafts, parent, 40);
    AT(raffle_drafts, logits, 48);
    AT(raffle_drafts, params, 56);
    AT(raffle_drafts, probabilities, 64);
    AT(raffle_drafts, threshold_single, 72);
    AT(raffle_drafts, threshold_sum, 76);
    AT(raffle_drafts, rate, 80);
    AT(raffle_drafts, reserved, 84);
    AT(raffle_drafts, accept_bits, 88);
    AT(raffle_drafts, recover_bits, 96);
    AT(raffle_drafts, draw_bits, 104);
}

TEST(drafted_layout) {
    SIZE(raffle_drafted, 40);
    AT(raffle_drafted, size, 0);
    AT(raffle_drafted, reserved, 4);
    AT(raffle_drafted, each, 8);
    AT(raffle_drafted, token, 16);
    AT(raffle_drafted, logits, 24);
    AT(raffle_drafted, row_stride, 32);
}

TEST(verified_layout) {
    SIZE(raffle_verified, 56);
    AT(raffle_verified, size, 0);
    AT(raffle_verified, reserved, 4);
    AT(raffle_verified, token, 8);
    AT(raffle_verified, accepted, 16);
    AT(raffle_verified, last, 24);
    AT(raffle_verified, path, 32);
    AT(raffle_verified, row_flags, 40);
    AT(raffle_verified, report, 48);
}

TEST(enum_values) {
    CHECK_EQ(RAFFLE_OK, 0);
    CHECK_EQ(RAFFLE_E_ARGUMENT, 1);
    CHECK_EQ(RAFFLE_E_STRUCT, 2);
    CHECK_EQ(RAFFLE_E_UNSUPPORTED, 3);
    CHECK_EQ(RAFFLE_E_WORKSPACE, 4);
    CHECK_EQ(RAFFLE_E_MEMORY, 5);
    CHECK_EQ(RAFFLE_E_DEVICE, 6);
    CHECK_EQ(RAFFLE_CPU, 0);
    CHECK_EQ(RAFFLE_CUDA, 1);
    CHECK_EQ(RAFFLE_LOGITS, 0);
    CHECK_EQ(RAFFLE_PROBS, 1);
    CHECK_EQ(RAFFLE_F32, 0);
    CHECK_EQ(RAFFLE_F16, 1);
    CHECK_EQ(RAFFLE_BF16, 2);
    CHECK_EQ(RAFFLE_ISA_BEST, 0);
    CHECK_EQ(RAFFLE_ISA_SCALAR, 1);
    CHECK_EQ(RAFFLE_ISA_AVX2, 2);
    CHECK_EQ(RAFFLE_ISA_AVX512, 3);
    CHECK_EQ(RAFFLE_ISA_NEON, 4);
    CHECK_EQ(RAFFLE_KEPT, 0);
    CHECK_EQ(RAFFLE_CUT_MASK, 1);
    CHECK_EQ(RAFFLE_CUT_MIN_P, 2);
    CHECK_EQ(RAFFLE_CUT_TOP_K, 3);
    CHECK_EQ(RAFFLE_CUT_TOP_P, 4);
    CHECK_EQ(RAFFLE_CUT_GREEDY, 5);
    CHECK_EQ(RAFFLE_REJECTION, 0);
    CHECK_EQ(RAFFLE_BLOCK, 1);
    CHECK_EQ(RAFFLE_MATCH, 2);
    CHECK_EQ(RAFFLE_SYNTHETIC, 3);
    CHECK_EQ(RAFFLE_CUT_SHAPE, 6);
    CHECK_EQ(RAFFLE_CUT_XTC, 7);
    CHECK_EQ(RAFFLE_RAW, 0);
    CHECK_EQ(RAFFLE_TEMPERED, 1);
    CHECK_EQ(RAFFLE_FILTERED, 2);
    CHECK_EQ(sizeof(raffle_status), 4); /* an int, as every compiler here makes it */
}

TEST(constants) {
    CHECK_EQ(RAFFLE_VOCAB_MAX, 2097152);
    CHECK_EQ(RAFFLE_NO_TOKEN, -1);
    CHECK_EQ(RAFFLE_WORKSPACE_ALIGN, 64);
    CHECK_EQ(RAFFLE_TOP_P_JOINT, 1);
    CHECK_EQ(RAFFLE_FILTERS_FIRST, 2);
    CHECK_EQ(RAFFLE_MIN_P_LAST, 4);
    CHECK_EQ(RAFFLE_SHAPE_LAST, 32);
    CHECK_EQ(RAFFLE_TOP_K_EXACT, 8);
    CHECK_EQ(RAFFLE_EMPTY_IS_ZERO, 16);
    CHECK_EQ(RAFFLE_LOG, 1);
    CHECK_EQ(RAFFLE_ROW_NAN, 1);
    CHECK_EQ(RAFFLE_ROW_INF, 2);
    CHECK_EQ(RAFFLE_ROW_EMPTY, 4);
    CHECK_EQ(RAFFLE_ROW_ARGUMENT, 8);
    CHECK_EQ(RAFFLE_ROW_DRAFT, 256);
    CHECK_EQ(RAFFLE_ROW_STATE, 16);
    CHECK_EQ(RAFFLE_PLAN_EXTRA, 1);
    CHECK_EQ(RAFFLE_PLAN_REPORT, 2);
    CHECK_EQ(RAFFLE_REPETITION_OUTPUT, 256);
    CHECK_EQ(RAFFLE_COUNT_PROMPT, 512);
    CHECK_EQ(RAFFLE_BAD_WORDS_OUTPUT, 1024);
    CHECK_EQ(RAFFLE_HISTORY_MAX, 1048576);
    CHECK_EQ(RAFFLE_TOP_MAX, 1024);
    CHECK_EQ(raffle_version(), RAFFLE_VERSION_MAJOR * 10000 + RAFFLE_VERSION_MINOR * 100 + RAFFLE_VERSION_PATCH);
}

/* An initialiser sets size and nothing else. */
#define INIT(type)                                                                                                     \
    do {                                                                                                               \
        type made = type##_init();                                                                                     \
        CHECK_EQ(made.size, sizeof(type));                                                                             \
        for (size_t i = sizeof made.size; i < sizeof made; ++i)                                                        \
            CHECK(((const unsigned char *)&made)[i] == 0, #type " byte %zu", i);                                       \
    } while (0)

TEST(initialisers) {
    INIT(raffle_error);
    INIT(raffle_plan_desc);
    INIT(raffle_logits);
    INIT(raffle_params);
    INIT(raffle_result);
    INIT(raffle_output);
    INIT(raffle_launch);
    INIT(raffle_explanation);
    INIT(raffle_probabilities);
    INIT(raffle_drafted);
    INIT(raffle_drafts);
    INIT(raffle_verified);
    INIT(raffle_state);
    INIT(raffle_tokens);
    INIT(raffle_report);
    INIT(raffle_request);
}

int main(void) {
    if (sizeof(void *) != 8 || sizeof(long) != 8) {
        printf("skip layout: these are the numbers of LP64 systems\nlayout: 0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    RUN(error_layout);
    RUN(plan_desc_layout);
    RUN(logits_layout);
    RUN(params_layout);
    RUN(result_layout);
    RUN(output_layout);
    RUN(extra_layout);
    RUN(state_layout);
    RUN(report_layout);
    RUN(request_layout);
    RUN(launch_layout);
    RUN(candidate_layout);
    RUN(explanation_layout);
    RUN(probabilities_layout);
    RUN(drafts_layout);
    RUN(drafted_layout);
    RUN(verified_layout);
    RUN(enum_values);
    RUN(constants);
    RUN(initialisers);
    return test_report("layout");
}
