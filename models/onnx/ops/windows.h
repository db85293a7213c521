#pragma once
// The attributes that convolutions and pooling share.

#include "tern/models/onnx/call.h"

namespace tern::onnx {

struct Windows {
  int dims = 0;  // spatial
  Numbers kernel = {}, stride = {}, dilation = {}, front = {}, back = {};

  /// kernel_shape, strides, dilations, pads and auto_pad of a node on x [batch, channels, spatial...]. `kernel` is that
  /// of a weight; empty: the attribute is needed. Throws Error where a list has not one entry for each dimension.
  static Windows of(const Call& call, const Tensor& x, const Numbers& kernel);

  /// Elements of a window in dimension d with its gaps.
  int64_t extent(size_t d) const { return (kernel[d] - 1) * dilation[d] + 1; }
  /// As much padding in front as behind, and in a pooling no more than half of a window.
  bool symmetric(bool pooling) const;
  /// x with this padding, and `more` elements behind.
  Tensor padded(const Tensor& x, double value = 0, const Numbers& more = {}) const;
  /// The number of windows in each dimension.
  Numbers counts(const Tensor& x, bool ceil_mode) const;
};

/// Sizes of a weight's kernel.
Numbers kernel_size(const Tensor& weight);

}  // namespace tern::onnx
