#pragma once

#include "tern/core/tensor.h"

namespace tern {

/// How grid_sample computes the value at a place: linear in each spatial dimension (PyTorch's "bilinear"), that of the
/// nearest pixel, or cubic in both (two dimensions, A = -0.75).
enum class GridSampleMode : uint8_t { kLinear, kNearest, kCubic };
/// What lies outside of an image: zeros, the nearest pixel of its border, or its reflection.
enum class GridPadding : uint8_t { kZeros, kBorder, kReflection };

struct GridSampleOptions {
  GridSampleMode mode = GridSampleMode::kLinear;
  GridPadding padding = GridPadding::kZeros;
  bool align_corners = false;  // -1 and 1 are the centres of the corner pixels, not their outer edges
};
/// Images at the places of a grid, as torch.nn.functional.grid_sample. x: floating [batch, channels, height, width] or
/// [batch, channels, depth, height, width]; grid: floating [batch, out..., 2 or 3], places (x, y) or (x, y, z) in
/// [-1, 1] from one end of the image to the other; a place that is not finite lies outside. Result: [batch, channels,
/// out...], with channels last in memory if x has them so. Made of ops: differentiable any number of times by both.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

/// The grid of an affine map, for grid_sample (torch.nn.functional.affine_grid). theta: floating [batch, 2, 3] for size
/// [batch, channels, height, width], which gives [batch, height, width, 2]; or [batch, 3, 4] and a depth.
Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners = false);

}  // namespace tern
