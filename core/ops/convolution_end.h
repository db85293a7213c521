#pragma once
// A convolution of which no gradient is recorded, with what follows it: nn::ConvNorm in evaluation.

#include <mutex>
#include <vector>

#include "tern/core/ops/batch_norm.h"
#include "tern/core/ops/convolution.h"
#include "tern/kernels/convolution.h"

namespace tern::detail {

/// A weight that stays the same, packed for the shapes of images with which it was used last. Several threads may use
/// it at a time.
class PackedWeight {
 public:
  /// weight: always the same numbers. Undefined where the kernel reads the weight itself.
  Tensor find(const kernels::ConvolutionShape& shape, const Tensor& weight);

 private:
  static constexpr size_t kEntries = 2;  // the batches of an evaluation and its last, smaller one
  struct Entry {
    kernels::ConvolutionShape shape;
    DType dtype;
    Tensor packed;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;  // the one that was used last is last
};

/// activation(conv2d(x, weight, bias) + residual) in one pass; no gradient is recorded. residual: of the result's shape
/// and dtype, or undefined. packed: of this weight alone. In 16 bits the sum with the bias is rounded once before the
/// residual is added.
Tensor conv2d_with_end(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options,
                       const Tensor& residual, ImageActivation activation, PackedWeight& packed);

}  // namespace tern::detail
