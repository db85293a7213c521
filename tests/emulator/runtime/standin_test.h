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
  ok(cudaHostAlloc(&pointer, count * sizeof(T), cudaHostAllocDefault));
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

template <class T>
T* device_copy(const std::vector<T>& values) {
  T* const x = device_array<T>(values.size());
  ok(cudaMemcpy(x, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return x;
}
/// Waits only for the stream.
template <class T>
std::vector<T> host_copy(const T* x, size_t count, cudaStream_t stream) {
  std::vector<T> values(count);
  ok(cudaMemcpyAsync(values.data(), x, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
  return values;
}
/// NaN where nothing was written.
inline float read_one(const float* device, cudaStream_t stream) { return host_copy(device, 1, stream)[0]; }

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

/// `after` waits for the work that `before` has now.
inline void join(cudaStream_t before, cudaStream_t after) {
  const cudaEvent_t event = new_event();
  ok(cudaEventRecord(event, before));
  ok(cudaStreamWaitEvent(after, event, 0));
  ok(cudaEventDestroy(event));  // the wait remains
}

/// The graph of what `work` queues on the stream.
inline cudaGraphExec_t captured(cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  work();
  ok(cudaStreamEndCapture(stream, &graph));
  ok(cudaGraphInstantiate(&executable, graph, 0));
  return executable;
}

/// Every test begins in the initial state of a process.
class StandIn : public testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }
};

/// Runs `body` in the initial state under every order. Returns whether it is true in all of them.
inline bool in_every_order(const std::function<bool()>& body) {
  bool all = true;
  for (const Order& order : kOrders) {
    reset();
    set_order(order);
    all &= body();
  }
  reset();
  return all;
}

}  // namespace tern::standin
