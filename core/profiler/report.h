#pragma once
// The results of a Profiler: a table and a trace.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/device/device.h"

namespace tern {

/// kOp: an op's forward; kBackward: its backward, shown as "NAME backward"; kModule: a module's forward; kPhase: part
/// of a step ("forward", "data", ...).
enum class RangeKind : uint8_t { kOp, kBackward, kModule, kPhase };

namespace detail {
/// Peak rates of a machine (Williams et al., "Roofline", CACM 2009). An op needs at least the larger of bytes /
/// bytes_per_second and flops / flops_per_second; this minimum over its time is its share of the roofline.
struct Roofline {
  double bytes_per_second = 0;               // read and written; 0: unknown
  std::map<DType, double> flops_per_second;  // of matrix products; absent: unknown
};
}  // namespace detail

/// All ranges of one name and kind, over all threads.
struct ProfileRow {
  std::string name;  // with " backward"
  RangeKind kind = RangeKind::kOp;
  int64_t calls = 0;
  double total_seconds = 0;   // ranges inside one of the same name are not added again
  double self_seconds = 0;    // without inner ranges
  double device_seconds = 0;  // total_seconds on the device, or on the CPU without a device
  double device_self_seconds = 0;
  double bytes = 0;        // minimum to be moved, without inner ranges
  double flops = 0;        // without inner ranges
  double min_seconds = 0;  // by the roofline
  /// min_seconds over the device's self time; NaN when bytes and operations are unknown.
  double roofline_share() const;
};

namespace detail {

/// A time span of device work in the trace.
struct DeviceSpan {
  std::string name;                  // empty: the name of the range
  uint64_t range = 0;                // ProfileRecord::id of its range; 0: none
  int64_t begin_ns = 0, end_ns = 0;  // on the profiler's clock
  int32_t track = 0;                 // spans of one track nest or follow one another
};

/// The results of a DeviceProfiler. When `inclusive`, each range has one span that includes those of inner ranges
/// (pairs of events); otherwise the spans are kernels, each with the innermost range that launched it (CUPTI).
struct DeviceTimeline {
  std::vector<DeviceSpan> spans;
  bool inclusive = false;
  std::string source;               // "CUDA events", "CUPTI"
  std::vector<std::string> tracks;  // indexed by DeviceSpan::track
};

/// One range.
struct ProfileRecord {
  const char* name = nullptr;
  int64_t begin_ns = 0, end_ns = -1;  // end < begin: still open
  int64_t parent = -1;                // index in the thread's records
  int64_t live_bytes = 0;             // of the device's allocator at the end
  double bytes = 0, flops = 0;
  RangeKind kind = RangeKind::kOp;
  DType dtype = DType::kFloat32;  // of the flops
  bool bytes_given = false;
};

/// The ranges of one thread, ordered by begin.
struct ProfileThread {
  int64_t id = 0;  // the system's thread id
  std::string name;
  std::vector<ProfileRecord> records;
};

/// The id of a record for a DeviceProfiler; never 0.
inline uint64_t profile_range_id(size_t thread, int64_t index) {
  return (static_cast<uint64_t>(thread + 1) << 40) | static_cast<uint64_t>(index);
}

}  // namespace detail

class ProfileReport {
 public:
  /// For Profiler: records of threads from begin_ns on.
  ProfileReport(std::vector<detail::ProfileThread> threads, detail::DeviceTimeline device, bool has_device,
                const detail::Roofline& roofline, int64_t begin_ns, int64_t end_ns, int64_t dropped);

  /// Most self time first. A temporary, as in `for (const ProfileRow& row : profiler.stop().rows())`, returns a copy.
  const std::vector<ProfileRow>& rows() const& { return rows_; }
  std::vector<ProfileRow> rows() && { return std::move(rows_); }
  /// The row of this name; an empty row when there is none.
  ProfileRow row(const std::string& name) const;
  /// Floating-point operations inside the ranges of the module of this name.
  double flops_within(const std::string& module) const;
  /// From start to stop.
  double seconds() const { return seconds_; }
  int64_t dropped() const { return dropped_; }
  /// The table: ops by self time, at most `max_rows` of them (0: all), then modules and phases by total time.
  std::string table(size_t max_rows = 0) const;
  /// Writes the file in Chrome's trace event format, completely or not at all. Throws Error with path and reason.
  void write_trace(const std::string& path) const;

 private:
  void aggregate();
  // Parts of the table: before it, its columns of times, the ops, and phases and modules.
  std::string summary() const;
  std::string head(const char* what) const;
  std::string times(const ProfileRow& row) const;
  std::string op_table(size_t max_rows) const;
  std::string outer_table() const;
  std::string name_of_range(uint64_t range) const;

  std::vector<detail::ProfileThread> threads_;
  detail::DeviceTimeline device_;
  bool has_device_;
  detail::Roofline roofline_;
  int64_t begin_ns_;
  double seconds_;
  int64_t dropped_;
  std::vector<ProfileRow> rows_;
};

}  // namespace tern
