#include "tern/models/prediction.h"

#include <algorithm>

#include "tern/core/ops/ops.h"

namespace tern::models {

std::vector<Prediction> predictions_of(const Tensor& logits) {
  const Tensor exact = logits.to(DType::kFloat32);
  const std::vector<double> values = exact.to_vector<double>(), scores = softmax(exact).to_vector<double>();
  const int64_t classes = exact.size(1);
  std::vector<Prediction> predictions(static_cast<size_t>(exact.size(0)));
  for (size_t i = 0; i < predictions.size(); ++i) {
    Prediction& p = predictions[i];
    const auto first = values.begin() + static_cast<int64_t>(i) * classes;
    p.logits.assign(first, first + classes);
    p.label = std::max_element(p.logits.begin(), p.logits.end()) - p.logits.begin();
    p.score = scores[i * static_cast<size_t>(classes) + static_cast<size_t>(p.label)];
  }
  return predictions;
}

}  // namespace tern::models
