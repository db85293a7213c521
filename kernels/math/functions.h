#pragma once
// The functions of float and double that pointwise ops and kernels use. Those of float are branch-free, so that loops
// over them vectorise at every CPU level, except sin, cos, tan and fmod, which are the C library's (math/near.h has
// others; before AVX2 pow too), as are all functions of double. The polynomials are minimax fits (Remez exchange in 40
// digits on the reduced range, weighted for relative error). Largest errors against double over every 97th of all 2^32
// floats, with and without fused multiply-add, in units in the last place: exp 1.01, expm1 1.6, log 0.9, log1p 2.5,
// tanh 2.6, erf 1.4. Of the others tests/kernels/math_test.cpp has bounds. Infinities, NaN, overflow, subnormals and
// signed zeros are correct.

#include <bit>
#include <cmath>

#include "tern/kernels/math/numbers.h"

namespace tern::kernels::math {

TERN_HD inline float abs(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu); }
TERN_HD inline double abs(double x) { return std::fabs(x); }
TERN_HD constexpr Integer abs(Integer x) { return select(x < Integer(0), -x, x); }
/// -1, 0 or 1; of NaN 0, as in PyTorch.
template <class F>
TERN_HD constexpr F sign(F x) {
  return select(x > F(0), F(1), select(x < F(0), F(-1), F(0)));
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
TERN_HD inline double pow(double x, double y) { return std::pow(x, y); }
TERN_HD inline double exp(double x) { return std::exp(x); }
TERN_HD inline double exp_nonpositive(double x) { return std::exp(x); }
TERN_HD inline double expm1(double x) { return std::expm1(x); }
TERN_HD inline double log(double x) { return std::log(x); }
TERN_HD inline double log1p(double x) { return std::log1p(x); }
TERN_HD inline double log1p_exp(double x) { return std::log1p(std::exp(x)); }
TERN_HD inline double tanh(double x) { return std::tanh(x); }
TERN_HD inline double erf(double x) { return std::erf(x); }
TERN_HD inline float ceil(float x) { return std::ceil(x); }
TERN_HD inline double ceil(double x) { return std::ceil(x); }
TERN_HD inline float trunc(float x) { return std::trunc(x); }
TERN_HD inline double trunc(double x) { return std::trunc(x); }
TERN_HD constexpr Integer floor(Integer x) { return x; }
TERN_HD constexpr Integer ceil(Integer x) { return x; }
TERN_HD constexpr Integer trunc(Integer x) { return x; }
TERN_HD constexpr Integer round(Integer x) { return x; }
/// To the nearest integer, halves to even.
TERN_HD inline float round(float x) { return std::rint(x); }
TERN_HD inline double round(double x) { return std::rint(x); }
TERN_HD inline float tan(float x) { return std::tan(x); }
TERN_HD inline double tan(double x) { return std::tan(x); }
TERN_HD inline float fmod(float x, float y) { return std::fmod(x, y); }
TERN_HD inline double fmod(double x, double y) { return std::fmod(x, y); }
/// 0 where y is 0, as in NumPy; C leaves that and the least number by -1 undefined.
TERN_HD constexpr Integer fmod(Integer x, Integer y) {
  const bool defined = y.value != 0 && y.value != -1;
  return Integer(defined ? x.value % (defined ? y.value : 1) : 0);
}
/// A negative power is rounded towards 0, as in PyTorch: 0, but of 1 and -1.
TERN_HD constexpr Integer pow(Integer x, Integer y) {
  if (y.value < 0 && x.value != 1 && x.value != -1) return Integer(0);
  Integer power(1);
  for (uint64_t exponent = y.bits(); exponent != 0; exponent >>= 1) {
    power = exponent & 1 ? power * x : power;
    x = x * x;
  }
  return power;
}
TERN_HD inline double exp2(double x) { return std::exp2(x); }
TERN_HD inline double log2(double x) { return std::log2(x); }
TERN_HD inline double log10(double x) { return std::log10(x); }
TERN_HD inline double sinh(double x) { return std::sinh(x); }
TERN_HD inline double cosh(double x) { return std::cosh(x); }
TERN_HD inline double asinh(double x) { return std::asinh(x); }
TERN_HD inline double acosh(double x) { return std::acosh(x); }
TERN_HD inline double atanh(double x) { return std::atanh(x); }
TERN_HD inline double asin(double x) { return std::asin(x); }
TERN_HD inline double acos(double x) { return std::acos(x); }
TERN_HD inline double atan(double x) { return std::atan(x); }
TERN_HD inline double atan2(double y, double x) { return std::atan2(y, x); }

#ifdef __CUDA_ARCH__
// CUDA's functions, which use the special-function unit. Their largest errors according to the CUDA C++ Programming
// Guide: 4 units in the last place (sinh, asinh, acosh; of the others at most 3).
TERN_HD inline float exp(float x) { return ::expf(x); }
TERN_HD inline float exp_nonpositive(float x) { return ::expf(x); }
TERN_HD inline float expm1(float x) { return ::expm1f(x); }
TERN_HD inline float log(float x) { return ::logf(x); }
TERN_HD inline float log1p(float x) { return ::log1pf(x); }
TERN_HD inline float log1p_exp(float x) { return ::log1pf(::expf(x)); }
TERN_HD inline float tanh(float x) { return ::tanhf(x); }
TERN_HD inline float erf(float x) { return ::erff(x); }
TERN_HD inline float erfinv(float x) { return ::erfinvf(x); }
TERN_HD inline float exp2(float x) { return ::exp2f(x); }
TERN_HD inline float log2(float x) { return ::log2f(x); }
TERN_HD inline float log10(float x) { return ::log10f(x); }
TERN_HD inline float sinh(float x) { return ::sinhf(x); }
TERN_HD inline float cosh(float x) { return ::coshf(x); }
TERN_HD inline float asinh(float x) { return ::asinhf(x); }
TERN_HD inline float acosh(float x) { return ::acoshf(x); }
TERN_HD inline float atanh(float x) { return ::atanhf(x); }
TERN_HD inline float asin(float x) { return ::asinf(x); }
TERN_HD inline float acos(float x) { return ::acosf(x); }
TERN_HD inline float atan(float x) { return ::atanf(x); }
TERN_HD inline float atan2(float y, float x) { return ::atan2f(y, x); }
TERN_HD inline float pow(float x, float y) { return ::powf(x, y); }
#else
namespace detail {

TERN_HD inline float copy_sign(float magnitude, float sign) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (std::bit_cast<uint32_t>(sign) & 0x80000000u));
}
/// 2^n for n in [-126, 127].
TERN_HD inline float power_of_two(int32_t n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

/// exp(r) - 1 for |r| <= ln2 / 2.
[[gnu::always_inline]] TERN_HD inline float expm1_reduced(float r) {
  float p = 0x1.6a23cap-10f;
  p = p * r + 0x1.123a2p-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  return p * (r * r) + r;
}
/// exp(r) - 1 for x = n ln2 + r.
[[gnu::always_inline]] TERN_HD inline float exp_tail(float x, float n) {
  return expm1_reduced((x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f);
}

/// x = n ln2 + r as above; tail = exp(r) - 1. |x| < 2^21. 2^n is the product of two factors that are both normal.
struct ExpParts {
  float tail;
  int32_t half, rest;
};
[[gnu::always_inline]] TERN_HD inline ExpParts reduce_exp(float x) {
  constexpr float kShift = 0x1.8p23f;  // adding it leaves the rounded integer in the low mantissa bits
  const float shifted = x * 0x1.715476p+0f + kShift;
  const uint32_t bits = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kShift);
  // For NaN the bits are meaningless: masking keeps the sums below defined, and tail holds the NaN.
  const int32_t whole = static_cast<int32_t>(bits << 22) >> 22;
  const int32_t half = whole >> 1;
  return {exp_tail(x, shifted - kShift), half, whole - half};
}

/// exp(x) for a normal result, x in [-87, 88]: 2^n is one shift. Same bits as exp().
[[gnu::always_inline]] TERN_HD inline float exp_normal(float x) {
  constexpr float kShift = 0x1.8p23f + 127.0f;  // includes the exponent bias
  const float shifted = x * 0x1.715476p+0f + kShift;
  const float tail = exp_tail(x, shifted - kShift);
  const float scale = std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
  return tail * scale + scale;
}

/// exp(x) - 1 for x in [0, 88]. Same bits as expm1().
TERN_HD inline float expm1_normal(float x) {
  constexpr float kShift = 0x1.8p23f + 127.0f;
  const float shifted = x * 0x1.715476p+0f + kShift;
  const float tail = exp_tail(x, shifted - kShift);
  const float scale = std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
  return tail * scale + (scale - 1.0f);
}

}  // namespace detail

/// Infinity above 88.7228, subnormal below -87.34, 0 below -103.97. Always inlined: in a file of many loops GCC would
/// call it from the longer ones, and a call prevents vectors.
[[gnu::always_inline]] TERN_HD inline float exp(float x) {
  x = select(x > 89.0f, 89.0f, x);
  x = select(x < -104.0f, -104.0f, x);
  const detail::ExpParts e = detail::reduce_exp(x);
  const float scale = detail::power_of_two(e.half);
  return (e.tail * scale + scale) * detail::power_of_two(e.rest);
}
/// exp(x) for x <= 0, in fewer instructions: 0 instead of a subnormal result, below -87.68; else the bits of exp().
TERN_HD inline float exp_nonpositive(float x) {
  return detail::exp_normal(select(x < -88.0f, -88.0f, x));  // of which the power of two is 2^-127: all bits 0
}

/// Infinity from 128, 0 below -150; exact for integers.
TERN_HD inline float exp2(float x) {
  constexpr float kShift = 0x1.8p23f;
  x = select(x > 129.0f, 129.0f, x);
  x = select(x < -151.0f, -151.0f, x);
  const float shifted = x + kShift;
  const int32_t whole =
      static_cast<int32_t>((std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kShift)) << 22) >> 22;
  const int32_t half = whole >> 1;
  const float tail = detail::expm1_reduced((x - (shifted - kShift)) * 0x1.62e430p-1f);
  return (tail + 1.0f) * detail::power_of_two(half) * detail::power_of_two(whole - half);
}

/// exp(x) - 1 without cancellation near 0.
TERN_HD inline float expm1(float x) {
  const float bounded = select(x > 89.0f, 89.0f, select(x < -104.0f, -104.0f, x));
  const detail::ExpParts e = detail::reduce_exp(bounded);
  const float scale = detail::power_of_two(e.half);
  const float result = (e.tail * scale + (scale - detail::power_of_two(-e.rest))) * detail::power_of_two(e.rest);
  return select(x == 0.0f, x, result);  // keeps the sign of zero
}

namespace detail {

/// x = 2^exponent (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) = f + tail.
struct LogParts {
  float exponent, f, tail;
};
TERN_HD inline LogParts reduce_log(float x) {
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
  return {exponent, f, p * (f * square) - 0.5f * square};
}
/// The result of a logarithm: -infinity at 0, NaN below 0.
TERN_HD inline float log_of(float x, float result) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float outside = select(x == 0.0f, -kInfinity, std::numeric_limits<float>::quiet_NaN());
  return select(x > 0.0f, select(x == kInfinity, x, result), outside);
}

}  // namespace detail

TERN_HD inline float log(float x) {
  const detail::LogParts l = detail::reduce_log(x);
  return detail::log_of(x, l.exponent * 0x1.62e4p-1f + (l.f + (l.exponent * 0x1.7f7d1cp-20f + l.tail)));
}

/// Exact at powers of 2.
TERN_HD inline float log2(float x) {
  constexpr float kInverseLn2Less1 = 0x1.c551dap-2f;
  const detail::LogParts l = detail::reduce_log(x);
  return detail::log_of(x, l.exponent + (l.f + (l.tail + kInverseLn2Less1 * (l.f + l.tail))));
}

TERN_HD inline float log10(float x) {
  constexpr float kInverseLn10Less7Of16 = -0x1.a42756p-9f;
  const detail::LogParts l = detail::reduce_log(x);
  const float low = l.exponent * 0x1.3509f8p-18f + (l.tail * 0.4375f + kInverseLn10Less7Of16 * (l.f + l.tail));
  return detail::log_of(x, l.exponent * 0x1.344p-2f + (l.f * 0.4375f + low));
}

/// log(1 + x), accurate near 0: the rounding error of 1 + x is corrected by a division (Kahan).
TERN_HD inline float log1p(float x) {
  const float u = 1.0f + x;
  const float ratio = log(u) * (x / (u - 1.0f));
  return select(u == 1.0f || u == std::numeric_limits<float>::infinity(), x, ratio);
}

/// log(1 + exp(x)) for x <= 0: the logarithm is a polynomial of exp(x), which is at most 1.
[[gnu::always_inline]] TERN_HD inline float log1p_exp(float x) {
  const float e = exp(x), square = e * e;
  float odd = -0x1.e20354p-9f, even = 0x1.666830p-6f;  // two short chains of dependent instructions
  odd = odd * square + -0x1.f3119cp-5f;
  even = even * square + 0x1.c396e0p-4f;
  odd = odd * square + -0x1.3edd36p-3f;
  even = even * square + 0x1.94fa68p-3f;
  odd = odd * square + -0x1.ff7d72p-3f;
  even = even * square + 0x1.55527ep-2f;
  return e + ((odd * e + even) * (e * square) - 0.5f * square);
}

TERN_HD inline float tanh(float x) {
  const float magnitude = abs(x);
  const float e = detail::expm1_normal(2.0f * select(magnitude > 10.0f, 10.0f, magnitude));
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

/// Giles, "Approximating the erfinv function" (GPU Computing Gems, 2012), table 5.
TERN_HD inline float erfinv(float x) {
  const float w = -log((1.0f - x) * (1.0f + x));
  const float c = w - 2.5f;
  float center = 2.81022636e-08f;
  center = center * c + 3.43273939e-07f;
  center = center * c + -3.5233877e-06f;
  center = center * c + -4.39150654e-06f;
  center = center * c + 0.00021858087f;
  center = center * c + -0.00125372503f;
  center = center * c + -0.00417768164f;
  center = center * c + 0.246640727f;
  center = center * c + 1.50140941f;
  const float t = sqrt(w) - 3.0f;
  float tail = -0.000200214257f;
  tail = tail * t + 0.000100950558f;
  tail = tail * t + 0.00134934322f;
  tail = tail * t + -0.00367342844f;
  tail = tail * t + 0.00573950773f;
  tail = tail * t + -0.0076224613f;
  tail = tail * t + 0.00943887047f;
  tail = tail * t + 1.00167406f;
  tail = tail * t + 2.83297682f;
  const float result = x * select(w < 5.0f, center, tail);
  return select(abs(x) == 1.0f, detail::copy_sign(std::numeric_limits<float>::infinity(), x), result);
}
TERN_HD inline float sinh(float x) {
  constexpr float kHalfExp64 = 0x1.425982p+91f;  // for results that are finite where exp() is not
  const float magnitude = abs(x);
  const float e = expm1(select(magnitude > 88.0f, 88.0f, magnitude));
  const float small = 0.5f * (e + e / (e + 1.0f));
  return detail::copy_sign(select(magnitude > 88.0f, exp(magnitude - 64.0f) * kHalfExp64, small), x);
}

TERN_HD inline float cosh(float x) {
  constexpr float kHalfExp64 = 0x1.425982p+91f;
  const float magnitude = abs(x);
  const float e = exp(select(magnitude > 88.0f, 88.0f, magnitude));
  return select(magnitude > 88.0f, exp(magnitude - 64.0f) * kHalfExp64, 0.5f * (e + 1.0f / e));
}

/// Above 2^20 the 1 in sqrt(x^2 + 1) has no effect.
TERN_HD inline float asinh(float x) {
  const float magnitude = abs(x), square = magnitude * magnitude;
  const float small = log1p(magnitude + square / (1.0f + sqrt(square + 1.0f)));
  return detail::copy_sign(select(magnitude > 0x1p20f, log(magnitude) + 0x1.62e430p-1f, small), x);
}

/// NaN below 1.
TERN_HD inline float acosh(float x) {
  const float t = x - 1.0f;
  const float result = select(x > 0x1p20f, log(x) + 0x1.62e430p-1f, log1p(t + sqrt(t * (t + 2.0f))));
  return select(x < 1.0f, std::numeric_limits<float>::quiet_NaN(), result);
}

/// Infinite at 1 and -1, NaN beyond.
TERN_HD inline float atanh(float x) {
  const float magnitude = abs(x);
  return detail::copy_sign(0.5f * log1p((magnitude + magnitude) / (1.0f - magnitude)), x);
}

namespace detail {

constexpr float kHalfPi = 0x1.921fb6p+0f, kHalfPiLow = -0x1.777a5cp-25f;  // pi / 2 is the sum

/// asin(sqrt(square)) / sqrt(square) - 1 for square <= 1/4.
TERN_HD inline float asin_tail(float square) {
  float p = 0x1.3355cep-5f;
  p = p * square + 0x1.d91f7ep-7f;
  p = p * square + 0x1.0491a4p-5f;
  p = p * square + 0x1.6caed2p-5f;
  p = p * square + 0x1.33387cp-4f;
  p = p * square + 0x1.55554cp-3f;
  return p * square;
}

/// atan(x) for x in [0, 1].
TERN_HD inline float atan_reduced(float x) {
  const float square = x * x;
  float p = -0x1.d63038p-10f;
  p = p * square + 0x1.65a686p-7f;
  p = p * square + -0x1.fed188p-6f;
  p = p * square + 0x1.dac9f8p-5f;
  p = p * square + -0x1.583496p-4f;
  p = p * square + 0x1.c09a00p-4f;
  p = p * square + -0x1.2421b6p-3f;
  p = p * square + 0x1.9991fep-3f;
  p = p * square + -0x1.55553ep-2f;
  return x + x * (p * square);
}

}  // namespace detail

/// asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)) for x > 1/2. NaN beyond 1 and -1.
TERN_HD inline float asin(float x) {
  const float magnitude = abs(x);
  const bool outer = magnitude > 0.5f;
  const float square = select(outer, 0.5f - 0.5f * magnitude, magnitude * magnitude);
  const float root = select(outer, sqrt(square), magnitude);
  const float angle = root + root * detail::asin_tail(square);
  const float result = select(outer, detail::kHalfPi - (2.0f * angle - detail::kHalfPiLow), angle);
  return select(isnan(result), result, detail::copy_sign(abs(result), x));
}

/// acos(x) = 2 asin(sqrt((1 - x) / 2)) for x > 1/2, pi minus that of -x for x < -1/2. NaN beyond 1 and -1.
TERN_HD inline float acos(float x) {
  const float magnitude = abs(x);
  const bool outer = magnitude > 0.5f;
  const float square = select(outer, 0.5f - 0.5f * magnitude, magnitude * magnitude);
  const float root = select(outer, sqrt(square), x);
  const float angle = root + root * detail::asin_tail(square);
  const float inner = detail::kHalfPi - (angle - detail::kHalfPiLow);
  const float doubled = 2.0f * angle;
  const float left = 2.0f * detail::kHalfPi - (doubled - 2.0f * detail::kHalfPiLow);
  return select(outer, select(x > 0.0f, doubled, left), inner);
}

/// atan(x) = pi/2 - atan(1 / x) for x > 1.
TERN_HD inline float atan(float x) {
  const float magnitude = abs(x);
  const bool outer = magnitude > 1.0f;
  const float angle = detail::atan_reduced(select(outer, 1.0f / magnitude, magnitude));
  return detail::copy_sign(select(outer, detail::kHalfPi - (angle - detail::kHalfPiLow), angle), x);
}

/// The angle of the point (x, y), in [-pi, pi]; as C's at zeros and infinities.
TERN_HD inline float atan2(float y, float x) {
  const float height = abs(y), width = abs(x);
  const bool steep = height > width;
  const float longer = select(steep, height, width), shorter = select(steep, width, height);
  // Equal sides, also both infinite or both 0, have the quotient 1 or 0.
  const float quotient = select(longer == shorter, select(longer == 0.0f, 0.0f, 1.0f), shorter / longer);
  const float first = detail::atan_reduced(quotient);
  const float octant = select(steep, detail::kHalfPi - (first - detail::kHalfPiLow), first);
  const bool left = (std::bit_cast<uint32_t>(x) >> 31) != 0;
  const float angle = select(left, 2.0f * detail::kHalfPi - (octant - 2.0f * detail::kHalfPiLow), octant);
  return select(isnan(x) | isnan(y), x + y, detail::copy_sign(angle, y));
}

#ifdef __AVX2__
namespace detail {

/// log2(x) of a positive normal number, relative error 2^-37; of others meaningless.
[[gnu::always_inline]] TERN_HD inline double log2_of_normal(double x) {
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1, kOne = uint64_t{1023} << 52, kInteger = uint64_t{1075} << 52;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const double mantissa = std::bit_cast<double>((bits & kMantissa) | kOne);  // [1, 2)
  const bool high = mantissa > 1.4142135623730951;
  // An integer below 2^52 with the exponent of 2^52 is 2^52 + that integer.
  const double exponent = std::bit_cast<double>((bits >> 52) | kInteger) - (0x1p52 + 1023) + (high ? 1.0 : 0.0);
  const double m = high ? 0.5 * mantissa : mantissa, s = (m - 1.0) / (m + 1.0), square = s * s;
  double p = 0x1.5ce7cdf1a8edfp-2;  // 2 atanh(s) / ln 2
  p = p * square + 0x1.a58d8fbb3c3fap-2;
  p = p * square + 0x1.27777fda7358ep-1;
  p = p * square + 0x1.ec709d12e1438p-1;
  p = p * square + 0x1.71547652bede5p+1;
  return exponent + s * p;
}
/// 2^x for |x| < 1000, relative error 2^-34.
[[gnu::always_inline]] TERN_HD inline double exp2_of_small(double x) {
  constexpr double kShift = 0x1.8p52;
  const double shifted = x + kShift, f = x - (shifted - kShift);
  double p = 0x1.fde60320d9929p-17;
  p = p * f + 0x1.445c83f34089ap-13;
  p = p * f + 0x1.5d8a85fa8f6edp-10;
  p = p * f + 0x1.3b29f39d67fa7p-7;
  p = p * f + 0x1.c6b08ac06f911p-5;
  p = p * f + 0x1.ebfbe0778704ep-3;
  p = p * f + 0x1.62e42ff0e1907p-1;
  return (p * f + 1.0) * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

}  // namespace detail

/// 2^(y log2 |x|) in double, with C's special cases.
[[gnu::always_inline]] TERN_HD inline float pow(float x, float y) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double base = x, e = y, magnitude = abs(base);
  const double log_of_finite = magnitude > 0 ? detail::log2_of_normal(magnitude) : -kInfinity;
  const double product = e * (magnitude < kInfinity ? log_of_finite : magnitude);  // magnitude: infinity or NaN
  const double low = product > 129.0 ? 129.0 : product, bounded = low < -151.0 ? -151.0 : low;
  const bool is_one = (e == 0) | (base == 1) | ((magnitude == 1) & (abs(e) == kInfinity));
  const double power = is_one ? 1.0 : detail::exp2_of_small(bounded);
  const double half = 0.5 * e;
  const bool is_whole = std::trunc(e) == e, is_odd = is_whole & (std::trunc(half) != half);
  const bool is_negative = std::bit_cast<uint64_t>(base) >> 63 != 0;
  const double result = is_negative & is_odd ? -power : power;
  return static_cast<float>((base < 0) & (base > -kInfinity) & !is_whole ? kInfinity - kInfinity : result);
}
#else  // with two doubles at a time the C library is faster
TERN_HD inline float pow(float x, float y) { return std::pow(x, y); }
#endif
#endif

/// The float approximation, refined by Halley's method; near 1 from erfc, which keeps the digits.
TERN_HD inline double erfinv(double x) {
  const double magnitude = abs(x), rest = 1.0 - magnitude;
  using Limits = std::numeric_limits<double>;
  if (!(rest > 0.0)) return rest == 0.0 ? std::copysign(Limits::infinity(), x) : Limits::quiet_NaN();
  const double log_rest = -std::log(rest);
  double y = rest > 1e-6 ? static_cast<double>(erfinv(static_cast<float>(magnitude)))
                         : std::sqrt(log_rest - 0.5 * std::log(3.14159265358979323846 * log_rest));
  for (int i = 0; i < 3; ++i) {
    const double error = magnitude < 0.5 ? std::erf(y) - magnitude : rest - std::erfc(y);
    const double step = error / (1.12837916709551257390 * std::exp(-y * y));
    y -= step / (1.0 + y * step);
  }
  return std::copysign(y, x);
}

}  // namespace tern::kernels::math
