#pragma once
// Peak rates of this machine's processor or GPU, measured in the same process as the benchmark.

#include "tern/bench/benchmark.h"

namespace tern::bench {

/// Bytes per second (read plus written) of a copy that moves about `bytes` bytes in all: half of them read, half
/// written, with ordinary stores. On the CPU several threads copy, and sizes are rounded to a power of two; on a GPU it
/// is the better of Tern's copy kernel for the dtype and the driver's copy, with exactly this size. Measured once per
/// size.
double copy_rate(double bytes, DType dtype);

/// Floating-point operations per second of a product of square matrices, Tern's best (detail::measure_matrix_rate).
/// Measured once; 0 for float64 and integers.
double matrix_rate(DType dtype);

/// The least time of a call on this device: the larger of bytes / copy_rate and flops / matrix_rate; 0: unknown, as in
/// a tiny run.
double min_seconds(const Work& work);

}  // namespace tern::bench
