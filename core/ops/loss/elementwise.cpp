// The losses that are made of element-wise ops and reductions.

#include <cmath>
#include <numbers>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/indexing.h"
#include "tern/core/ops/loss/loss.h"
#include "tern/core/ops/pointwise/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/vector_norm.h"
#include "tern/core/ops/sort/sort.h"

namespace tern {
namespace {

Tensor reduce_losses(const Tensor& losses, LossReduction reduction) {
  if (reduction == LossReduction::kNone) return losses;
  return reduction == LossReduction::kSum ? sum(losses) : mean(losses);
}

/// A loss's two inputs, in the type in which it is computed. Throws Error unless the first is floating and their shapes
/// are equal.
struct Pair {
  Tensor x, target;
};
Pair checked_pair(const char* op, const Tensor& x, const Tensor& target) {
  TERN_CHECK(is_floating(x.dtype()), op, ": expected a floating prediction, got ", x.describe());
  TERN_CHECK(x.shape() == target.shape(), op, ": prediction is ", x.shape(), ", target ", target.shape(),
             "; they must have one shape: reshape or expand one of them");
  detail::check_one_device(op, {&x, &target});
  Pair pair{x, is_floating(target.dtype()) ? target : target.to(x.dtype())};
  detail::autocast_inputs("loss", {&pair.x, &pair.target});
  return pair;
}

/// max(0, x).
Tensor hinge(const Tensor& x) { return clamp(x, 0, INFINITY); }

Tensor weighted(const Tensor& losses, const Tensor& weight) { return weight.defined() ? losses * weight : losses; }

/// -(t log p + (1 - t) log(1 - p)) of p = sigmoid(x).
Tensor logit_losses(const Tensor& x, const Tensor& target, const Tensor& pos_weight) {
  const Tensor log_p = logsigmoid(x);
  if (!pos_weight.defined()) return (1.0 - target) * x - log_p;
  return (1.0 - target) * x - ((pos_weight - 1.0) * target + 1.0) * log_p;
}

// The derivatives of binary cross entropy at p = 0 and 1 are PyTorch's: those of the logarithms would be infinite, or
// NaN where they are multiplied by 0.

/// p (1 - p), not less than 1e-12.
Tensor bounded_variance(const Tensor& p) { return clamp(p * (1.0 - p), 1e-12, INFINITY); }
Tensor bounded_log(const Tensor& p) { return clamp(log(p), -100, INFINITY); }
Tensor bounded_log_of_rest(const Tensor& p) { return clamp(log1p(neg(p)), -100, INFINITY); }

/// dy times the derivative by p.
struct BceSlope final : Function<BceSlope> {
  static constexpr const char* kName = "binary_cross_entropy_backward";
  static constexpr bool kTwiceDifferentiable = true;
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
struct BceTargetSlope final : Function<BceTargetSlope> {
  static constexpr const char* kName = "binary_cross_entropy_backward";
  static constexpr bool kTwiceDifferentiable = true;
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

struct BinaryCrossEntropy final : Function<BinaryCrossEntropy> {
  static constexpr const char* kName = "binary_cross_entropy";
  static constexpr bool kTwiceDifferentiable = true;
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

/// x [rows, classes] or [classes], and its targets, as rows; one_per_row: a row has one target, otherwise one per
/// class.
struct ClassRows {
  Tensor x, targets;
};
ClassRows class_rows(const char* op, const Tensor& x, const Tensor& targets, bool one_per_row) {
  TERN_CHECK(is_floating(x.dtype()) && (x.dim() == 1 || x.dim() == 2) && x.size(-1) > 0, op,
             ": expected floating [rows, classes] or [classes], got ", x.describe());
  const Shape expected = one_per_row ? x.shape().without(x.dim() - 1) : x.shape();
  TERN_CHECK(targets.dtype() == DType::kInt64 && targets.shape() == expected, op, ": targets must be int64 ", expected,
             ", got ", targets.describe());
  ClassRows rows{x.dim() == 1 ? x.unsqueeze(0) : x, x.dim() == 1 ? targets.unsqueeze(0) : targets};
  detail::autocast_inputs("loss", {&rows.x});
  return rows;
}

}  // namespace

Tensor multi_margin_loss(const Tensor& input, const Tensor& given, const MultiMarginOptions& options) {
  constexpr const char* kName = "multi_margin_loss";
  TERN_CHECK(options.p == 1 || options.p == 2, kName, ": p must be 1 or 2, got ", options.p);
  const auto [x, targets] = class_rows(kName, input, given, true);
  const int64_t classes = x.size(1);
  const Tensor index = targets.unsqueeze(1);
  const Tensor above = relu(options.margin - gather(x, 1, index) + x);
  Tensor terms = options.p == 2 ? square(above) : above;
  if (options.weight.defined()) {
    TERN_CHECK(options.weight.dim() == 1 && options.weight.size(0) == classes, kName, ": weight must be [", classes,
               "], got ", options.weight.shape());
    terms = terms * index_select(options.weight.detach().to(x.dtype()), 0, targets).unsqueeze(1);
  }
  const Tensor of_target = eq(arange(0, static_cast<double>(classes), 1, targets.options()), index);
  const Tensor losses = sum(where(of_target, 0.0, terms), {1}) / static_cast<double>(classes);
  return reduce_losses(input.dim() == 1 ? losses.squeeze(0) : losses, options.reduction);
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& given, LossReduction reduction) {
  const auto [x, targets] = class_rows("multilabel_margin_loss", input, given, false);
  const Tensor is_label = cumsum(targets == -1.0, 1) == 0.0, labels = where(is_label, targets, 0.0);
  const Tensor no_label = scatter_add(zeros_like(labels), 1, labels, is_label.to(DType::kInt64)) == 0.0;
  const Tensor above = relu(1.0 - gather(x, 1, labels).unsqueeze(2) + x.unsqueeze(1));  // [rows, labels, classes]
  const Tensor terms = where(logical_and(is_label.unsqueeze(2), no_label.unsqueeze(1)), above, 0.0);
  const Tensor losses = sum(terms, {1, 2}) / static_cast<double>(x.size(1));
  return reduce_losses(input.dim() == 1 ? losses.squeeze(0) : losses, reduction);
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultilabelSoftMarginOptions& options) {
  const auto [x, t] = checked_pair("multilabel_soft_margin_loss", input, target);
  TERN_CHECK(x.dim() >= 1, "multilabel_soft_margin_loss: expected [..., labels], got ", x.shape());
  return reduce_losses(mean(weighted(logit_losses(x, t, {}), options.weight), {-1}), options.reduction);
}

Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& target, const BceOptions& options) {
  TERN_CHECK(!autocast_enabled(probabilities.device()),
             "binary_cross_entropy: unsafe in an autocast region; use binary_cross_entropy_with_logits");
  const auto [p, t] = checked_pair("binary_cross_entropy", probabilities, target);
  return reduce_losses(weighted(BinaryCrossEntropy::apply(p, t), options.weight), options.reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BceWithLogitsOptions& options) {
  const auto [x, t] = checked_pair("binary_cross_entropy_with_logits", logits, target);
  return reduce_losses(weighted(logit_losses(x, t, options.pos_weight), options.weight), options.reduction);
}

Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options) {
  const auto [x, t] = checked_pair("sigmoid_focal_loss", logits, target);
  const Tensor p = sigmoid(x), others = p + t - 2.0 * (p * t);  // 1 - p of the true label
  Tensor losses = logit_losses(x, t, {}) * pow(others, options.gamma);
  if (options.alpha >= 0) losses = losses * (t * (2 * options.alpha - 1) + (1 - options.alpha));
  return reduce_losses(losses, options.reduction);
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction) {
  const auto [x, t] = checked_pair("mse_loss", prediction, target);
  return reduce_losses(pointwise(kernels::SquaredDifference{}, x, t), reduction);
}

Tensor l1_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction) {
  const auto [x, t] = checked_pair("l1_loss", prediction, target);
  return reduce_losses(abs(x - t), reduction);
}

Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, LossReduction reduction) {
  TERN_CHECK(beta >= 0, "smooth_l1_loss: beta must be >= 0, got ", beta);
  const auto [x, t] = checked_pair("smooth_l1_loss", prediction, target);
  if (beta == 0) return reduce_losses(abs(x - t), reduction);
  return reduce_losses(pointwise(kernels::Huber{beta}, x, t), reduction) / beta;
}

Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta, LossReduction reduction) {
  TERN_CHECK(delta > 0, "huber_loss: delta must be > 0, got ", delta);
  const auto [x, t] = checked_pair("huber_loss", prediction, target);
  return reduce_losses(pointwise(kernels::Huber{delta}, x, t), reduction);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllOptions& options) {
  const auto [x, t] = checked_pair("poisson_nll_loss", input, target);
  Tensor losses = options.log_input ? exp(x) - t * x : x - t * log(x + options.eps);
  if (options.full) {
    const Tensor is_large = t > 1.0, large = where(is_large, t, 1.0);
    const Tensor stirling = large * log(large) - large + 0.5 * log(large * (2 * std::numbers::pi));
    losses = losses + where(is_large, stirling, 0.0);
  }
  return reduce_losses(losses, options.reduction);
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         const GaussianNllOptions& options) {
  TERN_CHECK(options.eps > 0, "gaussian_nll_loss: eps must be > 0, got ", options.eps);
  const auto [x, t] = checked_pair("gaussian_nll_loss", input, target);
  Tensor v = variance;
  detail::autocast_inputs("loss", {&v});
  // PyTorch's rule, also where [n] would broadcast to [n, n] as a row.
  if (v.defined() && x.dim() > 0 && v.shape() == x.shape().without(-1)) v = v.unsqueeze(-1);
  TERN_CHECK(v.defined() && broadcasts_to(v.shape(), x.shape()), "gaussian_nll_loss: the variance is ", v.describe(),
             ", which does not broadcast to the prediction's ", x.shape());
  TERN_CHECK(!any(v.detach() < 0.0).item<bool>(), "gaussian_nll_loss: the variance has negative elements");
  v = v + (clamp(v.detach(), options.eps, INFINITY) - v.detach());
  Tensor losses = 0.5 * (log(v) + square(x - t) / v);
  if (options.full) losses = losses + 0.5 * std::log(2 * std::numbers::pi);
  return reduce_losses(losses, options.reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options) {
  const auto [x, t] = checked_pair("kl_div", input, target);
  Tensor losses;
  if (options.log_target) {
    losses = exp(t) * (t - x);
  } else {
    const Tensor is_zero = t == 0.0;
    losses = where(is_zero, 0.0, t * (log(where(is_zero, 1.0, t)) - x));
  }
  if (!options.batch_mean) return reduce_losses(losses, options.reduction);
  return sum(losses) / static_cast<double>(losses.dim() == 0 ? 1 : losses.size(0));
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             const CosineEmbeddingOptions& options) {
  const auto [x, y] = checked_pair("cosine_embedding_loss", a, b);
  TERN_CHECK(x.dim() >= 1 && target.shape() == x.shape().without(x.dim() - 1),
             "cosine_embedding_loss: the target of vectors ", x.shape(),
             " must have their shape without the last "
             "dimension, got ",
             target.shape());
  const auto squares = [](const Tensor& of) { return sum(square(of), {-1}) + 1e-12; };
  const Tensor cosine = sum(x * y, {-1}) / sqrt(squares(x) * squares(y));
  const Tensor apart = where(target == -1.0, hinge(cosine - options.margin), 0.0);
  return reduce_losses(where(target == 1.0, 1.0 - cosine, apart), options.reduction);
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, const MarginOptions& options) {
  Tensor x = a, y = b, t = target;
  detail::autocast_inputs("loss", {&x, &y, &t});
  return reduce_losses(hinge(options.margin - t * (x - y)), options.reduction);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, const MarginOptions& options) {
  const auto [x, t] = checked_pair("hinge_embedding_loss", input, target);
  const Tensor apart = where(t == 1.0, 0.0, hinge(options.margin - x));
  return reduce_losses(apart + where(t == -1.0, 0.0, x), options.reduction);
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, LossReduction reduction) {
  const auto [x, t] = checked_pair("soft_margin_loss", input, target);
  return reduce_losses(softplus(neg(t * x)), reduction);
}

namespace {
Tensor triplet_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                    const DistanceFunction& distance, const TripletMarginOptions& options) {
  const Tensor to_positive = distance(anchor, positive);
  Tensor to_negative = distance(anchor, negative);
  if (options.swap) to_negative = minimum(to_negative, distance(positive, negative));
  return reduce_losses(hinge(to_positive - to_negative + options.margin), options.reduction);
}
}  // namespace

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options) {
  const auto [a, p] = checked_pair("triplet_margin_loss", anchor, positive);
  const Tensor n = checked_pair("triplet_margin_loss", anchor, negative).target;
  const auto distance = [&](const Tensor& x, const Tensor& y) {
    return pairwise_distance(x, y, options.p, options.eps);
  };
  return triplet_loss(a, p, n, distance, options);
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const DistanceFunction& distance, const TripletMarginOptions& options) {
  constexpr const char* kName = "triplet_margin_with_distance_loss";
  TERN_CHECK(options.margin > 0, kName, ": the margin must be above 0, got ", options.margin);
  const auto pairwise = [](const Tensor& x, const Tensor& y) { return pairwise_distance(x, y); };
  return triplet_loss(anchor, positive, negative, distance ? distance : DistanceFunction(pairwise), options);
}

}  // namespace tern
