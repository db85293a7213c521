#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <mutex>

#include "tern/core/cuda/current_device.h"
#include "tern/core/device/backend.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/check.h"

namespace tern::cuda {
namespace {

thread_local std::array<void*, kernels::kMaxDevices> chosen_streams = {};  // null: the device's default

void make_current(int index) { TERN_CUDA_CHECK(set_device(index)); }

/// A device's default stream in Tern: one for the process, so that work queued by different threads keeps its order. It
/// does not wait for the legacy default stream.
void* default_stream(int index) {
  static std::array<std::atomic<void*>, kernels::kMaxDevices> streams = {};
  static std::mutex mutex;
  std::atomic<void*>& stream = streams[static_cast<size_t>(index)];
  if (void* made = stream.load(std::memory_order_acquire)) return made;
  std::lock_guard<std::mutex> lock(mutex);
  if (void* made = stream.load(std::memory_order_acquire)) return made;
  void* made = create_stream(index);
  stream.store(made, std::memory_order_release);
  return made;
}

}  // namespace

void* current_stream(int index) {
  TERN_CHECK(index < kernels::kMaxDevices, "device cuda:", index, ": Tern counts at most ", kernels::kMaxDevices,
             " devices");
  make_current(index);
  void* chosen = chosen_streams[static_cast<size_t>(index)];
  return chosen ? chosen : default_stream(index);
}

void set_current_stream(int index, void* stream) { chosen_streams[static_cast<size_t>(index)] = stream; }

void* create_stream(int index) {
  make_current(index);
  cudaStream_t stream = nullptr;
  TERN_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void destroy_stream(int index, void* stream) noexcept {
  set_device(index);
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

void synchronize_stream(int index, void* stream) {
  make_current(index);
  TERN_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

void synchronize_device(int index) {
  make_current(index);
  TERN_CUDA_CHECK(cudaDeviceSynchronize());
}

void* create_event(int index, bool timing) {
  make_current(index);
  cudaEvent_t event = nullptr;
  TERN_CUDA_CHECK(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
  return event;
}

void destroy_event(void* event) noexcept {
  adopt_device();
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void record_event(void* event, void* stream) {
  adopt_device();
  TERN_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}

bool event_done(void* event) {
  adopt_device();
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (state == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  TERN_CUDA_CHECK(state);
  return true;
}

void synchronize_event(void* event) {
  adopt_device();
  TERN_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}

void wait_event(void* stream, void* event) {
  adopt_device();
  TERN_CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0));
}

void order_streams(int first_index, void* first, int later_index, void* later) {
  void* event = create_event(first_index, false);
  record_event(event, first);
  make_current(later_index);
  wait_event(later, event);
  destroy_event(event);  // the runtime keeps it until the stream has passed it
}

double seconds_between(void* start, void* end) {
  adopt_device();
  float milliseconds = 0;
  TERN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start), static_cast<cudaEvent_t>(end)));
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace tern::cuda
