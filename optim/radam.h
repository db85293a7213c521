#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct RAdamOptions {
  static constexpr const char* kName = "radam";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  // weights shrink by lr * weight_decay; otherwise L2
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::RAdamRule rule() const;
};

/// Liu et al., arXiv:1908.03265, with PyTorch's defaults and order of operations; state exp_avg, exp_avg_sq.
using RAdam = RuleOptimizer<RAdamOptions>;

}  // namespace tern::optim
