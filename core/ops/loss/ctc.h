#pragma once

#include "tern/core/ops/loss/reduction.h"
#include "tern/core/tensor.h"

namespace tern {

struct CtcOptions {
  int64_t blank = 0;  // its class
  LossReduction reduction = LossReduction::kMean;
  bool zero_infinity = false;  // 0 for a target that no alignment fits, instead of infinity
};
/// Connectionist temporal classification (Graves et al., ICML 2006): -log of the probability of a target, summed over
/// its alignments with the frames. log_probabilities: [frames, batch, classes], log_softmax over the classes; targets:
/// integers, none of them the blank, padded [batch, most labels] or one after another [sum of target_lengths];
/// input_lengths and target_lengths: integers [batch], the frames and labels of each sequence. Or of one sequence:
/// [frames, classes], targets of one dimension, and lengths []. The losses are [batch] or []; the mean is that of the
/// losses, each divided by its number of labels (at least 1). The gradient is the exact one by log_probabilities;
/// PyTorch's has exp(log_probabilities) added, which the gradient of log_softmax removes. Without zero_infinity it is
/// NaN where the loss is infinite. The host reads targets and lengths, and waits for them if they are on a device.
Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcOptions& options = {});

}  // namespace tern
