#pragma once
// A rule from outside the project: RMSprop as TensorFlow computes it (timm.optim.RMSpropTF). The mean square starts at
// 1, eps is inside the square root, and the learning rate is part of what the momentum keeps.

#include "tern/kernels/optimizer/rules.h"

namespace tern::kernels {

/// With momentum and not centered it keeps the first state and the third.
struct RmspropTfRule {
  static constexpr std::array state_names = {"square_avg", "grad_avg", "momentum_buffer"};

  double lr = 1e-2, alpha = 0.9, eps = 1e-10, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;

  static constexpr unsigned kDecay = 1, kCentered = 2, kMomentum = 4, kCaseCount = 8;
  TERN_HD constexpr unsigned cases(int64_t) const {
    return (weight_decay != 0 ? kDecay : 0) | (centered ? kCentered : 0) | (momentum != 0 ? kMomentum : 0);
  }
  TERN_HD static constexpr unsigned states(unsigned cases) {
    return 1 | ((cases & kCentered) != 0 ? 2 : 0) | ((cases & kMomentum) != 0 ? 4 : 0);
  }

  static constexpr double initial(size_t k) { return k == 0 ? 1 : 0; }

  template <class F>
  struct Step {
    F decay, alpha, rest, eps, momentum, rate;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t) const {
    return {static_cast<F>(weight_decay), static_cast<F>(alpha),    static_cast<F>(1 - alpha),
            static_cast<F>(eps),          static_cast<F>(momentum), static_cast<F>(lr)};
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
    F change = s.rate * gradient / math::sqrt(spread + s.eps);
    if (is(kMomentum)) change = buffer = s.momentum * buffer + change;
    weight -= change;
  }
};

}  // namespace tern::kernels
