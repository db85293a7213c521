#pragma once
// Common code of the optimizers' tests.

#include "tern/optim/optim.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/state.h"
#include "tern/tests/optim/rmsprop.h"

namespace tern::test {

inline Tensor leaf(const Tensor& values) { return values.clone().set_requires_grad(true); }

struct Case {
  std::string name;
  optim::Algorithm algorithm;
  optim::Optimizer of(const std::vector<NamedTensor>& parameters) const {
    return {std::vector<optim::ParameterGroup>{{.parameters = parameters}}, algorithm};
  }
};

/// Those that PyTorch has run.
inline std::vector<Case> golden_cases() {
  using optim::AdamOptions, optim::AdamWOptions, optim::SGDOptions, optim::algorithm_of;
  return {
      {"adamw", algorithm_of(AdamWOptions{.lr = 1e-2, .weight_decay = 0.1})},
      {"adamw_other_betas",
       algorithm_of(AdamWOptions{.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0})},
      {"adam_l2", algorithm_of(AdamOptions{.lr = 1e-2, .weight_decay = 0.1})},
      {"adam_amsgrad", algorithm_of(AdamOptions{.lr = 1e-2, .beta2 = 0.99, .amsgrad = true})},
      {"adamw_amsgrad_maximize",
       algorithm_of(AdamWOptions{.lr = 1e-2, .beta2 = 0.99, .amsgrad = true, .maximize = true})},
      {"sgd", algorithm_of(SGDOptions{.lr = 1e-2})},
      {"sgd_momentum", algorithm_of(SGDOptions{.lr = 1e-2, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01})},
      {"sgd_nesterov", algorithm_of(SGDOptions{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true})},
      {"sgd_maximize", algorithm_of(SGDOptions{.lr = 1e-2, .momentum = 0.5, .maximize = true})},
  };
}

/// The same, and an optimizer that is not the library's.
inline std::vector<Case> cases() {
  std::vector<Case> all = golden_cases();
  all.push_back({"rmsprop_centered", optim::algorithm_of(RmspropOptions{.centered = true})});
  all.push_back({"rmsprop_momentum", optim::algorithm_of(RmspropOptions{.momentum = 0.9})});
  return all;
}

}  // namespace tern::test
