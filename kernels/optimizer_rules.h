#pragma once
// The built-in optimizers. Each is one struct, a rule: its members are the hyper-parameters of a group of parameters,
// and update() is what happens to one weight. BuiltinRules lists them all, and the loops of the CPU and the kernels of
// CUDA are generated from that list (optimizer_tiles.h, cuda/optimizer_kernel.h). Formulas and order of operations are
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

#include <array>

#include "tern/kernels/math.h"
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

using BuiltinRules = TypeList<AdamRule, SgdRule>;

}  // namespace tern::kernels
