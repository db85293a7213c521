#pragma once
// Copies of consecutive values between memory of any floating type and registers of another, in the widest accesses.

#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/vector.h"

namespace tern::kernels::cuda {

/// values = p[0 .. kCount) as F; p is aligned to min(16 bytes, kCount elements).
template <int kCount, class F, class T>
__device__ inline void load_values(const T* p, F (&values)[kCount]) {
  constexpr int kWidth = kCount < vector_width<T> ? kCount : vector_width<T>;
#pragma unroll
  for (int i = 0; i < kCount; i += kWidth) {
    const Vector<T, kWidth> part = load_vector<kWidth>(p + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[i + j] = static_cast<F>(to_compute(part.v[j]));
  }
}

/// Like load_values, for memory that is constant while the kernel runs.
template <int kCount, class F, class T>
__device__ inline void load_readonly_values(const T* p, F (&values)[kCount]) {
  constexpr int kWidth = kCount < vector_width<T> ? kCount : vector_width<T>;
#pragma unroll
  for (int i = 0; i < kCount; i += kWidth) {
    const Vector<T, kWidth> part = load_readonly<kWidth>(p + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[i + j] = static_cast<F>(to_compute(part.v[j]));
  }
}

/// p[0 .. kCount) = values, rounded to T; p aligned as in load_values.
template <int kCount, class F, class T>
__device__ inline void store_values(T* p, const F (&values)[kCount]) {
  using C = ComputeType<T>;
  constexpr int kWidth = kCount < vector_width<T> ? kCount : vector_width<T>;
#pragma unroll
  for (int i = 0; i < kCount; i += kWidth) {
    Vector<C, kWidth> part;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) part.v[j] = static_cast<C>(values[i + j]);
    store_vector(p + i, from_compute<T>(part));
  }
}

}  // namespace tern::kernels::cuda
