#pragma once

#include "tern/core/ops/dropout.h"
#include "tern/core/tensor.h"

namespace tern {

/// Layer normalisation over the last dimension (Ba et al., arXiv:1607.06450): (x - mean) / sqrt(var + eps) * weight +
/// bias with the biased variance. weight, bias: [width] of x's dtype or fp32, each may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

/// layer_norm(residual + dropout(x)) in one pass over memory each way: the end of every transformer sub-layer.
/// residual has x's shape.
Tensor dropout_residual_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                   double eps, const DropoutOptions& dropout = {});

/// The two tensors that a sub-layer which begins with its norm hands on.
struct SumAndNorm {
  Tensor sum;   // residual + dropout(x)
  Tensor norm;  // layer_norm(sum)
};

/// dropout_residual_layer_norm that gives the sum too: the step between two sub-layers of a pre-norm transformer (Xiong
/// et al., arXiv:2002.04745), in one pass over memory each way.
SumAndNorm dropout_residual_sum_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                           const Tensor& bias, double eps, const DropoutOptions& dropout = {});

}  // namespace tern
