#pragma once
// Elements by lists of indices, as Tensor::index, or of the flattened tensor, and their replacement.

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Elements of the flattened x at index, which may be negative (from the end), in the index's shape.
Tensor take(const Tensor& x, const Tensor& index);
/// A copy of x in which elements of the flattened x, which the index names, are replaced by those of the source (of as
/// many elements), or increased by them; indices as in take.
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate = false);
/// Tensor::index_put_ on a copy of x.
Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& values,
                 bool accumulate = false);
/// x where the bool mask, broadcast to x, is false; the first elements of the source, of x's dtype, where it is true,
/// in row-major order. The size of the work depends on values: the host waits.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);

}  // namespace tern
