#pragma once
// The steps of the forward pass of layer and RMS norm for one row; sums of the gradients of weight and bias.

#include <cmath>

#include "tern/kernels/cpu/dropout.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

static_assert(kTile % DropoutFactors::kColumns == 0, "tiles hold whole groups of masks");

/// gamma or beta: absent, fp32 or of the rows' dtype T.
template <class T>
struct Affine {
  using F = ComputeType<T>;
  explicit Affine(const ConstView& view) : data(view.data), narrow(view.dtype == dtype_of<T>()) {}
  explicit operator bool() const { return data != nullptr; }
  const F* tile(int64_t begin, F* buffer, int64_t n) const {
    if (narrow) return widen<F>(static_cast<const T*>(data) + begin, buffer, n);
    return widen<F>(static_cast<const float*>(data) + begin, buffer, n);
  }
  const void* data;
  bool narrow;
};

/// z = residual + dropout(x) for one row, rounded to T so that the statistics are those of the values backward reads.
template <class T>
void add_row(int64_t row, int64_t cols, const T* x, const T* residual, const DropoutFactors& dropout, T* z) {
  using F = ComputeType<T>;
  if (residual && !dropout.active())
    return map_row<F>(
        z, cols, [](F other, F value) { return other + value; }, residual, x);
  F factors[kTile];
  for (int64_t j = 0; j < cols; j += kTile) {
    const int64_t n = std::min(kTile, cols - j);
    if (dropout.active())
      dropout.fill(row, j, n, factors);
    else
      std::fill_n(factors, n, F(1));
    if (residual)
      map_row<F>(
          z + j, n, [](F other, F value, F factor) { return other + value * factor; }, residual + j, x + j, factors);
    else
      map_row<F>(
          z + j, n, [](F value, F factor) { return value * factor; }, x + j, factors);
  }
}

template <class T>
ComputeType<T> row_mean(const T* z, int64_t cols) {
  using F = ComputeType<T>;
  F buffer[kTile];
  LaneSum<F> sum;
  for (int64_t j = 0; j < cols; j += kTile) {
    const int64_t n = std::min(kTile, cols - j);
    sum.add(
        n, [](auto v) { return v; }, widen(z + j, buffer, n));
  }
  return sum.total() / static_cast<F>(cols);
}

/// 1 / sqrt(mean of the squared distances from the center + eps).
template <class T, class F>
F row_rstd(const T* z, int64_t cols, double eps, F center) {
  F buffer[kTile];
  LaneSum<F> squares;
  for (int64_t j = 0; j < cols; j += kTile) {
    const int64_t n = std::min(kTile, cols - j);
    squares.add(
        n, [=](auto v) { return (v - center) * (v - center); }, widen(z + j, buffer, n));
  }
  return F(1) / std::sqrt(squares.total() / static_cast<F>(cols) + static_cast<F>(eps));
}

template <class T>
void normalize_row(const T* z, int64_t cols, ComputeType<T> mean, ComputeType<T> rstd, const Affine<T>& gamma,
                   const Affine<T>& beta, T* y) {
  using F = ComputeType<T>;
  F gamma_buffer[kTile], beta_buffer[kTile];
  for (int64_t j = 0; j < cols; j += kTile) {
    const int64_t n = std::min(kTile, cols - j);
    const T* from = z + j;
    const F* scale = gamma ? gamma.tile(j, gamma_buffer, n) : nullptr;
    const F* shift = beta ? beta.tile(j, beta_buffer, n) : nullptr;
    const auto centered = [=](F value) { return (value - mean) * rstd; };
    if (scale && shift)
      map_row<F>(
          y + j, n, [=](F v, F factor, F term) { return centered(v) * factor + term; }, from, scale, shift);
    else if (scale)
      map_row<F>(
          y + j, n, [=](F v, F factor) { return centered(v) * factor; }, from, scale);
    else if (shift)
      map_row<F>(
          y + j, n, [=](F v, F term) { return centered(v) + term; }, from, shift);
    else
      map_row<F>(y + j, n, centered, from);
  }
}

/// Second stage: adds the blocks' partial sums [blocks, 2, cols] in order.
template <class F>
void add_partial_sums(const F* sums, int64_t blocks, int64_t cols, const View& result) {
  if (!result) return;
  dispatch_float(result.dtype, [&]<class B>() {
    parallel_for(cols, kTile, [&](int64_t begin, int64_t end) {
      F total[kTile] = {};
      for (int64_t b = 0; b < blocks; ++b) add_to(total, sums + b * 2 * cols + begin, end - begin);
      narrow(total, result.as<B>() + begin, end - begin);
    });
  });
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
