#include "tern/models/prediction.h"

#include <algorithm>
#include <cmath>

#include "tern/core/ops/ops.h"

namespace tern::models {
namespace {

void choose_one(Prediction& p) {
  const auto greatest = std::max_element(p.logits.begin(), p.logits.end());
  p.label = greatest - p.logits.begin();
}

void choose_several(Prediction& p) {
  for (size_t i = 0; i < p.logits.size(); ++i) {
    if (!(p.logits[i] > 0)) continue;
    p.labels.push_back(static_cast<int64_t>(i));
    p.scores.push_back(1 / (1 + std::exp(-p.logits[i])));
  }
}

}  // namespace

std::vector<Prediction> predictions_of(const Tensor& logits, data::LabelKind kind) {
  const Tensor exact = logits.to(DType::kFloat32);
  const std::vector<double> values = exact.to_vector<double>();
  const int64_t classes = exact.size(1);
  std::vector<Prediction> predictions(static_cast<size_t>(exact.size(0)));
  std::vector<double> shares;
  if (kind == data::LabelKind::kOne) shares = softmax(exact).to_vector<double>();
  for (size_t i = 0; i < predictions.size(); ++i) {
    Prediction& p = predictions[i];
    const auto first = values.begin() + static_cast<int64_t>(i) * classes;
    p.logits.assign(first, first + classes);
    if (kind == data::LabelKind::kSeveral) choose_several(p);
    if (kind != data::LabelKind::kOne) continue;
    choose_one(p);
    p.score = shares[i * static_cast<size_t>(classes) + static_cast<size_t>(p.label)];
  }
  return predictions;
}

}  // namespace tern::models
