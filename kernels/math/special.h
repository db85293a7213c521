#pragma once
// Modified Bessel functions, scaled complements of erf, and incomplete gamma functions, for pointwise ops. Floats are
// computed in double and rounded, element by element.

#include <cmath>

#include "tern/kernels/math/gamma.h"

namespace tern::kernels::math {

namespace detail {

inline constexpr double kPi = 3.14159265358979323846;

/// exp(-|x|) I_n(x) for n = 0, ..., 3: the power series, whose terms are positive, and for large x the asymptotic one
/// (Abramowitz and Stegun, "Handbook of Mathematical Functions", 9.6.10 and 9.7.1).
TERN_HD inline double scaled_bessel(int n, double signed_x) {
  constexpr double kLarge = 30, kSmallest = 1e-17;
  const double x = std::fabs(signed_x);
  double term = 1, sum = 1, result = 0;
  if (x < kLarge) {
    const double square = 0.25 * x * x;
    double first = std::exp(-x);
    for (int k = 1; k <= n; ++k) first *= 0.5 * x / k;
    for (int k = 1; term > kSmallest * sum; ++k) sum += term *= square / (static_cast<double>(k) * (k + n));
    result = first * sum;
  } else if (!std::isinf(x)) {
    for (int k = 1; k < 40 && std::fabs(term) > kSmallest; ++k)
      sum += term *= ((2.0 * k - 1) * (2.0 * k - 1) - 4.0 * n * n) / (8 * x * k);
    result = sum / std::sqrt(2 * kPi * x);
  } else {
    result = 0;
  }
  if (x != x) return x;
  return n % 2 == 0 ? result : std::copysign(result, signed_x);
}

/// exp(|x|) y; in two steps, since exp overflows before the Bessel functions do.
TERN_HD inline double unscaled(double y, double x) {
  if (std::isinf(x)) return y == 0 && std::signbit(y) ? -INFINITY : INFINITY;
  const double half = std::exp(0.5 * std::fabs(x));
  return half * y * half;
}

/// x - log(1 + x), for small x without cancellation.
TERN_HD inline double minus_log1p(double x) {
  if (std::fabs(x) > 0.05) return x - std::log1p(x);
  double sum = 0;
  for (int k = 15; k >= 2; --k) sum = (k % 2 == 0 ? 1.0 : -1.0) / k + x * sum;
  return sum * x * x;
}

/// x^a exp(-x) / gamma(a + 1) for x > 0; for large a by Stirling's series, since the logarithms would cancel.
TERN_HD inline double gamma_power(double a, double x) {
  if (a < 10) return std::exp(a * std::log(x) - x - lgamma(a + 1));
  const double square = 1 / (a * a);
  constexpr double kStirling[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                  1.0 / 1188, -691.0 / 360360, 1.0 / 156};
  double rest = 0;
  for (int k = 6; k >= 0; --k) rest = kStirling[k] + square * rest;
  return std::exp(-a * minus_log1p((x - a) / a) - rest / a) / std::sqrt(2 * kPi * a);
}

/// log(gamma(1 + a)) for a >= 0, with all digits near 0.
TERN_HD inline double lgamma_of_1_plus(double a) {
  if (a > 0.03) return lgamma(a + 1);
  constexpr double kEuler = 0.57721566490153286061;
  // zeta(k) / k, from k = 2 on
  constexpr double kZeta[] = {0.82246703342411320303, 0.40068563438653143072, 0.27058080842778453601,
                              0.20738555102867400892, 0.16955717699740821547, 0.14404989676884613625,
                              0.12550966952474304494, 0.11133426586956468585, 0.10009945751278179205};
  double rest = 0;
  for (int k = 8; k >= 0; --k) rest = (k % 2 == 0 ? kZeta[k] : -kZeta[k]) + a * rest;
  return a * (a * rest - kEuler);
}

/// The upper part for x below about 1.5, also where it is tiny, by the series of the lower one (Abramowitz and Stegun,
/// 6.5.29): with p = x^a / gamma(a + 1) it is 1 - p - p a (the sum of (-x)^k / (k! (a + k)) from k = 1 on).
TERN_HD inline double upper_gamma_of_small(double a, double x) {
  const double exponent = a * std::log(x) - lgamma_of_1_plus(a);
  double power = 1, sum = 0;
  for (int k = 1; k < 30; ++k) {
    power *= -x / k;
    sum += power / (a + k);
  }
  return -std::expm1(exponent) - std::exp(exponent) * a * sum;
}

struct GammaParts {
  double lower, upper;
};

/// The parts for a large a (Temme, "The asymptotic expansion of the incomplete gamma functions", SIAM J. Math. Anal.
/// 10, 1979).
TERN_HD inline GammaParts gamma_parts_of_large(double a, double x) {
  constexpr double kFirst[] = {-1.0 / 3,        1.0 / 12,    -2.0 / 135,        1.0 / 864,        1.0 / 2835,
                               -139.0 / 777600, 1.0 / 25515, -2.18544851068e-6, -1.85406221072e-6};
  constexpr double kSecond[] = {-1.0 / 540, -1.0 / 288, 1.0 / 378, -77.0 / 77760};
  const double m = (x - a) / a, exponent = a * minus_log1p(m), eta = std::copysign(std::sqrt(2 * exponent / a), m);
  double rest = 0;
  if (exponent < 750) {  // else it is 0, and the powers of eta may be infinite
    double first = 0, second = 0;
    for (int k = 8; k >= 0; --k) first = kFirst[k] + eta * first;
    for (int k = 3; k >= 0; --k) second = kSecond[k] + eta * second;
    rest = std::exp(-exponent) / std::sqrt(2 * kPi * a) * (first + second / a);
  }
  const double z = eta * std::sqrt(0.5 * a);
  return {0.5 * std::erfc(-z) - rest, 0.5 * std::erfc(z) + rest};
}

/// The regularised incomplete gamma functions; NaN for a < 0, x < 0 and a = x = 0. Below a + 1 by the series of the
/// lower one, above by the continued fraction of the upper one (Abramowitz and Stegun, 6.5.29 and 6.5.31).
TERN_HD inline GammaParts gamma_parts(double a, double x) {
  constexpr double kLarge = 1e5, kSmallest = 1e-17, kTiny = 1e-300;
  constexpr int kMostTerms = 20000;
  if (!(a >= 0 && x >= 0) || (a == 0 && x == 0) || (std::isinf(a) && std::isinf(x))) return {NAN, NAN};
  if (x == 0 || std::isinf(a)) return {0, 1};
  if (a == 0 || std::isinf(x)) return {1, 0};
  if (a > kLarge) return gamma_parts_of_large(a, x);
  const double power = gamma_power(a, x);
  if (x < a + 1) {
    double term = 1, sum = 1;
    for (int k = 1; k < kMostTerms && term > kSmallest * sum; ++k) sum += term *= x / (a + k);
    const double lower = power * sum < 1 ? power * sum : 1;
    return {lower, 1 - lower};
  }
  // Lentz's method for b_0 + a_1 / (b_1 + a_2 / (b_2 + ...)), which here is the reciprocal of the result.
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, fraction = d;
  for (int k = 1; k < kMostTerms; ++k) {
    const double factor = -k * (k - a);
    b += 2;
    d = factor * d + b;
    c = b + factor / c;
    d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
    if (std::fabs(c) < kTiny) c = kTiny;
    fraction *= d * c;
    if (std::fabs(d * c - 1) < 1e-16) break;
  }
  const double upper = power * a * fraction;
  return {1 - upper, upper};
}

}  // namespace detail

// Bessel functions with their first and second derivatives: 2 I_n' = I_(n-1) + I_(n+1).
TERN_HD inline double i0e(double x) { return detail::scaled_bessel(0, x); }
TERN_HD inline double i1e(double x) { return detail::scaled_bessel(1, x); }
TERN_HD inline double i0(double x) { return detail::unscaled(i0e(x), x); }
TERN_HD inline double i1(double x) { return detail::unscaled(i1e(x), x); }
TERN_HD inline double scaled_i1_slope(double x) { return 0.5 * (i0e(x) + detail::scaled_bessel(2, x)); }
TERN_HD inline double scaled_i1_curve(double x) { return 0.25 * (3 * i1e(x) + detail::scaled_bessel(3, x)); }
TERN_HD inline double i1_slope(double x) { return detail::unscaled(scaled_i1_slope(x), x); }
TERN_HD inline double i1_curve(double x) { return detail::unscaled(scaled_i1_curve(x), x); }
TERN_HD inline double i0e_slope(double x) { return i1e(x) - sign(x) * i0e(x); }
TERN_HD inline double i0e_curve(double x) { return scaled_i1_slope(x) - 2 * sign(x) * i1e(x) + i0e(x); }
TERN_HD inline double i1e_slope(double x) { return scaled_i1_slope(x) - sign(x) * i1e(x); }
TERN_HD inline double i1e_curve(double x) { return scaled_i1_curve(x) - 2 * sign(x) * scaled_i1_slope(x) + i1e(x); }

namespace detail {
inline constexpr double kErfcxLarge = 10;
/// erfcx(x) x sqrt(pi) - 1 for large x, by the asymptotic series.
TERN_HD inline double erfcx_rest(double x) {
  const double square = 0.5 / (x * x);
  double term = 1, sum = 0;
  for (int k = 1; k <= 14; ++k) sum += term *= -(2 * k - 1) * square;
  return sum;
}
}  // namespace detail

/// exp(x^2) erfc(x), with the rounding error of x^2.
TERN_HD inline double erfcx(double x) {
  if (x >= detail::kErfcxLarge) return (1 + detail::erfcx_rest(x)) / (x * std::sqrt(detail::kPi));
  const double square = x * x, error = std::fma(x, x, -square);
  return std::isinf(square) ? INFINITY : std::exp(square) * (1 + error) * std::erfc(x);
}
TERN_HD inline double erfcx_slope(double x) {
  const double factor = 2 / std::sqrt(detail::kPi);
  return x >= detail::kErfcxLarge ? factor * detail::erfcx_rest(x) : 2 * x * erfcx(x) - factor;
}
TERN_HD inline double erfcx_curve(double x) { return 2 * erfcx(x) + 2 * x * erfcx_slope(x); }
/// log of the normal distribution function.
TERN_HD inline double log_ndtr(double x) {
  const double z = x * kInverseRoot2;
  return x < -1 ? std::log(0.5 * erfcx(-z)) - z * z : std::log1p(-0.5 * std::erfc(z));
}
/// Its derivative, which is -x for large negative x.
TERN_HD inline double log_ndtr_slope(double x) {
  const double z = x * kInverseRoot2;
  return 2 * kInverseRoot2Pi / (x < 0 ? erfcx(-z) : std::exp(z * z) * std::erfc(-z));
}

TERN_HD inline double igamma(double a, double x) { return detail::gamma_parts(a, x).lower; }
/// What is left of 1 has few digits where it is small.
TERN_HD inline double igammac(double a, double x) {
  const detail::GammaParts parts = detail::gamma_parts(a, x);
  return parts.lower > 0.5 && x < 1.5 && x < a + 1 ? detail::upper_gamma_of_small(a, x) : parts.upper;
}
/// x^(a - 1) exp(-x) / gamma(a), the derivative of igamma by x.
TERN_HD inline double gamma_density(double a, double x) {
  if (!(a > 0 && x >= 0)) return a == 0 && x > 0 ? 0 : NAN;
  if (x == 0) return a < 1 ? INFINITY : a == 1 ? 1 : 0;
  return detail::gamma_power(a, x) * a / x;
}

TERN_HD inline float i0(float x) { return static_cast<float>(i0(static_cast<double>(x))); }
TERN_HD inline float i0e(float x) { return static_cast<float>(i0e(static_cast<double>(x))); }
TERN_HD inline float i1(float x) { return static_cast<float>(i1(static_cast<double>(x))); }
TERN_HD inline float i1e(float x) { return static_cast<float>(i1e(static_cast<double>(x))); }
TERN_HD inline float i1_slope(float x) { return static_cast<float>(i1_slope(static_cast<double>(x))); }
TERN_HD inline float i1_curve(float x) { return static_cast<float>(i1_curve(static_cast<double>(x))); }
TERN_HD inline float i0e_slope(float x) { return static_cast<float>(i0e_slope(static_cast<double>(x))); }
TERN_HD inline float i0e_curve(float x) { return static_cast<float>(i0e_curve(static_cast<double>(x))); }
TERN_HD inline float i1e_slope(float x) { return static_cast<float>(i1e_slope(static_cast<double>(x))); }
TERN_HD inline float i1e_curve(float x) { return static_cast<float>(i1e_curve(static_cast<double>(x))); }
TERN_HD inline float erfcx_slope(float x) { return static_cast<float>(erfcx_slope(static_cast<double>(x))); }
TERN_HD inline float erfcx_curve(float x) { return static_cast<float>(erfcx_curve(static_cast<double>(x))); }
TERN_HD inline float erfcx(float x) { return static_cast<float>(erfcx(static_cast<double>(x))); }
TERN_HD inline float log_ndtr(float x) { return static_cast<float>(log_ndtr(static_cast<double>(x))); }
TERN_HD inline float log_ndtr_slope(float x) { return static_cast<float>(log_ndtr_slope(static_cast<double>(x))); }
TERN_HD inline float igamma(float a, float x) {
  return static_cast<float>(igamma(static_cast<double>(a), static_cast<double>(x)));
}
TERN_HD inline float igammac(float a, float x) {
  return static_cast<float>(igammac(static_cast<double>(a), static_cast<double>(x)));
}
TERN_HD inline float gamma_density(float a, float x) {
  return static_cast<float>(gamma_density(static_cast<double>(a), static_cast<double>(x)));
}

template <class F>
TERN_HD inline Dual<F> i1(Dual<F> x) {
  return {i1(x.value), i1_slope(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> i1_slope(Dual<F> x) {
  return {i1_slope(x.value), i1_curve(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> i0e_slope(Dual<F> x) {
  return {i0e_slope(x.value), i0e_curve(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> i1e_slope(Dual<F> x) {
  return {i1e_slope(x.value), i1e_curve(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> erfcx_slope(Dual<F> x) {
  return {erfcx_slope(x.value), erfcx_curve(x.value) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> log_ndtr_slope(Dual<F> x) {
  const F slope = log_ndtr_slope(x.value);
  return {slope, -slope * (x.value + slope) * x.tangent};
}
template <class F>
TERN_HD inline Dual<F> gamma_density(Dual<F> a, Dual<F> x) {
  const F y = gamma_density(a.value, x.value);
  const F by_x = select(x.tangent == F(0), F(0), ((a.value - F(1)) / x.value - F(1)) * x.tangent);
  const F by_a = select(a.tangent == F(0), F(0), (log(x.value) - polygamma(0, a.value)) * a.tangent);
  return {y, y * (by_x + by_a)};
}

}  // namespace tern::kernels::math
