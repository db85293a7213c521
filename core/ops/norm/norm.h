#pragma once

#include <optional>

#include "tern/core/ops/dropout.h"
#include "tern/core/tensor.h"

namespace tern {

/// Layer normalisation over the last dimension (Ba et al., arXiv:1607.06450): (x - mean) / sqrt(var + eps) * weight +
/// bias with the biased variance. weight, bias: [width] of x's dtype or fp32, each may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

/// RMS normalisation over the last dimension (Zhang & Sennrich, arXiv:1910.07467): x / sqrt(mean(x^2) + eps) * weight.
/// weight: as layer_norm's. eps: unless given the epsilon of the type that it is computed in, 2^-23 for fp32 and 16-bit
/// types and 2^-52 for fp64, as in PyTorch.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, std::optional<double> eps = {});

/// layer_norm(residual + dropout(x)), with one pass over memory in forward and one in backward: the end of every
/// post-norm transformer sub-layer. residual has x's shape.
Tensor dropout_residual_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                   double eps, const DropoutOptions& dropout = {});

/// The two tensors between two sub-layers of a pre-norm transformer.
struct SumAndNorm {
  Tensor sum;   // residual + dropout(x)
  Tensor norm;  // layer_norm(sum)
};

/// dropout_residual_layer_norm that also returns the sum: the step between two sub-layers of a pre-norm transformer
/// (Xiong et al., arXiv:2002.04745), with one pass over memory in forward and one in backward.
SumAndNorm dropout_residual_sum_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                           const Tensor& bias, double eps, const DropoutOptions& dropout = {});

}  // namespace tern
