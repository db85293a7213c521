#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct LambOptions {
  static constexpr const char* kName = "lamb";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  bool always_adapt = false;  // trust ratios also for groups without weight decay (biases and norms, as a rule)
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update

  void check() const;
  static std::vector<Algorithm::State> states();
  void update(WholeParameter& parameter) const;
};

/// You et al., "Large Batch Optimization for Deep Learning", arXiv:1904.00962, algorithm 2, with the correction of
/// Adam's bias: Adam's update, weight decay added, times |weight| / |update| of each parameter (1 where either is 0).
/// As in NVIDIA's Apex and timm, groups without weight decay keep Adam's update. State exp_avg, exp_avg_sq. A
/// ShardedOptimizer that divides parameters among processes (ZeRO-1) throws Error.
using Lamb = RuleOptimizer<LambOptions>;

}  // namespace tern::optim
