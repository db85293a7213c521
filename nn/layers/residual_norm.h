#pragma once

#include "tern/core/ops/residual_norm.h"
#include "tern/nn/layers/layer_norm.h"
#include "tern/nn/layers/linear.h"

namespace tern::nn {

/// How a transformer's sub-layer ends: norm(residual + dropout(result)).
struct SublayerEnd {
  const LayerNorm& norm;
  Tensor residual;
  DropoutOptions dropout = {};
  bool gives_sum = true;  // false: the sum is not wanted and comes back undefined
};

/// layer.forward(x) and what ends the sub-layer, with the same bits; without gradients in one pass where that pays, see
/// tern::linear_residual_norm.
SumAndNorm linear_residual_norm(const Tensor& x, const Linear& layer, const SublayerEnd& end);

/// The same after feed_forward(x, first, activation, second).
SumAndNorm feed_forward_residual_norm(const Tensor& x, const Linear& first, Activation activation, const Linear& second,
                                      const SublayerEnd& end);

}  // namespace tern::nn
