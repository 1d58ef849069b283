/* gpu.h - what every program here starts with: a GPU or a reason to skip, CUDA errors, a watchdog, host threads.
 * Include it first. */
#ifndef RAFFLE_TESTS_GPU_H
#define RAFFLE_TESTS_GPU_H

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "../common/test.h"

#include "raffle/raffle.h"

static const char *gpu_program;
static char gpu_missing[160]; /* why there is no GPU; empty if there is one */

static inline int gpu_quick(void) { return getenv("RAFFLE_TEST_QUICK") != NULL; } /* for sanitizers and the emulation */

/* Whether this is tests/emulate, which has time for a few rows of a large vocabulary. */
static inline int gpu_emulated(void) {
    struct cudaDeviceProp properties;
    return cudaGetDeviceProperties(&properties, 0) == cudaSuccess && !strncmp(properties.name, "emulation", 9);
}
static inline int gpu_small_only(void) { return gpu_quick() && !gpu_emulated(); }

/* ---- what must not fail ---- */

/* Ends the program, counted: after a CUDA error nothing else can be trusted. */
static inline void gpu_end(void) {
    ++test_state.failed;
    fflush(stdout);
    exit(test_report(gpu_program));
}

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t cuda_code = (call);                                                                                \
        if (cuda_code != cudaSuccess) {                                                                                \
            printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, test_state.name, #call, cudaGetErrorString(cuda_code));  \
            gpu_end();                                                                                                 \
        }                                                                                                              \
    } while (0)

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        raffle_error must_error = raffle_error_init();                                                                 \
        if ((call) != RAFFLE_OK) {                                                                                     \
            printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, test_state.name, #call, must_error.text);                \
            gpu_end();                                                                                                 \
        }                                                                                                              \
    } while (0)

/* ---- start ---- */

static inline void gpu_hangs(int signal_number) {
    static const char text[] = "the watchdog ends this program: a kernel hangs, or the machine is far too slow\n";
    (void)signal_number;
    if (write(1, text, sizeof text - 1)) _exit(1);
    _exit(1);
}

/* Call first in main. The program dies if it runs longer than `seconds`. */
static inline void gpu_start(const char *program, unsigned seconds) {
    gpu_program = program;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!raffle_cuda_available(gpu_missing, sizeof gpu_missing)) return;
    gpu_missing[0] = 0;
    if (gpu_quick()) seconds *= 4; /* sanitizers are slow */
    signal(SIGALRM, gpu_hangs);
    alarm(seconds);
}

#define NEED_GPU()                                                                                                     \
    do {                                                                                                               \
        if (gpu_missing[0]) SKIP(gpu_missing);                                                                         \
    } while (0)

/* ---- host threads ---- */

enum { CREW_MAX = 16 };
typedef void (*crew_work)(void *given, int member, int members);
typedef struct crew_member { crew_work work; void *given; int member, members; } crew_member;

static inline void *crew_thread(void *given) {
    crew_member *m = (crew_member *)given;
    m->work(m->given, m->member, m->members);
    return NULL;
}

static inline int crew_size(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > CREW_MAX ? CREW_MAX : (int)cores;
}

/* work(given, i, n) for every i below n, one thread each. Checks belong on the main thread, not in here. */
static inline void crew_run(crew_work work, void *given) {
    pthread_t thread[CREW_MAX];
    crew_member member[CREW_MAX];
    int members = crew_size();
    for (int i = 0; i < members; ++i) {
        crew_member made = {work, given, i, members};
        member[i] = made;
        if (pthread_create(&thread[i], NULL, crew_thread, &member[i])) abort();
    }
    for (int i = 0; i < members; ++i) pthread_join(thread[i], NULL);
}

/* ---- memory ---- */

static inline void *gpu_alloc(size_t bytes) {
    void *p = NULL;
    CUDA(cudaMalloc(&p, bytes));
    return p;
}

/* Sets bytes, and waits for it: a fill runs in the default stream, for which the streams of tests do not wait, and on a GPU that others use it
 * may come as late as the call behind it. */
static inline void gpu_fill(void *p, int byte, size_t bytes) {
    CUDA(cudaMemset(p, byte, bytes));
    CUDA(cudaDeviceSynchronize());
}

/* Ends what was captured on a stream. Returns how many launches it is; *exec, if not NULL, replays them. */
static inline size_t gpu_capture_end(cudaStream_t stream, cudaGraphExec_t *exec) {
    cudaGraph_t graph;
    size_t launches = 0;
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphGetNodes(graph, NULL, &launches));
    if (exec) CUDA(cudaGraphInstantiate(exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return launches;
}

static inline void *host_alloc(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) abort();
    return p;
}

#endif
