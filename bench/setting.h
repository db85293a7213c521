#pragma once
// Where the kernel benchmarks run and how large they are. From the environment, because Google Benchmark's programs
// choose their shapes before main():
//   TERN_BENCH_DEVICE=cuda   the first CUDA device (CUDA_VISIBLE_DEVICES chooses another); default: cpu
//   TERN_BENCH_TINY=1        shapes of a few elements: shows that everything runs, measures nothing

#include "tern/core/device.h"

namespace tern::bench {

/// The device asked for. Does not look whether it works.
Device device();
bool is_tiny();
/// The size itself, or at most `tiny` in a tiny run.
inline int64_t scaled(int64_t size, int64_t tiny = 32) { return is_tiny() && size > tiny ? tiny : size; }
/// Throws Error when the environment asks for a device that is unknown or does not work.
void check_setting();
/// The stream that the benchmarked kernels are queued on.
inline kernels::Stream stream() { return current_stream(device()); }

}  // namespace tern::bench
