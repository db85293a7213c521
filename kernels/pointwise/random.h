#pragma once
// Random counts as functions of uniform numbers, element by element. pointwise/ops.h documents the members and lists
// all ops.

#include <cmath>

#include "tern/kernels/math/special.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {
namespace random_count {

inline constexpr double kManyCounts = 1e4;  // variances above it take an expansion, whose error is about 10^-6

/// The quantile of a distribution near the normal one (Cornish and Fisher, "Moments and cumulants in the specification
/// of distributions", 1938), to the nearest integer that is not negative.
TERN_HD inline double near_normal(double u, double mean, double deviation, double skewness, double excess) {
  const double z = 1.41421356237309504880 * math::erfinv(2 * u - 1), square = z * z;
  const double bent = z + skewness * (square - 1) / 6 + excess * z * (square - 3) / 24 -
                      skewness * skewness * z * (2 * square - 5) / 36;
  const double count = std::floor(mean + deviation * bent + 0.5);
  return count > 0 ? count : 0;
}

/// A count in [0, most]: u, in (0, 1), is divided among the counts in the order mode, mode + 1, mode - 1, mode + 2, ...
/// `p` is the probability of the mode; up(k) = P(k + 1) / P(k) and down(k) = P(k - 1) / P(k).
template <class Up, class Down>
TERN_HD double from_mode(double u, double mode, double most, double p, const Up& up, const Down& down) {
  constexpr double kNone = 1e-18;
  double high = mode, low = mode, p_high = p, p_low = p;
  u -= p;
  while (u >= 0 && (p_high > kNone || p_low > kNone)) {
    p_high = high < most ? p_high * up(high) : 0;
    u -= p_high;
    if (p_high > 0) ++high;
    if (u < 0) return high;
    p_low = low > 0 ? p_low * down(low) : 0;
    u -= p_low;
    if (p_low > 0) --low;
    if (u < 0) return low;
  }
  return mode;  // or what rounding errors have left
}

TERN_HD inline double poisson(double rate, double u) {
  if (!(rate > 0)) return rate == 0 ? 0 : NAN;
  const double deviation = std::sqrt(rate);
  if (rate > kManyCounts) return near_normal(u, rate, deviation, 1 / deviation, 1 / rate);
  const double mode = std::floor(rate);
  return from_mode(
      u, mode, INFINITY, math::detail::gamma_power(mode, rate), [rate](double k) { return rate / (k + 1); },
      [rate](double k) { return k / rate; });
}

/// A number for p <= 1/2. The probability of the mode is made of Poisson's, which do not overflow.
TERN_HD inline double binomial_of_rare(double n, double p, double u) {
  const double q = 1 - p, variance = n * p * q;
  if (!(variance > 0)) return variance == 0 ? 0 : NAN;
  if (variance > kManyCounts) {
    const double deviation = std::sqrt(variance);
    const double count = near_normal(u, n * p, deviation, (q - p) / deviation, (1 - 6 * p * q) / variance);
    return count < n ? count : n;
  }
  using math::detail::gamma_power;
  const double mode = std::floor((n + 1) * p);
  const double p_mode = gamma_power(mode, n * p) * gamma_power(n - mode, n * q) / gamma_power(n, n);
  return from_mode(
      u, mode, n, p_mode, [n, p, q](double k) { return (n - k) / (k + 1) * p / q; },
      [n, p, q](double k) { return k / (n - k + 1) * q / p; });
}

TERN_HD inline double binomial(double count, double p, double u) {
  const double n = std::floor(count);
  return p > 0.5 ? n - binomial_of_rare(n, 1 - p, u) : binomial_of_rare(n, p, u);
}

}  // namespace random_count

/// A Poisson-distributed count of this rate; u is uniform in (0, 1).
struct Poisson {
  static constexpr const char* name = "poisson";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kNone;
  template <class F>
  TERN_HD F forward(F rate, F u) const {
    return static_cast<F>(random_count::poisson(static_cast<double>(rate), static_cast<double>(u)));
  }
};

/// The number of successes among floor(count) trials of probability p; u is uniform in (0, 1).
struct Binomial {
  static constexpr const char* name = "binomial";
  static constexpr bool kInDouble = true;
  static constexpr Saves saves = Saves::kNone;
  template <class F>
  TERN_HD F forward(F count, F p, F u) const {
    return static_cast<F>(
        random_count::binomial(static_cast<double>(count), static_cast<double>(p), static_cast<double>(u)));
  }
};

}  // namespace tern::kernels
