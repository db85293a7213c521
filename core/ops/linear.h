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

/// linear(linear(x, weight1, bias1, activation), weight2, bias2), with the same bits. Where nothing is recorded, the
/// hidden rows are not stored on the CPU: each block of rows goes through both layers while it is in cache. x: [...,
/// in], weight1: [hidden, in], weight2: [out, hidden]; result [..., out]. Autocast: low precision.
Tensor feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1, Activation activation,
                    const Tensor& weight2, const Tensor& bias2);

/// Two layers whose weights are the rows of one before and from `cut`: first weight[:cut]^T + bias[:cut] and
/// second weight[cut:]^T + bias[cut:]. first: [rows, in], second: [other rows, in]. Autocast: low precision.
std::pair<Tensor, Tensor> linear_pair(const Tensor& first, const Tensor& second, const Tensor& weight,
                                      const Tensor& bias, int64_t cut);

}  // namespace tern
