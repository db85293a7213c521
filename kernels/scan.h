#pragma once
// Running sums, products, recurrences and extremes within rows, and the positions that a mask selects.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// Bytes of workspace for cumulative_sum.
TERN_KERNEL(int64_t, cumulative_sum_workspace, Stream stream, int64_t rows, int64_t cols, DType dtype);
/// y[r, j] = x[r, 0] + ... + x[r, j], or with `reverse` (floats only) x[r, j] + ... + x[r, cols - 1]. Contiguous
/// [rows, cols]. Floats are added in fp64, in an order that depends only on the shape, and rounded to y's dtype, which
/// is x's; integers and bool give int64, which wraps.
TERN_KERNEL(void, cumulative_sum, Stream stream, ConstView x, bool reverse, void* workspace, View y);

/// y[r, j] = x[r, 0] * ... * x[r, j]. Contiguous [rows, cols]. Floats are multiplied in fp64 and rounded to y's dtype,
/// which is x's; integers and bool give int64, which wraps. The CPU multiplies in order; on CUDA a product of
/// neighbouring elements that exceeds fp64's range may give NaN where 0 precedes them.
TERN_KERNEL(void, cumulative_product, Stream stream, ConstView x, View y);

/// y[r, j] = a[r, j] * y[r, j - 1] + b[r, j] from y[r, 0] = b[r, 0] on, or with `reverse` y[r, j] = a[r, j + 1] *
/// y[r, j + 1] + b[r, j] from y[r, cols - 1] = b[r, cols - 1] on. Contiguous [rows, cols] of one floating dtype;
/// computed in fp64, with the limit of cumulative_product on CUDA. Each is the gradient of the other.
TERN_KERNEL(void, linear_recurrence, Stream stream, ConstView a, ConstView b, bool reverse, View y);

/// Bytes of workspace for cumulative_extreme.
TERN_KERNEL(int64_t, cumulative_extreme_workspace, Stream stream, int64_t rows, int64_t cols, DType dtype);
/// y[r, j] = the largest (smallest) of x[r, 0..j], and index[r, j] (int64) = the last column of those that equal it. A
/// NaN exceeds all other values in both. Contiguous [rows, cols]; y has x's dtype, and a bool is 0 or 1.
TERN_KERNEL(void, cumulative_extreme, Stream stream, bool largest, ConstView x, void* workspace, View y, View index);

/// Bytes of workspace for select_positions.
TERN_KERNEL(int64_t, select_positions_workspace, Stream stream, int64_t n);
/// positions (int64, one for each nonzero byte) = where the contiguous bool mask is not 0, ascending.
TERN_KERNEL(void, select_positions, Stream stream, ConstView mask, void* workspace, View positions);

/// y[i, :] (int64, contiguous [n, dims]) = the row-major indices of element positions[i] in a tensor of this shape.
TERN_KERNEL(void, unravel_positions, Stream stream, ConstView positions, int dims, const int64_t* shape, View y);

}  // namespace tern::kernels
