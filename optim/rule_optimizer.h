#pragma once
// An optimizer of an options struct, which has kName, lr, weight_decay, maximize and master_weights, and either
//   kahan, capturable and rule(): a rule for one weight (kernels/optimizer/rules.h), for all weights in one pass;
//   docs/examples/custom_optimizer.cpp is an example. A rule that needs whole parameters also has states() and
//   update_all(stream, rules of the groups, tensors, step), which calls its kernels; optim/lamb.h is an example
//   check(), states() and update(parameters): a rule for whole parameters, made of ops; optim/muon.h is one

#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/kernels/optimizer/tiles.h"
#include "tern/optim/optimizer.h"

namespace tern::optim {
namespace detail {

/// What a schedule of momentum changes in a rule; null if it has no such member.
template <class Rule>
double* momentum_of([[maybe_unused]] Rule& rule) {
  if constexpr (requires { rule.cycled_momentum(); })
    return rule.cycled_momentum();
  else if constexpr (requires { rule.momentum; })
    return &rule.momentum;
  else if constexpr (requires { rule.beta1; })
    return &rule.beta1;
  else
    return nullptr;
}

/// What a rule for one weight keeps of each.
template <class Rule>
std::vector<Algorithm::State> states_of_rule(const Rule& rule) {
  std::vector<Algorithm::State> states;
  const unsigned kept = kernels::kept_states<Rule>(kernels::cases_of(rule, 1));
  for (size_t k = 0; k < kernels::kStateCount<Rule>; ++k)
    if ((kept >> k & 1) != 0)
      states.push_back({Rule::state_names[k], static_cast<int>(k), kernels::initial_state(rule, k)});
  return states;
}

}  // namespace detail

/// What an optimizer with these options does. Throws Error on hyper-parameters out of range.
template <class Options>
Algorithm algorithm_of(const Options& options) {
  auto rule = options.rule();
  using Rule = decltype(rule);
  Algorithm algorithm;
  algorithm.name = Options::kName;
  algorithm.lr = options.lr;
  algorithm.weight_decay = options.weight_decay;
  algorithm.master_weights = options.master_weights;
  algorithm.kahan = options.kahan;
  algorithm.capturable = options.capturable;
  constexpr bool kHasKernels = requires { &Options::update_all; };
  algorithm.needs_whole = kHasKernels;
  if constexpr (kHasKernels)
    algorithm.states = Options::states();
  else
    algorithm.states = detail::states_of_rule(rule);
  algorithm.rule = rule;
  if (const double* momentum = detail::momentum_of(rule)) algorithm.momentum = *momentum;
  algorithm.update = [](kernels::Stream stream, const std::vector<GroupState>& groups,
                        const std::vector<kernels::OptimizerTensor>& tensors, const kernels::OptimizerStep& step) {
    std::vector<Rule> rules;
    for (const GroupState& group : groups) {
      Rule& rule = rules.emplace_back(std::any_cast<const Rule&>(group.rule));
      rule.lr = group.lr;
      rule.weight_decay = group.weight_decay;
      if (double* momentum = detail::momentum_of(rule)) *momentum = *group.momentum;
    }
    if constexpr (kHasKernels)
      Options::update_all(stream, rules, tensors, step);
    else
      kernels::update_weights(stream, kernels::make_rules(rules.data()), tensors.data(),
                              static_cast<int64_t>(tensors.size()), step);
  };
  return algorithm;
}

/// The same for a rule of whole parameters, made of ops.
template <class Options>
requires requires(const Options& options, std::vector<WholeParameter>& parameters) { options.update(parameters); }
Algorithm algorithm_of(const Options& options) {
  options.check();
  Algorithm algorithm;
  algorithm.name = Options::kName;
  algorithm.lr = options.lr;
  algorithm.weight_decay = options.weight_decay;
  algorithm.master_weights = options.master_weights;
  algorithm.needs_whole = true;
  algorithm.states = options.states();
  Options rule = options;
  algorithm.rule = rule;
  if (const double* momentum = detail::momentum_of(rule)) algorithm.momentum = *momentum;
  algorithm.whole = [](const GroupState& group, std::vector<WholeParameter>& parameters) {
    auto of_group = std::any_cast<const Options&>(group.rule);
    of_group.lr = group.lr;
    of_group.weight_decay = group.weight_decay;
    if (double* momentum = detail::momentum_of(of_group)) *momentum = *group.momentum;
    if (of_group.maximize)
      for (WholeParameter& parameter : parameters) parameter.gradient = neg(parameter.gradient);
    of_group.update(parameters);
  };
  return algorithm;
}

template <class Options>
class RuleOptimizer final : public Optimizer {
 public:
  /// Throws Error on hyper-parameters out of range, and like Optimizer's constructor.
  RuleOptimizer(const std::vector<NamedTensor>& parameters, const Options& options = {})
      : RuleOptimizer(std::vector<ParameterGroup>{{.parameters = parameters}}, options) {}
  RuleOptimizer(const std::vector<ParameterGroup>& groups, const Options& options = {})
      : Optimizer(groups, algorithm_of(options)) {}
};

}  // namespace tern::optim
