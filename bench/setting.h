#pragma once
// What the command line of a benchmark program chooses for all of its rows.

#include "tern/core/device/device.h"

namespace tern::bench {

struct Setting {
  Device device = cpu;        // --device
  bool tiny = false;          // --tiny: shapes of a few elements, a smoke test
  bool check_results = true;  // --no-check: on a GPU results are not compared with the CPU's
};
/// Changed by run() before rows are registered.
Setting& setting();

inline Device device() { return setting().device; }
/// The device for buffers and kernels: device(), or the CPU while an OnCpu object exists.
Device place();
class OnCpu {
 public:
  OnCpu();
  ~OnCpu();
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;
};
inline bool is_tiny() { return setting().tiny; }
/// The size, or at most `tiny` in a tiny run.
inline int64_t scaled(int64_t size, int64_t tiny = 32) { return is_tiny() && size > tiny ? tiny : size; }
/// The stream on which benchmarked kernels are queued.
inline kernels::Stream stream() { return current_stream(place()); }

}  // namespace tern::bench
