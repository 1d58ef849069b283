/* sums.cuh - rows that look flat, and top-p: sums by value, left by the blocks that read the row, so that whoever finishes it need
 * not read it all again by itself.
 *
 * A block that has read its part of such a row knows whether its groups are flat: their weights add up to many times the largest.
 * Then it looks at its part once more, section by section, and leaves the tickets of all tokens down to each of 512 values, 1/32 of a
 * power of two apart. Sums of these sums over all sections tell between which two values the threshold lies. The tokens between them
 * are listed by one reading that only compares; they show the threshold. What every section keeps is then known, so the draw finds the
 * section, and only its groups are weighed again.
 *
 * Whether a part looks flat decides only which way is taken. Where one does not, or the threshold lies lower than the sums reach,
 * wide.cuh goes its other ways. */
#ifndef RAFFLE_CUDA_SUMS_CUH
#define RAFFLE_CUDA_SUMS_CUH

#include "fast.cuh"

enum {
    SECTION = 128,      /* groups at most: those of a part, or a part of them */
    SECTIONS_MAX = 256, /* of a row */
    SUM_STEPS = 32,     /* values in a power of two */
    SECTION_NONE = INT32_MIN
};

/* ---- where sections are: for the host, too ---------------------------------------------------------------- */

static __host__ __device__ __forceinline__ int sections_each(int part) { return (part + SECTION - 1) / SECTION; }
static __host__ __device__ __forceinline__ int sections_of(int groups, int part) { return (groups + part - 1) / part * sections_each(part); }

/* Groups [first, end) of the i-th section of a row; empty if its part is the last one and shorter. */
__device__ __forceinline__ int2 section_at(int groups, int part, int i) {
    const int each = sections_each(part), start = i / each * part, first = start + i % each * SECTION;
    return make_int2(first, min(min(first + SECTION, start + part), groups));
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

/* The largest exponent of groups [first, end), whose maxima go to q.peak[0 ...]. SECTION_NONE if one of them, but for empty ones, is so
 * far below that its tickets are cut, or their references are not all PLAIN. */
template <class type> __device__ __forceinline__ int32_t section_exponent(work<type> &k, int first, int end) {
    quick &q = k.q;
    const scale by = k.to.by;
    const int g = first + (int)threadIdx.x;
    float m = MINUS_INF;
    if (g < end) {
        m = k.peak_far(g);
        q.peak[threadIdx.x] = m;
    }
    uint32_t most = order_of(m), unused = 0;
    fast_range(&unused, &most, q.space[0]);
    const float top = float_of_order(most);
    const int32_t exponent = ref_make_near(by, top).exponent;
    const bool any = __syncthreads_or(group_far(by, top, m) || !(top > MINUS_INF) || !weights_hold(by, top));
    return any ? SECTION_NONE : exponent;
}

/* Adds a lane's tokens to the bins of their values. Tickets are added in two parts of 13 bits, of which a section's tokens make no more
 * than 2^29: 64-bit sums in shared memory would be a loop. */
__device__ __forceinline__ void section_add(quick &q, const float x[LANE_TOKENS], const ref &f, uint32_t most, int left) {
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        const uint32_t down = most - value_of(x[j], f.c), weight = v_round(v_weight(x[j], &f, 0));
        if (down >= SUM_BINS) continue;
        const int right = (int)value_unit(down) - left;
        const uint32_t units = right > 0 ? weight >> right : weight << -right;
        atomicAdd(q.valued[0] + down, units & 0x1fffu);
        atomicAdd(q.valued[1] + down, units >> 13);
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

/* Leaves the sums of the sections of groups [first, end), which are a part; by the whole block. */
template <class type> static __device__ __noinline__ void part_sums(work<type> *shared_k, int first, int end) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    quick &q = k.q;
    const int each = sections_each(k.part), part = first / k.part;
    for (int i = 0; first + i * SECTION < end; ++i) {
        const int from = first + i * SECTION, to = min(from + SECTION, end);
        const int64_t at = part * each + i;
        const int32_t exponent = section_exponent(k, from, to);
        if (threadIdx.x == 0) __stcg(k.heads + at, exponent);
        if (exponent == SECTION_NONE) continue;
        for (int b = threadIdx.x; b < SUM_BINS; b += BLOCK_THREADS) q.valued[0][b] = q.valued[1][b] = 0;
        __syncthreads();
        const uint32_t most = value_most(exponent);
        row_visit<type>(k.row, from, to, [&](int g, const float x[LANE_TOKENS]) {
            const float m = q.peak[g - from];
            const ref f = ref_make_near(k.to.by, m);
            if (m > MINUS_INF) section_add(q, x, f, most, TICKET_BITS - (exponent - f.exponent));
        });
        __syncthreads();
        section_write(q, k.sums + at * SUM_BINS);
        __syncthreads(); /* the bins are used again */
    }
}

#endif
