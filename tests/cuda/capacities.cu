/* capacities.cu - the limits that the kernels were built with, for capacity.c and flat.c. */
#include "vec_one.h"

#include "sums.cuh"

extern "C" {
extern const int capacity_list = LIST_MAX, capacity_ranked = LIST_RANKED, capacity_pieces = PIECES_MAX;
extern const int capacity_keys = KEYS_MAX, capacity_piece_lanes = PIECE_LANES;
cudaError_t units_count(unsigned *wrong, unsigned *seen, float temperature, float top, cudaStream_t stream);
}

/* Tokens of a group, which is block / 8 powers of two below a part's best: what sums.cuh takes to be a multiple of a unit must be one, a
 * small one, and nothing may be above the largest value. */
static __global__ void units_kernel(unsigned *wrong, unsigned *seen, float temperature, float top) {
    const scale by = scale_make(temperature);
    const int32_t exponent = ref_make_near(by, top).exponent;
    const float m = top - (float)blockIdx.x / 8.0f / by.c;
    const ref f = ref_make_near(by, m);
    const int left = TICKET_BITS - (exponent - f.exponent);
    if (left < 0) return;
    for (int i = threadIdx.x; i < 8192; i += BLOCK_THREADS) {
        const float x = m - (float)i * (float)i * 0x1p-22f / by.c; /* down to 16 powers of two below, densest at the top */
        const uint32_t down = value_most(exponent) - value_of(x, by.c);
        const uint64_t tickets = (uint64_t)v_round(v_weight(x, &f, 0)) << left;
        if (down >= SUM_BINS) {
            if ((int32_t)down < 0) atomicAdd(wrong, 1u);
            continue;
        }
        const uint32_t unit = value_unit(down);
        atomicAdd(seen, 1u);
        if (tickets & ((1ull << unit) - 1) || tickets >> unit >= 1u << 26) atomicAdd(wrong, 1u);
    }
}

cudaError_t units_count(unsigned *wrong, unsigned *seen, float temperature, float top, cudaStream_t stream) {
    void *arguments[] = {&wrong, &seen, &temperature, &top};
    return cudaLaunchKernel(units_kernel, dim3(88), dim3(BLOCK_THREADS), arguments, 0, stream);
}
