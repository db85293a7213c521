#pragma once

#include "tern/core/tensor.h"

namespace tern {

enum class LossReduction { kMean, kSum, kNone };

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  LossReduction reduction = LossReduction::kMean;  // mean over the targets that are not ignored (0 when all are)
  Tensor row_weights = {};                         // [rows]; the mean divides by the sum of the weights used
};

/// Softmax cross entropy of logits [rows, classes] against int64 targets [rows], fused. fp32 inside; the result is fp32
/// (fp64 for fp64 logits). A target outside [0, classes) throws Error.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

/// Mean of (a - b)^2.
Tensor mse_loss(const Tensor& prediction, const Tensor& target);

}  // namespace tern
