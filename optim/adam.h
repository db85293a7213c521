#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

/// The two differ in weight decay only: w *= 1 - lr * weight_decay (decoupled) or an L2 term in the gradient.
template <bool kDecoupled>
struct BasicAdamOptions {
  static constexpr const char* kName = kDecoupled ? "adamw" : "adam";
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = kDecoupled ? 0.01 : 0;
  bool amsgrad = false;
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step

  kernels::AdamRule rule() const;
};

/// Kingma & Ba, arXiv:1412.6980, with PyTorch's defaults and order of operations; state exp_avg, exp_avg_sq and, with
/// amsgrad, max_exp_avg_sq.
using AdamOptions = BasicAdamOptions<false>;
using Adam = RuleOptimizer<AdamOptions>;
/// Loshchilov & Hutter, arXiv:1711.05101.
using AdamWOptions = BasicAdamOptions<true>;
using AdamW = RuleOptimizer<AdamWOptions>;

}  // namespace tern::optim
