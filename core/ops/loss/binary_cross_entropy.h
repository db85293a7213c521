#pragma once
// Losses of several labels: every element of the target is 0 or 1, or between.

#include "tern/core/ops/loss/reduction.h"
#include "tern/core/tensor.h"

namespace tern {

struct BceOptions {
  Tensor weight = {};  // broadcast to the losses
  LossReduction reduction = LossReduction::kMean;
};
/// -(t log p + (1 - t) log(1 - p)) of probabilities of the target's shape, each logarithm at least -100. A probability
/// outside [0, 1] gives NaN. The gradient (p - t) / max(p (1 - p), 1e-12) is finite. Throws Error inside an autocast
/// region, where 16 bits are too few for p near 1.
Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& target, const BceOptions& options = {});

struct BceWithLogitsOptions {
  Tensor weight = {};      // broadcast to the losses
  Tensor pos_weight = {};  // factor of the losses of ones, broadcast: [labels], say
  LossReduction reduction = LossReduction::kMean;
};
/// binary_cross_entropy of sigmoid(logits), without overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BceWithLogitsOptions& options = {});

struct FocalOptions {
  double alpha = 0.25;  // weight of ones, and 1 - alpha of zeros; negative: none
  double gamma = 2;
  LossReduction reduction = LossReduction::kNone;  // as in torchvision
};
/// Lin et al., arXiv:1708.02002: binary_cross_entropy_with_logits times (1 - p of the true label)^gamma.
Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options = {});

struct MultilabelSoftMarginOptions {
  Tensor weight = {};  // broadcast to the losses: [labels], say
  LossReduction reduction = LossReduction::kMean;
};
/// The mean of binary_cross_entropy_with_logits over the labels, the last dimension.
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultilabelSoftMarginOptions& options = {});

}  // namespace tern
