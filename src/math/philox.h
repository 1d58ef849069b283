/* philox.h - Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011). Random bits as a pure function of a key and a counter: no state, any order. */
#ifndef RAFFLE_MATH_PHILOX_H
#define RAFFLE_MATH_PHILOX_H

#include "scalar.h"

/* What a draw is for. Different purposes at one position never share bits. STREAM_ANOTHER + 256 j: the j-th draw more of one token. */
enum { STREAM_TARGET = 0, STREAM_DRAFT = 1, STREAM_ACCEPT = 2, STREAM_RECOVER = 3, STREAM_PROPOSE = 4, STREAM_ANOTHER = 5, STREAM_XTC = 16 };

typedef struct philox_block { uint32_t word[4]; } philox_block;

RAFFLE_FN philox_block philox_rounds(philox_block counter, uint32_t key_low, uint32_t key_high) {
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int round = 0; round < 10; ++round) {
        uint64_t a = (uint64_t)0xD2511F53u * counter.word[0], b = (uint64_t)0xCD9E8D57u * counter.word[2];
        philox_block next = {{(uint32_t)(b >> 32) ^ counter.word[1] ^ key_low, (uint32_t)b,
                              (uint32_t)(a >> 32) ^ counter.word[3] ^ key_high, (uint32_t)a}};
        counter = next;
        key_low += 0x9E3779B9u;
        key_high += 0xBB67AE85u;
    }
    return counter;
}

/* The 128 bits of one use. `step` counts the uses of a stream at one position: the drafts behind it. */
typedef struct philox_pair { uint64_t low, high; } philox_pair;

RAFFLE_FN philox_pair philox_step(uint64_t seed, uint64_t position, uint32_t stream, uint32_t step) {
    philox_block counter = {{(uint32_t)position, (uint32_t)(position >> 32), stream, step}};
    philox_block made = philox_rounds(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    philox_pair pair = {(uint64_t)made.word[1] << 32 | made.word[0], (uint64_t)made.word[3] << 32 | made.word[2]};
    return pair;
}

#endif
