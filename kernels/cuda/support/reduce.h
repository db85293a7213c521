#pragma once
// Reductions over a warp and over a block. The order of operations is fixed and every thread gets the same bits; the
// result depends only on the values and on the number of threads in the block.

#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/math/math.h"

namespace tern::kernels::cuda {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN when either is NaN, like math::max and math::min.
struct Maximum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return math::max(a, b);
  }
};
struct Minimum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return math::min(a, b);
  }
};

/// The value of lane (this lane ^ distance); all 32 lanes call it.
template <class T>
__device__ inline T shuffle_xor(T value, int distance, [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef TERN_SIMT
  return __shfl_xor_sync(kFullWarp, value, distance, kWarpSize, where);
#else
  return __shfl_xor_sync(kFullWarp, value, distance);
#endif
}

/// Reduces over groups of kLanes neighbouring lanes (a power of two); all 32 lanes call it. `op` must be commutative.
template <int kLanes = kWarpSize, class T, class Op>
__device__ inline T warp_reduce(T value, Op op, CallSite where = CallSite::current()) {
  static_assert(kLanes >= 1 && kLanes <= kWarpSize && (kLanes & (kLanes - 1)) == 0, "warp_reduce: lanes");
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) value = op(value, shuffle_xor(value, distance, where));
  return value;
}
template <int kLanes = kWarpSize, class T>
__device__ inline T warp_sum(T value, CallSite where = CallSite::current()) {
  return warp_reduce<kLanes>(value, Sum{}, where);
}

/// Reduces over a one-dimensional block of kThreads threads, all of which call it. `none` is op's neutral element. Ends
/// with a barrier, so that it can be called again.
template <int kThreads, class T, class Op>
__device__ inline T block_reduce(T value, Op op, T none, CallSite where = CallSite::current()) {
  static_assert(kThreads % kWarpSize == 0 && kThreads <= 1024, "block_reduce: whole warps, 1024 threads at most");
  constexpr int kWarps = kThreads / kWarpSize;
#ifdef TERN_SIMT
  simt::require(blockDim.x == kThreads && blockDim.y == 1 && blockDim.z == 1,
                "block_reduce: the block has another number of threads than kThreads", where);
#endif
  value = warp_reduce(value, op, where);
  if constexpr (kWarps > 1) {
    TERN_SHARED(T, partial, [kWarps]);
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if (lane == 0) partial[threadIdx.x / kWarpSize] = value;
    block_barrier(where);
    value = warp_reduce(lane < kWarps ? partial[lane] : none, op, where);
    block_barrier(where);
  }
  return value;
}
template <int kThreads, class T>
__device__ inline T block_sum(T value, CallSite where = CallSite::current()) {
  return block_reduce<kThreads>(value, Sum{}, T(0), where);
}

}  // namespace tern::kernels::cuda
