#pragma once
// Products of a few rows with one matrix, again and again: the matrix is packed once into panels of as many columns as
// registers hold sums for. A row's sums do not depend on the other rows. Included only by
// kernels/cpu/recurrent/recurrent.cpp.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

#if defined(TERN_CPU_v4)
inline constexpr int kPanelBytes = 64, kPanelSums = 24;
#elif defined(TERN_CPU_v3)
inline constexpr int kPanelBytes = 32, kPanelSums = 12;
#else
inline constexpr int kPanelBytes = 16, kPanelSums = 12;
#endif

/// Elements of F in a register.
template <class F>
inline constexpr int kPanelLanes = kPanelBytes / static_cast<int>(sizeof(F));

/// sums[r][kVectors * lanes] = row r of a, times the panel [depth][kVectors * lanes]. All sums are in registers, and
/// besides them what there is less of: the rows' numbers or the panel's vectors. Each vector is loaded on its own,
/// because g++ 12 copies an array of them through the stack.
template <int kRows, int kVectors, class F>
void multiply_panel(int64_t depth, const F* a, int64_t stride, const F* panel, F* sums) {
  typedef F Lanes __attribute__((vector_size(kPanelBytes)));
  constexpr int kLanes = kPanelLanes<F>;
  const auto load = [](const F* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
  };
  Lanes sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k, panel += kVectors * kLanes) {
    if constexpr (kRows < kVectors) {
      Lanes left[kRows];
      for (int r = 0; r < kRows; ++r) left[r] = a[r * stride + k] - Lanes{};  // x - 0 has x's bits, unlike x + 0
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Lanes right = load(panel + v * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) sum[r][v] += left[r] * right;
      }
    } else {
      Lanes right[kVectors];
      for (int v = 0; v < kVectors; ++v) right[v] = load(panel + v * kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[r][v] += a[r * stride + k] * right[v];
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) std::memcpy(sums + (r * kVectors + v) * kLanes, &sum[r][v], sizeof(Lanes));
}

/// A packed matrix [depth, panels * kVectors * lanes].
template <class F, int kVectors>
class Panels {
 public:
  static constexpr int kLanes = kPanelLanes<F>, kWidth = kVectors * kLanes, kRows = kPanelSums / kVectors;

  Panels(int64_t depth, int64_t panels) : depth_(depth), panels_(panels) {}

  int64_t numbers() const { return depth_ * panels_ * kWidth; }
  int64_t panels() const { return panels_; }
  /// The matrix as pack() wrote it.
  void set_packed(const void* memory) { data_ = static_cast<const F*>(memory); }

  /// Packs element(k, column) of the matrix; column_of(panel, i) is below 0 where the panel has no i-th column.
  template <class ColumnOf, class Element>
  void pack(F* memory, const ColumnOf& column_of, const Element& element) {
    data_ = memory;
    parallel_for(panels_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        int64_t columns[kWidth];
        for (int i = 0; i < kWidth; ++i) columns[i] = column_of(p, i);
        F* const to = memory + p * depth_ * kWidth;
        for (int64_t first = 0; first < depth_; first += kPackDepth) {
          const int64_t last = std::min(first + kPackDepth, depth_);
          for (int i = 0; i < kWidth; ++i)
            for (int64_t k = first; k < last; ++k) to[k * kWidth + i] = columns[i] < 0 ? F(0) : element(k, columns[i]);
        }
      }
    });
  }

  /// finish(panel, row, sums of the panel's columns) for every row of a, and every panel.
  template <class Finish>
  void multiply(int64_t rows, const F* a, int64_t stride, const Finish& finish) const {
    for (int64_t p = 0; p < panels_; ++p)
      for (int64_t row = 0; row < rows; row += kRows)
        multiply_rows<kRows>(p, row, std::min<int64_t>(kRows, rows - row), a + row * stride, stride, finish);
  }

 private:
  static constexpr int64_t kPackDepth = 16;  // whole cache lines, whether rows or columns of the matrix are contiguous

  template <int kCount, class Finish>
  void multiply_rows(int64_t panel, int64_t first, int64_t rows, const F* a, int64_t stride,
                     const Finish& finish) const {
    if constexpr (kCount > 1)
      if (rows < kCount) return multiply_rows<kCount - 1>(panel, first, rows, a, stride, finish);
    alignas(64) F sums[kCount * kWidth];
    multiply_panel<kCount, kVectors>(depth_, a, stride, data_ + panel * depth_ * kWidth, sums);
    for (int r = 0; r < kCount; ++r) finish(panel, first + r, sums + r * kWidth);
  }

  int64_t depth_, panels_;
  const F* data_ = nullptr;
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
