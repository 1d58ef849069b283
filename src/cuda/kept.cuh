/* kept.cuh - the kept tokens of a row in ascending order, by one block: as bits, as a list, and how many there are. Groups that keep
 * nothing are not read. */
#ifndef RAFFLE_CUDA_KEPT_CUH
#define RAFFLE_CUDA_KEPT_CUH

#include "group.cuh"

/* Where a row's go; each may be NULL. */
struct kept_target {
    uint32_t *words; /* [(vocab + 31) / 32] */
    int32_t *list;   /* [room] */
    int64_t room;
    int32_t *count;
};

/* Shared memory of the block. */
struct kept_space {
    uint32_t groups[BLOCK_WARPS]; /* of BLOCK_THREADS groups a bit each: it may keep a token */
    uint32_t tokens[BLOCK_WARPS]; /* kept tokens of the group that a warp reads */
};

/* Which of the groups that have their bit set is number n; -1: they are fewer. By a warp. */
__device__ __forceinline__ int kept_group(const uint32_t bits[BLOCK_WARPS], int n) {
    const uint32_t before = (1u << threadIdx.x % WARP) - 1;
    for (int i = 0; i < BLOCK_WARPS; ++i) {
        const uint32_t word = bits[i];
        const int count = __popc(word);
        if (n < count) return i * WARP + __ffs(__ballot_sync(ALL_LANES, word & (before + 1) && __popc(word & before) == n)) - 1;
        n -= count;
    }
    return -1;
}

/* Tells which tokens a cut keeps, or of those of a group only the lowest. may_keep(g): whether group g is to be read. */
template <class type, class function>
__device__ __forceinline__ void kept_write(const device_row &row, int groups, const cut &kept, bool lowest, const kept_target &to,
                                           kept_space *s, function may_keep) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, words = (int)((row.vocab + 31) / 32);
    int total = 0;
    for (int first = 0; first < groups; first += BLOCK_THREADS) {
        const int own = first + (int)threadIdx.x;
        const bool may = own < groups && may_keep(own);
        const uint32_t lanes = __ballot_sync(ALL_LANES, may);
        if (lane == 0) s->groups[warp] = lanes;
        const int end = min(words, (first + BLOCK_THREADS) * GROUP_WORDS);
        for (int i = first * GROUP_WORDS + (int)threadIdx.x; to.words && i < end; i += BLOCK_THREADS) to.words[i] = 0;
        const int count = __syncthreads_count(may);
        for (int next = 0; next < count; next += BLOCK_WARPS) {
            const int n = kept_group(s->groups, next + warp), g = n < 0 ? -1 : first + n;
            float x[LANE_TOKENS];
            uint32_t bits[LANE_TOKENS], found = 0;
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) /* a token of each lane at a time: in order */
                x[j] = g < 0 ? MINUS_INF : token_read_inline<type>(row, g * (int64_t)GROUP + j * WARP + lane);
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) {
                bits[j] = __ballot_sync(ALL_LANES, g >= 0 && cut_keeps(kept, x[j], g * (int64_t)GROUP + j * WARP + lane));
                if (lowest) bits[j] = found ? 0 : bits[j] & (0u - bits[j]);
                found += __popc(bits[j]);
                if (to.words && lane == j && g >= 0 && g * GROUP_WORDS + j < words) to.words[g * GROUP_WORDS + j] = bits[j];
            }
            if (lane == 0) s->tokens[warp] = found;
            __syncthreads();
            int at = total;
            for (int i = 0; i < BLOCK_WARPS; ++i) {
                if (i < warp) at += (int)s->tokens[i];
                total += (int)s->tokens[i];
            }
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) {
                const int slot = at + __popc(bits[j] & ((1u << lane) - 1));
                if (to.list && bits[j] >> lane & 1 && slot < to.room) to.list[slot] = g * GROUP + j * WARP + lane;
                at += __popc(bits[j]);
            }
            __syncthreads(); /* s is used again */
        }
    }
    if (to.count && threadIdx.x == 0) *to.count = total;
}

#endif
