#include "tern/core/ops/loss.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/reduce.h"
#include "tern/core/ops/softmax.h"
#include "tern/kernels/softmax.h"

namespace tern {
namespace {

/// Losses per row, or their mean.
struct CrossEntropy final : Function<CrossEntropy> {
  static constexpr const char* kName = "cross_entropy";
  static constexpr bool kTwiceDifferentiable = true;
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

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  TERN_CHECK(logits.dim() == 2 && is_floating(logits.dtype()),
             "cross_entropy: logits must be a floating tensor [rows, classes], got ", logits.describe());
  TERN_CHECK(logits.size(1) > 0, "cross_entropy: logits have no classes: ", logits.shape());
  TERN_CHECK(targets.dim() == 1 && targets.size(0) == logits.size(0) && targets.dtype() == DType::kInt64,
             "cross_entropy: targets must be int64 [", logits.size(0), "], got ", targets.describe(),
             targets.dtype() == DType::kInt64 ? "" : "; convert them with .to(int64)");
  TERN_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
             "cross_entropy: label_smoothing must be in [0, 1], got ", options.label_smoothing);
  const DType dtype = logits.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Tensor weights = options.row_weights;
  if (weights.defined()) {
    TERN_CHECK(weights.dim() == 1 && weights.size(0) == logits.size(0), "cross_entropy: row_weights must be [",
               logits.size(0), "], got ", weights.shape());
    weights = weights.detach().to(dtype).contiguous();
  }
  const Tensor losses =
      CrossEntropy::apply(logits.contiguous(), Constant{targets.contiguous()}, Constant{weights}, options.ignore_index,
                          options.label_smoothing, options.reduction == LossReduction::kMean);
  return options.reduction == LossReduction::kSum ? sum(losses) : losses;
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target) {
  TERN_CHECK(prediction.shape() == target.shape(), "mse_loss: prediction is ", prediction.shape(), ", target ",
             target.shape());
  Tensor a = prediction, b = target;
  detail::autocast_inputs("mse_loss", {&a, &b});
  return mean(square(sub(a, b)));
}

}  // namespace tern
