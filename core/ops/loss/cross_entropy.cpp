#include "tern/core/ops/loss/cross_entropy.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/softmax.h"
#include "tern/kernels/softmax.h"

namespace tern {
namespace {

/// Losses per row, or their mean.
struct CrossEntropy final : TwiceDifferentiable<CrossEntropy> {
  static constexpr const char* kName = "cross_entropy";
  Saved logits_, targets_, weights_, log_sum_exp_, divisor_;
  int64_t ignore_index_ = -100;
  double smoothing_ = 0;

  Tensor forward(const Tensor& logits, const Constant& target_classes, const Constant& row_weights,
                 int64_t ignore_index, double smoothing, bool mean) {
    const Tensor &targets = target_classes.tensor, &weights = row_weights.tensor;
    logits_ = logits;
    targets_ = targets;
    weights_ = weights;
    ignore_index_ = ignore_index;
    smoothing_ = smoothing;
    const TensorOptions options{logits.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, logits.device()};
    const Tensor losses = empty({logits.size(0)}, options);
    const Tensor log_sum_exp = empty({logits.size(0)}, options);
    log_sum_exp_ = log_sum_exp;
    IndexCheck check(kName, logits.device());
    kernels::cross_entropy_forward(current_stream(logits.device()), logits.view(), targets.view(), weights.view(),
                                   ignore_index, smoothing, losses.view(), log_sum_exp.view(), check.data());
    TERN_CHECK(check.passed(), "cross_entropy: ", check.found().count, " of ", logits.size(0),
               " targets are outside [0, ", logits.size(1), ") and are not the ignored index ", ignore_index);
    if (!mean) return losses;
    const Tensor loss = empty({}, options), divisor = empty({}, options);
    divisor_ = divisor;
    kernels::cross_entropy_mean(current_stream(logits.device()), losses.view(), targets.view(), weights.view(),
                                ignore_index, loss.view(), divisor.view());
    return loss;
  }

  Grads backward(const Tensor& dy) override { return grad_enabled() ? made_of_ops(dy) : by_kernel(dy); }

  /// The factor of each row's gradient: 0 for ignored rows.
  Tensor row_scale(const Tensor& dy, const Tensor& targets) {
    const Tensor scale = empty({targets.size(0)}, dy.options());
    kernels::cross_entropy_scale(current_stream(targets.device()), dy.view(), divisor_.get_or_none().view(),
                                 targets.view(), weights_.get_or_none().view(), ignore_index_, scale.view());
    return scale;
  }

  Grads made_of_ops(const Tensor& dy) {
    const Tensor logits = logits_.get(), targets = targets_.get(), zero = zeros({}, dy.options());
    const Tensor scale = row_scale(ones(dy.shape(), dy.options()), targets);
    // An ignored row gives 0 even when its logits are not finite.
    const Tensor rows = where(ne(scale, zero).unsqueeze(1), logits.to(dy.dtype()), zero);
    const Tensor classes = arange(0, static_cast<double>(logits.size(1)), 1, {DType::kInt64, logits.device()});
    const Tensor one_hot = eq(classes, targets.unsqueeze(1)).to(dy.dtype());
    const Tensor target_distribution =
        add(mul(one_hot, 1 - smoothing_), smoothing_ / static_cast<double>(logits.size(1)));
    return {mul(sub(softmax(rows), target_distribution), mul(dy, scale).unsqueeze(1))};
  }

  Grads by_kernel(const Tensor& dy) {
    const Tensor logits = logits_.get(), targets = targets_.get();
    const Tensor scale = row_scale(dy.contiguous(), targets);
    const Tensor dlogits = empty(logits.shape(), logits.options());
    kernels::cross_entropy_backward(current_stream(logits.device()), logits.view(), targets.view(),
                                    log_sum_exp_.get().view(), scale.view(), ignore_index_, smoothing_, dlogits.view());
    return {dlogits};
  }
};

/// x with the classes last, as rows: [rows, classes, d1, ...] gives [rows d1 ..., classes].
Tensor rows_of_classes(const Tensor& x) {
  const int64_t classes = x.size(1);
  return x.dim() == 2 ? x : x.flatten(2).transpose(1, 2).reshape({-1, classes});
}

/// Losses that have been weighted, and the divisor of their mean.
Tensor reduce_weighted(const Tensor& losses, const Tensor& weights, LossReduction reduction) {
  if (reduction == LossReduction::kNone) return losses;
  if (reduction == LossReduction::kSum) return sum(losses);
  const Tensor divisor = sum(weights), is_zero = divisor == 0.0;
  return where(is_zero, 0.0, sum(losses) / where(is_zero, 1.0, divisor));
}

/// Classes [rows] in range, with class 0 in place of the ignored ones, and the weights of all.
struct WeightedClasses {
  Tensor classes, weights;
};
WeightedClasses weighted_classes(const char* op, const Tensor& targets, int64_t classes, int64_t ignore_index,
                                 const Tensor& class_weight, const Tensor& row_weights, const TensorOptions& options) {
  const Tensor kept = targets != static_cast<double>(ignore_index), in_range = where(kept, targets, 0.0);
  Tensor weights = kept.to(options.dtype);
  if (class_weight.defined()) {
    TERN_CHECK(class_weight.dim() == 1 && class_weight.size(0) == classes, op, ": weight must be [", classes, "], got ",
               class_weight.shape());
    weights = weights * index_select(class_weight.detach().to(options.dtype), 0, in_range);
  }
  if (row_weights.defined()) weights = weights * row_weights;
  return {in_range, weights};
}

/// The composed form, for log-probabilities [rows, classes].
Tensor class_losses(const char* op, const Tensor& log_probabilities, const Tensor& targets, double smoothing,
                    const CrossEntropyOptions& options, const Tensor& row_weights) {
  const Tensor& x = log_probabilities;
  const int64_t classes = x.size(1);
  const auto [in_range, weights] =
      weighted_classes(op, targets, classes, options.ignore_index, options.weight, row_weights, x.options());
  Tensor losses = neg(gather(x, 1, in_range.unsqueeze(1)).squeeze(1));
  const Tensor kept = targets != static_cast<double>(options.ignore_index);
  losses = where(kept, losses, 0.0) * weights;
  if (smoothing > 0) {
    const Tensor of_class = options.weight.defined() ? options.weight.detach().to(x.dtype()) : ones({1}, x.options());
    Tensor uniform = where(kept, neg(sum(x * of_class, {1})), 0.0);
    if (row_weights.defined()) uniform = uniform * row_weights;
    losses = losses * (1 - smoothing) + uniform * (smoothing / static_cast<double>(classes));
  }
  return reduce_weighted(losses, weights, options.reduction);
}

/// Against probabilities of the logits' shape.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  TERN_CHECK(targets.shape() == logits.shape(), "cross_entropy: probabilities must have the logits' shape ",
             logits.shape(), ", got ", targets.describe(), "; classes must be int64: convert them with .to(int64)");
  TERN_CHECK(!options.row_weights.defined(), "cross_entropy: row_weights are not for probabilities; scale these");
  const int dim = logits.dim() == 1 ? 0 : 1;
  const int64_t classes = logits.size(dim);
  const DType dtype = logits.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Tensor wanted = targets.to(dtype);
  if (options.label_smoothing > 0)
    wanted = wanted * (1 - options.label_smoothing) + options.label_smoothing / static_cast<double>(classes);
  if (options.weight.defined()) {
    TERN_CHECK(options.weight.dim() == 1 && options.weight.size(0) == classes, "cross_entropy: weight must be [",
               classes, "], got ", options.weight.shape());
    std::vector<int64_t> sizes(static_cast<size_t>(logits.dim()), 1);
    sizes[static_cast<size_t>(dim)] = classes;
    wanted = wanted * options.weight.detach().to(dtype).reshape(sizes);
  }
  const Tensor losses = neg(sum(log_softmax(logits.to(dtype), dim) * wanted, {dim}));
  if (options.reduction == LossReduction::kNone) return losses;
  const Tensor total = sum(losses);
  return options.reduction == LossReduction::kSum || losses.numel() == 0 ? total
                                                                         : total / static_cast<double>(losses.numel());
}

/// Throws Error unless x is [classes], [rows, classes] or [rows, classes, d1, ...] and targets are classes for it.
void check_classes(const char* op, const char* x_name, const Tensor& x, const Tensor& targets) {
  TERN_CHECK(x.dim() >= 1 && is_floating(x.dtype()), op, ": ", x_name,
             " must be a floating tensor [rows, classes] or [rows, classes, d1, ...], got ", x.describe());
  TERN_CHECK(x.size(x.dim() == 1 ? 0 : 1) > 0, op, ": ", x_name, " have no classes: ", x.shape());
  const Shape expected = x.shape().without(x.dim() == 1 ? 0 : 1);
  TERN_CHECK(targets.shape() == expected && targets.dtype() == DType::kInt64, op, ": targets must be int64 ", expected,
             ", got ", targets.describe(), targets.dtype() == DType::kInt64 ? "" : "; convert them with .to(int64)");
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  TERN_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
             "cross_entropy: label_smoothing must be in [0, 1], got ", options.label_smoothing);
  if (targets.defined() && is_floating(targets.dtype()) && logits.dim() > 0 && is_floating(logits.dtype()))
    return soft_cross_entropy(logits, targets, options);
  check_classes("cross_entropy", "logits", logits, targets);
  const DType dtype = logits.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Tensor x = logits.dim() == 1 ? logits.unsqueeze(0) : rows_of_classes(logits);
  const Tensor classes = targets.flatten();
  Tensor weights = options.row_weights;
  if (weights.defined()) {
    TERN_CHECK(weights.shape() == targets.shape(), "cross_entropy: row_weights must be ", targets.shape(), ", got ",
               weights.shape());
    weights = weights.detach().to(dtype).contiguous().flatten();
  }
  Tensor losses;
  if (options.weight.defined() && options.label_smoothing > 0) {
    losses =
        class_losses("cross_entropy", log_softmax(x.to(dtype)), classes, options.label_smoothing, options, weights);
  } else {
    if (options.weight.defined())
      weights = weighted_classes("cross_entropy", classes, x.size(1), options.ignore_index, options.weight, weights,
                                 {dtype, x.device()})
                    .weights;
    losses =
        CrossEntropy::apply(x.contiguous(), Constant{classes.contiguous()}, Constant{weights}, options.ignore_index,
                            options.label_smoothing, options.reduction == LossReduction::kMean);
    if (options.reduction == LossReduction::kSum) losses = sum(losses);
  }
  return options.reduction == LossReduction::kNone ? losses.reshape(targets.shape()) : losses;
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, const NllOptions& options) {
  Tensor x = log_probabilities;
  detail::autocast_inputs("nll_loss", {&x});
  check_classes("nll_loss", "log_probabilities", x, targets);
  x = x.dim() == 1 ? x.unsqueeze(0) : rows_of_classes(x);
  const Tensor losses = class_losses(
      "nll_loss", x, targets.flatten(), 0,
      {.weight = options.weight, .ignore_index = options.ignore_index, .reduction = options.reduction}, {});
  return options.reduction == LossReduction::kNone ? losses.reshape(targets.shape()) : losses;
}

}  // namespace tern
