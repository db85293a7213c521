#pragma once
// Code shared by softmax and cross entropy: a row's largest element and the sum of exponentials relative to it.

#include "tern/kernels/cpu/short_rows.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Rows per block.
inline int64_t softmax_grain(int64_t cols) { return std::max<int64_t>(1, 16384 / cols); }

template <class F>
struct RowExponentials {
  F largest;  // ignores NaN, which makes the sum NaN
  F sum;      // of exp(x - largest)
};

struct LargestNumber : Sum {
  template <class F>
  static constexpr F identity() {
    return -std::numeric_limits<F>::infinity();
  }
  template <class V>
  static V combine(V a, V b) {
    return b > a ? b : a;
  }
};

/// Elements of a 16-bit row that are kept in the compute type between passes, so that they are converted once.
inline constexpr int64_t kKeptRow = 65536;

/// Also writes the exponentials to `exponentials` unless it is null; it may be x.
template <class F, class T>
inline RowExponentials<F> sum_exponentials(const T* x, int64_t cols, F* exponentials) {
  F buffer[kTile], powers[kTile];
  F largest = -std::numeric_limits<F>::infinity();
  const int64_t piece = std::is_same_v<T, F> ? cols : kTile;  // tiles are needed only for conversion
  for (int64_t j = 0; j < cols; j += piece) {
    const int64_t n = std::min(piece, cols - j);
    largest = LargestNumber::combine(largest, reduce_contiguous<LargestNumber>(widen(x + j, buffer, n), n));
  }
  LaneSum<F> sum;
  for (int64_t j = 0; j < cols; j += kTile) {
    const int64_t n = std::min(kTile, cols - j);
    const F* from = widen(x + j, buffer, n);
    F* const to = exponentials ? exponentials + j : powers;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = math::exp_nonpositive(from[i] - largest);
    sum.add(
        n, [](auto v) { return v; }, to);
  }
  return {largest, sum.total()};
}

/// The same for a block of short rows.
template <class F>
struct BlockExponentials {
  alignas(64) F largest[kBlockRows<F>];
  BlockSums<F> sums;
  const F* sum;

  /// Replaces the elements by the exponentials if `keep`.
  template <class T>
  BlockExponentials(ShortRows<T>& rows, bool keep) {
    constexpr int64_t kRows = kBlockRows<F>;
    std::fill_n(largest, kRows, LargestNumber::identity<F>());
    for (int64_t c = 0; c < rows.columns(); ++c) {
      const F* const x = rows.column(c);
      for (int64_t r = 0; r < kRows; ++r) largest[r] = LargestNumber::combine(largest[r], x[r]);
    }
    alignas(64) F powers[kRows];
    for (int64_t c = 0; c < rows.columns(); ++c) {
      F* const x = rows.column(c);
      for (int64_t r = 0; r < kRows; ++r) powers[r] = math::exp_nonpositive(x[r] - largest[r]);
      if (keep) std::copy_n(powers, kRows, x);
      sums.add(c, powers);
    }
    sum = sums.totals(rows.columns());
  }
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
