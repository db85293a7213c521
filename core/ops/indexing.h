#pragma once

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Rows of weight [count, width] by ids (int64 or int32, any shape): result ids.shape + [width]. Ids outside [0, count)
/// throw Error with the first bad id and its position. The row padding_index gets no gradient (-1: none).
Tensor embedding(const Tensor& weight, const Tensor& ids, int64_t padding_index = -1);

/// Elements of x at index (int64 [n]) along dimension dim.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// As PyTorch's gather: index has x's number of dimensions.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

}  // namespace tern
