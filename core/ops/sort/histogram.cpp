#include "tern/core/ops/sort/histogram.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/indexing/nonzero.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/sort/search.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/core/tensor/size_checks.h"

namespace tern {
namespace {

struct Interval {
  double low = 0, high = 0;
};

/// The interval in which `op` counts: if it is empty that of x's elements, and one of this reach around a single value.
Interval counted_interval(const char* op, const Tensor& x, int64_t bins, Interval range, double reach) {
  TERN_CHECK(is_floating(x.dtype()), op, ": expected a floating dtype, got ", x.dtype());
  TERN_CHECK(bins > 0 && range.low <= range.high, op, ": expected at least one bin and low <= high, got ", bins,
             " bins of [", range.low, ", ", range.high, "]");
  if (range.low == range.high && x.numel() > 0) range = {min(x).item<double>(), max(x).item<double>()};
  TERN_CHECK(std::isfinite(range.low) && std::isfinite(range.high), op, ": the range [", range.low, ", ", range.high,
             "] is not finite");
  return range.low == range.high ? Interval{range.low - reach, range.high + reach} : range;
}

}  // namespace

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
  const NoGrad off;
  TERN_CHECK(x.dim() == 1 && !is_floating(x.dtype()) && x.dtype() != DType::kBool,
             "bincount: expected a vector of integers, got ", x.describe());
  TERN_CHECK(minlength >= 0, "bincount: minlength must not be negative, got ", minlength);
  TERN_CHECK(!weights.defined() || weights.shape() == x.shape(), "bincount: weights must have the shape of x, ",
             x.shape(), ", got ", weights.describe());
  const bool single = weights.defined() && weights.dtype() == DType::kFloat32;
  const DType dtype = !weights.defined() ? DType::kInt64 : single ? DType::kFloat32 : DType::kFloat64;
  int64_t size = minlength;
  if (x.numel() > 0) {
    const int64_t least = min(x).item<int64_t>();
    TERN_CHECK(least >= 0, "bincount: elements must not be negative, got ", least);
    size = std::max(size, detail::checked_sum("bincount", max(x).item<int64_t>(), 1));
  }
  const Tensor added = weights.defined() ? weights.detach().to(dtype) : ones({}, {dtype, x.device()}).expand(x.shape());
  return scatter_add(zeros({size}, {dtype, x.device()}), 0, x.to(DType::kInt64), added);
}

Tensor histc(const Tensor& x, int64_t bins, double low, double high) {
  const NoGrad off;
  const Interval range = counted_interval("histc", x, bins, {low, high}, 1);
  const Tensor values = x.detach().to(DType::kFloat64).flatten();
  const Tensor inside = masked_select(values, logical_and(ge(values, range.low), le(values, range.high)));
  const Tensor place =
      floor((inside - range.low) * static_cast<double>(bins) / (range.high - range.low)).to(DType::kInt64);
  const Tensor last = full({}, static_cast<double>(bins - 1), place.options());
  return bincount(minimum(place, last), {}, bins).to(x.dtype());
}

Histogram histogram(const Tensor& x, const Tensor& edges, const HistogramOptions& options) {
  const NoGrad off;
  TERN_CHECK(is_floating(x.dtype()), "histogram: expected a floating dtype, got ", x.dtype());
  TERN_CHECK(edges.dim() == 1 && edges.numel() >= 2 && edges.dtype() == x.dtype(),
             "histogram: the edges must be a vector of two or more ", x.dtype(), ", got ", edges.describe());
  TERN_CHECK(
      !options.weights.defined() || (options.weights.shape() == x.shape() && is_floating(options.weights.dtype())),
      "histogram: weights must be floats of the shape of x, ", x.shape(), ", got ", options.weights.describe());
  const Tensor values = x.detach().flatten(), bounds = edges.detach();
  TERN_CHECK(all(diff(bounds.to(DType::kFloat64)) >= 0.0).item<bool>(), "histogram: the edges must ascend");
  const Tensor first = bounds[0], last = bounds[-1];
  const Tensor inside = logical_and(ge(values, first), le(values, last));
  const Tensor counted = masked_select(values, inside),
               most = full({}, static_cast<double>(edges.numel() - 2), {DType::kInt64, x.device()});
  const Tensor place = minimum(bucketize(counted, bounds, /*right=*/true) - 1.0, most);
  const Tensor weights = options.weights.defined()
                             ? masked_select(options.weights.detach().flatten().to(DType::kFloat64), inside)
                             : Tensor();
  Tensor counts = bincount(place, weights, edges.numel() - 1).to(DType::kFloat64);
  if (options.density) counts = counts / (sum(counts) * diff(bounds.to(DType::kFloat64)));
  return {counts.to(x.dtype()), bounds};
}

Histogram histogram(const Tensor& x, int64_t bins, const HistogramOptions& options) {
  const NoGrad off;
  Interval range = counted_interval("histogram", x, bins, {options.low, options.high}, 0.5);
  if (x.numel() == 0 && options.low == 0 && options.high == 0) range = {0, 1};
  return histogram(
      x, linspace(range.low, range.high, detail::checked_sum("histogram", bins, 1), {x.dtype(), x.device()}), options);
}

}  // namespace tern
