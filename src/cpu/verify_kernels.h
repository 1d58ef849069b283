/* verify_kernels.h - the loops of raffle_verify that read rows: the tickets that each token of a group holds in plain
 * sampling's draw, and what the target's leave over beside the draft's. Included by rows.c only. */
#include "verify.h"

/* What a range of `mass` tickets, 2^right weights each, leaves to each of the tokens that share it in turn. */
RAFFLE_FN void tickets_share(const uint32_t *weight, uint32_t right, uint64_t mass, uint64_t *t) {
    const uint64_t unit = (1ull << right) - 1;
    uint64_t end[GROUP + 1], sum = 0; /* where each token's part ends: three loops, of which the compiler vectorises two */
    end[0] = 0;
    for (int j = 0; j < GROUP; ++j) end[j + 1] = sum += weight[j];
    for (int j = 1; j <= GROUP; ++j) {
        uint64_t tickets = (end[j] + unit) >> right;
        end[j] = tickets < mass ? tickets : mass;
    }
    for (int j = 0; j < GROUP; ++j) t[j] = end[j + 1] - end[j];
}

RAFFLE_FN uint64_t tickets_row(const cpu_law *law, int64_t g, uint64_t *t, int kind) {
    const float peak = law->peak[g];
    if (!(peak >= law->cut.low) || peak == MINUS_INF) return 0;
    group_ref r = group_ref_make(&law->weighing, peak);
    if (r.below >= TICKET_BITS + 40) return 0; /* a group's weight is below 2^40 */
    float x[GROUP];
    uint32_t weight[GROUP];
    uint64_t sum = 0;
    group_expand(law->row, g, &r.ref, x, weight, kind);
    if (law->whole && r.right) {
        for (int j = 0; j < GROUP; ++j) sum += weight[j];
        sum >>= r.right;
        if (sum) tickets_share(weight, r.right, sum, t);
        return sum;
    }
    const cut c = law->cut;
    const uint32_t right = r.right < 32 ? r.right : 31, left = r.left;
    const uint64_t any = r.right < 32 ? ~0ull : 0; /* what is shifted out altogether */
    for (int j = 0; j < GROUP; ++j) {
        int keeps = cut_keeps_branchless(c, x[j], (int32_t)g * GROUP + j);
        t[j] = ((uint64_t)(weight[j] >> right) << left) & any & (0 - (uint64_t)keeps);
        sum += t[j];
    }
    return sum;
}

#define DEFINE_TICKETS(dtype, kind)                                                                                    \
    static uint64_t tickets_##dtype(const cpu_law *law, int64_t g, uint64_t *t) {                                      \
        return law->row->allow ? tickets_row(law, g, t, kind | READ_ALLOW) : tickets_row(law, g, t, kind);       \
    }
DEFINE_TICKETS(logits_f32, READ_F32)
DEFINE_TICKETS(f16, READ_F16)
DEFINE_TICKETS(bf16, READ_BF16)
static uint64_t tickets_f32(const cpu_law *law, int64_t g, uint64_t *t) { /* also of a draft's probabilities */
    if (law->row->params.temperature == LINEAR_TEMPERATURE) return tickets_row(law, g, t, READ_PROBS | READ_F32);
    return tickets_logits_f32(law, g, t);
}

/* ---- what the draft leaves over ------------------------------------------------------------------------- */

RAFFLE_FN double double_of_tickets(uint64_t t) { return double_of(t | 0x4330000000000000ull) - 0x1p52; } /* below 2^52 */

RAFFLE_FN double double_of_wide(wide a) {
    return (double)a.word[0] + (double)a.word[1] * 0x1p64 + (double)a.word[2] * 0x1p128;
}

/* Sums t and s over the tokens of a group with t * up > s * down. Doubles tell nearly all apart; if they cannot for
 * some token, exact integers tell for all. */
static void group_left(odds o, const uint64_t *t, const uint64_t *s, uint64_t *left_t, uint64_t *left_s) {
    const double up = double_of_wide(o.up), down = double_of_wide(o.down);
    const double over = down * (1.0 + 0x1p-48), under = down * (1.0 - 0x1p-48);
    uint64_t sum_t = 0, sum_s = 0, unsure = 0;
    for (int j = 0; j < GROUP; ++j) {
        double a = double_of_tickets(t[j]) * up, b = double_of_tickets(s[j]);
        uint64_t in = 0 - (uint64_t)(a > b * over), near = 0 - (uint64_t)((a > b * under) & (a > 0.0));
        sum_t += t[j] & in;
        sum_s += s[j] & in;
        unsure |= near & ~in;
    }
    if (unsure) {
        sum_t = sum_s = 0;
        for (int j = 0; j < GROUP; ++j) {
            if (!odds_left(o, t[j], s[j])) continue;
            sum_t += t[j];
            sum_s += s[j];
        }
    }
    *left_t = sum_t;
    *left_s = sum_s;
}

static void left_over(const cpu_pair *pair, uint64_t *left_t, uint64_t *left_s) {
    uint64_t t[GROUP], s[GROUP];
    for (int64_t g = 0; g < pair->groups; ++g) {
        left_t[g] = pair->target.tickets(&pair->target, g, t);
        left_s[g] = 0;
        if (left_t[g] && pair->draft.tickets(&pair->draft, g, s)) group_left(pair->odds, t, s, &left_t[g], &left_s[g]);
    }
}
