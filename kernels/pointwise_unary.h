#pragma once
// Element-wise ops of one input. pointwise_ops.h documents the members and lists all ops.

#include "tern/kernels/math.h"
#include "tern/kernels/pointwise.h"

namespace tern::kernels {

inline constexpr double kInverseRoot2 = 0.70710678118654752440;
inline constexpr double kInverseRoot2Pi = 0.39894228040143267794;

struct Neg {
  static constexpr const char* name = "neg";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return -x;
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

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::sigmoid(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return y * (F(1) - y);
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

/// The derivative is 0 at 0; NaN stays NaN.
struct Relu {
  static constexpr const char* name = "relu";
  static constexpr Saves saves = Saves::kOutput;
  static constexpr bool integral = true, masks = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x <= F(0), F(0), x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return math::select(y <= F(0), F(0), F(1));
  }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Saves saves = Saves::kInputs;
  double slope = 0.01;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x > F(0), x, F(slope) * x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select(x > F(0), F(1), F(slope));
  }
};

/// x Phi(x) with the normal distribution function (Hendrycks and Gimpel, arXiv:1606.08415), the erf form.
struct Gelu {
  static constexpr const char* name = "gelu";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return F(0.5) * x * (F(1) + math::erf(x * F(kInverseRoot2)));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const F distribution = F(0.5) * (F(1) + math::erf(x * F(kInverseRoot2)));
    return distribution + x * (F(kInverseRoot2Pi) * math::exp(F(-0.5) * x * x));
  }
};

/// The tanh approximation of the same paper: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr double kScale = 2 * kInverseRoot2Pi, kCubic = 0.044715;
  template <class F>
  TERN_HD F bent(F x) const {
    return math::tanh(F(kScale) * (x + F(kCubic) * x * x * x));
  }
  template <class F>
  TERN_HD F forward(F x) const {
    return F(0.5) * x * (F(1) + bent(x));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const F t = bent(x);
    const F inner = F(kScale) * (F(1) + F(3 * kCubic) * x * x);
    return F(0.5) * (F(1) + t) + F(0.5) * x * (F(1) - t * t) * inner;
  }
};

/// x sigmoid(x), also called swish.
struct Silu {
  static constexpr const char* name = "silu";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return x / (F(1) + math::exp(-x));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const F s = math::sigmoid(x);
    return s * (F(1) + x * (F(1) - s));
  }
};

/// log(1 + exp(x)) without overflow.
struct Softplus {
  static constexpr const char* name = "softplus";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x > F(0), x, F(0) * x) + math::log1p(math::exp(-math::abs(x)));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::sigmoid(x);
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
    return F(4 * kInverseRoot2Pi * kInverseRoot2) * math::exp(-(x * x));
  }
};

struct Sin {
  static constexpr const char* name = "sin";
  static constexpr Saves saves = Saves::kInputs;
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
  template <class F>
  TERN_HD F forward(F x) const {
    return math::cos(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return -math::sin(x);
  }
};

/// The derivative is 0.
struct Floor {
  static constexpr const char* name = "floor";
  static constexpr Saves saves = Saves::kNone;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::floor(x);
  }
  template <class F>
  TERN_HD F derivative() const {
    return F(0);
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

/// The gradient passes where low <= x <= high. NaN stays NaN.
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
    return math::select((x >= F(low)) & (x <= F(high)), F(1), F(0));
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
