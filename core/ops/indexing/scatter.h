#pragma once

#include "tern/core/tensor.h"

namespace tern {

// PyTorch's scatters: a copy of x in which elements [..., index[..., k, ...], ...] are replaced by source[..., k, ...],
// or combined with it. index is int64 with the dimensions of x and of the source, which is of x's dtype; it may be
// smaller than the source, and than x in the dimensions other than dim. If several indices name one element, the last
// along dim wins, or they are combined in their order (16-bit floats in fp32, with one rounding at the end): results
// are the same on every device. An index outside the dimension throws Error with its position. Twice differentiable by
// x and source; the gradient of an element of the source that was replaced is 0 (PyTorch gives it that of the element).
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
Tensor scatter(const Tensor& x, int dim, const Tensor& index, double value);
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
/// Without include_self, elements that an index names count only as the result's place. The mean of integers is rounded
/// down. kMax and kMin (PyTorch's amax and amin): elements equal to the result share its gradient. kProd: the second
/// derivative at factors of 0 is not defined.
enum class ScatterReduction : uint8_t { kSum, kProd, kMean, kMax, kMin };
Tensor scatter_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& source, ScatterReduction reduction,
                      bool include_self = true);

// The same for slices x[..., index[i], ...] and an index (int64 or int32) with one dimension.

/// Adds alpha times source[..., i, ...].
Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source, double alpha = 1);
/// As scatter_reduce with them.
Tensor index_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& source, ScatterReduction reduction,
                    bool include_self = true);
Tensor index_copy(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
Tensor index_fill(const Tensor& x, int dim, const Tensor& index, double value);
/// 1 at position x (int64) of a new last dimension, 0 elsewhere; -1 classes: the largest x plus one.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1);

}  // namespace tern
