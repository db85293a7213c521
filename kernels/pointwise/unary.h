#pragma once
// Element-wise ops of one input. pointwise/ops.h documents the members and lists all ops.

#include "tern/kernels/math/math.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

struct Neg {
  static constexpr const char* name = "neg";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return -x;
  }
  template <class T>
  TERN_HD static uint16_t on_bits(uint16_t x) {
    return x ^ 0x8000;
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(-1);
  }
};

struct Abs {
  static constexpr const char* name = "abs";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::abs(x);
  }
  template <class T>
  TERN_HD static uint16_t on_bits(uint16_t x) {
    return x & 0x7fff;
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::sign(x);
  }
};

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::exp(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return y;
  }
};

struct Expm1 {
  static constexpr const char* name = "expm1";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::expm1(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return y + F(1);
  }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::log(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(1) / x;
  }
};

struct Log1p {
  static constexpr const char* name = "log1p";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::log1p(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(1) / (F(1) + x);
  }
};

/// The derivative is infinite at 0.
struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::sqrt(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return F(0.5) / y;
  }
};

struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::rsqrt(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return F(-0.5) * y * y * y;
  }
};

struct Square {
  static constexpr const char* name = "square";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return x * x;
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return x + x;
  }
};

struct Cube {
  static constexpr const char* name = "cube";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return x * x * x;
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(3) * x * x;
  }
};

struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return F(1) / x;
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return -(y * y);
  }
};

struct Erf {
  static constexpr const char* name = "erf";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::erf(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(4 * math::kInverseRoot2Pi * math::kInverseRoot2) * math::exp(-(x * x));
  }
};

/// Infinite at 1 and -1, NaN beyond.
struct Erfinv {
  static constexpr const char* name = "erfinv";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::erfinv(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return F(0.88622692545275801365) * math::exp(y * y);  // sqrt(pi) / 2
  }
};

struct Exp2 {
  static constexpr const char* name = "exp2";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::exp2(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return F(math::kLn2) * y;
  }
};

struct Log2 {
  static constexpr const char* name = "log2";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::log2(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(1 / math::kLn2) / x;
  }
};

struct Log10 {
  static constexpr const char* name = "log10";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::log10(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(1 / math::kLn10) / x;
  }
};

/// NaN stays NaN. The derivative is 0.
struct Sign {
  static constexpr const char* name = "sign";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::sign(x);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(0);
  }
};

/// The derivative is 0.
struct Ceil {
  static constexpr const char* name = "ceil";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::ceil(x);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(0);
  }
};

/// Towards 0. The derivative is 0.
struct Trunc {
  static constexpr const char* name = "trunc";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::trunc(x);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(0);
  }
};

/// To the nearest integer, halves to even. The derivative is 0.
struct Round {
  static constexpr const char* name = "round";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::round(x);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(0);
  }
};

/// The derivative is 0.
struct Floor {
  static constexpr const char* name = "floor";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::floor(x);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(0);
  }
};

/// NaN and infinities replaced; the derivative there is 0.
struct NanToNum {
  static constexpr const char* name = "nan_to_num";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool masks = true;
  double nan = 0, positive = 0, negative = 0;  // replacements of NaN and of the infinities
  template <class F>
  TERN_HD F forward(F x) const {
    const F infinite = math::select(x > F(0), F(positive), math::select(x < F(0), F(negative), F(nan)));
    return math::select(math::isfinite(x), x, infinite);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select(math::isfinite(x), F(1), F(0));
  }
};

struct PowScalar {
  static constexpr const char* name = "pow_scalar";
  static constexpr Saves saves = Saves::kInputs;
  double exponent = 2;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::pow(x, F(exponent));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return exponent == 0 ? F(0) : F(exponent) * math::pow(x, F(exponent - 1));
  }
};

struct AddScalar {
  static constexpr const char* name = "add_scalar";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  double value = 0;
  template <class F>
  TERN_HD F forward(F x) const {
    return x + F(value);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(1);
  }
};

struct MulScalar {
  static constexpr const char* name = "mul_scalar";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  double value = 1;
  template <class F>
  TERN_HD F forward(F x) const {
    return x * F(value);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(value);
  }
};

/// The gradient passes where low < x < high; an infinite bound is none, which x = infinity is within. NaN stays NaN.
struct Clamp {
  static constexpr const char* name = "clamp";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  template <class F>
  TERN_HD F forward(F x) const {
    const F raised = math::select(x < F(low), F(low), x);
    return math::select(raised > F(high), F(high), raised);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const bool above = (x > F(low)) | (low == -std::numeric_limits<double>::infinity());
    const bool below = (x < F(high)) | (high == std::numeric_limits<double>::infinity());
    return math::select(above & below, F(1), F(0));
  }
};

/// Clamp whose derivative is 0 at infinite bounds too, as in PyTorch.
struct Hardtanh : Clamp {
  static constexpr const char* name = "hardtanh";
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select((x > F(low)) & (x < F(high)), F(1), F(0));
  }
};

struct LogicalNot {
  static constexpr const char* name = "logical_not";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F x) const {
    return x == F(0);
  }
};

struct IsNan {
  static constexpr const char* name = "isnan";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F x) const {
    return math::isnan(x);
  }
};

struct IsFinite {
  static constexpr const char* name = "isfinite";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F x) const {
    return math::isfinite(x);
  }
};

}  // namespace tern::kernels
