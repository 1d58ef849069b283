/* share.h - exact shares of an integer mass. */
#ifndef RAFFLE_MATH_SHARE_H
#define RAFFLE_MATH_SHARE_H

#include "philox.h"
#include "row_types.h"
#include "scalar.h"

/* ceil(p * mass) for 0 < p < 1, exactly: p is a 24-bit integer times a power of two. */
RAFFLE_FN uint64_t share_of(float p, uint64_t mass) {
    uint32_t bits = bits_of(p), exponent = bits >> 23;
    uint64_t digits = exponent ? (bits & 0x7fffffu) | 0x800000u : bits & 0x7fffffu;
    uint32_t shift = 150 - (exponent ? exponent : 1); /* p = digits * 2^-shift, shift in 24 .. 149 */
    uint64_t low = digits * mass, high = mul_high(digits, mass);
    if (shift >= 128) return mass != 0;
    if (shift >= 64) {
        uint32_t s = shift - 64;
        uint64_t lost = low | (s ? high << (64 - s) : 0);
        return (high >> s) + (lost != 0);
    }
    return (high << (64 - shift) | low >> shift) + (low << (64 - shift) != 0);
}

/* What chance says of a row, as fractions of 2^64: `low` of its mass, `high` of what the stretch holds that this falls on.
 * draft_step 0: of the token at a position; n: of the n-th draft behind it. */
RAFFLE_FN philox_pair draw_bits(const row_params *p) {
#if BITS_GIVEN
    if (p->bits) {
        const philox_pair given = {p->bits[0], p->bits[1]};
        return given;
    }
#endif
    return philox_step(p->seed, p->position, p->draft_step ? STREAM_DRAFT : STREAM_TARGET, p->draft_step);
}

/* Tries of what is drawn until something is kept: a row's token, all of them fail once in 2^128 rows; one in place of a rejected draft,
 * which is then drawn from what is left over. */
enum { PROPOSALS = 128 };

/* The same for proposal j of a row that proposes (rules.h); the first are the bits of any other draw. */
RAFFLE_FN philox_pair proposal_bits(const row_params *p, uint32_t j) {
    return j ? philox_step(p->seed, p->position, STREAM_ANOTHER + 256 * j, p->draft_step) : draw_bits(p);
}

#endif
