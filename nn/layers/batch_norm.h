#pragma once
// Batch normalisation as modules, with PyTorch's names of parameters and buffers.

#include <optional>

#include "tern/core/ops/norm/batch_norm.h"
#include "tern/nn/module.h"

namespace tern::nn {

struct BatchNormLayerOptions {
  double eps = 1e-5;
  /// Weight of a batch in the running statistics; empty: their plain mean over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;               // weight and bias
  bool track_running_stats = true;  // without: the batch's statistics in evaluation too
};

/// What BatchNorm1d, 2d and 3d share: batch_norm() of core/ops/norm/batch_norm.h. Parameters weight and bias:
/// [channels], buffers running_mean and running_var: [channels], fp32 (fp64 of an fp64 module), and
/// num_batches_tracked: an int64 scalar. In training mode forward() normalises by the batch's statistics and updates
/// the running ones.
class BatchNorm : public Module {
 public:
  /// x: [batch, channels, spatial...]; BatchNorm1d also takes [batch, channels]. activation(norm(x) + residual), in one
  /// pass; the residual, of x's shape, may be undefined.
  Tensor forward(const Tensor& x, ImageActivation activation = ImageActivation::kNone,
                 const Tensor& residual = {}) const;

  /// From now on the batches of several processes are normalised as one in training (PyTorch's SyncBatchNorm): see
  /// dist::synchronize_batch_norms.
  void synchronize(const BatchNormRanks& ranks) { ranks_ = ranks; }
  bool is_synchronized() const { return ranks_.has_value(); }

  double eps() const { return options_.eps; }
  int64_t channels() const { return channels_; }
  /// Undefined without `affine`.
  Tensor weight() const { return weight_ ? weight_->tensor() : Tensor(); }
  Tensor bias() const { return bias_ ? bias_->tensor() : Tensor(); }
  /// Undefined without `track_running_stats`.
  Tensor running_mean() const { return mean_ ? mean_->tensor() : Tensor(); }
  Tensor running_var() const { return variance_ ? variance_->tensor() : Tensor(); }
  Tensor num_batches_tracked() const { return batches_ ? batches_->tensor() : Tensor(); }

 protected:
  BatchNorm(const Scope& s, int dims, int64_t channels, const BatchNormLayerOptions& options);
  void copy_own_from(const Module& source) override;

 private:
  int dims_;  // spatial
  int64_t channels_;
  BatchNormLayerOptions options_;
  std::optional<BatchNormRanks> ranks_;
  std::optional<Parameter> weight_, bias_;
  std::optional<Buffer> mean_, variance_, batches_;
};

/// torch.nn.BatchNorm1d: nn::BatchNorm1d(scope, channels).
class BatchNorm1d final : public BatchNorm {
 public:
  BatchNorm1d(const Scope& s, int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm(s, 1, channels, options) {}
};
class BatchNorm2d final : public BatchNorm {
 public:
  BatchNorm2d(const Scope& s, int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm(s, 2, channels, options) {}
};
class BatchNorm3d final : public BatchNorm {
 public:
  BatchNorm3d(const Scope& s, int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm(s, 3, channels, options) {}
};

/// module.train(), except that batch norms whose parameters are all frozen (Module::freeze) are in evaluation mode:
/// they normalise by their running statistics, which stay as they are, like torchvision's FrozenBatchNorm2d and the
/// norms of timm.utils.freeze. A norm without parameters is in training mode.
void train_except_frozen_norms(Module& module);

}  // namespace tern::nn
