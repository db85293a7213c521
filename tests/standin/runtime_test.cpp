// Streams, events, launches and errors of the stand-in CUDA runtime.

#include <gtest/gtest.h>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/tests/standin/standin.h"

namespace tern::standin {
namespace {

using kernels::Stream;
using kernels::cuda::launch;

__global__ void add_kernel(float* y, float value, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] += value;
}

Stream on(cudaStream_t stream) { return {DeviceType::kCUDA, 0, stream}; }

TEST(Launch, RunsLate) {
  reset();
  float* x = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&x), 10 * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemset(x, 0, 40), cudaSuccess);
  launch(add_kernel, 1, 32, 0, on(nullptr), x, 2.5f, 10);
  EXPECT_EQ(x[0] == 2.5f, false);
  float y[10];
  ASSERT_EQ(cudaMemcpy(y, x, 40, cudaMemcpyDeviceToHost), cudaSuccess);
  for (float v : y) EXPECT_EQ(v, 2.5f);
  EXPECT_EQ(counters().kernel_launches, 1u);
}

}  // namespace
}  // namespace tern::standin
