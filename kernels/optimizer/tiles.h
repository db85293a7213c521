#pragma once
// From a rule struct to its loops on the CPU, and OptimizerRules. Header-only, so that a rule defined outside the
// project gets the same loops, compiled in its own translation unit.

#include <new>
#include <utility>

#include "tern/kernels/optimizer/optimizer.h"
#include "tern/kernels/optimizer/rules.h"

namespace tern::kernels {

template <class Rule>
inline constexpr size_t kStateCount = std::tuple_size_v<decltype(Rule::state_names)>;

/// Combinations of a rule's conditions.
template <class Rule>
constexpr unsigned case_count() {
  if constexpr (requires { Rule::kCaseCount; })
    return Rule::kCaseCount;
  else
    return 1;
}
/// The conditions that hold in update `count`.
template <class Rule>
TERN_HD constexpr unsigned cases_of(const Rule& rule, int64_t count) {
  if constexpr (requires { rule.cases(count); })
    return rule.cases(count);
  else
    return 0;
}
/// The states that a rule keeps in these cases, a bit each.
template <class Rule>
TERN_HD constexpr unsigned kept_states(unsigned cases) {
  if constexpr (requires { Rule::states(cases); })
    return Rule::states(cases);
  else
    return ~(~0u << kStateCount<Rule>);
}
/// The value of state k before the first update.
template <class Rule>
constexpr double initial_state([[maybe_unused]] const Rule& rule, [[maybe_unused]] size_t k) {
  if constexpr (requires { rule.initial(k); })
    return rule.initial(k);
  else
    return 0;
}

namespace detail {

/// is() of an update whose cases are known when it is compiled.
template <unsigned kCases>
struct FixedCases {
  TERN_HD constexpr bool operator()(unsigned condition) const { return (kCases & condition) != 0; }
};

// Pragma ivdep: weights and states are apart from each other and from the gradients.
template <class Rule, unsigned kCases, class F, size_t... k>
void update_loop(const void* raw, F* weight, const F* gradient, F* const* states, int64_t n,
                 std::index_sequence<k...>) {
  const auto step = *static_cast<const typename Rule::template Step<F>*>(raw);
  constexpr unsigned kKept = kept_states<Rule>(kCases);
  F* const state[] = {states[k]..., nullptr};
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    [[maybe_unused]] F value[] = {((kKept >> k & 1) != 0 ? state[k][i] : F(0))..., F(0)};
    Rule::update(step, FixedCases<kCases>(), weight[i], gradient[i], value[k]...);
    (((kKept >> k & 1) != 0 ? void(state[k][i] = value[k]) : void()), ...);
  }
}
template <class Rule, unsigned kCases, class F>
void update_tile(const void* step, F* weight, const F* gradient, F* const* states, int64_t n) {
  update_loop<Rule, kCases>(step, weight, gradient, states, n, std::make_index_sequence<kStateCount<Rule>>());
}

template <class Rule, class F, unsigned... kCases>
RuleTile<F> tile_of(unsigned cases, std::integer_sequence<unsigned, kCases...>) {
  static constexpr RuleTile<F> kTiles[] = {update_tile<Rule, kCases, F>...};
  return kTiles[cases];
}

template <class Rule, class F>
void prepare_rule(const void* groups, int32_t group, const OptimizerStep& step, PreparedRule<F>& prepared) {
  using Step = typename Rule::template Step<F>;
  static_assert(sizeof(Step) <= sizeof prepared.step && std::is_trivially_copyable_v<Step>);
  Rule rule = static_cast<const Rule*>(groups)[group];
  if (step.lr) rule.lr = step.lr[group];
  new (prepared.step) Step(rule.template prepare<F>(step.count()));
  prepared.tile =
      tile_of<Rule, F>(cases_of(rule, step.count()), std::make_integer_sequence<unsigned, case_count<Rule>()>());
  const double factor = step.gradient_factor();
  prepared.factor = static_cast<F>(rule.maximize ? -factor : factor);
}

}  // namespace detail

template <class Rule>
constexpr RuleFunctions rule_functions() {
  static_assert(kStateCount<Rule> <= kMaxOptimizerStates);
  return {detail::prepare_rule<Rule, float>, detail::prepare_rule<Rule, double>};
}

/// The argument of kernels::update_weights. `groups`, an array that tensors' `group` indexes, must outlive the call.
template <class Rule>
OptimizerRules make_rules(const Rule* groups) {
  constexpr int kIndex = index_in<Rule>(BuiltinRules());
  OptimizerRules rules;
  rules.builtin = kIndex;
  rules.groups = groups;
  if constexpr (kIndex < 0) rules.custom = rule_functions<Rule>();
#ifdef TERN_CUDA  // else a rule's file of kernels, which nvcc compiles, is not there
  if constexpr (requires { &Rule::on_cuda; }) rules.on_cuda = &Rule::on_cuda;
#endif
  return rules;
}

}  // namespace tern::kernels
