#pragma once
// Flash attention's products with wgmma, on tiles in shared memory.

#include "tern/kernels/cuda/attention/tile.h"
#include "tern/kernels/cuda/support/wgmma.h"

namespace tern::kernels::cuda::attention {

/// Rows for wgmma are padded to 64 or 128 values; shorter rows than this are faster with mma.sync.
inline constexpr int kShortestWgmmaRow = 40;

/// True when the kernels of forward_sm90.cu and backward_sm90.cu support a call that takes_tensor_cores() accepts.
inline bool takes_wgmma(Stream stream, const Call& call) {
  return call.head_dim >= kShortestWgmmaRow && has_wgmma(stream);
}

/// Index of the thread's warpgroup. The compiler treats it as uniform in a warp, as operands must be.
__device__ inline int warpgroup_index() {
  return __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
}

/// Starts c = 64 rows of `left` from `row` on times the transpose of all rows of `right`.
template <class Left, class Right, class T, int kTiles>
__device__ void start_rows_product(const T* left, int row, const T* right, FragmentC (&c)[kTiles]) {
  static_assert(kTiles * 8 == Right::kRows && Left::kDim == Right::kDim);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < Left::kDim; k += 16)
    wgmma<T>(c, rows_operand<Left>(left, row, k), rows_operand<Right>(right, 0, k), k > 0);
  wgmma_commit();
}

/// Starts c += weights times the rows of `right`. The weights must stay unchanged until the wait.
template <class Right, class T, int kSteps>
__device__ void start_weighted_sum(const FragmentA (&weights)[kSteps], const T* right,
                                   FragmentC (&c)[Right::kDim / 8]) {
  static_assert(kSteps * 16 == Right::kRows);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) wgmma<T>(c, weights[k], columns_operand<Right>(right, k * 16), true);
  wgmma_commit();
}

/// Converts a row of results to left operands.
template <class T, int kTiles>
__device__ void to_left_operands(const FragmentC (&from)[kTiles], FragmentA (&to)[kTiles / 2]) {
#pragma unroll
  for (int k = 0; k < kTiles / 2; ++k) to[k] = to_left<T>(from[2 * k], from[2 * k + 1]);
}

}  // namespace tern::kernels::cuda::attention
