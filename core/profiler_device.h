#pragma once
// How a Profiler learns a device's times: from the device's own tools (core/cuda/cupti.h) or from marks on its queue.

#include <functional>
#include <memory>
#include <string>

#include "tern/core/device.h"
#include "tern/core/profiler_report.h"

namespace tern {

/// Hears the ranges of all threads, each thread's in order; never waits for the device before finish().
class DeviceProfiler {
 public:
  virtual ~DeviceProfiler() = default;
  /// The recording begins; `clock` is the profiler's.
  virtual void start(int64_t (*clock)()) = 0;
  virtual void open(uint64_t range) = 0;
  virtual void close(uint64_t range) = 0;
  /// Waits for the device and says what it did. No open() or close() comes after it.
  virtual detail::DeviceTimeline finish() = 0;
};

/// Marks on a device's queue. A mark is made on the calling thread's current queue and never waits.
struct DeviceMarks {
  std::string source;                                           // "CUDA events"
  std::function<std::shared_ptr<void>()> record;                // null: none can be made now (a step is being captured)
  std::function<void()> synchronize;                            // until all marks have passed
  std::function<double(void* from, void* to)> seconds_between;  // after synchronize(), of marks of one queue
};

/// Times every range by two marks: at most `most_pairs` ranges, the first ones.
std::shared_ptr<DeviceProfiler> make_mark_profiler(const DeviceMarks& marks, int64_t most_pairs = 200000);

/// What knows most of this device: CUPTI where it can be used, else events around the ranges; null for the CPU. One at
/// a time.
std::shared_ptr<DeviceProfiler> device_profiler(Device device);

}  // namespace tern
