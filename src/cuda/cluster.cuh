/* cluster.cuh - raffle_softmax without filters, in one launch: a cluster of blocks reads a row once, keeps it in its shared
 * memory, tells each other maxima and masses, and writes it. Compute capability 9.0 and newer. */
#ifndef RAFFLE_CUDA_CLUSTER_CUH
#define RAFFLE_CUDA_CLUSTER_CUH

#include <cooperative_groups.h>

#include "write.cuh"

/* The lane's tokens in shared memory: two float4 of each of its groups. */
__device__ __forceinline__ void lane_keep(float4 *group, int lane, const float v[LANE_TOKENS]) {
    group[lane] = make_float4(v[0], v[1], v[2], v[3]);
    group[WARP + lane] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ __forceinline__ void lane_recall(const float4 *group, int lane, float v[LANE_TOKENS]) {
    const float4 a = group[lane], b = group[WARP + lane];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

enum { GROUP_FLOAT4S = GROUP / 4 };

/* Bytes of shared memory for `each` groups of a block, of a row of `groups`. */
static inline size_t cluster_memory(int64_t each, int64_t groups) {
    return (size_t)each * GROUP * sizeof(float) + (size_t)groups * (sizeof(uint64_t) + sizeof(float));
}

#if __CUDA_ARCH__ >= 900
/* Reads, weighs and keeps the block's groups [first, end); their records go to every block of the cluster. */
template <class type>
__device__ __forceinline__ void cluster_read(const write_args &a, const device_row &row, const scale &by, bool greedy, int first,
                                             int end, float4 *value, uint64_t *sums, float *peaks) {
    enum { AHEAD = 2 }; /* loads in flight; more need more registers than two blocks of a multiprocessor have */
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive(); /* nobody may write into a block's memory before that block has begun */
    const int lane = threadIdx.x % WARP, warps = (int)blockDim.x / WARP, blocks = (int)cluster.num_blocks();
    const int whole = (int)(row.vocab / GROUP);
    lane_raw<type> raw[AHEAD];
    int g = first + (int)threadIdx.x / WARP;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
        if (row.aligned && g + i * warps < end && g + i * warps < whole) raw[i] = raw_load<type>(group_at<type>(row, g + i * warps), true, lane);
    cluster.barrier_wait();
    for (; g < end; g += AHEAD * warps) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int now = g + i * warps, next = now + AHEAD * warps;
            if (now >= end) break;
            float x[LANE_TOKENS];
            if (row.aligned && now < whole) {
                raw_values(raw[i], x);
                if (next < end && next < whole) raw[i] = raw_load<type>(group_at<type>(row, next), true, lane);
                if (row.allow) lane_mask(lane_allow<type>(row, now, lane), x);
            } else {
                lane_read<type>(row, now, lane, x);
            }
            float peak = float_of_order(warp_max(order_of(lane_peak(x)))); /* a NaN is the largest key */
            uint64_t nan = 0;
            if (peak != peak) {
                nan = MASS_NAN;
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) x[j] = v_max(x[j], MINUS_INF);
                peak = float_of_order(warp_max(order_of(lane_peak(x))));
            }
            uint64_t sum = 0;
            if (!greedy && peak > MINUS_INF) {
                float4 *const kept = value + (now - first) * GROUP_FLOAT4S;
                if (a.form != FORM_PROBABILITY) lane_keep(kept, lane, x);
                lane_weights(x, ref_deep(ref_any(by, peak), by, peak));
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) sum += v_round(x[j]);
                if (a.form == FORM_PROBABILITY) lane_keep(kept, lane, x);
                sum = group_sum(sum);
            } else {
                lane_keep(value + (now - first) * GROUP_FLOAT4S, lane, x);
            }
            if (lane < blocks) {
                *cluster.map_shared_rank(sums + now, lane) = sum | nan;
                *cluster.map_shared_rank(peaks + now, lane) = peak;
            }
        }
    }
}

/* Writes the block's groups out of what it has kept. */
template <class type>
__device__ __forceinline__ void cluster_write(const write_args &a, const writing &w, const device_row &row, int64_t index, int first,
                                              int end, const float4 *value, const float *peaks) {
    const int lane = threadIdx.x % WARP, warps = (int)blockDim.x / WARP, bytes = a.dtype == RAFFLE_F32 ? 4 : 2;
    for (int g = first + (int)threadIdx.x / WARP; g < end; g += warps) {
        const int count = (int)min((int64_t)GROUP, a.vocab - g * (int64_t)GROUP);
        const bool wide = row.aligned && count == GROUP;
        float y[LANE_TOKENS];
        const float peak = w.valid ? peaks[g] : MINUS_INF;
        if (peak > MINUS_INF) lane_recall(value + (g - first) * GROUP_FLOAT4S, lane, y);
        if (peak > MINUS_INF && a.form == FORM_PROBABILITY && !w.v.only) {
            const ref f = ref_any(w.by, peak);
            const portion p = portion_below(w.best_portion, ref_distance(&w.row, w.v.best, &f, peak));
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) y[j] = p.none ? 0.0f : v_portion(y[j], &p);
        } else {
            const uint32_t kept = peak > MINUS_INF ? lane_kept<type>(row, g, lane, y, w.v) : 0;
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j)
                y[j] = kept >> j & 1 ? value_of(w, a.form, y[j]) : w.nothing;
        }
        lane_store<type>(a.data + (index * a.data_stride + g * (int64_t)GROUP) * bytes, a.dtype, wide, lane, count, y);
    }
}
#endif

/* Grid: a cluster for each row. `each` groups a block. */
template <class type>
__global__ void __launch_bounds__(1024) cluster_kernel(const __grid_constant__ write_args a, const int each) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ float4 value[]; /* | tokens [each] | sums [groups] | peaks [groups] | */
    __shared__ verdict_space space;
    __shared__ writing w;
    uint64_t *sums = (uint64_t *)(value + each * GROUP_FLOAT4S);
    float *peaks = (float *)(sums + a.groups);
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    const int64_t row = blockIdx.x / cluster.num_blocks();
    const int first = (int)cluster.block_rank() * each, end = min(first + each, a.groups);
    row_params p;
    const bool valid = write_params(a, row, &p); /* the same in all blocks of the cluster */
    const device_row r = valid ? write_row<type>(a, row) : device_row();
    verdict v = verdict();
    if (valid) {
        const bool greedy = p.temperature < GREEDY_BELOW && p.temperature != LINEAR_TEMPERATURE;
        const scale by = scale_make(greedy ? 1.0f : p.temperature);
        cluster_read<type>(a, r, by, greedy, first, end, value, sums, peaks);
        cluster.sync(); /* all records are here; nobody looks into another's memory after this */
        v = verdict_of(a.groups, p, by, [&](int g) { return peaks[g]; }, [&](int g) { return sums[g]; }, &space);
    }
    if (threadIdx.x == 0) {
        writing_make(&w, a, p, v, valid);
        if (a.row_flags && cluster.block_rank() == 0) a.row_flags[row] = valid ? v.flags : RAFFLE_ROW_ARGUMENT;
    }
    __syncthreads();
    cluster_write<type>(a, w, r, row, first, end, value, peaks);
#endif
}

#endif
