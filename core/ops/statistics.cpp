#include "tern/core/ops/statistics.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/reduce.h"
#include "tern/core/ops/reduction.h"

namespace tern {
namespace {

using detail::dimension_bits;
using detail::reduced_shape;
using detail::run_reduction;
using kernels::Reduction;

/// var, or its square root.
struct Variance final : Function<Variance> {
  static constexpr const char* kName = "var";
  static constexpr bool kTwiceDifferentiable = true;
  Saved x_;
  SavedOutput deviation_;
  std::vector<int> dims_;
  Shape kept_;
  double divisor_ = 0;
  Tensor forward(const Tensor& x, const std::vector<int>& dims, double correction, bool keepdim, bool root) {
    const uint32_t bits = dimension_bits(kName, x, dims);
    kept_ = reduced_shape(x.shape(), bits, true);
    dims_ = dims;
    const double count = kept_.numel() == 0 ? 0 : static_cast<double>(x.numel() / kept_.numel());
    divisor_ = std::max(0.0, count - correction);
    // The sum of squares can overflow fp16.
    const Tensor squares =
        run_reduction(Reduction::kDeviations, x, bits, keepdim, detail::accumulation_type(x.dtype()));
    x_ = x;
    if (!root) return (squares / divisor_).to(x.dtype());
    const Tensor deviation = sqrt(squares / divisor_).to(x.dtype());
    deviation_ = deviation;
    return deviation;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor x = x_.get(), from_mean = (x - mean(x, dims_, true)) / divisor_;
    if (!deviation_.defined()) return {from_mean * (2 * dy.reshape(kept_))};
    const Tensor deviation = deviation_.get().reshape(kept_), is_zero = deviation == 0.0;
    return {from_mean * where(is_zero, 0.0, dy.reshape(kept_) / where(is_zero, 1.0, deviation))};
  }
};

struct LogSumExp final : Function<LogSumExp> {
  static constexpr const char* kName = "logsumexp";
  static constexpr bool kTwiceDifferentiable = true;
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

Tensor logsumexp(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  check_floating("logsumexp", x);
  return LogSumExp::apply(x, dimension_bits("logsumexp", x, dims), keepdim);
}

}  // namespace tern
