/* cluster_groups.cuh - the groups of a warp of cluster.cuh: where they are, and the loops that look at them, weigh and write them. */
#ifndef RAFFLE_CUDA_CLUSTER_GROUPS_CUH
#define RAFFLE_CUDA_CLUSTER_GROUPS_CUH

#include "write.cuh"

enum {
    CLUSTER_USUAL = 8,      /* blocks that every GPU with clusters allows */
    CLUSTER_MOST = 16,      /* and those of compute capability 9.x, if asked */
    CLUSTER_WARPS = 16,     /* warps of a block that have units, at most */
    CLUSTER_THREADS = 1024, /* more than there are, so that a thread has 64 registers at most */
    GROUP_FLOAT4S = GROUP / 4,
    UNIT = 4,                  /* groups that a warp has in hand */
    GROUP_LANES = WARP / UNIT, /* lanes of a group */
    CHUNKS = UNIT,             /* a lane has so many times LANE_TOKENS tokens of its group */
    CHUNK_TOKENS = GROUP / CHUNKS
};

/* What is known of a group. */
#define NOTE_NAN (1u << 31)
#define NOTE_NEAR (1u << 30)
struct alignas(16) cluster_note {
    float peak;
    int32_t exponent; /* until it is weighed: the bits of its smallest logit */
    uint32_t sum_low, sum_high; /* sum of weights, and flags: a NaN was there; no weight is below NEAR_WEIGHT */
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
    int32_t group; /* the first that has it */
    ref row;       /* its reference */
    uint64_t mass;
    portion of_best;
    uint32_t reach; /* of it */
    log_line line; /* if logarithms are asked for */
};

#if __CUDA_ARCH__ >= 900

/* ---- weights in shared memory ---------------------------------------------------------------------------- */

/* Tokens lie in their order, four by four; every second eight of these are swapped in pairs, so that lanes meet no bank
 * conflict whether each takes the eight tokens of 2-byte loads or the two times four of f32. */
__device__ __forceinline__ int kept_at(int four) { return four ^ (four >> 3 & 1); }

__device__ __forceinline__ int unit_group() { return threadIdx.x % WARP / GROUP_LANES; } /* of its unit: the one that the lane has */
__device__ __forceinline__ int group_lane() { return threadIdx.x % GROUP_LANES; }

/* The places in a unit of a lane's first and last four tokens of a chunk. */
template <int bytes> __device__ __forceinline__ int lane_first() {
    return unit_group() * GROUP_FLOAT4S + kept_at(group_lane() * (bytes == 4 ? 1 : 2));
}
template <int bytes> __device__ __forceinline__ int lane_last() {
    return bytes == 4 ? unit_group() * GROUP_FLOAT4S + kept_at(group_lane() + GROUP_LANES) : lane_first<2>() ^ 1;
}

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

/* ---- where a warp's groups are ----------------------------------------------------------------------------- */

struct cluster_part {
    int first, count;   /* groups of the row */
    float4 *value;      /* [per, UNIT, GROUP_FLOAT4S] weights */
    cluster_note *note; /* [per, UNIT] */
    int per;
};
__device__ __forceinline__ cluster_part part_of(const write_args &a, int per, float4 *shared) {
    const int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP - 1, groups = per * UNIT;
    cluster_part p;
    p.first = __shfl_sync(ALL_LANES, (cluster_rank() * warps + warp) * groups, 0); /* a warp stays together */
    p.count = warp == warps ? 0 : max(0, min(groups, a.groups - p.first));
    p.value = shared + warp * groups * GROUP_FLOAT4S;
    p.note = (cluster_note *)(shared + warps * groups * GROUP_FLOAT4S) + warp * groups;
    p.per = per;
    return p;
}
__device__ __forceinline__ int part_units(const cluster_part &p) { return (p.count + UNIT - 1) / UNIT; }

/* Logits lie in the warp's weights' place; those of two bytes in its second half, so that the weights of a unit take the
 * place of no logits but its own and those before. */
template <class type> __device__ __forceinline__ char *part_raw(const cluster_part &p) {
    return (char *)p.value + (type::BYTES == 2 ? p.per * UNIT * GROUP * 2 : 0);
}
template <class type> __device__ __forceinline__ uint32_t part_bytes(const write_args &a, const cluster_part &p) {
    return (uint32_t)(min(p.count * GROUP, (int)a.vocab - p.first * GROUP) * type::BYTES);
}

/* Asks for a warp's logits, by its first lane. False if there is nothing to ask for. What stands in front of the copy counts (dev/cuda). */
template <class type> __device__ __forceinline__ bool part_ask(const write_args &a, const cluster_part &p, int row, uint64_t *landed) {
    const int64_t from = a.row_index ? a.row_index[row] : row;
    const char *logits = a.logits + from * a.row_stride * type::BYTES + p.first * (int64_t)GROUP * type::BYTES;
    if (!a.readable || !p.count || (a.row_index && (from < 0 || from >= a.data_rows))) return false;
    copy_ask(part_raw<type>(p), logits, part_bytes<type>(a, p), landed);
    return true;
}

/* The rest of a unit that the row does not fill: tokens without a weight. */
template <class type> __device__ __forceinline__ void part_fill(const write_args &a, const cluster_part &p) {
    const uint32_t all = part_units(p) * (UNIT * GROUP * type::BYTES);
    char *const raw = part_raw<type>(p);
    for (uint32_t at = part_bytes<type>(a, p) + threadIdx.x % WARP * 4; at < all; at += WARP * 4)
        *(uint32_t *)(raw + at) = type::MINUS_INFS;
}

/* The lane's tokens of chunk k, given the address of its first. */
template <class type> __device__ __forceinline__ lane_raw<type> chunk_raw(const char *lane, int k) {
    lane_raw<type> raw;
#pragma unroll
    for (int half = 0; half < type::BYTES / 2; ++half)
        raw.word[half] = *(const uint4 *)(lane + k * CHUNK_TOKENS * type::BYTES + half * GROUP_LANES * 16);
    return raw;
}

/* ---- look ------------------------------------------------------------------------------------------------- */

/* The largest and the smallest of a lane's tokens. If one is NaN the first is NaN and the second anything. */
struct lane_range {
    float most, least;
};
template <class type> __device__ __forceinline__ lane_range range_of(const lane_raw<type> raw[CHUNKS]) {
    lane_range r;
#pragma unroll
    for (int k = 0; k < CHUNKS; ++k) {
        float x[LANE_TOKENS];
        raw_values(raw[k], x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            r.most = k + j ? max_or_nan(r.most, x[j]) : x[j];
            r.least = k + j ? fminf(r.least, x[j]) : x[j];
        }
    }
    return r;
}
template <class pair> __device__ __forceinline__ pair pairs_most(const uint4 &w) {
    return __hmax2_nan(__hmax2_nan(pair_of<pair>(w.x), pair_of<pair>(w.y)), __hmax2_nan(pair_of<pair>(w.z), pair_of<pair>(w.w)));
}
template <class pair> __device__ __forceinline__ pair pairs_least(const uint4 &w) {
    return __hmin2(__hmin2(pair_of<pair>(w.x), pair_of<pair>(w.y)), __hmin2(pair_of<pair>(w.z), pair_of<pair>(w.w)));
}
template <class pair, class type> __device__ __forceinline__ lane_range range_of_pairs(const lane_raw<type> raw[CHUNKS]) {
    pair most = pairs_most<pair>(raw[0].word[0]), least = pairs_least<pair>(raw[0].word[0]);
#pragma unroll
    for (int k = 1; k < CHUNKS; ++k) {
        most = __hmax2_nan(most, pairs_most<pair>(raw[k].word[0]));
        least = __hmin2(least, pairs_least<pair>(raw[k].word[0]));
    }
    const lane_range r = {max_or_nan(__low2float(most), __high2float(most)), fminf(__low2float(least), __high2float(least))};
    return r;
}
template <> __device__ __forceinline__ lane_range range_of(const lane_raw<type_bf16> raw[CHUNKS]) {
    return range_of_pairs<__nv_bfloat162>(raw);
}
template <> __device__ __forceinline__ lane_range range_of(const lane_raw<type_f16> raw[CHUNKS]) { return range_of_pairs<__half2>(raw); }

/* The largest of a lane's tokens that are numbers. */
template <class type> __device__ __forceinline__ float numbers_most(const lane_raw<type> raw[CHUNKS]) {
    float most = MINUS_INF;
#pragma unroll
    for (int k = 0; k < CHUNKS; ++k) {
        float x[LANE_TOKENS];
        raw_values(raw[k], x);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) most = v_max(x[j], most);
    }
    return most;
}

/* Over the lanes of a group. */
__device__ __forceinline__ float lanes_most(float x) {
#pragma unroll
    for (int step = 1; step < GROUP_LANES; step <<= 1) x = max_or_nan(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}
__device__ __forceinline__ float lanes_least(float x) {
#pragma unroll
    for (int step = 1; step < GROUP_LANES; step <<= 1) x = fminf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}
__device__ __forceinline__ uint64_t lanes_sum(uint64_t x) {
#pragma unroll
    for (int step = 1; step < GROUP_LANES; step <<= 1) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

__device__ __forceinline__ void note_make(cluster_note *note, float peak, int32_t exponent, uint32_t flags) {
    const cluster_note n = {peak, exponent, 0, flags};
    *note = n;
}
/* All but the maximum, which the head may be reading. */
__device__ __forceinline__ void note_weighed(cluster_note *note, int32_t exponent, uint64_t sum, uint32_t flags) {
    note->exponent = exponent;
    *(uint2 *)&note->sum_low = make_uint2((uint32_t)sum, (uint32_t)(sum >> 32) | flags);
}

/* Largest and smallest logits of the groups, which are here. */
template <class type> __device__ __forceinline__ void groups_look(const cluster_part &p) {
    const int units = part_units(p);
    const char *lane = part_raw<type>(p) + unit_group() * GROUP * type::BYTES + group_lane() * 16;
    cluster_note *note = p.note + unit_group();
#pragma unroll 1
    for (int i = 0; i < units; ++i) {
        lane_raw<type> raw[CHUNKS];
#pragma unroll
        for (int k = 0; k < CHUNKS; ++k) raw[k] = chunk_raw<type>(lane, k);
        const lane_range own = range_of(raw);
        float peak = lanes_most(own.most);
        const float least = lanes_least(own.least);
        const bool nan = peak != peak;
        if (__any_sync(ALL_LANES, nan)) peak = lanes_most(numbers_most(raw));
        if (group_lane() == 0) note_make(note, peak, (int32_t)bits_of(least), nan ? NOTE_NAN : 0);
        lane += UNIT * GROUP * type::BYTES;
        note += UNIT;
    }
}

/* The logits of groups by bits of `which`, of any row, to the weights' place, and their maxima. NaN counts as -inf. */
template <class type>
__device__ __forceinline__ void groups_keep(const cluster_part &p, const cluster_row &k, uint32_t which) {
    const int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) {
        if (!(which >> i & 1)) continue;
        uint32_t most = 0;
        bool nan = false;
#pragma unroll 4
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const float x = token_read_inline<type>(k.row, (p.first + i) * (int64_t)GROUP + j * WARP + lane);
            const float number = v_max(x, MINUS_INF);
            nan |= x != x;
            most = max(most, order_of(number));
            *token_kept(p.value + i * GROUP_FLOAT4S, j * WARP + lane) = number;
        }
        const float peak = float_of_order(warp_max(most));
        nan = __any_sync(ALL_LANES, nan);
        if (lane == 0 && bits_of(p.note[i].peak) != bits_of(peak)) p.note[i].peak = peak; /* once looked at, the head may be reading it */
        if (lane == 0) note_weighed(p.note + i, 0, 0, nan ? NOTE_NAN : 0);
    }
}

/* ---- weigh ----------------------------------------------------------------------------------------------- */

/* Whether groups_weigh can weigh a group with this maximum: its reference is PLAIN, or LINEAR. */
template <class type> __device__ __forceinline__ bool peak_suits(const scale &by, float peak) {
    return type::LINEAR ? peak > 0.0f && peak < PLUS_INF : fabsf(peak * by.c) < 0x1p12f;
}

/* Makes weights of a chunk. Returns their sum. */
template <class type> __device__ __forceinline__ uint64_t chunk_weigh(const ref &f, float x[LANE_TOKENS]) {
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        if (type::LINEAR) x[j] = v_weight_any(x[j], &f);
        else v_weights_of(x + j, 1, f.c, f.c_low, f.magic, 1.0f, 0); /* v_weight without its floor */
        sum += v_round(x[j]);
    }
    return sum;
}

/* Weights (for logarithms: logits) and notes of a plain row, whose logits are here. Returns the groups, as bits, that are left
 * to do. Of them anything is kept. */
template <class type, bool logs> __device__ __forceinline__ uint32_t groups_weigh(const cluster_part &p, scale by) {
    const bool linear = type::LINEAR;
    by.linear = linear; /* so that the compiler knows it */
    const int units = part_units(p);
    const char *lane = part_raw<type>(p) + unit_group() * GROUP * type::BYTES + group_lane() * 16;
    float4 *first = p.value + lane_first<type::BYTES>(), *last = p.value + lane_last<type::BYTES>();
    cluster_note *note = p.note + unit_group();
    uint32_t rare = 0;
#pragma unroll 1
    for (int i = 0; i < units; ++i) {
        const cluster_note n = *note;
        lane_raw<type> raw[CHUNKS];
        if (type::BYTES == 2) {
#pragma unroll
            for (int k = 0; k < CHUNKS; ++k) raw[k] = chunk_raw<type>(lane, k);
            __syncwarp(); /* all have read it: what follows takes its place */
        }
        const ref f = linear ? ref_make_linear(n.peak) : ref_make_near(by, n.peak);
        const bool near = float_of((uint32_t)n.exponent) >= near_low(by, n.peak), all_near = __all_sync(ALL_LANES, near);
        /* A group behind the row's end is not near, though its least is its largest: the loops for near ones do not ask where it ends. */
        const uint32_t flags = n.sum_high & NOTE_NAN ? NOTE_NAN : near && n.peak > MINUS_INF ? NOTE_NEAR : 0;
        const uint32_t left = __ballot_sync(ALL_LANES, !peak_suits<type>(by, n.peak) || n.sum_high & NOTE_NAN);
        const float low = ref_deep(f, by, n.peak).low;
        uint64_t sum = 0;
#pragma unroll
        for (int k = 0; k < CHUNKS; ++k) {
            if (type::BYTES == 4) {
                raw[k] = chunk_raw<type>(lane, k);
                __syncwarp();
            }
            float x[LANE_TOKENS];
            raw_values(raw[k], x);
            if (logs) lane_keep(first + k * CHUNK_TOKENS / 4, last + k * CHUNK_TOKENS / 4, x);
            if (!all_near && !linear) {
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) x[j] = v_max(x[j], low);
            }
            sum += chunk_weigh<type>(f, x);
            if (!logs) lane_keep(first + k * CHUNK_TOKENS / 4, last + k * CHUNK_TOKENS / 4, x);
        }
        sum = lanes_sum(sum);
        if (group_lane() == 0) note_weighed(note, f.exponent, sum, flags);
        if (left) rare |= ((left & 1) | (left >> 7 & 2) | (left >> 14 & 4) | (left >> 21 & 8)) << i * UNIT;
        lane += UNIT * GROUP * type::BYTES;
        first += UNIT * GROUP_FLOAT4S;
        last += UNIT * GROUP_FLOAT4S;
        note += UNIT;
    }
    return rare;
}

/* The same for groups of which groups_keep has kept the logits, by bits of `which`: any reference. Of greedy rows the logits
 * stay. */
__device__ __forceinline__ void groups_rare(const write_args &a, const cluster_part &p, const cluster_row &k, uint32_t which) {
    const int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) {
        if (!(which >> i & 1)) continue;
        const float peak = p.note[i].peak;
        const uint32_t flags = p.note[i].sum_high;
        ref f = ref_make(k.by, peak);
        const int32_t exponent = f.exponent;
        const bool weigh = !k.greedy && peak > MINUS_INF;
        f = ref_deep(f, k.by, peak);
        uint64_t sum = 0;
#pragma unroll 1
        for (int j = 0; weigh && j < LANE_TOKENS; ++j) {
            float *const kept = token_kept(p.value + i * GROUP_FLOAT4S, j * WARP + lane);
            const float weight = v_weight_any(*kept, &f);
            if (a.form == FORM_PROBABILITY) *kept = weight;
            sum += v_round(weight);
        }
        sum = group_sum(sum);
        __syncwarp(); /* all have read the note */
        if (lane == 0) note_weighed(p.note + i, weigh ? exponent : -STEP_EXPONENT, sum, flags);
    }
}

/* ---- write ------------------------------------------------------------------------------------------------ */

/* A chunk of a lane to its place, of whose group `left` tokens are in the row from the lane's first on. */
template <int dtype> __device__ __forceinline__ uint32_t pair_make(float a, float b) {
    return dtype == RAFFLE_F16 ? bits_of_pair(__floats2half2_rn(a, b)) : bits_of_pair(__floats2bfloat162_rn(a, b));
}
template <int dtype> __device__ __forceinline__ void chunk_write(char *to, int left, const float y[LANE_TOKENS]) {
    if (dtype == RAFFLE_F32) {
        if (left > 0) *(float4 *)to = make_float4(y[0], y[1], y[2], y[3]);
        if (left > GROUP_LANES * 4) *(float4 *)(to + GROUP_LANES * 16) = make_float4(y[4], y[5], y[6], y[7]);
    } else if (left > 0) {
        *(uint4 *)to = make_uint4(pair_make<dtype>(y[0], y[1]), pair_make<dtype>(y[2], y[3]), pair_make<dtype>(y[4], y[5]),
                                  pair_make<dtype>(y[6], y[7]));
    }
}

/* How far a group is below the row's best. */
__device__ __forceinline__ uint32_t note_distance(const cluster_verdict &v, const cluster_note &n) {
    ref f = ref();
    f.exponent = n.exponent;
    return ref_distance(&v.row, v.best, &f, n.peak);
}

/* A unit of the warp to places that 16-byte stores reach, as probabilities, or as logarithms of a row that is not STEP or LINEAR. */
template <int dtype, bool logs>
__device__ __forceinline__ void unit_write(const cluster_verdict &v, const cluster_note &n, const float4 *first, const float4 *last,
                                           char *to, int left) {
    const portion below = portion_below(v.of_best, note_distance(v, n));
    const bool nothing = n.peak == MINUS_INF || below.none;
    const log_line line = v.line;
#pragma unroll 1
    for (int k = 0; k < CHUNKS; ++k) {
        float y[LANE_TOKENS];
        lane_recall(first + k * CHUNK_TOKENS / 4, last + k * CHUNK_TOKENS / 4, y);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) {
            if (logs) y[j] = y[j] >= -FLT_MAX ? v_log(y[j], &line) : MINUS_INF;
            else y[j] = nothing ? 0.0f : v_portion(y[j], &below);
        }
        chunk_write<dtype>(to + k * CHUNK_TOKENS * (dtype == RAFFLE_F32 ? 4 : 2), left - k * CHUNK_TOKENS, y);
    }
}
/* The same where no probability is small. All of the unit is in the row. */
template <int dtype>
__device__ __forceinline__ void unit_write_near(const cluster_verdict &v, uint32_t distance, const float4 *first, const float4 *last,
                                                char *to) {
    const portion near = portion_near(v.of_best, distance);
#pragma unroll
    for (int k = 0; k < CHUNKS; ++k) {
        float y[LANE_TOKENS];
        lane_recall(first + k * CHUNK_TOKENS / 4, last + k * CHUNK_TOKENS / 4, y);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j) y[j] = v_portion_near(y[j], &near);
        chunk_write<dtype>(to + k * CHUNK_TOKENS * (dtype == RAFFLE_F32 ? 4 : 2), GROUP, y);
    }
}

template <int dtype, bool logs>
__device__ __forceinline__ void groups_write(const write_args &a, const cluster_part &p, const cluster_verdict &shared, char *to) {
    enum { BYTES = dtype == RAFFLE_F32 ? 4 : 2 };
    const cluster_verdict v = shared; /* read once, whatever the stores may change */
    const float4 *first = p.value + lane_first<BYTES>(), *last = p.value + lane_last<BYTES>();
    const cluster_note *note = p.note + unit_group();
    const int units = part_units(p), group = p.first + unit_group();
    int left = (int)a.vocab - group * GROUP - group_lane() * (16 / BYTES);
    to += group * (int64_t)(GROUP * BYTES) + group_lane() * 16;
#pragma unroll 1
    for (int i = 0; i < units; ++i) {
        const cluster_note n = *note; /* of a group behind the row's end: anything, but for its flags */
        const uint32_t distance = note_distance(v, n);
        const bool near = !logs && __all_sync(ALL_LANES, n.sum_high & NOTE_NEAR && distance <= v.reach);
        if (near) unit_write_near<dtype>(v, distance, first, last, to);
        else unit_write<dtype, logs>(v, n, first, last, to, left);
        first += UNIT * GROUP_FLOAT4S;
        last += UNIT * GROUP_FLOAT4S;
        note += UNIT;
        left -= UNIT * GROUP;
        to += UNIT * GROUP * BYTES;
    }
}

/* Any row to any place, token by token. */
__device__ __forceinline__ void groups_write_rare(const write_args &a, const cluster_part &p, const cluster_verdict &v, bool greedy,
                                                  char *to) {
    const int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) {
        const cluster_note n = p.note[i];
        const portion below = portion_below(v.of_best, note_distance(v, n));
        const bool nothing = n.peak == MINUS_INF || (greedy && p.first + i != v.group);
        bool taken = false; /* greedy: the first of the best is found */
#pragma unroll 1
        for (int j = 0; j < LANE_TOKENS; ++j) {
            const int64_t id = (p.first + i) * (int64_t)GROUP + j * WARP + lane;
            const float x = *token_kept(p.value + i * GROUP_FLOAT4S, j * WARP + lane);
            float y = a.form == FORM_PROBABILITY ? 0.0f : MINUS_INF;
            if (greedy) {
                const uint32_t equal = __ballot_sync(ALL_LANES, !nothing && id < a.vocab && x == v.best);
                if (!taken && equal && lane == __ffs(equal) - 1) y = a.form == FORM_LOG ? 0.0f : 1.0f;
                taken |= equal != 0;
            } else if (!nothing && a.form == FORM_PROBABILITY) {
                y = below.none ? 0.0f : v_portion(x, &below);
            } else if (!nothing && x >= -FLT_MAX) {
                y = v.row.kind == REF_LINEAR ? log_weight(x, &v.row, v.mass) : v_log_kept(x, &v.row, &v.line);
            }
            if (id >= a.vocab) continue;
            if (a.dtype == RAFFLE_F32) ((float *)to)[id] = y;
            else ((uint16_t *)to)[id] = a.dtype == RAFFLE_F16 ? f16_of_float(y) : bf16_of_float(y);
        }
    }
}

#endif

#endif
