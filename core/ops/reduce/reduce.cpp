#include "tern/core/ops/reduce/reduce.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/workspace.h"

namespace tern {
namespace {

using detail::dimension_bits, detail::reduced_shape, detail::run_reduction, kernels::Reduction;

struct Sum final : TwiceDifferentiable<Sum> {
  static constexpr const char* kName = "sum";
  Shape shape_, kept_;
  double scale_ = 1;
  Tensor forward(const Tensor& x, uint32_t bits, bool keepdim, bool mean) {
    shape_ = x.shape();
    kept_ = reduced_shape(shape_, bits, true);
    const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::kInt64;
    if (mean) scale_ = static_cast<double>(kept_.numel()) / static_cast<double>(shape_.numel());
    return run_reduction(mean ? Reduction::kMean : Reduction::kSum, x, bits, keepdim, dtype);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor scaled = scale_ == 1 ? dy : mul(dy, scale_);
    return {scaled.reshape(kept_).expand(shape_)};
  }
};

/// max and min: equal extremes share the gradient equally.
struct Extreme final : TwiceDifferentiable<Extreme> {
  static constexpr const char* kName = "max_min";
  Saved x_;
  SavedOutput y_;
  uint32_t bits_ = 0;
  Shape kept_;
  Tensor forward(const Tensor& x, uint32_t bits, bool keepdim, bool largest) {
    bits_ = bits;
    kept_ = reduced_shape(x.shape(), bits, true);
    const Tensor y = run_reduction(largest ? Reduction::kMax : Reduction::kMin, x, bits, keepdim, x.dtype());
    x_ = x;
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor x = x_.get();
    const Tensor hits = eq(x, y_.get().reshape(kept_)).to(dy.dtype());
    std::vector<int> dims;
    for (int d = 0; d < x.dim(); ++d)
      if (bits_ >> d & 1) dims.push_back(d);
    const Tensor count = dims.empty() ? hits : sum(hits, dims, true);
    return {mul(div(hits, count), dy.reshape(kept_))};
  }
};

Tensor extreme(const char* name, const Tensor& x, const std::vector<int>& dims, bool keepdim, bool largest) {
  const uint32_t bits = dimension_bits(name, x, dims);
  const Shape result = reduced_shape(x.shape(), bits, false);
  TERN_CHECK(x.numel() > 0 || result.numel() == 0, name, ": an empty tensor has no largest or smallest element: shape ",
             x.shape());
  return Extreme::apply(x, bits, keepdim, largest);
}

/// The gradient by an element is the product of the others: result / x unless there are zeros.
struct Product final : TwiceDifferentiable<Product> {
  static constexpr const char* kName = "prod";
  Saved x_;
  uint32_t bits_ = 0;
  Shape kept_;
  Tensor forward(const Tensor& x, uint32_t bits, bool keepdim) {
    bits_ = bits;
    kept_ = reduced_shape(x.shape(), bits, true);
    x_ = x;
    return run_reduction(Reduction::kProduct, x, bits, keepdim, is_floating(x.dtype()) ? x.dtype() : DType::kInt64);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor x = x_.get(), dy_kept = dy.reshape(kept_);
    if (grad_enabled()) return grad({by_multiplications(x)}, {x}, {.gradients = {dy_kept}, .create_graph = true});
    const auto reduced = [&](Reduction reduction, const Tensor& of) {
      return run_reduction(reduction, of, bits_, true, of.dtype());
    };
    const Tensor is_zero = x == 0.0, others = reduced(Reduction::kProduct, where(is_zero, 1.0, x));
    const Tensor zeros = reduced(Reduction::kSum, is_zero.to(dy.dtype()));
    const Tensor by_nonzero = where(zeros == 0.0, others, 0.0) / where(is_zero, 1.0, x);
    return {dy_kept * where(is_zero, where(zeros == 1.0, others, 0.0), by_nonzero)};
  }
  /// The product as pairwise multiplications, whose derivatives are right at zeros too.
  Tensor by_multiplications(const Tensor& x) const {
    Tensor y = x;
    for (int d = 0; d < x.dim(); ++d) {
      if (!(bits_ >> d & 1)) continue;
      if (y.size(d) == 0) return ones(kept_, x.options()) + sum(y);
      while (y.size(d) > 1) {
        const int64_t half = y.size(d) / 2;
        const Tensor pairs = y.slice(d, 0, half) * y.slice(d, half, 2 * half);
        y = y.size(d) % 2 == 0 ? pairs : cat({pairs, y.slice(d, 2 * half)}, d);
      }
    }
    return y;
  }
};

Tensor arg_extreme(const char* name, const Tensor& x, int dim, bool keepdim, bool largest) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, name, [](const char* op, const auto&... all) { return arg_extreme(op, all...); }, name, x, dim, keepdim,
        largest);
  if (x.dim() == 0) return arg_extreme(name, x.reshape({1}), dim, false, largest);
  const int i = x.shape().wrap(dim);
  TERN_CHECK(x.shape()[i] > 0, name, ": dimension ", dim, " of ", x.shape(), " is empty");
  const Tensor index = empty(x.shape().with(i, 1), {DType::kInt64, x.device()});
  const kernels::Stream stream = current_stream(x.device());
  const Workspace workspace(x.device(),
                            [&] { return kernels::arg_extreme_workspace(stream, x.view(), i, index.view()); });
  kernels::arg_extreme(stream, largest, x.view(), i, workspace.data(), index.view());
  return keepdim ? index : index.reshape(x.shape().without(i));
}

}  // namespace

Tensor sum(const Tensor& input, const std::vector<int>& dims, bool keepdim) {
  Tensor x = input;
  if (autocast_enabled(x.device())) detail::autocast_inputs("sum", {&x});
  return Sum::apply(x, dimension_bits("sum", x, dims), keepdim, false);
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  TERN_CHECK(is_floating(x.dtype()), "mean: expected a floating tensor, got ", x.dtype(), "; convert with to(float32)");
  return Sum::apply(x, dimension_bits("mean", x, dims), keepdim, true);
}

Tensor nansum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return sum(is_floating(x.dtype()) ? where(isnan(x), 0.0, x) : x, dims, keepdim);
}
Tensor nanmean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  TERN_CHECK(is_floating(x.dtype()), "nanmean: expected a floating tensor, got ", x.dtype(),
             "; convert with to(float32)");
  const Tensor numbers = sum(logical_not(isnan(x.detach())), dims, keepdim);
  // Sums of 16-bit floats can overflow.
  return div(nansum(x.to(detail::accumulation_type(x.dtype())), dims, keepdim), numbers).to(x.dtype());
}

Tensor max(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return extreme("max", x, dims, keepdim, true);
}
Tensor min(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return extreme("min", x, dims, keepdim, false);
}
Extremes aminmax(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return {extreme("aminmax", x, dims, keepdim, false), extreme("aminmax", x, dims, keepdim, true)};
}
Tensor argmax(const Tensor& x, int dim, bool keepdim) { return arg_extreme("argmax", x, dim, keepdim, true); }
Tensor argmin(const Tensor& x, int dim, bool keepdim) { return arg_extreme("argmin", x, dim, keepdim, false); }

Tensor prod(const Tensor& input, const std::vector<int>& dims, bool keepdim) {
  Tensor x = input;
  detail::autocast_inputs("prod", {&x});
  return Product::apply(x, dimension_bits("prod", x, dims), keepdim);
}

Tensor all(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return run_reduction(Reduction::kAll, x, dimension_bits("all", x, dims), keepdim, DType::kBool);
}
Tensor any(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return run_reduction(Reduction::kAny, x, dimension_bits("any", x, dims), keepdim, DType::kBool);
}

Tensor count_nonzero(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return sum(x.detach() != 0.0, dims, keepdim);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  TERN_CHECK(broadcasts_to(shape, x.shape()), "sum_to: ", x.shape(), " is not a broadcast of ", shape);
  const int shift = x.dim() - shape.dims();
  std::vector<int> dims;
  for (int d = 0; d < x.dim(); ++d)
    if (d < shift || (shape[d - shift] == 1 && x.shape()[d] != 1)) dims.push_back(d);
  return (dims.empty() ? x : sum(x, dims, true)).reshape(shape);
}

bool all_finite(const Tensor& x) {
  NoGrad off;
  return all(isfinite(x.detach())).item<bool>();
}

}  // namespace tern
