// A kernel that is not Tern's, run and checked without a GPU (docs/emulator.md). As a .cu file nvcc would compile it
// for one: there SHARED declares __shared__ memory.

#include <cstdio>
#include <vector>

#include "tern/tests/emulator/simt/simt.h"

#define SHARED SIMT_SHARED

constexpr int kThreads = 128;

/// sums[block] = the sum of the block's part of x. Without the barrier a thread may read a sum that is not written yet.
template <bool kBarrier>
__global__ void block_sum(const float* x, float* sums, int n) {
  SHARED(float, partial, [kThreads]);
  float sum = 0;
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < unsigned(n); i += gridDim.x * kThreads) sum += x[i];
  partial[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (kBarrier) __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

/// In how many of the emulator's schedules the kernel gives the right sums.
template <bool kBarrier>
int right_schedules() {
  constexpr int kBlocks = 3, kCount = 1000;
  const std::vector<float> x(kCount, 1);
  int right = 0;
  for (const simt::Order order : simt::kSchedules) {
    simt::set_order(order);
    std::vector<float> sums(kBlocks);
    simt::launch(simt::Grid(kBlocks, kThreads), block_sum<kBarrier>, x.data(), sums.data(), kCount);
    right += sums[0] + sums[1] + sums[2] == kCount;
  }
  return right;
}

__global__ void diverge() {
  if (threadIdx.x < 32) __syncthreads();
}

int main() {
  const int all = std::size(simt::kSchedules);
  if (right_schedules<true>() != all) return 1;
  if (right_schedules<false>() == all) return 2;  // the missing barrier was not found
  try {
    simt::launch(simt::Grid(1, 64), diverge);
    return 3;
  } catch (const simt::Error& error) {
    std::printf("found: %s\n", error.what());  // names the file and line of the barrier
  }
}
