#pragma once
// Sorting. The values are differentiable as in PyTorch, any number of times.

#include "tern/core/tensor.h"

namespace tern {

// In the headers of this folder, dim: a dimension, negative from the end; a tensor without dimensions counts as one of
// one element. x may have up to 2^32 - 2 elements along dim (cumsum: any number). NaN is greater than everything else
// and equals NaN; -0 equals 0. Every result is uniquely defined, hence the same on every device.

/// values[..., j, ...] = x[..., indices[..., j, ...], ...]; indices are int64.
struct SortResult {
  Tensor values, indices;
};
/// Any dtype; both results have x's shape. Stable: equal elements keep their order, also when descending.
SortResult sort(const Tensor& x, int dim = -1, bool descending = false);
/// sort's indices; not differentiable.
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
/// The k largest (smallest) elements along dim, whose size becomes k: the first k of sort(x, dim, largest), so that of
/// equal elements the first are taken. Unless sorted, in the order of x. Any dtype. Throws Error unless 0 <= k <=
/// x.size(dim).
SortResult topk(const Tensor& x, int64_t k, int dim = -1, bool largest = true, bool sorted = true);

}  // namespace tern
