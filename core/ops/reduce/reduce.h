#pragma once

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

// dims: the dimensions to reduce, negative from the end; empty means all. keepdim keeps them with size 1. Integers sum
// to int64. Sums run in a fixed order with fp32 (fp64) accumulation. sum and mean are twice differentiable.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
/// The same without the elements that are NaN, whose gradient is 0; of none the sum is 0 and the mean NaN.
Tensor nansum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor nanmean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
/// Equal extremes share the gradient equally (as PyTorch's amax and amin). An empty set throws Error.
Tensor max(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor min(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
/// Both at once.
struct Extremes {
  Tensor min, max;
};
Extremes aminmax(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
/// Index of the first largest (smallest) element along dim; int64.
Tensor argmax(const Tensor& x, int dim = -1, bool keepdim = false);
Tensor argmin(const Tensor& x, int dim = -1, bool keepdim = false);
/// Integers give int64, which wraps around. Twice differentiable, also at zeros.
Tensor prod(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
/// Every number except 0 is true, NaN too; of an empty set all is true, any false.
Tensor all(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor any(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
/// How many elements are not 0 (NaN is not): int64.
Tensor count_nonzero(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
/// Sums x over the dimensions in which `shape` was broadcast to x's shape.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// True when every element is finite (waits for the device).
bool all_finite(const Tensor& x);

}  // namespace tern
