/* launch.h - launches. A kernel is called with its own types, so host code passes it as it is, not as a void pointer. */
#ifndef RAFFLE_EMULATE_LAUNCH_H
#define RAFFLE_EMULATE_LAUNCH_H

#include <atomic>

#include "device.h"
#include "include/cuda_runtime_api.h"

enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension = 4, cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttributeValue {
    struct { unsigned x, y, z; } clusterDim;
    int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

namespace emulate {

/* Runs `thread` once for each thread of the grid, or adds it to the graph that the stream is captured into. */
cudaError_t launch(const cudaLaunchConfig_t &config, const void *kernel, std::function<void()> thread);
cudaError_t function_attributes(cudaFuncAttributes *attributes, const void *kernel);
extern std::atomic<bool> previous_waited; /* by a thread of the first block of the grid that runs */
cudaError_t function_allow(const void *kernel, cudaFuncAttribute what, int value);
int clusters_held();

template <class... types> cudaError_t launch_with(const cudaLaunchConfig_t &config, void (*kernel)(types...), types... given) {
    return launch(config, (const void *)kernel, [=] { kernel(given...); });
}
template <class... types, size_t... place>
cudaError_t launch_typed(const cudaLaunchConfig_t &config, void (*kernel)(types...), void **given, std::index_sequence<place...>) {
    return launch_with<types...>(config, kernel, *(types *)given[place]...);
}

} // namespace emulate

template <class... types>
static inline cudaError_t cudaLaunchKernel(void (*kernel)(types...), dim3 grid, dim3 block, void **given, size_t shared = 0,
                                           cudaStream_t stream = nullptr) {
    const cudaLaunchConfig_t config = {grid, block, shared, stream, nullptr, 0};
    return emulate::launch_typed(config, kernel, given, std::make_index_sequence<sizeof...(types)>());
}
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t = 0, cudaStream_t = nullptr) = delete; /* untyped */

template <class... types>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(types...),
                                             typename emulate::same<types>::as... given) {
    return emulate::launch_with<types...>(*config, kernel, given...);
}

template <class... types>
static inline cudaError_t cudaOccupancyMaxActiveClusters(int *count, void (*)(types...), const cudaLaunchConfig_t *) {
    *count = emulate::clusters_held();
    return cudaSuccess;
}

template <class... types> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*kernel)(types...)) {
    return emulate::function_attributes(attributes, (const void *)kernel);
}
template <class... types>
static inline cudaError_t cudaFuncSetAttribute(void (*kernel)(types...), cudaFuncAttribute what, int value) {
    return emulate::function_allow((const void *)kernel, what, value);
}

#endif
