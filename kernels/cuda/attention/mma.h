#pragma once
// Flash attention's operands for mma.sync, loaded from tiles in shared memory.

#include "tern/kernels/cuda/attention/tile.h"

namespace tern::kernels::cuda::attention {

inline constexpr int kWarps = 4, kThreads = kWarps * kWarpSize;

/// Rows of kDim values with a pitch of kDim + 8, an odd number of 16-byte pieces, so that the eight rows of an ldmatrix
/// are in different banks.
template <int kDim_, int kRows_>
struct PaddedRows {
  static constexpr int kDim = kDim_, kRows = kRows_;
  static constexpr int kElements = kRows * (kDim + 8);
  __device__ static constexpr int at(int row, int col) { return row * (kDim + 8) + col; }
};

/// Rows row .. row + 15 and columns col .. col + 15 of a tile as the left operand.
template <class Tile, class T>
__device__ FragmentA load_left(const T* tile, int row, int col) {
  const int lane = threadIdx.x % kWarpSize;
  FragmentA a;
  ldmatrix<4>(a.r, tile + Tile::at(row + lane % 16, col + lane / 16 * 8));
  return a;
}
/// Two neighbouring right operands.
struct RightPair {
  FragmentB b[2];
};
/// Right operands whose columns are rows `row` .. `row` + 15 of a tile and whose 16 rows are its columns from col on.
template <class Tile, class T>
__device__ RightPair load_right_transposed(const T* tile, int row, int col) {
  const int lane = threadIdx.x % kWarpSize;
  uint32_t r[4];
  ldmatrix<4>(r, tile + Tile::at(row + lane % 8 + lane / 16 * 8, col + lane / 8 % 2 * 8));
  return {{{{r[0], r[1]}}, {{r[2], r[3]}}}};
}
/// Right operands whose 16 rows are rows of the tile and whose columns are its columns col .. col + 15.
template <class Tile, class T>
__device__ RightPair load_right(const T* tile, int row, int col) {
  const int lane = threadIdx.x % kWarpSize;
  uint32_t r[4];
  ldmatrix<4, true>(r, tile + Tile::at(row + lane % 16, col + lane / 16 * 8));
  return {{{{r[0], r[1]}}, {{r[2], r[3]}}}};
}

}  // namespace tern::kernels::cuda::attention
