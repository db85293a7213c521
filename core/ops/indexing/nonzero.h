#pragma once
// The size of these results depends on values: on a GPU the host waits for the device, and a captured step fails.

#include "tern/core/tensor.h"

namespace tern {

/// The indices of the nonzero elements (NaN is nonzero), in row-major order: int64 [count, x.dim()].
Tensor nonzero(const Tensor& x);
/// The elements of x where the bool mask is set, in row-major order of their common broadcast shape: [count].
Tensor masked_select(const Tensor& x, const Tensor& mask);

}  // namespace tern
