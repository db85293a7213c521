#include "tern/core/ops/pointwise/pointwise.h"

#include <cmath>
#include <limits>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/function.h"
#include "tern/core/ops/reduce/reduce.h"

namespace tern {

Tensor& detail::shared_view(Tensor& x) {
  TERN_CHECK(x.shared_impl().use_count() > 1 || x.storage().use_count() > 1, "in-place operator: ", x.describe(),
             " is a copy that nothing else holds, so that the result would be lost; for x.index({mask}) += y write "
             "x.index_put_({mask}, y, true)");
  return x;
}

namespace op = kernels;

Tensor neg(const Tensor& x) { return pointwise(op::Neg{}, x); }
Tensor abs(const Tensor& x) { return pointwise(op::Abs{}, x); }
Tensor exp(const Tensor& x) { return pointwise(op::Exp{}, x); }
Tensor expm1(const Tensor& x) { return pointwise(op::Expm1{}, x); }
Tensor log(const Tensor& x) { return pointwise(op::Log{}, x); }
Tensor log1p(const Tensor& x) { return pointwise(op::Log1p{}, x); }
Tensor sqrt(const Tensor& x) { return pointwise(op::Sqrt{}, x); }
Tensor rsqrt(const Tensor& x) { return pointwise(op::Rsqrt{}, x); }
Tensor square(const Tensor& x) { return pointwise(op::Square{}, x.dtype() == DType::kBool ? x.to(int64) : x); }
Tensor exp2(const Tensor& x) { return pointwise(op::Exp2{}, x); }
Tensor log2(const Tensor& x) { return pointwise(op::Log2{}, x); }
Tensor log10(const Tensor& x) { return pointwise(op::Log10{}, x); }
Tensor sign(const Tensor& x) { return pointwise(op::Sign{}, x); }
Tensor ceil(const Tensor& x) { return pointwise(op::Ceil{}, x); }
Tensor trunc(const Tensor& x) { return pointwise(op::Trunc{}, x); }
Tensor round(const Tensor& x) { return pointwise(op::Round{}, x); }
Tensor tan(const Tensor& x) { return pointwise(op::Tan{}, x); }
Tensor asin(const Tensor& x) { return pointwise(op::Asin{}, x); }
Tensor acos(const Tensor& x) { return pointwise(op::Acos{}, x); }
Tensor atan(const Tensor& x) { return pointwise(op::Atan{}, x); }
Tensor sinh(const Tensor& x) { return pointwise(op::Sinh{}, x); }
Tensor cosh(const Tensor& x) { return pointwise(op::Cosh{}, x); }
Tensor asinh(const Tensor& x) { return pointwise(op::Asinh{}, x); }
Tensor acosh(const Tensor& x) { return pointwise(op::Acosh{}, x); }
Tensor atanh(const Tensor& x) { return pointwise(op::Atanh{}, x); }
Tensor relu6(const Tensor& x) { return hardtanh(x, 0, 6); }
Tensor elu(const Tensor& x, double alpha) { return pointwise(op::Elu{alpha}, x); }
Tensor celu(const Tensor& x, double alpha) {
  TERN_CHECK(alpha != 0, "celu: alpha must not be 0");
  return pointwise(op::Elu{alpha, 1 / alpha}, x);
}
Tensor selu(const Tensor& x) { return pointwise(op::Selu{}, x); }
Tensor mish(const Tensor& x) { return pointwise(op::Mish{}, x); }
Tensor logsigmoid(const Tensor& x) { return pointwise(op::LogSigmoid{}, x); }
Tensor softsign(const Tensor& x) { return pointwise(op::Softsign{}, x); }
Tensor hardtanh(const Tensor& x, double low, double high) {
  TERN_CHECK(low <= high, "hardtanh: low must not be above high, got ", low, " and ", high);
  op::Hardtanh hardtanh;
  hardtanh.low = low;
  hardtanh.high = high;
  return pointwise(hardtanh, x);
}
Tensor hardsigmoid(const Tensor& x) { return pointwise(op::HardSigmoid{}, x); }
Tensor hardswish(const Tensor& x) { return pointwise(op::HardSwish{}, x); }
Tensor isinf(const Tensor& x) { return eq(abs(x), std::numeric_limits<double>::infinity()); }

namespace {
void check_lambda(const char* name, double lambda) {
  TERN_CHECK(lambda >= 0, name, ": lambda must not be negative, got ", lambda);
}
}  // namespace
Tensor softshrink(const Tensor& x, double lambda) {
  check_lambda("softshrink", lambda);
  return pointwise(op::Softshrink{lambda}, x);
}
Tensor hardshrink(const Tensor& x, double lambda) {
  check_lambda("hardshrink", lambda);
  return pointwise(op::Hardshrink{lambda}, x);
}

Tensor prelu(const Tensor& x, const Tensor& weight) {
  const int64_t channels = x.dim() > 1 ? x.size(1) : x.dim() == 1 ? x.size(0) : 1;
  TERN_CHECK(weight.numel() == 1 || weight.numel() == channels, "prelu: the weight must have one element or ", channels,
             ", one for each channel of ", x.shape(), ", got ", weight.shape());
  if (weight.numel() == 1 || x.dim() < 2) return pointwise(op::PRelu{}, x, weight.reshape({weight.numel()}));
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = channels;
  return pointwise(op::PRelu{}, x, weight.reshape(Shape(shape)));
}
Tensor reciprocal(const Tensor& x) { return pointwise(op::Reciprocal{}, x); }
Tensor sigmoid(const Tensor& x) { return pointwise(op::Sigmoid{}, x); }
Tensor tanh(const Tensor& x) { return pointwise(op::Tanh{}, x); }
Tensor sin(const Tensor& x) { return pointwise(op::Sin{}, x); }
Tensor cos(const Tensor& x) { return pointwise(op::Cos{}, x); }
Tensor erfinv(const Tensor& x) { return pointwise(op::Erfinv{}, x); }
Tensor erf(const Tensor& x) { return pointwise(op::Erf{}, x); }
Tensor floor(const Tensor& x) { return pointwise(op::Floor{}, x); }
Tensor relu(const Tensor& x) { return pointwise(op::Relu{}, x); }
Tensor leaky_relu(const Tensor& x, double slope) { return pointwise(op::LeakyRelu{slope}, x); }
Tensor gelu(const Tensor& x) { return pointwise(op::Gelu{}, x); }
Tensor gelu_tanh(const Tensor& x) { return pointwise(op::GeluTanh{}, x); }
Tensor silu(const Tensor& x) { return pointwise(op::Silu{}, x); }
Tensor swiglu(const Tensor& gate, const Tensor& up) { return pointwise(op::Swiglu{}, gate, up); }
Tensor glu(const Tensor& x, int dim) {
  TERN_CHECK(x.size(dim) % 2 == 0, "glu: dimension ", dim, " must be even, got ", x.shape());
  const std::vector<Tensor> halves = x.chunk(2, dim);
  return halves[0] * sigmoid(halves[1]);
}
Tensor softplus(const Tensor& x) { return pointwise(op::Softplus{}, x); }
Tensor isnan(const Tensor& x) { return pointwise(op::IsNan{}, x); }
Tensor isfinite(const Tensor& x) { return pointwise(op::IsFinite{}, x); }
Tensor logical_not(const Tensor& x) { return pointwise(op::LogicalNot{}, x); }

Tensor clamp(const Tensor& x, double low, double high) {
  TERN_CHECK(low <= high, "clamp: the lower bound ", low, " is above the upper bound ", high);
  return pointwise(op::Clamp{low, high}, x);
}

Tensor add(const Tensor& a, const Tensor& b) { return pointwise(op::Add{}, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return pointwise(op::Sub{}, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return pointwise(op::Mul{}, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return pointwise(op::Div{}, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return pointwise(op::Pow{}, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return pointwise(op::Maximum{}, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return pointwise(op::Minimum{}, a, b); }
Tensor remainder(const Tensor& a, const Tensor& b) { return pointwise(op::Remainder{}, a, b); }
Tensor fmod(const Tensor& a, const Tensor& b) { return pointwise(op::Fmod{}, a, b); }
Tensor floor_divide(const Tensor& a, const Tensor& b) { return pointwise(op::FloorDivide{}, a, b); }
Tensor atan2(const Tensor& a, const Tensor& b) { return pointwise(op::Atan2{}, a, b); }
Tensor logaddexp(const Tensor& a, const Tensor& b) { return pointwise(op::LogAddExp{}, a, b); }
Tensor hypot(const Tensor& a, const Tensor& b) { return pointwise(op::Hypot{}, a, b); }
Tensor copysign(const Tensor& a, const Tensor& b) { return pointwise(op::Copysign{}, a, b); }
Tensor eq(const Tensor& a, const Tensor& b) { return pointwise(op::Equal{}, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return pointwise(op::NotEqual{}, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return pointwise(op::Less{}, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return pointwise(op::LessEqual{}, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return pointwise(op::Greater{}, a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return pointwise(op::GreaterEqual{}, a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return pointwise(op::LogicalAnd{}, a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return pointwise(op::LogicalOr{}, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return pointwise(op::LogicalXor{}, a, b); }

namespace {
/// As in PyTorch, bool and a C++ scalar promote to int64, an integer tensor and a scalar beyond int64 to float32.
Tensor for_scalar(const Tensor& a, double value) {
  if (is_floating(a.dtype())) return a;
  if (value != std::floor(value) || std::abs(value) > 0x1p62) return a.to(float32);
  return a.dtype() == DType::kBool ? a.to(int64) : a;
}
}  // namespace

Tensor add(const Tensor& a, double b) { return pointwise(op::AddScalar{b}, for_scalar(a, b)); }
Tensor sub(const Tensor& a, double b) { return pointwise(op::AddScalar{-b}, for_scalar(a, b)); }
Tensor mul(const Tensor& a, double b) { return pointwise(op::MulScalar{b}, for_scalar(a, b)); }

namespace {
/// The scalar as a 0-dimensional tensor for an op with a: fp32 or fp64 where a is floating, because 16 bits would round
/// the scalar; otherwise int64 or, unless it is whole, fp32. By the rules of promotion it changes the dtype of an a
/// with dimensions only where a is of a lower kind of number.
Tensor scalar_beside(const Tensor& a, double value) {
  const bool whole = value == std::floor(value) && std::abs(value) <= 0x1p62;
  DType dtype = whole ? DType::kInt64 : DType::kFloat32;
  if (is_floating(a.dtype())) dtype = a.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  return full({}, value, {dtype, a.device()});
}

/// The result of an op of tensors that promote to `dtype` and of a scalar that is wider: a scalar of the same kind of
/// number leaves the dtype, also beside a tensor without dimensions.
Tensor without_scalar_width(const Tensor& result, DType dtype) {
  const bool wider_float = is_low_precision(dtype) && result.dtype() == DType::kFloat32;
  const bool wider_integer = !is_floating(dtype) && dtype != DType::kBool && !is_floating(result.dtype());
  return wider_float || wider_integer ? result.to(dtype) : result;
}
}  // namespace

namespace {
double largest_finite(DType dtype) {
  return dtype == DType::kFloat64   ? std::numeric_limits<double>::max()
         : dtype == DType::kFloat32 ? std::numeric_limits<float>::max()
         : dtype == DType::kFloat16 ? 65504
                                    : 0x1.fep127;
}
}  // namespace

Tensor div(const Tensor& a, double b) {
  return without_scalar_width(div(is_floating(a.dtype()) ? a : a.to(float32), scalar_beside(a, b)), a.dtype());
}
Tensor pow(const Tensor& x, double exponent) {
  if (is_floating(x.dtype())) {
    if (exponent == 2) return square(x);
    if (exponent == 3) return pointwise(op::Cube{}, x);
    if (exponent == 0.5) return sqrt(x);
    if (exponent == -0.5) return rsqrt(x);
    if (exponent == -1) return reciprocal(x);
    return pointwise(op::PowScalar{exponent}, x);
  }
  const Tensor scalar = is_floating(x.dtype()) ? Tensor() : scalar_beside(x, exponent);
  if (!scalar.defined() || is_floating(scalar.dtype())) return pointwise(op::PowScalar{exponent}, x);
  TERN_CHECK(exponent >= 0, "pow: a power ", exponent, " of integers is a fraction; convert them with to(float32)");
  return without_scalar_width(pow(x, scalar), x.dtype());
}
Tensor remainder(const Tensor& a, double b) {
  return without_scalar_width(remainder(a, scalar_beside(a, b)), a.dtype());
}
Tensor fmod(const Tensor& a, double b) { return without_scalar_width(fmod(a, scalar_beside(a, b)), a.dtype()); }
Tensor floor_divide(const Tensor& a, double b) {
  return without_scalar_width(floor_divide(a, scalar_beside(a, b)), a.dtype());
}
Tensor eq(const Tensor& a, double b) { return eq(a, scalar_beside(a, b)); }
Tensor ne(const Tensor& a, double b) { return ne(a, scalar_beside(a, b)); }
Tensor lt(const Tensor& a, double b) { return lt(a, scalar_beside(a, b)); }
Tensor le(const Tensor& a, double b) { return le(a, scalar_beside(a, b)); }
Tensor gt(const Tensor& a, double b) { return gt(a, scalar_beside(a, b)); }
Tensor ge(const Tensor& a, double b) { return ge(a, scalar_beside(a, b)); }
Tensor where(const Tensor& condition, const Tensor& a, double b) {
  return without_scalar_width(where(condition, a, scalar_beside(a, b)), a.dtype());
}
Tensor where(const Tensor& condition, double a, const Tensor& b) {
  return without_scalar_width(where(condition, scalar_beside(b, a), b), b.dtype());
}
Tensor where(const Tensor& condition, double a, double b) {
  return where(condition, full({}, a, {DType::kFloat32, condition.device()}), b);
}
Tensor pow(double base, const Tensor& exponent) {
  return without_scalar_width(pow(scalar_beside(exponent, base), exponent), exponent.dtype());
}

Tensor threshold(const Tensor& x, double threshold, double value) { return where(x <= threshold, value, x); }
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  TERN_CHECK(mask.dtype() == DType::kBool, "masked_fill: the mask must be bool, got ", mask.dtype());
  return where(mask, full({}, value, {x.dtype(), x.device()}), x);
}
Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  if (!is_floating(x.dtype())) return x;
  const double most = largest_finite(x.dtype());
  return pointwise(op::NanToNum{nan, posinf.value_or(most), neginf.value_or(-most)}, x);
}
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
  TERN_CHECK(low.defined() || high.defined(), "clamp: at least one bound must be defined");
  const Tensor above = low.defined() ? maximum(x, low) : x;
  return high.defined() ? minimum(above, high) : above;
}
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  if (is_floating(promote(x.dtype(), promote(a.dtype(), b.dtype())))) return pointwise(op::Addcmul{value}, x, a, b);
  return add(x, mul(mul(a, b), value));
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  return pointwise(op::Addcdiv{value}, x, a, b);
}

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  TERN_CHECK(rtol >= 0 && atol >= 0, "isclose: tolerances must not be negative, got ", rtol, " and ", atol);
  const NoGrad off;
  const Tensor x = a.detach(), y = b.detach();
  const Tensor wide_x = x.to(DType::kFloat64), wide_y = y.to(DType::kFloat64);
  const Tensor near = le(abs(sub(wide_x, wide_y)), add(mul(abs(wide_y), rtol), atol));
  const Tensor close = logical_or(eq(x, y), logical_and(near, isfinite(wide_y)));
  return equal_nan ? logical_or(close, logical_and(isnan(x), isnan(y))) : close;
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return all(isclose(a, b, rtol, atol, equal_nan)).item<bool>();
}
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) { return pointwise(op::Lerp{}, a, b, weight); }
Tensor lerp(const Tensor& a, const Tensor& b, double weight) {
  return without_scalar_width(lerp(a, b, scalar_beside(a, weight)), promote(a, b));
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  TERN_CHECK(condition.dtype() == DType::kBool, "where: the condition must be bool, got ", condition.dtype());
  return pointwise(op::Where{}, condition, a, b);
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_low_precision(a) && is_low_precision(b)) return DType::kFloat32;
  return std::min(a, b);  // DType lists each kind from the widest to the narrowest
}

DType promote_dimensioned(DType dimensioned, DType scalar) {
  // A 0-dimensional tensor changes only the kind of number: bool to integer to float.
  const bool higher =
      (is_floating(scalar) && !is_floating(dimensioned)) || (scalar != DType::kBool && dimensioned == DType::kBool);
  return higher ? scalar : dimensioned;
}

DType promote(const Tensor& a, const Tensor& b) {
  if ((a.dim() > 0) == (b.dim() > 0)) return promote(a.dtype(), b.dtype());
  return a.dim() > 0 ? promote_dimensioned(a.dtype(), b.dtype()) : promote_dimensioned(b.dtype(), a.dtype());
}

}  // namespace tern
