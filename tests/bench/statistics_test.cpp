// Medians, their intervals and verdicts, against counted probabilities and samples of a known distribution.

#include "tern/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tern/tests/errors.h"
#include "tern/tests/support/seed.h"

namespace tern::bench {
namespace {

using test::expect_error;

/// The probability that the k-th smallest to the k-th largest of n independent values contain the median, by counting
/// the 2^n equally likely ways in which the values are below or above it.
double counted_coverage(int n, int k) {
  int64_t contained = 0;
  for (int64_t ways = 0; ways < int64_t{1} << n; ++ways) {
    const int below = __builtin_popcountll(static_cast<unsigned long long>(ways));
    contained += below >= k && n - below >= k;
  }
  return static_cast<double>(contained) / static_cast<double>(int64_t{1} << n);
}

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 9}), 5);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
  EXPECT_EQ(median({2, 2, 2, 7}), 2);
}

TEST(Statistics, IntervalIsTheShortestOfOrderStatisticsWithTheConfidence) {
  for (const double confidence : {0.5, 0.9, 0.95, 0.99})
    for (int n = 2; n <= 18; ++n) {
      SCOPED_TRACE(testing::Message() << n << " values, " << confidence);
      int k = 0;  // the largest that has the confidence
      for (int i = 1; 2 * i <= n; ++i)
        if (counted_coverage(n, i) >= confidence) k = i;
      std::vector<double> values;
      for (int i = 1; i <= n; ++i) values.push_back(i);
      std::shuffle(values.begin(), values.end(), fresh_random(static_cast<uint64_t>(n)));
      EXPECT_EQ(k > 0, n >= least_count(confidence));
      if (k == 0) {
        expect_error([&] { median_interval(values, confidence); }, {"needs at least"});
        continue;
      }
      const Interval interval = median_interval(values, confidence);
      EXPECT_EQ(interval.low, k);
      EXPECT_EQ(interval.high, n + 1 - k);
      EXPECT_EQ(interval.middle, (n + 1) / 2.0);
    }
}

// Heavy tails, as interruptions make them: the interval has the median as often as it says, whatever the distribution.
TEST(Statistics, IntervalCoversTheMedianOfAHeavyTailedDistribution) {
  std::mt19937_64 random = fresh_random();
  std::lognormal_distribution<double> times(0, 1.5);  // median 1
  constexpr int kTrials = 4000, kRounds = 10;
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < kRounds; ++i) values.push_back(times(random));
    const Interval interval = median_interval(values, 0.95);
    covered += interval.low <= 1 && 1 <= interval.high;
  }
  const double expected = counted_coverage(kRounds, 2);  // 0.979
  EXPECT_NEAR(covered / double{kTrials}, expected, 6 * std::sqrt(expected * (1 - expected) / kTrials));
}

TEST(Statistics, TiesKeepTheInterval) {
  const Interval interval = median_interval({1, 1, 1, 1, 1, 1, 1, 1}, 0.95);
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 1);
  const Interval two = median_interval({1, 1, 1, 1, 2, 2, 2, 2}, 0.95);
  EXPECT_EQ(two.low, 1);
  EXPECT_EQ(two.middle, 1.5);
  EXPECT_EQ(two.high, 2);
}

TEST(Statistics, RefusesWhatIsNoSample) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, infinity, -infinity})
    expect_error([&] { median_interval({1, 2, 3, 4, 5, 6, bad}, 0.95); }, {"not finite"});
  expect_error([] { median_interval({1, 2, 3, 4, 5}, 0.95); }, {"at least 6 values, got 5"});
  for (const double confidence : {0.0, 1.0, nan}) expect_error([&] { least_count(confidence); }, {"between 0 and 1"});
}

TEST(Statistics, Verdicts) {
  const Interval quiet{0.995, 1, 1.004};
  EXPECT_EQ(verdict_of({0.99, 1, 1.01}, quiet, 0.03), Verdict::kSame);
  EXPECT_EQ(verdict_of({1.02, 1.03, 1.05}, quiet, 0.03), Verdict::kSlower);
  EXPECT_EQ(verdict_of({0.90, 0.95, 0.99}, quiet, 0.03), Verdict::kFaster);
  // Above 1, but not above what two processes of one program differ by.
  EXPECT_EQ(verdict_of({1.003, 1.01, 1.02}, quiet, 0.03), Verdict::kSame);
  EXPECT_EQ(verdict_of({0.98, 0.99, 0.996}, quiet, 0.03), Verdict::kSame);
  // A control that is not around 1 does not make equal times slower or faster.
  EXPECT_EQ(verdict_of({0.999, 1, 1.001}, {0.98, 0.985, 0.99}, 0.03), Verdict::kSame);
  EXPECT_EQ(verdict_of({0.999, 1, 1.001}, {1.01, 1.015, 1.02}, 0.03), Verdict::kSame);
  // Too noisy above and below, unless the difference is more than twice the noise.
  EXPECT_EQ(verdict_of({1.06, 1.1, 1.2}, {0.99, 1, 1.031}, 0.03), Verdict::kTooNoisy);
  EXPECT_EQ(verdict_of({1.06, 1.1, 1.2}, {0.96, 1, 1.01}, 0.03), Verdict::kTooNoisy);
  EXPECT_EQ(verdict_of({1.06, 1.1, 1.2}, {0.96, 1, 1.01}, 0.05), Verdict::kSlower);
  EXPECT_EQ(verdict_of({1.09, 1.1, 1.2}, {0.96, 1, 1.01}, 0.03), Verdict::kSlower);
  EXPECT_EQ(verdict_of({0.80, 0.9, 0.94}, {0.96, 1, 1.01}, 0.03), Verdict::kTooNoisy);
  EXPECT_EQ(verdict_of({0.80, 0.9, 0.92}, {0.96, 1, 1.01}, 0.03), Verdict::kFaster);
  EXPECT_EQ(verdict_of({2.15, 2.2, 2.3}, {0.8, 1, 1.3}, 0.03), Verdict::kSlower);
  EXPECT_EQ(verdict_of({1.5, 2.2, 2.3}, {0.8, 1, 1.3}, 0.03), Verdict::kTooNoisy);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(verdict_of({1.5, 1.6, 1.7}, {nan, nan, nan}, 0.03), Verdict::kTooNoisy);
}

// A shift larger than the noise is found; without a shift one is hardly ever claimed.
TEST(Statistics, VerdictsOfNoisyRounds) {
  std::mt19937_64 random = fresh_random();
  std::normal_distribution<double> noise(0, 0.005);
  constexpr int kTrials = 2000, kRounds = 10;
  const auto count = [&](double shift, Verdict verdict) {
    int found = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> ratios, controls;
      for (int i = 0; i < kRounds; ++i) {
        const double mine = 1 + noise(random);
        ratios.push_back(shift * mine / (1 + noise(random)));
        controls.push_back(mine / (1 + noise(random)));
      }
      found += verdict_of(median_interval(ratios, 0.95), median_interval(controls, 0.95), 0.03) == verdict;
    }
    return found;
  };
  EXPECT_GE(count(1.05, Verdict::kSlower), kTrials * 99 / 100);
  EXPECT_GE(count(0.95, Verdict::kFaster), kTrials * 99 / 100);
  EXPECT_GE(count(1.0, Verdict::kSame), kTrials * 99 / 100);
}

}  // namespace
}  // namespace tern::bench
