#pragma once

#include <functional>

#include "tern/core/ops/pointwise/pointwise.h"
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

  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return steps(input).result(); });
  }
  /// forward(x), for more steps.
  RowChain chain(const Tensor& x) const { return has_hooks() ? RowChain(forward(x)) : steps(x); }

 private:
  RowChain steps(const Tensor& x) const {
    RowChain chain(x);
    lin1_.append_to(chain, activation_);
    lin2_.append_to(chain);
    return chain;
  }

  Activation activation_;
  Linear lin1_, lin2_;
};

struct GLUOptions {
  int dim = -1;
  std::function<Tensor(const Tensor&)> gate = tern::sigmoid;  // relu, gelu, silu: ReGLU, GEGLU, SwiGLU
};

/// The first half of x along dim, times gate(the second half): the gated linear unit (Dauphin et al., arXiv:1612.08083)
/// and its variants (Shazeer, arXiv:2002.05202).
class GLU final : public Module {
 public:
  explicit GLU(const Scope& s, const GLUOptions& options = {});
  Tensor forward(const Tensor& x) const;

 private:
  int dim_;
  std::function<Tensor(const Tensor&)> gate_;
};

struct GatedFeedForwardOptions {
  // activation(gate) * up; another than silu: [](const Tensor& gate, const Tensor& up) { return gelu(gate) * up; }
  std::function<Tensor(const Tensor& gate, const Tensor& up)> gating = tern::swiglu;
  LinearOptions linear = {.bias = false};  // of all three layers
};

/// The feed-forward part of LLaMA and its relatives: down_proj(gating(gate_proj(x), up_proj(x))), by default SwiGLU
/// (Shazeer, arXiv:2002.05202). x: [..., width]. The parameters have Hugging Face's names.
class GatedFeedForward final : public Module {
 public:
  GatedFeedForward(const Scope& s, int64_t width, int64_t hidden, const GatedFeedForwardOptions& options = {});
  Tensor forward(const Tensor& x) const;

 private:
  std::function<Tensor(const Tensor&, const Tensor&)> gating_;
  Linear gate_proj_, up_proj_, down_proj_;
};

}  // namespace tern::nn
