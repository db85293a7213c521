#pragma once

#include "tern/nn/nn.h"

namespace tern {

/// Two layers with a fused dropout + residual + norm, and five classes.
class SmallNet final : public nn::Module {
 public:
  SmallNet(const nn::Scope& s, int64_t width, int64_t hidden)
      : Module(s),
        lin1_(sub("lin1"), width, hidden),
        lin2_(sub("lin2"), hidden, width),
        norm_(sub("norm"), width),
        head_(sub("head"), width, 5) {}
  Tensor forward(const Tensor& x) const {
    const DropoutOptions dropout{.p = 0.25, .generator = &generator()};
    return head_.forward(norm_.forward(lin2_.forward(lin1_.forward(x, Activation::kGelu)), x, dropout));
  }

 private:
  nn::Linear lin1_, lin2_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

}  // namespace tern
