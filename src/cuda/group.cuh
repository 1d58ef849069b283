/* group.cuh - one warp, one group of 256 tokens: eight tokens a lane.
 *
 * Which eight a lane holds depends on how the row can be read, is free (sums and maxima do not care), and is the
 * same whenever a group is read again:
 *   16-byte loads, 2-byte logits    8 l .. 8 l + 7
 *   16-byte loads, f32              4 l .. 4 l + 3 and 128 + 4 l .. 128 + 4 l + 3
 *   one by one (misaligned rows, and the last, partial group)  l, l + 32, l + 64, ...
 * Lanes 8 q .. 8 q + 7 together hold a *piece* of 64 tokens; the first reading leaves the maximum of each. */
#ifndef RAFFLE_CUDA_GROUP_CUH
#define RAFFLE_CUDA_GROUP_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "raffle/raffle.h"

#include "block.cuh"
#include "cut_types.h"
#include "ptx.cuh"
#include "settle.h"

enum { LANE_TOKENS = GROUP / WARP, PIECES = 4, PIECE_LANES = WARP / PIECES, GROUP_WORDS = GROUP / 32, PATCH_WORDS = 2 * GROUP_WORDS };

/* A row as the kernels see it. */
struct device_row {
    const char *logits;
    const uint32_t *allow; /* or NULL */
    int64_t vocab;
    bool aligned; /* 16-byte loads are possible */
#if CUT_MORE
    const uint32_t *patch; /* or NULL; of each group, a bit for every token, set if it is edited, and where in overlay each of these
                            * words' tokens begin (edit.cuh) */
    const float *overlay;  /* the logits of edited tokens, those of a word in their order */
#endif
};

/* Whether whole groups can be taken as they are loaded. */
__device__ __forceinline__ bool row_plain(const device_row &row) {
#if CUT_MORE
    if (row.patch) return false;
#endif
    return row.aligned && !row.allow;
}

/* ---- dtypes --------------------------------------------------------------------------------------- */

/* LINEAR: what is stored is no logit, but a weight. REQUESTED, TOLD, ASKED, INDEXED and TEAMED: see below. SUMS: blocks leave sums by value
 * of rows that look flat (sums.cuh). ABOUT: rows without filters, or that propose (rules.h), may be estimated first, and weighed only where that does not
 * settle the draw: where nobody else asks for their mass, and where weighing takes longer than memory does, which it does not for f32. */

struct type_f32 {
    static constexpr uint32_t MINUS_INFS = 0xff800000u;
    enum { BYTES = 4, LINEAR = 0, REQUESTED = 0, TOLD = 0, ASKED = 0, INDEXED = 0, SUMS = 1, TEAMED = 0, ABOUT = 0 };
    static __device__ __forceinline__ float value(uint32_t bits) { return __uint_as_float(bits); }
    static __device__ __forceinline__ float one(const char *p) { return __ldg((const float *)p); }
};
struct type_f16 {
    static constexpr uint32_t MINUS_INFS = 0xfc00fc00u; /* two of them */
    enum { BYTES = 2, LINEAR = 0, REQUESTED = 0, TOLD = 0, ASKED = 0, INDEXED = 0, SUMS = 1, TEAMED = 0, ABOUT = 1 };
    static __device__ __forceinline__ float value(uint32_t bits) { return __half2float(__ushort_as_half((uint16_t)bits)); }
    static __device__ __forceinline__ float one(const char *p) { return value(__ldg((const uint16_t *)p)); }
};
struct type_bf16 {
    static constexpr uint32_t MINUS_INFS = 0xff80ff80u;
    enum { BYTES = 2, LINEAR = 0, REQUESTED = 0, TOLD = 0, ASKED = 0, INDEXED = 0, SUMS = 1, TEAMED = 0, ABOUT = 1 };
    static __device__ __forceinline__ float value(uint32_t bits) { return __uint_as_float(bits << 16); }
    static __device__ __forceinline__ float one(const char *p) { return value(__ldg((const uint16_t *)p)); }
};

/* Probabilities instead of logits: a zero is as good as a mask, and what is negative is not a number. */
template <class stored> struct type_probs {
    static constexpr uint32_t MINUS_INFS = 0;
    enum { BYTES = stored::BYTES, LINEAR = 1, REQUESTED = 0, TOLD = 0, ASKED = 0, INDEXED = 0, SUMS = 0, TEAMED = 0, ABOUT = 0 };
    static __device__ __forceinline__ float prepare(float x) {
        return x > 0.0f ? x : x == 0.0f ? MINUS_INF : __uint_as_float(0x7fc00000u);
    }
    static __device__ __forceinline__ float value(uint32_t bits) { return prepare(stored::value(bits)); }
    static __device__ __forceinline__ float one(const char *p) { return prepare(stored::one(p)); }
};

/* Logits of calls with a raffle_extra or a raffle_report: what these add is compiled where REQUESTED is 1 only, so that
 * kernels of other calls stay as small as they are. */
template <class stored> struct requested : stored {
    enum { REQUESTED = 1, TOLD = 1, SUMS = 0, ABOUT = 0 };
};

/* Rows of which it is wanted not only what was drawn, but also out of what (work::told), and how many tickets another token
 * has (work::ask). */
template <class stored> struct judged : stored {
    enum { TOLD = 1, ASKED = 1, SUMS = 0 };
};

/* Rows of which several results may be drawn (raffle_logits.row_index). */
template <class stored> struct indexed : stored {
    enum { TOLD = 1, INDEXED = 1, SUMS = 0, ABOUT = 0 };
};

/* Rows whose blocks are clusters, and read them again together if need be (team.cuh). */
template <class stored> struct teamed : stored {
    enum { TEAMED = 1 };
};

template <class one, class other> struct same_type {
    enum { YES = 0 };
};
template <class one> struct same_type<one, one> {
    enum { YES = 1 };
};

/* ---- reading --------------------------------------------------------------------------------------- */

/* A lane's eight tokens as loaded, not yet looked at: keeps loads in flight. */
template <class type> struct lane_raw {
    uint4 word[type::BYTES / 2]; /* 2-byte logits: 1, f32: 2 */
};
template <class type> struct lane_raw<type_probs<type>> : lane_raw<type> {};
template <class type> struct lane_raw<requested<type>> : lane_raw<type> {};
template <class type> struct lane_raw<judged<type>> : lane_raw<type> {};
template <class type> struct lane_raw<indexed<type>> : lane_raw<type> {};
template <class type> struct lane_raw<teamed<type>> : lane_raw<type> {};

/* Position in the group of a lane's j-th token. */
template <class type> __device__ __forceinline__ int lane_token(bool wide, int lane, int j) {
    if (!wide) return j * WARP + lane;
    return type::BYTES == 4 ? (j / 4) * 128 + lane * 4 + j % 4 : lane * 8 + j;
}

/* The lane that has a token, given its position in the group. */
template <class type> __device__ __forceinline__ uint32_t token_lane(bool wide, uint32_t token) {
    if (!wide) return token % WARP;
    return type::BYTES == 4 ? token % 128 / 4 : token / LANE_TOKENS;
}

/* Loads a lane's tokens of a whole group, given the address of the group. */
template <class type> __device__ __forceinline__ lane_raw<type> raw_load(const char *group, bool aligned, int lane) {
    lane_raw<type> raw;
    if (aligned) {
#pragma unroll
        for (int i = 0; i < type::BYTES / 2; ++i) raw.word[i] = load_once((const uint4 *)group + i * WARP + lane);
    } else if (type::BYTES == 4) {
        uint32_t *word = (uint32_t *)raw.word;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) word[j] = __ldg((const uint32_t *)group + j * WARP + lane);
    } else {
        uint32_t *word = (uint32_t *)raw.word;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; j += 2) {
            uint32_t low = __ldg((const uint16_t *)group + j * WARP + lane);
            uint32_t high = __ldg((const uint16_t *)group + (j + 1) * WARP + lane);
            word[j / 2] = low | high << 16;
        }
    }
    return raw;
}

template <class type> __device__ __forceinline__ void raw_values(const lane_raw<type> &raw, float x[LANE_TOKENS]) {
#pragma unroll
    for (int i = 0; i < type::BYTES / 2; ++i) {
        const uint32_t w[4] = {raw.word[i].x, raw.word[i].y, raw.word[i].z, raw.word[i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (type::BYTES == 4) {
                x[i * 4 + j] = type::value(w[j]);
            } else {
                x[j * 2] = type::value(w[j] & 0xffffu);
                x[j * 2 + 1] = type::value(w[j] >> 16);
            }
        }
    }
}

/* The j-th of a lane's tokens, for a j that only the running kernel knows. */
template <class type> __device__ __forceinline__ float raw_value(const lane_raw<type> &raw, int j) {
    const int half = type::BYTES == 2 ? j >> 1 & 3 : j & 3;
    uint4 w = raw.word[0];
    if (type::BYTES == 4 && j >= 4) w = raw.word[type::BYTES / 2 - 1];
    const uint32_t bits = half & 2 ? (half & 1 ? w.w : w.z) : half & 1 ? w.y : w.x;
    return type::value(type::BYTES == 4 ? bits : j & 1 ? bits >> 16 : bits & 0xffffu);
}

/* The lane's maximum, NaN if one is NaN. */
__device__ __forceinline__ float lane_peak(const float x[LANE_TOKENS]) {
    float most = x[0];
#pragma unroll
    for (int j = 1; j < LANE_TOKENS; ++j) most = max_or_nan(most, x[j]);
    return most;
}

#if CUT_MORE
/* Makes -inf of the tokens of a lane whose bit is not set, before unpacking. */
template <class type> __device__ __forceinline__ void raw_mask(lane_raw<type> &raw, uint32_t keep) {
    uint32_t *word = (uint32_t *)raw.word;
    if (type::BYTES == 4) {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (!(keep >> j & 1)) word[j] = 0xff800000u;
        return;
    }
    const uint32_t spread = keep | keep << 15; /* of tokens 2 j and 2 j + 1 the bits are 16 apart */
#pragma unroll
    for (int j = 0; j < LANE_TOKENS / 2; ++j) {
        const uint32_t halves = halves_of(spread << (7 - 2 * j));
        word[j] = (word[j] & halves) | (type::MINUS_INFS & ~halves);
    }
}
#endif

/* The same before unpacking: two at a time for 2-byte logits. */
__device__ __forceinline__ float raw_peak(const lane_raw<type_f32> &raw) {
    float x[LANE_TOKENS];
    raw_values(raw, x);
    return lane_peak(x);
}
template <class pair> __device__ __forceinline__ pair pair_of(uint32_t bits) {
    pair p;
    memcpy(&p, &bits, sizeof p);
    return p;
}
template <class pair> __device__ __forceinline__ uint32_t bits_of_pair(const pair &p) {
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    return bits;
}
__device__ __forceinline__ float raw_peak(const lane_raw<type_bf16> &raw) {
    typedef __nv_bfloat162 pair;
    pair a = __hmax2_nan(pair_of<pair>(raw.word[0].x), pair_of<pair>(raw.word[0].y));
    pair b = __hmax2_nan(pair_of<pair>(raw.word[0].z), pair_of<pair>(raw.word[0].w));
    const uint32_t most = bits_of_pair(__hmax2_nan(a, b));
    return max_or_nan(float_of(most << 16), float_of(most & 0xffff0000u));
}
__device__ __forceinline__ float raw_peak(const lane_raw<type_f16> &raw) {
    typedef __half2 pair;
    pair a = __hmax2_nan(pair_of<pair>(raw.word[0].x), pair_of<pair>(raw.word[0].y));
    pair b = __hmax2_nan(pair_of<pair>(raw.word[0].z), pair_of<pair>(raw.word[0].w));
    a = __hmax2_nan(a, b);
    return max_or_nan(__low2float(a), __high2float(a));
}
/* Bits of weights are ordered as these are, and those of what is no weight, and of -0, are larger than all. */
template <class stored> __device__ __forceinline__ float raw_peak(const lane_raw<type_probs<stored>> &raw) {
    float x[LANE_TOKENS];
    raw_values((const lane_raw<stored> &)raw, x);
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) most = max(most, bits_of(x[j]));
    return most > bits_of(PLUS_INF) ? __uint_as_float(0x7fc00000u) : most ? float_of(most) : MINUS_INF;
}

/* Bit j: a lane's j-th token reaches the bound. Pairs of 2-byte logits are compared with the least that does. */
template <class type> __device__ __forceinline__ uint32_t values_reach(const lane_raw<type> &raw, float bound) {
    float x[LANE_TOKENS];
    uint32_t reach = 0;
    raw_values(raw, x);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) reach |= (uint32_t)(x[j] >= bound) << j;
    return reach;
}
template <class pair> __device__ __forceinline__ uint32_t pairs_reach(const uint4 w, const pair bound) {
    const uint32_t word[LANE_TOKENS / 2] = {w.x, w.y, w.z, w.w};
    uint32_t reach = 0; /* of tokens 2 j and 2 j + 1 the bits are 17 apart */
#pragma unroll
    for (int j = 0; j < LANE_TOKENS / 2; ++j) reach |= __hge2_mask(pair_of<pair>(word[j]), bound) & 0x20001u << 2 * j;
    return (reach | reach >> 16) & 0xffu;
}
__device__ __forceinline__ uint32_t raw_reach(const lane_raw<type_f32> &raw, float bound) { return values_reach(raw, bound); }
template <class stored> __device__ __forceinline__ uint32_t raw_reach(const lane_raw<type_probs<stored>> &raw, float bound) {
    return values_reach(raw, bound);
}
__device__ __forceinline__ uint32_t raw_reach(const lane_raw<type_bf16> &raw, float bound) {
    const uint32_t bits = __float_as_uint(bound), up = (bits >> 31 ? bits : bits + 0xffffu) >> 16;
    return pairs_reach(raw.word[0], pair_of<__nv_bfloat162>(up | up << 16));
}
__device__ __forceinline__ uint32_t raw_reach(const lane_raw<type_f16> &raw, float bound) {
    return pairs_reach(raw.word[0], __half2half2(__float2half_ru(bound)));
}

/* A word of a bitmap. Where kernels write bitmaps themselves, a read-only cache would show what was there before. */
__device__ __forceinline__ uint32_t bits_load(const uint32_t *word) {
#if CUT_MORE
    return __ldcg(word);
#else
    return __ldg(word);
#endif
}
__device__ __forceinline__ bool bit_load(const uint32_t *bitmap, int64_t id) { return bits_load(bitmap + id / 32) >> (id % 32) & 1; }

/* Bit j: the words of a group have the lane's j-th token. */
template <class type> __device__ __forceinline__ uint32_t lane_bits(const uint32_t *words, bool aligned, int lane) {
    if (!aligned) {
        uint32_t bits = 0;
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) bits |= (bits_load(words + j) >> lane & 1u) << j;
        return bits;
    }
    if (type::BYTES == 2) return bits_load(words + lane / 4) >> (lane % 4 * 8) & 0xffu;
    return (bits_load(words + lane / 8) >> (lane % 8 * 4) & 0xfu) | (bits_load(words + 4 + lane / 8) >> (lane % 8 * 4) & 0xfu) << 4;
}
template <class type> __device__ __forceinline__ uint32_t lane_allow(const device_row &row, int g, int lane) {
    return lane_bits<type>(row.allow + g * (int64_t)GROUP_WORDS, row.aligned, lane);
}
#if CUT_MORE
/* The logit of a token if it is edited; else *x stays. */
__device__ __forceinline__ bool token_edited(const device_row &row, int64_t id, float *x) {
    const uint32_t *word = row.patch + id / GROUP * PATCH_WORDS + id % GROUP / 32;
    const uint32_t bits = bits_load(word), first = bits_load(word + GROUP_WORDS), own = 1u << id % 32;
    if (!(bits & own)) return false;
    *x = __ldcg(row.overlay + first + __popc(bits & (own - 1)));
    return true;
}
#endif

__device__ __forceinline__ void lane_mask(uint32_t allowed, float x[LANE_TOKENS]) {
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j)
        if (!(allowed >> j & 1)) x[j] = MINUS_INF;
}

/* One processed logit: -inf if it is masked or past the end. */
template <class type> __device__ __forceinline__ float token_read_inline(const device_row &row, int64_t id) {
    if (id >= row.vocab) return MINUS_INF;
    if (row.allow && !bit_load(row.allow, id)) return MINUS_INF;
#if CUT_MORE
    float edited;
    if (row.patch && token_edited(row, id, &edited)) return edited;
#endif
    return type::one(row.logits + id * type::BYTES);
}
template <class type> static __device__ __noinline__ float token_read(const device_row &row, int64_t id) {
    return token_read_inline<type>(row, id);
}

/* Eight processed logits in a row, from an id on that is a multiple of eight. No load of theirs is under a condition where it can be helped:
 * each would be waited for. */
template <class type> __device__ __forceinline__ void run_read(const device_row &row, int64_t id, float x[LANE_TOKENS]) {
    bool loads = row.aligned && id + LANE_TOKENS <= row.vocab;
#if CUT_MORE
    loads = loads && !row.patch;
#endif
    if (loads) {
        lane_raw<type> raw;
#pragma unroll
        for (int i = 0; i < type::BYTES / 2; ++i) raw.word[i] = load_once((const uint4 *)(row.logits + id * type::BYTES) + i);
        raw_values(raw, x);
        if (row.allow) lane_mask(bits_load(row.allow + id / 32) >> id % 32, x);
        return;
    }
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) x[j] = token_read<type>(row, id + j);
}

__device__ __forceinline__ bool group_whole(const device_row &row, int g) { return (g + 1) * (int64_t)GROUP <= row.vocab; }

template <class type> __device__ __forceinline__ const char *group_at(const device_row &row, int g) {
    return row.logits + g * (int64_t)GROUP * type::BYTES;
}

#if CUT_MORE
/* Puts the edited ones among a lane's tokens of a whole group in their places. */
template <class type> __device__ __forceinline__ void lane_patch(const device_row &row, int g, int lane, uint32_t patched, float x[LANE_TOKENS]) {
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j)
        if (patched >> j & 1) token_edited(row, g * (int64_t)GROUP + lane_token<type>(row.aligned, lane, j), x + j);
}
#endif

/* The lane's eight processed logits; NaN stays NaN. */
template <class type>
__device__ __forceinline__ void lane_read(const device_row &row, int g, int lane, float x[LANE_TOKENS]) {
    if (group_whole(row, g)) {
        raw_values(raw_load<type>(group_at<type>(row, g), row.aligned, lane), x);
#if CUT_MORE
        if (row.patch) lane_patch<type>(row, g, lane, lane_bits<type>(row.patch + g * (int64_t)PATCH_WORDS, row.aligned, lane), x);
#endif
        if (row.allow) lane_mask(lane_allow<type>(row, g, lane), x);
    } else {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) x[j] = token_read<type>(row, g * (int64_t)GROUP + j * WARP + lane);
    }
}

template <class type> __device__ __forceinline__ int64_t lane_id(const device_row &row, int g, int lane, int j) {
    return g * (int64_t)GROUP + lane_token<type>(row.aligned && group_whole(row, g), lane, j);
}

/* Calls visit(g, x) for groups g = pick(i), i = first, first + 8, ... below `end`, all whole, of a row that is plain. Several loads are on
 * their way at any time, `ahead` bytes a lane, each asked for into the registers of a group that is done (flight::next does so, too).
 * None is under a condition: behind a call, the assembler does not know that lanes are together, and would wait for a load that may not
 * happen before it asks for the next. */
template <class type, int ahead = 64, class choice, class function>
__device__ __forceinline__ void groups_visit(const device_row &row, int first, int end, choice pick, function visit) {
    enum { AT_ONCE = ahead / (LANE_TOKENS * type::BYTES) };
    lane_raw<type> raw[AT_ONCE] = {};
    const auto load = [&](int n, int i) {
        const uint4 *from = (const uint4 *)group_at<type>(row, pick(min(i, end - 1))) + threadIdx.x % WARP;
#pragma unroll
        for (int w = 0; w < type::BYTES / 2; ++w) load_once_if(true, from + w * WARP, &raw[n].word[w]);
    };
    if (first >= end) return;
#pragma unroll
    for (int n = 0; n < AT_ONCE; ++n) load(n, first + n * BLOCK_WARPS);
    for (int i = first; i < end; i += AT_ONCE * BLOCK_WARPS) {
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
            const int own = i + n * BLOCK_WARPS;
            float x[LANE_TOKENS];
            raw_values(raw[n], x);
            if (own < end) visit(pick(own), x);
            load(n, own + AT_ONCE * BLOCK_WARPS);
        }
    }
}

/* The same for groups [from, to) of any row, each by a warp. */
template <class type, int ahead = 64, class function>
__device__ __forceinline__ void row_visit(const device_row &row, int from, int to, function visit) {
    int g = from + (int)threadIdx.x / WARP;
    if (row_plain(row)) {
        const int whole = min(to, (int)(row.vocab / GROUP));
        groups_visit<type, ahead>(row, g, whole, [](int i) { return i; }, visit);
        if (whole > g) g += (whole - g + BLOCK_WARPS - 1) / BLOCK_WARPS * BLOCK_WARPS;
    }
    for (; g < to; g += BLOCK_WARPS) {
        float x[LANE_TOKENS];
        lane_read<type>(row, g, threadIdx.x % WARP, x);
        visit(g, x);
    }
}

/* Asks for a group's logits ahead of time. */
template <class type> __device__ __forceinline__ void group_prefetch(const device_row &row, int g, int lane) {
    if ((g + 1) * (int64_t)GROUP > row.vocab) return;
    prefetch(row.logits + (g * (int64_t)GROUP + lane * LANE_TOKENS) * type::BYTES);
}

/* ---- writing --------------------------------------------------------------------------------------- */

/* Eight values of a lane to their place: `group` is the address of its group's first value. Lanes hold tokens as group.cuh
 * says; `wide` if they are neighbours. */
template <class type>
__device__ __forceinline__ void lane_store(char *group, int dtype, bool wide, int lane, int count, const float y[LANE_TOKENS]) {
    const int bytes = dtype == RAFFLE_F32 ? 4 : 2;
    if (wide && (uintptr_t)group % 16 == 0 && dtype == RAFFLE_F32) {
        float4 *at = (float4 *)group;
        const int first = type::BYTES == 4 ? lane : 2 * lane, second = type::BYTES == 4 ? WARP + lane : 2 * lane + 1;
        at[first] = make_float4(y[0], y[1], y[2], y[3]);
        at[second] = make_float4(y[4], y[5], y[6], y[7]);
        return;
    }
    uint32_t pair[4];
    if (dtype != RAFFLE_F32) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (dtype == RAFFLE_F16) {
                const __half2 h = __floats2half2_rn(y[2 * j], y[2 * j + 1]);
                memcpy(&pair[j], &h, 4);
            } else {
                pair[j] = bf16_of_float(y[2 * j]) | (uint32_t)bf16_of_float(y[2 * j + 1]) << 16;
            }
        }
    }
    if (wide && (uintptr_t)group % 16 == 0) {
        if (type::BYTES == 4) {
            ((uint2 *)group)[lane] = make_uint2(pair[0], pair[1]);
            ((uint2 *)group)[WARP + lane] = make_uint2(pair[2], pair[3]);
        } else {
            ((uint4 *)group)[lane] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        const int token = lane_token<type>(wide, lane, j);
        if (token >= count) continue;
        if (bytes == 4) *(float *)(group + token * 4) = y[j];
        else *(uint16_t *)(group + token * 2) = (uint16_t)(j % 2 ? pair[j / 2] >> 16 : pair[j / 2]);
    }
}

#endif
