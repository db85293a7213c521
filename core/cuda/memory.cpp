#include <cuda_runtime_api.h>

#include "tern/core/cuda/current_device.h"
#include "tern/core/memory/memory_source.h"
#include "tern/kernels/cuda/support/check.h"

namespace tern::cuda {
namespace {

// None of these may throw. The next checked call reports a lost device; after any other failure memory must not be
// reused too early.

/// Null when the work is already over.
void* record(void* stream) {
  adopt_device();
  const auto queue = static_cast<cudaStream_t>(stream);
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess) {
    if (cudaEventRecord(event, queue) == cudaSuccess) return event;
    cudaEventDestroy(event);
  }
  cudaGetLastError();
  if (cudaStreamSynchronize(queue) != cudaSuccess) cudaDeviceSynchronize();
  return nullptr;
}

bool done(void* event) {
  adopt_device();
  const bool is_done = cudaEventQuery(static_cast<cudaEvent_t>(event)) == cudaSuccess;
  if (!is_done) cudaGetLastError();  // otherwise the launch of the next kernel reports it
  return is_done;
}

void wait(void* event) {
  adopt_device();
  if (cudaEventSynchronize(static_cast<cudaEvent_t>(event)) != cudaSuccess) cudaDeviceSynchronize();
}
void drop(void* event) {
  adopt_device();
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

detail::MemorySource with_events(detail::MemorySource source) {
  if (!source.record) source.record = record;
  source.done = done;
  source.wait = wait;
  source.drop = drop;
  return source;
}

int64_t device_memory(int index, bool all) {
  const DeviceScope scope(index);
  size_t available = 0, total = 0;
  if (scope.error() != cudaSuccess || cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
  return static_cast<int64_t>(all ? total : available);
}

}  // namespace

detail::MemorySource memory_source(int index) {
  detail::MemorySource source;
  source.allocate = [index](int64_t bytes) -> void* {
    const DeviceScope scope(index);
    void* pointer = nullptr;
    if (scope.error() == cudaSuccess && cudaMalloc(&pointer, static_cast<size_t>(bytes)) == cudaSuccess) return pointer;
    cudaGetLastError();
    return nullptr;
  };
  source.release = [index](void* pointer, int64_t) {
    const DeviceScope scope(index);
    cudaFree(pointer);
  };
  source.available = [index] { return device_memory(index, false); };
  source.check = [index] {
    const DeviceScope scope(index);
    TERN_CUDA_CHECK(scope.error());
    TERN_CUDA_CHECK(cudaFree(nullptr));  // frees nothing, but returns a pending error of the device
  };
  source.total = [index] { return device_memory(index, true); };
  source.record = [index](void* stream) {
    const DeviceScope scope(index);  // an event belongs to the device that is current at its creation
    return record(stream);
  };
  source.segment_bytes = int64_t{2} << 20;
  source.alignment = 512;
  return with_events(std::move(source));
}

detail::MemorySource pinned_memory_source() {
  detail::MemorySource source;
  source.allocate = [](int64_t bytes) -> void* {
    adopt_device();
    void* pointer = nullptr;
    // Portable: pinned for every device.
    if (cudaHostAlloc(&pointer, static_cast<size_t>(bytes), cudaHostAllocPortable) == cudaSuccess) return pointer;
    cudaGetLastError();
    return nullptr;
  };
  source.release = [](void* pointer, int64_t) {
    adopt_device();
    cudaFreeHost(pointer);
  };
  source.available = detail::available_system_memory;
  source.segment_bytes = int64_t{2} << 20;
  source.alignment = 512;
  source.name = "pinned host memory";
  return with_events(std::move(source));
}

}  // namespace tern::cuda
