#include "tern/core/ops/reduce.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/reduce.h"

namespace tern {
namespace {

using kernels::Reduction;

/// Bits of the dimensions to reduce; all when `dims` is empty.
uint32_t dimension_bits(const char* op, const Tensor& x, const std::vector<int>& dims) {
  if (dims.empty()) return (1u << x.dim()) - 1;
  uint32_t bits = 0;
  for (int d : dims) {
    const uint32_t bit = 1u << x.shape().wrap(d);
    TERN_CHECK(!(bits & bit), op, ": dimension ", d, " is repeated");
    bits |= bit;
  }
  return bits;
}

Shape reduced_shape(const Shape& shape, uint32_t bits, bool keepdim) {
  std::vector<int64_t> sizes;
  for (int d = 0; d < shape.dims(); ++d) {
    if (!(bits >> d & 1))
      sizes.push_back(shape[d]);
    else if (keepdim)
      sizes.push_back(1);
  }
  return Shape(sizes);
}

Tensor run_reduction(Reduction reduction, const Tensor& x, uint32_t bits, bool keepdim, DType dtype) {
  const Tensor y = empty(reduced_shape(x.shape(), bits, true), {dtype, x.device()});
  const kernels::Stream stream = current_stream(x.device());
  const Workspace workspace(x.device(), [&] { return kernels::reduce_workspace(stream, x.view(), bits, y.view()); });
  kernels::reduce(stream, reduction, x.view(), bits, workspace.data(), y.view());
  return keepdim ? y : y.reshape(reduced_shape(x.shape(), bits, false));
}

struct Sum final : Function<Sum> {
  static constexpr const char* kName = "sum";
  static constexpr bool kTwiceDifferentiable = true;
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

/// The gradient is x / y, and 0 (a subgradient) where y is 0; higher derivatives are 0 there as well.
struct Norm final : Function<Norm> {
  static constexpr const char* kName = "norm";
  static constexpr bool kTwiceDifferentiable = true;
  Saved x_;
  SavedOutput y_;
  Shape kept_;
  Tensor forward(const Tensor& x, uint32_t bits, bool keepdim) {
    kept_ = reduced_shape(x.shape(), bits, true);
    const Tensor y = sqrt(run_reduction(Reduction::kSum, square(x), bits, keepdim, x.dtype()));
    x_ = x;
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor y = y_.get().reshape(kept_), is_zero = eq(y, zeros_like(y.detach()));
    const Tensor one = ones({}, y.options()), zero = zeros({}, y.options());
    // Divides by 1 where the result is not used: 0 / 0 would give NaN in a second derivative.
    return {mul(x_.get(), where(is_zero, zero, div(dy.reshape(kept_), where(is_zero, one, y))))};
  }
};

/// max and min: equal extremes share the gradient equally.
struct Extreme final : Function<Extreme> {
  static constexpr const char* kName = "max_min";
  static constexpr bool kTwiceDifferentiable = true;
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

Tensor arg_extreme(const char* name, const Tensor& x, int dim, bool keepdim, bool largest) {
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

Tensor max(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return extreme("max", x, dims, keepdim, true);
}
Tensor min(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return extreme("min", x, dims, keepdim, false);
}
Tensor argmax(const Tensor& x, int dim, bool keepdim) { return arg_extreme("argmax", x, dim, keepdim, true); }
Tensor argmin(const Tensor& x, int dim, bool keepdim) { return arg_extreme("argmin", x, dim, keepdim, false); }

Tensor norm(const Tensor& x) { return norm(x, {}); }
Tensor norm(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  if (!is_floating(x.dtype())) return sqrt(sum(square(x), dims, keepdim));
  Tensor input = x;
  detail::autocast_inputs("norm", {&input});
  return Norm::apply(input, dimension_bits("norm", input, dims), keepdim);
}

Tensor all(const Tensor& x) {
  return run_reduction(Reduction::kAll, x, dimension_bits("all", x, {}), false, DType::kBool);
}
Tensor any(const Tensor& x) {
  return run_reduction(Reduction::kAny, x, dimension_bits("any", x, {}), false, DType::kBool);
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
