#pragma once
// Where the kernel benchmarks run and how large they are. From the environment, because Google Benchmark's programs
// choose their shapes before main():
//   TERN_BENCH_DEVICE=cuda   the first CUDA device (CUDA_VISIBLE_DEVICES chooses another); default: cpu
//   TERN_BENCH_TINY=1        shapes of a few elements: shows that everything runs, measures nothing
//   TERN_BENCH_CHECK=0       on CUDA: the first results of each kernel are not compared with the CPU's

#include "tern/core/device.h"

namespace tern::bench {

/// The device asked for. Does not look whether it works.
Device device();
/// Where buffers are made and kernels are queued: device(), or the CPU as long as an OnCpu lives.
Device place();
class OnCpu {
 public:
  OnCpu();
  ~OnCpu();
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;
};
bool is_tiny();
/// Whether results are to be compared with the CPU's.
bool checks_results();
/// The size itself, or at most `tiny` in a tiny run.
inline int64_t scaled(int64_t size, int64_t tiny = 32) { return is_tiny() && size > tiny ? tiny : size; }
/// Throws Error when the environment asks for a device that is unknown or does not work.
void check_setting();
/// The stream that the benchmarked kernels are queued on.
inline kernels::Stream stream() { return current_stream(place()); }

}  // namespace tern::bench
