#pragma once
// The size of these results depends on values: on a GPU the host waits for the device, and a captured step fails.

#include "tern/core/tensor.h"

namespace tern {

/// values[inverse] is x; counts[i] is how often values[i] occurs. inverse (of x's shape) and counts are int64.
struct UniqueResult {
  Tensor values, inverse, counts;
};
/// The different elements of the flattened x, ascending; every NaN is different. Not differentiable.
UniqueResult unique(const Tensor& x);
/// The same for runs of equal elements, in the order of x.
UniqueResult unique_consecutive(const Tensor& x);
/// The same for slices along dim: values are the different slices, in lexicographic order or, for unique_consecutive,
/// the first of each run, inverse and counts are vectors. unique sorts once for each element of a slice.
UniqueResult unique(const Tensor& x, int dim);
UniqueResult unique_consecutive(const Tensor& x, int dim);

}  // namespace tern
