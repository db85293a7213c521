#pragma once
// An optimizer from outside the project: a rule and an options struct.

#include "tern/optim/rule_optimizer.h"
#include "tern/tests/kernels/rmsprop_tf_rule.h"

namespace tern::test {

struct RmspropTfOptions {
  static constexpr const char* kName = "rmsprop_tf";
  double lr = 1e-2, alpha = 0.9, eps = 1e-10, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;
  bool master_weights = true, kahan = false, capturable = false;

  kernels::RmspropTfRule rule() const {
    optim::detail::check_fraction(kName, "alpha", alpha);
    optim::detail::check_not_negative(kName, "eps", eps);
    return {lr, alpha, eps, weight_decay, momentum, centered, maximize};
  }
};
using RmspropTf = optim::RuleOptimizer<RmspropTfOptions>;

}  // namespace tern::test
