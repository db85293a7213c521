#pragma once
// A convolution of which no gradient is recorded, with what follows it: nn::ConvNorm in evaluation.

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/ops/matmul/packed_weights.h"
#include "tern/core/ops/norm/batch_norm.h"
#include "tern/kernels/convolution/convolution.h"

namespace tern::detail {

/// A convolution's weight, packed for the shapes of images with which it was used last: the batches of an evaluation
/// and its last, smaller one.
class PackedWeight {
 public:
  /// used: the contiguous weight in the dtype of the images. Undefined where the kernel reads that itself.
  Tensor find(const kernels::ConvolutionShape& shape, const Tensor& weight, const Tensor& used);

 private:
  PackedWeights<std::pair<kernels::ConvolutionShape, DType>, 2> copies_;
};

/// activation(conv2d(x, weight, bias) + residual) in one pass; no gradient is recorded. residual: of the result's shape
/// and dtype, or undefined. packed: of this weight. In 16 bits the sum with the bias is rounded once before the
/// residual is added.
Tensor conv2d_with_epilogue(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const ConvolutionOptions& options, const Tensor& residual, ImageActivation activation,
                            PackedWeight& packed);

}  // namespace tern::detail
