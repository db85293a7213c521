#pragma once
// Element-wise ops of losses: of a prediction and its target. pointwise/ops.h documents the members and lists all ops.

#include "tern/kernels/math/math.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

/// (a - b)^2.
struct SquaredDifference {
  static constexpr const char* name = "squared_difference";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return (a - b) * (a - b);
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return F(2) * (a - b);
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return F(2) * (b - a);
  }
};

/// (a - b)^2 / 2 where |a - b| < delta, otherwise delta (|a - b| - delta / 2) (Huber, 1964).
struct Huber {
  static constexpr const char* name = "huber";
  static constexpr Saves saves = Saves::kInputs;
  double delta = 1;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    const F difference = math::abs(a - b), bounded = math::select(difference > F(delta), F(delta), difference);
    return bounded * (difference - F(0.5) * bounded);
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    const F difference = a - b;
    return math::select(difference >= F(delta), F(delta), math::select(difference <= F(-delta), F(-delta), difference));
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return derivative0(b, a);
  }
};

/// -(t log p + (1 - t) log(1 - p)) of p = sigmoid(x), without overflow and without the difference of large numbers.
struct BceWithLogits {
  static constexpr const char* name = "bce_with_logits";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0b11, 0b01};
  template <class F>
  TERN_HD F forward(F x, F t) const {
    return math::select(x > F(0), F(1) - t, -t) * x + math::log1p_exp(-math::abs(x));
  }
  template <class F>
  TERN_HD F derivative0(F x, F t) const {
    return math::sigmoid(x) - t;
  }
  template <class F>
  TERN_HD F derivative1(F x, F) const {
    return -x;
  }
};

}  // namespace tern::kernels
