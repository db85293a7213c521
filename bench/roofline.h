#pragma once
// What this machine can do at best, measured in the same process as the benchmark, and a kernel's share of it.

#include <benchmark/benchmark.h>

#include "tern/kernels/types.h"

namespace tern::bench {

/// Bytes per second (read plus written) of a plain multi-threaded copy that moves about `bytes` bytes in all: half of
/// them read, half written, with ordinary stores. Measured once per power of two.
double copy_rate(double bytes);

/// Floating-point operations per second of oneDNN's product of two 2048 x 2048 random matrices of float32 or bfloat16.
/// Measured once; 0 for other dtypes and where this machine has none.
double matrix_rate(DType dtype);

/// Adds what one iteration of the benchmark did to its line: bytes/s, FLOP/s and `share`, the time that the machine
/// needs at least (the larger of bytes / copy_rate and operations / matrix_rate) over the time it took. Count each
/// input read once and each output written once. Either number may be 0. Register the benchmark with UseRealTime().
/// Google Benchmark prints shares with a suffix of its own: "0.84/s" is 84 %, "840m/s" too.
void report(benchmark::State& state, double bytes, double operations, DType dtype = DType::kFloat32);

}  // namespace tern::bench
