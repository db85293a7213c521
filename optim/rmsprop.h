#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct RMSpropOptions {
  static constexpr const char* kName = "rmsprop";
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;  // L2
  double momentum = 0;
  bool centered = false;  // divides by the standard deviation instead of the root mean square
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::RMSpropRule rule() const;
};

/// Hinton, "Neural Networks for Machine Learning", lecture 6e, and Graves, arXiv:1308.0850 (centered), with PyTorch's
/// defaults and order of operations; state square_avg, with centered grad_avg, with momentum momentum_buffer.
using RMSprop = RuleOptimizer<RMSpropOptions>;

}  // namespace tern::optim
