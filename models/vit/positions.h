#pragma once

#include "tern/core/tensor.h"

namespace tern::models {

/// The matrix [to_height * to_width, from * from] that interpolates a square grid of values (row-major) to another
/// grid: bicubic (Keys' kernel with a = -0.75), pixel centres, borders repeated. Equals PyTorch's interpolate(mode =
/// "bicubic", align_corners = False), which Hugging Face's ViT uses for its position embeddings.
Tensor grid_interpolation(int64_t from, int64_t to_height, int64_t to_width);

}  // namespace tern::models
