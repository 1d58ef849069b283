/* group_weigh.cuh - what a group of 256 tokens weighs: exactly, or by an estimate. */
#ifndef RAFFLE_CUDA_GROUP_WEIGH_CUH
#define RAFFLE_CUDA_GROUP_WEIGH_CUH

#include "group.cuh"

/* ---- weighing ------------------------------------------------------------------------------------- */

/* Nearly every group has a reference of one kind: PLAIN, or LINEAR where rows hold weights (`linear`, the LINEAR of their type). The loops
 * of usual rows know no other; whoever finishes a row knows whether that was right (weights_hold). */
template <int linear> __device__ __forceinline__ ref ref_usual(scale s, float m) {
    return linear ? ref_make_linear(m) : ref_make_near(s, m);
}
template <int linear> __device__ __forceinline__ uint32_t weigh_usual(float x, const ref &f) {
    return v_round(linear ? v_weight_any(x, &f) : v_weight(x, &f, 0));
}

/* The sum of a lane's eight weights. */
template <int linear> __device__ __forceinline__ uint64_t lane_weigh(const float x[LANE_TOKENS], const ref &f) {
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) sum += weigh_usual<linear>(x[j], f);
    return sum;
}

/* A lane's weights, of what was loaded. */
template <int linear, class type>
__device__ __forceinline__ void raw_weights_each(const lane_raw<type> &raw, const ref &f, uint32_t w[LANE_TOKENS]) {
    float x[LANE_TOKENS];
    raw_values(raw, x);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) w[j] = weigh_usual<linear>(x[j], f);
}
__device__ __forceinline__ void raw_weights(const lane_raw<type_f32> &raw, const ref &f, uint32_t w[LANE_TOKENS]) {
    raw_weights_each<0>(raw, f, w);
}
__device__ __forceinline__ void raw_weights(const lane_raw<type_f16> &raw, const ref &f, uint32_t w[LANE_TOKENS]) {
    raw_weights_each<0>(raw, f, w);
}
/* Weights as they are stored: 0 is 0, and groups with one that is negative are done again (raw_peak). */
template <class stored>
__device__ __forceinline__ void raw_weights(const lane_raw<type_probs<stored>> &raw, const ref &f, uint32_t w[LANE_TOKENS]) {
    raw_weights_each<1>((const lane_raw<stored> &)raw, f, w);
}
/* bf16 meets the least logit that matters two at a time. That is 60 powers of two below the group's maximum, which is less than
 * 2^12 of them from 0, so rounding moves it by 8 at most: what is near it weighs 0 either way. (f16 may round it to -inf.) */
__device__ __forceinline__ void raw_weights(const lane_raw<type_bf16> &raw, const ref &f, uint32_t w[LANE_TOKENS]) {
    typedef __nv_bfloat162 pair;
    const pair low = __floats2bfloat162_rn(f.low, f.low);
    const uint32_t word[4] = {raw.word[0].x, raw.word[0].y, raw.word[0].z, raw.word[0].w};
#pragma unroll
    for (int j = 0; j < LANE_TOKENS / 2; ++j) {
        const uint32_t both = bits_of_pair(__hmax2(pair_of<pair>(word[j]), low));
        float x = float_of(both << 16), y = float_of(both & 0xffff0000u);
        v_weights_of(&x, 1, f.c, f.c_low, f.magic, f.gain, 0);
        v_weights_of(&y, 1, f.c, f.c_low, f.magic, f.gain, 0);
        w[2 * j] = v_round(x);
        w[2 * j + 1] = v_round(y);
    }
}

/* Their sum. */
template <class type> __device__ __forceinline__ uint64_t raw_weigh(const lane_raw<type> &raw, const ref &f) {
    uint32_t w[LANE_TOKENS];
    raw_weights(raw, f, w);
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) sum += w[j];
    return sum;
}

/* Sum of the weights of all lanes: below 2^40. A lane's is below 2^35, so two sums of 26 and 9 bits do. */
struct split_sum {
    uint32_t low, high;
};
__device__ __forceinline__ split_sum split_make(uint64_t of_lane) {
    const split_sum s = {(uint32_t)of_lane & 0x3ffffffu, (uint32_t)(of_lane >> 26)};
    return s;
}
__device__ __forceinline__ split_sum group_sum_split(uint64_t of_lane) {
    split_sum s = split_make(of_lane);
    s.low = warp_add(s.low);
    s.high = warp_add(s.high);
    return s;
}
__device__ __forceinline__ uint64_t split_join(const split_sum &s) { return s.low + ((uint64_t)s.high << 26); }
__device__ __forceinline__ uint64_t group_sum(uint64_t of_lane) { return split_join(group_sum_split(of_lane)); }

/* ---- estimating ------------------------------------------------------------------------------------ */

/* About what the tokens of a group weigh, in 5 instructions a token instead of 14: the sum of 2^(x c - e), e being the integer next to
 * m c as in the group's reference. Lanes add up floats, the warp integers of 2^-28.
 *
 * Weights are 2^31 (1 - 2^-10) sqrt(2) 2^(x (c + c_low) - e). With u = 2^-24 and D = (m - x) c the powers of two that a token lies below the
 * group's largest, an estimate differs from that by
 *     power_about           4 u
 *     x c - e, rounded      (D + 1/2) u ln 2
 *     c_low left out        2^(x c_low) = 2^(m c_low) 2^-((m - x) c_low), |c_low| <= u c. estimate_weight puts in the first factor, the second
 *                           is off by D u ln 2
 *     addition              3 u; integers 1.5 u, the largest token being 2^-1/2 at least
 *     estimate_weight       4 u
 *     exact weights         5.2 u (src/math/estimate.h)
 * D is another one for each token, but on the average, each counting for what it weighs, at most the logarithm of their number to the
 * base 2, 8: the entropy of that distribution is the average of D and the logarithm of its sum, which is not below 0.
 * Together less than 30 u. Groups of another reference than PLAIN are none of a row whose weights hold. Tickets of groups are cut to
 * integers: less than 1,056 of the row's 2^40 or more, once here and once exactly. */
#define ESTIMATE_ERROR estimate_error{32 * 0x1p-24, 0x1p-28}
/* The ratio of two rows' masses, both estimated, with what is rounded when it is compared. */
#define ESTIMATE_RATIO_ERROR (2 * (ESTIMATE_ERROR.own + ESTIMATE_ERROR.all) + 0x1p-40)

/* The powers of a lane's tokens; their sum over the warp. */
__device__ __forceinline__ void powers_about(const float x[LANE_TOKENS], scale s, float m, float power[LANE_TOKENS]) {
    const float e = one_fma(m, s.c, MAGIC) - MAGIC;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) power[j] = power_about(one_fma(x[j], s.c, -e));
}
template <class type> __device__ __forceinline__ split_sum raw_estimate(const lane_raw<type> &raw, scale s, float m) {
    float x[LANE_TOKENS];
    raw_values(raw, x);
    powers_about(x, s, m, x);
    const float sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    const uint32_t own = __float2uint_rn(sum * 0x1p28f); /* of 8 sqrt(2) at most */
    const split_sum all = {warp_add(own & 0xffffu), warp_add(own >> 16)};
    return all;
}
__device__ __forceinline__ uint64_t estimate_weight(const split_sum &sum, scale s, float m) {
    const float all = one_fma((float)sum.high, 0x1p16f, (float)sum.low), unit = 0x1.69af64p+3f; /* 2^3 (1 - 2^-10) sqrt(2) */
    return __float2ull_rz(all * unit * one_fma(m * s.c_low, 0.69314718f, 1.0f));
}

/* Rare references, and code that runs once a row, call one copy: a kernel's speed also depends on its size. */
static __device__ __noinline__ uint32_t weigh_any(float x, const ref f) { return v_weigh(x, &f); }

__device__ __forceinline__ uint32_t weigh_one(float x, const ref &f) {
    return f.kind == REF_PLAIN ? v_round(v_weight(x, &f, 0)) : weigh_any(x, f);
}

/* Makes of a lane's logits their weights as floats. Rare references share one copy of the code, which works on a copy of
 * the logits: what a call can see does not stay in registers. */
static __device__ __noinline__ void weights_rare(float x[LANE_TOKENS], const ref f) {
    for (int j = 0; j < LANE_TOKENS; ++j) x[j] = v_weight_any(x[j], &f);
}
__device__ __forceinline__ void lane_weights(float x[LANE_TOKENS], const ref &f) {
    if (f.kind == REF_PLAIN) {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) x[j] = v_weight(x[j], &f, 0);
        return;
    }
    if (f.kind == REF_LINEAR) {
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) x[j] = v_weight_any(x[j], &f);
        return;
    }
    float seen[LANE_TOKENS];
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) seen[j] = x[j];
    weights_rare(seen, f);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) x[j] = seen[j];
}
static __device__ __noinline__ ref ref_rare(scale s, float m) { return ref_make(s, m); }
__device__ __forceinline__ ref ref_any(scale s, float m) {
    return !s.flat && ref_is_near(s, m) ? ref_make_near(s, m) : ref_rare(s, m);
}

static __device__ __noinline__ group_ref group_ref_any(const weighing *w, float peak) { return group_ref_make(w, peak); }

#endif
