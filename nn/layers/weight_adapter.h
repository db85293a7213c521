#pragma once

#include "tern/nn/layers/linear.h"

namespace tern::nn {

/// An adapter that changes nothing but the weight: of a Linear, or of a convolution.
class WeightAdapter : public LinearAdapter {
 public:
  using LinearAdapter::LinearAdapter;
  /// The weight in use, made of the layer's own.
  virtual Tensor weight(const Tensor& own) const = 0;
  Tensor forward(const Linear& linear, const Tensor& x, Activation activation) const override {
    return tern::linear(x, weight(linear.weight()), linear.bias(), activation);
  }
};

}  // namespace tern::nn
