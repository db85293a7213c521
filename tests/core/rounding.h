#pragma once
// Rounding bounds for chains of ops: the exact result and its maximum error, element by element.

#include <algorithm>

#include "tern/tests/core/core_test.h"

namespace tern::test {

/// Half the relative distance between neighbours: the rounding error of storing a result in dtype.
inline double storage_unit(DType dtype) {
  if (dtype == float64) return 0x1p-53;
  if (dtype == float32) return 0x1p-24;
  if (dtype == bfloat16) return 0x1p-8;
  return dtype == float16 ? 0x1p-11 : 0;
}
/// storage_unit() of the type in which an op on dtype computes.
inline double compute_unit(DType dtype) { return dtype == float64 ? 0x1p-53 : 0x1p-24; }

/// Maximum error of a sum of n products, relative to the sum of their magnitudes: at most n roundings, and above 6
/// sqrt(n) with probability below 1e-7 (Higham and Mary, "A new approach to probabilistic rounding error analysis",
/// 2019).
inline double sum_error(int64_t terms, double unit) {
  const auto n = static_cast<double>(terms + 3);
  return unit * std::min(n, 6 * std::sqrt(n));
}

/// An fp64 value, and an error bound of a computation with this unit. The functions below propagate the errors of their
/// inputs and add the rounding errors of the operation.
struct Rounded {
  Tensor value, error;
  double unit = 0x1p-24;

  /// A tensor without error.
  explicit Rounded(const Tensor& x)
      : Rounded(x.detach().to(float64), zeros(x.shape(), {.dtype = float64}), compute_unit(x.dtype())) {}
  Rounded(const Tensor& value, const Tensor& error, double unit) : value(value), error(error), unit(unit) {}

  /// Applies a view to both.
  template <class View>
  Rounded map(const View& view) const {
    return {view(value), view(error), unit};
  }
  /// The value after storing it as dtype.
  Rounded stored(DType dtype) const {
    if (!is_low_precision(dtype)) return *this;
    const double smallest = dtype == float16 ? 0x1p-25 : 0x1p-134;  // half the distance between subnormals
    return {value, error + (abs(value) + error) * storage_unit(dtype) + smallest, unit};
  }
};

inline Rounded operator+(const Rounded& a, const Rounded& b) {
  const Tensor sum = a.value + b.value;
  return {sum, a.error + b.error + abs(sum) * a.unit, a.unit};
}
inline Rounded operator-(const Rounded& a, const Rounded& b) {
  const Tensor difference = a.value - b.value;
  return {difference, a.error + b.error + abs(difference) * a.unit, a.unit};
}
inline Rounded operator*(const Rounded& a, const Rounded& b) {
  const Tensor product = a.value * b.value;
  return {product, abs(a.value) * b.error + a.error * (abs(b.value) + b.error) + abs(product) * a.unit, a.unit};
}
inline Rounded operator*(const Rounded& a, double factor) {
  const Tensor product = a.value * factor;
  return {product, a.error * std::abs(factor) + abs(product) * (2 * a.unit), a.unit};
}
/// `values` = f(a), where |f'| <= slope and the implementation is wrong by at most `units` units of its result and of
/// its argument.
inline Rounded function_of(const Rounded& a, const Tensor& values, double slope, double units) {
  return {values, a.error * slope + (abs(values) + abs(a.value)) * (units * a.unit), a.unit};
}
inline Rounded gelu(const Rounded& x) { return function_of(x, gelu(x.value), 1.13, 4); }
/// The derivative of gelu; the second derivative is at most 2 phi(0).
inline Rounded gelu_slope(const Rounded& x) {
  const Tensor v = x.value, density = exp(square(v) * -0.5) * (1 / std::sqrt(2 * M_PI));
  return function_of(x, (erf(v * std::sqrt(0.5)) + 1.0) * 0.5 + v * density, 0.8, 8);
}
inline Rounded relu(const Rounded& x) { return function_of(x, relu(x.value), 1, 0); }
inline Rounded sum(const Rounded& x, int dim, bool keepdim = false) {
  const Tensor magnitude = sum(abs(x.value) + x.error, {dim}, keepdim);
  return {sum(x.value, {dim}, keepdim), sum(x.error, {dim}, keepdim) + magnitude * sum_error(x.value.size(dim), x.unit),
          x.unit};
}
/// Over the last dimension, which is kept.
inline Rounded mean(const Rounded& x) { return sum(x, -1, true) * (1 / static_cast<double>(x.value.size(-1))); }
inline Rounded matmul(const Rounded& a, const Rounded& b) {
  const Tensor x = abs(a.value), y = abs(b.value);
  const double own = sum_error(a.value.size(-1), a.unit);
  return {matmul(a.value, b.value), matmul(x, b.error) + matmul(a.error, y + b.error) + matmul(x, y) * own, a.unit};
}
/// x weight^T + bias, which may be undefined.
inline Rounded linear(const Rounded& x, const Tensor& weight, const Tensor& bias) {
  const Rounded product = matmul(x, Rounded(weight.t()));
  return bias.defined() ? product + Rounded(bias) : product;
}
/// Over the last dimension.
inline Rounded softmax(const Rounded& x) {
  const Tensor p = softmax(x.value), shifted = abs(x.value - max(x.value, {-1}, true));
  // Errors of each exponential: its argument's, that of the difference to the maximum, and a few units of exp.
  const Tensor relative = x.error + (shifted * 2 + 4) * x.unit;
  const Tensor total = relative + sum(p * relative, {-1}, true) + sum_error(p.size(-1), x.unit);
  return {p, p * expm1(total) + 0x1p-126, x.unit};
}

/// Self-attention over packed sequences of these lengths; qkv: [tokens, 3, heads, size].
inline Rounded self_attention(const Rounded& qkv, const std::vector<int64_t>& lengths) {
  Tensors values, errors;
  int64_t begin = 0;
  for (const int64_t n : lengths) {
    const auto part = [&](int64_t i) {
      return qkv.map([&](const Tensor& x) { return x.slice(0, begin, begin + n).select(1, i).transpose(0, 1); });
    };
    const auto turned = [](const Tensor& x) { return x.transpose(-2, -1); };
    const double scale = 1 / std::sqrt(static_cast<double>(qkv.value.size(3)));
    const Rounded p = softmax(matmul(part(0), part(1).map(turned)) * scale), y = matmul(p, part(2));
    values.push_back(y.value.transpose(0, 1).reshape({n, -1}));
    errors.push_back(y.error.transpose(0, 1).reshape({n, -1}));
    begin += n;
  }
  return {cat(values), cat(errors), qkv.unit};
}

/// The parts of layer normalisation over the last dimension.
struct RoundedNorm {
  Rounded rstd, hat;
  RoundedNorm(const Rounded& x, double eps) : rstd(x), hat(x) {
    const Rounded deviation = x - mean(x), variance = mean(deviation * deviation);
    const Tensor error = variance.error + (variance.value + eps) * x.unit;
    const Tensor smallest = maximum(variance.value - error, full({}, 0, {.dtype = float64}));
    const Tensor value = rsqrt(variance.value + eps);
    rstd = {value, value * (sqrt((variance.value + eps) / (smallest + eps)) - 1 + 4 * x.unit), x.unit};
    hat = deviation * rstd;
  }
  /// weight and bias may be undefined.
  Rounded result(const Tensor& weight, const Tensor& bias) const {
    const Rounded scaled = weight.defined() ? hat * Rounded(weight) : hat;
    return bias.defined() ? scaled + Rounded(bias) : scaled;
  }
};

/// Every element is within its bound, plus a tenth for second-order terms; NaN never is. `parts`: a factor of the
/// bound, when both sides were rounded.
inline void expect_within(const Tensor& got, const Rounded& want, double parts = 1) {
  ASSERT_EQ(got.shape(), want.value.shape());
  const std::vector<double> x = got.to_vector<double>(), y = want.value.to_vector<double>(),
                            bound = want.error.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(std::abs(x[i] - y[i]), 1.1 * parts * bound[i]) << "element " << i << ": " << x[i] << " for " << y[i];
}

}  // namespace tern::test
