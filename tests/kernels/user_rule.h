#pragma once
// An optimizer that is not in the library, and one update of it written out.

#include "tern/tests/kernels/contracts/optimizer.h"
#include "tern/tests/kernels/rmsprop_tf_rule.h"

namespace tern::kernels {

inline const std::vector<RmspropTfRule> kUserGroups = {
    {},
    {.lr = 3e-3, .alpha = 0.99, .momentum = 0.8},
    {.alpha = 0.95, .eps = 1e-4, .centered = true},
    {.weight_decay = 0.1, .momentum = 0.5, .centered = true, .maximize = true}};

/// Weight and states after an update, computed in F.
template <class F>
std::array<F, 4> user_update(const RmspropTfRule& rule, F w, F gradient, F square, F average, F buffer) {
  F g = rule.maximize ? -gradient : gradient;
  if (rule.weight_decay != 0) g = g + F(rule.weight_decay) * w;
  const F one_minus = F(1 - rule.alpha);
  square = F(rule.alpha) * square + one_minus * g * g;
  F under_root = square;
  if (rule.centered) {
    average = average + one_minus * (g - average);
    under_root = square - average * average;
  }
  const F quotient = F(rule.lr) * g / std::sqrt(under_root + F(rule.eps));
  if (rule.momentum == 0) return {w - quotient, square, average, buffer};
  buffer = F(rule.momentum) * buffer + quotient;
  return {w - buffer, square, average, buffer};
}

/// Three updates of parameters of several dtypes by all groups. The loops are compiled in the test's own file, like
/// user_update, so the bits must be equal. A state that a group does not keep stays as it was. run(parameters, rules,
/// count) is the kernel.
template <class Run>
void check_user_rule(Order order, std::mt19937_64& random, const Run& run) {
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Parameter*> all;
  const auto groups = static_cast<int32_t>(kUserGroups.size());
  for (const Kind& kind : {Kind{float32, float32, false}, Kind{float64, float64, false}, Kind{float32, bfloat16, false},
                           Kind{bfloat16, float32, true}})
    for (const int64_t size : {1, 257, 1037})
      for (int32_t group = 0; group < groups; ++group) {
        parameters.push_back(std::make_unique<Parameter>(kind, size, random, order));
        parameters.back()->group = group;
        all.push_back(parameters.back().get());
      }
  int64_t count = 0;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<std::array<double, 4>>> expected;
    for (size_t t = 0; t < parameters.size(); ++t) {
      Parameter& p = *parameters[t];
      fill_with_random(p.gradient, random, -1, 1);
      expected.emplace_back();
      const auto update = [&]<class F>(int64_t i) {
        const std::array<F, 4> next = user_update<F>(kUserGroups[p.group], F(p.value(i)), F(p.gradient.at(i)),
                                                     F(p.state1.at(i)), F(p.state2.at(i)), F(p.state3.at(i)));
        expected.back().push_back({next[0], next[1], next[2], next[3]});
      };
      for (int64_t i = 0; i < p.weight.numel(); ++i)
        p.kind.weight == float64 ? update.template operator()<double>(i) : update.template operator()<float>(i);
    }
    run(all, kUserGroups, count);
    for (size_t t = 0; t < parameters.size(); ++t) {
      const Parameter& p = *parameters[t];
      for (int64_t i = 0; i < p.weight.numel(); ++i) {
        const std::array<double, 4> got = {p.value(i), p.state1.at(i), p.state2.at(i), p.state3.at(i)};
        ASSERT_EQ(got, expected[t][static_cast<size_t>(i)]) << "step " << step << " tensor " << t << " element " << i;
        ASSERT_EQ(p.weight.at(i), round_to(p.kind.weight, p.value(i)));
      }
    }
  }
  EXPECT_EQ(count, 3);
}

}  // namespace tern::kernels
