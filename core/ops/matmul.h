#pragma once

#include "tern/core/tensor.h"

namespace tern {

/// Matrix product by PyTorch's rules: [m, k] x [k, n], [k] as a row or column, leading dimensions broadcast. Twice
/// differentiable. Autocast: low precision.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace tern
