#pragma once

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Rows of weight [count, width] by ids (int64 or int32, any shape): result ids.shape + [width]. Ids outside [0, count)
/// throw Error with the first bad id and its position. The row padding_index gets no gradient (-1: none).
Tensor embedding(const Tensor& weight, const Tensor& ids, int64_t padding_index = -1);

/// Elements of x at index (int64 [n]) along dimension dim.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// y[..., k, ...] = x[..., index[..., k, ...], ...]; index (int64) has x's number of dimensions and, but for dim, at
/// most its sizes.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// gather, for which index and x broadcast in the dimensions other than dim; or from the flattened x.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim);
Tensor take_along_dim(const Tensor& x, const Tensor& index);
/// Elements of the flattened x at index, which may be negative (from the end), in the index's shape.
Tensor take(const Tensor& x, const Tensor& index);
/// Joined along dim, which alone may differ; the promoted dtype. Tensors of shape [0] are left out beside others of any
/// shape, as in PyTorch.
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// Of equal shapes, along a new dimension.
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

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
/// Tensor::index_put_ on a copy of x.
Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& values,
                 bool accumulate = false);
/// A copy of x in which elements of the flattened x, which the index names, are replaced by those of the source (of as
/// many elements), or increased by them; indices as in take.
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate = false);
/// x where the bool mask, broadcast to x, is false; the first elements of the source, of x's dtype, where it is true,
/// in row-major order. The size of the work depends on values: the host waits.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
/// 1 at position x (int64) of a new last dimension, 0 elsewhere; -1 classes: the largest x plus one.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1);

}  // namespace tern
