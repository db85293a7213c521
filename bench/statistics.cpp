#include "tern/bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

/// How many times the noise a difference must be to be seen through it.
constexpr double kClear = 2;

/// The probability that the interval from the k-th smallest to the k-th largest of n values contains the median: of n
/// fair coins neither fewer than k show heads nor fewer than k tails.
double coverage(int n, int k) {
  double tail = 0, term = std::pow(0.5, n);  // of i heads
  for (int i = 0; i < k; ++i) {
    tail += term;
    term *= static_cast<double>(n - i) / (i + 1);
  }
  return 1 - 2 * tail;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

int least_count(double confidence) {
  TERN_CHECK(confidence > 0 && confidence < 1, "confidence must be between 0 and 1, got ", confidence);
  int count = 2;
  while (coverage(count, 1) < confidence) ++count;
  return count;
}

Interval median_interval(std::vector<double> values, double confidence) {
  const int least = least_count(confidence), n = static_cast<int>(values.size());
  TERN_CHECK(n >= least, "an interval with confidence ", confidence, " needs at least ", least, " values, got ", n);
  for (const double value : values) TERN_CHECK(std::isfinite(value), "an interval of values that are not finite");
  std::sort(values.begin(), values.end());
  int k = 1;
  while (2 * (k + 1) <= n && coverage(n, k + 1) >= confidence) ++k;
  return {values[static_cast<size_t>(k - 1)], median(values), values[static_cast<size_t>(n - k)]};
}

const char* name_of(Verdict verdict) {
  constexpr const char* kNames[] = {"same", "slower", "faster", "too noisy"};
  return kNames[static_cast<int>(verdict)];
}

double distance_from_one(const Interval& interval) {
  return std::max(std::abs(interval.low - 1), std::abs(interval.high - 1));
}

Verdict verdict_of(const Interval& ratio, const Interval& control, double noise_limit) {
  const double noise = distance_from_one(control);
  if (!(noise <= noise_limit)) {
    if (ratio.low > 1 + kClear * noise) return Verdict::kSlower;
    if (ratio.high < 1 / (1 + kClear * noise)) return Verdict::kFaster;
    return Verdict::kTooNoisy;
  }
  if (ratio.low > std::max(1.0, control.high)) return Verdict::kSlower;
  if (ratio.high < std::min(1.0, control.low)) return Verdict::kFaster;
  return Verdict::kSame;
}

}  // namespace tern::bench
