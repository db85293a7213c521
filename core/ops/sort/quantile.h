#pragma once
// Elements by their place in sorted order (sort.h), and the most frequent ones.

#include <optional>

#include "tern/core/ops/sort/sort.h"

namespace tern {

/// The k-th smallest element along dim, k from 1; with keepdim the dimension stays with size 1. Of equal elements
/// kthvalue gives the position of the k-th in sorted order.
SortResult kthvalue(const Tensor& x, int64_t k, int dim = -1, bool keepdim = false);
/// The lower one of the middle elements along dim; NaN if there is one, or, for nanmedian, only if all are.
SortResult median(const Tensor& x, int dim, bool keepdim = false);
SortResult nanmedian(const Tensor& x, int dim, bool keepdim = false);
/// The same of all elements; NaN of no floats. The elements that equal it share the gradient.
Tensor median(const Tensor& x);
Tensor nanmedian(const Tensor& x);
/// The most frequent value along dim, the smallest of several, and the index of its last element.
SortResult mode(const Tensor& x, int dim = -1, bool keepdim = false);
/// How a quantile between two elements is made of them; of an infinite one and a finite one it is infinite. kNearest
/// rounds halves to the even position.
enum class Interpolation : uint8_t { kLinear, kLower, kHigher, kMidpoint, kNearest };
/// The elements at q (size - 1) of the sorted x along dim, without a dimension of all of x; NaN if there is one. q is a
/// number in [0, 1], or a vector of them, read by the host, which gives the result a first dimension. Floats only. Not
/// differentiable by q.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int> dim = {}, bool keepdim = false,
                Interpolation interpolation = Interpolation::kLinear);
Tensor quantile(const Tensor& x, double q, std::optional<int> dim = {}, bool keepdim = false,
                Interpolation interpolation = Interpolation::kLinear);
/// The same of the elements that are not NaN; NaN if all are.
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int> dim = {}, bool keepdim = false,
                   Interpolation interpolation = Interpolation::kLinear);
Tensor nanquantile(const Tensor& x, double q, std::optional<int> dim = {}, bool keepdim = false,
                   Interpolation interpolation = Interpolation::kLinear);

}  // namespace tern
