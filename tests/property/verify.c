/* verify.c - raffle_verify returns the oracle's tokens, bit for bit: every instruction set, kind of draft, method,
 * split and layout of the batch. */
#include "../common/draft_batch.h"
#include "../common/report_row.h"

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

/* The row that token `n` of a request came from; its history lives in said. */
static oracle_case row_of_token(const draft_batch *b, int64_t request, int64_t n, int32_t *said) {
    const int64_t first = b->first[request];
    int32_t node = n ? b->wanted[request].path[n - 1] : -1, depth = 0;
    oracle_case c = case_of(&b->target, draft_row_first(b, request) + node + 1, request);
    c = oracle_behind(c, b->token + first, b->kind == DRAFT_TREE ? b->parent + first : NULL, node, said, &depth);
    c.position += (uint64_t)depth;
    if (b->draw_given) c.bits = b->draw_bits + 2 * (draft_row_first(b, request) + node + 1); /* then nothing is proposed */
    return c;
}

/* What is told of each token beside the oracle's numbers. */
static void check_report(const draft_batch *b, const raffle_report *report, const char *isa) {
    for (int64_t request = 0; request < b->requests; ++request) {
        const verify_answer *w = &b->wanted[request];
        for (int64_t n = 0; n <= b->first[request + 1] - b->first[request]; ++n) {
            int32_t said[DRAFT_HISTORY + VERIFY_DRAFTS_MAX];
            const int emitted = n <= w->accepted;
            const oracle_case c = row_of_token(b, request, emitted ? n : 0, said);
            report_row row = report_row_make(&c, report->point);
            if (!emitted) report_row_clear(&row); /* as where nothing was drawn */
            int32_t token = w->row_flags[n] & RAFFLE_ROW_EMPTY ? -1 : w->token[n];
            if (test_note(report_is(&row, report, draft_row_first(b, request) + n, token)))
                printf("%s: %s: report of token %lld of request %lld, point %d, %s, %s\n", test_state.name, isa, (long long)n,
                       (long long)request, report->point, draft_kinds[b->kind], method_names[b->method]);
            report_row_free(&row);
        }
    }
}

/* The histories of a batch, of which that of `request` goes on with the tokens before its token `n`. */
static raffle_state state_behind(const draft_batch *b, int64_t request, int32_t n) {
    raffle_state state = b->state;
    raffle_tokens t = raffle_tokens_init();
    const int32_t slot = (int32_t)request;
    int64_t prompt, length;
    const int32_t *said = raffle_state_history(&b->state, request, &prompt, &length);
    const int32_t before = (int32_t)prompt, after = (int32_t)(length - prompt);
    state.history_max += VERIFY_DRAFTS_MAX;
    state.memory = test_alloc(raffle_state_bytes(&state));
    CHECK_STATUS(raffle_state_clear(&state, NULL, NULL), RAFFLE_OK);
    t.rows = 1, t.slot = &slot, t.stride = state.history_max;
    t.token = said, t.count = &before;
    CHECK_STATUS(raffle_state_prompt(&state, &t, NULL), RAFFLE_OK);
    t.token = said + prompt, t.count = &after;
    CHECK_STATUS(raffle_state_accept(&state, &t, NULL), RAFFLE_OK);
    t.token = b->wanted[request].token, t.count = &n;
    CHECK_STATUS(raffle_state_accept(&state, &t, NULL), RAFFLE_OK);
    return state;
}

/* The kept set of each token is what raffle_mask finds in its row, with a history that was continued by hand. */
static void check_masks(const draft_batch *b, const raffle_report *report, raffle_isa isa) {
    const int64_t words = (b->target.vocab + 31) / 32;
    uint32_t *kept = test_alloc((size_t)words * 4);
    runner r = runner_make_for(b->target.dtype, b->target.vocab, isa, RAFFLE_PLAN_EXTRA, DRAFT_HISTORY + VERIFY_DRAFTS_MAX);
    for (int64_t request = 0; request < b->requests; ++request)
        for (int32_t n = 0; n <= b->wanted[request].accepted; ++n) {
            const int64_t first = draft_row_first(b, request), row = first + (n ? b->wanted[request].path[n - 1] + 1 : 0);
            const int32_t slot = (int32_t)request;
            raffle_state state = state_behind(b, request, n);
            verify_structs s;
            verify_structs_make(&s, b);
            s.logits.data = batch_row(&b->target, row);
            s.logits.rows = 1;
            s.params.slot = &slot;
            s.params.state = &state;
            s.params.position_offset = (uint64_t)n;
            if (s.params.allow) s.params.allow += row * b->target.words;
            raffle_output output = raffle_output_init();
            output.kept = kept;
            CHECK_STATUS(raffle_mask(r.plan, &s.logits, &s.params, &output, &r.launch, NULL), RAFFLE_OK);
            CHECK(!memcmp(kept, report->kept + (first + n) * report->kept_stride, (size_t)words * 4),
                  "%s: token %d of request %lld: raffle_mask keeps others", raffle_isa_name(isa), n, (long long)request);
            free(state.memory);
        }
    free(kept);
    runner_free(r);
}

static void run_report(const draft_batch *b, runner r, raffle_isa set, int32_t point) {
    enum { TOP = 3, GIVEN = 2, WORDS_MAX = 20, LIST = 40 };
    const char *isa = raffle_isa_name(set);
    static uint32_t kept[BATCH_ROWS_MAX * WORDS_MAX];
    static int32_t list[BATCH_ROWS_MAX * LIST], count[BATCH_ROWS_MAX];
    static float chosen[BATCH_ROWS_MAX], entropy[BATCH_ROWS_MAX], top[BATCH_ROWS_MAX * TOP], given_log[BATCH_ROWS_MAX * GIVEN];
    static int32_t rank[BATCH_ROWS_MAX], top_token[BATCH_ROWS_MAX * TOP], given[BATCH_ROWS_MAX * GIVEN], given_rank[BATCH_ROWS_MAX * GIVEN];
    verify_structs s;
    verify_outputs o;
    raffle_report report = raffle_report_init();
    verify_structs_make(&s, b);
    verify_outputs_poison(&o);
    for (int64_t i = 0; i < b->target.rows * GIVEN; ++i) given[i] = (int32_t)(i * 7 % (b->target.vocab + 1));
    report.point = point;
    report.chosen = chosen, report.rank = rank, report.entropy = entropy;
    report.top_count = TOP, report.top_token = top_token, report.top = top;
    report.given_count = GIVEN, report.given = given, report.given_logprob = given_log, report.given_rank = given_rank;
    memset(kept, REPORT_POISON, sizeof kept), memset(list, REPORT_POISON, sizeof list), memset(count, REPORT_POISON, sizeof count);
    report.kept = kept, report.kept_stride = (b->target.vocab + 31) / 32 + point;
    report.kept_list = list, report.kept_list_stride = 1 + (int64_t)(b->target.seed[0] % LIST), report.kept_count = count;
    o.verified.report = &report;
    CHECK_STATUS(raffle_verify(r.plan, &s.logits, &s.params, &s.drafts, &o.verified, &r.launch, NULL), RAFFLE_OK);
    for (int64_t i = 0; i < b->requests; ++i) verify_outputs_check(&o, b, i, i, draft_row_first(b, i), isa);
    check_report(b, &report, isa);
    for (int64_t i = b->target.rows * report.kept_list_stride; i < BATCH_ROWS_MAX * LIST; ++i)
        CHECK(list[i] == REPORT_POISON * 0x01010101, "%s wrote behind the lists", isa);
    check_masks(b, &report, set);
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
        if (s.drafts.draw_bits) s.drafts.draw_bits += 2 * row;
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
        runner r = draft_runner(b, every_isa[i]);
        run_batch(b, r, isa, 0);
        run_batch(b, r, isa, 3);
        run_alone(b, r, isa);
        if (b->state.memory) run_report(b, r, every_isa[i], (int32_t)(b->target.seed[0] % 3));
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
        draft_batch *b = draft_batch_make(&r, kind, method, vocab_max, 0);
        check_batch(b);
        draft_batch_free(b);
    }
}

/* The same with histories, edits and filters: few at a time, or many drafts would have no chance. */
static void check_extras(draft_kind kind, int32_t method, int64_t batches, uint64_t seed) {
    test_random r = {seed};
    batches = test_amount(batches);
    for (int64_t i = 0; i < batches; ++i) {
        uint32_t wish = (uint32_t)random_bits(&r) & PICK_ALL;
        if (i % 4) wish &= (uint32_t)random_bits(&r) & (uint32_t)random_bits(&r);
        draft_batch *b = draft_batch_make(&r, kind, method, 500, wish ? wish : PICK_COUNTS);
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
TEST(extras_of_chains) {
    check_extras(DRAFT_LOGITS, RAFFLE_REJECTION, 40, 20);
    check_extras(DRAFT_LOGITS, RAFFLE_BLOCK, 25, 21);
    check_extras(DRAFT_PROBABILITIES, RAFFLE_REJECTION, 15, 22);
    check_extras(DRAFT_TOKENS, RAFFLE_REJECTION, 25, 23);
    check_extras(DRAFT_TOKENS, RAFFLE_BLOCK, 15, 24);
    check_extras(DRAFT_TOKENS, RAFFLE_MATCH, 40, 25);
    check_extras(DRAFT_TOKENS, RAFFLE_SYNTHETIC, 20, 26);
}
TEST(extras_of_trees) {
    check_extras(DRAFT_TREE, RAFFLE_REJECTION, 40, 27);
    check_extras(DRAFT_TREE, RAFFLE_MATCH, 40, 28);
    check_extras(DRAFT_TREE, RAFFLE_SYNTHETIC, 20, 29);
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
    RUN(extras_of_chains);
    RUN(extras_of_trees);
    RUN(enough_was_decided);
    return test_report("verify");
}
