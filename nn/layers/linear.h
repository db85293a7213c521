#pragma once

#include <optional>

#include "tern/core/ops/linear.h"
#include "tern/nn/module.h"

namespace tern::nn {

struct LinearOptions {
  bool bias = true;
  Initializer weight_init = {};       // torch.nn.Linear's, uniform within 1 / sqrt(in), unless given
  Initializer bias_init = {};         // the same unless given
  std::optional<Shared> weight = {};  // ties the weight: {.weight = share(embedding.weight())}
};

/// y = activation(x weight^T + bias). x: [..., in], weight: [out, in], bias: [out].
class Linear final : public Module {
 public:
  Linear(const Scope& s, int64_t in, int64_t out, const LinearOptions& options = {});

  Tensor forward(const Tensor& x, Activation activation = Activation::kNone) const;

  const Parameter& weight() const { return weight_; }
  const std::optional<Parameter>& bias() const { return bias_; }
  /// The bias, or an undefined tensor: what ops take.
  Tensor bias_or_none() const { return bias_ ? bias_->tensor() : Tensor(); }

 private:
  Parameter weight_;
  std::optional<Parameter> bias_;
};

/// second.forward(first.forward(x, activation)), with the same bits; without gradients in one pass, see
/// tern::feed_forward.
Tensor feed_forward(const Tensor& x, const Linear& first, Activation activation, const Linear& second);

}  // namespace tern::nn
