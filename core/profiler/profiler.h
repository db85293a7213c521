#pragma once
// Profiling: time ranges of ops, modules and phases, their bytes and operations, and the device's work in them.
//
//   Profiler profiler({.roofline = measure_roofline(cpu, {float32})});  // core/ops/roofline.h
//   ... some steps ...
//   const ProfileReport report = profiler.stop();
//   std::cout << report.table();
//   report.write_trace("trace.json");                     // opens in https://ui.perfetto.dev
//
// Every op opens a range in forward and backward; so do layers and the phases of train(). A range costs one relaxed
// atomic load when nothing records it. Ranges are recorded by a Profiler and, in a build with CUDA, by NVTX tools such
// as Nsight Systems (with TERN_NVTX=1, or when the tool injects a library).

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tern/core/profiler/report.h"

namespace tern {

class DeviceProfiler;
class Tensor;

namespace detail {
struct ProfileSession;
inline constexpr uint32_t kProfilerListens = 1, kNvtxListens = 2, kEnvironmentUnread = 4;
extern std::atomic<uint32_t> profile_listeners;
}  // namespace detail

/// True while a Profiler runs; only then do ops compute their counts.
inline bool profiling() {
  return (detail::profile_listeners.load(std::memory_order_relaxed) & detail::kProfilerListens) != 0;
}

/// A time range of this thread, from construction to destruction; ranges of one thread nest.
class ProfileRange {
 public:
  /// `name` must live as long as the program: a literal.
  explicit ProfileRange(const char* name, RangeKind kind = RangeKind::kPhase) {
    if (detail::profile_listeners.load(std::memory_order_relaxed) != 0) open(name, kind);
  }
  /// For names made at run time (modules). The name is copied once, while ranges are recorded.
  explicit ProfileRange(const std::string& name, RangeKind kind = RangeKind::kModule) {
    if (detail::profile_listeners.load(std::memory_order_relaxed) != 0) open(name, kind);
  }
  ~ProfileRange() {
    if (session_ != 0 || nvtx_) close();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

  /// True when a profiler records this range.
  bool recording() const { return session_ != 0; }
  /// Counts the bytes of every input, read once, and of every output, written once. An output that shares its input's
  /// memory (a view) moves no bytes; undefined tensors and broadcast repetitions do not count.
  void count_tensors(const Tensor* const* inputs, int input_count, const Tensor* outputs, size_t output_count) const;

 private:
  void open(const char* name, RangeKind kind);
  void open(const std::string& name, RangeKind kind);
  void close();

  uint64_t session_ = 0;  // of the profiler that records the range; 0: none
  int64_t index_ = 0;     // in the thread's log
  bool nvtx_ = false;
};

/// Adds floating-point operations in the given type to the innermost open range of this thread. A multiplication and an
/// addition are two.
void profile_flops(double flops, DType dtype);
/// Sets the bytes moved by the innermost open range, for ops that do not read all of their inputs (a look-up).
void profile_bytes(double bytes);

struct ProfilerOptions {
  detail::Roofline roofline = {};
  Device device = {};                                    // its live memory is recorded
  int64_t max_ranges = 2000000;                          // further ranges are counted, not recorded
  std::shared_ptr<DeviceProfiler> device_profiler = {};  // null: only the CPU's time is recorded
  int64_t (*clock)() = nullptr;                          // returns nanoseconds; default: the steady clock
};

/// Records the ranges of all threads from construction to stop() or destruction. A second one at the same time throws
/// Error.
class Profiler {
 public:
  [[nodiscard]] explicit Profiler(const ProfilerOptions& options = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends the recording, waits for the device and reads its times. Open ranges are left out. Throws Error on a second
  /// call.
  ProfileReport stop();

 private:
  std::shared_ptr<detail::ProfileSession> session_;
};

}  // namespace tern
