#pragma once
// An optimizer from outside the project: a rule and an options struct.

#include "tern/optim/rule_optimizer.h"
#include "tern/tests/kernels/rmsprop_rule.h"

namespace tern::test {

struct RmspropOptions {
  static constexpr const char* kName = "rmsprop";
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;
  bool master_weights = true, kahan = false, capturable = false;

  kernels::RmspropRule rule() const {
    optim::detail::check_fraction(kName, "alpha", alpha);
    optim::detail::check_not_negative(kName, "eps", eps);
    return {lr, alpha, eps, weight_decay, momentum, centered, maximize};
  }
};
using Rmsprop = optim::RuleOptimizer<RmspropOptions>;

}  // namespace tern::test
