#include "tern/kernels/softmax.h"

#include "tern/kernels/cpu/softmax_rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

template <class T>
void softmax_row(const T* x, int64_t cols, T* y) {
  using F = ComputeType<T>;
  constexpr bool kInPlace = std::is_same_v<T, F>;  // a 16-bit y cannot hold the exponentials between the passes
  F* kept = nullptr;
  if constexpr (kInPlace) kept = y;
  const RowExponentials<F> row = sum_exponentials<F>(x, cols, kept);
  const F factor = F(1) / row.sum;
  F buffer[kTile];
  for (int64_t j = 0; j < cols; j += kTile) {
    const int64_t n = std::min(kTile, cols - j);
    T* to = y + j;
    if constexpr (kInPlace) {
      for (int64_t i = 0; i < n; ++i) to[i] *= factor;
    } else {
      const F* from = widen(x + j, buffer, n);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(math::exp(from[i] - row.largest) * factor);
    }
  }
}

template <class T>
void log_softmax_row(const T* x, int64_t cols, T* y) {
  using F = ComputeType<T>;
  const RowExponentials<F> row = sum_exponentials<F, T>(x, cols, nullptr);
  const F log_sum = math::log(row.sum);
#pragma GCC ivdep
  for (int64_t i = 0; i < cols; ++i) y[i] = static_cast<T>(static_cast<F>(x[i]) - row.largest - log_sum);
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
  if (log) {
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i)
      dx[i] = static_cast<T>(static_cast<F>(dy[i]) - math::exp(static_cast<F>(y[i])) * total);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) dx[i] = static_cast<T>(static_cast<F>(y[i]) * (static_cast<F>(dy[i]) - total));
  }
}

}  // namespace

void softmax_forward(Stream, bool log, ConstView x, View y) {
  const int64_t cols = x.cols();
  if (cols == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    parallel_for(x.rows(), softmax_grain(cols), [&](int64_t begin, int64_t end) {
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
      for (int64_t r = begin; r < end; ++r)
        softmax_backward_row(log, y.as<T>() + r * cols, dy.as<T>() + r * cols, cols, dx.as<T>() + r * cols);
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
