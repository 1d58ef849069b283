/* cluster.cuh - raffle_softmax without filters, in one launch: a cluster of blocks reads a row once, keeps its weights in shared
 * memory, agrees on the row's maximum and mass, and writes it. Compute capability 9.0 and newer.
 *
 * A warp has `per` groups of the row, one behind the other.
 *
 *   weigh      every warp makes weights of its logits, in their place in shared memory, and a note of each group
 *   decide     one warp of each block tells the other blocks the largest logit, then the tickets that the block's groups
 *              hold, and turns the notes into orders
 *   write      every warp makes probabilities of its weights
 *
 * Blocks wait for nothing but the two messages of each block of their cluster, which run at the same time. What the loops for
 * many do not do (masks, misaligned rows, NaN, references that are not PLAIN, greedy rows) is done by short loops without
 * calls: what a call needs, every thread would put on the stack. */
#ifndef RAFFLE_CUDA_CLUSTER_CUH
#define RAFFLE_CUDA_CLUSTER_CUH

#include "write.cuh"

enum {
    CLUSTER_USUAL = 8,  /* blocks that every GPU with clusters allows */
    CLUSTER_MOST = 16,  /* and those of compute capability 9.x, if asked */
    CLUSTER_WARPS = 12, /* warps of a block at most: three blocks a multiprocessor */
    GROUP_FLOAT4S = GROUP / 4
};

/* What a warp has found in a group, and what it is told to do with it. They lie in the same place. */
#define NOTE_NAN (1u << 31)
#define NOTE_NEAR (1u << 30)
struct alignas(16) cluster_note {
    float peak;
    int32_t exponent;
    uint32_t sum_low, sum_high; /* sum of weights, and flags: a NaN was there; no weight is below NEAR_WEIGHT */
};
enum { ORDER_PORTION, ORDER_NEAR, ORDER_NOTHING };
struct alignas(16) cluster_order {
    float factor, factor_low; /* of ORDER_NEAR */
    uint32_t distance, what;
};

/* A row's parameters. */
struct cluster_row {
    device_row row;
    float temperature;
    scale by;
    bool valid, greedy, plain; /* plain: groups_weigh can read and weigh it, but for single groups */
};

/* What is known of a row when it is written. */
struct cluster_verdict {
    float best;
    ref row; /* its reference */
    uint64_t mass;
    portion of_best;
    log_line line; /* if logarithms are asked for */
};

/* The block's shared memory beside weights and notes. */
struct cluster_space {
    uint64_t landed[CLUSTER_WARPS]; /* barriers that complete when a warp's logits are here */
    uint64_t told[2];               /* when all blocks have told their maxima, their tickets */
    uint64_t box[2][CLUSTER_MOST];  /* what they told: the key of the first group with the largest logit; tickets and MASS_NAN */
    cluster_row row;
    cluster_verdict verdict;
};

/* Bytes of dynamic shared memory of a block whose warps have `per` groups each: | weights | notes | */
static inline size_t cluster_memory(int64_t warps, int64_t per) {
    return (size_t)(warps * per) * (GROUP * sizeof(float) + sizeof(cluster_note));
}

#if __CUDA_ARCH__ >= 900

/* ---- weights in shared memory ---------------------------------------------------------------------------- */

/* Tokens lie in their order, four by four; every second eight of these are swapped in pairs, so that lanes meet no bank
 * conflict whether each takes the eight tokens of 2-byte loads or the two times four of f32. */
__device__ __forceinline__ int kept_at(int four) { return four ^ (four >> 3 & 1); }

/* The places of a lane's first and last four tokens. */
template <int bytes> __device__ __forceinline__ int lane_first() { return kept_at(threadIdx.x % WARP * (bytes == 4 ? 1 : 2)); }
template <int bytes> __device__ __forceinline__ int lane_last() { return bytes == 4 ? lane_first<4>() + WARP : lane_first<2>() ^ 1; }

__device__ __forceinline__ void lane_keep(float4 *first, float4 *last, const float v[LANE_TOKENS]) {
    *first = make_float4(v[0], v[1], v[2], v[3]);
    *last = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ __forceinline__ void lane_recall(const float4 *first, const float4 *last, float v[LANE_TOKENS]) {
    const float4 a = *first, b = *last;
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}
__device__ __forceinline__ float *token_kept(float4 *group, int token) { return (float *)(group + kept_at(token / 4)) + token % 4; }

/* ---- messages -------------------------------------------------------------------------------------------- */

/* The largest key of the lanes. */
__device__ __forceinline__ uint64_t warp_key(uint64_t own) {
    const uint32_t order = warp_max((uint32_t)(own >> 32)), id = warp_max((uint32_t)(own >> 32) == order ? (uint32_t)own : 0);
    return (uint64_t)order << 32 | id;
}
/* The sum of the lanes' tickets, with MASS_NAN if one has it. */
__device__ __forceinline__ uint64_t warp_held(uint64_t own) {
    return warp_add_wide(own & ~MASS_NAN) | (__any_sync(ALL_LANES, own >> 63) ? MASS_NAN : 0);
}

/* Tells all blocks, this one too, message `kind` (0: largest key, 1: tickets), and returns what all of them told together. */
__device__ __forceinline__ uint64_t tell(cluster_space *s, int kind, uint64_t message) {
    const int lane = threadIdx.x % WARP, blocks = cluster_blocks();
    if (lane == 0) barrier_expect(&s->told[kind], blocks * (uint32_t)sizeof message);
    if (lane < blocks) store_remote(&s->box[kind][cluster_rank()], &s->told[kind], lane, message);
    barrier_wait_cluster(&s->told[kind]);
    const uint64_t own = lane < blocks ? *(volatile uint64_t *)&s->box[kind][lane] : 0;
    return kind == 0 ? warp_key(own) : warp_held(own);
}

/* ---- where a warp's groups are ----------------------------------------------------------------------------- */

struct cluster_part {
    int first, count;   /* groups of the row */
    float4 *value;      /* [per, GROUP_FLOAT4S] weights */
    cluster_note *note; /* [per] */
    int per;
};
__device__ __forceinline__ cluster_part part_of(const write_args &a, int per, float4 *shared) {
    const int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    cluster_part p;
    p.first = __shfl_sync(ALL_LANES, (cluster_rank() * warps + warp) * per, 0); /* a warp stays together */
    p.count = max(0, min(per, a.groups - p.first));
    p.value = shared + warp * per * GROUP_FLOAT4S;
    p.note = (cluster_note *)(shared + warps * per * GROUP_FLOAT4S) + warp * per;
    p.per = per;
    return p;
}

/* Logits lie in the warp's weights' place; those of two bytes in its second half, so that the weights of a group take the
 * place of no logits but its own and those before. */
template <class type> __device__ __forceinline__ char *part_raw(const cluster_part &p) {
    return (char *)p.value + (type::BYTES == 2 ? p.per * GROUP * 2 : 0);
}
template <class type> __device__ __forceinline__ uint32_t part_bytes(const write_args &a, const cluster_part &p) {
    return (uint32_t)min((int64_t)p.count * GROUP, a.vocab - p.first * (int64_t)GROUP) * type::BYTES;
}

/* Whether logits can be copied to shared memory as they are. */
template <class type> __device__ __forceinline__ bool row_readable(const write_args &a, const char *logits) {
    return !a.allow && (uint32_t)a.vocab % (16 / type::BYTES) == 0 && (uintptr_t)logits % 16 == 0;
}

/* ---- weigh ----------------------------------------------------------------------------------------------- */

template <class type> struct cluster_type { enum { LINEAR = 0 }; };
template <class stored> struct cluster_type<type_probs<stored>> { enum { LINEAR = 1 }; };

/* The smallest of a lane's tokens; where one is NaN, anything. */
template <class type> __device__ __forceinline__ float raw_least(const lane_raw<type> &raw) {
    float x[LANE_TOKENS];
    raw_values(raw, x);
    float least = x[0];
#pragma unroll
    for (int j = 1; j < LANE_TOKENS; ++j) least = fminf(least, x[j]);
    return least;
}
template <class pair> __device__ __forceinline__ float pairs_least(const uint4 &word) {
    const pair a = __hmin2(pair_of<pair>(word.x), pair_of<pair>(word.y)), b = __hmin2(pair_of<pair>(word.z), pair_of<pair>(word.w));
    const pair c = __hmin2(a, b);
    return fminf(__low2float(c), __high2float(c));
}
template <> __device__ __forceinline__ float raw_least(const lane_raw<type_bf16> &raw) { return pairs_least<__nv_bfloat162>(raw.word[0]); }
template <> __device__ __forceinline__ float raw_least(const lane_raw<type_f16> &raw) { return pairs_least<__half2>(raw.word[0]); }

/* Whether groups_weigh can weigh a group with this maximum: its reference is PLAIN, or LINEAR. */
template <class type> __device__ __forceinline__ bool peak_suits(const scale &by, float peak) {
    return cluster_type<type>::LINEAR ? peak > 0.0f && peak < PLUS_INF : fabsf(peak * by.c) < 0x1p12f;
}

__device__ __forceinline__ void note_make(cluster_note *note, float peak, int32_t exponent, uint64_t sum, uint32_t flags) {
    if (threadIdx.x % WARP) return;
    const cluster_note n = {peak, exponent, (uint32_t)sum, (uint32_t)(sum >> 32) | flags};
    *note = n;
}

/* Makes weights of a lane's tokens of a group; only those before `left` are in the row. Returns their sum over all lanes. */
template <class type>
__device__ __forceinline__ uint64_t group_weigh(const ref &f, float x[LANE_TOKENS], int left) {
    enum { RUN = 16 / type::BYTES }; /* neighbours: all of them are in the row, or none */
    uint64_t sum = 0;
#pragma unroll
    for (int run = 0; run < LANE_TOKENS; run += RUN) {
        uint64_t of_run = 0;
#pragma unroll
        for (int j = run; j < run + RUN; ++j) {
            if (cluster_type<type>::LINEAR) x[j] = v_weight_any(x[j], &f);
            else v_weights_of(x + j, 1, f.c, f.c_low, f.magic, 1.0f, 0); /* v_weight without its floor */
            of_run += v_round(x[j]);
        }
        if (left < GROUP && lane_token<type>(true, threadIdx.x % WARP, run) >= left) of_run = 0;
        sum += of_run;
    }
    return group_sum(sum);
}

/* Weights (for logarithms: logits) and notes of a plain row, whose logits are here. Lanes behind the end of the row look at its
 * last tokens. Returns the groups, as bits, that are left to do. */
template <class type> __device__ __forceinline__ uint32_t groups_weigh(const write_args &a, const cluster_part &p, scale by) {
    const bool logs = a.form == FORM_LOG, linear = cluster_type<type>::LINEAR;
    by.linear = linear; /* so that the compiler knows it */
    const char *const raw = part_raw<type>(p);
    const uint32_t last_raw = part_bytes<type>(a, p) - 16;
    uint32_t at = threadIdx.x % WARP * 16;
    float4 *first = p.value + lane_first<type::BYTES>(), *last = p.value + lane_last<type::BYTES>();
    cluster_note *note = p.note;
    int left = (int)a.vocab - p.first * GROUP;
    uint32_t rare = 0;
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) {
        lane_raw<type> words;
#pragma unroll
        for (int half = 0; half < type::BYTES / 2; ++half) words.word[half] = *(const uint4 *)(raw + min(at + half * WARP * 16, last_raw));
        const float peak = float_of_order(warp_max(order_of(raw_peak(words)))), least = raw_least(words); /* a NaN is the largest key */
        float x[LANE_TOKENS];
        raw_values(words, x);
        __syncwarp(); /* all have read it: what follows takes its place */
        if (logs) lane_keep(first, last, x);
        if (peak_suits<type>(by, peak)) {
            const ref f = linear ? ref_make_linear(peak) : ref_make_near(by, peak);
            const bool near = __all_sync(ALL_LANES, least >= near_low(by, peak));
            if (!near && !linear) {
                const float low = ref_deep(f, by, peak).low;
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) x[j] = v_max(x[j], low);
            }
            const uint64_t sum = group_weigh<type>(f, x, left);
            if (!logs) lane_keep(first, last, x);
            note_make(note, peak, f.exponent, sum, near ? NOTE_NEAR : 0);
        } else {
            rare |= 1u << i;
        }
        at += GROUP * type::BYTES;
        first += GROUP_FLOAT4S;
        last += GROUP_FLOAT4S;
        note += 1;
        left -= GROUP;
    }
    return rare;
}

/* The same for groups that are left, by bits of `which`: any row, any reference, NaN counting as -inf. Of greedy rows the
 * logits are kept. */
template <class type>
__device__ __forceinline__ void groups_rare(const write_args &a, const cluster_part &p, const cluster_row &k, uint32_t which) {
    const int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) {
        if (!(which >> i & 1)) continue;
        float4 *const value = p.value + i * GROUP_FLOAT4S;
        uint32_t most = 0;
        bool nan = false;
#pragma unroll 4
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const float x = token_read_inline<type>(k.row, (p.first + i) * (int64_t)GROUP + j * WARP + lane);
            const float number = v_max(x, MINUS_INF);
            nan |= x != x;
            most = max(most, order_of(number));
            *token_kept(value, j * WARP + lane) = number;
        }
        const float peak = float_of_order(warp_max(most));
        ref f = ref_make(k.by, peak);
        const int32_t exponent = f.exponent;
        const bool weigh = !k.greedy && peak > MINUS_INF;
        f = ref_deep(f, k.by, peak);
        uint64_t sum = 0;
#pragma unroll 1
        for (int j = 0; weigh && j < LANE_TOKENS; ++j) {
            float *const kept = token_kept(value, j * WARP + lane);
            const float weight = v_weight_any(*kept, &f);
            if (a.form == FORM_PROBABILITY) *kept = weight;
            sum += v_round(weight);
        }
        nan = __any_sync(ALL_LANES, nan);
        note_make(p.note + i, peak, weigh ? exponent : -STEP_EXPONENT, group_sum(sum), nan ? NOTE_NAN : 0);
    }
}

/* ---- decide ------------------------------------------------------------------------------------------------ */

/* A row's parameters, by one thread. */
template <class type> __device__ __forceinline__ void row_prepare(const write_args &a, int64_t row, cluster_row *k) {
    row_params p;
    k->valid = write_params(a, row, &p);
    k->temperature = k->valid ? p.temperature : 1.0f;
    k->greedy = k->temperature < GREEDY_BELOW && k->temperature != LINEAR_TEMPERATURE;
    k->by = scale_make(k->greedy ? 1.0f : k->temperature);
    k->row = k->valid ? write_row<type>(a, row) : device_row(); /* without a token */
    k->plain = k->valid && !k->greedy && k->by.flat == cluster_type<type>::LINEAR && row_readable<type>(a, k->row.logits);
}

__device__ __forceinline__ uint32_t flags_of(float best, bool nan) {
    return (best == PLUS_INF ? RULE_ROW_INF : best == MINUS_INF ? RULE_ROW_EMPTY : 0) | (nan ? RULE_ROW_NAN : 0);
}

/* By one warp, when all warps of the block have weighed: agrees with the other blocks on the row, and turns the notes of the
 * block's groups [first, first + count) into orders. */
__device__ __forceinline__ void row_decide(const write_args &a, cluster_space *s, int first, int count, cluster_note *note, int64_t row) {
    const int lane = threadIdx.x % WARP;
    const bool valid = s->row.valid, greedy = s->row.greedy, draws = valid && !greedy;
    uint64_t own = 0;
#pragma unroll 1
    for (int i = lane; i < count; i += WARP) own = max(own, token_key(note[i].peak, first + i));
    const uint64_t key = tell(s, 0, warp_key(own));
    const float best = key_logit(key);
    const ref of_row = ref_make(s->row.by, best);
    own = 0;
#pragma unroll 1
    for (int i = lane; i < count; i += WARP) {
        const cluster_note n = note[i];
        ref f = ref();
        f.exponent = n.exponent;
        const uint32_t below = ref_below(&of_row, best, &f, n.peak);
        if (draws && n.peak > MINUS_INF) own += tickets_of((uint64_t)(n.sum_high & ~(NOTE_NAN | NOTE_NEAR)) << 32 | n.sum_low, below);
        if (n.sum_high & NOTE_NAN) own |= MASS_NAN;
    }
    const uint64_t held = tell(s, 1, warp_held(own)), mass = held & ~MASS_NAN;
    const portion of_best = portion_make(mass ? mass : 1);
    const uint32_t reach = portion_reach(&of_best);
#pragma unroll 1
    for (int i = lane; i < count; i += WARP) {
        const cluster_note n = note[i];
        ref f = ref();
        f.exponent = n.exponent;
        const uint32_t distance = ref_distance(&of_row, best, &f, n.peak);
        const bool near = draws && n.sum_high & NOTE_NEAR && distance <= reach;
        const bool nothing = !valid || n.peak == MINUS_INF || (greedy && first + i != key_token(key));
        const portion scaled = portion_near(of_best, near ? distance : 0);
        const cluster_order o = {scaled.factor, scaled.factor_low, distance, (uint32_t)(near ? ORDER_NEAR : nothing ? ORDER_NOTHING : ORDER_PORTION)};
        *(cluster_order *)(note + i) = o;
    }
    if (lane) return;
    cluster_verdict &v = s->verdict;
    v.best = best;
    v.row = of_row;
    v.mass = mass;
    v.of_best = of_best;
    if (a.form == FORM_LOG && draws && mass) v.line = log_line_make(s->row.temperature, best, &of_row, mass);
    if (a.row_flags && cluster_rank() == 0) a.row_flags[row] = valid ? flags_of(best, held >> 63) : RAFFLE_ROW_ARGUMENT;
}

/* ---- write ------------------------------------------------------------------------------------------------ */

/* Eight values of a lane to their places in a group, of which `left` tokens are in the row. */
template <int dtype> __device__ __forceinline__ uint32_t pair_make(float a, float b) {
    return dtype == RAFFLE_F16 ? bits_of_pair(__floats2half2_rn(a, b)) : bits_of_pair(__floats2bfloat162_rn(a, b));
}
template <int dtype> __device__ __forceinline__ void lane_write(char *to, int left, const float y[LANE_TOKENS]) {
    const int lane = threadIdx.x % WARP;
    if (dtype == RAFFLE_F32) {
        if (lane * 4 < left) *(float4 *)to = make_float4(y[0], y[1], y[2], y[3]);
        if (128 + lane * 4 < left) *(float4 *)(to + WARP * 16) = make_float4(y[4], y[5], y[6], y[7]);
    } else if (lane * 8 < left) {
        *(uint4 *)to = make_uint4(pair_make<dtype>(y[0], y[1]), pair_make<dtype>(y[2], y[3]), pair_make<dtype>(y[4], y[5]), pair_make<dtype>(y[6], y[7]));
    }
}

/* The warp's groups to places that 16-byte stores reach, as probabilities, or as logarithms of a row that is not STEP or LINEAR. */
template <int dtype, bool logs>
__device__ __forceinline__ void groups_write(const write_args &a, const cluster_part &p, const cluster_verdict &v, char *to) {
    enum { BYTES = dtype == RAFFLE_F32 ? 4 : 2 };
    const float4 *first = p.value + lane_first<BYTES>(), *last = p.value + lane_last<BYTES>();
    const cluster_order *order = (const cluster_order *)p.note;
    const portion best = v.of_best;
    const log_line line = v.line;
    int left = (int)a.vocab - p.first * GROUP;
    to += p.first * (int64_t)(GROUP * BYTES) + threadIdx.x % WARP * 16;
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) {
        float y[LANE_TOKENS];
        lane_recall(first, last, y);
        if (logs) {
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) y[j] = y[j] >= -FLT_MAX ? v_log(y[j], &line) : MINUS_INF;
        } else {
            const cluster_order o = *order;
            if (o.what == ORDER_NEAR) {
                portion near = best;
                near.factor = o.factor;
                near.factor_low = o.factor_low;
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) y[j] = v_portion_near(y[j], &near);
            } else {
                const portion below = portion_below(best, o.distance);
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) y[j] = o.what == ORDER_NOTHING || below.none ? 0.0f : v_portion(y[j], &below);
            }
        }
        lane_write<dtype>(to, left, y);
        first += GROUP_FLOAT4S;
        last += GROUP_FLOAT4S;
        order += 1;
        left -= GROUP;
        to += GROUP * BYTES;
    }
}

/* Any row to any place, token by token. */
__device__ __forceinline__ void groups_write_rare(const write_args &a, const cluster_part &p, const cluster_verdict &v, bool greedy,
                                                  char *to) {
    const int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) {
        const cluster_order o = ((const cluster_order *)p.note)[i];
        const portion below = portion_below(v.of_best, o.distance);
        bool taken = false; /* greedy: the first of the best is found */
#pragma unroll 1
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const int64_t id = (p.first + i) * (int64_t)GROUP + j * WARP + lane;
            const float x = *token_kept(p.value + i * GROUP_FLOAT4S, j * WARP + lane);
            float y = a.form == FORM_PROBABILITY ? 0.0f : MINUS_INF;
            if (greedy) {
                const uint32_t equal = __ballot_sync(ALL_LANES, o.what != ORDER_NOTHING && id < a.vocab && x == v.best);
                if (!taken && equal && lane == __ffs(equal) - 1) y = a.form == FORM_LOG ? 0.0f : 1.0f;
                taken |= equal != 0;
            } else if (o.what != ORDER_NOTHING && a.form == FORM_PROBABILITY) {
                y = below.none ? 0.0f : v_portion(x, &below);
            } else if (o.what != ORDER_NOTHING && x >= -FLT_MAX) {
                y = v.row.kind == REF_LINEAR ? log_weight(x, &v.row, v.mass) : v_log_kept(x, &v.row, &v.line);
            }
            if (id >= a.vocab) continue;
            if (a.dtype == RAFFLE_F32) ((float *)to)[id] = y;
            else ((uint16_t *)to)[id] = a.dtype == RAFFLE_F16 ? f16_of_float(y) : bf16_of_float(y);
        }
    }
}

__device__ __forceinline__ void row_write(const write_args &a, const cluster_part &p, const cluster_verdict &v, bool greedy, int64_t row) {
    const bool f32 = a.dtype == RAFFLE_F32, logs = a.form == FORM_LOG;
    char *const to = a.data + row * a.data_stride * (f32 ? 4 : 2);
    const bool wide = (uintptr_t)to % 16 == 0 && ((uint32_t)a.vocab & (f32 ? 3 : 7)) == 0;
    if (!wide || greedy || (logs && (v.row.kind == REF_STEP || v.row.kind == REF_LINEAR))) groups_write_rare(a, p, v, greedy, to);
    else if (f32) logs ? groups_write<RAFFLE_F32, true>(a, p, v, to) : groups_write<RAFFLE_F32, false>(a, p, v, to);
    else if (a.dtype == RAFFLE_F16) logs ? groups_write<RAFFLE_F16, true>(a, p, v, to) : groups_write<RAFFLE_F16, false>(a, p, v, to);
    else logs ? groups_write<RAFFLE_BF16, true>(a, p, v, to) : groups_write<RAFFLE_BF16, false>(a, p, v, to);
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------------------- */

/* Grid: a cluster for each row. `per` groups a warp. */
template <class type>
__global__ void __launch_bounds__(CLUSTER_WARPS * WARP, 3) cluster_kernel(const __grid_constant__ write_args a, const int per) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ float4 shared[]; /* cluster_memory */
    __shared__ cluster_space s;
    const cluster_part p = part_of(a, per, shared);
    const int row = cluster_id(), lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, of_block = (int)blockDim.x / WARP * per;
    if (threadIdx.x == 0) {
        barrier_make(&s.told[0]);
        barrier_make(&s.told[1]);
    }
    bool asked = false;
    if (lane == 0) {
        barrier_make(&s.landed[warp]);
        barriers_made();
        const int64_t from = a.row_index ? a.row_index[row] : row;
        const char *logits = a.logits + from * a.row_stride * type::BYTES;
        asked = p.count && (!a.row_index || (from >= 0 && from < a.data_rows)) && row_readable<type>(a, logits);
        logits += p.first * (int64_t)GROUP * type::BYTES;
        if (asked) copy_ask(part_raw<type>(p), logits, part_bytes<type>(a, p), &s.landed[warp]);
    }
    asked = __shfl_sync(ALL_LANES, asked, 0);
    if (threadIdx.x == 0) row_prepare<type>(a, row, &s.row);
    __syncthreads();
    cluster_arrive(); /* the barriers of this block are made */
    uint32_t rare = ~0u;
    if (asked) barrier_wait(&s.landed[warp]);
    if (asked && s.row.plain) rare = groups_weigh<type>(a, p, s.row.by);
    __syncwarp(); /* lanes of rare groups store where others have stored */
    if (rare) groups_rare<type>(a, p, s.row, rare);
    cluster_wait(); /* the barriers of all blocks are made */
    __syncthreads();
    if (warp == 0) row_decide(a, &s, p.first, max(0, min(of_block, a.groups - p.first)), p.note, row);
    __syncthreads();
    row_write(a, p, s.verdict, s.row.greedy, row);
#endif
}

#endif
