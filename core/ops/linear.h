#pragma once

#include "tern/core/tensor.h"
#include "tern/kernels/gemm.h"

namespace tern {

using kernels::Activation;

/// activation(x weight^T + bias). x: [..., in], weight: [out, in], bias: [out] or undefined; result [..., out]. Bias
/// and activation run inside the product's pass over memory. Autocast: low precision.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              Activation activation = Activation::kNone);

}  // namespace tern
