#pragma once

#include <cstdint>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/labelled_set.h"

namespace tern::models {

struct Prediction {
  // One label: the index of the largest logit, and its softmax probability.
  int64_t label = 0;
  double score = 0;
  // Several labels: those whose probability, the sigmoid of the logit, is above 0.5, in the order of the outputs.
  std::vector<int64_t> labels = {};
  std::vector<double> scores = {};
  std::vector<double> logits = {};  // of all labels; of numbers: the numbers
};

/// One for each row of logits [n, labels].
std::vector<Prediction> predictions_of(const Tensor& logits, data::LabelKind kind = data::LabelKind::kOne);

}  // namespace tern::models
