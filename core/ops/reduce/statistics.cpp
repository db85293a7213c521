#include "tern/core/ops/reduce/statistics.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/matmul/matmul.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/sort/sort.h"

namespace tern {
namespace {

using detail::dimension_bits, detail::reduced_shape, detail::run_reduction, kernels::Reduction;

/// var, or its square root.
struct Variance final : TwiceDifferentiable<Variance> {
  static constexpr const char* kName = "var";
  Saved x_;
  SavedOutput deviation_;
  std::vector<int> dims_;
  Shape kept_;
  double degrees_ = 0;  // of freedom; below 0 the values are infinite and the gradient is what the formula gives
  Tensor forward(const Tensor& x, const std::vector<int>& dims, double correction, bool keepdim, bool root) {
    const uint32_t bits = dimension_bits(kName, x, dims);
    kept_ = reduced_shape(x.shape(), bits, true);
    dims_ = dims;
    const double count = kept_.numel() == 0 ? 0 : static_cast<double>(x.numel() / kept_.numel());
    degrees_ = count - correction;
    const double divisor = std::max(0.0, degrees_);
    // The sum of squares can overflow fp16, and fp32 where its root is in range.
    const DType wide = root ? DType::kFloat64 : detail::accumulation_type(x.dtype());
    const Tensor squares = run_reduction(Reduction::kDeviations, x, bits, keepdim, wide);
    x_ = x;
    if (!root) return (squares / divisor).to(x.dtype());
    const Tensor deviation = sqrt(squares / divisor).to(x.dtype());
    deviation_ = deviation;
    return deviation;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor x = x_.get(), from_mean = (x - mean(x, dims_, true)) / degrees_;
    if (!deviation_.defined()) return {from_mean * (2 * dy.reshape(kept_))};
    const Tensor deviation = deviation_.get().reshape(kept_), is_zero = deviation == 0.0;
    return {from_mean * where(is_zero, 0.0, dy.reshape(kept_) / where(is_zero, 1.0, deviation))};
  }
};

struct LogSumExp final : TwiceDifferentiable<LogSumExp> {
  static constexpr const char* kName = "logsumexp";
  Saved x_;
  SavedOutput y_;
  Shape kept_;
  Tensor forward(const Tensor& x, uint32_t bits, bool keepdim) {
    kept_ = reduced_shape(x.shape(), bits, true);
    const Tensor y = run_reduction(Reduction::kLogSumExp, x, bits, keepdim, x.dtype());
    x_ = x;
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override { return {exp(x_.get() - y_.get().reshape(kept_)) * dy.reshape(kept_)}; }
};

void check_floating(const char* op, const Tensor& x) {
  TERN_CHECK(is_floating(x.dtype()), op, ": expected a floating tensor, got ", x.dtype(), "; convert with to(float32)");
}

}  // namespace

Tensor var(const Tensor& x, const std::vector<int>& dims, double correction, bool keepdim) {
  check_floating("var", x);
  return Variance::apply(x, dims, correction, keepdim, false);
}
Tensor std(const Tensor& x, const std::vector<int>& dims, double correction, bool keepdim) {
  check_floating("std", x);
  return Variance::apply(x, dims, correction, keepdim, true);
}

VarMean var_mean(const Tensor& x, const std::vector<int>& dims, double correction, bool keepdim) {
  return {var(x, dims, correction, keepdim), mean(x, dims, keepdim)};
}
StdMean std_mean(const Tensor& x, const std::vector<int>& dims, double correction, bool keepdim) {
  return {tern::std(x, dims, correction, keepdim), mean(x, dims, keepdim)};
}

namespace {
/// Throws Error unless these are weights of that many observations.
void check_weights(const char* name, const Tensor& weights, int64_t observations, bool floating) {
  TERN_CHECK(weights.dim() == 1 && weights.numel() == observations && weights.dtype() != DType::kBool &&
                 is_floating(weights.dtype()) == floating,
             "cov: ", name, " must be ", floating ? "floats" : "integers", " [", observations, "], got ",
             weights.describe());
  TERN_CHECK(observations == 0 || min(weights).item<double>() >= 0, "cov: ", name, " must not be negative");
}

/// The covariance of rows with weighted observations.
Tensor weighted_cov(const Tensor& x, double correction, const Tensor& fweights, const Tensor& aweights) {
  Tensor weights = ones({x.size(1)}, x.options());
  double share = 1;  // of the correction
  if (fweights.defined()) {
    check_weights("fweights", fweights, x.size(1), false);
    weights = fweights.detach().to(x.dtype());
  }
  if (aweights.defined()) {
    check_weights("aweights", aweights, x.size(1), true);
    weights = weights * aweights.detach().to(x.dtype());
  }
  const double total = sum(weights).item<double>();
  TERN_CHECK(total > 0 || x.size(1) == 0, "cov: the weights are all 0");
  if (aweights.defined()) share = sum(weights * aweights.detach().to(x.dtype())).item<double>() / total;
  const Tensor from_mean = x - sum(x * weights, {1}, true) / total;
  return matmul(from_mean * weights, from_mean.t()) / std::max(0.0, total - correction * share);
}
}  // namespace

Tensor cov(const Tensor& x, double correction, const Tensor& fweights, const Tensor& aweights) {
  check_floating("cov", x);
  TERN_CHECK(x.dim() == 1 || x.dim() == 2, "cov: expected [variables, observations] or [observations], got ",
             x.shape());
  if (fweights.defined() || aweights.defined()) {
    const Tensor y = weighted_cov(x.dim() == 1 ? x.unsqueeze(0) : x, correction, fweights, aweights);
    return y.numel() == 1 ? y.reshape(Shape{}) : y;
  }
  if (x.dim() == 2 && x.size(0) == 1) return cov(x[0], correction);
  if (x.dim() == 1) return var(x, {}, correction);
  const Tensor from_mean = x - mean(x, {1}, true);
  return matmul(from_mean, from_mean.t()) / std::max(0.0, static_cast<double>(x.size(1)) - correction);
}
Tensor corrcoef(const Tensor& x) {
  const Tensor covariances = cov(x);
  if (covariances.dim() == 0) return covariances / covariances;
  const Tensor deviations = sqrt(covariances.diagonal());
  return clamp(covariances / deviations.unsqueeze(1) / deviations, -1, 1);
}

namespace {
/// The areas between neighbours along dimension d.
Tensor areas_between(const char* op, const Tensor& y, const Tensor& x, int d) {
  check_floating(op, y);
  TERN_CHECK(x.dim() == y.dim() || (x.dim() == 1 && x.size(0) == y.size(d)), op, ": x must be [", y.size(d),
             "] or have the dimensions of y ", y.shape(), ", got ", x.shape());
  Tensor places = x;
  if (x.dim() == 1) {
    std::vector<int64_t> sizes(static_cast<size_t>(y.dim()), 1);
    sizes[static_cast<size_t>(d)] = x.size(0);
    places = x.reshape(sizes);
  }
  const Tensor widths = places.slice(d, 1) - places.slice(d, 0, -1);
  return (y.slice(d, 1) + y.slice(d, 0, -1)) * widths;
}
/// Their mean heights times 2.
Tensor heights_between(const char* op, const Tensor& y, int d) {
  check_floating(op, y);
  return y.slice(d, 1) + y.slice(d, 0, -1);
}
}  // namespace

Tensor trapezoid(const Tensor& y, double dx, int dim) {
  const int d = y.shape().wrap(dim);
  return sum(heights_between("trapezoid", y, d), {d}) * (dx / 2);
}
Tensor trapezoid(const Tensor& y, const Tensor& x, int dim) {
  const int d = y.shape().wrap(dim);
  return sum(areas_between("trapezoid", y, x, d), {d}) / 2.0;
}
Tensor cumulative_trapezoid(const Tensor& y, double dx, int dim) {
  const int d = y.shape().wrap(dim);
  return cumsum(heights_between("cumulative_trapezoid", y, d), d) * (dx / 2);
}
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int dim) {
  const int d = y.shape().wrap(dim);
  return cumsum(areas_between("cumulative_trapezoid", y, x, d), d) / 2.0;
}

Tensor logsumexp(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  check_floating("logsumexp", x);
  return LogSumExp::apply(x, dimension_bits("logsumexp", x, dims), keepdim);
}

}  // namespace tern
