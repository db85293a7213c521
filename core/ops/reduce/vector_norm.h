#pragma once
// Norms of vectors along dimensions, and what is made of them.

#include <optional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Euclidean norm of all elements or over dimensions. The gradient at norm 0 is 0, as in PyTorch. Twice differentiable.
Tensor norm(const Tensor& x);
Tensor norm(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);

/// (sum |x|^order)^(1/order) over dimensions (empty: all), as torch.linalg.vector_norm; order infinity: the largest
/// magnitude, -infinity: the smallest, 0: the number of elements that are not 0. Twice differentiable; the gradient at
/// norm 0 is 0, and for order < 1 also at elements that are 0. Throws Error when order is NaN and, for negative orders
/// and infinity, for an empty set.
Tensor vector_norm(const Tensor& x, double order = 2, const std::vector<int>& dims = {}, bool keepdim = false);

/// The norm of the matrices of two dimensions: Frobenius' norm, or of order 1 (-1) the largest (smallest) sum of the
/// magnitudes of a column, infinity (-infinity) of a row, as torch.linalg.matrix_norm; 0 of an empty matrix. Error for
/// other orders, which need singular values.
Tensor matrix_norm(const Tensor& x, std::optional<double> order = {}, int rows = -2, int cols = -1,
                   bool keepdim = false);

/// x / max(norm, eps), with the norm of this order along dim.
Tensor normalize(const Tensor& x, double order = 2, int dim = 1, double eps = 1e-12);

/// x, in which the slices along dim whose norm of this order > 0 exceeds most are scaled to it (by
/// most / (norm + 1e-7)).
Tensor renorm(const Tensor& x, double order, int dim, double most);

/// sum(a b) / (max(|a|, eps) max(|b|, eps)) along dim; a and b broadcast.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int dim = 1, double eps = 1e-8);

/// The norm of a - b + eps along the last dimension; a and b broadcast.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double order = 2, double eps = 1e-6, bool keepdim = false);

}  // namespace tern
