/* device.cu - device.h with CUDA. */
#include "device.h"

#include <cuda_runtime.h>
#include <string.h>

namespace {

enum { BLOCK = 256, WORDS = 960, FILL_WORDS = 800 }; /* a kernel's arguments may take 4096 bytes */
const size_t KERNELS_BYTES = 1u << 18; /* more is copied, which waits for the stream; in a graph nothing may */

struct fill_arguments {
    device_fill fill[DEVICE_FILLS_MAX];
    int32_t first[DEVICE_FILLS_MAX]; /* of its words; -1: it has a value */
    uint32_t word[FILL_WORDS];
};

struct write_arguments {
    uint32_t *to;
    uint32_t count;
    uint32_t word[WORDS];
};

/* Block y does fill y. */
__global__ void fill_kernel(const fill_arguments a) {
    const device_fill f = a.fill[blockIdx.y];
    const int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x, step = (int64_t)gridDim.x * BLOCK;
    if (a.first[blockIdx.y] >= 0) {
        const uint32_t *word = a.word + a.first[blockIdx.y];
        for (int64_t i = at; i < f.count * (f.bytes / 4); i += step) static_cast<uint32_t *>(f.to)[i] = word[i];
        return;
    }
    for (int64_t i = at; i < f.count; i += step) {
        const uint64_t value = f.value + (uint64_t)i * f.step;
        if (f.bytes == 4) static_cast<uint32_t *>(f.to)[i] = (uint32_t)value;
        else static_cast<uint64_t *>(f.to)[i] = value;
    }
}

__global__ void write_kernel(const write_arguments a) {
    for (uint32_t i = threadIdx.x; i < a.count; i += BLOCK) a.to[i] = a.word[i];
}

__global__ void advance_kernel(uint64_t *position, int64_t slots, const int32_t *slot, const int32_t *more, int64_t rows) {
    for (int64_t row = (int64_t)blockIdx.x * BLOCK + threadIdx.x; row < rows; row += (int64_t)gridDim.x * BLOCK) {
        const int64_t at = slot ? slot[row] : row;
        /* Atomic: two rows may share a slot, and then it advances by two. */
        if (at >= 0 && at < slots)
            atomicAdd(reinterpret_cast<unsigned long long *>(position + at), 1ull + (more ? (unsigned long long)more[row] : 0ull));
    }
}

__global__ void add_kernel(uint64_t *to, uint64_t value) { *to += value; }

/* Makes a device current for as long as it lives, then puts the caller's back. */
struct device_scope {
    int before = -1;
    cudaError_t code;
    explicit device_scope(int device) {
        code = cudaGetDevice(&before);
        if (code == cudaSuccess && before != device) code = cudaSetDevice(device);
        else before = -1;
    }
    ~device_scope() {
        if (before >= 0) cudaSetDevice(before);
    }
};

const char *sentence(cudaError_t code) { return code == cudaSuccess ? nullptr : cudaGetErrorString(code); }

bool is_capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

unsigned blocks_for(int64_t count) {
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
    return (unsigned)(blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks);
}

} /* namespace */

const char *device_fill_arrays(int device, const device_fill *fills, int count, void *stream) {
    device_scope scope(device);
    if (scope.code != cudaSuccess) return sentence(scope.code);
    fill_arguments a;
    memset(&a, 0, sizeof a);
    int64_t longest = 0;
    unsigned used = 0, words = 0;
    for (int i = 0; i < count; ++i) {
        const device_fill &f = fills[i];
        const size_t bytes = (size_t)f.count * (size_t)f.bytes;
        if (f.from && bytes > (FILL_WORDS - words) * sizeof *a.word) {
            const char *wrong = device_write(device, f.to, f.from, bytes, stream);
            if (wrong) return wrong;
            continue;
        }
        a.fill[used] = f;
        a.first[used++] = f.from ? (int32_t)words : -1;
        if (f.from) memcpy(a.word + words, f.from, bytes), words += (unsigned)(bytes / sizeof *a.word);
        if (f.count > longest) longest = f.count;
    }
    if (!longest) return nullptr;
    void *arguments[] = {&a};
    return sentence(cudaLaunchKernel(fill_kernel, dim3(blocks_for(longest), used), dim3(BLOCK), arguments, 0,
                                     static_cast<cudaStream_t>(stream)));
}

const char *device_write(int device, void *to, const void *from, size_t bytes, void *stream) {
    device_scope scope(device);
    if (scope.code != cudaSuccess) return sentence(scope.code);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (bytes > KERNELS_BYTES && !is_capturing(on)) return sentence(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, on));
    for (size_t done = 0; done < bytes;) {
        write_arguments a;
        const size_t part = bytes - done < sizeof a.word ? bytes - done : sizeof a.word;
        a.to = reinterpret_cast<uint32_t *>(static_cast<char *>(to) + done);
        a.count = (uint32_t)(part / 4);
        memcpy(a.word, static_cast<const char *>(from) + done, part);
        void *arguments[] = {&a};
        const cudaError_t code = cudaLaunchKernel(write_kernel, dim3(1), dim3(BLOCK), arguments, 0, on);
        if (code != cudaSuccess) return sentence(code);
        done += part;
    }
    return nullptr;
}

const char *device_advance(int device, uint64_t *position, int64_t slots, const int32_t *slot, const int32_t *more, int64_t rows,
                           void *stream) {
    device_scope scope(device);
    if (scope.code != cudaSuccess || !rows) return sentence(scope.code);
    void *arguments[] = {&position, &slots, &slot, &more, &rows};
    return sentence(cudaLaunchKernel(advance_kernel, dim3(blocks_for(rows)), dim3(BLOCK), arguments, 0,
                                     static_cast<cudaStream_t>(stream)));
}

const char *device_add(int device, uint64_t *to, uint64_t value, void *stream) {
    device_scope scope(device);
    if (scope.code != cudaSuccess) return sentence(scope.code);
    void *arguments[] = {&to, &value};
    return sentence(cudaLaunchKernel(add_kernel, dim3(1), dim3(1), arguments, 0, static_cast<cudaStream_t>(stream)));
}

const char *device_read(int device, void *to, const void *from, size_t bytes, void *stream) {
    device_scope scope(device);
    cudaError_t code = scope.code;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (code == cudaSuccess) code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on);
    if (code == cudaSuccess) code = cudaStreamSynchronize(on);
    return sentence(code);
}

int device_is_capturing(int device, void *stream) {
    device_scope scope(device);
    return scope.code == cudaSuccess && is_capturing(static_cast<cudaStream_t>(stream));
}

namespace {

/* Lets a thread allocate, and free, while another one captures: none of that goes into the other's graph. */
struct relaxed {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    relaxed() { cudaThreadExchangeStreamCaptureMode(&mode); }
    ~relaxed() { cudaThreadExchangeStreamCaptureMode(&mode); }
};

} /* namespace */

const char *device_record_begin(int device, void **stream) {
    device_scope scope(device);
    relaxed calls;
    cudaStream_t made = nullptr;
    cudaError_t code = scope.code;
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaStreamBeginCapture(made, cudaStreamCaptureModeRelaxed);
    if (code != cudaSuccess && made) cudaStreamDestroy(made);
    if (code != cudaSuccess) cudaGetLastError(); /* the sentence tells it; the caller's next call should not */
    *stream = made;
    return sentence(code);
}

const char *device_record_end(int device, void *stream, void **graph) {
    device_scope scope(device);
    relaxed calls;
    cudaGraph_t made = nullptr;
    cudaGraphExec_t ready = nullptr;
    cudaError_t code = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &made);
    if (code == cudaSuccess) code = cudaGraphInstantiateWithFlags(&ready, made, 0);
    if (made) cudaGraphDestroy(made);
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
    if (code != cudaSuccess) cudaGetLastError(); /* the sentence tells it; the caller's next call should not */
    *graph = code == cudaSuccess ? ready : nullptr;
    return sentence(code);
}

const char *device_replay(int device, void *graph, void *stream) {
    device_scope scope(device);
    if (scope.code != cudaSuccess) return sentence(scope.code);
    return sentence(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)));
}

void device_forget(int device, void *graph) {
    if (!graph) return;
    device_scope scope(device);
    relaxed calls;
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); /* one that runs goes when it is done */
    cudaGetLastError();
}
