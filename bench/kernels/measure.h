#pragma once
// Times kernels on either device and reports the results.

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "tern/bench/setting.h"
#include "tern/kernels/types.h"

namespace tern::bench {

/// The minimum work of one call: each input read once, each output written once.
struct Work {
  double bytes = 0;
  double flops = 0;
  DType dtype = DType::kFloat32;  // selects the copy or matrix rate to compare with
  // GPU budgets of docs/performance.md; 0: none.
  double share_budget = 0;  // minimum share, as defined at measure()
  double rate_budget = 0;   // operations per second
};

/// Queues one call of a kernel on stream().
using Call = std::function<void()>;

/// Times a kernel. make() prepares buffers with random contents and returns a call that owns them.
///
/// CPU: Google Benchmark's loop over one call. GPU: the calls rotate over as many sets of buffers as exceed the L2
/// cache; they are captured in one CUDA graph, whose replays are timed by events; the result is the median replay time
/// divided by the number of calls.
///
/// Reported: bytes/s, FLOP/s, and `share`, the device's minimum time (the larger of bytes / copy_rate and flops /
/// matrix_rate) divided by the measured time ("840m" is 84 %). A failure is reported as the benchmark's error and the
/// other benchmarks still run.
///
/// GPU: the call first runs once there and once on the CPU with the same numbers, and every buffer is compared in norm:
/// a kernel with a wrong result gets no time.
void measure(benchmark::State& state, const Work& work, const std::function<Call()>& make);

/// Seconds of one call on a GPU, as in measure().
double device_seconds(const std::function<Call()>& make);

/// Every benchmark is registered with ->Apply(timed), which selects the device's clock.
void timed(benchmark::internal::Benchmark* bench);

/// Returns the error of the last measure(), or nothing, and clears it.
std::string take_error();

}  // namespace tern::bench
