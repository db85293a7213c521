#pragma once
// Peak rates of this machine's processor or GPU, measured in the same process as the benchmark.

#include "tern/bench/setting.h"

namespace tern::bench {

/// Bytes per second (read plus written) of a copy that moves about `bytes` bytes in all: half of them read, half
/// written, with ordinary stores. On the CPU several threads copy, and sizes are rounded to a power of two; on a GPU it
/// is the better of Tern's copy kernel for the dtype and the driver's copy, with exactly this size. Measured once per
/// size.
double copy_rate(double bytes, DType dtype);

/// Floating-point operations per second of the product of two random square matrices: on the CPU oneDNN's at 2048 x
/// 2048 (float32, bfloat16), on a GPU kernels::gemm's at 8192 x 8192 (16-bit types too). Measured once; 0 for other
/// dtypes and those that this machine does not support.
double matrix_rate(DType dtype);

}  // namespace tern::bench
