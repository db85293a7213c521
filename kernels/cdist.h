#pragma once
// Distances of the rows of two matrices, computed from the differences without storing them.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// y[b, i, j] = (sum over m of |x[b, i, m] - z[b, j, m]|^order)^(1 / order); order infinity: the largest magnitude, 0:
/// the number of differences that are not 0. x: [batch, rows, depth], z: [batch, others, depth], y: [batch, rows,
/// others], contiguous, of one floating dtype; order >= 0. Sums are fp32, of float64 fp64. NaN gives NaN (but counts as
/// a difference in order 0).
TERN_KERNEL(void, cdist_forward, Stream stream, double order, ConstView x, ConstView z, View y);

/// Bytes of workspace for cdist_backward: up to two numbers of the compute type for each element of y.
TERN_KERNEL(int64_t, cdist_backward_workspace, Stream stream, double order, ConstView y);
/// The gradients of x and z, each where its view is not absent. At distance 0 they are 0; at order infinity the
/// differences of largest magnitude share the gradient equally; at order 0 all are 0.
TERN_KERNEL(void, cdist_backward, Stream stream, double order, ConstView x, ConstView z, ConstView y, ConstView dy,
            void* workspace, View dx, View dz);

}  // namespace tern::kernels
