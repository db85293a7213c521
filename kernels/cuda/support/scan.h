#pragma once
// Scans over a warp and over a block, in an order that depends only on the number of threads.

#include "tern/kernels/cuda/support/reduce.h"

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

/// A copy of lane `from`'s value; all 32 lanes call it.
template <class T>
__device__ inline T shuffle_from(T value, int from, [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef TERN_SIMT
  return __shfl_sync(kFullWarp, value, from, kWarpSize, where);
#else
  return __shfl_sync(kFullWarp, value, from);
#endif
}

/// op(...op(v0, v1)..., v) over the values of the preceding lanes (`none` for lane 0), and in `total` over all lanes.
/// op(earlier, later) is associative and `none` is its neutral element. All 32 lanes call it.
template <class T, class Op>
__device__ inline T warp_scan_before(T value, T& total, Op op, T none, CallSite where = CallSite::current()) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  T combined = value;  // of this lane and the preceding ones
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const T other = shuffle_up(combined, distance, where);
    if (lane >= distance) combined = op(other, combined);
  }
  total = shuffle_from(combined, kWarpSize - 1, where);
  const T before = shuffle_up(combined, 1, where);
  return lane == 0 ? none : before;
}

/// The same over the threads of a one-dimensional block of kThreads; all of them call it. Ends with a barrier, so that
/// it can be called again.
template <int kThreads, class T, class Op>
__device__ inline T block_scan_before(T value, T& total, Op op, T none, CallSite where = CallSite::current()) {
  static_assert(kThreads % kWarpSize == 0 && kThreads <= 1024, "block_scan_before: whole warps, 1024 threads at most");
  constexpr int kWarps = kThreads / kWarpSize;
#ifdef TERN_SIMT
  simt::require(blockDim.x == kThreads && blockDim.y == 1 && blockDim.z == 1,
                "block_scan_before: the block has another number of threads than kThreads", where);
#endif
  TERN_SHARED(T, totals, [kWarps]);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  T of_warp;
  const T in_warp = warp_scan_before(value, of_warp, op, none, where);
  if (threadIdx.x % kWarpSize == 0) totals[warp] = of_warp;
  block_barrier(where);
  T before = none;
  total = none;
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) before = total;
    total = op(total, totals[w]);
  }
  block_barrier(where);
  return op(before, in_warp);
}

/// Sums over the preceding threads of a warp or block.
template <class T>
__device__ inline T warp_sum_before(T value, T& total, CallSite where = CallSite::current()) {
  return warp_scan_before(value, total, Sum{}, T(0), where);
}
template <int kThreads, class T>
__device__ inline T block_sum_before(T value, T& total, CallSite where = CallSite::current()) {
  return block_scan_before<kThreads>(value, total, Sum{}, T(0), where);
}

}  // namespace tern::kernels::cuda
