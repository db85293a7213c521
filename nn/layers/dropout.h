#pragma once

#include "tern/core/ops/dropout.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// In training zeroes elements with probability p and scales the others by 1 / (1 - p); in evaluation returns x.
class Dropout final : public Module {
 public:
  Dropout(const Scope& s, double p);

  /// row_keys: see DropoutOptions.
  Tensor forward(const Tensor& x, const Tensor& row_keys = {}) const;
  /// This layer as an argument of a fused op: p is 0 in evaluation.
  DropoutOptions options(const Tensor& row_keys = {}) const;

 private:
  double p_;
};

/// In training tern::feature_dropout, which zeroes whole channels of [batch, channels, ...]; in evaluation returns x.
/// For PyTorch's Dropout1d, Dropout2d and Dropout3d.
class FeatureDropout final : public Module {
 public:
  explicit FeatureDropout(const Scope& s, double p = 0.5);

  Tensor forward(const Tensor& x) const;

 private:
  double p_;
};

/// In training tern::alpha_dropout, for networks of SELU; in evaluation returns x.
class AlphaDropout final : public Module {
 public:
  explicit AlphaDropout(const Scope& s, double p = 0.5);

  Tensor forward(const Tensor& x) const;

 private:
  double p_;
};

/// Stochastic depth (Huang et al., arXiv:1603.09382): in training zeroes whole samples, the entries of dimension 0,
/// with probability p and scales the others by 1 / (1 - p); in evaluation returns x. For the branch of a residual sum.
class DropPath final : public Module {
 public:
  DropPath(const Scope& s, double p);

  Tensor forward(const Tensor& x) const;

 private:
  double p_;
};

}  // namespace tern::nn
