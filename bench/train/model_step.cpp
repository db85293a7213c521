#include "tern/bench/train/model_step.h"

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"

namespace tern::bench {

void ModelStep::prepare(nn::Module& module) {
  module.train(options_.train);
  if (options_.train)
    optimizer_ =
        std::make_unique<optim::AdamW>(module.parameters(), optim::AdamWOptions{.lr = 5e-5, .weight_decay = 0.01});
  const auto step = [this](const std::vector<Tensor>& t) {
    const std::vector<Tensor> batch(t.begin(), t.end() - 1);
    return std::vector<Tensor>{options_.train ? train(batch, t.back()) : infer(batch)};
  };
  captured_ = std::make_unique<CapturedStep>(
      step, CapturedStepOptions{.enabled = options_.capture && options_.device.is_cuda()});
}

/// Returns the loss.
Tensor ModelStep::train(const std::vector<Tensor>& batch, const Tensor& labels) {
  Tensor loss;
  {
    const ProfileRange range("forward");
    loss = autocast(options_.device, options_.dtype, [&] { return cross_entropy(logits(batch), labels); });
  }
  {
    const ProfileRange range("backward");
    loss.backward();
  }
  const ProfileRange range("optimizer");
  optimizer_->step({.max_norm = 1, .skip_non_finite = true});
  optimizer_->zero_grad();
  return loss.detach();
}

/// Returns the sum of the logits.
Tensor ModelStep::infer(const std::vector<Tensor>& batch) {
  const ProfileRange range("forward");
  NoGrad off;
  const Tensor result = autocast(options_.device, options_.dtype, [&] { return logits(batch); });
  return sum(result.to(DType::kFloat32));
}

void ModelStep::run(std::vector<Tensor> batch, const Tensor& labels) {
  batch.push_back(labels);
  for (Tensor& tensor : batch)
    if (tensor.defined()) tensor = tensor.to(options_.device);
  const double value = (*captured_)(batch)[0].item<double>();
  TERN_CHECK(std::isfinite(value), "tern-bench-train: the ", options_.train ? "loss" : "sum of the logits", " is ",
             value);
}

}  // namespace tern::bench
