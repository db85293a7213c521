#pragma once

#include <initializer_list>

#include "tern/core/tensor.h"

namespace tern {

/// One number for each spatial dimension, or one for all of them: 2, or {2, 1}.
class SpatialSizes {
 public:
  SpatialSizes(int64_t all) : values_{all} {}                                // NOLINT(google-explicit-constructor)
  SpatialSizes(std::initializer_list<int64_t> values) : values_(values) {}   // NOLINT
  SpatialSizes(std::vector<int64_t> values) : values_(std::move(values)) {}  // NOLINT
  const std::vector<int64_t>& values() const { return values_; }
  /// The numbers of `dims` dimensions. Throws Error that names `op` and `what` when there are neither one nor `dims`.
  std::vector<int64_t> of(const char* op, const char* what, int dims) const;

 private:
  std::vector<int64_t> values_;
};

struct ConvolutionOptions {
  SpatialSizes stride = 1;
  SpatialSizes padding = 0;   // zeros on both sides
  SpatialSizes dilation = 1;  // distance of the kernel's elements
  int64_t groups = 1;         // which divide the channels of input and output
  /// PyTorch's padding="same": zeros so that the result has the input's size, one more behind than before where their
  /// number is odd. Needs a stride of 1; `padding` is ignored.
  bool same = false;
};

/// Cross-correlation of images with a kernel, as torch.nn.functional.conv1d, conv2d and conv3d. x: floating [batch,
/// in, spatial...] or [in, spatial...], weight: [out, in / groups, kernel...], bias: [out] or undefined. Result:
/// [batch, out, (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1 ...] with the channels last in memory
/// (Tensor::channels_last), in which an x that has them so is not copied. Accumulates in fp32 (fp64 for fp64);
/// on the CPU 3 x 3 kernels of fp32 may be computed by Winograd's algorithm (docs/numerics.md).
/// Differentiable any number of times. Error where the kernel is larger than the padded image, groups do not divide the
/// channels, or a size does not fit.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvolutionOptions& options = {});
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvolutionOptions& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvolutionOptions& options = {});

struct TransposedConvolutionOptions {
  SpatialSizes stride = 1;
  SpatialSizes padding = 0;         // zeros that the convolution had added: rows that are cut off the result
  SpatialSizes output_padding = 0;  // rows more at the end, fewer than stride or dilation
  SpatialSizes dilation = 1;
  int64_t groups = 1;
};

/// The gradient of a convolution by its input, as torch.nn.functional.conv_transpose1d, 2d and 3d. x: [batch, in,
/// spatial...] or [in, spatial...], weight: [in, out / groups, kernel...], bias: [out] or undefined. Result: [batch,
/// out, (size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 ...]; otherwise as conv2d.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const TransposedConvolutionOptions& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const TransposedConvolutionOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const TransposedConvolutionOptions& options = {});

}  // namespace tern
