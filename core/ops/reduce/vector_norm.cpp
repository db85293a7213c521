#include "tern/core/ops/reduce/vector_norm.h"

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/run_reduction.h"

namespace tern {
namespace {

using detail::dimension_bits, detail::reduced_shape, detail::run_reduction, kernels::Reduction;

/// The gradient is x / y, and 0 (a subgradient) where y is 0; higher derivatives are 0 there as well.
struct Norm final : TwiceDifferentiable<Norm> {
  static constexpr const char* kName = "norm";
  Saved x_;
  SavedOutput y_;
  Shape kept_;
  Tensor forward(const Tensor& x, uint32_t bits, bool keepdim) {
    kept_ = reduced_shape(x.shape(), bits, true);
    const DType dtype = detail::accumulation_type(x.dtype());  // squares can overflow fp16
    const Tensor y = sqrt(run_reduction(Reduction::kSumOfSquares, x, bits, keepdim, dtype)).to(x.dtype());
    x_ = x;
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor y = y_.get().reshape(kept_), is_zero = y == 0.0;
    // Divides by 1 where the result is not used: 0 / 0 would give NaN in a second derivative.
    return {mul(x_.get(), where(is_zero, 0.0, div(dy.reshape(kept_), where(is_zero, 1.0, y))))};
  }
};

/// The norm of order 0, whose gradient is 0.
struct CountOfNonzeros final : TwiceDifferentiable<CountOfNonzeros> {
  static constexpr const char* kName = "vector_norm";
  Shape shape_;
  Tensor forward(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    shape_ = x.shape();
    return sum((x != 0.0).to(x.dtype()), dims, keepdim);
  }
  Grads backward(const Tensor& dy) override { return {zeros(shape_, dy.options())}; }
};

/// The norm of order 1.
struct SumOfMagnitudes final : TwiceDifferentiable<SumOfMagnitudes> {
  static constexpr const char* kName = "vector_norm";
  Saved x_;
  Shape kept_;
  Tensor forward(const Tensor& x, uint32_t bits, bool keepdim) {
    kept_ = reduced_shape(x.shape(), bits, true);
    x_ = x;
    return run_reduction(Reduction::kSumOfMagnitudes, x, bits, keepdim, x.dtype());
  }
  Grads backward(const Tensor& dy) override { return {sign(x_.get()) * dy.reshape(kept_)}; }
};

/// The norm of a positive or negative order other than 1, 2 and infinity.
struct PowerNorm final : TwiceDifferentiable<PowerNorm> {
  static constexpr const char* kName = "vector_norm";
  Saved x_;
  SavedOutput y_;
  Shape kept_;
  double order_ = 0;
  Tensor forward(const Tensor& x, double order, uint32_t bits, bool keepdim) {
    kept_ = reduced_shape(x.shape(), bits, true);
    order_ = order;
    const Tensor wide = x.to(detail::accumulation_type(x.dtype()));
    const Tensor sum = run_reduction(Reduction::kSum, pow(abs(wide), order), bits, keepdim, wide.dtype());
    const Tensor y = pow(sum, 1 / order).to(x.dtype());
    x_ = x;
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor x = x_.get(), y = y_.get().reshape(kept_), no_norm = y == 0.0;
    const Tensor scale = where(no_norm, 0.0, dy.reshape(kept_) * pow(where(no_norm, 1.0, y), 1 - order_));
    // In orders below 1 a zero has no slope, and below 2 no second derivative.
    const Tensor is_zero = x == 0.0, power = pow(where(is_zero, 1.0, abs(x)), order_ - 1);
    return {where(is_zero, 0.0, sign(x) * power) * scale};
  }
};

}  // namespace

Tensor norm(const Tensor& x) { return norm(x, {}); }
Tensor norm(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  if (!is_floating(x.dtype())) return sqrt(sum(square(x), dims, keepdim));
  Tensor input = x;
  detail::autocast_inputs("norm", {&input});
  return Norm::apply(input, dimension_bits("norm", input, dims), keepdim);
}

Tensor vector_norm(const Tensor& input, double order, const std::vector<int>& dims, bool keepdim) {
  TERN_CHECK(!std::isnan(order), "vector_norm: order must be a number, got NaN");
  Tensor x = is_floating(input.dtype()) ? input : input.to(float32);
  detail::autocast_inputs("norm", {&x});
  const uint32_t bits = dimension_bits("vector_norm", x, dims);
  if (order == 0) return CountOfNonzeros::apply(x, dims, keepdim);
  if (order == 1) return SumOfMagnitudes::apply(x, bits, keepdim);
  if (order == 2) return norm(x, dims, keepdim);
  const bool extreme = std::isinf(order);
  TERN_CHECK((order > 0 && !extreme) || x.numel() > 0 || reduced_shape(x.shape(), bits, false).numel() == 0,
             "vector_norm: the norm of order ", order, " of an empty set is not defined: shape ", x.shape());
  if (extreme) return order > 0 ? max(abs(x), dims, keepdim) : min(abs(x), dims, keepdim);
  return PowerNorm::apply(x, order, bits, keepdim);
}

Tensor matrix_norm(const Tensor& x, std::optional<double> order, int rows, int cols, bool keepdim) {
  const int r = x.shape().wrap(rows), c = x.shape().wrap(cols);
  TERN_CHECK(r != c, "matrix_norm: expected two different dimensions, got ", rows, " and ", cols, " of ", x.shape());
  if (!order) return vector_norm(x, 2, {r, c}, keepdim);
  const double magnitude = std::abs(*order);
  TERN_CHECK(magnitude == 1 || std::isinf(magnitude), "matrix_norm: order must be absent (Frobenius' norm), 1, -1, ",
             "infinity or -infinity, got ", *order, "; others need singular values, which Tern does not compute");
  if (x.shape()[r] == 0 || x.shape()[c] == 0) return vector_norm(x, 2, {r, c}, keepdim);  // of no elements: 0
  const Tensor sums = vector_norm(x, 1, {magnitude == 1 ? r : c}, true);
  const std::vector<int> rest = {magnitude == 1 ? c : r};
  const Tensor y = *order > 0 ? max(sums, rest, true) : min(sums, rest, true);
  return keepdim ? y : y.squeeze({r, c});
}

Tensor normalize(const Tensor& x, double order, int dim, double eps) {
  return x / clamp(vector_norm(x, order, {dim}, true), eps, INFINITY);
}

Tensor renorm(const Tensor& x, double order, int dim, double most) {
  const int d = x.shape().wrap(dim);
  TERN_CHECK(x.dim() >= 2 && order > 0 && most >= 0,
             "renorm: expected two dimensions or more, a positive order and a norm that is not negative, got ",
             x.shape(), ", ", order, " and ", most);
  std::vector<int> others;
  for (int e = 0; e < x.dim(); ++e)
    if (e != d) others.push_back(e);
  const Tensor norms = vector_norm(x, order, others, true);
  return x * where(norms > most, most / (norms + 1e-7), 1.0);
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int dim, double eps) {
  const Tensor products = a * b;
  const Shape& shape = products.shape();
  const auto length = [&](const Tensor& x) { return clamp(norm(x.expand(shape), {dim}), eps, INFINITY); };
  return sum(products, {dim}) / (length(a) * length(b));
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double order, double eps, bool keepdim) {
  return vector_norm(a - b + eps, order, {-1}, keepdim);
}

}  // namespace tern
