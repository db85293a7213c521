#pragma once

#include "tern/core/tensor.h"

namespace tern {

/// The distances of the rows of a [..., m, d] and b [..., n, d], as vector_norm of this order >= 0: [..., m, n];
/// leading dimensions broadcast. The distances are made of the differences, without a product of the matrices, which
/// would lose digits of small ones (PyTorch takes it for more than 25 rows). The gradient at distance 0 is 0. A second
/// derivative takes memory for m n d elements.
Tensor cdist(const Tensor& a, const Tensor& b, double order = 2);
/// The distances of each row of x [n, d] from those after it: [n (n - 1) / 2].
Tensor pdist(const Tensor& x, double order = 2);

}  // namespace tern
