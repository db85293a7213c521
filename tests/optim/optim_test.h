#pragma once
// Common code of the optimizers' tests.

#include "tern/optim/optim.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/state.h"
#include "tern/tests/optim/rmsprop_tf.h"

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
  using namespace optim;
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
      {"nadam", algorithm_of(NAdamOptions{})},
      {"nadam_l2_maximize",
       algorithm_of(NAdamOptions{
           .lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .momentum_decay = 0.7, .maximize = true})},
      {"nadam_decoupled",
       algorithm_of(NAdamOptions{.lr = 1e-2, .eps = 1e-6, .weight_decay = 0.1, .decoupled_weight_decay = true})},
      {"radam", algorithm_of(RAdamOptions{.lr = 1e-2})},
      {"radam_l2_maximize",
       algorithm_of(
           RAdamOptions{.lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .maximize = true})},
      {"radam_decoupled",
       algorithm_of(RAdamOptions{.lr = 1e-2, .beta2 = 0.99, .weight_decay = 0.1, .decoupled_weight_decay = true})},
      {"rmsprop", algorithm_of(RMSpropOptions{})},
      {"rmsprop_centered",
       algorithm_of(RMSpropOptions{.lr = 1e-3, .alpha = 0.9, .eps = 1e-6, .centered = true, .maximize = true})},
      {"rmsprop_momentum", algorithm_of(RMSpropOptions{.lr = 1e-3, .weight_decay = 0.1, .momentum = 0.9})},
      {"rmsprop_all",
       algorithm_of(RMSpropOptions{
           .lr = 1e-3, .alpha = 0.95, .eps = 1e-6, .weight_decay = 0.1, .momentum = 0.5, .centered = true})},
      {"adagrad", algorithm_of(AdagradOptions{})},
      {"adagrad_all", algorithm_of(AdagradOptions{.lr = 0.1,
                                                  .lr_decay = 0.05,
                                                  .eps = 1e-6,
                                                  .weight_decay = 0.1,
                                                  .initial_accumulator_value = 0.3,
                                                  .maximize = true})},
      {"adadelta", algorithm_of(AdadeltaOptions{})},
      {"adadelta_all",
       algorithm_of(AdadeltaOptions{.lr = 0.5, .rho = 0.8, .eps = 1e-4, .weight_decay = 0.1, .maximize = true})},
  };
}

/// The same, one that PyTorch does not have, and one that is not the library's.
inline std::vector<Case> cases() {
  std::vector<Case> all = golden_cases();
  all.push_back({"lion", optim::algorithm_of(optim::LionOptions{.lr = 1e-2, .weight_decay = 0.1})});
  all.push_back({"rmsprop_tf_centered", optim::algorithm_of(RmspropTfOptions{.centered = true})});
  all.push_back({"rmsprop_tf_momentum", optim::algorithm_of(RmspropTfOptions{.momentum = 0.9})});
  return all;
}

}  // namespace tern::test
