#pragma once
// The functions that pointwise ops and kernels use, under the same names for float, double, Integer (int64 that wraps)
// and Dual numbers. The float versions of exp, expm1, log, log1p, tanh and erf are branch-free, so that loops over them
// vectorise at every CPU level. The polynomials are minimax fits (Remez exchange in 40 digits on the reduced range,
// weighted for relative error). Largest errors against double over every 97th of all 2^32 floats, with and without
// fused multiply-add, in units in the last place: exp 1.01, expm1 1.6, log 0.9, log1p 2.5, tanh 2.6, erf 1.4.
// Infinities, NaN, overflow, subnormals and signed zeros are correct. All other functions and those for double are from
// the C library.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tern/kernels/types.h"

namespace tern::kernels::math {

/// int64 arithmetic modulo 2^64, as tensors compute it: overflow is defined.
struct Integer {
  int64_t value = 0;
  Integer() = default;
  template <class T>
  requires std::is_integral_v<T> TERN_HD explicit constexpr Integer(T v) : value(static_cast<int64_t>(v)) {}
  /// Saturates, so that an infinite bound becomes the largest integer; NaN gives 0.
  TERN_HD explicit constexpr Integer(double v)
      : value(v >= 0x1p63    ? std::numeric_limits<int64_t>::max()
              : v >= -0x1p63 ? static_cast<int64_t>(v)
              : v < -0x1p63  ? std::numeric_limits<int64_t>::min()
                             : 0) {}
  TERN_HD explicit constexpr operator bool() const { return value != 0; }
  TERN_HD explicit constexpr operator int64_t() const { return value; }
  constexpr bool operator==(const Integer&) const = default;
  constexpr auto operator<=>(const Integer&) const = default;
  TERN_HD static constexpr Integer wrap(uint64_t v) { return Integer(static_cast<int64_t>(v)); }
  TERN_HD constexpr uint64_t bits() const { return static_cast<uint64_t>(value); }
};
TERN_HD constexpr Integer operator+(Integer a, Integer b) { return Integer::wrap(a.bits() + b.bits()); }
TERN_HD constexpr Integer operator-(Integer a, Integer b) { return Integer::wrap(a.bits() - b.bits()); }
TERN_HD constexpr Integer operator*(Integer a, Integer b) { return Integer::wrap(a.bits() * b.bits()); }
TERN_HD constexpr Integer operator-(Integer a) { return Integer::wrap(0 - a.bits()); }

/// A value and its derivative in one direction (forward-mode differentiation). Comparisons use only the value.
template <class F>
struct Dual {
  F value = F(0);
  F tangent = F(0);
  Dual() = default;
  TERN_HD constexpr Dual(F v, F t) : value(v), tangent(t) {}
  template <class T>
  requires std::is_arithmetic_v<T> TERN_HD explicit constexpr Dual(T v) : value(static_cast<F>(v)) {}
  TERN_HD friend constexpr bool operator==(Dual a, Dual b) { return a.value == b.value; }
  TERN_HD friend constexpr bool operator!=(Dual a, Dual b) { return a.value != b.value; }
  TERN_HD friend constexpr bool operator<(Dual a, Dual b) { return a.value < b.value; }
  TERN_HD friend constexpr bool operator>(Dual a, Dual b) { return a.value > b.value; }
  TERN_HD friend constexpr bool operator<=(Dual a, Dual b) { return a.value <= b.value; }
  TERN_HD friend constexpr bool operator>=(Dual a, Dual b) { return a.value >= b.value; }
  TERN_HD friend constexpr Dual operator-(Dual a) { return {-a.value, -a.tangent}; }
  TERN_HD friend constexpr Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.tangent + b.tangent}; }
  TERN_HD friend constexpr Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.tangent - b.tangent}; }
  TERN_HD friend constexpr Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.tangent * b.value + a.value * b.tangent};
  }
  TERN_HD friend constexpr Dual operator/(Dual a, Dual b) {
    const F quotient = a.value / b.value;
    return {quotient, (a.tangent - quotient * b.tangent) / b.value};
  }
};

/// condition ? a : b with both sides evaluated, so that vectorised loops use a blend.
template <class F>
TERN_HD constexpr F select(bool condition, F a, F b) {
  return condition ? a : b;
}
TERN_HD constexpr Integer select(bool condition, Integer a, Integer b) {
  return Integer(condition ? a.value : b.value);
}
template <class F>
TERN_HD constexpr Dual<F> select(bool condition, Dual<F> a, Dual<F> b) {
  return {condition ? a.value : b.value, condition ? a.tangent : b.tangent};
}

template <class F>
TERN_HD constexpr bool isnan(F x) {
  return x != x;
}
template <class F>
requires std::is_floating_point_v<F> TERN_HD constexpr bool isfinite(F x) {
  return x - x == F(0);  // infinity and NaN give NaN
}
template <class F>
TERN_HD constexpr bool isfinite(Dual<F> x) {
  return isfinite(x.value);
}
TERN_HD constexpr bool isfinite(Integer) { return true; }

/// PyTorch's maximum and minimum: NaN when either is NaN.
template <class F>
TERN_HD constexpr F max(F a, F b) {
  return select(a > b || isnan(a), a, b);
}
template <class F>
TERN_HD constexpr F min(F a, F b) {
  return select(a < b || isnan(a), a, b);
}

TERN_HD inline float abs(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu); }
TERN_HD inline double abs(double x) { return std::fabs(x); }
TERN_HD constexpr Integer abs(Integer x) { return select(x < Integer(0), -x, x); }
/// -1, 0 or 1; NaN stays NaN.
template <class F>
TERN_HD constexpr F sign(F x) {
  return select(x > F(0), F(1), select(x < F(0), F(-1), select(x == F(0), F(0), x)));
}

TERN_HD inline float sqrt(float x) { return std::sqrt(x); }
TERN_HD inline double sqrt(double x) { return std::sqrt(x); }
TERN_HD inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
TERN_HD inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
TERN_HD inline float floor(float x) { return std::floor(x); }
TERN_HD inline double floor(double x) { return std::floor(x); }
TERN_HD inline float sin(float x) { return std::sin(x); }
TERN_HD inline double sin(double x) { return std::sin(x); }
TERN_HD inline float cos(float x) { return std::cos(x); }
TERN_HD inline double cos(double x) { return std::cos(x); }
TERN_HD inline float pow(float x, float y) { return std::pow(x, y); }
TERN_HD inline double pow(double x, double y) { return std::pow(x, y); }
TERN_HD inline double exp(double x) { return std::exp(x); }
TERN_HD inline double expm1(double x) { return std::expm1(x); }
TERN_HD inline double log(double x) { return std::log(x); }
TERN_HD inline double log1p(double x) { return std::log1p(x); }
TERN_HD inline double tanh(double x) { return std::tanh(x); }
TERN_HD inline double erf(double x) { return std::erf(x); }

#ifdef __CUDA_ARCH__
// CUDA's functions, which use the special-function unit. Their largest errors according to the CUDA C++ Programming
// Guide: 2 units in the last place.
TERN_HD inline float exp(float x) { return ::expf(x); }
TERN_HD inline float expm1(float x) { return ::expm1f(x); }
TERN_HD inline float log(float x) { return ::logf(x); }
TERN_HD inline float log1p(float x) { return ::log1pf(x); }
TERN_HD inline float tanh(float x) { return ::tanhf(x); }
TERN_HD inline float erf(float x) { return ::erff(x); }
#else
namespace detail {

TERN_HD inline float copy_sign(float magnitude, float sign) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (std::bit_cast<uint32_t>(sign) & 0x80000000u));
}
/// 2^n for n in [-126, 127].
TERN_HD inline float power_of_two(int32_t n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

/// exp(r) - 1 for x = n ln2 + r with |r| <= ln2 / 2.
TERN_HD inline float exp_tail(float x, float n) {
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6a23cap-10f;
  p = p * r + 0x1.123a2p-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  return p * (r * r) + r;
}

/// x = n ln2 + r as above; tail = exp(r) - 1. |x| < 2^21. 2^n is the product of two factors that are both normal.
struct ExpParts {
  float tail;
  int32_t half, rest;
};
TERN_HD inline ExpParts reduce_exp(float x) {
  constexpr float kShift = 0x1.8p23f;  // adding it leaves the rounded integer in the low mantissa bits
  const float shifted = x * 0x1.715476p+0f + kShift;
  const uint32_t bits = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kShift);
  // For NaN the bits are meaningless: masking keeps the sums below defined, and tail holds the NaN.
  const int32_t whole = static_cast<int32_t>(bits << 22) >> 22;
  const int32_t half = whole >> 1;
  return {exp_tail(x, shifted - kShift), half, whole - half};
}

/// exp(x) for a normal result, x in [-87, 88]: 2^n is one shift. Same bits as exp().
TERN_HD inline float exp_normal(float x) {
  constexpr float kShift = 0x1.8p23f + 127.0f;  // includes the exponent bias
  const float shifted = x * 0x1.715476p+0f + kShift;
  const float tail = exp_tail(x, shifted - kShift);
  return (tail + 1.0f) * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

}  // namespace detail

/// Infinity above 88.7228, subnormal below -87.34, 0 below -103.97.
TERN_HD inline float exp(float x) {
  x = select(x > 89.0f, 89.0f, x);
  x = select(x < -104.0f, -104.0f, x);
  const detail::ExpParts e = detail::reduce_exp(x);
  return (e.tail + 1.0f) * detail::power_of_two(e.half) * detail::power_of_two(e.rest);
}

/// exp(x) - 1 without cancellation near 0.
TERN_HD inline float expm1(float x) {
  const float bounded = select(x > 89.0f, 89.0f, select(x < -104.0f, -104.0f, x));
  const detail::ExpParts e = detail::reduce_exp(bounded);
  const float scale = detail::power_of_two(e.half);
  const float result = (e.tail * scale + (scale - detail::power_of_two(-e.rest))) * detail::power_of_two(e.rest);
  return select(x == 0.0f, x, result);  // keeps the sign of zero
}

/// -infinity at 0, NaN below 0. x is split into exponent and mantissa so that the mantissa is in [sqrt(1/2), sqrt(2)).
TERN_HD inline float log(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;
  const bool subnormal = x < 0x1p-126f;
  const uint32_t bits = std::bit_cast<uint32_t>(select(subnormal, x * 0x1p23f, x)) - kRootHalf;
  const float exponent = static_cast<float>(static_cast<int32_t>(bits) >> 23) - select(subnormal, 23.0f, 0.0f);
  const float f = std::bit_cast<float>((bits & 0x7fffffu) + kRootHalf) - 1.0f;
  float p = -0x1.38b57cp-4f;
  p = p * f + 0x1.055b68p-3f;
  p = p * f + -0x1.0d8542p-3f;
  p = p * f + 0x1.22da1ep-3f;
  p = p * f + -0x1.547244p-3f;
  p = p * f + 0x1.99a008p-3f;
  p = p * f + -0x1.000226p-2f;
  p = p * f + 0x1.555554p-2f;
  const float square = f * f;
  const float low = exponent * 0x1.7f7d1cp-20f + (p * (f * square) - 0.5f * square);
  const float result = exponent * 0x1.62e4p-1f + (f + low);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float outside = select(x == 0.0f, -kInfinity, std::numeric_limits<float>::quiet_NaN());
  return select(x > 0.0f, select(x == kInfinity, x, result), outside);
}

/// log(1 + x), accurate near 0: the rounding error of 1 + x is corrected by a division (Kahan).
TERN_HD inline float log1p(float x) {
  const float u = 1.0f + x;
  const float ratio = log(u) * (x / (u - 1.0f));
  return select(u == 1.0f || u == std::numeric_limits<float>::infinity(), x, ratio);
}

TERN_HD inline float tanh(float x) {
  const float magnitude = abs(x);
  const float e = expm1(2.0f * select(magnitude > 10.0f, 10.0f, magnitude));
  return detail::copy_sign(e / (e + 2.0f), x);
}

/// An odd polynomial for |x| < 0.92, otherwise 1 - exp(polynomial), since log(erfc) is smooth. erf(4) rounds to 1.
TERN_HD inline float erf(float x) {
  const float square = x * x;
  float p = -0x1.3a8ab0p-11f;
  p = p * square + 0x1.47575ap-8f;
  p = p * square + -0x1.b68ff4p-6f;
  p = p * square + 0x1.ce1abap-4f;
  p = p * square + -0x1.8126e8p-2f;
  p = p * square + 0x1.06eba6p-3f;
  const float inner = x + x * p;
  const float magnitude = abs(x);
  const float t = select(magnitude > 4.0f, 4.0f, magnitude);
  float q = -0x1.78dcfep-17f;
  q = q * t + 0x1.527c42p-12f;
  q = q * t + -0x1.dd6cc6p-9f;
  q = q * t + 0x1.85515ap-6f;
  q = q * t + -0x1.b32574p-4f;
  q = q * t + -0x1.45328ep-1f;
  q = q * t + -0x1.20ef1cp+0f;
  const float erfc = detail::exp_normal(q * t);
  return select(magnitude < 0.92f, inner, detail::copy_sign(1.0f - erfc, x));
}
#endif

/// 1 / (1 + exp(-x)); the float version is 0 below -88.73, where exp overflows and the result would be subnormal.
template <class F>
TERN_HD inline F sigmoid(F x) {
  return F(1) / (F(1) + exp(-x));
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
template <class F>
TERN_HD inline Dual<F> erf(Dual<F> x) {
  constexpr double kTwoOverRootPi = 1.12837916709551257390;
  return {erf(x.value), F(kTwoOverRootPi) * exp(-x.value * x.value) * x.tangent};
}
/// For a constant exponent (tangent 0) the term with the logarithm is skipped, so negative bases are allowed.
template <class F>
TERN_HD inline Dual<F> pow(Dual<F> x, Dual<F> y) {
  const F power = pow(x.value, y.value);
  const F by_base =
      select(x.tangent == F(0) || y.value == F(0), F(0), y.value * pow(x.value, y.value - F(1)) * x.tangent);
  const F by_exponent = select(y.tangent == F(0), F(0), power * log(x.value) * y.tangent);
  return {power, by_base + by_exponent};
}

}  // namespace tern::kernels::math
