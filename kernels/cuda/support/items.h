#pragma once
// Neighbouring elements of a row that one thread of a scan holds, of any dtype.

#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {

inline constexpr int kItems = 8;  // neighbouring elements per thread

/// Neighbouring elements from `column` on; columns after the end are 0.
template <class T, class F>
__device__ inline void load_items(const T* row, int64_t column, int64_t end, F (&values)[kItems]) {
  constexpr int kWidth = vector_width<T> < kItems ? vector_width<T> : kItems;
  if constexpr (vector_width<T> <= kItems) {
#pragma unroll
    for (int v = 0; v < kItems; v += kWidth) {
      const auto part = to_compute(load_columns(row, column + v, end));
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[v + i] = static_cast<F>(part.v[i]);
    }
  } else {  // bytes: half a vector
    const bool whole = column + kItems <= end && reinterpret_cast<uintptr_t>(row + column) % kItems == 0;
    Vector<T, kItems> part = {};
    if (whole) part = load_vector<kItems>(row + column);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (!whole && column + i < end) part.v[i] = load_one(row + column + i);
      values[i] = static_cast<F>(part.v[i]);
    }
  }
}
template <class T, class F>
__device__ inline void store_items(T* row, int64_t column, int64_t end, const F (&values)[kItems]) {
  constexpr int kWidth = vector_width<T> < kItems ? vector_width<T> : kItems;
  if constexpr (vector_width<T> <= kItems) {
#pragma unroll
    for (int v = 0; v < kItems; v += kWidth) {
      Vector<ComputeType<T>, kWidth> part;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) part.v[i] = static_cast<ComputeType<T>>(values[v + i]);
      store_columns(row, column + v, end, from_compute<T>(part));
    }
  } else {
    Vector<T, kItems> part;
#pragma unroll
    for (int i = 0; i < kItems; ++i) part.v[i] = static_cast<T>(values[i]);
    if (column + kItems <= end && reinterpret_cast<uintptr_t>(row + column) % kItems == 0)
      return store_vector(row + column, part);
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      if (column + i < end) store_one(row + column + i, part.v[i]);
  }
}

}  // namespace tern::kernels::cuda
