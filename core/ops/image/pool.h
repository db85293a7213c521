#pragma once

#include <optional>

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/tensor.h"

namespace tern {

// Pooling of images as in torch.nn.functional. x: floating [batch, channels, spatial...] or [channels, spatial...]. The
// result has (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1 elements in each spatial dimension, and its
// channels last in memory (Tensor::channels_last). Differentiable any number of times. Error where a window is larger
// than the padded image, or the padding than half of the window.

struct MaxPoolOptions {
  std::optional<SpatialSizes> stride = {};  // the kernel, if it is not given
  SpatialSizes padding = 0, dilation = 1;
  bool ceil_mode = false;  // rounds the size up: a last window may lie partly outside, as may the only one
};
struct MaxPoolResult {
  Tensor values;
  Tensor indices;  // int64, of each value in its image: row-major over the spatial dimensions; -1: of none
};
/// The largest of each window; NaN where it holds one. Of equal ones the first has the gradient. A window all of whose
/// elements lie in the padding (with a dilation) gives -inf and the index -1, and its gradient goes nowhere.
Tensor max_pool1d(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options = {});
Tensor max_pool2d(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options = {});
Tensor max_pool3d(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options = {});
MaxPoolResult max_pool1d_with_indices(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options = {});
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options = {});
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options = {});

struct AvgPoolOptions {
  std::optional<SpatialSizes> stride = {};  // the kernel, if it is not given
  SpatialSizes padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  // the zeros of the padding count as elements of the mean
  int64_t divisor_override = 0;   // what sums are divided by, if it is not 0
};
/// The mean of each window.
Tensor avg_pool1d(const Tensor& x, const SpatialSizes& kernel, const AvgPoolOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const SpatialSizes& kernel, const AvgPoolOptions& options = {});
Tensor avg_pool3d(const Tensor& x, const SpatialSizes& kernel, const AvgPoolOptions& options = {});

/// Pooling to a given size: output o of a dimension reads inputs floor(o in / out) to ceil((o + 1) in / out) - 1. A
/// size of -1 keeps the input's.
Tensor adaptive_avg_pool1d(const Tensor& x, const SpatialSizes& size);
Tensor adaptive_avg_pool2d(const Tensor& x, const SpatialSizes& size);
Tensor adaptive_avg_pool3d(const Tensor& x, const SpatialSizes& size);
Tensor adaptive_max_pool1d(const Tensor& x, const SpatialSizes& size);
Tensor adaptive_max_pool2d(const Tensor& x, const SpatialSizes& size);
Tensor adaptive_max_pool3d(const Tensor& x, const SpatialSizes& size);

struct LpPoolOptions {
  std::optional<SpatialSizes> stride = {};  // the kernel, if it is not given
  bool ceil_mode = false;
};
/// (the sum of x^power over each window)^(1 / power), without absolute values (torch.nn.functional.lp_pool2d).
Tensor lp_pool1d(const Tensor& x, double power, const SpatialSizes& kernel, const LpPoolOptions& options = {});
Tensor lp_pool2d(const Tensor& x, double power, const SpatialSizes& kernel, const LpPoolOptions& options = {});
Tensor lp_pool3d(const Tensor& x, double power, const SpatialSizes& kernel, const LpPoolOptions& options = {});

}  // namespace tern
