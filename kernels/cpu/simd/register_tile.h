#pragma once
// Products of matrices in registers: a tile of some rows of the result and some vectors of its columns is summed at a
// time, each element in one chain, in ascending order of the inner dimension. Included only by kernels/cpu.

#include "tern/kernels/cpu/simd/vector.h"

namespace tern::kernels::TERN_CPU {
namespace {

// Left operands: number k of row r.
/// Of rows `stride` numbers apart.
template <class F>
struct LeftRows {
  const F* first;
  int64_t stride;
  F operator()(int r, int64_t k) const { return first[r * stride + k]; }
};
/// Of the columns of a matrix that is stored transposed.
template <class F>
struct LeftColumns {
  const F* first;
  int64_t stride;
  F operator()(int r, int64_t k) const { return first[k * stride + r]; }
};
/// Of rows anywhere in memory.
template <int kRows, class F>
struct LeftPointers {
  const F* rows[kRows];
  LeftPointers(const F* const* pointers, int64_t begin) {
    for (int r = 0; r < kRows; ++r) rows[r] = pointers[r] + begin;
  }
  F operator()(int r, int64_t k) const { return rows[r][k]; }
};

/// Sums in registers. There must be registers besides for kRows numbers and a vector, where kRows is less than
/// kVectors, else for a number and kVectors vectors. `row` of load() and store() tells where the columns of a row are.
template <int kRows, int kVectors, class F = float, int kBytes = kVectorBytes>
struct RegisterTile {
  using Lanes = Vector<F, kBytes>;
  static constexpr int kLanes = kBytes / static_cast<int>(sizeof(F));
  Lanes sums[kRows][kVectors] = {};

  template <class Row>
  [[gnu::always_inline]] void load(const Row& row) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = load_vector<kBytes>(row(r) + v * kLanes);
  }

  /// Adds `depth` products of each row and the rows of `right`, which are `stride` numbers apart.
  template <class Left>
  [[gnu::always_inline]] void multiply(int64_t depth, const Left& left, const F* right, int64_t stride) {
    for (int64_t k = 0; k < depth; ++k, right += stride) {
      if constexpr (kRows < kVectors) {
        Lanes numbers[kRows];
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) numbers[r] = left(r, k) - Lanes{};  // x - 0 has x's bits, unlike x + 0
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const Lanes other = load_vector<kBytes>(right + v * kLanes);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) sums[r][v] += numbers[r] * other;
        }
      } else {
        Lanes others[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) others[v] = load_vector<kBytes>(right + v * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) sums[r][v] += left(r, k) * others[v];
      }
    }
  }

  template <class Row>
  [[gnu::always_inline]] void store(const Row& row) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store_vector(row(r) + v * kLanes, sums[r][v]);
  }
};

/// body.operator()<kCount>(first) for [0, count), kRows at a time, and then for those that are left.
template <int kRows = 6, class Body>
void for_rows(int64_t count, const Body& body, int64_t first = 0) {
  for (; count - first >= kRows; first += kRows) body.template operator()<kRows>(first);
  if constexpr (kRows > 1) for_rows<kRows - 1>(count, body, first);
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
