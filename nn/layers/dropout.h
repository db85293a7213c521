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

/// In training tern::stochastic_depth, which zeroes whole samples, the entries of dimension 0, or the batch; in
/// evaluation returns x. For the branch of a residual sum. torchvision.ops.StochasticDepth.
class DropPath final : public Module {
 public:
  DropPath(const Scope& s, double p, StochasticDepthMode mode = StochasticDepthMode::kRow);

  Tensor forward(const Tensor& x) const;

 private:
  double p_;
  StochasticDepthMode mode_;
};

/// What DropBlock2d and DropBlock3d share: in training tern::drop_block2d or drop_block3d; in evaluation returns x.
class DropBlock : public Module {
 public:
  Tensor forward(const Tensor& x) const;

 protected:
  DropBlock(const Scope& s, int dims, double p, int64_t block_size);

 private:
  int dims_;
  double p_;
  int64_t block_size_;
};
/// torchvision.ops.DropBlock2d.
class DropBlock2d final : public DropBlock {
 public:
  DropBlock2d(const Scope& s, double p, int64_t block_size) : DropBlock(s, 2, p, block_size) {}
};
class DropBlock3d final : public DropBlock {
 public:
  DropBlock3d(const Scope& s, double p, int64_t block_size) : DropBlock(s, 3, p, block_size) {}
};

}  // namespace tern::nn
