#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct AdadeltaOptions {
  static constexpr const char* kName = "adadelta";
  double lr = 1;
  double rho = 0.9;  // in [0, 1]
  double eps = 1e-6;
  double weight_decay = 0;  // L2
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::AdadeltaRule rule() const;
};

/// Zeiler, arXiv:1212.5701, with PyTorch's defaults and order of operations; state square_avg, acc_delta.
using Adadelta = RuleOptimizer<AdadeltaOptions>;

}  // namespace tern::optim
