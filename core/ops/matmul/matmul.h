#pragma once

#include <string>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

// Products of tensors by PyTorch's names and rules. Twice differentiable. Autocast: low precision. Integers of one
// dtype are multiplied in it and wrap around; bool is an error.

/// Matrix product: [m, k] x [k, n], [k] as a row or column, leading dimensions broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
/// matmul that takes only [batch, m, k] x [batch, k, n], [m, k] x [k], and [k] x [k].
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor mv(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);
/// beta x + alpha a b, where x broadcasts to the product and is not read if beta is 0; a and b are matrices, or stacks
/// of as many matrices (baddbmm).
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);

/// Sums of products over indices that an equation names ("bij,bjk->bik"), contracted from the left to the right by
/// matmul. An index is a letter; "..." stands for further dimensions, which broadcast. An index that is repeated within
/// an operand is a diagonal. Without "->" the result has "..." and then, in alphabetical order, the indices that occur
/// once. Sizes of an index must be equal or 1.
Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands);
/// Sums over dims_a[i] of a and dims_b[i] of b; or over the last `dims` dimensions of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_a, const std::vector<int>& dims_b);
Tensor tensordot(const Tensor& a, const Tensor& b, int dims = 2);
/// The dot products of vectors along dim; leading dimensions broadcast.
Tensor vecdot(const Tensor& a, const Tensor& b, int dim = -1);
/// Square matrices [..., m, m] to a power that is not negative, by repeated squaring.
Tensor matrix_power(const Tensor& x, int64_t exponent);
/// a[i] b[j] of two vectors.
Tensor outer(const Tensor& a, const Tensor& b);
/// The Kronecker product of up to four dimensions.
Tensor kron(const Tensor& a, const Tensor& b);
/// The distances of the rows of a [..., m, d] and b [..., n, d], as vector_norm of this order >= 0: [..., m, n];
/// leading dimensions broadcast. The distances are made of the differences, without a product of the matrices, which
/// would lose digits of small ones (PyTorch takes it for more than 25 rows). The gradient at distance 0 is 0. A second
/// derivative takes memory for m n d elements.
Tensor cdist(const Tensor& a, const Tensor& b, double order = 2);
/// The distances of each row of x [n, d] from those after it: [n (n - 1) / 2].
Tensor pdist(const Tensor& x, double order = 2);
/// The vector product of three-dimensional vectors along dim (PyTorch's linalg.cross).
Tensor cross(const Tensor& a, const Tensor& b, int dim = -1);

}  // namespace tern
