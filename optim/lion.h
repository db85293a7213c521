#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct LionOptions {
  static constexpr const char* kName = "lion";
  double lr = 1e-4;
  double beta1 = 0.9;       // of the average whose sign is the step
  double beta2 = 0.99;      // of the average that is kept
  double weight_decay = 0;  // weights shrink by lr * weight_decay
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::LionRule rule() const;
};

/// Chen et al., arXiv:2302.06675, with the authors' defaults; state exp_avg.
using Lion = RuleOptimizer<LionOptions>;

}  // namespace tern::optim
