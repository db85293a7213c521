#pragma once

#include <cstdint>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::models {

struct Prediction {
  int64_t label = 0;  // index of the largest logit
  double score = 0;   // its softmax probability
  std::vector<double> logits;
};

/// One for each row of logits [n, labels].
std::vector<Prediction> predictions_of(const Tensor& logits);

}  // namespace tern::models
