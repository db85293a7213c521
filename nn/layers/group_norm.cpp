#include "tern/nn/layers/group_norm.h"

#include <cmath>

#include "tern/nn/init.h"

namespace tern::nn {

GroupNorm::GroupNorm(const Scope& s, int64_t groups, int64_t channels, const GroupNormOptions& options)
    : Module(s), groups_(groups), channels_(channels), eps_(options.eps) {
  TERN_CHECK(groups >= 1 && channels >= 1 && channels % groups == 0, "nn::GroupNorm: groups (", groups,
             ") must be at least 1 and divide the channels (", channels, ")");
  TERN_CHECK(eps_ >= 0 && std::isfinite(eps_), "nn::GroupNorm: eps must be a finite number >= 0, got ", eps_);
  if (!options.affine) return;
  weight_.emplace(this, "weight", Shape{channels}, init::ones());
  bias_.emplace(this, "bias", Shape{channels});
}

Tensor GroupNorm::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    TERN_CHECK(x.dim() >= 2 && x.size(1) == channels_, "nn::GroupNorm: x must be [batch, ", channels_, ", ...], got ",
               x.shape());
    return group_norm(x, groups_, weight(), bias(), eps_);
  });
}

InstanceNormLayer::InstanceNormLayer(const Scope& s, int dims, int64_t channels,
                                     const InstanceNormLayerOptions& options)
    : Module(s), dims_(dims), channels_(channels), options_(options) {
  TERN_CHECK(channels >= 1, "nn::InstanceNorm: channels must be at least 1, got ", channels);
  TERN_CHECK(options.eps >= 0 && std::isfinite(options.eps), "nn::InstanceNorm: eps must be a finite number >= 0, got ",
             options.eps);
  if (options.affine) {
    weight_.emplace(this, "weight", Shape{channels}, init::ones());
    bias_.emplace(this, "bias", Shape{channels});
  }
  if (!options.track_running_stats) return;
  const TensorOptions numbers{dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, device()};
  mean_.emplace(this, "running_mean", zeros({channels}, numbers));
  var_.emplace(this, "running_var", ones({channels}, numbers));
  batches_.emplace(this, "num_batches_tracked", zeros({}, {DType::kInt64, device()}));
}

Tensor InstanceNormLayer::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& given) {
    const bool batched = given.dim() == dims_ + 2;
    TERN_CHECK((batched || given.dim() == dims_ + 1) && given.size(-dims_ - 1) == channels_,
               "nn::InstanceNorm: x must be [batch, ", channels_, ", ", dims_,
               " spatial dimensions] or without batch, got ", given.shape());
    const Tensor x = batched ? given : given.unsqueeze(0);
    const bool tracked = mean_.has_value(), own = is_training() || !tracked;
    const Tensor y = instance_norm(x, running_mean(), running_var(), weight(), bias(),
                                   {.use_input_stats = own, .momentum = options_.momentum, .eps = options_.eps});
    return batched ? y : y.squeeze(0);
  });
}

}  // namespace tern::nn
