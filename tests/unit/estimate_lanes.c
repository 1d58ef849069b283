/* estimate_lanes.c - estimates by one instruction set. Compiled once for each, as src/cpu/rows.c is. */
#include "estimate_lanes.h"

#include "estimate.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

void JOIN(estimate_lanes_, V_ISA_NAME)(const estimator *e, const float *x, float *y) {
    for (int i = 0; i < LANES_TOKENS; i += V_CHAINS * V_LANES) {
        vf v[V_CHAINS];
        for (int n = 0; n < V_CHAINS; ++n) v[n] = v_load_f32(x + i + n * V_LANES);
        v_estimates(v, V_CHAINS, e);
        for (int n = 0; n < V_CHAINS; ++n) v_store(y + i + n * V_LANES, v[n]);
    }
}
