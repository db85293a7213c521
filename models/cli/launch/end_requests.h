#pragma once
// Handles SIGINT, SIGTERM and SIGUSR1 as requests to save and end.

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace tern::cli {

/// Counts these signals; async-signal-safe. One request may arrive as several signals: `timeout` sends SIGTERM to a
/// process and to its group, batch systems and service managers send it to every process of a job, and those forward
/// it. Signals within kSeconds of the first SIGINT or SIGTERM therefore belong to the same request.
class EndRequests {
 public:
  static constexpr int64_t kSeconds = 1;

  /// Nanoseconds of a monotonic clock.
  static int64_t now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  /// Records a signal that arrived at `at` nanoseconds.
  void note(int number, int64_t at = now()) {
    int none = 0;
    first_.compare_exchange_strong(none, number);
    if (number == SIGUSR1) return;  // requests a save; further ones change nothing
    int64_t ending_at = kNever;
    if (ending_at_.compare_exchange_strong(ending_at, at) || at - ending_at <= kSeconds * 1'000'000'000) return;
    none = 0;
    again_.compare_exchange_strong(none, number);
  }
  /// The first signal; 0: none so far.
  int first() const { return first_; }
  /// The first SIGINT or SIGTERM after the first request; 0: none.
  int again() const { return again_; }

 private:
  std::atomic<int> first_ = 0, again_ = 0;
  static constexpr int64_t kNever = INT64_MIN;
  std::atomic<int64_t> ending_at_ = kNever;
};

}  // namespace tern::cli
