#pragma once
// Interface for stand-ins of NVIDIA's other libraries (cuBLASLt, NCCL, ...): their work uses the same queues as kernels
// and copies, so that it is delayed, ordered, captured and counted in the same way.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>

namespace tern::standin {

/// Thrown by queued work: gives the device this sticky error with this text.
struct DeviceError : std::runtime_error {
  DeviceError(cudaError_t error, const std::string& text) : std::runtime_error(text), code(error) {}
  cudaError_t code;
};

/// Queues `work` on the stream, or records it into the graph that the stream captures (work may then run several times,
/// so it must not change its captured values). `name` is its name in messages and in counters().kernels_by_name. Work
/// that throws gives the device a sticky error. Returns the error that prevents queuing: the device's sticky error, or
/// that of a stream that is invalid or may not be used during a capture.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work, bool counts_as_kernel = true);

/// Like enqueue(), but the work begins when `ready` returns true; it is called repeatedly under the stand-in's lock.
/// For work that synchronises with other devices or processes.
cudaError_t enqueue_when(cudaStream_t stream, const char* name, std::function<bool()> ready, std::function<void()> work,
                         bool counts_as_kernel = true);

/// Must be called first in every function of every library. Returns 0 or the error that fail_call(function, ...) of
/// standin.h has set for this call. Counts the call.
int injected_fault(const char* function);

/// Throws DeviceError(cudaErrorIllegalAddress) unless the range is inside one existing allocation of device memory or
/// pinned host memory. `what` is its name in the message, e.g. "cublasLtMatmul: A". For queued work.
void require_device_memory(const void* pointer, size_t bytes, const char* what);

/// The calling thread's current device.
int current_device();

}  // namespace tern::standin
