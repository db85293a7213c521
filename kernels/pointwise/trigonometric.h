#pragma once
// Trigonometric and hyperbolic element-wise ops and their inverses. pointwise/ops.h documents the members and lists all
// ops.

#include "tern/kernels/math/math.h"
#include "tern/kernels/math/near.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

struct Sin {
  static constexpr const char* name = "sin";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool near_derivative = true;
  static bool is_near(float x) { return math::is_near_angle(x); }
  template <class F>
  TERN_HD F forward(F x) const {
    return math::sin(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::cos(x);
  }
};

struct Cos {
  static constexpr const char* name = "cos";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool near_derivative = true;
  static bool is_near(float x) { return math::is_near_angle(x); }
  template <class F>
  TERN_HD F forward(F x) const {
    return math::cos(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return -math::sin(x);
  }
};

struct Tan {
  static constexpr const char* name = "tan";
  static constexpr Saves saves = Saves::kOutput;
  static bool is_near(float x) { return math::is_near_angle(x); }
  template <class F>
  TERN_HD F forward(F x) const {
    return math::tan(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return F(1) + y * y;
  }
};

/// NaN beyond 1 and -1, where the derivative is infinite.
struct Asin {
  static constexpr const char* name = "asin";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::asin(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::rsqrt((F(1) - x) * (F(1) + x));
  }
};

/// NaN beyond 1 and -1, where the derivative is infinite.
struct Acos {
  static constexpr const char* name = "acos";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::acos(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return -math::rsqrt((F(1) - x) * (F(1) + x));
  }
};

struct Atan {
  static constexpr const char* name = "atan";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::atan(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(1) / (F(1) + x * x);
  }
};

struct Sinh {
  static constexpr const char* name = "sinh";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::sinh(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::cosh(x);
  }
};

struct Cosh {
  static constexpr const char* name = "cosh";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::cosh(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::sinh(x);
  }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::tanh(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return F(1) - y * y;
  }
};

struct Asinh {
  static constexpr const char* name = "asinh";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::asinh(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::rsqrt(x * x + F(1));
  }
};

/// NaN below 1, where the derivative is infinite.
struct Acosh {
  static constexpr const char* name = "acosh";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::acosh(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::rsqrt((x - F(1)) * (x + F(1)) + F(0));  // + 0: -0 would give -infinity
  }
};

/// Infinite at 1 and -1, NaN beyond.
struct Atanh {
  static constexpr const char* name = "atanh";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::atanh(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(1) / ((F(1) - x) * (F(1) + x));
  }
};

}  // namespace tern::kernels
