#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct NAdamOptions {
  static constexpr const char* kName = "nadam";
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;  // weights shrink by lr * weight_decay; otherwise L2
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::NAdamRule rule() const;
};

/// Dozat, "Incorporating Nesterov Momentum into Adam", 2016, with PyTorch's defaults and order of operations; state
/// exp_avg, exp_avg_sq. PyTorch's mu_product follows from the count of steps here and is no state.
using NAdam = RuleOptimizer<NAdamOptions>;

}  // namespace tern::optim
