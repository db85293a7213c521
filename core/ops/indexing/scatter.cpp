#include "tern/core/ops/indexing/scatter.h"

#include "tern/core/ops/indexing/scatter_call.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/tensor/size_checks.h"

namespace tern {
namespace {

using kernels::ScatterMode;

/// The scalar as a source for this index.
Tensor spread(const Tensor& x, const Tensor& index, double value) {
  return full({}, value, x.options()).expand(index.shape());
}

/// The number that changes no extreme or product of this dtype.
double neutral(ScatterReduction reduction, DType dtype) {
  if (reduction == ScatterReduction::kProd) return 1;
  if (reduction == ScatterReduction::kMin) return INFINITY;
  if (reduction == ScatterReduction::kMax) return dtype == DType::kBool ? 0 : -INFINITY;
  return 0;
}

/// total / count, rounded down for integers.
Tensor quotient(const Tensor& total, const Tensor& count) {
  if (is_floating(total.dtype())) return div(total, count.to(total.dtype()));
  return floor(div(total.to(DType::kFloat64), count.to(DType::kFloat64))).to(total.dtype());
}

}  // namespace

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  return detail::written(x, detail::scatter_call("scatter", ScatterMode::kAssign, x, dim, index, source));
}
Tensor scatter(const Tensor& x, int dim, const Tensor& index, double value) {
  return scatter(x, dim, index, spread(x, index, value));
}
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  return detail::written(x, detail::scatter_call("scatter_add", ScatterMode::kAdd, x, dim, index, source));
}

Tensor scatter_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& source, ScatterReduction reduction,
                      bool include_self) {
  constexpr const char* kName = "scatter_reduce";
  const bool averages = reduction == ScatterReduction::kMean;
  // The sum of a mean may leave the range of 16 bits.
  if (averages && is_low_precision(x.dtype()) && source.dtype() == x.dtype()) {
    const DType wide = DType::kFloat32;
    return scatter_reduce(x.to(wide), dim, index, source.to(wide), reduction, include_self).to(x.dtype());
  }
  const ScatterMode mode = reduction == ScatterReduction::kProd  ? ScatterMode::kMultiply
                           : reduction == ScatterReduction::kMax ? ScatterMode::kMaximum
                           : reduction == ScatterReduction::kMin ? ScatterMode::kMinimum
                                                                 : ScatterMode::kAdd;
  const Tensor start = include_self ? x : scatter(x, dim, index, neutral(reduction, x.dtype()));
  const Tensor y = detail::written(start, detail::scatter_call(kName, mode, start, dim, index, source));
  if (!averages) return y;
  TERN_CHECK(x.dtype() != DType::kBool, kName, ": the mean of bool is not defined; convert x and the source first");
  Tensor count = ones(x.shape(), {DType::kInt64, x.device()});
  if (!include_self) count = scatter(count, dim, index, 0.0);
  count = scatter_add(count, dim, index, spread(count, index, 1));
  return quotient(y, maximum(count, ones({}, count.options())));
}

Tensor index_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& source, ScatterReduction reduction,
                    bool include_self) {
  const Tensor whole = detail::with_dims(x), slices = detail::with_dims(source);
  const int d = whole.shape().wrap(dim);
  TERN_CHECK(index.dim() <= 1 && (index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32),
             "index_reduce: the index must be int64 or int32 with one dimension, got ", index.describe());
  TERN_CHECK(slices.dim() == whole.dim() && slices.shape() == whole.shape().with(d, index.numel()),
             "index_reduce: the source must be ", whole.shape().with(d, index.numel()), " for ", index.numel(),
             " slices of ", whole.shape(), " along dimension ", d, ", got ", source.shape());
  std::vector<int64_t> sizes(static_cast<size_t>(whole.dim()), 1);
  sizes[static_cast<size_t>(d)] = index.numel();
  const Tensor places = index.to(DType::kInt64).reshape(Shape(sizes)).expand(slices.shape());
  return scatter_reduce(whole, d, places, slices, reduction, include_self).reshape(x.shape());
}

Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source, double alpha) {
  const Tensor scaled = alpha == 1 ? source : mul(source, alpha);
  return detail::written(x, detail::slices_call("index_add", ScatterMode::kAdd, x, dim, index, scaled));
}
Tensor index_copy(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  return detail::written(x, detail::slices_call("index_copy", ScatterMode::kAssign, x, dim, index, source));
}
Tensor index_fill(const Tensor& x, int dim, const Tensor& index, double value) {
  const Tensor source = full({}, value, x.options());
  return detail::written(x, detail::slices_call("index_fill", ScatterMode::kAssign, x, dim, index, source));
}

Tensor one_hot(const Tensor& x, int64_t num_classes) {
  TERN_CHECK(x.dtype() == DType::kInt64, "one_hot: expected int64 classes, got ", x.describe());
  TERN_CHECK(num_classes > 0 || (num_classes == -1 && x.numel() > 0),
             "one_hot: the number of classes must be positive, or -1 for an x that is not empty, got ", num_classes);
  if (num_classes == -1) {
    const int64_t largest = max(x).item<int64_t>();
    TERN_CHECK(largest >= 0, "one_hot: classes must not be negative, the largest is ", largest);
    num_classes = detail::checked_sum("one_hot", largest, 1);
  }
  std::vector<int64_t> sizes = x.shape().vec();
  sizes.push_back(num_classes);
  const Tensor zero = zeros(Shape(sizes), x.options()), index = x.detach().unsqueeze(-1);
  return detail::written(
      zero, detail::scatter_call("one_hot", ScatterMode::kAssign, zero, -1, index, spread(zero, index, 1)));
}

}  // namespace tern
