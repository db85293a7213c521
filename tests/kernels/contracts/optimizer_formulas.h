#pragma once
// One step of each optimizer, written as its formula on numbers that carry the rounding error of what led to them.

#include <optional>

#include "tern/tests/kernels/contracts/optimizer.h"

namespace tern::kernels {

/// An exact value, and how far a computation with this unit may lie from it.
struct Bounded {
  long double value = 0, bound = 0, unit = 0;

  Bounded rounded(long double error) const { return {value, error + unit * std::fabs(value), unit}; }
  /// A hyper-parameter, which is computed in double.
  Bounded number(double x) const { return Bounded{x, 0x1p-52L * std::fabs(x), unit}.rounded(0x1p-52L * std::fabs(x)); }
};
inline Bounded operator+(const Bounded& a, const Bounded& b) {
  return Bounded{a.value + b.value, 0, a.unit}.rounded(a.bound + b.bound);
}
inline Bounded operator-(const Bounded& a, const Bounded& b) {
  return Bounded{a.value - b.value, 0, a.unit}.rounded(a.bound + b.bound);
}
inline Bounded operator*(const Bounded& a, const Bounded& b) {
  return Bounded{a.value * b.value, 0, a.unit}.rounded(std::fabs(a.value) * b.bound + std::fabs(b.value) * a.bound +
                                                       a.bound * b.bound);
}
/// The divisor is not less than `least`.
inline Bounded divide(const Bounded& a, const Bounded& b, long double least) {
  const long double quotient = a.value / b.value;
  return Bounded{quotient, 0, a.unit}.rounded((a.bound + std::fabs(quotient) * b.bound) /
                                              std::max(b.value - b.bound, least));
}
inline Bounded sqrt(const Bounded& a) {
  const long double root = std::sqrt(a.value);
  return Bounded{root, 0, a.unit}.rounded(
      std::max(std::sqrt(a.value + a.bound) - root, root - std::sqrt(std::max(a.value - a.bound, 0.0L))));
}
inline Bounded operator*(double a, const Bounded& b) { return b.number(a) * b; }

/// What a weight and the states that the rule keeps become.
struct Formula {
  Bounded weight;
  std::array<std::optional<Bounded>, kMaxOptimizerStates> states;
};
/// A weight, its gradient (with factor and sign), and its states.
struct Before {
  Bounded weight, gradient;
  std::array<Bounded, kMaxOptimizerStates> states;

  Bounded decayed(double decay) const { return decay == 0 ? gradient : gradient + decay * weight; }
  /// keep * state + (1 - keep) * x
  Bounded average(size_t state, double keep, const Bounded& x) const { return keep * states[state] + (1 - keep) * x; }
};

inline Formula formula(const NAdamRule& g, const Before& b, int64_t step) {
  const auto mu = [&](int64_t i) {
    return g.beta1 * (1 - std::pow(0.96, static_cast<double>(i) * g.momentum_decay) / 2);
  };
  double product = 1;
  for (int64_t i = 1; i <= step; ++i) product *= mu(i);
  const Bounded d = b.decayed(g.decoupled ? 0 : g.weight_decay), m = b.average(0, g.beta1, d),
                v = b.average(1, g.beta2, d * d), left = d.number(1 - std::pow(g.beta2, static_cast<double>(step)));
  const Bounded denominator = sqrt(divide(v, left, 0)) + d.number(g.eps);
  const Bounded share = (g.lr * (1 - mu(step)) / (1 - product)) * d,
                next = (g.lr * mu(step + 1) / (1 - product * mu(step + 1))) * m;
  const Bounded kept = g.decoupled ? (1 - g.lr * g.weight_decay) * b.weight : b.weight;
  return {kept - divide(share, denominator, g.eps) - divide(next, denominator, g.eps), {m, v}};
}

inline Formula formula(const RAdamRule& g, const Before& b, int64_t step) {
  const auto n = static_cast<double>(step);
  const Bounded d = b.decayed(g.decoupled ? 0 : g.weight_decay), m = b.average(0, g.beta1, d),
                v = b.average(1, g.beta2, d * d);
  const double longest = 2 / (1 - g.beta2) - 1, left = 1 - std::pow(g.beta2, n),
               length = longest - 2 * n * std::pow(g.beta2, n) / left;
  Bounded change = (g.lr / (1 - std::pow(g.beta1, n))) * m;
  if (length > 5) {
    const double rectification =
        std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
    change = divide(std::sqrt(left) * rectification * change, sqrt(v) + d.number(g.eps), g.eps);
  }
  return {(g.decoupled ? (1 - g.lr * g.weight_decay) * b.weight : b.weight) - change, {m, v}};
}

inline Formula formula(const RMSpropRule& g, const Before& b, int64_t) {
  const Bounded d = b.decayed(g.weight_decay), square = b.average(0, g.alpha, d * d);
  Formula after{b.weight, {square}};
  Bounded spread = square;
  if (g.centered) {
    const Bounded average = b.average(1, g.alpha, d);
    after.states[1] = average;
    spread = square - average * average;
  }
  Bounded change = divide(d, sqrt(spread) + d.number(g.eps), g.eps);
  if (g.momentum != 0) after.states[2] = change = g.momentum * b.states[2] + change;
  after.weight = b.weight - g.lr * change;
  return after;
}

inline Formula formula(const AdagradRule& g, const Before& b, int64_t step) {
  const Bounded d = b.decayed(g.weight_decay), sum = b.states[0] + d * d;
  const double rate = g.lr / (1 + static_cast<double>(step - 1) * g.lr_decay);
  return {b.weight - divide(rate * d, sqrt(sum) + d.number(g.eps), g.eps), {sum}};
}

inline Formula formula(const AdadeltaRule& g, const Before& b, int64_t) {
  const Bounded d = b.decayed(g.weight_decay), square = b.average(0, g.rho, d * d), eps = d.number(g.eps);
  const Bounded change = divide(sqrt(b.states[1] + eps), sqrt(square + eps), std::sqrt(g.eps)) * d;
  return {b.weight - g.lr * change, {square, b.average(1, g.rho, change * change)}};
}

inline Formula formula(const LionRule& g, const Before& b, int64_t) {
  const Bounded mixed = b.average(0, g.beta1, b.gradient);
  Bounded sign{mixed.value > 0 ? 1.0L : mixed.value < 0 ? -1.0L : 0.0L, 0, mixed.unit};
  if (std::fabs(mixed.value) <= mixed.bound && mixed.bound > 0) sign.bound = 2;  // rounding decides
  return {(1 - g.lr * g.weight_decay) * b.weight - g.lr * sign, {b.average(0, g.beta2, b.gradient)}};
}

/// What the next step should make of a parameter, by the rule's formula.
template <class Rule>
void reference_of(Parameter& p, const Rule& rule, int64_t step, double factor) {
  const auto size = static_cast<size_t>(p.weight.numel());
  const std::array<Array*, 3> states = {&p.state1, &p.state2, &p.state3};
  const std::array<std::vector<Expected>*, 3> next = {&p.next_state1, &p.next_state2, &p.next_state3};
  p.next_weight.assign(size, {});
  for (auto* expected : next) expected->clear();
  for (size_t at = 0; at < size; ++at) {
    const auto i = static_cast<int64_t>(at);
    const Expected gradient = gradient_of(p, i, factor, 0, rule.maximize);
    Before before{{p.value(i), 0, p.unit()}, {gradient.value, gradient.bound, p.unit()}, {}};
    for (size_t k = 0; k < 3; ++k) before.states[k] = {states[k]->at(i), 0, p.unit()};
    const Formula after = formula(rule, before, step);
    p.next_weight[at] = kept_weight(p, after.weight.value, after.weight.bound);
    for (size_t k = 0; k < 3; ++k)
      if (after.states[k]) next[k]->push_back({after.states[k]->value, 1.1L * after.states[k]->bound + 0x1p-126});
  }
}

inline const std::vector<NAdamRule> kNAdamGroups = {
    {},
    {.lr = 1e-3, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1, .momentum_decay = 0.9},
    {.weight_decay = 0.05, .momentum_decay = 0, .decoupled = true, .maximize = true}};
inline const std::vector<RAdamRule> kRAdamGroups = {
    {},
    {.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.1},
    {.weight_decay = 0.05, .decoupled = true, .maximize = true}};
inline const std::vector<RMSpropRule> kRMSpropGroups = {
    {.lr = 1e-3},
    {.lr = 1e-3, .alpha = 0.9, .momentum = 0.8},
    {.lr = 1e-3, .alpha = 0.8, .eps = 1e-4, .centered = true, .maximize = true},
    {.lr = 1e-3, .alpha = 0.7, .eps = 1e-4, .weight_decay = 0.1, .momentum = 0.5, .centered = true}};
inline const std::vector<AdagradRule> kAdagradGroups = {
    {}, {.lr = 0.1, .lr_decay = 0.1, .eps = 1e-6, .weight_decay = 0.1, .maximize = true}};
inline const std::vector<AdadeltaRule> kAdadeltaGroups = {
    {}, {.lr = 0.5, .rho = 0.8, .eps = 1e-4, .weight_decay = 0.1, .maximize = true}};
inline const std::vector<LionRule> kLionGroups = {
    {}, {.lr = 1e-3, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .maximize = true}};

}  // namespace tern::kernels
