#pragma once
// An optimizer of a rule (kernels/optimizer_rules.h) and an options struct, which has kName, lr, weight_decay,
// maximize, master_weights, kahan, capturable and rule(). docs/examples/custom_optimizer.cpp is one.

#include "tern/kernels/optimizer_tiles.h"
#include "tern/optim/optimizer.h"

namespace tern::optim {

/// What an optimizer with these options does. Throws Error on hyper-parameters out of range.
template <class Options>
Algorithm algorithm_of(const Options& options) {
  const auto rule = options.rule();
  using Rule = std::remove_const_t<decltype(rule)>;
  Algorithm algorithm;
  algorithm.name = Options::kName;
  algorithm.lr = options.lr;
  algorithm.weight_decay = options.weight_decay;
  algorithm.master_weights = options.master_weights;
  algorithm.kahan = options.kahan;
  algorithm.capturable = options.capturable;
  const unsigned kept = kernels::kept_states<Rule>(kernels::cases_of(rule, 1));
  for (size_t k = 0; k < kernels::kStateCount<Rule>; ++k)
    if ((kept >> k & 1) != 0) algorithm.states.push_back({Rule::state_names[k], static_cast<int>(k)});
  algorithm.update = [rule](kernels::Stream stream, const std::vector<GroupState>& groups,
                            const std::vector<kernels::OptimizerTensor>& tensors, const kernels::OptimizerStep& step) {
    std::vector<Rule> rules(groups.size(), rule);
    for (size_t g = 0; g < groups.size(); ++g) {
      rules[g].lr = groups[g].lr;
      rules[g].weight_decay = groups[g].weight_decay;
    }
    kernels::update_weights(stream, kernels::make_rules(rules.data()), tensors.data(),
                            static_cast<int64_t>(tensors.size()), step);
  };
  return algorithm;
}

template <class Options>
class RuleOptimizer final : public Optimizer {
 public:
  /// Throws Error on hyper-parameters out of range, and like Optimizer's constructor.
  RuleOptimizer(const std::vector<NamedTensor>& parameters, const Options& options = {})
      : RuleOptimizer(std::vector<ParameterGroup>{{parameters, {}, {}}}, options) {}
  RuleOptimizer(const std::vector<ParameterGroup>& groups, const Options& options = {})
      : Optimizer(groups, algorithm_of(options)) {}
};

}  // namespace tern::optim
