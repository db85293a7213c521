#pragma once
// How a transformer's sub-layer ends: a layer's result is added to the residual stream, the sum is normalised.

#include "tern/core/ops/linear.h"
#include "tern/core/ops/norm.h"

namespace tern {

struct ResidualNorm {
  Tensor residual;      // what the result is added to, of its shape
  Tensor weight, bias;  // of the norm, see layer_norm; each may be undefined
  double eps = 1e-5;
  DropoutOptions dropout = {};  // of the result
  bool gives_sum = true;        // false: the sum is not wanted and comes back undefined
};

/// The end of a sub-layer whose last layer is linear(x, weight, bias), with the bits of linear and
/// dropout_residual_sum_layer_norm. Where nothing is recorded, each block of rows is normalised on the CPU while it is
/// in cache. Shapes: see linear.
SumAndNorm linear_residual_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const ResidualNorm& end);

/// The same after feed_forward(x, weight1, bias1, activation, weight2, bias2).
SumAndNorm feed_forward_residual_norm(const Tensor& x, const Tensor& weight1, const Tensor& bias1,
                                      Activation activation, const Tensor& weight2, const Tensor& bias2,
                                      const ResidualNorm& end);

}  // namespace tern
