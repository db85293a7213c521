#pragma once

#include "tern/core/ops/sort/sort.h"

namespace tern {

/// Cumulative sums along dim, in x's shape. Floats are added in fp64 in a fixed order and rounded to x's dtype;
/// integers and bool give int64, which wraps around.
Tensor cumsum(const Tensor& x, int dim);
/// Cumulative products, as cumsum, but computed in fp32 for 16 bits. The gradient is right at zeros too.
Tensor cumprod(const Tensor& x, int dim);
/// log(cumsum(exp(x))) without overflow, of floats.
Tensor logcumsumexp(const Tensor& x, int dim);
/// The largest (smallest) element so far along dim, or NaN from the first NaN on, and the index of the last one that
/// equals it. Any dtype.
SortResult cummax(const Tensor& x, int dim);
SortResult cummin(const Tensor& x, int dim);
/// The differences of neighbours along dim, n times; of bool whether they differ. prepend and append, of x's
/// dimensions, are joined to x first.
Tensor diff(const Tensor& x, int64_t n = 1, int dim = -1, const Tensor& prepend = {}, const Tensor& append = {});

}  // namespace tern
