/* verify_oracle.c - docs/determinism.md, section 11. Read the two side by side. Numbers are as long as they need to be,
 * and every law is an array over the vocabulary. */
#include "verify_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- long integers: 32 bits a digit, the lowest first ---- */

enum { DIGITS = 14 };
typedef struct big {
    uint32_t digit[DIGITS];
} big;

static big big_of(uint64_t a) {
    big made = {{(uint32_t)a, (uint32_t)(a >> 32)}};
    return made;
}

static int big_compare(big a, big b) {
    for (int i = DIGITS - 1; i >= 0; --i)
        if (a.digit[i] != b.digit[i]) return a.digit[i] < b.digit[i] ? -1 : 1;
    return 0;
}

static big big_sum(big a, big b) {
    uint64_t carry = 0;
    for (int i = 0; i < DIGITS; ++i) {
        carry += (uint64_t)a.digit[i] + b.digit[i];
        a.digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) abort();
    return a;
}

static big big_difference(big a, big b) {
    int64_t carry = 0;
    for (int i = 0; i < DIGITS; ++i) {
        carry += (int64_t)a.digit[i] - b.digit[i];
        a.digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) abort();
    return a;
}

static big big_product(big a, big b) {
    big made = {{0}};
    for (int i = 0; i < DIGITS; ++i) {
        uint64_t carry = 0;
        if (!a.digit[i]) continue;
        for (int j = 0; j < DIGITS; ++j) {
            if (i + j >= DIGITS) {
                if (carry || b.digit[j]) abort();
                continue;
            }
            carry += (uint64_t)a.digit[i] * b.digit[j] + made.digit[i + j];
            made.digit[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry) abort();
    }
    return made;
}

static big product3(uint64_t a, uint64_t b, uint64_t c) { return big_product(big_product(big_of(a), big_of(b)), big_of(c)); }

/* a * 2^(32 n), or with n below 0 divided by it. */
static big big_moved(big a, int n) {
    big made = {{0}};
    for (int i = 0; i < DIGITS; ++i)
        if (i + n >= 0 && i + n < DIGITS) made.digit[i + n] = a.digit[i];
        else if (n > 0 && a.digit[i]) abort();
    return made;
}

/* floor(a / b), which is known to be below 2^63, by trying every bit. */
static uint64_t big_quotient(big a, big b) {
    uint64_t made = 0;
    for (int bit = 62; bit >= 0; --bit)
        if (big_compare(big_product(b, big_of(made + (1ULL << bit))), a) <= 0) made += 1ULL << bit;
    return made;
}

/* ---- the law of a row ---- */

typedef struct law {
    uint64_t *held; /* [vocab] */
    uint64_t mass;
} law;

static law law_one_hot(int64_t vocab, int32_t token) {
    law made = {calloc((size_t)vocab, sizeof *made.held), 1};
    made.held[token] = 1;
    return made;
}

oracle_case oracle_behind(oracle_case c, const int32_t *token, const int32_t *parent, int32_t node, int32_t *said, int32_t *depth) {
    int32_t count = 0;
    for (int32_t i = node; i >= 0; i = parent ? parent[i] : i - 1) ++count;
    *depth += count;
    if (!c.history) return c;
    for (int64_t i = 0; i < c.history_length; ++i) said[i] = c.history[i];
    c.history = said;
    c.history_length += count;
    for (int64_t at = c.history_length; node >= 0; node = parent ? parent[node] : node - 1) said[--at] = token[node];
    return c;
}

/* Room for the longest history that a request's rows have. */
static int32_t *said_room(const verify_case *g) {
    int64_t length = g->target[0].history_length;
    if (g->draft && g->count && g->draft[0].history_length > length) length = g->draft[0].history_length;
    return malloc((size_t)(length + g->count + 1) * sizeof(int32_t));
}

static law law_of_logits(const oracle_case *c) {
    oracle_answer a = oracle_sample(c, NULL, NULL);
    if (a.greedy) return law_one_hot(c->vocab, a.token);
    law made = {calloc((size_t)c->vocab, sizeof *made.held), 0};
    made.mass = oracle_held(c, made.held);
    return made;
}

static law law_of_probabilities(const float *p, int64_t vocab) {
    oracle_case c = {.row = p, .dtype = RAFFLE_F32, .vocab = vocab, .top_p = 1, .input = RAFFLE_PROBS};
    law made = law_of_logits(&c);
    for (int64_t i = 0; i < vocab; ++i)
        if (isnan(p[i]) || p[i] < 0) made.mass = 0;
    return made;
}

/* The law that draft i came from; a mass of 0 if there is none. */
static law law_of_draft(const verify_case *g, int32_t i) {
    int64_t vocab = g->target[0].vocab;
    if (g->draft) {
        int32_t *said = said_room(g), depth = 0;
        oracle_case c = oracle_behind(g->draft[i], g->token, NULL, i - 1, said, &depth);
        law made = law_of_logits(&c);
        free(said);
        return made;
    }
    if (g->probabilities) return law_of_probabilities(g->probabilities[i], vocab);
    return law_one_hot(vocab, g->token[i]);
}

/* ---- random bits ---- */

/* A, at the row behind draft `node` and after n tokens. */
static uint64_t bits_accept(const verify_case *g, int32_t node, int32_t n) {
    uint64_t bits[2];
    if (g->accept_bits) return g->accept_bits[node + 1];
    oracle_random(g->target[0].seed, g->target[0].position, 2, (uint32_t)n, bits);
    return bits[0];
}

static big bits_recover(const verify_case *g, int32_t n) {
    uint64_t bits[2];
    oracle_random(g->target[0].seed, g->target[0].position, 3, (uint32_t)n, bits);
    if (g->recover_bits) memcpy(bits, g->recover_bits, sizeof bits);
    return big_sum(big_of(bits[0]), big_moved(big_of(bits[1]), 2));
}

/* ---- what is left over ---- */

/* max(P * t * Q - 2^62 * s * S, 0) of one token. */
static big left_of(uint64_t P, uint64_t t, uint64_t S, uint64_t s, uint64_t Q) {
    big have = product3(P, t, Q), taken = product3(1ULL << 62, s, S);
    return big_compare(have, taken) > 0 ? big_difference(have, taken) : big_of(0);
}

static big left_sum(uint64_t P, law target, law draft, int64_t vocab) {
    big sum = big_of(0);
    for (int64_t i = 0; i < vocab; ++i)
        if (target.held[i]) sum = big_sum(sum, left_of(P, target.held[i], target.mass, draft.held[i], draft.mass));
    return sum;
}

/* The token whose range holds floor(R * L / 2^128), or -1 if L is 0. (P = 2^62 multiplies everything that one draft after the
 * other leaves over by 2^62, so the number is found in smaller units there.) */
static int32_t recovered(const verify_case *g, int32_t n, uint64_t P, int block, law target, law draft) {
    int64_t vocab = g->target[0].vocab;
    big unit = big_of(block ? 1 : 1ULL << 62), sum = left_sum(P, target, draft, vocab), before = big_of(0), L = sum;
    if (!block) { /* exact: every term is a multiple of 2^62 */
        L = big_of(0);
        for (int64_t i = 0; i < vocab; ++i) {
            big have = big_product(big_of(target.held[i]), big_of(draft.mass));
            big taken = big_product(big_of(draft.held[i]), big_of(target.mass));
            if (big_compare(have, taken) > 0) L = big_sum(L, big_difference(have, taken));
        }
        if (big_compare(big_product(L, unit), sum)) abort();
    }
    if (big_compare(L, big_of(0)) == 0) return -1;
    big number = big_product(big_moved(big_product(bits_recover(g, n), L), -4), unit);
    for (int64_t i = 0; i < vocab; ++i) {
        before = big_sum(before, left_of(P, target.held[i], target.mass, draft.held[i], draft.mass));
        if (big_compare(number, before) < 0) return (int32_t)i;
    }
    abort();
}

/* ---- what is proposed ---- */

/* The token that holds part `bits` / 2^64 of the tickets from token `first` to before `end`. */
static int64_t holder(law target, int64_t first, int64_t end, uint64_t bits) {
    uint64_t sum = 0;
    for (int64_t i = first; i < end; ++i) sum += target.held[i];
    big number = big_moved(big_product(big_of(bits), big_of(sum)), -2);
    sum = 0;
    for (int64_t i = first; i < end; ++i)
        if (big_compare(number, big_of(sum += target.held[i])) < 0) return i;
    abort();
}

/* The first of 128 tokens drawn from the target's law that is kept, or -1. */
static int32_t proposed(const verify_case *g, law target, law draft) {
    const int64_t vocab = g->target[0].vocab, stretch = 2048;
    for (uint32_t j = 0; j < 128; ++j) {
        uint64_t draw[2], keep[2];
        oracle_random(g->target[0].seed, g->target[0].position, 4, 2 * j, draw);
        oracle_random(g->target[0].seed, g->target[0].position, 4, 2 * j + 1, keep);
        int64_t first = holder(target, 0, vocab, draw[0]) / stretch * stretch, end = first + stretch < vocab ? first + stretch : vocab;
        int64_t token = holder(target, first, end, draw[1]);
        big have = product3(1, target.held[token], draft.mass), taken = product3(1, draft.held[token], target.mass);
        if (big_compare(taken, have) >= 0) continue;
        if (big_compare(big_product(big_of(keep[0]), have), big_moved(big_difference(have, taken), 2)) < 0) return (int32_t)token;
    }
    return -1;
}

/* ---- one draft after the other ---- */

/* The row behind a draft. */
static oracle_case row_at(const verify_case *g, int32_t node, int32_t *said) {
    int32_t depth = 0;
    oracle_case c = oracle_behind(g->target[node + 1], g->token, g->parent, node, said, &depth);
    c.position += (uint64_t)depth;
    c.bits = g->draw_bits ? g->draw_bits + 2 * (node + 1) : NULL;
    return c;
}

static int follows(const verify_case *g, int32_t i, int32_t node) {
    return g->token[i] >= 0 && (g->parent ? g->parent[i] == node : i == node + 1);
}

static void finish(const verify_case *g, verify_answer *a, int32_t n, int32_t token, uint32_t flags) {
    uint32_t wishes = g->target[0].flags | (g->target[0].extra ? g->target[0].extra->flags : 0);
    if (flags & RAFFLE_ROW_EMPTY && !(wishes & RAFFLE_EMPTY_IS_ZERO)) token = RAFFLE_NO_TOKEN;
    a->accepted = n;
    a->token[n] = a->last = token;
    a->row_flags[n] = flags;
    a->path[n] = -1;
    for (int32_t i = n + 1; i <= g->count; ++i) a->token[i] = RAFFLE_NO_TOKEN, a->path[i] = -1, a->row_flags[i] = 0;
}

/* The draft behind `node` that is accepted, -1 and *token if none is. `sampled` is the row's own token. */
static int32_t judge(const verify_case *g, int32_t node, int32_t n, const oracle_case *row, oracle_answer sampled,
                     int32_t *token, uint32_t *flags) {
    uint64_t A = bits_accept(g, node, n);
    *token = sampled.token;
    if (sampled.row_flags & RAFFLE_ROW_EMPTY) return -1;
    int32_t first = -1;
    for (int32_t i = g->count - 1; i >= 0; --i)
        if (follows(g, i, node)) first = i;
    if (first < 0) return -1;
    if (g->method == RAFFLE_SYNTHETIC) return ldexp((double)(A >> 11), -53) < (double)g->rate ? first : -1;
    if (g->method == RAFFLE_MATCH || sampled.greedy) {
        for (int32_t i = first; i < g->count; ++i)
            if (follows(g, i, node) && g->token[i] == sampled.token) return i;
        return -1;
    }
    law target = law_of_logits(row), draft;
    int32_t accepted = -1;
    if (g->draft || g->probabilities) {
        draft = law_of_draft(g, first);
        uint64_t t = target.held[g->token[first]], s = draft.held[g->token[first]];
        if (!draft.mass) *flags |= RAFFLE_ROW_DRAFT;
        else if (big_compare(product3(A, s, target.mass), big_moved(product3(1, t, draft.mass), 2)) < 0) accepted = first;
    } else {
        draft = law_one_hot(row->vocab, g->token[first]);
        draft.held[g->token[first]] = 0;
        uint64_t sum = 0, B = target.mass, enough = 0;
        if (g->threshold_sum > 0) B = g->threshold_sum < 1 ? oracle_share(g->threshold_sum, target.mass) : target.mass;
        if (g->threshold_single > 0) enough = g->threshold_single < 1 ? oracle_share(g->threshold_single, target.mass) : target.mass;
        big mark = big_moved(big_product(big_of(A), big_of(B)), -2);
        for (int32_t i = first; i < g->count && accepted < 0; ++i) {
            if (!follows(g, i, node)) continue;
            uint64_t t = draft.held[g->token[i]] ? 0 : target.held[g->token[i]];
            draft.held[g->token[i]] = 1;
            sum += t;
            if (big_compare(mark, big_of(sum)) < 0 || (enough && t >= enough)) accepted = i;
        }
    }
    if (accepted < 0 && draft.mass) {
        int32_t found = sampled.whole_row && !g->recover_bits ? proposed(g, target, draft) : -1;
        if (found < 0) found = recovered(g, n, 1ULL << 62, 0, target, draft);
        if (found >= 0) *token = found;
    }
    free(target.held);
    free(draft.held);
    return accepted;
}

static void one_after_the_other(const verify_case *g, verify_answer *a) {
    int32_t node = -1, *said = said_room(g);
    for (int32_t n = 0;; ++n) {
        oracle_case row = row_at(g, node, said);
        oracle_answer sampled = oracle_sample(&row, NULL, NULL);
        uint32_t flags = sampled.row_flags;
        int32_t token, accepted = judge(g, node, n, &row, sampled, &token, &flags);
        if (accepted < 0) {
            finish(g, a, n, token, flags);
            free(said);
            return;
        }
        a->token[n] = g->token[accepted];
        a->path[n] = node = accepted;
        a->row_flags[n] = flags;
    }
}

/* ---- blocks ---- */

static void block(const verify_case *g, verify_answer *a) {
    const uint64_t one = 1ULL << 62;
    uint64_t P = one;
    int32_t length = 0, last = RAFFLE_NO_TOKEN, *said = said_room(g);
    uint32_t last_flags = 0;
    for (int32_t n = 0; P > 0; ++n) {
        oracle_case row = row_at(g, n - 1, said);
        oracle_answer sampled = oracle_sample(&row, NULL, NULL);
        uint64_t A = bits_accept(g, n - 1, n);
        int none = sampled.row_flags & RAFFLE_ROW_EMPTY || n == g->count || g->token[n] < 0;
        law draft = {NULL, 0};
        if (!none) draft = law_of_draft(g, n);
        if (!draft.mass) {
            if (A / 4 < P) {
                length = n;
                last = sampled.token;
                last_flags = sampled.row_flags | (none ? 0 : RAFFLE_ROW_DRAFT);
            }
            free(draft.held);
            break;
        }
        law target = law_of_logits(&row);
        uint64_t t = target.held[g->token[n]], s = draft.held[g->token[n]];
        big L = left_sum(P, target, draft, row.vocab), rest = product3(target.mass, draft.mass, one - P);
        if (P == one || big_compare(big_product(big_of(A), big_sum(L, rest)), big_moved(L, 2)) < 0) {
            length = n;
            last = recovered(g, n, P, 1, target, draft);
            if (last < 0) last = sampled.token;
            last_flags = sampled.row_flags;
        }
        a->token[n] = g->token[n];
        a->path[n] = n;
        a->row_flags[n] = sampled.row_flags;
        if (!t) P = 0;
        else if (!s) P = one;
        else {
            big have = product3(P, t, draft.mass), whole = product3(one, s, target.mass);
            P = big_compare(have, whole) >= 0 ? one : big_quotient(have, product3(1, s, target.mass));
        }
        free(target.held);
        free(draft.held);
    }
    finish(g, a, length, last, last_flags);
    free(said);
}

verify_answer oracle_verify(const verify_case *g) {
    verify_answer a;
    memset(&a, 0, sizeof a);
    oracle_answer first = oracle_sample(&g->target[0], NULL, NULL);
    if (g->method == RAFFLE_BLOCK && !first.greedy) block(g, &a);
    else one_after_the_other(g, &a);
    return a;
}
