/* accept.h - whether a draft is accepted, and what is drawn from where it is not: ratios of tickets in exact integers.
 *
 * A token's chance is t / mass_p in the target's row and s / mass_q in the draft's: tickets below 2^42 of masses below
 * 2^63, as plain sampling draws them. docs/determinism.md defines each step. */
#ifndef RAFFLE_MATH_ACCEPT_H
#define RAFFLE_MATH_ACCEPT_H

#include "settle.h"
#include "share.h"
#include "wide.h"

/* One token in both rows. */
typedef struct chances {
    uint64_t t, mass_p, s, mass_q;
} chances;

RAFFLE_FN wide wide_product(uint64_t a, uint64_t b) { return wide_multiply(wide_of(a), b); }

/* bits / 2^64 < (t / mass_p) / (s / mass_q). Below 2^-64 from the ratio in probability. */
RAFFLE_FN int ratio_accepts(uint64_t bits, chances c) {
    return wide_less(wide_multiply_high(wide_product(c.s, c.mass_p), bits), wide_product(c.t, c.mass_q));
}

/* The same where the masses are estimates, of which the ratio is off by `off` at most; -1: that does not say. */
RAFFLE_FN int ratio_settles(uint64_t bits, chances c, double off) {
    if (!c.t) return 0;
    return less_settles((double)bits * 0x1p-64 * (double)c.s * (double)c.mass_p, (double)c.t * (double)c.mass_q, off);
}

/* What of a token's chance in the target is left over by its chance in the draft: t * up - s * down, where positive.
 * Rejection: max(p - q, 0) in units of 1 / (mass_p * mass_q). */
typedef struct odds {
    wide up, down;
} odds;

RAFFLE_FN odds odds_make(uint64_t mass_p, uint64_t mass_q) {
    odds made = {wide_of(mass_q), wide_of(mass_p)};
    return made;
}

RAFFLE_FN int odds_left(odds o, uint64_t t, uint64_t s) {
    return wide_less(wide_multiply(o.down, s), wide_multiply(o.up, t));
}

/* The same of tokens that all have something left, t and s being their sums. */
RAFFLE_FN wide odds_sum(odds o, uint64_t t, uint64_t s) {
    return wide_subtract(wide_multiply(o.up, t), wide_multiply(o.down, s));
}

/* Whether a token that was drawn from the target's row is kept: with the probability 1 - q / p, where positive, so that what is kept has
 * the law of what is left over. bits / 2^64 < (t * mass_q - s * mass_p) / (t * mass_q). */
RAFFLE_FN int proposal_kept(uint64_t bits, chances c) {
    const wide have = wide_product(c.t, c.mass_q), taken = wide_product(c.s, c.mass_p);
    return wide_less(taken, have) && wide_less(wide_multiply_high(have, bits), wide_subtract(have, taken));
}

/* As ratio_settles. */
RAFFLE_FN int proposal_settles(uint64_t bits, chances c, double off) {
    const double rest = bits ? (double)(0 - bits) * 0x1p-64 : 1.0;
    return less_settles((double)c.s * (double)c.mass_p, rest * (double)c.t * (double)c.mass_q, off);
}

/* ---- block verification ------------------------------------------------------------------------------ */

/* `weight` is the running product of ratios, each cut at 1 and rounded down to a multiple of 2^-62. */
#define BLOCK_ONE (1ull << 62)

RAFFLE_FN odds block_odds(uint64_t weight, uint64_t mass_p, uint64_t mass_q) {
    odds made = {wide_product(weight, mass_q), wide_product(BLOCK_ONE, mass_p)};
    return made;
}

/* The weight behind an accepted token: the largest multiple that is at most weight * ratio, and at most 1. */
RAFFLE_FN uint64_t block_next(uint64_t weight, chances c) {
    wide most = wide_multiply(wide_product(c.t, c.mass_q), weight), unit = wide_product(c.s, c.mass_p);
    if (wide_is_zero(most)) return 0;
    if (!wide_less(most, wide_multiply(unit, BLOCK_ONE))) return BLOCK_ONE;
    /* Long division by guesses that are a little too small: of 62 bits, each round finds all but the last 17 that are left. */
    uint64_t found = 0;
    for (uint64_t more = 1; more; found += more) {
        more = (uint64_t)(wide_near(most) / wide_near(unit) * (1.0 - 0x1p-46));
        most = wide_subtract(most, wide_multiply(unit, more));
    }
    return found + !wide_less(most, unit);
}

/* Whether the tokens so far are accepted though the next may not be: bits / 2^64 < left / (left + 1 - weight), where
 * `left` is the sum of block_odds over the next row. A weight of 1 accepts, also where nothing is left over because both rows are equal:
 * what stands is not to fall with a next draft that neither of them has. */
RAFFLE_FN int block_accepts(uint64_t bits, uint64_t weight, wide left, uint64_t mass_p, uint64_t mass_q) {
    if (weight == BLOCK_ONE) return 1;
    wide rest = wide_multiply(wide_product(mass_p, mass_q), BLOCK_ONE - weight);
    return wide_less(wide_multiply_high(wide_add(left, rest), bits), left);
}

/* The same behind the last draft: bits / 2^64 < weight. */
RAFFLE_FN int block_accepts_all(uint64_t bits, uint64_t weight) { return bits >> 2 < weight; }

/* ---- drafts whose distribution is not known ------------------------------------------------------------ */

/* ceil(share * mass), share 0 < share <= 1. */
RAFFLE_FN uint64_t threshold_of(float share, uint64_t mass) { return share < 1.0f ? share_of(share, mass) : mass; }

/* bits / 2^64 < rate. */
RAFFLE_FN int rate_accepts(uint64_t bits, float rate) { return (double)(bits >> 11) * 0x1p-53 < (double)rate; }

#endif
