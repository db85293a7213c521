#pragma once
// The statistics of every comparison of benchmarks.

#include <vector>

namespace tern::bench {

/// The mean of the middle two for an even count. Not of an empty list.
double median(std::vector<double> values);

/// A median and an interval for it.
struct Interval {
  double low = 0, middle = 0, high = 0;
};

/// The interval from the k-th smallest to the k-th largest value with the largest k for which it contains the median of
/// the values' distribution with at least this probability, whatever the (continuous) distribution; with ties the
/// probability is larger (David and Nagaraja, "Order Statistics", 7.1). Throws Error for fewer than
/// least_count(confidence) values and for values that are not finite.
Interval median_interval(std::vector<double> values, double confidence);
/// The number of values from which an interval exists: 6 for 0.95.
int least_count(double confidence);

enum class Verdict { kSame, kSlower, kFaster, kTooNoisy };
const char* name_of(Verdict verdict);

/// `ratio`: time of the new program over that of the baseline, in pairs; `control`: time of the new program over that
/// of a second process of the same program, in pairs of the same rounds.
///   kTooNoisy  the control is further than `noise_limit` from 1 at one of its ends, and the ratio's interval does not
///   lie
///              beyond twice that distance
///   kSlower    the whole interval is above 1 and above the control's
///   kFaster    the whole interval is below 1 and below the control's
Verdict verdict_of(const Interval& ratio, const Interval& control, double noise_limit);

/// The distance from 1 of the end that is further from it.
double distance_from_one(const Interval& interval);

}  // namespace tern::bench
