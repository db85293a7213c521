#pragma once
// Non-owning views of tensors, the arguments of every kernel.

#include "tern/kernels/types.h"

namespace tern {

inline constexpr int kMaxDims = 8;

namespace kernels {

/// Pointer, dtype, shape and strides (in elements) of a tensor that the view does not own. Dimensions are in row-major
/// order. `Void` is void or const void. A view with data == nullptr and dims == 0 means "argument absent".
template <class Void>
struct BasicView {
  Void* data = nullptr;
  DType dtype = DType::kFloat32;
  int dims = 0;
  int64_t shape[kMaxDims] = {};
  int64_t strides[kMaxDims] = {};

  BasicView() = default;
  BasicView(Void* pointer, DType type, int dimensions, const int64_t* sizes, const int64_t* steps)
      : data(pointer), dtype(type), dims(dimensions) {
    for (int d = 0; d < dims; ++d) {
      shape[d] = sizes[d];
      strides[d] = steps[d];
    }
  }
  template <class Other>
  requires std::is_const_v<Void> &&(!std::is_const_v<Other>)BasicView(
      const BasicView<Other>& other)  // NOLINT(google-explicit-constructor): a mutable view serves as a const one
      : BasicView(other.data, other.dtype, other.dims, other.shape, other.strides) {}

  explicit operator bool() const { return data != nullptr; }

  template <class T>
  auto* as() const {
    if constexpr (std::is_const_v<Void>)
      return static_cast<const T*>(data);
    else
      return static_cast<T*>(data);
  }

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= shape[d];
    return n;
  }
  /// Size of dimension d, counted from the end when negative; 1 when the view has fewer dimensions.
  int64_t size(int d) const {
    const int i = d < 0 ? dims + d : d;
    return i < 0 || i >= dims ? 1 : shape[i];
  }
  /// Product of all dimensions but the last: the rows of the view as a matrix.
  int64_t rows() const {
    int64_t n = 1;
    for (int d = 0; d + 1 < dims; ++d) n *= shape[d];
    return n;
  }
  int64_t cols() const { return dims == 0 ? 1 : shape[dims - 1]; }
  /// True when elements are in row-major order without gaps (dimensions of size 1 may have any stride).
  bool is_contiguous() const {
    int64_t expected = 1;
    for (int d = dims - 1; d >= 0; --d) {
      if (shape[d] != 1 && strides[d] != expected) return false;
      expected *= shape[d];
    }
    return true;
  }
};

using View = BasicView<void>;
using ConstView = BasicView<const void>;

/// A contiguous one-dimensional or two-dimensional view of plain memory.
template <class T>
auto make_view(T* data, int64_t rows, int64_t cols) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  const int64_t shape[] = {rows, cols}, strides[] = {cols, 1};
  return BasicView<Void>(data, dtype_of<std::remove_const_t<T>>(), 2, shape, strides);
}
template <class T>
auto make_view(T* data, int64_t size) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  const int64_t stride = 1;
  return BasicView<Void>(data, dtype_of<std::remove_const_t<T>>(), 1, &size, &stride);
}

}  // namespace kernels
}  // namespace tern
