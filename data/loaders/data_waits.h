#pragma once
// What a profile says about waiting for data.

#include <array>
#include <cstdint>
#include <string>

#include "tern/core/profiler/report.h"

namespace tern::data {

/// The ranges in which a BatchStream with workers takes its next batch, by the number of batches that were ready: the
/// first is spent waiting. The calls of all are a histogram of the queue's depth.
inline constexpr std::array kTakeRanges = {"batch taken, 0 ready", "batch taken, 1 ready", "batch taken, 2 ready",
                                           "batch taken, 3 or more ready"};

struct DataWaits {
  int64_t batches = 0;    // taken from workers while the profiler ran
  int64_t waits = 0;      // of these, batches that were not ready
  double seconds = 0;     // spent waiting for them
  double mean_ready = 0;  // batches ready when one was taken; 3 stands for 3 or more
  double share = 0;       // of the time that was recorded

  /// "waited 1.250 s for data (12.5 % of the time), for 40 of 100 batches; 0.8 batches were ready on average", with
  /// what to do about it from 5 % on. Empty without batches.
  std::string str() const;
};
DataWaits data_waits(const ProfileReport& report);

}  // namespace tern::data
