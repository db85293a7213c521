#pragma once

#include "tern/kernels/optimizer/layerwise.h"
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
  bool kahan = false;          // as AdamWOptions'
  bool capturable = false;     // as AdamWOptions'

  kernels::LambRule rule() const;
  static std::vector<Algorithm::State> states();
  static void update_all(kernels::Stream stream, const std::vector<kernels::LambRule>& groups,
                         const std::vector<kernels::OptimizerTensor>& tensors, const kernels::OptimizerStep& step);
};

/// You et al., "Large Batch Optimization for Deep Learning", arXiv:1904.00962, algorithm 2, with the correction of
/// Adam's bias: Adam's update, weight decay added, times |weight| / |update| of each parameter (1 where either is 0).
/// As in NVIDIA's Apex and timm, groups without weight decay keep Adam's update. State exp_avg, exp_avg_sq. Two passes
/// over all parameters; kernels/optimizer/layerwise.h says what they read and write.
using Lamb = RuleOptimizer<LambOptions>;

}  // namespace tern::optim
