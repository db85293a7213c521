#pragma once
// The built-in optimizers. Each is one struct, a rule: its members are the hyper-parameters of a group of parameters,
// and update() is what happens to one weight. BuiltinRules lists them all, and the loops of the CPU and the kernels of
// CUDA are generated from that list (optimizer/tiles.h, cuda/optimizer/kernel.h). Formulas and order of operations are
// those of torch.optim, computed for one tensor at a time.
//
// Members of a rule:
//   state_names           what it may keep of each weight, at most kMaxOptimizerStates
//   lr, weight_decay      of every rule, as each group may have its own
//   maximize              of every rule; the loops negate the gradients, update() does not look at it
//   Step<F>               the numbers that update() takes, in the type F of the arithmetic
//   prepare<F>(count)     those numbers for update `count`, from 1; computed in double, once for many weights
//   update(step, is, weight, gradient, states...)
//                         one weight. is(kCoupled) says whether that condition holds. The gradient has been multiplied
//                         by all factors (clipping, loss scale, sign). A state that is not kept reads as 0. There are
//                         no branches but on is(...), so that the CPU's loops are vectorised.
// and where they say more than the default:
//   kCoupled, ...         conditions that are the same for all weights: a bit each; kCaseCount: their combinations
//   cases(count)          the conditions that hold in update `count`; the CPU has a loop for each combination
//   states(cases)         which of the states are kept: a bit each, the same for every count; default: all of them
//   initial(k)            the value of state k before the first update; default: 0

#include <array>

#include "tern/kernels/math/math.h"
#include "tern/kernels/type_list.h"

namespace tern::kernels {

/// Kingma & Ba, arXiv:1412.6980; decoupled: Loshchilov & Hutter, arXiv:1711.05101.
struct AdamRule {
  static constexpr std::array state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true;  // AdamW: w *= 1 - lr * decay; otherwise decay is added to the gradient (Adam, L2)
  bool amsgrad = false;
  bool maximize = false;

  static constexpr unsigned kCoupled = 1, kAmsgrad = 2, kCaseCount = 4;
  TERN_HD constexpr unsigned cases(int64_t) const {
    return (!decoupled && weight_decay != 0 ? kCoupled : 0) | (amsgrad ? kAmsgrad : 0);
  }
  TERN_HD static constexpr unsigned states(unsigned cases) { return (cases & kAmsgrad) != 0 ? 0b111 : 0b011; }

  template <class F>
  struct Step {
    F coupled, keep, first, beta2, second, rate, correction, eps;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t count) const {
    const auto n = static_cast<double>(count);
    return {.coupled = static_cast<F>(weight_decay),
            .keep = decoupled ? static_cast<F>(1 - lr * weight_decay) : F(1),
            .first = static_cast<F>(1 - beta1),
            .beta2 = static_cast<F>(beta2),
            .second = static_cast<F>(1 - beta2),
            .rate = static_cast<F>(lr / (1 - math::pow(beta1, n))),
            .correction = static_cast<F>(math::sqrt(1 - math::pow(beta2, n))),
            .eps = static_cast<F>(eps)};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is is, F& weight, F gradient, F& average, F& square, F& largest) {
    if (is(kCoupled)) gradient += s.coupled * weight;
    average += s.first * (gradient - average);
    square = square * s.beta2 + s.second * gradient * gradient;
    F root = square;
    if (is(kAmsgrad)) root = largest = math::max(largest, square);
    weight = weight * s.keep - s.rate * average / (math::sqrt(root) / s.correction + s.eps);
  }
};

/// Stochastic gradient descent: buffer = momentum * buffer + (1 - dampening) * gradient, at first the gradient itself.
struct SgdRule {
  static constexpr std::array state_names = {"momentum_buffer"};

  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;

  static constexpr unsigned kDecay = 1, kMomentum = 2, kNesterov = 4, kFirst = 8, kCaseCount = 16;
  TERN_HD constexpr unsigned cases(int64_t count) const {
    return (weight_decay != 0 ? kDecay : 0) | (momentum != 0 ? kMomentum : 0) | (nesterov ? kNesterov : 0) |
           (count == 1 ? kFirst : 0);
  }
  TERN_HD static constexpr unsigned states(unsigned cases) { return (cases & kMomentum) != 0 ? 1 : 0; }

  template <class F>
  struct Step {
    F decay, keep, add, rate;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t) const {
    return {.decay = static_cast<F>(weight_decay),
            .keep = static_cast<F>(momentum),
            .add = static_cast<F>(1 - dampening),
            .rate = static_cast<F>(lr)};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is is, F& weight, F gradient, F& buffer) {
    if (is(kDecay)) gradient += s.decay * weight;
    if (is(kMomentum)) {
      buffer = is(kFirst) ? gradient : s.keep * buffer + s.add * gradient;
      gradient = is(kNesterov) ? gradient + s.keep * buffer : buffer;
    }
    weight -= s.rate * gradient;
  }
};

/// Dozat, "Incorporating Nesterov Momentum into Adam", 2016: Adam whose step already contains the next step's share of
/// the average. Update i has the share mu(i) = beta1 * (1 - 0.96^(i * momentum_decay) / 2).
struct NAdamRule {
  static constexpr std::array state_names = {"exp_avg", "exp_avg_sq"};

  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool decoupled = false;  // as AdamRule's
  bool maximize = false;

  static constexpr unsigned kCoupled = 1, kCaseCount = 2;
  TERN_HD constexpr unsigned cases(int64_t) const { return !decoupled && weight_decay != 0 ? kCoupled : 0; }

  TERN_HD double mu(double i) const { return beta1 * (1 - 0.5 * math::pow(0.96, i * momentum_decay)); }
  /// mu(1) * ... * mu(count). PyTorch keeps it as a state; it follows from the count, and 1 - product is computed. The
  /// loop ends where the product no longer changes that, or the remaining factors are beta1 to the last bit: after 60
  /// factors with the default options, and after fewer than 3,000 with any.
  TERN_HD double mu_product(int64_t count) const {
    const double ratio = math::pow(0.96, momentum_decay);
    double product = 1, power = 0.5;
    for (int64_t i = 1; i <= count; ++i) {
      power *= ratio;
      if (power < 0x1p-55) return product * math::pow(beta1, static_cast<double>(count - i + 1));
      product *= beta1 * (1 - power);
      if (product < 0x1p-60) return 0;
    }
    return product;
  }

  template <class F>
  struct Step {
    F coupled, keep, first, beta2, second, rate, next_rate, correction, eps;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t count) const {
    const auto n = static_cast<double>(count);
    const double product = mu_product(count), next = mu(n + 1);
    return {.coupled = static_cast<F>(weight_decay),
            .keep = decoupled ? static_cast<F>(1 - lr * weight_decay) : F(1),
            .first = static_cast<F>(1 - beta1),
            .beta2 = static_cast<F>(beta2),
            .second = static_cast<F>(1 - beta2),
            .rate = static_cast<F>(lr * (1 - mu(n)) / (1 - product)),
            .next_rate = static_cast<F>(lr * next / (1 - product * next)),
            .correction = static_cast<F>(1 - math::pow(beta2, n)),
            .eps = static_cast<F>(eps)};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is is, F& weight, F gradient, F& average, F& square) {
    if (is(kCoupled)) gradient += s.coupled * weight;
    average += s.first * (gradient - average);
    square = square * s.beta2 + s.second * gradient * gradient;
    const F denominator = math::sqrt(square / s.correction) + s.eps;
    weight = weight * s.keep - s.rate * gradient / denominator - s.next_rate * average / denominator;
  }
};

/// Liu et al., arXiv:1908.03265: Adam without its denominator until enough updates are done for the denominator's
/// variance to be known, and with a factor for it from then on.
struct RAdamRule {
  static constexpr std::array state_names = {"exp_avg", "exp_avg_sq"};

  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // as AdamRule's
  bool maximize = false;

  static constexpr unsigned kCoupled = 1, kRectified = 2, kCaseCount = 4;
  /// The paper's rho: the length of the simple average that has the variance of the exponential one.
  TERN_HD double length_limit() const { return 2 / (1 - beta2) - 1; }
  TERN_HD double length(double n) const {
    const double power = math::pow(beta2, n);
    return length_limit() - 2 * n * power / (1 - power);
  }
  TERN_HD unsigned cases(int64_t count) const {
    return (!decoupled && weight_decay != 0 ? kCoupled : 0) | (length(static_cast<double>(count)) > 5 ? kRectified : 0);
  }

  template <class F>
  struct Step {
    F coupled, keep, first, beta2, second, rate, eps;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t count) const {
    const auto n = static_cast<double>(count);
    const double now = length(n), limit = length_limit();
    double rate = lr / (1 - math::pow(beta1, n));
    if (now > 5)
      rate *= math::sqrt((now - 4) * (now - 2) * limit / ((limit - 4) * (limit - 2) * now)) *
              math::sqrt(1 - math::pow(beta2, n));
    return {.coupled = static_cast<F>(weight_decay),
            .keep = decoupled ? static_cast<F>(1 - lr * weight_decay) : F(1),
            .first = static_cast<F>(1 - beta1),
            .beta2 = static_cast<F>(beta2),
            .second = static_cast<F>(1 - beta2),
            .rate = static_cast<F>(rate),
            .eps = static_cast<F>(eps)};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is is, F& weight, F gradient, F& average, F& square) {
    if (is(kCoupled)) gradient += s.coupled * weight;
    average += s.first * (gradient - average);
    square = square * s.beta2 + s.second * gradient * gradient;
    F change = s.rate * average;
    if (is(kRectified)) change /= math::sqrt(square) + s.eps;
    weight = weight * s.keep - change;
  }
};

/// Hinton, "Neural Networks for Machine Learning", lecture 6e; centered: Graves, arXiv:1308.0850.
struct RMSpropRule {
  static constexpr std::array state_names = {"square_avg", "grad_avg", "momentum_buffer"};

  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
  bool maximize = false;

  static constexpr unsigned kDecay = 1, kCentered = 2, kMomentum = 4, kCaseCount = 8;
  TERN_HD constexpr unsigned cases(int64_t) const {
    return (weight_decay != 0 ? kDecay : 0) | (centered ? kCentered : 0) | (momentum != 0 ? kMomentum : 0);
  }
  TERN_HD static constexpr unsigned states(unsigned cases) {
    return 1 | ((cases & kCentered) != 0 ? 2 : 0) | ((cases & kMomentum) != 0 ? 4 : 0);
  }

  template <class F>
  struct Step {
    F decay, alpha, rest, eps, momentum, rate;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t) const {
    return {.decay = static_cast<F>(weight_decay),
            .alpha = static_cast<F>(alpha),
            .rest = static_cast<F>(1 - alpha),
            .eps = static_cast<F>(eps),
            .momentum = static_cast<F>(momentum),
            .rate = static_cast<F>(lr)};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is is, F& weight, F gradient, F& square, F& average, F& buffer) {
    if (is(kDecay)) gradient += s.decay * weight;
    square = s.alpha * square + s.rest * gradient * gradient;
    F spread = square;
    if (is(kCentered)) {
      average += s.rest * (gradient - average);
      spread -= average * average;
    }
    F change = gradient / (math::sqrt(spread) + s.eps);
    if (is(kMomentum)) change = buffer = s.momentum * buffer + change;
    weight -= s.rate * change;
  }
};

/// Duchi, Hazan & Singer, "Adaptive Subgradient Methods", JMLR 12, 2011.
struct AdagradRule {
  static constexpr std::array state_names = {"sum"};

  double lr = 1e-2, lr_decay = 0, eps = 1e-10, weight_decay = 0, initial_accumulator_value = 0;
  bool maximize = false;

  static constexpr unsigned kDecay = 1, kCaseCount = 2;
  TERN_HD constexpr unsigned cases(int64_t) const { return weight_decay != 0 ? kDecay : 0; }
  constexpr double initial(size_t) const { return initial_accumulator_value; }

  template <class F>
  struct Step {
    F decay, eps, rate;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t count) const {
    return {.decay = static_cast<F>(weight_decay),
            .eps = static_cast<F>(eps),
            .rate = static_cast<F>(lr / (1 + static_cast<double>(count - 1) * lr_decay))};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is is, F& weight, F gradient, F& sum) {
    if (is(kDecay)) gradient += s.decay * weight;
    sum += gradient * gradient;
    weight -= s.rate * gradient / (math::sqrt(sum) + s.eps);
  }
};

/// Zeiler, arXiv:1212.5701.
struct AdadeltaRule {
  static constexpr std::array state_names = {"square_avg", "acc_delta"};

  double lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;

  static constexpr unsigned kDecay = 1, kCaseCount = 2;
  TERN_HD constexpr unsigned cases(int64_t) const { return weight_decay != 0 ? kDecay : 0; }

  template <class F>
  struct Step {
    F decay, rho, rest, eps, rate;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t) const {
    return {.decay = static_cast<F>(weight_decay),
            .rho = static_cast<F>(rho),
            .rest = static_cast<F>(1 - rho),
            .eps = static_cast<F>(eps),
            .rate = static_cast<F>(lr)};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is is, F& weight, F gradient, F& square, F& changes) {
    if (is(kDecay)) gradient += s.decay * weight;
    square = s.rho * square + s.rest * gradient * gradient;
    const F change = math::sqrt(changes + s.eps) / math::sqrt(square + s.eps) * gradient;
    changes = s.rho * changes + s.rest * change * change;
    weight -= s.rate * change;
  }
};

/// Chen et al., arXiv:2302.06675: the sign of an average. A NaN gradient makes the weight NaN.
struct LionRule {
  static constexpr std::array state_names = {"exp_avg"};

  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  bool maximize = false;

  template <class F>
  struct Step {
    F keep, rate, beta1, rest1, beta2, rest2;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t) const {
    return {.keep = static_cast<F>(1 - lr * weight_decay),
            .rate = static_cast<F>(lr),
            .beta1 = static_cast<F>(beta1),
            .rest1 = static_cast<F>(1 - beta1),
            .beta2 = static_cast<F>(beta2),
            .rest2 = static_cast<F>(1 - beta2)};
  }

  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is, F& weight, F gradient, F& average) {
    weight = weight * s.keep - s.rate * math::sign(s.beta1 * average + s.rest1 * gradient);
    average = s.beta2 * average + s.rest2 * gradient;
  }
};

using BuiltinRules =
    TypeList<AdamRule, SgdRule, NAdamRule, RAdamRule, RMSpropRule, AdagradRule, AdadeltaRule, LionRule>;

}  // namespace tern::kernels
