/* sums.cuh - rows that look flat, and a top-p for which nothing is proposed (propose.cuh): sums by value, left by the blocks that read the row, so
 * that whoever finishes it need not read it all again by itself.
 *
 * A block that has read its part of such a row knows whether its groups are flat: their weights add up to many times the largest.
 * Then it looks at its part once more, one section of up to 64 groups behind the other, and leaves of each the tickets of all tokens
 * down to each of 512 values, 1/32 of a power of two apart. Sums of these sums over all sections tell between which two values the
 * threshold lies. The tokens between them are listed by one reading that only compares; they show the threshold. What every section
 * keeps is then known, so the draw finds the section, and only its groups are weighed again.
 *
 * Whether a part looks flat decides only which way is taken: where one does not, or the threshold lies lower than the sums reach,
 * wide.cuh goes its other ways. */
#ifndef RAFFLE_CUDA_SUMS_CUH
#define RAFFLE_CUDA_SUMS_CUH

#include "fast.cuh"

enum {
    SECTION = 64,  /* groups at most */
    SUM_STEPS = 32 /* values in a power of two */
};

/* The groups of a section where parts have so many: sections of a row are alike, but for its last, and no part ends inside one, because
 * parts_grid makes parts of whole ones. For the host, too. */
static __host__ __device__ __forceinline__ int section_of(int part) {
    const int sections = (part + SECTION - 1) / SECTION;
    return (part + sections - 1) / sections;
}

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

enum { EXPONENT_NONE = INT32_MIN };

/* The largest exponent of groups [first, end), whose maxima go to q.peak[0 ...]. EXPONENT_NONE if one of them, but for empty ones, is so
 * far below that its tickets are cut, or their references are not all PLAIN. */
template <class type> __device__ __forceinline__ int32_t part_exponent(work<type> &k, int first, int end) {
    quick &q = k.q;
    const scale by = k.to.by;
    uint32_t most = order_of(MINUS_INF), least = 0xffffffffu;
    for (int g = first + (int)threadIdx.x; g < end; g += BLOCK_THREADS) {
        const float m = k.peak_far(g);
        q.peak[g - first] = m;
        most = max(most, order_of(m));
        if (m > MINUS_INF) least = min(least, order_of(m));
    }
    fast_range(&least, &most, q.space[0]);
    const float top = float_of_order(most);
    const bool holds = top > MINUS_INF && weights_hold<0>(by, top) && !group_far(by, top, float_of_order(least));
    return holds ? ref_make_near(by, top).exponent : EXPONENT_NONE;
}

/* Adds a lane's tokens to the bins of their values. Tickets are added in two parts of 13 bits, of which a section's tokens make no more
 * than 2^27: 64-bit sums in shared memory would be a loop. */
__device__ __forceinline__ void section_add(quick &q, const float x[LANE_TOKENS], const ref &f, uint32_t most, int left) {
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

/* Sums over a section's bins, from the largest value down. */
__device__ __forceinline__ void section_write(quick &q, uint64_t *to) {
    static_assert(SUM_BINS == 2 * BLOCK_THREADS, "two bins a thread");
    const uint32_t at = 2 * threadIdx.x;
    const uint2 low = *(const uint2 *)(q.valued[0] + at), high = *(const uint2 *)(q.valued[1] + at);
    const uint64_t one = (low.x + ((uint64_t)high.x << 13)) << value_unit(at), two = (low.y + ((uint64_t)high.y << 13)) << value_unit(at + 1);
    uint64_t unused;
    const uint64_t before = fast_before(one + two, q.space[1], &unused);
    __stcg((ulonglong2 *)to + threadIdx.x, make_ulonglong2(before + one, before + one + two));
}

/* Leaves the sums of groups [first, end), which are a part, and counts them; by the whole block. */
template <class type> static __device__ __noinline__ void part_sums(work<type> *shared_k, int first, int end) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    quick &q = k.q;
    const int32_t exponent = part_exponent(k, first, end);
    if (exponent == EXPONENT_NONE) return;
    const uint32_t most = value_most(exponent);
#pragma unroll 1
    for (int from = first; from < end; from += k.section) {
        const int section = from / k.section;
        for (int b = threadIdx.x; b < SUM_BINS; b += BLOCK_THREADS) q.valued[0][b] = q.valued[1][b] = 0;
        __syncthreads();
        row_visit<type>(k.row, from, min(from + k.section, end), [&](int g, const float x[LANE_TOKENS]) {
            const float m = q.peak[g - first];
            const ref f = ref_make_near(k.to.by, m);
            if (m > MINUS_INF) section_add(q, x, f, most, TICKET_BITS - (exponent - f.exponent));
        });
        __syncthreads();
        if (threadIdx.x == 0) __stcg(k.heads + section, exponent);
        section_write(q, k.sums + (int64_t)section * SUM_BINS);
        __syncthreads(); /* the bins are used again; and whoever says that the part is done says it for all threads */
    }
    if (threadIdx.x == 0) atomicAdd((unsigned long long *)k.flat, (unsigned long long)(end - first));
}

#endif
