#include "tern/core/ops/loss/binary_cross_entropy.h"

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/loss/loss_inputs.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"

namespace tern {
namespace {

Tensor weighted(const Tensor& losses, const Tensor& weight) { return weight.defined() ? losses * weight : losses; }

/// -(t log p + (1 - t) log(1 - p)) of p = sigmoid(x).
Tensor logit_losses(const Tensor& x, const Tensor& target, const Tensor& pos_weight) {
  if (!pos_weight.defined()) return pointwise(kernels::BceWithLogits{}, x, target);
  return (1.0 - target) * x - ((pos_weight - 1.0) * target + 1.0) * logsigmoid(x);
}

// The derivatives of binary cross entropy at p = 0 and 1 are PyTorch's: those of the logarithms would be infinite, or
// NaN where they are multiplied by 0.

/// p (1 - p), not less than 1e-12.
Tensor bounded_variance(const Tensor& p) { return clamp(p * (1.0 - p), 1e-12, INFINITY); }
Tensor bounded_log(const Tensor& p) { return clamp(log(p), -100, INFINITY); }
Tensor bounded_log_of_rest(const Tensor& p) { return clamp(log1p(neg(p)), -100, INFINITY); }

/// dy times the derivative by p.
struct BceSlope final : TwiceDifferentiable<BceSlope> {
  static constexpr const char* kName = "binary_cross_entropy_backward";
  Saved dy_, p_, target_;
  Tensor forward(const Tensor& dy, const Tensor& p, const Tensor& target) {
    dy_ = dy;
    p_ = p;
    target_ = target;
    return dy * (p - target) / bounded_variance(p);
  }
  Grads backward(const Tensor& g) override {
    const Tensor dy = dy_.get(), p = p_.get(), t = target_.get(), variance = bounded_variance(p);
    return {g * (p - t) / variance, g * dy * (square(p) - 2.0 * (t * p) + t) / square(variance), -(g * dy) / variance};
  }
};

/// dy times the derivative by the target.
struct BceTargetSlope final : TwiceDifferentiable<BceTargetSlope> {
  static constexpr const char* kName = "binary_cross_entropy_backward";
  Saved dy_, p_;
  Tensor forward(const Tensor& dy, const Tensor& p) {
    dy_ = dy;
    p_ = p;
    return dy * (bounded_log_of_rest(p) - bounded_log(p));
  }
  Grads backward(const Tensor& g) override {
    const Tensor dy = dy_.get(), p = p_.get();
    return {BceTargetSlope::apply(g, p), -(g * dy) / bounded_variance(p)};
  }
};

struct BinaryCrossEntropy final : TwiceDifferentiable<BinaryCrossEntropy> {
  static constexpr const char* kName = "binary_cross_entropy";
  Saved p_, target_;
  Tensor forward(const Tensor& p, const Tensor& target) {
    p_ = p;
    target_ = target;
    return (target - 1.0) * bounded_log_of_rest(p) - target * bounded_log(p);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor p = p_.get();
    return {needs_grad(0) ? BceSlope::apply(dy, p, target_.get()) : Tensor(),
            needs_grad(1) ? BceTargetSlope::apply(dy, p) : Tensor()};
  }
};

}  // namespace

Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& target, const BceOptions& options) {
  TERN_CHECK(!autocast_enabled(probabilities.device()),
             "binary_cross_entropy: unsafe in an autocast region; use binary_cross_entropy_with_logits");
  const auto [p, t] = detail::checked_pair("binary_cross_entropy", probabilities, target);
  return detail::reduce_losses(weighted(BinaryCrossEntropy::apply(p, t), options.weight), options.reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BceWithLogitsOptions& options) {
  const auto [x, t] = detail::checked_pair("binary_cross_entropy_with_logits", logits, target);
  return detail::reduce_losses(weighted(logit_losses(x, t, options.pos_weight), options.weight), options.reduction);
}

Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options) {
  const auto [x, t] = detail::checked_pair("sigmoid_focal_loss", logits, target);
  const Tensor p = sigmoid(x), others = p + t - 2.0 * (p * t);  // 1 - p of the true label
  Tensor losses = logit_losses(x, t, {}) * pow(others, options.gamma);
  if (options.alpha >= 0) losses = losses * (t * (2 * options.alpha - 1) + (1 - options.alpha));
  return detail::reduce_losses(losses, options.reduction);
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultilabelSoftMarginOptions& options) {
  const auto [x, t] = detail::checked_pair("multilabel_soft_margin_loss", input, target);
  TERN_CHECK(x.dim() >= 1, "multilabel_soft_margin_loss: expected [..., labels], got ", x.shape());
  return detail::reduce_losses(mean(weighted(logit_losses(x, t, {}), options.weight), {-1}), options.reduction);
}

}  // namespace tern
