/* sums.cuh - rows that look flat, and top-p: sums by value, left by the blocks that read the row, so that whoever finishes it need
 * not read it all again by itself.
 *
 * A block that has read its part of such a row knows whether its groups are flat: their weights add up to many times the largest.
 * Then it looks at its part once more and leaves the tickets of all tokens down to each of 512 values, 1/32 of a power of two apart.
 * Sums of these sums over all parts tell between which two values the threshold lies. The tokens between them are listed by one
 * reading that only compares; they show the threshold. What every part keeps is then known, so the draw finds the part, and only its
 * groups are weighed again.
 *
 * This is for few rows, of which many blocks have a small part each. Where parts are large, blocks that look twice get into each
 * other's way. Whether a part looks flat decides only which way is taken: where one does not, or the threshold lies lower than the sums
 * reach, wide.cuh goes its other ways. */
#ifndef RAFFLE_CUDA_SUMS_CUH
#define RAFFLE_CUDA_SUMS_CUH

#include "fast.cuh"

enum {
    SUM_PART = 64,  /* groups at most of a part that leaves sums */
    SUM_STEPS = 32, /* values in a power of two */
    PART_NONE = INT32_MIN
};

/* The parts of a row that leave sums: all or none. For the host, too. */
static __host__ __device__ __forceinline__ int sums_parts(int groups, int part) { return part <= SUM_PART ? (groups + part - 1) / part : 0; }

/* ---- values ------------------------------------------------------------------------------------------------ */

/* A logit's value as an integer: steps of 1/32 of a power of two, in units of the last place. Monotone in x and the same for all groups.
 * Logits too far below to have one come out smaller, as signed integers. */
__device__ __forceinline__ uint32_t value_of(float x, float c) { return bits_of(one_fma(x, c * SUM_STEPS, MAGIC)); }
/* The largest value under a reference with that exponent. */
__device__ __forceinline__ uint32_t value_most(int32_t exponent) { return bits_of(MAGIC) + (uint32_t)exponent * SUM_STEPS + SUM_STEPS / 2; }
/* Tickets of a token `down` values below the largest are a multiple of 2^this, and less than 2^26 of it: 41.5 powers of two for the
 * reference itself, less down / 32, 24 bits of which are not 0. */
__device__ __forceinline__ uint32_t value_unit(uint32_t down) { return 17 - (down + SUM_STEPS / 2 - 1) / SUM_STEPS; }
static_assert((SUM_BINS + SUM_STEPS / 2 - 1) / SUM_STEPS <= 17, "units are not below 1");

/* Whether a group that is not empty is so far below the best that its tokens' tickets are cut. */
__device__ __forceinline__ bool group_far(scale by, float best, float m) {
    if (!(m > MINUS_INF)) return false;
    return m < best - by.drop || ref_make_near(by, best).exponent - ref_make_near(by, m).exponent > TICKET_BITS;
}

/* ---- the second look, by the block that has read a part ---------------------------------------------------- */

/* The largest exponent of groups [first, end), whose maxima go to q.peak[0 ...]. PART_NONE if one of them, but for empty ones, is so
 * far below that its tickets are cut, or their references are not all PLAIN. */
template <class type> __device__ __forceinline__ int32_t part_exponent(work<type> &k, int first, int end) {
    quick &q = k.q;
    const scale by = k.to.by;
    const int g = first + (int)threadIdx.x;
    const float m = g < end ? k.peak_far(g) : MINUS_INF;
    if (g < end) q.peak[threadIdx.x] = m;
    uint32_t most = order_of(m), unused = 0;
    fast_range(&unused, &most, q.space[0]);
    const float top = float_of_order(most);
    const int32_t exponent = ref_make_near(by, top).exponent;
    const bool any = __syncthreads_or(group_far(by, top, m) || !(top > MINUS_INF) || !weights_hold(by, top));
    return any ? PART_NONE : exponent;
}

/* Adds a lane's tokens to the bins of their values. Tickets are added in two parts of 13 bits, of which a part's tokens make no more
 * than 2^29: 64-bit sums in shared memory would be a loop. */
__device__ __forceinline__ void part_add(quick &q, const float x[LANE_TOKENS], const ref &f, uint32_t most, int left) {
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) { /* what is too low adds 0: what stands under a condition is done one behind the other */
        const uint32_t down = most - value_of(x[j], f.c), bin = min(down, (uint32_t)SUM_BINS - 1);
        const uint32_t weight = v_round(v_weight(down == bin ? x[j] : MINUS_INF, &f, 0));
        const int right = (int)value_unit(bin) - left;
        const uint32_t units = right > 0 ? weight >> right : weight << -right;
        atomicAdd(q.valued[0] + bin, units & 0x1fffu);
        atomicAdd(q.valued[1] + bin, units >> 13);
    }
}

/* Sums over a part's bins, from the largest value down. */
__device__ __forceinline__ void part_write(quick &q, uint64_t *to) {
    static_assert(SUM_BINS == 2 * BLOCK_THREADS, "two bins a thread");
    const uint32_t at = 2 * threadIdx.x;
    const uint2 low = *(const uint2 *)(q.valued[0] + at), high = *(const uint2 *)(q.valued[1] + at);
    const uint64_t one = (low.x + ((uint64_t)high.x << 13)) << value_unit(at), two = (low.y + ((uint64_t)high.y << 13)) << value_unit(at + 1);
    uint64_t unused;
    const uint64_t before = fast_before(one + two, q.space[1], &unused);
    __stcg((ulonglong2 *)to + threadIdx.x, make_ulonglong2(before + one, before + one + two));
}

/* Leaves the sums of groups [first, end), which are a part; by the whole block. */
template <class type> static __device__ __noinline__ void part_sums(work<type> *shared_k, int first, int end) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    quick &q = k.q;
    const int part = first / k.part;
    const int32_t exponent = part_exponent(k, first, end);
    if (threadIdx.x == 0) __stcg(k.heads + part, exponent);
    if (exponent == PART_NONE) return;
    for (int b = threadIdx.x; b < SUM_BINS; b += BLOCK_THREADS) q.valued[0][b] = q.valued[1][b] = 0;
    __syncthreads();
    const uint32_t most = value_most(exponent);
    row_visit<type>(k.row, first, end, [&](int g, const float x[LANE_TOKENS]) {
        const float m = q.peak[g - first];
        const ref f = ref_make_near(k.to.by, m);
        if (m > MINUS_INF) part_add(q, x, f, most, TICKET_BITS - (exponent - f.exponent));
    });
    __syncthreads();
    part_write(q, k.sums + (int64_t)part * SUM_BINS);
}

#endif
