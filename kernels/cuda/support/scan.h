#pragma once
// Running sums over a warp and over a block, in an order that depends only on the number of threads.

#include "tern/kernels/cuda/support/launch.h"

namespace tern::kernels::cuda {

/// The value of the lane `distance` before this one, or this lane's value if there is none. All 32 lanes call it.
template <class T>
__device__ inline T shuffle_up(T value, int distance, [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef TERN_SIMT
  return __shfl_up_sync(kFullWarp, value, distance, kWarpSize, where);
#else
  return __shfl_up_sync(kFullWarp, value, distance);
#endif
}

/// The sum over the preceding lanes, and in `total` over all lanes. All 32 lanes call it.
template <class T>
__device__ inline T warp_sum_before(T value, T& total, CallSite where = CallSite::current()) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  T sum = value;  // of this lane and the preceding ones
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const T other = shuffle_up(sum, distance, where);
    if (lane >= distance) sum = other + sum;
  }
#ifdef TERN_SIMT
  total = __shfl_sync(kFullWarp, sum, kWarpSize - 1, kWarpSize, where);
#else
  total = __shfl_sync(kFullWarp, sum, kWarpSize - 1);
#endif
  const T before = shuffle_up(sum, 1, where);
  return lane == 0 ? T(0) : before;
}

/// The sum over the preceding threads, and in `total` over all threads, of a one-dimensional block of kThreads; all of
/// them call it. Ends with a barrier, so that it can be called again.
template <int kThreads, class T>
__device__ inline T block_sum_before(T value, T& total, CallSite where = CallSite::current()) {
  static_assert(kThreads % kWarpSize == 0 && kThreads <= 1024, "block_sum_before: whole warps, 1024 threads at most");
  constexpr int kWarps = kThreads / kWarpSize;
#ifdef TERN_SIMT
  simt::require(blockDim.x == kThreads && blockDim.y == 1 && blockDim.z == 1,
                "block_sum_before: the block has another number of threads than kThreads", where);
#endif
  TERN_SHARED(T, totals, [kWarps]);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  T of_warp;
  const T in_warp = warp_sum_before(value, of_warp, where);
  if (threadIdx.x % kWarpSize == 0) totals[warp] = of_warp;
  block_barrier(where);
  T before = T(0);
  total = T(0);
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) before = total;
    total += totals[w];
  }
  block_barrier(where);
  return before + in_warp;
}

}  // namespace tern::kernels::cuda
