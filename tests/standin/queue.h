#pragma once
// For stand-ins of NVIDIA's other libraries (cuBLASLt, NCCL, ...): their work goes through the same queues as kernels
// and copies, so that it is late, ordered, captured and counted like theirs.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>

namespace tern::standin {

/// Thrown by queued work: the device then has this sticky error, with this text.
struct DeviceError : std::runtime_error {
  DeviceError(cudaError_t error, const std::string& text) : std::runtime_error(text), code(error) {}
  cudaError_t code;
};

/// Queues `work` on the stream, or records it into the graph that the stream captures (work may then run many times,
/// hence must not change what it holds). `name` is what messages and counters().kernels_by_name call it. Work that
/// throws gives the device a sticky error. Returns the error that keeps the work from being queued: the device's sticky
/// one, or a stream that is not valid or may not be used during a capture.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work, bool counts_as_kernel = true);

/// As enqueue(); the work begins when `ready` says so, which is asked again and again, under the stand-in's lock.
/// For work that meets other devices or processes.
cudaError_t enqueue_when(cudaStream_t stream, const char* name, std::function<bool()> ready, std::function<void()> work,
                         bool counts_as_kernel = true);

/// For the first line of any function of any library: 0, or the number that fail_call(function, ...) of standin.h has
/// set for this call. Counts the call.
int injected_fault(const char* function);

/// Throws DeviceError(cudaErrorIllegalAddress) unless the range lies within one live allocation of device memory or
/// pinned host memory. `what` names it in the message, e.g. "cublasLtMatmul: A". For queued work.
void require_device_memory(const void* pointer, size_t bytes, const char* what);

/// The calling thread's current device.
int current_device();
/// Whether the stream is being captured.
bool is_capturing(cudaStream_t stream);

}  // namespace tern::standin
