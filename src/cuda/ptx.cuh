/* ptx.cuh - the instructions that CUDA C has no word for. Where tests/emulate compiles the kernels for a CPU, what they mean
 * in plain C. */
#ifndef RAFFLE_CUDA_PTX_CUH
#define RAFFLE_CUDA_PTX_CUH

#include <stdint.h>

/* Maximum that is NaN if either is, and then the positive one, whose key is the largest. */
__device__ __forceinline__ float max_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800 && !defined(RAFFLE_EMULATE)
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
#else
    return a != a || b != b ? __uint_as_float(0x7fffffffu) : fmaxf(a, b);
#endif
}

/* About 2^x, by the unit that has tables for it: within 2^-22 of it (PTX's documentation; tests/cuda/estimate.c tries all), 0 below
 * 2^-126. For estimates only. */
__device__ __forceinline__ float power_about(float x) {
#if defined(RAFFLE_EMULATE)
    return x < -126.0f ? 0.0f : exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* Logits pass through once: they must not push the block's own data out of the first cache. */
__device__ __forceinline__ uint4 load_once(const uint4 *p) {
#if defined(RAFFLE_EMULATE)
    return *p;
#else
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
#endif
}

/* The same if `yes`; else *v stays. Into the registers that *v has: a compiler that chose others would copy them in every turn.
 * Volatile, so that it is asked for where it stands: compilers like to move it behind a barrier. */
__device__ __forceinline__ void load_once_if(bool yes, const uint4 *p, uint4 *v) {
#if defined(RAFFLE_EMULATE)
    if (yes) *v = *p;
#else
    asm volatile("{\n .reg .pred yes;\n setp.ne.u32 yes, %5, 0;\n"
                 " @yes ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(v->x), "+r"(v->y), "+r"(v->z), "+r"(v->w) : "l"(p), "r"((uint32_t)yes));
#endif
}

/* threadIdx.x, not out of a register that has it. */
__device__ __forceinline__ uint32_t thread_again() {
#if defined(RAFFLE_EMULATE)
    return threadIdx.x;
#else
    uint32_t thread;
    asm volatile("mov.u32 %0, %tid.x;" : "=r"(thread));
    return thread;
#endif
}

/* Adds to shared memory if `yes`, without a branch around it. */
__device__ __forceinline__ void add_if(bool yes, uint32_t *sum, uint32_t more) {
#if defined(RAFFLE_EMULATE)
    if (yes) atomicAdd(sum, more);
#else
    asm volatile("{\n .reg .pred yes;\n setp.ne.u32 yes, %2, 0;\n @yes red.shared.add.u32 [%0], %1;\n}"
                 : : "r"((uint32_t)__cvta_generic_to_shared(sum)), "r"(more), "r"((uint32_t)yes) : "memory");
#endif
}

/* A half of a word all ones where its bit is set: bit 7 for the lower half, bit 23 for the upper. */
__device__ __forceinline__ uint32_t halves_of(uint32_t bits) {
#if defined(RAFFLE_EMULATE)
    return (bits & 0x80u ? 0xffffu : 0) | (bits & 0x800000u ? 0xffff0000u : 0);
#else
    uint32_t halves;
    asm("prmt.b32 %0, %1, 0, 0xaa88;" : "=r"(halves) : "r"(bits)); /* copies the signs of bytes 0 and 2 */
    return halves;
#endif
}

__device__ __forceinline__ void prefetch(const char *p) {
#if defined(RAFFLE_EMULATE)
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
#endif
}

/* Adds to a counter behind all that the block has written. Release is enough here: whoever comes last reads what others
 * wrote from the second cache (__ldcg), where all processors meet, and no GPU loads before the branch that leads there.
 * PTX's memory model would ask for an acquire, which empties the first cache, and with it every stack on the processor. */
__device__ __forceinline__ uint32_t count_arrived(uint32_t *counter, uint32_t more) {
#if defined(RAFFLE_EMULATE)
    return atomicAdd(counter, more);
#else
    uint32_t before;
    asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(more) : "memory");
    return before;
#endif
}

__device__ __forceinline__ uint64_t count_arrived(uint64_t *counter, uint64_t more) {
#if defined(RAFFLE_EMULATE)
    return atomicAdd(counter, more);
#else
    uint64_t before;
    asm volatile("atom.release.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(counter), "l"(more) : "memory");
    return before;
#endif
}

/* blockIdx, and gridDim.y as w. Read anew at each call: a compiler that knew them would keep them in registers. */
__device__ __forceinline__ uint4 block_place() {
    uint4 at;
#if defined(RAFFLE_EMULATE)
    at = make_uint4(blockIdx.x, blockIdx.y, blockIdx.z, gridDim.y);
#else
    asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%ctaid.y; mov.u32 %2, %%ctaid.z; mov.u32 %3, %%nctaid.y;"
                 : "=r"(at.x), "=r"(at.y), "=r"(at.z), "=r"(at.w));
#endif
    return at;
}

/* Programmatic dependent launch. The blocks of a kernel that is launched so may start when all blocks of the one before have
 * called next_start or ended; what those have written is there after previous_wait. */
__device__ __forceinline__ void previous_wait() {
#if defined(RAFFLE_EMULATE)
    if (!blockIdx.x) emulate::previous_waited = true; /* the first block always does: who comes next relies on one that did */
#elif __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}
__device__ __forceinline__ void next_start() {
#if __CUDA_ARCH__ >= 900 && !defined(RAFFLE_EMULATE)
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

/* Whether the thread is in the last warp of its block. Read anew at each call, too. */
__device__ __forceinline__ bool last_warp() {
#if defined(RAFFLE_EMULATE)
    return threadIdx.x / 32 == blockDim.x / 32 - 1;
#else
    uint32_t thread, threads;
    asm volatile("mov.u32 %0, %%tid.x; mov.u32 %1, %%ntid.x;" : "=r"(thread), "=r"(threads));
    return thread / 32 == threads / 32 - 1;
#endif
}

#if __CUDA_ARCH__ >= 900 && !defined(RAFFLE_EMULATE) /* tests/emulate has its own of these */

/* ---- clusters, and barriers in shared memory ---------------------------------------------------------------- */

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ int cluster_rank() { /* of this block in its cluster */
    int x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
    return x;
}
__device__ __forceinline__ int cluster_blocks() {
    int x;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(x));
    return x;
}
__device__ __forceinline__ int cluster_id() {
    int x;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(x));
    return x;
}

/* Every thread of a cluster arrives, and then waits for all. What was written before is seen after; not by those who arrive `bare`, which
 * orders barriers_made and nothing else. */
__device__ __forceinline__ void cluster_arrive_bare() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory"); }
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory"); }

/* Where block `rank` of the cluster, which has begun and not ended, has what this one has at `own`. */
template <class type> __device__ __forceinline__ type *cluster_place(type *own, int rank) {
    uint64_t there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((uint64_t)own), "r"(rank));
    return (type *)there;
}

/* A barrier that completes when one thread has said how many bytes it expects, and they have come. */
__device__ __forceinline__ void barrier_make(uint64_t *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(shared_address(barrier)), "r"(bytes) : "memory");
}
/* Waits for the first time it completes: for what this block has asked for, or for what other blocks store. */
#define BARRIER_WAIT(name, scope)                                                                                      \
    __device__ __forceinline__ void name(uint64_t *barrier) {                                                          \
        uint32_t done = 0;                                                                                             \
        while (!done)                                                                                                  \
            asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire." scope                                 \
                         ".shared::cta.b64 p, [%1], 0;\n selp.u32 %0, 1, 0, p;\n}"                                     \
                         : "=r"(done) : "r"(shared_address(barrier)) : "memory");                                      \
    }
BARRIER_WAIT(barrier_wait, "cta")
BARRIER_WAIT(barrier_wait_cluster, "cluster")
#undef BARRIER_WAIT

/* Copies global memory to shared memory behind the thread's back. All is aligned to 16 bytes. */
__device__ __forceinline__ void copy_ask(void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
    barrier_expect(barrier, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 : : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

/* Stores a value where block `to` of the cluster has `place`, and counts its bytes at that block's barrier. */
__device__ __forceinline__ void store_remote(uint64_t *place, uint64_t *barrier, int to, uint64_t value) {
    uint32_t there, counted;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(place)), "r"(to));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(shared_address(barrier)), "r"(to));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];"
                 : : "r"(there), "l"(value), "r"(counted) : "memory");
}

#elif !defined(RAFFLE_EMULATE) /* for kernels of teamed<type>, which nobody launches there */
__device__ __forceinline__ int cluster_rank() { return 0; }
__device__ __forceinline__ int cluster_blocks() { return 1; }
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() {}
template <class type> __device__ __forceinline__ type *cluster_place(type *own, int) { return own; }
#endif

#endif
