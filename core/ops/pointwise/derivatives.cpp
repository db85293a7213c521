#include "tern/core/ops/pointwise/derivatives.h"

#include <array>
#include <limits>
#include <numbers>

#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/pointwise/special.h"
#include "tern/kernels/pointwise/ops.h"

namespace tern {
namespace {

using Values = std::span<const Tensor>;
namespace math = kernels::math;

// dy_by(op, dy, v): dy times the derivative of an op of one input, at the saved input or output v.

Tensor dy_by(const kernels::Abs&, const Tensor& dy, const Tensor& x) { return dy * sign(x); }
Tensor dy_by(const kernels::Exp&, const Tensor& dy, const Tensor& y) { return dy * y; }
Tensor dy_by(const kernels::Expm1&, const Tensor& dy, const Tensor& y) { return dy * (y + 1.0); }
Tensor dy_by(const kernels::Exp2&, const Tensor& dy, const Tensor& y) { return dy * y * math::kLn2; }
Tensor dy_by(const kernels::Log&, const Tensor& dy, const Tensor& x) { return dy / x; }
Tensor dy_by(const kernels::Log1p&, const Tensor& dy, const Tensor& x) { return dy / (x + 1.0); }
Tensor dy_by(const kernels::Log2&, const Tensor& dy, const Tensor& x) { return dy / (x * math::kLn2); }
Tensor dy_by(const kernels::Log10&, const Tensor& dy, const Tensor& x) { return dy / (x * math::kLn10); }
Tensor dy_by(const kernels::Sqrt&, const Tensor& dy, const Tensor& y) { return dy * 0.5 / y; }
Tensor dy_by(const kernels::Rsqrt&, const Tensor& dy, const Tensor& y) { return dy * -0.5 * (y * square(y)); }
Tensor dy_by(const kernels::Square&, const Tensor& dy, const Tensor& x) { return dy * (x * 2.0); }
Tensor dy_by(const kernels::Cube&, const Tensor& dy, const Tensor& x) { return dy * (square(x) * 3.0); }
Tensor dy_by(const kernels::NanToNum&, const Tensor& dy, const Tensor& x) { return where(isfinite(x), dy, 0.0); }
Tensor dy_by(const kernels::Reciprocal&, const Tensor& dy, const Tensor& y) { return -(dy * square(y)); }
Tensor dy_by(const kernels::Erf&, const Tensor& dy, const Tensor& x) {
  return dy * (2 * std::numbers::inv_sqrtpi) * exp(-square(x));
}
Tensor dy_by(const kernels::Erfinv&, const Tensor& dy, const Tensor& y) {
  return dy * (0.5 / std::numbers::inv_sqrtpi) * exp(square(y));
}
Tensor dy_by(const kernels::Erfc&, const Tensor& dy, const Tensor& x) {
  return dy * (-2 * std::numbers::inv_sqrtpi) * exp(-square(x));
}
Tensor dy_by(const kernels::Lgamma&, const Tensor& dy, const Tensor& x) { return dy * digamma(x); }
Tensor dy_by(const kernels::Polygamma& op, const Tensor& dy, const Tensor& x) {
  return dy * polygamma(op.order + 1, x);
}
Tensor dy_by(const kernels::I0&, const Tensor& dy, const Tensor& x) { return dy * i1(x); }
Tensor dy_by(const kernels::I0e&, const Tensor& dy, const Tensor& x) { return dy * (i1e(x) - sign(x) * i0e(x)); }
/// y / x, and its limit 1/2 at 0, of i1 and i1e.
Tensor bessel_by_x(const Tensor& y, const Tensor& x) {
  const Tensor is_zero = x == 0.0;
  return where(is_zero, 0.5, y / where(is_zero, 1.0, x));
}
Tensor dy_by(const kernels::I1&, const Tensor& dy, const Tensor& x) { return dy * (i0(x) - bessel_by_x(i1(x), x)); }
Tensor dy_by(const kernels::I1e&, const Tensor& dy, const Tensor& x) {
  return dy * (i0e(x) - bessel_by_x(i1e(x), x) - sign(x) * i1e(x));
}
Tensor dy_by(const kernels::Erfcx&, const Tensor& dy, const Tensor& x) {
  return dy * (x * erfcx(x) * 2.0 - 2 * std::numbers::inv_sqrtpi);
}
Tensor dy_by(const kernels::LogNdtr&, const Tensor& dy, const Tensor& x) {
  return dy * (2 * math::kInverseRoot2Pi) / erfcx(x * -math::kInverseRoot2);
}
Tensor dy_by(const kernels::PowScalar& op, const Tensor& dy, const Tensor& x) {
  return op.exponent == 0 ? dy * 0.0 : dy * op.exponent * pow(x, op.exponent - 1);
}
Tensor dy_by(const kernels::Clamp& op, const Tensor& dy, const Tensor& x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (op.low == -kInfinity) return op.high == kInfinity ? dy : where(x < op.high, dy, 0.0);
  if (op.high == kInfinity) return where(x > op.low, dy, 0.0);
  return where(logical_and(x > op.low, x < op.high), dy, 0.0);
}
Tensor dy_by(const kernels::Hardtanh& op, const Tensor& dy, const Tensor& x) {
  return where(logical_and(x > op.low, x < op.high), dy, 0.0);
}

Tensor dy_by(const kernels::Sin&, const Tensor& dy, const Tensor& x) { return dy * cos(x); }
Tensor dy_by(const kernels::Cos&, const Tensor& dy, const Tensor& x) { return -(dy * sin(x)); }
Tensor dy_by(const kernels::Tan&, const Tensor& dy, const Tensor& y) { return dy * (square(y) + 1.0); }
Tensor dy_by(const kernels::Asin&, const Tensor& dy, const Tensor& x) { return dy * rsqrt((1.0 - x) * (x + 1.0)); }
Tensor dy_by(const kernels::Acos&, const Tensor& dy, const Tensor& x) { return -(dy * rsqrt((1.0 - x) * (x + 1.0))); }
Tensor dy_by(const kernels::Atan&, const Tensor& dy, const Tensor& x) { return dy / (square(x) + 1.0); }
Tensor dy_by(const kernels::Sinh&, const Tensor& dy, const Tensor& x) { return dy * cosh(x); }
Tensor dy_by(const kernels::Cosh&, const Tensor& dy, const Tensor& x) { return dy * sinh(x); }
Tensor dy_by(const kernels::Tanh&, const Tensor& dy, const Tensor& y) { return dy * (1.0 - square(y)); }
Tensor dy_by(const kernels::Asinh&, const Tensor& dy, const Tensor& x) { return dy * rsqrt(square(x) + 1.0); }
Tensor dy_by(const kernels::Acosh&, const Tensor& dy, const Tensor& x) { return dy * rsqrt((x - 1.0) * (x + 1.0)); }
Tensor dy_by(const kernels::Atanh&, const Tensor& dy, const Tensor& x) { return dy / ((1.0 - x) * (x + 1.0)); }

Tensor dy_by(const kernels::Sigmoid&, const Tensor& dy, const Tensor& y) { return dy * (y * (1.0 - y)); }
Tensor dy_by(const kernels::Relu&, const Tensor& dy, const Tensor& y) { return where(y <= 0.0, 0.0, dy); }
Tensor dy_by(const kernels::LeakyRelu& op, const Tensor& dy, const Tensor& x) {
  return where(x > 0.0, dy, dy * op.slope);
}
Tensor dy_by(const kernels::Gelu&, const Tensor& dy, const Tensor& x) {
  const Tensor distribution = erf(x * math::kInverseRoot2) * 0.5 + 0.5;
  return dy * (distribution + x * exp(square(x) * -0.5) * math::kInverseRoot2Pi);
}
Tensor dy_by(const kernels::GeluTanh& op, const Tensor& dy, const Tensor& input) {
  const Tensor x = clamp(input, -20, 20);  // beyond, tanh is 1 in every type, and powers of the input could overflow
  const Tensor inner = square(x) * (3 * op.kCubic * op.kScale) + op.kScale;
  const Tensor bent = tanh((square(x) * op.kCubic + 1.0) * x * op.kScale);
  return dy * (bent + 1.0 + x * (1.0 - square(bent)) * inner) * 0.5;
}
Tensor dy_by(const kernels::Silu&, const Tensor& dy, const Tensor& x) {
  const Tensor s = sigmoid(x);
  return dy * (s * (x * (1.0 - s) + 1.0));
}
Tensor dy_by(const kernels::Softplus&, const Tensor& dy, const Tensor& x) { return dy * sigmoid(x); }
Tensor dy_by(const kernels::LogSigmoid&, const Tensor& dy, const Tensor& x) { return dy * sigmoid(-x); }
/// The exponential is bounded where it is not used: its gradient there must not become 0 times infinity.
Tensor exp_below_zero(const Tensor& x) { return exp(where(x > 0.0, 0.0, x)); }
Tensor dy_by(const kernels::Elu& op, const Tensor& dy, const Tensor& x) {
  return where(x > 0.0, dy, dy * (op.alpha * op.rate) * exp_below_zero(x * op.rate));
}
Tensor dy_by(const kernels::Selu& op, const Tensor& dy, const Tensor& x) {
  return where(x > 0.0, dy, dy * op.kAlpha * exp_below_zero(x)) * op.kScale;
}
/// With t = tanh(softplus(x)): t + x (1 - t^2) sigmoid(x).
Tensor dy_by(const kernels::Mish&, const Tensor& dy, const Tensor& x) {
  const Tensor t = tanh(softplus(x));
  return dy * (t + x * (1.0 - square(t)) * sigmoid(x));
}
Tensor dy_by(const kernels::HardSigmoid&, const Tensor& dy, const Tensor& x) {
  return where(logical_and(x > -3.0, x < 3.0), dy * (1.0 / 6), 0.0);
}
Tensor dy_by(const kernels::HardSwish&, const Tensor& dy, const Tensor& x) {
  return where(x <= -3.0, 0.0, where(x >= 3.0, dy, dy * (x * (1.0 / 3) + 0.5)));
}
Tensor dy_by(const kernels::Softsign&, const Tensor& dy, const Tensor& x) { return dy / square(abs(x) + 1.0); }
Tensor dy_by(const kernels::Softshrink& op, const Tensor& dy, const Tensor& x) {
  return where(abs(x) > op.lambda, dy, 0.0);
}
Tensor dy_by(const kernels::Hardshrink& op, const Tensor& dy, const Tensor& x) {
  return where(abs(x) > op.lambda, dy, 0.0);
}

// dy_by(op, input, dy, v): the same of several inputs, by one of them, at the saved inputs v.

Tensor dy_by(const kernels::Mul&, int input, const Tensor& dy, Values v) { return dy * v[1 - input]; }
Tensor dy_by(const kernels::Div&, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy / v[1] : -(dy * (v[0] / v[1] / v[1]));
}
/// dy where v[input] is the extreme, half of it where both are.
Tensor dy_of_extreme(int input, const Tensor& is_other, const Tensor& dy, Values v) {
  return where(v[0] == v[1], dy * 0.5, where(is_other, 0.0, dy));
}
Tensor dy_by(const kernels::Maximum&, int input, const Tensor& dy, Values v) {
  return dy_of_extreme(input, v[input] < v[1 - input], dy, v);
}
Tensor dy_by(const kernels::Minimum&, int input, const Tensor& dy, Values v) {
  return dy_of_extreme(input, v[input] > v[1 - input], dy, v);
}
/// Where the derivative is 0 by definition the operands are replaced, so that no gradient there is 0 times infinity.
Tensor dy_by(const kernels::Pow&, int input, const Tensor& dy, Values v) {
  if (input == 0) {
    const Tensor none = v[1] == 0.0, b = where(none, 1.0, v[1]);
    return where(none, 0.0, dy * b * pow(v[0], b - 1.0));
  }
  const Tensor none = logical_and(v[0] == 0.0, v[1] >= 0.0), a = where(none, 1.0, v[0]);
  return where(none, 0.0, dy * pow(a, v[1]) * log(a));
}
Tensor dy_by(const kernels::Remainder&, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy : -(dy * floor(v[0] / v[1]));
}
Tensor dy_by(const kernels::Fmod&, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy : -(dy * trunc(v[0] / v[1]));
}
Tensor dy_by(const kernels::Atan2&, int input, const Tensor& dy, Values v) {
  const Tensor squares = square(v[0]) + square(v[1]), is_zero = squares == 0.0;
  return where(is_zero, 0.0, (input == 0 ? dy * v[1] : -(dy * v[0])) / where(is_zero, 1.0, squares));
}
Tensor dy_by(const kernels::LogAddExp&, int input, const Tensor& dy, Values v) {
  return dy * sigmoid(v[input] - v[1 - input]);
}
Tensor dy_by(const kernels::Swiglu&, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy_by(kernels::Silu(), dy * v[1], v[0]) : dy * silu(v[0]);
}
Tensor dy_by(const kernels::SquaredDifference&, int input, const Tensor& dy, Values v) {
  const Tensor difference = v[0] - v[1];
  return dy * difference * (input == 0 ? 2.0 : -2.0);
}
Tensor dy_by(const kernels::Huber& op, int input, const Tensor& dy, Values v) {
  return dy * clamp(v[0] - v[1], -op.delta, op.delta) * (input == 0 ? 1.0 : -1.0);
}
Tensor dy_by(const kernels::BceWithLogits&, int input, const Tensor& dy, Values v) {
  return dy * (input == 0 ? sigmoid(v[0]) - v[1] : -v[0]);
}
Tensor dy_by(const kernels::Hypot&, int input, const Tensor& dy, Values v) {
  return dy * (v[input] / hypot(v[0], v[1]));
}
Tensor dy_by(const kernels::Copysign&, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy * (sign(v[0]) * sign(copysign(ones_like(v[1]), v[1].detach()))) : dy * 0.0;
}
Tensor dy_by(const kernels::Igamma&, int, const Tensor& dy, Values v) {
  return dy * exp(xlogy(v[0] - 1.0, v[1]) - v[1] - lgamma(v[0]));
}
Tensor dy_by(const kernels::Igammac&, int input, const Tensor& dy, Values v) {
  return -dy_by(kernels::Igamma(), input, dy, v);
}
Tensor dy_by(const kernels::PRelu&, int input, const Tensor& dy, Values v) {
  return input == 0 ? where(v[0] > 0.0, dy, dy * v[1]) : where(v[0] > 0.0, 0.0, dy * v[0]);
}
Tensor dy_by(const kernels::Lerp&, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy * (1.0 - v[2]) : input == 1 ? dy * v[2] : dy * (v[1] - v[0]);
}
Tensor dy_by(const kernels::Addcmul& op, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy : dy * v[3 - input] * op.value;
}
Tensor dy_by(const kernels::Addcdiv& op, int input, const Tensor& dy, Values v) {
  return input == 0 ? dy : input == 1 ? dy * op.value / v[2] : -(dy * op.value * (v[1] / v[2] / v[2]));
}

template <class Op>
detail::DerivativeOfOps form_of() {
  if constexpr (requires(const Op& op, const Tensor& x) { dy_by(op, x, x); })
    return [](const void* op, int, const Tensor& dy, Values v) { return dy_by(*static_cast<const Op*>(op), dy, v[0]); };
  else if constexpr (requires(const Op& op, const Tensor& x) { dy_by(op, 0, x, Values()); })
    return [](const void* op, int input, const Tensor& dy, Values v) {
      return dy_by(*static_cast<const Op*>(op), input, dy, v);
    };
  else
    return nullptr;
}

}  // namespace

detail::DerivativeOfOps detail::derivative_of_ops(int builtin) {
  static const auto forms = [] {
    std::array<DerivativeOfOps, kernels::BuiltinOps::size> result{};
    size_t i = 0;
    kernels::BuiltinOps::for_each([&]<class Op>() { result[i++] = form_of<Op>(); });
    return result;
  }();
  return builtin < 0 ? nullptr : forms[static_cast<size_t>(builtin)];
}

bool detail::derivative_is_cheap(int builtin) {
  using namespace kernels;  // NOLINT: names of ops
  const BuiltinOps ops;
  return builtin == index_in<Mul>(ops) || builtin == index_in<Square>(ops) || builtin == index_in<Exp>(ops) ||
         builtin == index_in<Rsqrt>(ops);
}

}  // namespace tern
