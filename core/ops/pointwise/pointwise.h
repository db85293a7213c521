#pragma once
// Element-wise ops with broadcasting and PyTorch's type promotion, differentiable any number of times.
//
// A user-defined op is one struct (see kernels/pointwise/pointwise.h), which is twice differentiable:
// Tensor y = pointwise(LeakyRelu{0.1}, x).

#include <optional>

#include "tern/core/ops/pointwise/function.h"
#include "tern/core/tensor.h"

namespace tern {

// Unary.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);
/// With exponents 2, 3, 0.5, -0.5 and -1 the same as square, a product, sqrt, rsqrt and reciprocal, as in PyTorch.
/// Integers to a whole power, which must not be negative (Error), stay integers and wrap around; to others they give
/// float32.
Tensor pow(const Tensor& x, double exponent);
Tensor erf(const Tensor& x);
Tensor erfinv(const Tensor& x);
/// -1, 0 or 1; of NaN 0.
Tensor sign(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor trunc(const Tensor& x);
/// Halves to even.
Tensor round(const Tensor& x);
/// An infinite bound is none. The gradient is 0 at the bounds and beyond.
Tensor clamp(const Tensor& x, double low, double high);
/// The bounds broadcast, and may be undefined; where low is above high, high.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
Tensor logical_not(const Tensor& x);
/// NaN and infinities replaced, by default by 0 and the greatest and least finite numbers of x's dtype; the gradient
/// there is 0. Integers are returned as they are.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});

// Trigonometric and hyperbolic, in radians.
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);

// Activation functions. kernels/pointwise/activation.h has their formulas.
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
/// Between 0 and 6.
Tensor relu6(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// The weight has one element, or one for each channel (dimension 1 of x; of a vector dimension 0).
Tensor prelu(const Tensor& x, const Tensor& weight);
Tensor elu(const Tensor& x, double alpha = 1);
/// x, or alpha (exp(x / alpha) - 1) below 0 (Barron, arXiv:1704.07483).
Tensor celu(const Tensor& x, double alpha = 1);
Tensor selu(const Tensor& x);
/// x * Phi(x), the erf form (Hendrycks & Gimpel, arXiv:1606.08415), as in BERT and ViT.
Tensor gelu(const Tensor& x);
/// The tanh approximation of gelu.
Tensor gelu_tanh(const Tensor& x);
Tensor silu(const Tensor& x);
/// silu(gate) * up in one pass (Shazeer, arXiv:2002.05202).
Tensor swiglu(const Tensor& gate, const Tensor& up);
/// The first half of x along dim, whose size is even, times sigmoid(the second half) (Dauphin et al.,
/// arXiv:1612.08083).
Tensor glu(const Tensor& x, int dim = -1);
Tensor mish(const Tensor& x);
Tensor softplus(const Tensor& x);
Tensor logsigmoid(const Tensor& x);
Tensor softsign(const Tensor& x);
/// x above the threshold, value elsewhere.
Tensor threshold(const Tensor& x, double threshold, double value);
Tensor softshrink(const Tensor& x, double lambda = 0.5);
Tensor hardshrink(const Tensor& x, double lambda = 0.5);
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1);
Tensor hardsigmoid(const Tensor& x);
Tensor hardswish(const Tensor& x);

// Binary.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
/// Integers are exact modulo 2^64; their negative powers are rounded towards 0.
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(double base, const Tensor& exponent);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
/// a - b floor(a / b), of b's sign. Where b is 0: NaN, of integers 0.
Tensor remainder(const Tensor& a, const Tensor& b);
/// a - b trunc(a / b), of a's sign. Where b is 0: NaN, of integers 0.
Tensor fmod(const Tensor& a, const Tensor& b);
/// floor(a / b) of the exact quotient, in the promoted dtype (Python's //). Where b is 0: a / b, of integers 0. The
/// gradients are 0.
Tensor floor_divide(const Tensor& a, const Tensor& b);
/// The angle of the point (b, a), in [-pi, pi].
Tensor atan2(const Tensor& a, const Tensor& b);
/// log(exp(a) + exp(b)) without overflow.
Tensor logaddexp(const Tensor& a, const Tensor& b);
/// sqrt(a^2 + b^2) without overflow; the gradient at (0, 0) is NaN, as in PyTorch.
Tensor hypot(const Tensor& a, const Tensor& b);
/// |a| with b's sign, also that of -0. Of NaN +.
Tensor copysign(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);

// With a C++ scalar.
Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
Tensor remainder(const Tensor& a, double b);
Tensor fmod(const Tensor& a, double b);
Tensor floor_divide(const Tensor& a, double b);
/// The scalar is not rounded to a's 16 bits.
Tensor eq(const Tensor& a, double b);
Tensor ne(const Tensor& a, double b);
Tensor lt(const Tensor& a, double b);
Tensor le(const Tensor& a, double b);
Tensor gt(const Tensor& a, double b);
Tensor ge(const Tensor& a, double b);

/// a where condition (bool) is true, b elsewhere.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
/// float32.
Tensor where(const Tensor& condition, double a, double b);
/// value where mask (bool) is true, x elsewhere; of x's dtype.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
/// x + value a b, and x + value a / b.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
/// |a - b| <= atol + rtol |b|: bool. Equal infinities are close, NaN only with equal_nan to NaN. allclose: of all
/// elements, which the host waits for.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
[[nodiscard]] bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                            bool equal_nan = false);
/// a + weight (b - a).
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor lerp(const Tensor& a, const Tensor& b, double weight);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
inline Tensor operator-(double a, const Tensor& b) { return add(neg(b), a); }
inline Tensor operator/(double a, const Tensor& b) { return mul(reciprocal(b), a); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, double b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, double b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, double b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, double b) { return ge(a, b); }
inline Tensor operator==(const Tensor& a, double b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, double b) { return ne(a, b); }
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator%(const Tensor& a, double b) { return remainder(a, b); }

// In place, recorded as the members are.
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a.div_(b); }
inline Tensor& operator+=(Tensor& a, double b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, double b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, double b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, double b) { return a.div_(b); }

namespace detail {
template <class T>
concept TemporaryTensor = std::is_same_v<T, Tensor>;  // of T&&
/// Throws Error where nothing but x holds its memory.
Tensor& shared_view(Tensor& x);
}  // namespace detail

// Of a view that no variable holds: x[0] += y. Of a copy, as x.index({mask}) is, the result would be lost: that is an
// Error.
template <detail::TemporaryTensor T, class Other>
void operator+=(T&& a, const Other& b) {
  detail::shared_view(a) += b;
}
template <detail::TemporaryTensor T, class Other>
void operator-=(T&& a, const Other& b) {
  detail::shared_view(a) -= b;
}
template <detail::TemporaryTensor T, class Other>
void operator*=(T&& a, const Other& b) {
  detail::shared_view(a) *= b;
}
template <detail::TemporaryTensor T, class Other>
void operator/=(T&& a, const Other& b) {
  detail::shared_view(a) /= b;
}

/// The promoted dtype of a and b: tensors with dimensions override 0-dimensional ones; fp16 and bf16 give fp32.
DType promote(const Tensor& a, const Tensor& b);
DType promote(DType a, DType b);
/// The promoted dtype of a tensor with dimensions and a 0-dimensional one, which counts only when it is of a higher
/// kind (bool, integer, float).
DType promote_dimensioned(DType dimensioned, DType scalar);

}  // namespace tern
