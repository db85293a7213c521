#pragma once
// The one way in which benchmarks are timed: rows in samples, and a stopwatch for what is no row.

#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/bench/benchmark.h"

namespace tern::bench {

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

/// Several calls or steps, timed together.
struct Sample {
  double items = 0;    // calls of a kernel, or items of steps
  double seconds = 0;  // of the host's clock, or of the device's for kernels on a GPU
  double cpu_seconds = 0;
  double per_item() const { return seconds / items; }
};

/// A row, ready to be timed.
class Timer {
 public:
  /// Prepares the row, warms up and chooses the number of calls of a sample.
  explicit Timer(const Row& row);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  Sample sample();
  /// The row's work, completed by make_call; of steps the operations of an item.
  const Work& work() const { return work_; }
  /// A JSON object: what the row's steps add to its line.
  std::string facts() const;

 private:
  struct Graph;

  Work work_;
  Step step_;  // runs one call or step; null when graph_ is set
  int64_t steps_per_sample_ = 1;
  std::function<std::string()> facts_;
  std::unique_ptr<Graph> graph_;
};

/// Samples for about that many seconds, at least three.
std::vector<Sample> take_samples(Timer& timer, double seconds);
/// Seconds of an item: of calls the median over samples; of steps, which may differ, all seconds over all items.
double seconds_per_item(const std::vector<Sample>& samples, bool steps);

}  // namespace tern::bench
