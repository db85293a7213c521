#pragma once
// How a kernel is timed on either device, and what is reported of it.

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "tern/bench/setting.h"
#include "tern/kernels/types.h"

namespace tern::bench {

/// What one call must do at least: each input read once, each output written once.
struct Work {
  double bytes = 0;
  double flops = 0;
  DType dtype = DType::kFloat32;  // of the products or of the copy to compare with
  // On a GPU, by docs/performance.md; 0: none.
  double share_budget = 0;  // of the time that the device needs at least
  double rate_budget = 0;   // operations per second
};

/// Queues one call of a kernel on stream().
using Call = std::function<void()>;

/// Times a kernel. make() prepares buffers with random contents and returns a call that owns them.
///
/// CPU: Google Benchmark's loop over one call. GPU: as many sets of buffers as do not fit into the L2 cache take turns;
/// their calls are recorded as one CUDA graph, whose replays are timed by events; the result is the median replay over
/// its number of calls.
///
/// Reported: bytes/s, FLOP/s, and `share`, the time that the device needs at least (the larger of bytes / copy_rate and
/// flops / matrix_rate) over the time taken ("840m" is 84 %). A failure is reported as the benchmark's error and the
/// others go on.
///
/// GPU: before, the call is run once there and once on the CPU with the same numbers, and every buffer is compared, in
/// norm: a kernel that computes something else has no time.
void measure(benchmark::State& state, const Work& work, const std::function<Call()>& make);

/// Seconds of one call on a GPU, as in measure().
double device_seconds(const std::function<Call()>& make);

/// Every benchmark is registered with ->Apply(timed): the clock of the device.
void timed(benchmark::internal::Benchmark* bench);

/// The error of the last measure(), or nothing; forgets it.
std::string take_error();

}  // namespace tern::bench
