#pragma once

#include "tern/core/autograd/captured_step.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"

namespace tern {

/// Two layers with a fused dropout + residual + norm, and five classes.
class SmallNet final : public nn::Module {
 public:
  SmallNet(const nn::Scope& s, int64_t width, int64_t hidden)
      : Module(s),
        lin1_(sub("lin1"), width, hidden),
        lin2_(sub("lin2"), hidden, width),
        norm_(sub("norm"), width),
        head_(sub("head"), width, 5) {}
  Tensor forward(const Tensor& x) const {
    const DropoutOptions dropout{.p = 0.25, .generator = &generator()};
    return head_.forward(norm_.forward(lin2_.forward(lin1_.forward(x, Activation::kGelu)), x, dropout));
  }

 private:
  nn::Linear lin1_, lin2_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

/// One update with gradients of norm 0.5 at most; what is not finite is skipped with a scaler and without.
inline optim::StepResult update(optim::Optimizer& optimizer, optim::GradScaler& scaler) {
  optim::StepResult result;
  if (scaler.enabled()) {
    scaler.clip_grad_norm(optimizer, 0.5);
    result = scaler.step(optimizer);
    scaler.update();
  } else {
    result = optimizer.step({.max_norm = 0.5, .skip_non_finite = true});
  }
  optimizer.zero_grad();
  return result;
}

/// The losses of four steps with gradients of norm 0.5 at most; the last two are replays.
inline std::vector<double> four_steps(const SmallNet& net, optim::Optimizer& optimizer, Device device, uint64_t seed) {
  CapturedStep step(
      [&](const std::vector<Tensor>& batch) {
        const Tensor loss = mean(mul(net.forward(batch[0]), batch[1]));
        loss.backward();
        optimizer.step({.max_norm = 0.5, .skip_non_finite = true});
        optimizer.zero_grad();
        return std::vector<Tensor>{loss.detach()};
      },
      {.warmup = 2});
  std::vector<double> losses;
  for (uint64_t i = 0; i < 4; ++i) {
    Generator generator(seed + 10 * i);
    const Tensor x = randn({6, 7}, generator), y = randn({6, 5}, generator);
    losses.push_back(step({x.to(device), y.to(device)})[0].item<double>());
  }
  return losses;
}

}  // namespace tern
