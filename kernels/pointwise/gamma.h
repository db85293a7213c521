#pragma once
// The element-wise ops of math/gamma.h. pointwise/ops.h documents the members and lists all ops.

#include "tern/kernels/math/gamma.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

struct Erfc {
  static constexpr const char* name = "erfc";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::erfc(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(-4 * math::kInverseRoot2Pi * math::kInverseRoot2) * math::exp(-(x * x));
  }
};

struct Lgamma {
  static constexpr const char* name = "lgamma";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::lgamma(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::polygamma(0, x);
  }
};

/// The n-th derivative of digamma, which is that of order 0.
struct Polygamma {
  static constexpr const char* name = "polygamma";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  int order = 0;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::polygamma(order, x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::polygamma(order + 1, x);
  }
};

}  // namespace tern::kernels
