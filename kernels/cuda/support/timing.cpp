#include "tern/kernels/cuda/support/timing.h"

#include <cmath>
#include <memory>

#include "tern/kernels/cuda/support/check.h"

namespace tern::kernels::cuda {
namespace {

struct DestroyEvent {
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
Event make_event() {
  cudaEvent_t made = nullptr;
  TERN_CUDA_CHECK(cudaEventCreateWithFlags(&made, cudaEventDefault));
  return Event(made);
}

}  // namespace

DeviceKind device_kind(int index) {
  DeviceKind kind;
  TERN_CUDA_CHECK(cudaDeviceGetAttribute(&kind.major, cudaDevAttrComputeCapabilityMajor, index));
  TERN_CUDA_CHECK(cudaDeviceGetAttribute(&kind.minor, cudaDevAttrComputeCapabilityMinor, index));
  TERN_CUDA_CHECK(cudaDeviceGetAttribute(&kind.multiprocessors, cudaDevAttrMultiProcessorCount, index));
  return kind;
}

bool is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TERN_CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle), &status));
  return status != cudaStreamCaptureStatusNone;
}

float time_of(Stream stream, const std::function<bool()>& run) {
  constexpr int kWarmUp = 2, kRuns = 10;
  const Event begin = make_event(), end = make_event();
  const auto queue = static_cast<cudaStream_t>(stream.handle);
  for (int i = -kWarmUp; i < kRuns; ++i) {
    if (i == 0) TERN_CUDA_CHECK(cudaEventRecord(begin.get(), queue));
    if (!run()) return INFINITY;
  }
  TERN_CUDA_CHECK(cudaEventRecord(end.get(), queue));
  TERN_CUDA_CHECK(cudaEventSynchronize(end.get()));
  float time = 0;
  TERN_CUDA_CHECK(cudaEventElapsedTime(&time, begin.get(), end.get()));
  return time;
}

}  // namespace tern::kernels::cuda
