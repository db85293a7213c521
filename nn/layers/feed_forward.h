#pragma once

#include "tern/nn/layers/linear.h"

namespace tern::nn {

struct FeedForwardOptions {
  Activation activation = Activation::kGelu;
  LinearOptions linear = {};  // of both layers
};

/// A transformer's feed-forward part: lin2(activation(lin1(x))) (Vaswani et al., arXiv:1706.03762). x: [..., width].
class FeedForward final : public Module {
 public:
  FeedForward(const Scope& s, int64_t width, int64_t hidden, const FeedForwardOptions& options = {})
      : Module(s),
        activation_(options.activation),
        lin1_(sub("lin1"), width, hidden, options.linear),
        lin2_(sub("lin2"), hidden, width, options.linear) {}

  Tensor forward(const Tensor& x) const { return chain(x).result(); }
  /// forward(x), for more steps.
  RowChain chain(const Tensor& x) const {
    RowChain chain(x);
    lin1_.append_to(chain, activation_);
    lin2_.append_to(chain);
    return chain;
  }

 private:
  Activation activation_;
  Linear lin1_, lin2_;
};

}  // namespace tern::nn
