#pragma once
// Tensors joined to one.

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Joined along dim, which alone may differ; the promoted dtype. Tensors of shape [0] are left out beside others of any
/// shape, as in PyTorch.
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// Tensors of equal shapes, joined along a new dimension.
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);
/// cat along dimension 1 (of vectors along 0); cat along dimension 0, of vectors as rows.
Tensor hstack(const std::vector<Tensor>& tensors);
Tensor vstack(const std::vector<Tensor>& tensors);
/// cat along dimension 2, of matrices as [rows, cols, 1] and of vectors as [1, size, 1]; cat along dimension 1, of
/// vectors as columns.
Tensor dstack(const std::vector<Tensor>& tensors);
Tensor column_stack(const std::vector<Tensor>& tensors);
/// Matrices along the diagonal of a matrix of zeros; a vector counts as a row. One dtype.
Tensor block_diag(const std::vector<Tensor>& tensors);

}  // namespace tern
