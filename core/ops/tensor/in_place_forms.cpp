// The in-place forms of ops that return a tensor.

#include <cmath>

#include "tern/core/ops/indexing/index.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/core/ops/tensor/in_place.h"

namespace tern {

using detail::in_place;
using detail::replace_contents;

Tensor& Tensor::neg_() { return in_place("neg_", *this, kernels::Neg{}); }
Tensor& Tensor::abs_() { return in_place("abs_", *this, kernels::Abs{}); }
Tensor& Tensor::exp_() { return in_place("exp_", *this, kernels::Exp{}); }
Tensor& Tensor::expm1_() { return in_place("expm1_", *this, kernels::Expm1{}); }
Tensor& Tensor::log1p_() { return in_place("log1p_", *this, kernels::Log1p{}); }
Tensor& Tensor::erf_() { return in_place("erf_", *this, kernels::Erf{}); }
Tensor& Tensor::log_() { return in_place("log_", *this, kernels::Log{}); }
Tensor& Tensor::sqrt_() { return in_place("sqrt_", *this, kernels::Sqrt{}); }
Tensor& Tensor::rsqrt_() { return in_place("rsqrt_", *this, kernels::Rsqrt{}); }
Tensor& Tensor::square_() { return in_place("square_", *this, kernels::Square{}); }
Tensor& Tensor::reciprocal_() { return in_place("reciprocal_", *this, kernels::Reciprocal{}); }
Tensor& Tensor::sign_() { return in_place("sign_", *this, kernels::Sign{}); }
Tensor& Tensor::floor_() { return in_place("floor_", *this, kernels::Floor{}); }
Tensor& Tensor::ceil_() { return in_place("ceil_", *this, kernels::Ceil{}); }
Tensor& Tensor::trunc_() { return in_place("trunc_", *this, kernels::Trunc{}); }
Tensor& Tensor::round_() { return in_place("round_", *this, kernels::Round{}); }
Tensor& Tensor::sin_() { return in_place("sin_", *this, kernels::Sin{}); }
Tensor& Tensor::cos_() { return in_place("cos_", *this, kernels::Cos{}); }
Tensor& Tensor::sigmoid_() { return in_place("sigmoid_", *this, kernels::Sigmoid{}); }
Tensor& Tensor::tanh_() { return in_place("tanh_", *this, kernels::Tanh{}); }
Tensor& Tensor::relu_() { return in_place("relu_", *this, kernels::Relu{}); }
Tensor& Tensor::leaky_relu_(double slope) { return in_place("leaky_relu_", *this, kernels::LeakyRelu{slope}); }
Tensor& Tensor::pow_(double exponent) {
  const bool whole = std::abs(exponent) <= 0x1p62 && exponent == std::floor(exponent);
  if (is_floating(dtype()) || !whole) return in_place("pow_", *this, kernels::PowScalar{exponent});
  TERN_CHECK(exponent >= 0, "pow_: a power ", exponent, " of integers is a fraction; convert them with to(float32)");
  return pow_(full({}, exponent, {DType::kInt64, device()}));
}
Tensor& Tensor::clamp_(double low, double high) {
  TERN_CHECK(low <= high, "clamp_: the lower bound ", low, " is above the upper bound ", high);
  return in_place("clamp_", *this, kernels::Clamp{low, high});
}

Tensor& Tensor::nan_to_num_(double nan, std::optional<double> posinf, std::optional<double> neginf) {
  return replace_contents("nan_to_num_", *this, {},
                          [=](const Tensor& x) { return nan_to_num(x, nan, posinf, neginf); });
}
Tensor& Tensor::lerp_(const Tensor& end, double weight) {
  return replace_contents("lerp_", *this, {end}, [&](const Tensor& x) { return lerp(x, end, weight); });
}
Tensor& Tensor::lerp_(const Tensor& end, const Tensor& weight) {
  return replace_contents("lerp_", *this, {end, weight}, [&](const Tensor& x) { return lerp(x, end, weight); });
}
Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, double value) {
  return replace_contents("addcmul_", *this, {a, b}, [&](const Tensor& x) { return addcmul(x, a, b, value); });
}
Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, double value) {
  return replace_contents("addcdiv_", *this, {a, b}, [&](const Tensor& x) { return addcdiv(x, a, b, value); });
}
Tensor& Tensor::clamp_(const Tensor& low, const Tensor& high) {
  return replace_contents("clamp_", *this, {low, high}, [&](const Tensor& x) { return clamp(x, low, high); });
}
Tensor& Tensor::floor_divide_(const Tensor& other) {
  return replace_contents("floor_divide_", *this, {other}, [&](const Tensor& x) { return floor_divide(x, other); });
}
Tensor& Tensor::scatter_reduce_(int dim, const Tensor& index, const Tensor& source, ScatterReduction reduction,
                                bool include_self) {
  return replace_contents("scatter_reduce_", *this, {source}, [&](const Tensor& x) {
    return scatter_reduce(x, dim, index, source, reduction, include_self);
  });
}
Tensor& Tensor::put_(const Tensor& index, const Tensor& source, bool accumulate) {
  return replace_contents("put_", *this, {source}, [&](const Tensor& x) { return put(x, index, source, accumulate); });
}
Tensor& Tensor::masked_scatter_(const Tensor& mask, const Tensor& source) {
  return replace_contents("masked_scatter_", *this, {source},
                          [&](const Tensor& x) { return masked_scatter(x, mask, source); });
}
Tensor& Tensor::tril_(int64_t diagonal) {
  return replace_contents("tril_", *this, {}, [&](const Tensor& x) { return tril(x, diagonal); });
}
Tensor& Tensor::triu_(int64_t diagonal) {
  return replace_contents("triu_", *this, {}, [&](const Tensor& x) { return triu(x, diagonal); });
}
Tensor& Tensor::cumsum_(int dim) {
  return replace_contents("cumsum_", *this, {}, [&](const Tensor& x) { return cumsum(x, dim); });
}
Tensor& Tensor::cumprod_(int dim) {
  return replace_contents("cumprod_", *this, {}, [&](const Tensor& x) { return cumprod(x, dim); });
}

}  // namespace tern
