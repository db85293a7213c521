#pragma once

#include <optional>

#include "tern/core/ops/row_chain.h"
#include "tern/nn/module.h"

namespace tern::nn {

struct LayerNormOptions {
  double eps = 1e-5;   // BERT's family uses 1e-12
  bool affine = true;  // weight and bias
};

/// Layer normalisation over the last dimension, of size `width` (Ba et al., arXiv:1607.06450).
class LayerNorm final : public Module {
 public:
  LayerNorm(const Scope& s, int64_t width, const LayerNormOptions& options = {});

  /// The norm of x or, with a residual, of residual + dropout(x), fused: the end of a transformer's sub-layer.
  Tensor forward(const Tensor& x, const Tensor& residual = {}, const DropoutOptions& dropout = {}) const;
  /// The rows of `chain` added to the residual, and the norm of that sum, which comes back undefined unless it is
  /// wanted.
  SumAndNorm end(RowChain& chain, const Tensor& residual, const DropoutOptions& dropout, bool gives_sum) const;

  /// Undefined without `affine`.
  Tensor weight() const { return weight_ ? weight_->tensor() : Tensor(); }
  Tensor bias() const { return bias_ ? bias_->tensor() : Tensor(); }

 private:
  void check_width(const Tensor& x) const;

  int64_t width_;
  double eps_;
  std::optional<Parameter> weight_, bias_;
};

}  // namespace tern::nn
