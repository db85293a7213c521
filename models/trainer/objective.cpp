#include "tern/models/trainer/objective.h"

#include <algorithm>
#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/data/samples/batch_tensors.h"

namespace tern::models {

Score score_labels(const Tensor& logits, const Tensor& labels) {
  Score score;
  score.loss = cross_entropy(logits, labels, {.reduction = LossReduction::kSum}).item<double>();
  const std::vector<int64_t> predicted = argmax(logits).to_vector<int64_t>(), wanted = labels.to_vector<int64_t>();
  const std::vector<float> sums = logsumexp(logits, {1}).to_vector<float>();
  score.outcomes.columns = 1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == data::kIgnoredLabel) continue;
    ++score.examples;
    score.not_finite += !std::isfinite(sums[i]);
    score.metric += std::isfinite(sums[i]) && predicted[i] == wanted[i];
    score.outcomes.outputs.push_back(static_cast<float>(predicted[i]));
    score.outcomes.targets.push_back(static_cast<float>(wanted[i]));
  }
  return score;
}

namespace {

/// Targets without NaN, and 1 where there was none, both float32 [n, columns].
struct KnownTargets {
  Tensor values, known;
};
KnownTargets known_targets(const char* what, const Tensor& output, const Tensor& targets) {
  TERN_CHECK(targets.dtype() == float32 && targets.dim() == 2 && targets.shape() == output.shape(), what,
             ": the model's outputs are ", output.shape(), ", so the targets must be float32 of this shape, got ",
             targets.describe());
  const Tensor known = eq(targets, targets);
  return {where(known, targets, zeros_like(targets)), known.to(float32)};
}

/// The mean over what is known.
Tensor mean_known(const Tensor& losses_sum, const Tensor& known) { return losses_sum / clamp(sum(known), 1, INFINITY); }

/// The sum over the known rows of the mean of `loss` over the columns.
template <class Loss>
Score score_targets(const Tensor& output, const Tensor& targets, Loss loss) {
  const std::vector<float> outputs = output.to_vector<float>(), wanted = targets.to_vector<float>();
  Score score;
  score.outcomes.columns = output.size(1);
  const auto columns = static_cast<size_t>(output.size(1));
  for (size_t row = 0; row < outputs.size(); row += columns) {
    if (std::isnan(wanted[row])) continue;
    ++score.examples;
    score.not_finite += !std::all_of(outputs.begin() + static_cast<std::ptrdiff_t>(row),
                                     outputs.begin() + static_cast<std::ptrdiff_t>(row + columns),
                                     [](float value) { return std::isfinite(value); });
    for (size_t i = row; i < row + columns; ++i) {
      score.loss +=
          loss(static_cast<double>(outputs[i]), static_cast<double>(wanted[i])) / static_cast<double>(columns);
      score.outcomes.outputs.push_back(outputs[i]);
      score.outcomes.targets.push_back(wanted[i]);
    }
  }
  return score;
}

}  // namespace

Tensor several_labels_loss(const Tensor& logits, const Tensor& targets) {
  const KnownTargets t = known_targets("several labels", logits, targets);
  return mean_known(
      binary_cross_entropy_with_logits(logits, t.values, {.weight = t.known, .reduction = LossReduction::kSum}),
      t.known);
}

Tensor numbers_loss(const Tensor& output, const Tensor& targets) {
  const KnownTargets t = known_targets("numbers", output, targets);
  const Tensor error = (output - t.values) * t.known;
  return mean_known(sum(error * error), t.known);
}

Score score_several_labels(const Tensor& logits, const Tensor& targets) {
  return score_targets(logits, targets, [](double logit, double target) {
    return std::max(logit, 0.0) - logit * target + std::log1p(std::exp(-std::abs(logit)));
  });
}

Score score_numbers(const Tensor& output, const Tensor& targets) {
  return score_targets(output, targets,
                       [](double value, double target) { return (value - target) * (value - target); });
}

data::BatchStripe own_batches(const EvaluateOptions& options, int64_t batches) {
  if (!options.group) return {};
  return {.first = std::min<int64_t>(options.group->rank(), batches), .stride = options.group->size()};
}

}  // namespace tern::models
