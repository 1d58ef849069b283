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

/* What chance says of a row, as a fraction of 2^64. draft_step 0: of the token at a position; n: of the n-th draft behind it. */
RAFFLE_FN uint64_t draw_bits(const row_params *p) {
#if BITS_GIVEN
    if (p->bits) return *p->bits;
#endif
    return philox_step(p->seed, p->position, p->draft_step ? STREAM_DRAFT : STREAM_TARGET, p->draft_step).low;
}

/* The number of the winning ticket, 0 .. mass-1: uniform but for at most 2^-64 per ticket. */
RAFFLE_FN uint64_t ticket_drawn(const row_params *p, uint64_t mass) { return mul_high(draw_bits(p), mass); }

#endif
