#include "tern/kernels/softmax.h"

#include <cmath>

#include "tern/kernels/cuda/support/softmax_rows.h"

namespace tern::kernels::cuda {
namespace {

/// Like blocks_together(). On sm_120, long rows of float, for which a thread holds many vectors, would spill registers
/// with three blocks.
template <class T>
constexpr int softmax_blocks(int threads, int bytes, [[maybe_unused]] bool many) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  if (sizeof(T) == 4 && many) return 2;
#endif
  return blocks_together<T>(threads, bytes);
}

/// A row stays in registers between the passes: it is read once and written once. y may be x.
template <class T, int kGroup, int kVectors>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads,
                                  softmax_blocks<T>(RowGroup<kGroup>::kThreads, 0, kVectors > 6))
    softmax_kernel(bool log, const T* x, T* y, int64_t rows, int cols) {
  using F = ComputeType<T>;
  using Group = RowGroup<kGroup>;
  constexpr int kWidth = vector_width<T>;
  const int64_t row = Group::first_row();
  if (row >= rows) return;
  const T* from = x + row * cols;
  const int start = Group::lane() * kWidth - row_shift(from);
  Vector<T, kWidth> raw[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    raw[i] = load_columns(from, start + i * kGroup * kWidth, cols, from_compute<T>(-kInfinity<F>));
  Vector<F, kWidth> values[kVectors];
  F largest = -kInfinity<F>;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    values[i] = to_compute(raw[i]);
    largest = largest_number(values[i], largest);
  }
  largest = Group::max(largest);
  F sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (start + i * kGroup * kWidth >= cols) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      values[i].v[k] -= largest;
      const F power = std::exp(values[i].v[k]);
      sum += power;
      if (!log) values[i].v[k] = power;
    }
  }
  sum = Group::sum(sum);
  const F factor = log ? F(1) : F(1) / sum, offset = log ? std::log(sum) : F(0);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = start + i * kGroup * kWidth;
    if (column >= cols) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[i].v[k] = values[i].v[k] * factor - offset;
    store_columns(y + row * cols, column, cols, from_compute<T>(values[i]));
  }
}

/// Rows too long for registers: the first pass computes largest element and sum, the second the results.
template <class T>
__global__ void __launch_bounds__(kRowThreads, blocks_together<T>(kRowThreads))
    softmax_long_kernel(bool log, const T* x, T* y, int64_t cols) {
  using F = ComputeType<T>;
  using Group = RowGroup<kRowThreads>;
  constexpr int kWidth = vector_width<T>;
  const T* from = x + Group::first_row() * cols;
  T* to = y + Group::first_row() * cols;
  const RowExponentials<F> row = sum_exponentials<Group>(from, cols);
  const F factor = F(1) / row.sum, log_sum = std::log(row.sum);
  for (int64_t column = Group::lane() * kWidth - row_shift(from); column < cols; column += kRowThreads * kWidth) {
    Vector<F, kWidth> values = to_compute(load_columns(from, column, cols));
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      values.v[k] -= row.largest;
      values.v[k] = log ? values.v[k] - log_sum : std::exp(values.v[k]) * factor;
    }
    store_columns(to, column, cols, from_compute<T>(values));
  }
}

/// An element's contribution to the row sum that dx needs.
template <class F, int kWidth>
__device__ F gradient_term(bool log, const Vector<F, kWidth>& y, const Vector<F, kWidth>& dy) {
  F sum = 0;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sum += log ? dy.v[k] : dy.v[k] * y.v[k];
  return sum;
}
template <class F, int kWidth>
__device__ Vector<F, kWidth> gradient(bool log, const Vector<F, kWidth>& y, const Vector<F, kWidth>& dy, F total) {
  Vector<F, kWidth> dx;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) dx.v[k] = log ? dy.v[k] - std::exp(y.v[k]) * total : y.v[k] * (dy.v[k] - total);
  return dx;
}

/// dx may be y or dy.
template <class T, int kGroup, int kVectors>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads,
                                  softmax_blocks<T>(RowGroup<kGroup>::kThreads, 16 * kVectors, kVectors > 4))
    softmax_backward_kernel(bool log, const T* y, const T* dy, T* dx, int64_t rows, int cols) {
  using F = ComputeType<T>;
  using Group = RowGroup<kGroup>;
  constexpr int kWidth = vector_width<T>;
  const int64_t row = Group::first_row();
  if (row >= rows) return;
  const int start = Group::lane() * kWidth - row_shift(y + row * cols);
  Vector<T, kWidth> outputs[kVectors], gradients[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    outputs[i] = load_columns(y + row * cols, start + i * kGroup * kWidth, cols);
    gradients[i] = load_columns(dy + row * cols, start + i * kGroup * kWidth, cols);
  }
  F total = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) total += gradient_term(log, to_compute(outputs[i]), to_compute(gradients[i]));
  total = Group::sum(total);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = start + i * kGroup * kWidth;
    if (column >= cols) continue;
    const Vector<F, kWidth> result = gradient(log, to_compute(outputs[i]), to_compute(gradients[i]), total);
    store_columns(dx + row * cols, column, cols, from_compute<T>(result));
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads, blocks_together<T>(kRowThreads))
    softmax_backward_long_kernel(bool log, const T* y, const T* dy, T* dx, int64_t cols) {
  using F = ComputeType<T>;
  using Group = RowGroup<kRowThreads>;
  constexpr int kWidth = vector_width<T>;
  const int64_t offset = Group::first_row() * cols;
  const int64_t start = Group::lane() * kWidth - row_shift(y + offset);
  F total = 0;
  for (int64_t column = start; column < cols; column += kRowThreads * kWidth)
    total += gradient_term(log, to_compute(load_columns(y + offset, column, cols)),
                           to_compute(load_columns(dy + offset, column, cols)));
  total = Group::sum(total);
  for (int64_t column = start; column < cols; column += kRowThreads * kWidth) {
    const Vector<F, kWidth> result = gradient(log, to_compute(load_columns(y + offset, column, cols)),
                                              to_compute(load_columns(dy + offset, column, cols)), total);
    store_columns(dx + offset, column, cols, from_compute<T>(result));
  }
}

/// Maximum number of columns that a row's vectors span: an unaligned row needs one vector more.
template <class T>
int64_t columns_spanned(const void* data, int64_t cols) {
  const bool aligned = aligned16(data) && cols % vector_width<T> == 0;
  return cols + (aligned ? 0 : vector_width<T> - 1);
}

}  // namespace

void softmax_forward(Stream stream, bool log, ConstView x, View y) {
  const int64_t rows = x.rows(), cols = x.cols();
  if (rows == 0 || cols == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    const bool fits = dispatch_row_shape<T>(columns_spanned<T>(x.data, cols), [&]<int kGroup, int kVectors>() {
      using Group = RowGroup<kGroup>;
      launch(softmax_kernel<T, kGroup, kVectors>, Group::grid(rows), Group::kThreads, 0, stream, log, x.as<T>(),
             y.as<T>(), rows, static_cast<int>(cols));
    });
    if (!fits)
      launch(softmax_long_kernel<T>, RowGroup<kRowThreads>::grid(rows), kRowThreads, 0, stream, log, x.as<T>(),
             y.as<T>(), cols);
  });
}

void softmax_backward(Stream stream, bool log, ConstView y, ConstView dy, View dx) {
  const int64_t rows = y.rows(), cols = y.cols();
  if (rows == 0 || cols == 0) return;
  dispatch_float(y.dtype, [&]<class T>() {
    const bool fits = dispatch_row_shape<T>(columns_spanned<T>(y.data, cols), [&]<int kGroup, int kVectors>() {
      using Group = RowGroup<kGroup>;
      launch(softmax_backward_kernel<T, kGroup, kVectors>, Group::grid(rows), Group::kThreads, 0, stream, log,
             y.as<T>(), dy.as<T>(), dx.as<T>(), rows, static_cast<int>(cols));
    });
    if (!fits)
      launch(softmax_backward_long_kernel<T>, RowGroup<kRowThreads>::grid(rows), kRowThreads, 0, stream, log, y.as<T>(),
             dy.as<T>(), dx.as<T>(), cols);
  });
}

}  // namespace tern::kernels::cuda
