#pragma once

#include "tern/core/tensor.h"

namespace tern {

/// Softmax over dimension dim; 16-bit inputs are computed in fp32 and keep their storage type.
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace tern
