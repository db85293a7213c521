#pragma once
// Code shared by softmax and cross entropy: a row's largest element and the sum of exponentials relative to it, in one
// pass over memory (Milakov & Gimelshein, arXiv:1805.02867).

#include <cmath>

#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {

template <class F>
inline constexpr F kInfinity = std::numeric_limits<F>::infinity();

/// The largest element, ignoring NaN, which makes the sum of exponentials NaN.
template <class F, int kWidth>
__device__ F largest_number(const Vector<F, kWidth>& values, F largest) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) largest = values.v[k] > largest ? values.v[k] : largest;
  return largest;
}

template <class F>
struct RowExponentials {
  F largest = -kInfinity<F>;
  F sum = 0;  // of exp(x - largest)

  template <int kWidth>
  __device__ void add(const Vector<F, kWidth>& values) {
    const F top = largest_number(values, largest);
    const F base = top == -kInfinity<F> ? F(0) : top;  // only -infinity so far: adds 0, and NaN stays NaN
    F part = 0;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) part += std::exp(values.v[k] - base);
    if (top > largest) sum *= std::exp(largest - top);
    sum += part;
    largest = top;
  }

  /// Combines the threads of a group. A row that contains only -infinity gives NaN, an empty row 0.
  template <class Group>
  __device__ void join(bool empty, CallSite where = CallSite::current()) {
    const F top = Group::max(largest, where);
    if (top > largest) sum *= std::exp(largest - top);
    sum = Group::sum(sum, where);
    if (top == -kInfinity<F> && !empty) sum = std::numeric_limits<F>::quiet_NaN();
    largest = top;
  }
};

template <class Group, class T>
__device__ RowExponentials<ComputeType<T>> sum_exponentials(const T* row, int64_t cols) {
  using F = ComputeType<T>;
  RowExponentials<F> result;
  for_each_vector<Group>(row, cols, from_compute<T>(-kInfinity<F>),
                         [&](int64_t, const auto& values) { result.add(values); });
  result.template join<Group>(cols == 0);
  return result;
}

}  // namespace tern::kernels::cuda
