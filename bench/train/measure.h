#pragma once
// Timing of steps, and the numbers that both sides of the comparison report.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

namespace tern::bench {

using Json = nlohmann::json;

class Stopwatch {
 public:
  /// Seconds since the last lap, or the start.
  double lap() {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

inline constexpr int kWarmUpSteps = 2;

/// Tokens and seconds of every step that was measured.
struct Measurement {
  std::vector<double> tokens, seconds;
  double all_tokens() const { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }
  double all_seconds() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
};

/// Python's: the mean of the middle two where there are two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// Calls step(), which returns its tokens, for about `seconds` and at least three times, after the warm-up;
/// warm() is called between the two.
template <class Step, class Warm>
Measurement measure(double seconds, Step&& step, Warm&& warm) {
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  warm();
  Measurement result;
  double spent = 0;
  while (spent < seconds || result.seconds.size() < 3) {
    Stopwatch watch;
    const int64_t tokens = step();
    result.seconds.push_back(watch.lap());
    result.tokens.push_back(static_cast<double>(tokens));
    spent += result.seconds.back();
  }
  return result;
}

/// equal_steps: the median over steps; otherwise all tokens over all seconds.
inline Json summary(const Measurement& m, bool equal_steps) {
  std::vector<double> rates;
  for (size_t i = 0; i < m.tokens.size(); ++i) rates.push_back(m.tokens[i] / m.seconds[i]);
  const double mean = m.all_tokens() / m.all_seconds();
  return {{"tokens_per_second", equal_steps ? median(rates) : mean},
          {"best_tokens_per_second", equal_steps ? *std::max_element(rates.begin(), rates.end()) : mean},
          {"mean_tokens_per_second", mean},
          {"steps", m.seconds.size()},
          {"seconds", m.all_seconds()},
          {"median_step_seconds", median(m.seconds)}};
}

}  // namespace tern::bench
