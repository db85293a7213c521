#pragma once
// Moments of random numbers.

#include <algorithm>
#include <cmath>
#include <vector>

namespace tern::test {

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0, low, high;
  explicit Moments(const std::vector<double>& values) : low(std::ranges::min(values)), high(std::ranges::max(values)) {
    const auto n = static_cast<double>(values.size());
    for (const double v : values) mean += v / n;
    for (const double v : values) {
      const double d = v - mean;
      variance += d * d / n;
      skew += d * d * d / n;
      kurtosis += d * d * d * d / n;
    }
    skew /= std::pow(variance, 1.5);
    kurtosis /= variance * variance;
  }
};

}  // namespace tern::test
