#pragma once
// Products of a few rows with one matrix, again and again: the matrix is packed once into panels of as many columns as
// registers hold sums for. A row's sums do not depend on the other rows. Included only by
// kernels/cpu/recurrent/recurrent.cpp.

#include <algorithm>

#include "tern/kernels/cpu/simd/register_tile.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Vectors of sums that are in registers, besides what there is less of: the rows' numbers or the panel's vectors.
inline constexpr int kPanelSums = kRegisterBytes == 64 ? 24 : 12;
/// Elements of F in a register.
template <class F>
inline constexpr int kPanelLanes = kRegisterBytes / static_cast<int>(sizeof(F));

/// sums[r][kVectors * lanes] = row r of a, times the panel [depth][kVectors * lanes], for at most kPanelSums / kVectors
/// rows.
template <int kVectors, class F>
[[gnu::noinline]] void multiply_panel(int64_t rows, int64_t depth, const F* a, int64_t stride, const F* panel,
                                      F* sums) {
  constexpr int64_t kWidth = kVectors * kPanelLanes<F>;
  for_rows<kPanelSums / kVectors>(rows, [&]<int kRows>(int64_t first) {
    RegisterTile<kRows, kVectors, F, kRegisterBytes> tile;
    tile.multiply(depth, LeftRows<F>{a + first * stride, stride}, panel, kWidth);
    tile.store([&](int r) { return sums + (first + r) * kWidth; });
  });
}

/// A packed matrix [depth, panels * kVectors * lanes].
template <class F, int kVectors>
class Panels {
 public:
  static constexpr int kLanes = kPanelLanes<F>, kWidth = kVectors * kLanes, kRows = kPanelSums / kVectors;

  /// The columns of the matrix are groups of `width`; a panel has `units` of each group, one group after another.
  Panels(int64_t depth, int64_t width, int64_t units = kWidth)
      : depth_(depth), width_(width), units_(units), panels_((width + units - 1) / units) {}

  int64_t numbers() const { return depth_ * panels_ * kWidth; }
  /// The matrix as pack() wrote it.
  void set_packed(const void* memory) { data_ = static_cast<const F*>(memory); }

  /// Packs a matrix whose number (k, column) is matrix[k * row_step + column * column_step].
  template <class T>
  void pack(const T* matrix, int64_t row_step, int64_t column_step, F* memory) {
    data_ = memory;
    parallel_for(panels_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        F* const to = memory + p * depth_ * kWidth;
        for (int64_t first = 0; first < depth_; first += kPackDepth) {
          const int64_t last = std::min(first + kPackDepth, depth_);
          for (int i = 0; i < kWidth; ++i) {
            const int64_t unit = p * units_ + i % units_;
            const T* const column = unit < width_ ? matrix + (i / units_ * width_ + unit) * column_step : nullptr;
            for (int64_t k = first; k < last; ++k)
              to[k * kWidth + i] = column ? static_cast<F>(column[k * row_step]) : F(0);
          }
        }
      }
    });
  }

  /// finish(panel, row, sums of the panel's columns) for every row of a, and every panel.
  template <class Finish>
  void multiply(int64_t rows, const F* a, int64_t stride, const Finish& finish) const {
    alignas(64) F sums[kRows * kWidth];
    for (int64_t p = 0; p < panels_; ++p)
      for (int64_t row = 0; row < rows; row += kRows) {
        const int64_t count = std::min<int64_t>(kRows, rows - row);
        multiply_panel<kVectors>(count, depth_, a + row * stride, stride, data_ + p * depth_ * kWidth, sums);
        for (int64_t r = 0; r < count; ++r) finish(p, row + r, sums + r * kWidth);
      }
  }

 private:
  static constexpr int64_t kPackDepth = 16;  // whole cache lines, whether rows or columns of the matrix are contiguous

  int64_t depth_, width_, units_, panels_;
  const F* data_ = nullptr;
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
