/* runtime.cpp - CUDA's runtime over the host's memory. Streams do at once what they are given, or record it while they are
 * captured. Device memory starts as rubbish. It has guards around it, which are looked at after every launch, and less than 256 bytes
 * behind it is memory that cannot even be read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <map>
#include <mutex>
#include <vector>

#include "block.h"
#include "launch.h"

struct CUgraph_st { std::vector<std::function<void()>> work; };
struct CUgraphExec_st { std::vector<std::function<void()>> work; };
struct CUstream_st { CUgraph_st *capture; };
struct CUevent_st { double seconds; };

namespace emulate {
namespace {

enum : size_t { GUARD = 256, PAGE = 4096, MEMORY_ALL = (size_t)4 << 30, DYNAMIC_USUAL = 48 << 10 };
enum { RUBBISH = 0xa7, GUARD_BYTE = 0xe5 };

std::recursive_mutex lock;          /* held while a grid runs, too */
std::map<char *, size_t> memory;    /* device memory and its bytes */
size_t memory_used;
std::map<const void *, size_t> dynamic_allowed; /* bytes of shared memory, of kernels that may have more than is usual */
int captures;                       /* streams that are being captured */
cudaError_t last_error;            /* of all host threads */

typedef std::lock_guard<std::recursive_mutex> locked;

cudaError_t told(cudaError_t code) {
    if (code != cudaSuccess) last_error = code;
    return code;
}

int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int processors() {
    static const int count = setting("RAFFLE_EMULATE_PROCESSORS", 6);
    return count;
}

/* Compute capability 9.0, or 8.0, which has no clusters. */
bool has_clusters() {
    static const bool has = setting("RAFFLE_EMULATE_CLUSTERS", 1) != 0;
    return has;
}

/* Whether [p, p + bytes) is inside one allocation. */
bool on_device(const void *p, size_t bytes) {
    auto found = memory.upper_bound((char *)p);
    if (found == memory.begin()) return false;
    --found;
    return (char *)p + bytes <= found->first + found->second;
}

/* Device memory is aligned to GUARD, and ends where pages do but for what that takes. */
size_t behind(size_t bytes) { return (GUARD - bytes % GUARD) % GUARD; }
size_t pages(size_t bytes) { return (GUARD + bytes + behind(bytes) + PAGE - 1) / PAGE * PAGE; }

void guards_check(char *p, size_t bytes) {
    for (size_t i = 0; i < behind(bytes); ++i) {
        if ((unsigned char)p[bytes + i] != GUARD_BYTE) {
            fflush(stdout);
            fprintf(stderr, "emulation: byte %zu behind device memory of %zu bytes was written\n", i, bytes);
            abort();
        }
    }
    for (size_t i = 0; i < GUARD; ++i) {
        if ((unsigned char)p[-1 - (ptrdiff_t)i] != GUARD_BYTE) {
            fflush(stdout);
            fprintf(stderr, "emulation: byte %zu before device memory of %zu bytes was written\n", i + 1, bytes);
            abort();
        }
    }
}

cudaError_t submit(cudaStream_t stream, std::function<void()> work) {
    if (stream && stream->capture) stream->capture->work.push_back(std::move(work));
    else work();
    return cudaSuccess;
}

/* What is not allowed while a stream is captured: it allocates, waits, or goes to the default stream. */
#define NOT_CAPTURED()                                                                                                 \
    do {                                                                                                               \
        if (captures) return told(cudaErrorStreamCaptureUnsupported);                                                  \
    } while (0)

double clock_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool copy_fits(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    const bool to_device = on_device(to, bytes), from_device = on_device(from, bytes);
    if (!bytes || kind == cudaMemcpyDefault) return true;
    return to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
           from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice);
}

} // namespace

std::atomic<bool> previous_waited;

cudaError_t launch(const cudaLaunchConfig_t &config, const void *kernel, std::function<void()> thread) {
    locked hold(lock);
    const dim3 grid = config.gridDim, block = config.blockDim;
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!threads || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 ||
        grid.z > 65535)
        return told(cudaErrorInvalidConfiguration);
    unsigned cluster = 1;
    bool early = false;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const auto &of = config.attrs[i].val.clusterDim;
        early |= config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization;
        if (config.attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
        if (!has_clusters() || of.y != 1 || of.z != 1) return told(cudaErrorNotSupported);
        if (!of.x || of.x > CLUSTER_MAX || grid.x % of.x) return told(cudaErrorInvalidConfiguration);
        cluster = of.x;
    }
    const size_t dynamic = config.dynamicSmemBytes;
    const auto allows = dynamic_allowed.find(kernel);
    if (dynamic > (allows == dynamic_allowed.end() ? DYNAMIC_USUAL : allows->second)) return told(cudaErrorInvalidValue);
    return submit(config.stream, [=] {
        locked hold(lock);
        static const bool begun = (seed = (uint64_t)setting("RAFFLE_EMULATE_SEED", 0), true);
        (void)begun;
        previous_waited = false;
        grid_run(grid, block, cluster, kernel, dynamic, thread);
        if (early && !previous_waited) fprintf(stderr, "emulate: a kernel that is launched early does not wait for the one before\n"), abort();
        for (auto &m : memory) guards_check(m.first, m.second);
    });
}

cudaError_t function_allow(const void *kernel, cudaFuncAttribute what, int value) {
    locked hold(lock);
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > DYNAMIC_MAX) return told(cudaErrorInvalidValue);
    dynamic_allowed[kernel] = (size_t)value;
    return cudaSuccess;
}
int clusters_held() { return processors(); }
cudaError_t function_attributes(cudaFuncAttributes *attributes, const void *) {
    *attributes = cudaFuncAttributes();
    attributes->maxThreadsPerBlock = 1024;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    return cudaSuccess;
}

} // namespace emulate

using namespace emulate;

extern "C" {

/* ---- errors, device ---------------------------------------------------------------------------------------- */

const char *cudaGetErrorName(cudaError_t code) {
    switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    }
    return "an unknown error";
}
const char *cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
    const cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return told(device ? cudaErrorInvalidDevice : cudaSuccess); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    if (device) return told(cudaErrorInvalidDevice);
    *p = cudaDeviceProp();
    snprintf(p->name, sizeof p->name, "emulation on the CPU");
    p->totalGlobalMem = MEMORY_ALL;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = DYNAMIC_MAX;
    p->sharedMemPerMultiprocessor = DYNAMIC_MAX + 1024;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->major = has_clusters() ? 9 : 8;
    p->multiProcessorCount = processors();
    p->l2CacheSize = 40 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    const cudaError_t code = cudaGetDeviceProperties(&p, device);
    if (code != cudaSuccess) return code;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: return *value = p.maxThreadsPerBlock, cudaSuccess;
    case cudaDevAttrWarpSize: return *value = p.warpSize, cudaSuccess;
    case cudaDevAttrMultiProcessorCount: return *value = p.multiProcessorCount, cudaSuccess;
    case cudaDevAttrL2CacheSize: return *value = p.l2CacheSize, cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: return *value = p.major, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: return *value = p.minor, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return *value = (int)p.sharedMemPerBlockOptin, cudaSuccess;
    case cudaDevAttrClusterLaunch: return *value = has_clusters(), cudaSuccess;
    }
    return told(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceSynchronize(void) {
    NOT_CAPTURED();
    return cudaSuccess;
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **to, size_t bytes) {
    locked hold(lock);
    NOT_CAPTURED();
    *to = nullptr;
    if (!bytes) return cudaSuccess;
    if (bytes > MEMORY_ALL - memory_used) return told(cudaErrorMemoryAllocation);
    const size_t all = pages(bytes);
    char *raw = (char *)mmap(nullptr, all + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return told(cudaErrorMemoryAllocation);
    if (mprotect(raw + all, PAGE, PROT_NONE)) abort();
    char *const start = raw + all - behind(bytes) - bytes;
    memset(start - GUARD, GUARD_BYTE, GUARD);
    memset(start, RUBBISH, bytes);
    memset(start + bytes, GUARD_BYTE, behind(bytes));
    memory[start] = bytes;
    memory_used += bytes;
    *to = start;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    locked hold(lock);
    NOT_CAPTURED();
    if (!p) return cudaSuccess;
    auto found = memory.find((char *)p);
    if (found == memory.end()) return told(cudaErrorInvalidValue);
    guards_check(found->first, found->second);
    const size_t bytes = found->second, all = pages(bytes);
    memory_used -= bytes;
    memory.erase(found);
    munmap((char *)p + bytes + behind(bytes) - all, all + PAGE);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **to, size_t bytes) {
    *to = aligned_alloc(GUARD, (bytes + 2 * GUARD - 1) / GUARD * GUARD);
    return told(*to ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *p) { return free(p), cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *memory_free, size_t *memory_all) {
    locked hold(lock);
    *memory_all = MEMORY_ALL;
    *memory_free = MEMORY_ALL - memory_used;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    locked hold(lock);
    if (!copy_fits(to, from, bytes, kind)) return told(cudaErrorInvalidValue);
    return submit(stream, [=] { memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    NOT_CAPTURED();
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    locked hold(lock);
    if (bytes && !on_device(to, bytes)) return told(cudaErrorInvalidValue);
    return submit(stream, [=] { memset(to, value, bytes); });
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    NOT_CAPTURED();
    return cudaMemsetAsync(to, value, bytes, nullptr);
}

/* ---- streams and graphs ---------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return *stream = new CUstream_st(), cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    NOT_CAPTURED();
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    locked hold(lock);
    if (!stream || stream->capture) return told(cudaErrorStreamCaptureUnsupported);
    stream->capture = new CUgraph_st();
    ++captures;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    locked hold(lock);
    if (!stream || !stream->capture) return told(cudaErrorInvalidValue);
    *graph = stream->capture;
    stream->capture = nullptr;
    --captures;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    const cudaStreamCaptureMode before = current;
    current = *mode;
    return *mode = before, cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    *status = stream && stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    if (nodes) return told(cudaErrorNotSupported);
    return *count = graph->work.size(), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    return *exec = new CUgraphExec_st{graph->work}, cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    locked hold(lock);
    for (auto &work : exec->work) submit(stream, work);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

/* ---- events ------------------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreate(cudaEvent_t *event) { return *event = new CUevent_st(), cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) { return event->seconds = clock_now(), cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    return *milliseconds = (float)(1e3 * (end->seconds - begin->seconds)), cudaSuccess;
}

} // extern "C"
