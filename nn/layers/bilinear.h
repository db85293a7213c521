#pragma once

#include <optional>

#include "tern/nn/module.h"

namespace tern::nn {

/// y[o] = x1 weight[o] x2^T + bias[o]. x1: [..., in1], x2: [..., in2] with the same leading dimensions; result
/// [..., out]. Initial values: uniform within 1 / sqrt(in1), as in PyTorch.
class Bilinear final : public Module {
 public:
  Bilinear(const Scope& s, int64_t in1, int64_t in2, int64_t out, bool bias = true);

  Tensor forward(const Tensor& x1, const Tensor& x2) const;

  const Parameter& weight() const { return weight_; }
  /// Undefined without bias.
  Tensor bias() const { return bias_ ? bias_->tensor() : Tensor(); }

 private:
  int64_t in1_, in2_, out_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace tern::nn
