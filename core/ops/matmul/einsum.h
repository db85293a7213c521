#pragma once
// Products of tensors over named dimensions, with the rules of matmul.h.

#include <string>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Sums of products over indices that an equation names ("bij,bjk->bik"), contracted from the left to the right by
/// matmul. An index is a letter; "..." stands for further dimensions, which broadcast. An index that is repeated within
/// an operand is a diagonal. Without "->" the result has "..." and then, in alphabetical order, the indices that occur
/// once. Sizes of an index must be equal or 1.
Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands);
/// Sums over dims_a[i] of a and dims_b[i] of b; or over the last `dims` dimensions of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_a, const std::vector<int>& dims_b);
Tensor tensordot(const Tensor& a, const Tensor& b, int dims = 2);

}  // namespace tern
