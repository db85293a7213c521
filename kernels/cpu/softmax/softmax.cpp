#include "tern/kernels/softmax.h"

#include "tern/kernels/cpu/softmax/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

template <class T>
void softmax_row(const T* x, int64_t cols, T* y) {
  using F = ComputeType<T>;
  constexpr bool kInPlace = std::is_same_v<T, F>;  // a 16-bit y cannot hold the exponentials between the passes
  F kept[kInPlace ? 1 : kKeptRow];
  if (kInPlace || cols <= kKeptRow) {
    F* powers = kept;
    if constexpr (kInPlace) powers = y;
    const RowExponentials<F> row = sum_exponentials<F, F>(widen(x, kept, cols), cols, powers);
    const F factor = F(1) / row.sum;
    return map_row<F>(
        y, cols, [=](F power) { return power * factor; }, powers);
  }
  const RowExponentials<F> row = sum_exponentials<F, T>(x, cols, nullptr);
  const F factor = F(1) / row.sum;
  map_row<F>(
      y, cols, [=](F value) { return math::exp_nonpositive(value - row.largest) * factor; }, x);
}

template <class T>
void log_softmax_row(const T* x, int64_t cols, T* y) {
  using F = ComputeType<T>;
  const auto write = [&](const auto* from, const RowExponentials<F>& row) {
    const F log_sum = math::log(row.sum);
    map_row<F>(
        y, cols, [=](F value) { return value - row.largest - log_sum; }, from);
  };
  F kept[std::is_same_v<T, F> ? 1 : kKeptRow];
  if (!std::is_same_v<T, F> && cols > kKeptRow) return write(x, sum_exponentials<F, T>(x, cols, nullptr));
  const F* const from = widen(x, kept, cols);
  write(from, sum_exponentials<F, F>(from, cols, nullptr));
}

/// The pass over rows [begin, end) that are short.
template <class T>
void softmax_short_rows(bool log, const T* x, int64_t begin, int64_t end, int64_t cols, T* y) {
  using F = ComputeType<T>;
  constexpr int64_t kRows = kBlockRows<F>;
  for_row_blocks<F>(begin, end, [&](int64_t first, int64_t n) {
    ShortRows<T> rows(x + first * cols, n, cols);
    const BlockExponentials<F> block(rows, !log);
    alignas(64) F scale[kRows];
    if (log)
      for (int64_t r = 0; r < kRows; ++r) scale[r] = math::log(block.sum[r]);
    else
      for (int64_t r = 0; r < kRows; ++r) scale[r] = F(1) / block.sum[r];
    for (int64_t c = 0; c < cols; ++c) {
      F* const values = rows.column(c);
      if (log)
        for (int64_t r = 0; r < kRows; ++r) values[r] = values[r] - block.largest[r] - scale[r];
      else
        for (int64_t r = 0; r < kRows; ++r) values[r] *= scale[r];
    }
    rows.store(y + first * cols);
  });
}

template <class T>
void softmax_backward_short_rows(bool log, const T* y, const T* dy, int64_t begin, int64_t end, int64_t cols, T* dx) {
  using F = ComputeType<T>;
  constexpr int64_t kRows = kBlockRows<F>;
  for_row_blocks<F>(begin, end, [&](int64_t first, int64_t n) {
    ShortRows<T> outputs(y + first * cols, n, cols), gradients(dy + first * cols, n, cols);
    BlockSums<F> sums;
    alignas(64) F products[kRows];
    for (int64_t c = 0; c < cols; ++c) {
      const F *const a = outputs.column(c), *const b = gradients.column(c);
      for (int64_t r = 0; r < kRows; ++r) products[r] = log ? b[r] : a[r] * b[r];
      sums.add(c, products);
    }
    const F* const total = sums.totals(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const F* const a = outputs.column(c);
      F* const b = gradients.column(c);
      if (log)
        for (int64_t r = 0; r < kRows; ++r) products[r] = b[r] - math::exp(a[r]) * total[r];
      else
        for (int64_t r = 0; r < kRows; ++r) products[r] = a[r] * (b[r] - total[r]);
      std::copy_n(products, kRows, b);
    }
    gradients.store(dx + first * cols);
  });
}

template <class T>
void softmax_backward_row(bool log, const T* y, const T* dy, int64_t cols, T* dx) {
  using F = ComputeType<T>;
  F y_buffer[kTile], dy_buffer[kTile];
  LaneSum<F> sum;
  for (int64_t j = 0; j < cols; j += kTile) {
    const int64_t n = std::min(kTile, cols - j);
    const F* gradient = widen(dy + j, dy_buffer, n);
    if (log)
      sum.add(
          n, [](auto a) { return a; }, gradient);
    else
      sum.add(
          n, [](auto a, auto b) { return a * b; }, gradient, widen(y + j, y_buffer, n));
  }
  const F total = sum.total();
  if (log)
    map_row<F>(
        dx, cols, [=](F gradient, F output) { return gradient - math::exp(output) * total; }, dy, y);
  else
    map_row<F>(
        dx, cols, [=](F gradient, F output) { return output * (gradient - total); }, dy, y);
}

}  // namespace

void softmax_forward(Stream, bool log, ConstView x, View y) {
  const int64_t cols = x.cols();
  if (cols == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    parallel_for(x.rows(), softmax_grain(cols), [&](int64_t begin, int64_t end) {
      if (cols <= kShortRow) return softmax_short_rows(log, x.as<T>(), begin, end, cols, y.as<T>());
      for (int64_t r = begin; r < end; ++r) {
        if (log)
          log_softmax_row(x.as<T>() + r * cols, cols, y.as<T>() + r * cols);
        else
          softmax_row(x.as<T>() + r * cols, cols, y.as<T>() + r * cols);
      }
    });
  });
}

void softmax_backward(Stream, bool log, ConstView y, ConstView dy, View dx) {
  const int64_t cols = y.cols();
  if (cols == 0) return;
  dispatch_float(y.dtype, [&]<class T>() {
    parallel_for(y.rows(), softmax_grain(cols), [&](int64_t begin, int64_t end) {
      if (cols <= kShortRow)
        return softmax_backward_short_rows(log, y.as<T>(), dy.as<T>(), begin, end, cols, dx.as<T>());
      for (int64_t r = begin; r < end; ++r)
        softmax_backward_row(log, y.as<T>() + r * cols, dy.as<T>() + r * cols, cols, dx.as<T>() + r * cols);
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
