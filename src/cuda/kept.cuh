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

/* Words of a group's bits out of its lanes' eight, where these hold neighbours (group.cuh): lane l gets word l / 4; of f32 words l / 8
 * and 4 + l / 8. */
template <class type> __device__ __forceinline__ uint2 words_gather(int lane, uint32_t bits) {
    uint2 word;
    if (type::BYTES == 2) { /* a byte of the mask a lane */
        word.x = bits << (lane % 4 * 8);
        word.x |= __shfl_xor_sync(ALL_LANES, word.x, 1);
        word.x |= __shfl_xor_sync(ALL_LANES, word.x, 2);
        word.y = 0;
    } else { /* four bits of the first and of the second half */
        word.x = (bits & 15u) << (lane % 8 * 4);
        word.y = (bits >> 4) << (lane % 8 * 4);
#pragma unroll
        for (int step = 1; step < 8; step <<= 1) {
            word.x |= __shfl_xor_sync(ALL_LANES, word.x, step);
            word.y |= __shfl_xor_sync(ALL_LANES, word.y, step);
        }
    }
    return word;
}

/* All of them to every lane. `wide`: lanes hold neighbours. */
template <class type> __device__ __forceinline__ void group_words(bool wide, int lane, uint32_t bits, uint32_t word[GROUP_WORDS]) {
    const uint2 own = wide ? words_gather<type>(lane, bits) : make_uint2(0, 0);
#pragma unroll
    for (int j = 0; j < GROUP_WORDS; ++j) {
        if (!wide) word[j] = __ballot_sync(ALL_LANES, bits >> j & 1);
        else if (type::BYTES == 2) word[j] = __shfl_sync(ALL_LANES, own.x, j * 4);
        else word[j] = __shfl_sync(ALL_LANES, j < 4 ? own.x : own.y, j % 4 * 8);
    }
}

/* Tells which tokens a cut keeps, or of those of a group only the lowest. may_keep(g): whether group g is to be read. */
template <class type, class function>
__device__ __forceinline__ void kept_write(const device_row &row, int groups, const cut &kept, bool lowest, const kept_target &to,
                                           kept_space *s, function may_keep) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, words = (int)((row.vocab + 31) / 32);
    int total = 0;
    for (int first = 0; first < groups; first += BLOCK_THREADS) {
        const bool may = first + (int)threadIdx.x < groups && may_keep(first + (int)threadIdx.x);
        const uint32_t lanes = __ballot_sync(ALL_LANES, may);
        if (lane == 0) s->groups[warp] = lanes;
        const int end = min(words, (first + BLOCK_THREADS) * GROUP_WORDS);
        for (int i = first * GROUP_WORDS + (int)threadIdx.x; to.words && i < end; i += BLOCK_THREADS) to.words[i] = 0;
        const int count = __syncthreads_count(may);
        for (int next = 0; next < count; next += BLOCK_WARPS) {
            const int n = kept_group(s->groups, next + warp), g = first + n;
            float x[LANE_TOKENS];
            uint32_t own = 0, bits[GROUP_WORDS], found = 0;
            if (n >= 0) {
                lane_read<type>(row, g, lane, x);
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) own |= (uint32_t)cut_keeps(kept, x[j], lane_id<type>(row, g, lane, j)) << j;
            }
            group_words<type>(row.aligned && group_whole(row, g), lane, own, bits);
#pragma unroll
            for (int j = 0; j < GROUP_WORDS; ++j) {
                if (lowest) bits[j] = found ? 0 : bits[j] & (0u - bits[j]);
                found += __popc(bits[j]);
                if (to.words && lane == j && n >= 0 && g * GROUP_WORDS + j < words) to.words[g * GROUP_WORDS + j] = bits[j];
            }
            if (lane == 0) s->tokens[warp] = found;
            __syncthreads();
            int at = total;
            for (int i = 0; i < BLOCK_WARPS; ++i) {
                if (i < warp) at += (int)s->tokens[i];
                total += (int)s->tokens[i];
            }
#pragma unroll
            for (int j = 0; j < GROUP_WORDS; ++j) { /* a token of each lane at a time: in order */
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
