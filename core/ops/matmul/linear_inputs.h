#pragma once
// For ops with a linear layer in them: what its inputs must be, and their casts.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor.h"

namespace tern::detail {

/// Counts the operations of the product of [m, k] and [k, n].
inline void count_product(int64_t m, int64_t n, int64_t k, DType dtype) {
  if (profiling()) profile_flops(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), dtype);
}

/// A weight of another type than x's is autocast's: the product takes its copy, its gradient has its own type, in which
/// the product's sums are stored.
inline Tensor bias_for(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return bias.defined() && weight.dtype() != x.dtype() ? autocast_copy(bias, x.dtype()) : bias;
}

/// Casts x, and what the op does not cast itself.
inline void autocast_linear(Tensor& x, Tensor& weight, Tensor& bias) {
  check_one_device("linear", {&x, &weight, &bias});
  autocast_inputs("linear", {&x});
  for (Tensor* t : {&weight, &bias})
    if (t->defined() && (t->dtype() != float32 || !is_low_precision(x.dtype()))) autocast_inputs("linear", {t});
}

/// A layer that takes x, or something of x's dtype and another `shape`.
inline void check_linear(const Tensor& x, const Shape& shape, const Tensor& weight, const Tensor& bias) {
  TERN_CHECK(weight.dim() == 2, "linear: weight must be [out, in], got ", weight.shape());
  TERN_CHECK(shape.dims() >= 1 && shape.size(-1) == weight.size(1), "linear: x is ", shape, ", expected [..., ",
             weight.size(1), "] for weight ", weight.shape());
  TERN_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)), "linear: bias is ",
             bias.defined() ? bias.shape() : Shape(), ", expected [", weight.size(0), "]");
  const bool cast = weight.dtype() == float32 && x.dtype() == autocast_active_dtype(x.device());
  TERN_CHECK((x.dtype() == weight.dtype() || cast) && is_floating(x.dtype()), "linear: x is ", x.dtype(),
             " and weight ", weight.dtype(), "; they must be of one floating dtype", dtype_hint({x, weight}));
  TERN_CHECK(!bias.defined() || bias.dtype() == x.dtype() || bias.dtype() == float32, "linear: bias is ", bias.dtype(),
             ", expected ", x.dtype(), " or float32", dtype_hint({x, bias}));
}
inline void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(x, x.shape(), weight, bias);
}

/// All dimensions but the last as one.
inline Tensor as_rows(const Tensor& x) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.dim(); ++d) rows *= x.shape()[d];
  return x.reshape({rows, x.size(-1)}).contiguous();
}

inline Shape linear_shape(const Tensor& x, const Tensor& weight) { return x.shape().with(x.dim() - 1, weight.size(0)); }

inline Tensor contiguous_or_none(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

}  // namespace tern::detail
