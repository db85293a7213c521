#pragma once
// Copies, casts and fills over any strides and every pair of dtypes.

#include "tern/kernels/kernel.h"
#include "tern/kernels/random.h"

namespace tern::kernels {

/// y = x converted to y's dtype. x and y have equal shapes; strides are free (a broadcast x has strides of 0).
/// Conversions are C++'s, except: float to 16 bits rounds to nearest even; to bool is x != 0 (NaN is true); a float out
/// of an integer type's range saturates and NaN becomes 0. Overlapping x and y must be identical views.
TERN_KERNEL(void, copy, Stream stream, ConstView x, View y);

/// y[i] = x[i] converted, for `count` pairs of contiguous floating tensors of equal sizes, all y of one dtype: in one
/// pass where a launch is what costs.
TERN_KERNEL(void, copy_many, Stream stream, const ConstView* x, const View* y, int64_t count);

/// Sets every element of y to value (converted as in copy). Integers beyond 2^53 go through fill_integer.
TERN_KERNEL(void, fill, Stream stream, double value, View y);
TERN_KERNEL(void, fill_integer, Stream stream, int64_t value, View y);

/// y[i] = start + i * step over a contiguous one-dimensional y.
TERN_KERNEL(void, arange, Stream stream, double start, double step, View y);

/// Contiguous floating y: uniform in [low, high), or normal by Box-Muller. Element i of the flattened y takes word i %
/// 4 of philox(key, i >> 34, 0, i / 4); normals take pairs of words (cosine for the even, sine for the odd element).
TERN_KERNEL(void, fill_uniform, Stream stream, RandomKey key, double low, double high, View y);
TERN_KERNEL(void, fill_normal, Stream stream, RandomKey key, double mean, double standard_deviation, View y);

}  // namespace tern::kernels
