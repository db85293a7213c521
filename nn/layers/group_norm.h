#pragma once
// Norms of images as modules, with PyTorch's names. core/ops/norm/group_norm.h defines the functions.

#include <optional>

#include "tern/core/ops/norm/group_norm.h"
#include "tern/nn/module.h"

namespace tern::nn {

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;  // weight and bias [channels]
};
/// torch.nn.GroupNorm: nn::GroupNorm(scope, groups, channels).
class GroupNorm final : public Module {
 public:
  GroupNorm(const Scope& s, int64_t groups, int64_t channels, const GroupNormOptions& options = {});
  /// x: [batch, channels, ...].
  Tensor forward(const Tensor& x) const;
  /// Undefined without `affine`.
  Tensor weight() const { return weight_ ? weight_->tensor() : Tensor(); }
  Tensor bias() const { return bias_ ? bias_->tensor() : Tensor(); }

 private:
  int64_t groups_, channels_;
  double eps_;
  std::optional<Parameter> weight_, bias_;
};

struct InstanceNormLayerOptions {
  double eps = 1e-5;
  double momentum = 0.1;             // of the new value in a running statistic
  bool affine = false;               // weight and bias [channels]
  bool track_running_stats = false;  // buffers running_mean and running_var, which evaluation uses
};
/// What InstanceNorm1d, 2d and 3d share.
class InstanceNormLayer : public Module {
 public:
  /// x: [batch, channels, spatial...] or [channels, spatial...].
  Tensor forward(const Tensor& x) const;
  /// Undefined without `affine`.
  Tensor weight() const { return weight_ ? weight_->tensor() : Tensor(); }
  Tensor bias() const { return bias_ ? bias_->tensor() : Tensor(); }
  /// Undefined without `track_running_stats`.
  Tensor running_mean() const { return mean_ ? mean_->tensor() : Tensor(); }
  Tensor running_var() const { return var_ ? var_->tensor() : Tensor(); }

 protected:
  InstanceNormLayer(const Scope& s, int dims, int64_t channels, const InstanceNormLayerOptions& options);

 private:
  int dims_;
  int64_t channels_;
  InstanceNormLayerOptions options_;
  std::optional<Parameter> weight_, bias_;
  std::optional<Buffer> mean_, var_, batches_;  // the last is of PyTorch's state and stays 0, as there
};

/// torch.nn.InstanceNorm1d: nn::InstanceNorm1d(scope, channels, {.affine = true}).
class InstanceNorm1d final : public InstanceNormLayer {
 public:
  InstanceNorm1d(const Scope& s, int64_t channels, const InstanceNormLayerOptions& options = {})
      : InstanceNormLayer(s, 1, channels, options) {}
};
class InstanceNorm2d final : public InstanceNormLayer {
 public:
  InstanceNorm2d(const Scope& s, int64_t channels, const InstanceNormLayerOptions& options = {})
      : InstanceNormLayer(s, 2, channels, options) {}
};
class InstanceNorm3d final : public InstanceNormLayer {
 public:
  InstanceNorm3d(const Scope& s, int64_t channels, const InstanceNormLayerOptions& options = {})
      : InstanceNormLayer(s, 3, channels, options) {}
};

/// torch.nn.LocalResponseNorm.
class LocalResponseNorm final : public Module {
 public:
  LocalResponseNorm(const Scope& s, int64_t size, const LocalResponseNormOptions& options = {})
      : Module(s), size_(size), options_(options) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return local_response_norm(input, size_, options_); });
  }

 private:
  int64_t size_;
  LocalResponseNormOptions options_;
};

}  // namespace tern::nn
