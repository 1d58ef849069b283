/* verify.c - raffle_verify on the CPU. A request is walked from its first row: the row is sampled as always, which
 * also tells its law (threshold and mass); then its drafts are accepted or not. Rows behind a rejection are not read. */
#include <limits.h>

#include "args.h"
#include "fpenv.h"
#include "run.h"

#include "vec_one.h"

#include "verify.h"

/* One request on its way. */
typedef struct walk {
    const raffle_plan *plan;
    const verify_call *call;
    const cpu_table *table;
    const call *draft; /* the drafts' parameters */
    cpu_scratch scratch;
    edit_scratch edits;
    int64_t request, slot;
    int64_t draft_first, row_first, count; /* its drafts, its target rows, how many drafts */
    const int32_t *token, *parent;         /* [count] */
    int32_t node;     /* the draft that was accepted last; -1: none */
    int32_t accepted; /* so many were */
} walk;

/* A row as it came and as its edits made it, what sampling it gave, and its law if it was drawn from. */
typedef struct step {
    cpu_row raw, row;
    int dtype; /* of the row */
    answer answer;
    cpu_law law;
} step;

/* ---- laws --------------------------------------------------------------------------------------------------- */

/* Samples the row of s, and makes its law, unless nobody asks for more than its token: else its maxima are in the scratch's peak. */
static void step_sample(const walk *w, const cpu_scratch *scratch, step *s) {
    s->answer = w->table->sample[s->dtype](&s->row, scratch);
    if (s->row.only_token || s->answer.greedy || s->answer.row_flags & RAFFLE_ROW_EMPTY) return;
    cpu_law law = {
        .tickets = w->table->tickets[s->dtype],
        .mass = s->answer.draw_tickets,
        .row = &s->row,
        .peak = scratch->peak,
        .weighing = weighing_make(s->row.params.temperature, peaks_largest(scratch->peak, scratch->groups)),
        .cut = cut_of(&s->answer),
        .whole = s->answer.whole,
    };
    s->law = law;
}

/* The next draft behind `node` from `from` on, or -1. */
static int32_t next_child(const walk *w, int32_t node, int32_t from) {
    if (!w->parent) return from <= node + 1 && node + 1 < w->count && w->token[node + 1] >= 0 ? node + 1 : -1;
    for (int32_t i = from; i < w->count; ++i)
        if (w->parent[i] == node && w->token[i] >= 0) return i;
    return -1;
}

/* The target row behind draft `node`, with `depth` tokens before it, which have been emitted. Its law is there for whom it judges: the
 * draft behind it, if there is one and the method asks. */
static void target_step(const walk *w, int32_t node, int32_t depth, step *s) {
    const call *c = &w->call->target;
    const int method = w->call->drafts.method, sampled = method == RAFFLE_MATCH || method == RAFFLE_SYNTHETIC;
    const tail said = {w->call->verified.token + w->row_first, depth};
    s->raw = raffle_row_make(w->plan, &c->logits, &c->params, w->row_first + node + 1, w->slot);
    s->raw.params.position += (uint64_t)depth;
    if (w->call->drafts.draw_bits) s->raw.params.bits = w->call->drafts.draw_bits + 2 * (w->row_first + node + 1);
    s->row = s->raw;
    s->dtype = raffle_row_prepare(w->plan, c, w->slot, said, &w->edits, &s->row);
    if (c->result.report) raffle_report_expect(&c->report, &s->raw, &s->row);
    s->row.only_token = !c->result.report && (sampled || next_child(w, node, 0) < 0);
    step_sample(w, &w->scratch, s);
}

/* The scratch for a draft's row: all that must outlast it is the target's. */
static cpu_scratch draft_scratch(const cpu_scratch *target) {
    cpu_scratch other = *target;
    other.peak = target->draft_peak;
    other.mass = target->left_s; /* until something is left over */
    other.exponent = target->draft_exponent;
    other.low = target->draft_low;
    other.size = target->draft_size;
    return other;
}

static uint64_t token_tickets(const cpu_law *law, int32_t token) {
    uint64_t t[GROUP];
    return law->tickets(law, token / GROUP, t) ? t[token % GROUP] : 0;
}

/* Tokens that are known, and nothing else: one ticket each. */
static uint64_t tickets_tokens(const cpu_law *law, int64_t g, uint64_t *t) {
    uint64_t sum = 0;
    memset(t, 0, GROUP * sizeof *t);
    for (int64_t i = 0; i < law->count; ++i) {
        if (law->parent && law->parent[i] != law->node) continue;
        if (law->token[i] < 0 || law->token[i] / GROUP != g) continue;
        t[law->token[i] % GROUP] = 1; /* twice the same sibling is one */
        sum = 1;
    }
    return sum;
}

static cpu_law law_of_tokens(const int32_t *token, const int32_t *parent, int64_t count, int32_t node) {
    cpu_law law = {.tickets = tickets_tokens, .mass = 1, .token = token, .parent = parent, .count = count, .node = node};
    return law;
}

/* The law that draft i of the request was drawn from, in s->law. 0: its row has none. */
static int draft_step(const walk *w, int64_t i, step *s) {
    const verify_call *c = w->call;
    const cpu_scratch other = draft_scratch(&w->scratch);
    if (c->has_logits) {
        const int64_t slot = slot_of(&c->draft_params, w->request);
        const tail said = {w->token, (int32_t)i};
        edit_scratch edits = w->edits;
        edits.row = w->edits.draft_row;
        s->row = raffle_row_make(w->plan, &c->draft_logits, &c->draft_params, w->draft_first + i, slot);
        s->row.only_kept = 1; /* its token is the draft */
        s->dtype = raffle_row_prepare(w->plan, w->draft, slot, said, &edits, &s->row);
        step_sample(w, &other, s);
        if (s->answer.row_flags & RAFFLE_ROW_EMPTY) return 0;
        if (s->answer.greedy) s->law = law_of_tokens(&s->answer.token, NULL, 1, -1);
    } else if (c->has_probabilities) {
        const raffle_probabilities *p = &c->draft_probabilities;
        cpu_row row = {.logits = (const char *)p->data + (w->draft_first + i) * p->row_stride * 4};
        row.params.vocab = w->plan->desc.vocab;
        row.params.temperature = LINEAR_TEMPERATURE;
        row.params.top_p = 1.0f;
        s->row = row;
        s->dtype = RAFFLE_F32;
        step_sample(w, &other, s);
        if (s->answer.row_flags & (RAFFLE_ROW_EMPTY | RAFFLE_ROW_NAN)) return 0;
    } else {
        s->law = law_of_tokens(w->token + i, NULL, 1, -1);
    }
    return 1;
}

static chances chances_of(const cpu_law *target, const cpu_law *draft, int32_t token) {
    chances c = {token_tickets(target, token), target->mass, token_tickets(draft, token), draft->mass};
    return c;
}

/* ---- random bits ------------------------------------------------------------------------------------------------ */

/* They belong to the position that the request starts from and count the steps behind it, so that a later call, which
 * starts elsewhere, never meets bits that have already decided something. */
static philox_pair bits_of_step(const walk *w, uint32_t stream, int32_t depth) {
    const raffle_params *p = &w->call->target.params;
    return philox_step(p->seed[w->slot], p->position[w->slot], stream, (uint32_t)depth);
}

static uint64_t accept_bits(const walk *w, int32_t node, int32_t depth) {
    const uint64_t *given = w->call->drafts.accept_bits;
    return given ? given[w->row_first + node + 1] : bits_of_step(w, STREAM_ACCEPT, depth).low;
}

/* ---- the token in place of a rejected draft ------------------------------------------------------------------------ */

/* A token drawn from the target's row and kept for what the draft's leaves of it; RAFFLE_NO_TOKEN: none was. */
static int32_t propose(const walk *w, const step *target, const cpu_law *draft) {
    cpu_row row = target->row;
    int weighed = 0;
    for (int32_t i = 0; i < PROPOSALS; ++i) {
        const philox_pair chance = bits_of_step(w, STREAM_PROPOSE, 2 * i);
        const uint64_t bits[2] = {chance.low, chance.high};
        row.params.bits = bits;
        const int32_t token = w->table->draw[target->dtype](&row, &w->scratch, &target->answer, &weighed);
        if (proposal_kept(bits_of_step(w, STREAM_PROPOSE, 2 * i + 1).low, chances_of(&target->law, draft, token))) return token;
    }
    return RAFFLE_NO_TOKEN;
}

static wide left_total(const walk *w, const cpu_pair *pair) {
    wide total = wide_of(0);
    for (int64_t g = 0; g < w->scratch.groups; ++g)
        total = wide_add(total, odds_sum(pair->odds, w->scratch.left_t[g], w->scratch.left_s[g]));
    return total;
}

/* The token that is drawn from what is left over; `plain` if that is nothing, which no draft that was drawn from its own row comes to. */
static int32_t recover(const walk *w, const cpu_pair *pair, int32_t depth, int32_t plain) {
    const uint64_t *given = w->call->drafts.recover_bits;
    const cpu_scratch *s = &w->scratch;
    philox_pair bits = bits_of_step(w, STREAM_RECOVER, depth);
    if (given) bits.low = given[2 * w->request], bits.high = given[2 * w->request + 1];
    wide total = left_total(w, pair), number = wide_share(total, bits.high, bits.low), held;
    if (wide_is_zero(total)) return plain;
    int64_t g = 0;
    for (;; ++g) {
        held = odds_sum(pair->odds, s->left_t[g], s->left_s[g]);
        if (wide_less(number, held)) break;
        number = wide_subtract(number, held);
    }
    uint64_t tt[GROUP], ss[GROUP];
    pair->target.tickets(&pair->target, g, tt);
    if (!pair->draft.tickets(&pair->draft, g, ss)) memset(ss, 0, sizeof ss);
    for (int32_t j = 0;; ++j) {
        if (!odds_left(pair->odds, tt[j], ss[j])) continue;
        held = odds_sum(pair->odds, tt[j], ss[j]);
        if (wide_less(number, held)) return (int32_t)(g * GROUP) + j;
        number = wide_subtract(number, held);
    }
}

/* ---- what a request emits ------------------------------------------------------------------------------------------ */

static void emit(const walk *w, int32_t index, int32_t token, int32_t draft, uint32_t flags) {
    const raffle_verified *v = &w->call->verified;
    v->token[w->row_first + index] = token;
    if (v->path) v->path[w->row_first + index] = draft;
    if (v->row_flags) v->row_flags[w->row_first + index] = flags;
}

/* Tells of a token and the row it came from, whose law is then gone. */
static void tell(const walk *w, int32_t index, int32_t token, const step *from) {
    const call *c = &w->call->target;
    answer drawn = from->answer;
    drawn.token = token;
    if (c->result.report)
        raffle_row_report(w->plan, &c->report, w->row_first + index, &from->raw, &from->row, from->dtype, &drawn, &w->scratch);
}

/* The last token, from the row `from`, which has `more` flags. */
static void emit_last(const walk *w, int32_t index, int32_t token, const step *from, uint32_t more) {
    const raffle_verified *v = &w->call->verified;
    const call *c = &w->call->target;
    const uint32_t flags = from->answer.row_flags;
    int zero = flags & RAFFLE_ROW_EMPTY && from->row.params.flags & RAFFLE_EMPTY_IS_ZERO;
    emit(w, index, zero ? 0 : token, -1, flags | more);
    tell(w, index, token, from);
    v->accepted[w->request] = index;
    if (v->last) v->last[w->request] = zero ? 0 : token;
    for (int64_t i = index + 1; i <= w->count; ++i) {
        emit(w, (int32_t)i, RAFFLE_NO_TOKEN, -1, 0);
        if (c->result.report) raffle_report_nothing(w->plan, &c->report, w->row_first + i);
    }
}

static void accept(walk *w, int32_t draft, const step *from) {
    emit(w, w->accepted, w->token[draft], draft, from->answer.row_flags);
    tell(w, w->accepted++, w->token[draft], from);
    w->node = draft;
}

/* ---- chains and trees, draft by draft ---------------------------------------------------------------------------------- */

static int32_t child_equal(const walk *w, int32_t token) {
    int32_t i = next_child(w, w->node, 0);
    while (i >= 0 && w->token[i] != token) i = next_child(w, w->node, i + 1);
    return i;
}

/* A sibling that holds the same token was looked at before. */
static int seen_before(const walk *w, int32_t child) {
    int32_t i = next_child(w, w->node, 0);
    while (i < child && w->token[i] != w->token[child]) i = next_child(w, w->node, i + 1);
    return i < child;
}

/* One coin for all siblings: as if the row were drawn with their tickets first. Returns the accepted one or -1. */
static int32_t accepted_sibling(const walk *w, const cpu_law *target) {
    const raffle_drafts *d = &w->call->drafts;
    const uint64_t bits = accept_bits(w, w->node, w->accepted);
    const uint64_t whole = d->threshold_sum > 0.0f ? threshold_of(d->threshold_sum, target->mass) : target->mass;
    const uint64_t enough = d->threshold_single > 0.0f ? threshold_of(d->threshold_single, target->mass) : UINT64_MAX;
    uint64_t sum = 0;
    for (int32_t i = next_child(w, w->node, 0); i >= 0; i = next_child(w, w->node, i + 1)) {
        uint64_t t = seen_before(w, i) ? 0 : token_tickets(target, w->token[i]);
        sum += t;
        if (mul_high(bits, whole) < sum || t >= enough) return i;
    }
    return -1;
}

static void recover_last(walk *w, const step *target, const cpu_law *draft) {
    int32_t token = RAFFLE_NO_TOKEN;
    if (target->answer.whole && !w->call->drafts.recover_bits) token = propose(w, target, draft);
    if (token == RAFFLE_NO_TOKEN) {
        const cpu_pair pair = {target->law, *draft, odds_make(target->law.mass, draft->mass), w->scratch.groups};
        w->table->left_over(&pair, w->scratch.left_t, w->scratch.left_s);
        token = recover(w, &pair, w->accepted, target->answer.token);
    }
    emit_last(w, w->accepted, token, target, 0);
}

/* The drafts behind the node by rejection. 1: one was accepted; 0: the last token was emitted. */
static int reject_or_accept(walk *w, const step *target) {
    const verify_call *c = w->call;
    if (!c->has_logits && !c->has_probabilities) {
        int32_t child = accepted_sibling(w, &target->law);
        if (child >= 0) return accept(w, child, target), 1;
        cpu_law tried = law_of_tokens(w->token, w->parent, w->count, w->node);
        if (!w->parent) tried = law_of_tokens(w->token + w->node + 1, NULL, 1, -1);
        recover_last(w, target, &tried);
        return 0;
    }
    const int32_t child = w->node + 1;
    step draft;
    if (!draft_step(w, child, &draft)) return emit_last(w, w->accepted, target->answer.token, target, RAFFLE_ROW_DRAFT), 0;
    if (ratio_accepts(accept_bits(w, w->node, w->accepted), chances_of(&target->law, &draft.law, w->token[child])))
        return accept(w, child, target), 1;
    recover_last(w, target, &draft.law);
    return 0;
}

/* From the request's first row on, which has been sampled. */
static void verify_steps(walk *w, step *first) {
    const raffle_drafts *d = &w->call->drafts;
    step later, *target = first;
    for (int going = 1; going;) {
        if (w->accepted) target_step(w, w->node, w->accepted, target = &later);
        const struct answer *a = &target->answer;
        int32_t child = a->row_flags & RAFFLE_ROW_EMPTY ? -1 : next_child(w, w->node, 0);
        if (child >= 0 && d->method == RAFFLE_SYNTHETIC) {
            if (!rate_accepts(accept_bits(w, w->node, w->accepted), d->rate)) child = -1;
        } else if (child >= 0 && (d->method == RAFFLE_MATCH || a->greedy)) {
            child = child_equal(w, a->token);
        } else if (child >= 0) {
            going = reject_or_accept(w, target);
            continue;
        }
        if (child >= 0) {
            accept(w, child, target);
        } else {
            emit_last(w, w->accepted, a->token, target, 0);
            going = 0;
        }
    }
}

/* ---- chains, block by block -------------------------------------------------------------------------------------------- */

/* How many drafts of a block are accepted, and what the token behind them is drawn from. */
typedef struct block_end {
    int32_t length;
    uint64_t weight; /* the running product there */
    int judged;      /* the row behind has a draft: its token is drawn from what that leaves over; else that row was sampled last */
    uint32_t flags;  /* more flags of that row */
} block_end;

static cpu_pair block_pair(const walk *w, const step *target, const step *draft, uint64_t weight) {
    cpu_pair pair = {target->law, draft->law, block_odds(weight, target->law.mass, draft->law.mass), w->scratch.groups};
    w->table->left_over(&pair, w->scratch.left_t, w->scratch.left_s);
    return pair;
}

/* The longest run of drafts that is accepted, from the first row on, which has been sampled; emits the drafts it looks at. */
static block_end block_walk(const walk *w, step *target) {
    block_end end = {0, BLOCK_ONE, 1, 0};
    uint64_t weight = BLOCK_ONE;
    for (int32_t i = 0; weight; ++i) {
        step draft;
        if (i) target_step(w, i - 1, i, target);
        const uint64_t bits = accept_bits(w, i - 1, i);
        const int more = !(target->answer.row_flags & RAFFLE_ROW_EMPTY) && i < w->count && w->token[i] >= 0;
        if (!more || !draft_step(w, i, &draft)) {
            block_end all = {i, weight, 0, more ? RAFFLE_ROW_DRAFT : 0};
            return block_accepts_all(bits, weight) ? all : end;
        }
        if (i) { /* the drafts before this one, whatever becomes of it */
            cpu_pair pair = block_pair(w, target, &draft, weight);
            if (block_accepts(bits, weight, left_total(w, &pair), target->law.mass, draft.law.mass))
                end.length = i, end.weight = weight;
        }
        weight = block_next(weight, chances_of(&target->law, &draft.law, w->token[i]));
        emit(w, i, w->token[i], i, target->answer.row_flags);
        tell(w, i, w->token[i], target);
    }
    return end;
}

static void verify_block(walk *w, step *target) {
    step draft;
    const block_end end = block_walk(w, target);
    if (end.judged) target_step(w, end.length - 1, end.length, target);
    int32_t token = target->answer.token;
    if (end.judged && draft_step(w, end.length, &draft)) {
        cpu_pair pair = block_pair(w, target, &draft, end.weight);
        token = recover(w, &pair, end.length, token);
    }
    emit_last(w, end.length, token, target, end.flags);
}

static void verify_request(walk *w) {
    step first;
    target_step(w, -1, 0, &first);
    if (w->call->drafts.method == RAFFLE_BLOCK && !first.answer.greedy) verify_block(w, &first);
    else verify_steps(w, &first); /* a greedy request's, too: there is nothing to judge */
}

/* ---- a batch ------------------------------------------------------------------------------------------------------------- */

static walk walk_make(const raffle_plan *plan, const verify_call *call, const struct call *draft, int64_t request) {
    const raffle_drafts *d = &call->drafts;
    walk w = {.plan = plan, .call = call, .table = plan->state, .draft = draft, .request = request, .node = -1};
    raffle_workspace(plan, call->target.launch.workspace, &w.scratch, &w.edits);
    w.slot = slot_of(&call->target.params, request);
    w.draft_first = draft_first(d, request);
    w.row_first = w.draft_first + request;
    w.count = draft_first(d, request + 1) - w.draft_first;
    w.token = w.count ? d->token + w.draft_first : NULL;
    w.parent = w.count && d->parent ? d->parent + w.draft_first : NULL;
    return w;
}

raffle_status raffle_cpu_verify(const raffle_plan *plan, const verify_call *call, raffle_error *error) {
    fpenv caller = fpenv_enter();
    raffle_status status = raffle_check_rows(&call->target.params, call->drafts.requests, "request", error);
    if (!status && call->has_logits)
        status = raffle_check_rows(&call->draft_params, call->drafts.requests, "drafts.params of request", error);
    if (!status) status = raffle_check_drafts(plan, call, error);
    const struct call draft = raffle_draft_call(call);
    if (!status) status = raffle_check_histories(&call->target, "request", error);
    if (!status && call->has_logits) status = raffle_check_histories(&draft, "drafts.params of request", error);
    for (int64_t r = call->target.row_first; !status && r < call->target.row_end; ++r) {
        walk w = walk_make(plan, call, &draft, r);
        verify_request(&w);
    }
    fpenv_leave(caller);
    return status;
}
