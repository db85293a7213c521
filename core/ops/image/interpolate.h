#pragma once

#include <vector>

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/tensor.h"

namespace tern {

/// How interpolate computes a pixel: that of the nearest place (kNearest as in PyTorch, rounded down; kNearestExact:
/// the nearest centre); linear in each spatial dimension (PyTorch's linear, bilinear and trilinear); cubic in both
/// (bicubic, with A = -0.75); or the mean of the pixels that fall on it (area).
enum class InterpolateMode : uint8_t { kNearest, kNearestExact, kLinear, kCubic, kArea };

struct InterpolateOptions {
  SpatialSizes size = std::vector<int64_t>{};  // of the result; or
  std::vector<double> scale_factor = {};       // for all spatial dimensions or for each
  InterpolateMode mode = InterpolateMode::kNearest;
  bool align_corners = false;           // kLinear, kCubic: the centres of the corners coincide, not their edges
  bool recompute_scale_factor = false;  // from the result's size, after that was rounded down
  bool antialias = false;               // two dimensions of kLinear, kCubic: filters as wide as a pixel of the result
};
/// Images of another size, as torch.nn.functional.interpolate: x floating [batch, channels, spatial...] with one to
/// three spatial dimensions. Channels stay last in memory if they are. Differentiable any number of times. A dimension
/// whose size a scale_factor leaves unchanged is copied in kLinear, with antialias, and in kNearest of two spatial
/// dimensions or of channels last; the others apply the factor. Error unless there is either a size or a scale_factor,
/// and where the mode does not take an option.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace tern
