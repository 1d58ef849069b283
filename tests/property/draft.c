/* draft.c - raffle_sample draws drafts as the oracle does; raffle_draft draws what raffle_sample does, and keeps tokens and rows where
 * raffle_verify looks for them. */
#include "../common/ask.h"
#include "../common/draft_loop.h"

static void check_loop(const draft_loop *l, raffle_isa isa, int32_t parts) {
    const raffle_plan_desc desc = {.size = sizeof desc, .dtype = l->draft.dtype, .isa = (int32_t)isa, .vocab = l->vocab};
    runner run = runner_open(&desc);
    char *from = test_alloc(l->from.bytes), *kept = test_alloc(l->to.bytes);
    int32_t token[LOOP_DRAFTS + 8];
    const int32_t guard = 0x5a5a5a5a;
    memset(token, GUARD, sizeof token);
    memset(kept, GUARD, l->to.bytes);
    const raffle_drafted drafted = loop_drafted(l, token, kept);
    for (uint32_t step = 1; step <= l->each; ++step) {
        const raffle_params params = loop_params(l, step);
        const raffle_logits logits = loop_logits(l, from);
        outputs o;
        outputs_poison(&o);
        memcpy(from, l->step[step - 1], l->from.bytes);
        run.launch.parts = parts;
        for (run.launch.part = parts ? parts - 1 : 0; run.launch.part >= 0; --run.launch.part)
            CHECK_STATUS(raffle_draft(run.plan, &logits, &params, &o.result, &drafted, &run.launch, NULL), RAFFLE_OK);
        CHECK(!memcmp(o.token, l->drawn[step - 1], (size_t)l->requests * 4), "step %u draws other tokens", step);
        CHECK(!memcmp(o.row_flags, l->row_flags[step - 1], (size_t)l->requests * 4), "step %u has other flags", step);
        CHECK(o.token[l->requests] == guard, "step %u wrote behind its tokens", step);
        CHECK(!memcmp(from, l->step[step - 1], l->from.bytes), "step %u changed the logits", step);
        for (int64_t i = 0; i < l->requests; ++i)
            for (uint32_t later = step; later < l->each; ++later) CHECK_EQ(token[i * l->each + later], guard);
    }
    CHECK(!memcmp(token, l->token, (size_t)(l->requests * l->each) * 4), "other tokens were kept");
    CHECK(token[l->requests * l->each] == guard, "more tokens were kept than there are");
    CHECK(!memcmp(kept, l->kept, l->to.bytes), "other rows were kept, or something beside them written");
    loop_verdict by_hand, got;
    memset(&by_hand, 0, sizeof by_hand), memset(&got, 0, sizeof got);
    run.launch.part = run.launch.parts = 0;
    const raffle_params params = loop_params(l, 0);
    const raffle_drafted wanted = loop_drafted(l, (int32_t *)l->token, l->kept);
    CHECK_STATUS(loop_verify(l, run.plan, &run.launch, &params, l->target, &wanted, &by_hand, NULL), RAFFLE_OK);
    CHECK_STATUS(loop_verify(l, run.plan, &run.launch, &params, l->target, &drafted, &got, NULL), RAFFLE_OK);
    CHECK(!memcmp(&got, &by_hand, sizeof got), "verified otherwise");
    loop_verdict_check(l, &got);
    free(from), free(kept);
    runner_free(run);
}

/* By bits of their own: of the first proposal, and of those behind it. */
TEST(draft_steps) {
    static const uint32_t steps[] = {1, 2, 7, 0x80000000u, UINT32_MAX};
    test_random r = {5};
    int proposals = 0;
    for (int64_t i = 0; i < test_amount(1000); ++i) {
        const int64_t vocab = 1 + random_below(&r, 3000);
        const int dtype = (int)random_below(&r, 3), alone = random_below(&r, 3) > 0;
        void *row = test_alloc((size_t)vocab * 4);
        vector_row_make(row_kinds[random_below(&r, ROW_KINDS)], (uint64_t)i, vocab, dtype, row);
        oracle_case c = ask_row(row, dtype, vocab);
        c.temperature = alone ? 3.0f : pick_temperature(&r);
        c.top_p = alone ? 0.4f + 0.6f * (float)random_unit(&r) : pick_top_p(&r);
        c.top_k = alone ? 0 : pick_top_k(&r, vocab);
        c.min_p = alone ? 0.0f : pick_min_p(&r);
        c.flags = pick_flags(&r);
        c.seed = random_bits(&r), c.position = random_bits(&r);
        c.draft_step = steps[i % 5];
        proposals += ask(&c, NULL).proposals > 1;
        free(row);
    }
    CHECK(proposals >= test_amount(1000) / 50, "%d drafts took more than one proposal", proposals);
}

TEST(as_by_hand) {
    static const int32_t parts[] = {0, 1, 2, 3, 20};
    test_random r = {1};
    for (int64_t i = 0; i < test_amount(600); ++i) {
        draft_loop *l = loop_make(&r, i % 50 ? 700 : 20000);
        check_loop(l, RAFFLE_ISA_BEST, parts[i % 5]);
        if (i % 4 == 0) check_loop(l, RAFFLE_ISA_SCALAR, 0);
        loop_free(l);
    }
}

/* A part of a call keeps its own rows, and no others. */
TEST(parts_keep_their_own) {
    test_random r = {2};
    for (int64_t turn = 0; turn < test_amount(60); ++turn) {
        draft_loop *l = loop_make(&r, 300);
        const int32_t parts = 4, part = (int32_t)(turn % parts);
        const int64_t first = l->requests * part / parts, end = l->requests * (part + 1) / parts, bytes = element_bytes(l->draft.dtype);
        runner run = runner_make(l->draft.dtype, l->vocab, RAFFLE_ISA_BEST);
        char *kept = test_alloc(l->to.bytes), *wanted = test_alloc(l->to.bytes);
        int32_t token[LOOP_DRAFTS];
        outputs o;
        outputs_poison(&o);
        memset(token, GUARD, sizeof token), memset(kept, GUARD, l->to.bytes), memset(wanted, GUARD, l->to.bytes);
        const raffle_drafted drafted = loop_drafted(l, token, kept);
        const raffle_params params = loop_params(l, (uint32_t)l->each);
        const raffle_logits logits = loop_logits(l, l->step[l->each - 1]);
        run.launch.parts = parts, run.launch.part = part;
        CHECK_STATUS(raffle_draft(run.plan, &logits, &params, &o.result, &drafted, &run.launch, NULL), RAFFLE_OK);
        for (int64_t i = 0; i < l->requests * l->each; ++i) {
            const int own = i % l->each == l->each - 1 && i / l->each >= first && i / l->each < end;
            CHECK_EQ(token[i], own ? l->token[i] : 0x5a5a5a5a);
            char *const to = field_row(&l->to, wanted, l->draft.dtype, i);
            if (own && !l->tokens_alone) memcpy(to, field_row(&l->to, l->kept, l->draft.dtype, i), (size_t)(l->vocab * bytes));
        }
        CHECK(!memcmp(kept, wanted, l->to.bytes), "rows of another part were kept");
        free(kept), free(wanted);
        runner_free(run);
        loop_free(l);
    }
}

/* What is kept is the row as it came, not as it was edited; a report tells what it tells without. */
TEST(edited_rows_are_kept_as_they_came) {
    enum { VOCAB = 400, ROWS = 3 };
    static float data[ROWS * VOCAB], kept[ROWS * VOCAB];
    const int32_t banned[2] = {3, 77};
    const uint64_t seed[ROWS] = {5, 6, 7}, position[ROWS] = {0};
    raffle_extra extra[ROWS] = {{.banned = banned, .banned_count = 2, .typical_p = 0.9f}, {.flags = 0}, {.top_n_sigma = 1.0f}};
    float chosen[ROWS], wanted_chosen[ROWS];
    int32_t token[ROWS], drawn[ROWS], wanted[ROWS];
    runner run = runner_make_for(RAFFLE_F32, VOCAB, RAFFLE_ISA_BEST, RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT, 0);
    for (int i = 0; i < ROWS; ++i) vector_row_make("normal", (uint64_t)i + 3, VOCAB, RAFFLE_F32, data + i * VOCAB);
    raffle_logits logits = raffle_logits_init();
    logits.data = data, logits.rows = ROWS;
    raffle_params params = raffle_params_init();
    params.seed = seed, params.position = position, params.draft_step = 1;
    params.extra = extra, params.extra_bytes = sizeof *extra;
    raffle_report report = raffle_report_init();
    report.chosen = wanted_chosen;
    raffle_result result = raffle_result_init();
    result.token = wanted, result.report = &report;
    CHECK_STATUS(raffle_sample(run.plan, &logits, &params, &result, &run.launch, NULL), RAFFLE_OK);
    raffle_drafted drafted = raffle_drafted_init();
    drafted.each = 1, drafted.token = token, drafted.logits = kept;
    report.chosen = chosen, result.token = drawn;
    CHECK_STATUS(raffle_draft(run.plan, &logits, &params, &result, &drafted, &run.launch, NULL), RAFFLE_OK);
    CHECK(!memcmp(token, wanted, sizeof token) && !memcmp(drawn, wanted, sizeof drawn), "other tokens");
    CHECK(!memcmp(chosen, wanted_chosen, sizeof chosen), "another report");
    CHECK(!memcmp(kept, data, sizeof kept), "the rows that were kept are others");
    runner_free(run);
}

int main(void) {
    RUN(draft_steps);
    RUN(as_by_hand);
    RUN(parts_keep_their_own);
    RUN(edited_rows_are_kept_as_they_came);
    return test_report("draft");
}
