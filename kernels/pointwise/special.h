#pragma once
// The element-wise ops of math/special.h. pointwise/ops.h documents the members and lists all ops.

#include "tern/kernels/math/special.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

struct I0 {
  static constexpr const char* name = "i0";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::i0(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::i1(x);
  }
};

struct I0e {
  static constexpr const char* name = "i0e";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::i0e(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::i0e_slope(x);
  }
};

struct I1 {
  static constexpr const char* name = "i1";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::i1(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::i1_slope(x);
  }
};

struct I1e {
  static constexpr const char* name = "i1e";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::i1e(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::i1e_slope(x);
  }
};

struct Erfcx {
  static constexpr const char* name = "erfcx";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::erfcx(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::erfcx_slope(x);
  }
};

struct LogNdtr {
  static constexpr const char* name = "log_ndtr";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::log_ndtr(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::log_ndtr_slope(x);
  }
};

/// The derivative by a has no closed form.
struct Igamma {
  static constexpr const char* name = "igamma";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F a, F x) const {
    return math::igamma(a, x);
  }
  template <class F>
  TERN_HD F derivative1(F a, F x) const {
    return math::gamma_density(a, x);
  }
};

struct Igammac {
  static constexpr const char* name = "igammac";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F a, F x) const {
    return math::igammac(a, x);
  }
  template <class F>
  TERN_HD F derivative1(F a, F x) const {
    return -math::gamma_density(a, x);
  }
};

}  // namespace tern::kernels
