#pragma once

#include <utility>

#include "tern/core/tensor.h"
#include "tern/kernels/gemm.h"

namespace tern {

using kernels::Activation;

/// activation(x weight^T + bias). x: [..., in], weight: [out, in], bias: [out] or undefined; result [..., out]. Bias
/// and activation run inside the product's pass over memory. Autocast: low precision.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              Activation activation = Activation::kNone);

/// Two layers whose weights are the rows of one before and from `cut`: first weight[:cut]^T + bias[:cut] and
/// second weight[cut:]^T + bias[cut:]. first: [rows, in], second: [other rows, in]. Autocast: low precision.
std::pair<Tensor, Tensor> linear_pair(const Tensor& first, const Tensor& second, const Tensor& weight,
                                      const Tensor& bias, int64_t cut);

}  // namespace tern
