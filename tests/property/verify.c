/* verify.c - raffle_verify returns the oracle's tokens, bit for bit: every instruction set, kind of draft, method,
 * split and layout of the batch. */
#include "../common/draft_batch.h"

static long requests_checked, drafts_checked, accepted_count;

/* All at once, and in parts on one dirty workspace, the last part first. */
static void run_batch(const draft_batch *b, runner r, const char *isa, int32_t parts) {
    verify_structs s;
    verify_outputs o;
    verify_structs_make(&s, b);
    verify_outputs_poison(&o);
    r.launch.parts = parts;
    for (r.launch.part = parts ? parts - 1 : 0; r.launch.part >= 0; --r.launch.part)
        CHECK_STATUS(raffle_verify(r.plan, &s.logits, &s.params, &s.drafts, &o.verified, &r.launch, NULL), RAFFLE_OK);
    for (int64_t i = 0; i < b->requests; ++i) verify_outputs_check(&o, b, i, i, draft_row_first(b, i), isa);
    verify_guards_check(&o, b, isa);
}

/* Each request alone, by a call of its own, its parameters found by a slot, without the optional results. */
static void run_alone(const draft_batch *b, runner r, const char *isa) {
    for (int64_t i = 0; i < b->requests; ++i) {
        verify_structs s;
        verify_outputs o;
        int64_t count = b->first[i + 1] - b->first[i], row = draft_row_first(b, i), bytes = element_bytes(b->target.dtype);
        int32_t slot = (int32_t)i;
        verify_structs_make(&s, b);
        verify_outputs_poison(&o);
        o.verified.path = o.verified.last = NULL;
        o.verified.row_flags = NULL;
        s.logits.data = batch_row(&b->target, row);
        s.logits.rows = count + 1;
        s.params.slot = &slot;
        s.params.allow = b->target.allow ? b->target.allow + row * b->target.words : NULL;
        s.drafts.requests = 1;
        s.drafts.each = count;
        s.drafts.first = NULL;
        s.drafts.token += b->first[i];
        if (s.drafts.parent) s.drafts.parent += b->first[i];
        if (s.drafts.accept_bits) s.drafts.accept_bits += row;
        if (s.drafts.recover_bits) s.drafts.recover_bits += 2 * i;
        if (b->kind == DRAFT_LOGITS) {
            s.draft_logits.data = (const char *)s.draft_logits.data + b->first[i] * b->draft.stride * bytes;
            s.draft_logits.rows = count;
            s.draft_params.slot = &slot;
            s.draft_params.allow = b->draft.allow ? b->draft.allow + b->first[i] * b->draft.words : NULL;
        }
        if (b->kind == DRAFT_PROBABILITIES) {
            s.probabilities.data += b->first[i] * b->target.vocab;
            s.probabilities.rows = count;
        }
        CHECK_STATUS(raffle_verify(r.plan, &s.logits, &s.params, &s.drafts, &o.verified, &r.launch, NULL), RAFFLE_OK);
        memcpy(o.path, b->wanted[i].path, sizeof(int32_t) * (size_t)(count + 1)); /* not asked for */
        memcpy(o.row_flags, b->wanted[i].row_flags, sizeof(int32_t) * (size_t)(count + 1));
        o.last[0] = b->wanted[i].last;
        verify_outputs_check(&o, b, i, 0, 0, isa);
    }
}

static void check_batch(const draft_batch *b) {
    for (int i = 0; i < ISA_COUNT; ++i) {
        if (!raffle_isa_available(every_isa[i])) continue;
        const char *isa = raffle_isa_name(every_isa[i]);
        runner r = runner_make(b->target.dtype, b->target.vocab, every_isa[i]);
        run_batch(b, r, isa, 0);
        run_batch(b, r, isa, 3);
        run_alone(b, r, isa);
        runner_free(r);
    }
    requests_checked += b->requests;
    drafts_checked += b->first[b->requests];
    for (int64_t i = 0; i < b->requests; ++i) accepted_count += b->wanted[i].accepted;
}

static void check_kind(draft_kind kind, int32_t method, int64_t batches, int64_t vocab_max, uint64_t seed) {
    test_random r = {seed};
    batches = test_amount(batches);
    for (int64_t i = 0; i < batches; ++i) {
        draft_batch *b = draft_batch_make(&r, kind, method, vocab_max);
        check_batch(b);
        draft_batch_free(b);
    }
}

TEST(rejection_of_logits) { check_kind(DRAFT_LOGITS, RAFFLE_REJECTION, 150, 1200, 1); }
TEST(rejection_of_probabilities) { check_kind(DRAFT_PROBABILITIES, RAFFLE_REJECTION, 80, 1200, 2); }
TEST(rejection_of_tokens) { check_kind(DRAFT_TOKENS, RAFFLE_REJECTION, 80, 1200, 3); }
TEST(block_of_logits) { check_kind(DRAFT_LOGITS, RAFFLE_BLOCK, 120, 900, 4); }
TEST(block_of_probabilities) { check_kind(DRAFT_PROBABILITIES, RAFFLE_BLOCK, 60, 900, 5); }
TEST(block_of_tokens) { check_kind(DRAFT_TOKENS, RAFFLE_BLOCK, 60, 900, 6); }
TEST(match) { check_kind(DRAFT_TOKENS, RAFFLE_MATCH, 120, 1200, 7); }
TEST(synthetic) { check_kind(DRAFT_TOKENS, RAFFLE_SYNTHETIC, 50, 600, 8); }
TEST(tree_rejection_and_thresholds) { check_kind(DRAFT_TREE, RAFFLE_REJECTION, 150, 1200, 9); }
TEST(tree_match) { check_kind(DRAFT_TREE, RAFFLE_MATCH, 120, 1200, 10); }
TEST(tree_synthetic) { check_kind(DRAFT_TREE, RAFFLE_SYNTHETIC, 30, 600, 11); }
TEST(large_vocabularies) {
    check_kind(DRAFT_LOGITS, RAFFLE_REJECTION, 3, 20000, 12);
    check_kind(DRAFT_LOGITS, RAFFLE_BLOCK, 3, 20000, 13);
}

TEST(enough_was_decided) {
    printf("     %ld requests, %ld drafts, %ld accepted\n", requests_checked, drafts_checked, accepted_count);
    CHECK(accepted_count * 5 > drafts_checked && accepted_count * 5 < drafts_checked * 4, "one-sided: %ld of %ld", accepted_count,
          drafts_checked);
}

int main(void) {
    RUN(rejection_of_logits);
    RUN(rejection_of_probabilities);
    RUN(rejection_of_tokens);
    RUN(block_of_logits);
    RUN(block_of_probabilities);
    RUN(block_of_tokens);
    RUN(match);
    RUN(synthetic);
    RUN(tree_rejection_and_thresholds);
    RUN(tree_match);
    RUN(tree_synthetic);
    RUN(large_vocabularies);
    RUN(enough_was_decided);
    return test_report("verify");
}
