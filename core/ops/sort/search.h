#pragma once

#include "tern/core/tensor.h"

namespace tern {

/// For every value the number of elements of `sorted` (ascending) that are less than it, or with `right` not greater:
/// int64. One dtype. sorted is a vector, or has the values' dimensions before the last.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
/// searchsorted(boundaries, values, right).
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right = false);
/// Whether each element of x equals one of the candidates (NaN equals none): bool.
Tensor isin(const Tensor& x, const Tensor& candidates, bool invert = false);

}  // namespace tern
