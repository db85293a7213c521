#pragma once
// What a Tensor is a handle to. The autograd record, its destruction too, is defined in core/autograd.

#include <memory>

#include "tern/core/tensor.h"

namespace tern::detail {

struct DeleteAutogradMeta {
  void operator()(AutogradMeta* meta) const noexcept;
};

struct TensorImpl {
  std::shared_ptr<Storage> storage;
  int64_t offset = 0;  // in elements
  Shape shape;
  Strides strides{};
  DType dtype = DType::kFloat32;
  bool contiguous = true;
  bool is_view = false;  // made by a view op: in-place changes around it need care
  std::unique_ptr<AutogradMeta, DeleteAutogradMeta> autograd;

  /// Makes the autograd record when there is none (core/autograd/node.h).
  AutogradMeta& meta();
};

/// A new handle on the same elements without autograd record.
Tensor alias(const Tensor& tensor);

/// [batch, channels, spatial...] with the channels last in memory (Tensor::channels_last).
Tensor empty_channels_last(const Shape& shape, const TensorOptions& options);
/// Whether x has its channels last in memory, which an op then keeps; false if it is contiguous too.
inline bool has_channels_last(const Tensor& x) { return x.dim() > 2 && !x.is_contiguous() && x.is_channels_last(); }
/// A tensor of x's shape, and in memory like x if that has its channels last.
inline Tensor empty_ordered_like(const Tensor& x, const TensorOptions& options) {
  return has_channels_last(x) ? empty_channels_last(x.shape(), options) : empty(x.shape(), options);
}

}  // namespace tern::detail
