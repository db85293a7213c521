#pragma once
// The weight and bias of a norm.

#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {

/// gamma or beta: absent, fp32 or of the rows' dtype T.
template <class T>
struct Affine {
  using F = ComputeType<T>;
  explicit Affine(const ConstView& view) : data(view.data), narrow(view.dtype == dtype_of<T>()) {}

  __device__ F at(int64_t column, F absent) const {
    if (!data) return absent;
    if (narrow) return to_compute(load_one(static_cast<const T*>(data) + column));
    return static_cast<F>(load_one(static_cast<const float*>(data) + column));
  }
  /// The whole block copies columns [0, padded) to shared memory; `absent` replaces missing values.
  __device__ void stage(int cols, int padded, F absent, F* to) const {
    for (int c = static_cast<int>(threadIdx.x); c < padded; c += static_cast<int>(blockDim.x))
      to[c] = c < cols ? at(c, absent) : absent;
  }

  const void* data;
  bool narrow;
};

}  // namespace tern::kernels::cuda
