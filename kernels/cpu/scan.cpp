// Running sums and the positions of set flags, in three steps: the sum of each block of fixed size, the sums of all
// blocks before each block in order, and the scan of each block from that start value.

#include "tern/kernels/scan.h"

#include <algorithm>

#include "tern/kernels/convert.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 32768;  // elements per parallel block
constexpr int64_t kManyRows = 64;  // number of rows that occupies all threads

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Conversion from elements of T to the type in which they are added, and back.
template <class T>
struct Addition {
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  using Result = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  static Sum load(Stored<T> value) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<Sum>(convert<T, int64_t>(value));
    else
      return convert<T, double>(value);
  }
  static Result store(Sum sum) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<int64_t>(sum);
    else
      return convert<double, T>(sum);
  }
};

template <class T>
class RowScan {
 public:
  using A = Addition<T>;
  using Sum = typename A::Sum;

  RowScan(ConstView x, bool reverse, View y) : x_(x), y_(y), cols_(x.cols()), reverse_(reverse) {}

  /// Index of the i-th element of a row in the order of addition.
  int64_t place(int64_t row, int64_t i) const { return row * cols_ + (reverse_ ? cols_ - 1 - i : i); }

  Sum sum(int64_t row, int64_t begin, int64_t end) const {
    Sum total = 0;
    for (int64_t i = begin; i < end; ++i) total += A::load(x_.as<Stored<T>>()[place(row, i)]);
    return total;
  }
  void scan(int64_t row, int64_t begin, int64_t end, Sum before) const {
    for (int64_t i = begin; i < end; ++i) {
      before += A::load(x_.as<Stored<T>>()[place(row, i)]);
      y_.as<typename A::Result>()[place(row, i)] = A::store(before);
    }
  }
  void scan_rows() const {
    parallel_for(x_.rows(), std::max<int64_t>(1, kBlock / cols_), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) scan(r, 0, cols_, 0);
    });
  }
  /// All threads work on one row at a time; `sums` has one element per block of a row.
  void scan_blocks(Sum* sums) const {
    for (int64_t r = 0; r < x_.rows(); ++r) {
      parallel_for(cols_, kBlock, [&](int64_t begin, int64_t end) { sums[begin / kBlock] = sum(r, begin, end); });
      Sum before = 0;
      for (int64_t b = 0; b < ceil_div(cols_, kBlock); ++b) before += std::exchange(sums[b], before);
      parallel_for(cols_, kBlock, [&](int64_t begin, int64_t end) { scan(r, begin, end, sums[begin / kBlock]); });
    }
  }

 private:
  ConstView x_;
  View y_;
  int64_t cols_;
  bool reverse_;
};

}  // namespace

int64_t cumulative_sum_workspace(Stream, int64_t rows, int64_t cols, DType) {
  return rows >= kManyRows ? 0 : ceil_div(cols, kBlock) * 8;
}

void cumulative_sum(Stream, ConstView x, bool reverse, void* workspace, View y) {
  if (x.numel() == 0) return;
  dispatch_any(x.dtype, [&]<class T>() {
    const RowScan<T> rows(x, reverse, y);
    if (x.rows() >= kManyRows)
      rows.scan_rows();
    else
      rows.scan_blocks(static_cast<typename RowScan<T>::Sum*>(workspace));
  });
}

int64_t select_positions_workspace(Stream, int64_t n) { return ceil_div(n, kBlock) * 8; }

void select_positions(Stream, ConstView mask, void* workspace, View positions) {
  const auto* const flags = mask.as<uint8_t>();
  const int64_t n = mask.numel();
  auto* const counts = static_cast<int64_t*>(workspace);
  parallel_for(n, kBlock, [&](int64_t begin, int64_t end) {
    counts[begin / kBlock] = std::count_if(flags + begin, flags + end, [](uint8_t flag) { return flag != 0; });
  });
  int64_t before = 0;
  for (int64_t b = 0; b < ceil_div(n, kBlock); ++b) before += std::exchange(counts[b], before);
  parallel_for(n, kBlock, [&](int64_t begin, int64_t end) {
    int64_t* to = positions.as<int64_t>() + counts[begin / kBlock];
    for (int64_t i = begin; i < end; ++i)
      if (flags[i] != 0) *to++ = i;
  });
}

void unravel_positions(Stream, ConstView positions, int dims, const int64_t* shape, View y) {
  parallel_for(positions.numel(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = positions.as<int64_t>()[i];
      for (int d = dims - 1; d >= 0; --d) {
        y.as<int64_t>()[i * dims + d] = rest % shape[d];
        rest /= shape[d];
      }
    }
  });
}

}  // namespace tern::kernels::TERN_CPU
