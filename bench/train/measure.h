#pragma once
// Timing of steps, and the numbers reported by both sides of the comparison.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

namespace tern::bench {

using Json = nlohmann::json;

class Stopwatch {
 public:
  /// Seconds since the last lap or, at first, the start.
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

/// Processor seconds of all threads of the process: the cost of a step even if other programs use the same cores.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline constexpr int kWarmUpSteps = 2;

/// Items (tokens, images) and seconds of every measured step.
struct Measurement {
  std::vector<double> items, seconds, cpu_seconds;
  double all_items() const { return std::accumulate(items.begin(), items.end(), 0.0); }
  double all_seconds() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
};

/// The mean of the middle two for an even count, as in Python.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// Calls step(), which returns its number of items, for the warm-up, then warm(), then step() for about `seconds` and
/// at least three times.
template <class Step, class Warm>
Measurement measure(double seconds, Step&& step, Warm&& warm) {
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  warm();
  Measurement result;
  double spent = 0;
  while (spent < seconds || result.seconds.size() < 3) {
    const double cpu = cpu_seconds();
    Stopwatch watch;
    const int64_t items = step();
    result.seconds.push_back(watch.lap());
    result.cpu_seconds.push_back(cpu_seconds() - cpu);
    result.items.push_back(static_cast<double>(items));
    spent += result.seconds.back();
  }
  return result;
}

/// equal_steps: reports medians over steps; otherwise total items over total seconds.
inline Json summary(const Measurement& m, bool equal_steps) {
  std::vector<double> rates, cpu_rates;
  for (size_t i = 0; i < m.items.size(); ++i) {
    rates.push_back(m.items[i] / m.seconds[i]);
    cpu_rates.push_back(m.items[i] / m.cpu_seconds[i]);
  }
  const double mean = m.all_items() / m.all_seconds();
  const double cpu_mean = m.all_items() / std::accumulate(m.cpu_seconds.begin(), m.cpu_seconds.end(), 0.0);
  return {{"per_second", equal_steps ? median(rates) : mean},
          {"per_cpu_second", equal_steps ? median(cpu_rates) : cpu_mean},
          {"best_per_second", equal_steps ? *std::max_element(rates.begin(), rates.end()) : mean},
          {"mean_per_second", mean},
          {"steps", m.seconds.size()},
          {"seconds", m.all_seconds()},
          {"median_step_seconds", median(m.seconds)}};
}

}  // namespace tern::bench
