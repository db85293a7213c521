#pragma once
// Helpers of the tests of the stand-in CUDA runtime.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/runtime/queue.h"
#include "tern/tests/emulator/runtime/standin.h"

namespace tern::standin {

using kernels::cuda::launch;

/// Expects success of calls that the rest of a test depends on.
inline void ok(cudaError_t error) { ASSERT_EQ(cudaGetErrorName(error), std::string("cudaSuccess")); }

inline kernels::Stream on(cudaStream_t stream) { return {DeviceType::kCUDA, 0, stream}; }

template <class T = float>
T* device_array(size_t count) {
  void* pointer = nullptr;
  ok(cudaMalloc(&pointer, count * sizeof(T)));
  return static_cast<T*>(pointer);
}
template <class T = float>
T* pinned_array(size_t count) {
  void* pointer = nullptr;
  ok(cudaMallocHost(&pointer, count * sizeof(T)));
  return static_cast<T*>(pointer);
}

inline cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}
inline cudaEvent_t new_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, flags));
  return event;
}

/// Waits only for the stream. NaN where nothing was written.
inline std::vector<float> read(const float* device, size_t count, cudaStream_t stream) {
  std::vector<float> values(count);
  ok(cudaMemcpyAsync(values.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
  return values;
}
inline float read_one(const float* device, cudaStream_t stream) { return read(device, 1, stream)[0]; }

__global__ inline void set_kernel(float* y, float value) {
  if (threadIdx.x == 0) *y = value;
}
__global__ inline void add_kernel(float* y, const float* x, float value) {
  if (threadIdx.x == 0) *y = *x + value;
}

inline void set(cudaStream_t stream, float* y, float value) { launch(set_kernel, 1, 32, 0, on(stream), y, value); }
/// *y = *x + value.
inline void add(cudaStream_t stream, float* y, const float* x, float value) {
  launch(add_kernel, 1, 32, 0, on(stream), y, x, value);
}

/// Every test begins in the initial state of a process.
class StandIn : public testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }
};

/// Runs `body` in the initial state under every order; counts the runs that returned true.
inline int orders_where(const std::function<bool()>& body) {
  int count = 0;
  for (const Order& order : kOrders) {
    reset();
    set_order(order);
    count += body() ? 1 : 0;
  }
  reset();
  return count;
}
inline constexpr int kAllOrders = std::size(kOrders);

}  // namespace tern::standin
