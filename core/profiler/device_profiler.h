#pragma once
// How a Profiler gets a device's times: from the device's tools (NVIDIA's CUPTI) or from marks in its streams.

#include <functional>
#include <memory>
#include <string>

#include "tern/core/device/device.h"
#include "tern/core/profiler/report.h"

namespace tern {

/// Is called for the ranges of all threads, each thread's in order; never waits for the device before finish().
class DeviceProfiler {
 public:
  virtual ~DeviceProfiler() = default;
  /// Begins the recording; `clock` is the profiler's.
  virtual void start(int64_t (*clock)()) = 0;
  virtual void open(uint64_t range) = 0;
  virtual void close(uint64_t range) = 0;
  /// Waits for the device and returns its times. open() and close() are not called afterwards.
  virtual detail::DeviceTimeline finish() = 0;
};

/// Functions for marks in a device's streams. record() uses the calling thread's current stream and never waits.
struct DeviceMarks {
  std::string source;                                           // "CUDA events"
  std::function<std::shared_ptr<void>()> record;                // null while a step is captured: no mark is possible
  std::function<void()> synchronize;                            // waits until all marks have passed
  std::function<double(void* from, void* to)> seconds_between;  // call after synchronize(), for marks of one stream
};

/// Times ranges with two marks each, the first `max_pairs` ranges.
std::shared_ptr<DeviceProfiler> make_mark_profiler(const DeviceMarks& marks, int64_t max_pairs = 200000);

namespace cuda {
/// Kernels, copies and fills with their names and times, from NVIDIA's CUPTI. `synchronize` waits for all work on the
/// device. Returns null when CUPTI is missing, has another major version than the headers of the build, or is in use by
/// another tool (Nsight Systems); use make_mark_profiler then. One at a time.
std::shared_ptr<DeviceProfiler> make_cupti_profiler(std::function<void()> synchronize);
}  // namespace cuda

/// The most detailed profiler of this device: CUPTI where available, else events around the ranges; null for the CPU.
/// Only one may run at a time.
std::shared_ptr<DeviceProfiler> device_profiler(Device device);

}  // namespace tern
