#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct SGDOptions {
  static constexpr const char* kName = "sgd";
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // L2
  bool nesterov = false;    // needs momentum > 0 and no dampening
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::SgdRule rule() const;
};

/// Stochastic gradient descent with PyTorch's momentum: buffer = momentum * buffer + (1 - dampening) * gradient, at
/// first the gradient itself. State momentum_buffer, none without momentum.
using SGD = RuleOptimizer<SGDOptions>;

}  // namespace tern::optim
