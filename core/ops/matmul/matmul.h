#pragma once
// Products of tensors by PyTorch's names and rules. Twice differentiable. Autocast: low precision. Integers of one
// dtype are multiplied in it and wrap around; bool is an error.

#include "tern/core/tensor.h"

namespace tern {

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

/// The dot products of vectors along dim; leading dimensions broadcast.
Tensor vecdot(const Tensor& a, const Tensor& b, int dim = -1);
/// Square matrices [..., m, m] to a power that is not negative, by repeated squaring.
Tensor matrix_power(const Tensor& x, int64_t exponent);
/// a[i] b[j] of two vectors.
Tensor outer(const Tensor& a, const Tensor& b);
/// The Kronecker product of up to four dimensions.
Tensor kron(const Tensor& a, const Tensor& b);
/// The vector product of three-dimensional vectors along dim (PyTorch's linalg.cross).
Tensor cross(const Tensor& a, const Tensor& b, int dim = -1);

}  // namespace tern
