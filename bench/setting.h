#pragma once
// Device and size of the kernel benchmarks. They come from the environment, because Google Benchmark's programs choose
// their shapes before main():
//   TERN_BENCH_DEVICE=cuda   the first CUDA device (CUDA_VISIBLE_DEVICES chooses another); default: cpu
//   TERN_BENCH_TINY=1        shapes of a few elements: a smoke test, not a measurement
//   TERN_BENCH_CHECK=0       on CUDA: the first results of each kernel are not compared with the CPU's

#include "tern/core/device.h"

namespace tern::bench {

/// The requested device; not checked for availability.
Device device();
/// The device for buffers and kernels: device(), or the CPU while an OnCpu object exists.
Device place();
class OnCpu {
 public:
  OnCpu();
  ~OnCpu();
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;
};
bool is_tiny();
/// Whether results are compared with the CPU's.
bool checks_results();
/// The size, or at most `tiny` in a tiny run.
inline int64_t scaled(int64_t size, int64_t tiny = 32) { return is_tiny() && size > tiny ? tiny : size; }
/// Throws Error if the environment requests an unknown or unavailable device.
void check_setting();
/// The stream on which benchmarked kernels are queued.
inline kernels::Stream stream() { return current_stream(place()); }

}  // namespace tern::bench
