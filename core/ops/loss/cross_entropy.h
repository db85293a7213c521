#pragma once
// Losses of classes.

#include "tern/core/ops/loss/reduction.h"
#include "tern/core/tensor.h"

namespace tern {

struct CrossEntropyOptions {
  Tensor weight = {};  // [classes], of each class
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  LossReduction reduction = LossReduction::kMean;
  Tensor row_weights = {};  // of the targets' shape: of each target
};

/// Softmax cross entropy of logits [rows, classes], [rows, classes, d1, ...] or [classes] against int64 classes [rows],
/// [rows, d1, ...] or []; fused unless there are both class weights and smoothing. Or against probabilities, floating
/// and of the logits' shape. fp32 inside; the result is fp32 (fp64 for fp64 logits). The mean divides by the sum of the
/// weights of the targets that are not ignored, and is 0 when all are (PyTorch's is NaN); that of probabilities divides
/// by the number of rows. A target outside [0, classes) throws Error.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

struct NllOptions {
  Tensor weight = {};  // [classes]
  int64_t ignore_index = -100;
  LossReduction reduction = LossReduction::kMean;
};
/// -log_probabilities[row, targets[row]], with the shapes, the mean and the errors of cross_entropy's classes.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, const NllOptions& options = {});

}  // namespace tern
