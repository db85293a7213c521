#pragma once
// The logarithm of the gamma function, its derivatives, and the complement of erf, for pointwise ops. Floats are
// computed in double and rounded, element by element.

#include "tern/kernels/math/math.h"

namespace tern::kernels::math {

TERN_HD inline double erfc(double x) { return std::erfc(x); }
TERN_HD inline float erfc(float x) { return static_cast<float>(std::erfc(static_cast<double>(x))); }

/// log |gamma(x)|; infinite at 0, -1, -2, ...
TERN_HD inline double lgamma(double x) {
#ifdef __CUDA_ARCH__
  return ::lgamma(x);
#else
  int sign = 0;
  return ::lgamma_r(x, &sign);  // std::lgamma writes a global variable
#endif
}
TERN_HD inline float lgamma(float x) { return static_cast<float>(lgamma(static_cast<double>(x))); }

/// Orders of polygamma are below it.
inline constexpr int kMaxPolygamma = 32;

namespace detail {

/// B_2j / (2 j), of Bernoulli's numbers.
constexpr int kSeriesTerms = 7;
TERN_HD inline double bernoulli_over_index(int j) {
  constexpr double kNumbers[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12};
  return kNumbers[j - 1];
}

/// The n-th derivative of pi cot(pi x): a polynomial in c = cot(pi x), whose own derivative is -pi (1 + c^2).
TERN_HD inline double cotangent_derivative(int n, double x) {
  constexpr double kPi = 3.14159265358979323846;
  double coefficients[kMaxPolygamma + 2] = {0, kPi};
  for (int k = 0; k < n; ++k) {  // every other coefficient is of this derivative, those between are of the next
    for (int i = k % 2; i <= k + 2; i += 2) coefficients[i] = 0;
    for (int i = 1 + k % 2; i <= k + 1; i += 2) {
      coefficients[i - 1] -= kPi * i * coefficients[i];
      coefficients[i + 1] -= kPi * i * coefficients[i];
    }
  }
  const double c = 1 / std::tan(kPi * (x - std::rint(x)));
  double sum = 0;
  for (int i = n + 1; i >= 0; i -= 2) sum = sum * c * c + coefficients[i];
  return n % 2 == 0 ? sum * c : sum;
}

// For x > 0 the recurrence up to a large argument, and there the asymptotic series (Abramowitz and Stegun, "Handbook of
// Mathematical Functions", 6.3.18 and 6.4.11).

TERN_HD inline double digamma_of_positive(double x) {
  double sum = 0;
  for (; x < 10; x += 1) sum -= 1 / x;
  const double square = 1 / (x * x);
  double power = square, series = 0;
  for (int j = 1; j <= kSeriesTerms; ++j, power *= square) series += bernoulli_over_index(j) * power;
  return sum + std::log(x) - 0.5 / x - series;
}

/// n >= 1.
TERN_HD inline double polygamma_of_positive(int n, double x) {
  double factorial = 1;  // (n - 1)!
  for (int k = 2; k < n; ++k) factorial *= k;
  double sum = 0;
  for (; x < 10 + n; x += 1) sum += n * factorial * std::pow(x, -(n + 1));
  const double square = 1 / (x * x), first = factorial * std::pow(x, -n);
  sum += first * (1 + 0.5 * n / x);
  double term = first * n * (n + 1) * square;  // (2 j + n - 1)! / (2 j - 1)! / x^(2 j + n)
  for (int j = 1; j <= kSeriesTerms; ++j) {
    sum += bernoulli_over_index(j) * term;
    term *= square * (2 * j + n) * (2 * j + n + 1) / ((2.0 * j) * (2 * j + 1));
  }
  return n % 2 == 0 ? -sum : sum;
}

}  // namespace detail

/// The n-th derivative of digamma, itself that of lgamma; n in [0, kMaxPolygamma - 1]. At 0, -1, -2, ... infinite for
/// odd n, and NaN for even n, but for digamma at 0 -infinity with the sign of 0.
TERN_HD inline double polygamma(int n, double x) {
  if (x > 0) return n == 0 ? detail::digamma_of_positive(x) : detail::polygamma_of_positive(n, x);
  if (x == 0 && n == 0) return std::copysign(INFINITY, -x);
  if (x == std::floor(x)) return n % 2 == 0 ? NAN : INFINITY;
  const double reflected = n == 0 ? detail::digamma_of_positive(1 - x) : detail::polygamma_of_positive(n, 1 - x);
  return (n % 2 == 0 ? reflected : -reflected) - detail::cotangent_derivative(n, x);
}
TERN_HD inline float polygamma(int n, float x) { return static_cast<float>(polygamma(n, static_cast<double>(x))); }

template <class F>
TERN_HD inline Dual<F> erfc(Dual<F> x) {
  constexpr double kTwoOverRootPi = 1.12837916709551257390;
  return {erfc(x.value), x.tangent * F(-kTwoOverRootPi) * exp(-(x.value * x.value))};
}
template <class F>
TERN_HD inline Dual<F> polygamma(int n, Dual<F> x) {
  return {polygamma(n, x.value), x.tangent * polygamma(n + 1, x.value)};
}

}  // namespace tern::kernels::math
