#pragma once
// Elements, slices and rows by integer indices.

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

}  // namespace tern
