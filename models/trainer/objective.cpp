#include "tern/models/trainer/objective.h"

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/data/loader_tokens.h"

namespace tern::models {

Score score_labels(const Tensor& logits, const Tensor& labels) {
  Score score;
  score.loss = cross_entropy(logits, labels, {.reduction = LossReduction::kSum}).item<double>();
  score.metric = static_cast<double>(sum(eq(argmax(logits), labels).to(DType::kInt64)).item<int64_t>());
  for (const int64_t label : labels.to_vector<int64_t>()) score.examples += label != data::kIgnoredLabel;
  return score;
}

Evaluation mean_of(const Score& sums) {
  const double n = sums.examples > 0 ? static_cast<double>(sums.examples) : std::nan("");
  return {.loss = sums.loss / n, .metric = sums.metric / n, .examples = sums.examples};
}

}  // namespace tern::models
