#pragma once
// The functions that pointwise ops and kernels use, under the same names for float, double, Integer (int64 that wraps)
// and Dual numbers.

#include "tern/kernels/math/functions.h"

namespace tern::kernels::math {

inline constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402;
inline constexpr double kInverseRoot2 = 0.70710678118654752440, kInverseRoot2Pi = 0.39894228040143267794;

/// 1 / (1 + exp(-x)); the float version is 0 below -88.73, where exp overflows and the result would be subnormal.
template <class F>
TERN_HD inline F sigmoid(F x) {
  return F(1) / (F(1) + exp(-x));
}

/// x sigmoid(x).
template <class F>
TERN_HD inline F silu(F x) {
  return x / (F(1) + exp(-x));
}

/// log(1 + exp(x)) without overflow.
template <class F>
TERN_HD inline F softplus(F x) {
  return select(x > F(0), x, F(0)) + log1p_exp(-abs(x));
}

// Dual numbers: f(v + t d) = f(v) + f'(v) t d.
template <class F>
TERN_HD inline Dual<F> abs(Dual<F> x) {
  return {abs(x.value), sign(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> sqrt(Dual<F> x) {
  const F root = sqrt(x.value);
  return {root, x.tangent / (F(2) * root)};
}
template <class F>
TERN_HD inline Dual<F> rsqrt(Dual<F> x) {
  const F root = rsqrt(x.value);
  return {root, F(-0.5) * root / x.value * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> floor(Dual<F> x) {
  return {floor(x.value), F(0)};
}
template <class F>
TERN_HD inline Dual<F> sin(Dual<F> x) {
  return {sin(x.value), cos(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> cos(Dual<F> x) {
  return {cos(x.value), -sin(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> exp(Dual<F> x) {
  const F e = exp(x.value);
  return {e, e * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> exp_nonpositive(Dual<F> x) {
  const F e = exp_nonpositive(x.value);
  return {e, e * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> expm1(Dual<F> x) {
  return {expm1(x.value), exp(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> log(Dual<F> x) {
  return {log(x.value), x.tangent / x.value};
}
template <class F>
TERN_HD inline Dual<F> log1p(Dual<F> x) {
  return {log1p(x.value), x.tangent / (F(1) + x.value)};
}
template <class F>
TERN_HD inline Dual<F> tanh(Dual<F> x) {
  const F y = tanh(x.value);
  return {y, (F(1) - y * y) * x.tangent};
}
/// The quotient's own tangent would be 0 times infinity where exp(-x) overflows.
template <class F>
TERN_HD inline Dual<F> sigmoid(Dual<F> x) {
  const F y = sigmoid(x.value);
  return {y, y * sigmoid(-x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> silu(Dual<F> x) {
  const F s = sigmoid(x.value);
  return {silu(x.value), s * (F(1) + x.value * sigmoid(-x.value)) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> log1p_exp(Dual<F> x) {
  return {log1p_exp(x.value), sigmoid(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> erf(Dual<F> x) {
  constexpr double kTwoOverRootPi = 1.12837916709551257390;
  return {erf(x.value), F(kTwoOverRootPi) * exp(-x.value * x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> erfinv(Dual<F> x) {
  constexpr double kHalfRootPi = 0.88622692545275801365;
  const F y = erfinv(x.value);
  return {y, F(kHalfRootPi) * exp(y * y) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> exp2(Dual<F> x) {
  const F y = exp2(x.value);
  return {y, F(kLn2) * y * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> log2(Dual<F> x) {
  return {log2(x.value), x.tangent / (F(kLn2) * x.value)};
}
template <class F>
TERN_HD inline Dual<F> log10(Dual<F> x) {
  return {log10(x.value), x.tangent / (F(kLn10) * x.value)};
}
template <class F>
TERN_HD inline Dual<F> tan(Dual<F> x) {
  const F y = tan(x.value);
  return {y, (F(1) + y * y) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> sinh(Dual<F> x) {
  return {sinh(x.value), cosh(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> cosh(Dual<F> x) {
  return {cosh(x.value), sinh(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> asin(Dual<F> x) {
  return {asin(x.value), rsqrt((F(1) - x.value) * (F(1) + x.value)) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> acos(Dual<F> x) {
  return {acos(x.value), -rsqrt((F(1) - x.value) * (F(1) + x.value)) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> atan(Dual<F> x) {
  return {atan(x.value), x.tangent / (F(1) + x.value * x.value)};
}
template <class F>
TERN_HD inline Dual<F> asinh(Dual<F> x) {
  return {asinh(x.value), rsqrt(x.value * x.value + F(1)) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> acosh(Dual<F> x) {
  return {acosh(x.value), rsqrt((x.value - F(1)) * (x.value + F(1))) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> atanh(Dual<F> x) {
  return {atanh(x.value), x.tangent / ((F(1) - x.value) * (F(1) + x.value))};
}
template <class F>
TERN_HD inline Dual<F> atan2(Dual<F> y, Dual<F> x) {
  const F square = x.value * x.value + y.value * y.value;
  return {atan2(y.value, x.value), (x.value * y.tangent - y.value * x.tangent) / square};
}
/// The derivative of functions that are constant between jumps.
template <class F>
TERN_HD inline Dual<F> ceil(Dual<F> x) {
  return {ceil(x.value), F(0)};
}
template <class F>
TERN_HD inline Dual<F> trunc(Dual<F> x) {
  return {trunc(x.value), F(0)};
}
template <class F>
TERN_HD inline Dual<F> round(Dual<F> x) {
  return {round(x.value), F(0)};
}
/// For a constant exponent (tangent 0) the term with the logarithm is skipped, so negative bases are allowed; and for
/// the base 0 unless the exponent is negative, where the power does not change with it.
template <class F>
TERN_HD inline Dual<F> pow(Dual<F> x, Dual<F> y) {
  const F power = pow(x.value, y.value);
  const F by_base =
      select(x.tangent == F(0) || y.value == F(0), F(0), y.value * pow(x.value, y.value - F(1)) * x.tangent);
  const bool constant = (y.tangent == F(0)) | ((x.value == F(0)) & (y.value >= F(0)));
  const F by_exponent = select(constant, F(0), power * log(x.value) * y.tangent);
  return {power, by_base + by_exponent};
}

}  // namespace tern::kernels::math
