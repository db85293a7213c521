#pragma once
// The ops that autograd calls, recorded where recording is on. core/ops defines them, as it defines Tensor's methods.

#include "tern/core/tensor.h"

namespace tern::detail {

Tensor add_gradients(const Tensor& a, const Tensor& b);
/// Sums over the dimensions in which `shape` was broadcast to the gradient's shape.
Tensor sum_gradient(const Tensor& gradient, const Shape& shape);
/// True when x has no NaN (and, depending on the anomaly mode, no infinity).
bool passes_anomaly_check(const Tensor& x);

}  // namespace tern::detail
