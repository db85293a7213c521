#include "tern/nn/layers/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tern/core/autograd/checkpoint.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {

BatchNorm::BatchNorm(const Scope& s, int dims, int64_t channels, const BatchNormLayerOptions& options)
    : Module(s), dims_(dims), channels_(channels), options_(options) {
  TERN_CHECK(channels > 0, "nn::BatchNorm: channels must be > 0, got ", channels);
  TERN_CHECK(options.eps >= 0 && std::isfinite(options.eps), "nn::BatchNorm: eps must be a finite number >= 0, got ",
             options.eps);
  TERN_CHECK(!options.momentum || (*options.momentum >= 0 && *options.momentum <= 1),
             "nn::BatchNorm: momentum must be between 0 and 1, or empty for the mean over all batches, got ",
             options.momentum.value_or(0));
  if (options.affine) {
    weight_.emplace(this, "weight", Shape{channels}, init::ones());
    bias_.emplace(this, "bias", Shape{channels});
  }
  if (options.track_running_stats) {
    const TensorOptions numbers{dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, device()};
    mean_.emplace(this, "running_mean", zeros({channels}, numbers));
    variance_.emplace(this, "running_var", ones({channels}, numbers));
    batches_.emplace(this, "num_batches_tracked", zeros(Shape{}, {DType::kInt64, device()}));
  }
}

void BatchNorm::copy_own_from(const Module& source) { ranks_ = static_cast<const BatchNorm&>(source).ranks_; }

Tensor BatchNorm::forward(const Tensor& input, ImageActivation activation, const Tensor& residual) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& x) {
    TERN_CHECK(x.dim() == dims_ + 2 || (dims_ == 1 && x.dim() == 2), "nn::BatchNorm", dims_, "d: x must have ",
               dims_ + 2, " dimensions", dims_ == 1 ? " or 2" : "", ", the second of which are the channels, got ",
               x.shape());
    TERN_CHECK(x.size(1) == channels_, "nn::BatchNorm", dims_, "d: made for ", channels_, " channels, got x ",
               x.shape());
    BatchNormOptions options{
        .training = is_training(), .eps = options_.eps, .activation = activation, .ranks = ranks_ ? &*ranks_ : nullptr};
    if (is_training() && batches_) {
      Tensor batches = batches_->tensor();
      if (!tern::detail::is_recomputing()) {
        NoGrad off;
        batches.add_(1);
      }
      options.momentum = options_.momentum ? *options_.momentum : 1 / static_cast<double>(batches.item<int64_t>());
    }
    return batch_norm(x, running_mean(), running_var(), weight(), bias(), options, residual);
  });
}

void train_except_frozen_norms(Module& module) {
  module.train();
  module.apply([](Module& part) {
    if (dynamic_cast<const BatchNorm*>(&part) == nullptr) return;
    const std::vector<NamedTensor> parameters = part.parameters();
    const bool frozen = std::none_of(parameters.begin(), parameters.end(),
                                     [](const NamedTensor& p) { return p.tensor.requires_grad(); });
    if (frozen && !parameters.empty()) part.eval();
  });
}

}  // namespace tern::nn
