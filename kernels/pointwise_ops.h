#pragma once
// The built-in element-wise ops. Each struct gives forward and its derivatives; BuiltinOps lists them all, and the kernels
// of both devices, the tests and autograd are generated from that list. Derivatives at kinks are PyTorch's.
//
// Members of an op:
//   name                        for messages
//   saves                       what derivative takes (Saves)
//   forward(x...)               F, or bool: then the op gives a bool tensor
//   derivative(saved...)        of a unary op; derivative0, derivative1, derivative2 of the others; absent: no gradient
// and where they say more than the default:
//   integral = true             computes in int64 too
//   masks = true                a derivative of 0 means that the output does not depend on the input: the gradient is 0
//                               there even when dy is infinite or NaN (relu, where, clamp)
//   needs[] = {0b10, 0b01}      per derivative, which saved tensors it reads (bit 0 the first); default: all of them

#include "tern/kernels/math.h"
#include "tern/kernels/pointwise.h"

namespace tern::kernels {

inline constexpr double kInverseRoot2 = 0.70710678118654752440;
inline constexpr double kInverseRoot2Pi = 0.39894228040143267794;

// ---------------------------------------------------------------------------------------------------------- unary

struct Neg {
  static constexpr const char* name = "neg";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD F forward(F x) const { return -x; }
  template <class F> TERN_HD F derivative() const { return F(-1); }
};

struct Abs {
  static constexpr const char* name = "abs";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true;
  template <class F> TERN_HD F forward(F x) const { return math::abs(x); }
  template <class F> TERN_HD F derivative(F x) const { return math::sign(x); }
};

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr Saves saves = Saves::kOutput;
  template <class F> TERN_HD F forward(F x) const { return math::exp(x); }
  template <class F> TERN_HD F derivative(F y) const { return y; }
};

struct Expm1 {
  static constexpr const char* name = "expm1";
  static constexpr Saves saves = Saves::kOutput;
  template <class F> TERN_HD F forward(F x) const { return math::expm1(x); }
  template <class F> TERN_HD F derivative(F y) const { return y + F(1); }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const { return math::log(x); }
  template <class F> TERN_HD F derivative(F x) const { return F(1) / x; }
};

struct Log1p {
  static constexpr const char* name = "log1p";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const { return math::log1p(x); }
  template <class F> TERN_HD F derivative(F x) const { return F(1) / (F(1) + x); }
};

/// Derivative infinite at 0.
struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr Saves saves = Saves::kOutput;
  template <class F> TERN_HD F forward(F x) const { return math::sqrt(x); }
  template <class F> TERN_HD F derivative(F y) const { return F(0.5) / y; }
};

struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  static constexpr Saves saves = Saves::kOutput;
  template <class F> TERN_HD F forward(F x) const { return math::rsqrt(x); }
  template <class F> TERN_HD F derivative(F y) const { return F(-0.5) * y * y * y; }
};

struct Square {
  static constexpr const char* name = "square";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true;
  template <class F> TERN_HD F forward(F x) const { return x * x; }
  template <class F> TERN_HD F derivative(F x) const { return x + x; }
};

struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  static constexpr Saves saves = Saves::kOutput;
  template <class F> TERN_HD F forward(F x) const { return F(1) / x; }
  template <class F> TERN_HD F derivative(F y) const { return -(y * y); }
};

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr Saves saves = Saves::kOutput;
  template <class F> TERN_HD F forward(F x) const { return math::sigmoid(x); }
  template <class F> TERN_HD F derivative(F y) const { return y * (F(1) - y); }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr Saves saves = Saves::kOutput;
  template <class F> TERN_HD F forward(F x) const { return math::tanh(x); }
  template <class F> TERN_HD F derivative(F y) const { return F(1) - y * y; }
};

/// Derivative 0 at 0; NaN stays NaN.
struct Relu {
  static constexpr const char* name = "relu";
  static constexpr Saves saves = Saves::kOutput;
  static constexpr bool integral = true, masks = true;
  template <class F> TERN_HD F forward(F x) const { return math::select(x <= F(0), F(0), x); }
  template <class F> TERN_HD F derivative(F y) const { return math::select(y <= F(0), F(0), F(1)); }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Saves saves = Saves::kInputs;
  double slope = 0.01;
  template <class F> TERN_HD F forward(F x) const { return math::select(x > F(0), x, F(slope) * x); }
  template <class F> TERN_HD F derivative(F x) const { return math::select(x > F(0), F(1), F(slope)); }
};

/// x Phi(x) with the normal distribution function (Hendrycks and Gimpel, arXiv:1606.08415), the erf form.
struct Gelu {
  static constexpr const char* name = "gelu";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const { return F(0.5) * x * (F(1) + math::erf(x * F(kInverseRoot2))); }
  template <class F> TERN_HD F derivative(F x) const {
    const F distribution = F(0.5) * (F(1) + math::erf(x * F(kInverseRoot2)));
    return distribution + x * (F(kInverseRoot2Pi) * math::exp(F(-0.5) * x * x));
  }
};

/// The tanh approximation of the same paper: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr double kScale = 2 * kInverseRoot2Pi, kCubic = 0.044715;
  template <class F> TERN_HD F bent(F x) const { return math::tanh(F(kScale) * (x + F(kCubic) * x * x * x)); }
  template <class F> TERN_HD F forward(F x) const { return F(0.5) * x * (F(1) + bent(x)); }
  template <class F> TERN_HD F derivative(F x) const {
    const F t = bent(x);
    const F inner = F(kScale) * (F(1) + F(3 * kCubic) * x * x);
    return F(0.5) * (F(1) + t) + F(0.5) * x * (F(1) - t * t) * inner;
  }
};

/// x sigmoid(x), also called swish.
struct Silu {
  static constexpr const char* name = "silu";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const { return x / (F(1) + math::exp(-x)); }
  template <class F> TERN_HD F derivative(F x) const {
    const F s = math::sigmoid(x);
    return s * (F(1) + x * (F(1) - s));
  }
};

/// log(1 + exp(x)), without overflow.
struct Softplus {
  static constexpr const char* name = "softplus";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const {
    return math::select(x > F(0), x, F(0) * x) + math::log1p(math::exp(-math::abs(x)));
  }
  template <class F> TERN_HD F derivative(F x) const { return math::sigmoid(x); }
};

struct Erf {
  static constexpr const char* name = "erf";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const { return math::erf(x); }
  template <class F> TERN_HD F derivative(F x) const {
    return F(4 * kInverseRoot2Pi * kInverseRoot2) * math::exp(-(x * x));
  }
};

struct Sin {
  static constexpr const char* name = "sin";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const { return math::sin(x); }
  template <class F> TERN_HD F derivative(F x) const { return math::cos(x); }
};

struct Cos {
  static constexpr const char* name = "cos";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F x) const { return math::cos(x); }
  template <class F> TERN_HD F derivative(F x) const { return -math::sin(x); }
};

/// Derivative 0.
struct Floor {
  static constexpr const char* name = "floor";
  static constexpr Saves saves = Saves::kNone;
  template <class F> TERN_HD F forward(F x) const { return math::floor(x); }
  template <class F> TERN_HD F derivative() const { return F(0); }
};

struct PowScalar {
  static constexpr const char* name = "pow_scalar";
  static constexpr Saves saves = Saves::kInputs;
  double exponent = 2;
  template <class F> TERN_HD F forward(F x) const { return math::pow(x, F(exponent)); }
  template <class F> TERN_HD F derivative(F x) const {
    return exponent == 0 ? F(0) : F(exponent) * math::pow(x, F(exponent - 1));
  }
};

struct AddScalar {
  static constexpr const char* name = "add_scalar";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  double value = 0;
  template <class F> TERN_HD F forward(F x) const { return x + F(value); }
  template <class F> TERN_HD F derivative() const { return F(1); }
};

struct MulScalar {
  static constexpr const char* name = "mul_scalar";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  double value = 1;
  template <class F> TERN_HD F forward(F x) const { return x * F(value); }
  template <class F> TERN_HD F derivative() const { return F(value); }
};

/// The gradient passes where low <= x <= high, bounds included. NaN stays NaN.
struct Clamp {
  static constexpr const char* name = "clamp";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  template <class F> TERN_HD F forward(F x) const {
    const F raised = math::select(x < F(low), F(low), x);
    return math::select(raised > F(high), F(high), raised);
  }
  template <class F> TERN_HD F derivative(F x) const {
    return math::select((x >= F(low)) & (x <= F(high)), F(1), F(0));
  }
};

struct LogicalNot {
  static constexpr const char* name = "logical_not";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F x) const { return x == F(0); }
};

struct IsNan {
  static constexpr const char* name = "isnan";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F x) const { return math::isnan(x); }
};

struct IsFinite {
  static constexpr const char* name = "isfinite";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F x) const { return math::isfinite(x); }
};

// --------------------------------------------------------------------------------------------------------- binary

struct Add {
  static constexpr const char* name = "add";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD F forward(F a, F b) const { return a + b; }
  template <class F> TERN_HD F derivative0() const { return F(1); }
  template <class F> TERN_HD F derivative1() const { return F(1); }
};

struct Sub {
  static constexpr const char* name = "sub";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD F forward(F a, F b) const { return a - b; }
  template <class F> TERN_HD F derivative0() const { return F(1); }
  template <class F> TERN_HD F derivative1() const { return F(-1); }
};

struct Mul {
  static constexpr const char* name = "mul";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true;
  static constexpr uint32_t needs[] = {0b10, 0b01};
  template <class F> TERN_HD F forward(F a, F b) const { return a * b; }
  template <class F> TERN_HD F derivative0(F, F b) const { return b; }
  template <class F> TERN_HD F derivative1(F a, F) const { return a; }
};

struct Div {
  static constexpr const char* name = "div";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0b10, 0b11};
  template <class F> TERN_HD F forward(F a, F b) const { return a / b; }
  template <class F> TERN_HD F derivative0(F, F b) const { return F(1) / b; }
  template <class F> TERN_HD F derivative1(F a, F b) const { return -((a / b) / b); }
};

/// NaN when either is NaN; equal inputs share the gradient half and half.
struct Maximum {
  static constexpr const char* name = "maximum";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  template <class F> TERN_HD F forward(F a, F b) const { return math::max(a, b); }
  template <class F> TERN_HD F derivative0(F a, F b) const {
    return math::select(a == b, F(0.5), math::select(a < b, F(0), F(1)));
  }
  template <class F> TERN_HD F derivative1(F a, F b) const { return derivative0(b, a); }
};

struct Minimum {
  static constexpr const char* name = "minimum";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  template <class F> TERN_HD F forward(F a, F b) const { return math::min(a, b); }
  template <class F> TERN_HD F derivative0(F a, F b) const {
    return math::select(a == b, F(0.5), math::select(a > b, F(0), F(1)));
  }
  template <class F> TERN_HD F derivative1(F a, F b) const { return derivative0(b, a); }
};

/// The derivative by the exponent is 0 where the base is 0 and the exponent is not negative.
struct Pow {
  static constexpr const char* name = "pow";
  static constexpr Saves saves = Saves::kInputs;
  template <class F> TERN_HD F forward(F a, F b) const { return math::pow(a, b); }
  template <class F> TERN_HD F derivative0(F a, F b) const {
    return math::select(b == F(0), F(0), b * math::pow(a, b - F(1)));
  }
  template <class F> TERN_HD F derivative1(F a, F b) const {
    return math::select((a == F(0)) & (b >= F(0)), F(0), math::pow(a, b) * math::log(a));
  }
};

struct Equal {
  static constexpr const char* name = "eq";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return a == b; }
};

struct NotEqual {
  static constexpr const char* name = "ne";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return a != b; }
};

struct Less {
  static constexpr const char* name = "lt";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return a < b; }
};

struct LessEqual {
  static constexpr const char* name = "le";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return a <= b; }
};

struct Greater {
  static constexpr const char* name = "gt";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return a > b; }
};

struct GreaterEqual {
  static constexpr const char* name = "ge";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return a >= b; }
};

struct LogicalAnd {
  static constexpr const char* name = "logical_and";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return (a != F(0)) & (b != F(0)); }
};

struct LogicalOr {
  static constexpr const char* name = "logical_or";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F> TERN_HD bool forward(F a, F b) const { return (a != F(0)) | (b != F(0)); }
};

// -------------------------------------------------------------------------------------------------------- ternary

/// condition ? a : b; the condition has no gradient.
struct Where {
  static constexpr const char* name = "where";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  static constexpr uint32_t needs[] = {0, 0b001, 0b001};
  template <class F> TERN_HD F forward(F condition, F a, F b) const { return math::select(condition != F(0), a, b); }
  template <class F> TERN_HD F derivative1(F condition, F, F) const {
    return math::select(condition != F(0), F(1), F(0));
  }
  template <class F> TERN_HD F derivative2(F condition, F, F) const {
    return math::select(condition != F(0), F(0), F(1));
  }
};

/// a + weight (b - a).
struct Lerp {
  static constexpr const char* name = "lerp";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0b100, 0b100, 0b011};
  template <class F> TERN_HD F forward(F a, F b, F weight) const { return a + weight * (b - a); }
  template <class F> TERN_HD F derivative0(F, F, F weight) const { return F(1) - weight; }
  template <class F> TERN_HD F derivative1(F, F, F weight) const { return weight; }
  template <class F> TERN_HD F derivative2(F a, F b, F) const { return b - a; }
};

/// a + value b c.
struct Addcmul {
  static constexpr const char* name = "addcmul";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0, 0b100, 0b010};
  double value = 1;
  template <class F> TERN_HD F forward(F a, F b, F c) const { return a + F(value) * b * c; }
  template <class F> TERN_HD F derivative0(F, F, F) const { return F(1); }
  template <class F> TERN_HD F derivative1(F, F, F c) const { return F(value) * c; }
  template <class F> TERN_HD F derivative2(F, F b, F) const { return F(value) * b; }
};

template <class... Ops>
struct OpList {
  static constexpr int size = sizeof...(Ops);
  /// Calls f.template operator()<Op>() for each op in order.
  template <class F>
  static constexpr void for_each(F&& f) {
    (f.template operator()<Ops>(), ...);
  }
};

using BuiltinOps =
    OpList<Neg, Abs, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Square, Reciprocal, Sigmoid, Tanh, Relu, LeakyRelu, Gelu,
           GeluTanh, Silu, Softplus, Erf, Sin, Cos, Floor, PowScalar, AddScalar, MulScalar, Clamp, LogicalNot, IsNan,
           IsFinite, Add, Sub, Mul, Div, Maximum, Minimum, Pow, Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual,
           LogicalAnd, LogicalOr, Where, Lerp, Addcmul>;

}  // namespace tern::kernels
