#pragma once
// Short rows in blocks: a block is transposed, so that a vector holds the same column of several rows. Loops over one
// row of a few elements would spend most of their time on what they do once per row. Included only by
// kernels/cpu.

#include "tern/kernels/cpu/rows.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Rows of at most this many elements are short.
inline constexpr int64_t kShortRow = 64;
/// Rows in a block.
template <class F>
inline constexpr int64_t kBlockRows = 256 / sizeof(F);

/// to[c * kBlockRows + r] = from[r * columns + c] for r < rows <= kBlockRows and c < columns <= kShortRow.
template <class F>
void rows_to_columns(const F* __restrict from, int64_t rows, int64_t columns, F* __restrict to) {
  constexpr int64_t kWidth = kVectorBytes / sizeof(F), kStride = kBlockRows<F>;
  int64_t r = 0;
  // A row shorter than a vector is read with the beginning of the next ones, which must be inside the block.
  for (; r + kWidth <= rows && (r + kWidth - 1) * columns + kWidth <= rows * columns; r += kWidth) {
    for (int64_t next = 0; next < columns; next += kWidth) {
      const int64_t c = std::max<int64_t>(0, std::min(next, columns - kWidth)), n = std::min(kWidth, columns - c);
      Vector<F> square[kWidth];
      for (int64_t i = 0; i < kWidth; ++i) square[i] = load_vector(from + (r + i) * columns + c);
      transpose_square(square);
      for (int64_t i = 0; i < n; ++i) store_vector(to + (c + i) * kStride + r, square[i]);
    }
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * kStride + r] = from[r * columns + c];
}

/// The inverse: to[r * columns + c] = from[c * kBlockRows + r].
template <class F>
void columns_to_rows(const F* __restrict from, int64_t rows, int64_t columns, F* __restrict to) {
  constexpr int64_t kWidth = kVectorBytes / sizeof(F), kStride = kBlockRows<F>;
  int64_t r = 0;
  // Rows shorter than a vector are written in order: each replaces what the one before wrote beyond its end.
  for (; r + kWidth <= rows && (r + kWidth - 1) * columns + kWidth <= rows * columns; r += kWidth) {
    for (int64_t next = 0; next < columns; next += kWidth) {
      const int64_t c = std::max<int64_t>(0, std::min(next, columns - kWidth)), n = std::min(kWidth, columns - c);
      Vector<F> square[kWidth] = {};
      for (int64_t i = 0; i < n; ++i) square[i] = load_vector(from + (c + i) * kStride + r);
      transpose_square(square);
      for (int64_t i = 0; i < kWidth; ++i) store_vector(to + (r + i) * columns + c, square[i]);
    }
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = from[c * kStride + r];
}

/// A block of short rows of dtype T as columns of the compute type, each of kRows elements. Those of missing rows are
/// 0.
template <class T>
class ShortRows {
 public:
  using F = ComputeType<T>;
  static constexpr int64_t kRows = kBlockRows<F>;

  // Not inlined: GCC 12 would warn that wide_ is read before it is written.
  [[gnu::noinline]] ShortRows(const T* x, int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {
    if (rows < kRows)
      for (int64_t c = 0; c < columns; ++c) std::fill_n(column(c), kRows, F(0));
    rows_to_columns(widen(x, wide_, rows * columns), rows, columns, values_);
  }
  void store(T* y) {
    if constexpr (std::is_same_v<T, F>) {
      columns_to_rows(values_, rows_, columns_, y);
    } else {
      columns_to_rows(values_, rows_, columns_, wide_);
      narrow(wide_, y, rows_ * columns_);
    }
  }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  F* column(int64_t c) { return values_ + c * kRows; }
  const F* column(int64_t c) const { return values_ + c * kRows; }

 private:
  int64_t rows_, columns_;
  alignas(64) F values_[kRows * kShortRow];
  alignas(64) F wide_[std::is_same_v<T, F> ? 1 : kRows * kShortRow];
};

/// The sums of a block's rows, in the order of LaneSum.
template <class F>
class BlockSums {
 public:
  /// Adds the values of column c, which are added in order from 0 on.
  void add(int64_t c, const F* __restrict values) {
    F* __restrict const lane = lanes_[c % kLanes];
    if (c < kLanes)
      for (int64_t r = 0; r < kRows; ++r) lane[r] = F(0) + values[r];
    else
      for (int64_t r = 0; r < kRows; ++r) lane[r] += values[r];
  }
  /// The totals of `columns` columns.
  const F* totals(int64_t columns) {
    const int64_t used = std::min(columns, kLanes);
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half && l + half < used; ++l) add_to(lanes_[l], lanes_[l + half], kRows);
    return lanes_[0];
  }

 private:
  static constexpr int64_t kRows = kBlockRows<F>, kLanes = LaneSum<F>::kLanes;
  alignas(64) F lanes_[kLanes][kRows];
};

/// Calls body(first, n) for the blocks of the rows [begin, end).
template <class F, class Body>
void for_row_blocks(int64_t begin, int64_t end, const Body& body) {
  for (int64_t r = begin; r < end; r += kBlockRows<F>) body(r, std::min(kBlockRows<F>, end - r));
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
