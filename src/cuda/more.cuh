/* more.cuh - the loops that the filters of a raffle_extra ask for (src/math/more.h), done by one block as those of finish.cuh
 * are. Few rows have such filters, so these loops are short rather than quick. */
#ifndef RAFFLE_CUDA_MORE_CUH
#define RAFFLE_CUDA_MORE_CUH

#include "finish.cuh"

template <class type> struct more_work : work<type> {
    using work<type>::row;
    using work<type>::groups;
    using work<type>::block;
    using work<type>::mass_near;
    using work<type>::peak_of;

    /* Calls visit(g, m, x) for every group whose maximum m is not below `low`; whole warps, x[j] the lane's j-th token, NaN
     * as it is: no comparison finds it. */
    template <class function> __device__ __forceinline__ void groups_from(float low, function visit) {
        const int lane = threadIdx.x % WARP;
        for (int g = threadIdx.x / WARP; g < groups; g += BLOCK_WARPS) {
            if (g + PREFETCH * BLOCK_WARPS < groups) group_prefetch<type>(row, g + PREFETCH * BLOCK_WARPS, lane);
            const float m = peak_of(g);
            if (m == MINUS_INF || m < low) continue;
            float x[LANE_TOKENS];
            lane_read<type>(row, g, lane, x);
            visit(g, m, x);
        }
    }

    /* The same for every token, with its tickets, that a cut keeps. */
    template <class function> __device__ __forceinline__ void kept_visit(const weighing *w, cut c, function visit) {
        groups_from(c.low, [&](int g, float m, const float x[LANE_TOKENS]) {
            const group_ref r = group_ref_any(w, m);
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) {
                if (!cut_keeps(c, x[j], lane_id<type>(row, g, threadIdx.x % WARP, j))) continue;
                visit(x[j], group_tickets(&r, weigh_one(x[j], r.ref)));
            }
        });
    }

    __device__ __noinline__ float least(float low) {
        SHARED_THIS;
        uint32_t smallest = order_of(PLUS_INF);
        groups_from(low, [&](int, float, const float x[LANE_TOKENS]) {
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j)
                if (x[j] >= low) smallest = min(smallest, order_of(x[j]));
        });
        return float_of_order(block_min(smallest, &block));
    }

    /* The largest logit of a group that is not above `high`, for whole warps. */
    __device__ __forceinline__ float group_most(const float x[LANE_TOKENS], float high) {
        uint32_t largest = order_of(MINUS_INF);
#pragma unroll
        for (int j = 0; j < LANE_TOKENS; ++j)
            if (x[j] <= high) largest = max(largest, order_of(x[j]));
        return float_of_order(warp_max(largest));
    }

    __device__ __noinline__ float most(float high) {
        SHARED_THIS;
        uint32_t largest = order_of(MINUS_INF);
        groups_from(MINUS_INF, [&](int, float m, const float x[LANE_TOKENS]) {
            largest = max(largest, order_of(m <= high ? m : group_most(x, high)));
        });
        return float_of_order(block_max(largest, &block));
    }

    __device__ __noinline__ uint64_t count(cut c) {
        SHARED_THIS;
        uint32_t own = 0;
        groups_from(c.low, [&](int g, float, const float x[LANE_TOKENS]) {
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) own += cut_keeps(c, x[j], lane_id<type>(row, g, threadIdx.x % WARP, j));
        });
        return block_count(own, &block);
    }

    __device__ __noinline__ moments moments_of(float best, double scale) {
        SHARED_THIS;
        moments m = {0, 0, 0};
        groups_from(MINUS_INF, [&](int, float, const float x[LANE_TOKENS]) {
#pragma unroll
            for (int j = 0; j < LANE_TOKENS; ++j) {
                if (!(x[j] > MINUS_INF)) continue;
                const uint64_t d = moments_term(best, x[j], scale);
                m.count += 1;
                m.sum += d;
                m.squares += d * d;
            }
        });
        m.count = block_add(m.count, &block);
        m.sum = block_add(m.sum, &block);
        m.squares = block_add(m.squares, &block);
        return m;
    }

    __device__ __noinline__ uint64_t surprise(const weighing *w, float temperature, cut c, uint64_t *mass) {
        SHARED_THIS;
        uint64_t sum = 0, total = 0;
        kept_visit(w, c, [&](float x, uint64_t tickets) {
            sum += surprise_of(w, temperature, x, tickets);
            total += tickets;
        });
        *mass = block_add(total, &block);
        return block_add(sum, &block);
    }

    /* Found byte by byte of the distance's bits, which sort like it. Sums of tickets are kept in four parts of 11 bits, so that
     * those of 2^21 tokens stay below 2^32: a 64-bit sum in shared memory would be a loop. */
    __device__ __noinline__ float radius(const weighing *w, cut c, float center, quest q) {
        SHARED_THIS;
        enum { DIGITS = 4, PLACES = 256, PARTS = 4, PART_BITS = 11 };
        static_assert(sizeof mass_near >= PARTS * PLACES * sizeof(uint32_t) && (int)PLACES <= (int)BLOCK_THREADS, "no room for the sums");
        uint32_t(*parts)[PLACES] = (uint32_t(*)[PLACES])mass_near;
        uint32_t found = 0;
        uint64_t left = q.target;
        __syncthreads();
        if (threadIdx.x == 0) this->state = MASS_OTHER;
#pragma unroll 1
        for (int shift = 8 * (DIGITS - 1); shift >= 0; shift -= 8) {
            const uint32_t known = shift == 24 ? 0 : ~0u << (shift + 8);
            uint32_t most = 0;
            for (int i = threadIdx.x; i < PARTS * PLACES; i += BLOCK_THREADS) parts[i / PLACES][i % PLACES] = 0;
            __syncthreads();
            kept_visit(w, c, [&](float x, uint64_t tickets) {
                const uint32_t key = bits_of(typical_distance(x, center)), place = key >> shift & (PLACES - 1);
                if ((key & known) != found) return;
                const uint64_t amount = q.in_tickets ? tickets : 1;
                for (int i = 0; i < PARTS; ++i) {
                    const uint32_t part = (uint32_t)(amount >> i * PART_BITS) & ((1u << PART_BITS) - 1);
                    if (part) atomicAdd(parts[i] + place, part);
                }
                most = max(most, place);
            });
            most = block_max(most, &block); /* a barrier, too */
            uint64_t own = 0;
            for (int i = 0; i < PARTS && threadIdx.x < PLACES; ++i) own += (uint64_t)parts[i][threadIdx.x] << i * PART_BITS;
            const uint64_t before = block_before(own, &block);
            /* The first place that brings the sum to what is left, or the last that has any. */
            const bool here = threadIdx.x <= most && (before + own >= left || threadIdx.x == most);
            const uint32_t place = block_min(here ? threadIdx.x : 0xffffffffu, &block);
            left -= block_add(threadIdx.x < place ? own : 0, &block);
            found |= place << shift;
        }
        return float_of(found);
    }

    __device__ __noinline__ float cap(float high) {
        SHARED_THIS;
        uint32_t largest = order_of(MINUS_INF);
        __syncthreads();
        groups_from(MINUS_INF, [&](int g, float m, const float x[LANE_TOKENS]) {
            const float capped = m <= high ? m : group_most(x, high);
            largest = max(largest, order_of(capped));
            __syncwarp(); /* all lanes have read the maximum */
            if (m <= high || threadIdx.x % WARP) return;
            if (g < PEAKS_MAX) this->peak_near[g] = capped;
            __stcg((float4 *)this->to.peak + g, make_float4(capped, MINUS_INF, MINUS_INF, MINUS_INF)); /* for a report, too */
        });
        if (threadIdx.x == 0) {
            this->state = MASS_OTHER;
            this->keys_here = false;
        }
        return float_of_order(block_max(largest, &block));
    }
};

#endif
