/* fuzz_verify.c - libFuzzer target: bytes choose a batch of requests with drafts, and what to spoil of it.
 *
 * What must hold for every input: no crash and no access outside what the caller owns; on an error a status, a sentence and
 * untouched outputs; on success ids in range, or RAFFLE_NO_TOKEN; and the oracle's answers where nothing was spoilt. */
#include "common/draft_batch.h"
#include "fuzz.h"

/* Spoils one thing, mostly; some values are as good as others. */
static void spoil(draft_batch *b, verify_structs *s, verify_outputs *o, raffle_launch *launch, input *in) {
    int64_t drafts = b->draft.rows, at = drafts ? (int64_t)(take(in, 1) % (uint64_t)drafts) : 0;
    int64_t request = (int64_t)(take(in, 1) % (uint64_t)b->requests);
    switch (take(in, 1) % 26) {
    case 0: b->token[at] = (int32_t)take(in, 4); break;
    case 1: b->parent[at] = (int32_t)take(in, 4); break;
    case 2: b->first[take(in, 1) % (uint64_t)(b->requests + 1)] = (int32_t)take(in, 4); break;
    case 3: b->target.temperature[request] = any_float(in); break;
    case 4: b->target.top_p[request] = any_float(in); break;
    case 5: b->draft.min_p[request] = any_float(in); break;
    case 6: b->target.top_k[request] = (int32_t)take(in, 4); break;
    case 7: s->drafts.method = (int32_t)take(in, 1) - 1; break;
    case 8: s->drafts.threshold_single = any_float(in); break;
    case 9: s->drafts.threshold_sum = any_float(in); break;
    case 10: s->drafts.rate = any_float(in); break;
    case 11: s->drafts.requests -= (int64_t)take(in, 1); break; /* more would be a lie about what first[] has */
    case 12: s->drafts.each = (int64_t)take(in, 8); break;
    case 13: s->logits.rows += (int64_t)take(in, 1) - 128; break;
    case 14: s->params.flags = (uint32_t)take(in, 4); break;
    case 15: s->params.slots = (int64_t)take(in, 8); break;
    case 16: s->drafts.token = NULL; break;
    case 17: s->params.seed = NULL; break;
    case 18: s->drafts.size = (uint32_t)take(in, 2) % (sizeof s->drafts + 1); break;
    case 19: s->params.draft_step = (uint32_t)take(in, 1); break;
    case 20: o->verified.token = NULL; break;
    case 21: launch->workspace_bytes -= take(in, 2); break;
    case 22: launch->parts = (int32_t)take(in, 1) - 2, launch->part = (int32_t)take(in, 1) - 2; break;
    case 23: s->draft_logits.rows += (int64_t)take(in, 1) - 128; break;
    case 24: s->drafts.params = NULL; break;
    default: s->drafts.parent = b->parent; break;
    }
}

static int in_range(const verify_outputs *o, const draft_batch *b, const raffle_launch *launch) {
    if (launch->parts > 1) return 1; /* the rest is not written */
    for (int64_t i = 0; i < b->target.rows; ++i)
        if (o->token[i] < RAFFLE_NO_TOKEN || o->token[i] >= b->target.vocab) return 0;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    input in = {data, data + bytes};
    static const raffle_isa isas[] = {RAFFLE_ISA_SCALAR, RAFFLE_ISA_AVX2, RAFFLE_ISA_AVX512, RAFFLE_ISA_NEON};
    draft_kind kind = (draft_kind)(take(&in, 1) % 4);
    int32_t method = (int32_t)(take(&in, 1) % 4);
    if (kind == DRAFT_TREE && method == RAFFLE_BLOCK) method = RAFFLE_REJECTION;
    if (kind != DRAFT_TOKENS && kind != DRAFT_TREE) method %= 2;
    test_random r = {take(&in, 4)};
    uint32_t wish = (uint32_t)take(&in, 3) & PICK_ALL;
    draft_batch *b = draft_batch_make(&r, kind, method, 400, wish);
    int spoilt = (int)(take(&in, 1) % 3);
    verify_structs s;
    verify_outputs o, before;
    verify_structs_make(&s, b);
    verify_outputs_poison(&o);
    runner any = draft_runner(b, RAFFLE_ISA_BEST);
    for (int i = 0; i < spoilt; ++i) spoil(b, &s, &o, &any.launch, &in);
    for (int i = 0; i < 4; ++i) {
        if (!raffle_isa_available(isas[i])) continue;
        runner run = draft_runner(b, isas[i]);
        raffle_launch launch = any.launch;
        raffle_error error = raffle_error_init();
        before = o;
        raffle_status status = raffle_verify(run.plan, &s.logits, &s.params, &s.drafts, &o.verified, &launch, &error);
        MUST(spoilt || status == RAFFLE_OK);
        if (status) {
            MUST(error.status == (int32_t)status && error.text[0] && memchr(error.text, 0, sizeof error.text));
            MUST(!memcmp(&before, &o, sizeof o));
        } else {
            MUST(in_range(&o, b, &launch));
        }
        for (int64_t q = 0; !spoilt && q < b->requests; ++q) verify_outputs_check(&o, b, q, q, draft_row_first(b, q), "fuzz");
        MUST(!test_state.failures);
        runner_free(run);
    }
    runner_free(any);
    draft_batch_free(b);
    return 0;
}
