#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct AdagradOptions {
  static constexpr const char* kName = "adagrad";
  double lr = 1e-2;
  double lr_decay = 0;  // step n, from 1, has the rate lr / (1 + (n - 1) * lr_decay)
  double eps = 1e-10;
  double weight_decay = 0;               // L2
  double initial_accumulator_value = 0;  // of sum, before the first step
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::AdagradRule rule() const;
};

/// Duchi, Hazan & Singer, "Adaptive Subgradient Methods", JMLR 12, 2011, with PyTorch's defaults and order of
/// operations; state sum.
using Adagrad = RuleOptimizer<AdagradOptions>;

}  // namespace tern::optim
