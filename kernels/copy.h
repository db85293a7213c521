#pragma once
// Copies, casts and fills for any strides and every pair of dtypes.

#include "tern/kernels/kernel.h"
#include "tern/kernels/random.h"

namespace tern::kernels {

/// y = x converted to y's dtype. x and y have equal shapes and any strides (a broadcast x has strides of 0).
/// Conversions are those of C++ with three exceptions: float to a 16-bit type rounds to nearest even; conversion to
/// bool is x != 0 (NaN is true); a float outside an integer type's range saturates and NaN becomes 0. Where x and y
/// overlap they must be identical views.
TERN_KERNEL(void, copy, Stream stream, ConstView x, View y);

/// y[i] = x[i] converted, for `count` pairs of contiguous floating tensors of equal sizes; every y has the same dtype.
/// CUDA converts all pairs in one launch.
TERN_KERNEL(void, copy_many, Stream stream, const ConstView* x, const View* y, int64_t count);

/// Sets every element of y to value, converted as in copy. Use fill_integer for integers beyond 2^53.
TERN_KERNEL(void, fill, Stream stream, double value, View y);
TERN_KERNEL(void, fill_integer, Stream stream, int64_t value, View y);

/// y = the matrices x [..., rows, cols] with 0 outside the triangle: where column - row > diagonal, or, unless lower,
/// where column - row < diagonal. Contiguous, of one dtype; |diagonal| <= 2^62.
TERN_KERNEL(void, triangle, Stream stream, ConstView x, int64_t diagonal, bool lower, View y);

/// y[i] = start + i * step for a contiguous one-dimensional y.
TERN_KERNEL(void, arange, Stream stream, double start, double step, View y);

/// y is contiguous and floating: uniform in [low, high), or normal by Box-Muller. Element i of the flattened y uses
/// word i % 4 of philox(key, i >> 34, 0, i / 4); normals use pairs of words (cosine for the even, sine for the odd).
TERN_KERNEL(void, fill_uniform, Stream stream, RandomKey key, double low, double high, View y);
TERN_KERNEL(void, fill_normal, Stream stream, RandomKey key, double mean, double standard_deviation, View y);

/// y is contiguous, of any dtype: low + an integer in [0, count), each equally likely up to count / 2^64. Element i is
/// the upper half of the 128-bit product of count and a 64-bit number, words 2 (i % 2) and 2 (i % 2) + 1 (the upper
/// half) of philox(key, i >> 33, 0, i / 2).
TERN_KERNEL(void, fill_random_integers, Stream stream, RandomKey key, int64_t low, uint64_t count, View y);

}  // namespace tern::kernels
