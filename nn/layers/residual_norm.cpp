#include "tern/nn/layers/residual_norm.h"

#include "tern/core/autograd/grad_mode.h"

namespace tern::nn {
namespace {

SumAndNorm norm_after(const Tensor& result, const SublayerEnd& end) {
  if (end.gives_sum) return end.norm.forward_with_sum(result, end.residual, end.dropout);
  return {{}, end.norm.forward(result, end.residual, end.dropout)};
}

ResidualNorm of_op(const SublayerEnd& end) {
  return {.residual = end.residual,
          .weight = end.norm.weight(),
          .bias = end.norm.bias(),
          .eps = end.norm.eps(),
          .dropout = end.dropout,
          .gives_sum = end.gives_sum};
}

}  // namespace

// With gradients each layer has its own place in a profile.

SumAndNorm linear_residual_norm(const Tensor& x, const Linear& layer, const SublayerEnd& end) {
  if (grad_enabled()) return norm_after(layer.forward(x), end);
  return tern::linear_residual_norm(x, layer.weight(), layer.bias_or_none(), of_op(end));
}

SumAndNorm feed_forward_residual_norm(const Tensor& x, const Linear& first, Activation activation, const Linear& second,
                                      const SublayerEnd& end) {
  if (grad_enabled()) return norm_after(feed_forward(x, first, activation, second), end);
  return tern::feed_forward_residual_norm(x, first.weight(), first.bias_or_none(), activation, second.weight(),
                                          second.bias_or_none(), of_op(end));
}

}  // namespace tern::nn
