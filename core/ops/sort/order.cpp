// What follows from sorted elements: medians, quantiles, searches, and different elements.

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/indexing.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/sort/selection.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/core/tensor/size_checks.h"
#include "tern/kernels/sort.h"

namespace tern {
namespace {

/// x without dimensions as one of one element; op for the error of a dimension without elements.
Tensor sortable(const char* op, const Tensor& x, int dim) {
  const Tensor whole = x.dim() == 0 ? x.reshape({1}) : x;
  TERN_CHECK(whole.size(dim) > 0, op, ": dimension ", dim, " of ", x.shape(), " has no elements");
  return whole;
}

/// Drops dim (of size 1) unless it is kept; results of a tensor without dimensions have none.
SortResult without_dim(const Tensor& x, const SortResult& result, int dim, bool keepdim) {
  const auto drop = [&](const Tensor& y) { return x.dim() == 0 ? y.reshape(Shape{}) : keepdim ? y : y.select(dim, 0); };
  return {drop(result.values), drop(result.indices)};
}

SortResult median_along(const char* op, const Tensor& x, int dim, bool keepdim, bool ignores_nan) {
  using kernels::Selection;
  const Selection which = ignores_nan ? Selection::kMedianOfNumbers : Selection::kMedian;
  return without_dim(x, detail::select_along(op, sortable(op, x, dim), dim, which), dim, keepdim);
}

/// The median of all elements, whose gradient those that equal it share.
struct MedianOfAll final : Function<MedianOfAll> {
  static constexpr const char* kName = "median";
  static constexpr bool kTwiceDifferentiable = true;
  Saved x_;
  SavedOutput y_;
  Tensor forward(const Tensor& x, bool ignores_nan) {
    x_ = x;
    const Tensor y = median_along(kName, x.flatten(), 0, false, ignores_nan).values.clone();
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor x = x_.get(), y = y_.get();
    const Tensor equal = logical_or(eq(x, y), logical_and(isnan(x), isnan(y)));
    return {where(equal, div(dy, sum(equal).to(dy.dtype())), 0.0)};
  }
};

/// Between two elements. Where their difference is infinite or NaN, lerp would give NaN also of equal elements and of
/// an element with the other's weight 0.
Tensor between(const Tensor& lower, const Tensor& upper, const Tensor& weight) {
  const Tensor sum = lower * (1.0 - weight) + where(weight == 0.0, 0.0, upper) * weight;
  return where(isfinite(upper.detach() - lower.detach()), lerp(lower, upper, weight), sum);
}

/// Positions in sorted order and the weight of the upper one, for each q.
struct QuantilePositions {
  std::vector<int64_t> lower, upper;
  std::vector<double> weight;
  QuantilePositions(const std::vector<double>& q, int64_t size, Interpolation interpolation) {
    for (const double each : q) {
      TERN_CHECK(each >= 0 && each <= 1, "quantile: q must be in [0, 1], got ", each);
      double rank = each * static_cast<double>(size - 1);
      if (interpolation == Interpolation::kLower) rank = std::floor(rank);
      if (interpolation == Interpolation::kHigher) rank = std::ceil(rank);
      if (interpolation == Interpolation::kNearest) rank = std::nearbyint(rank);
      const double below = std::floor(rank);
      lower.push_back(static_cast<int64_t>(below));
      upper.push_back(static_cast<int64_t>(std::ceil(rank)));
      weight.push_back(interpolation == Interpolation::kMidpoint ? 0.5 : rank - below);
    }
  }
};

/// The quantiles along the last dimension of x, as the first dimension of the result.
Tensor quantiles_of_rows(const Tensor& x, const std::vector<double>& q, Interpolation interpolation) {
  const int64_t size = x.size(-1), count = static_cast<int64_t>(q.size());
  const QuantilePositions at(q, size, interpolation);
  const Tensor sorted = sort(x, -1).values;
  const auto pick = [&](const std::vector<int64_t>& positions) {
    return index_select(sorted, -1, from_vector(positions, {count}, {DType::kInt64, x.device()}));
  };
  const Tensor weight = from_vector(at.weight, {count}, {x.dtype(), x.device()});
  const Tensor y = between(pick(at.lower), pick(at.upper), weight);
  const Tensor last = sorted.slice(-1, size - 1);
  return where(isnan(last), last, y).movedim(-1, 0);
}

/// The same of the elements that are not NaN, whose number differs between rows.
Tensor nan_quantiles_of_rows(const Tensor& x, const std::vector<double>& q, Interpolation interpolation) {
  const Tensor sorted = sort(x, -1).values;
  const auto [lower, upper, weight] = [&] {
    const NoGrad off;
    for (const double each : q) QuantilePositions({each}, 1, interpolation);  // for its error
    const Tensor numbers = sum(logical_not(isnan(x.detach())), {-1}, true).to(DType::kFloat64);
    Tensor rank = (numbers - 1.0) * from_vector(q, {static_cast<int64_t>(q.size())}).to(x.device());
    if (interpolation == Interpolation::kLower) rank = floor(rank);
    if (interpolation == Interpolation::kHigher) rank = ceil(rank);
    if (interpolation == Interpolation::kNearest) rank = round(rank);
    const Tensor below = clamp(floor(rank), 0, INFINITY), above = clamp(ceil(rank), 0, INFINITY);
    const Tensor share = interpolation == Interpolation::kMidpoint ? full_like(rank, 0.5) : rank - below;
    return std::tuple(below.to(DType::kInt64), above.to(DType::kInt64), share.to(x.dtype()));
  }();
  return between(gather(sorted, -1, lower), gather(sorted, -1, upper), weight).movedim(-1, 0);
}

/// The runs of equal rows: where each begins, and the number of each row's run.
struct Runs {
  Tensor starts, number, counts;
};
Runs runs_of_rows(const Tensor& rows) {
  const int64_t n = rows.size(0);
  const TensorOptions ints{DType::kInt64, rows.device()};
  if (n == 0) return {empty({0}, ints), empty({0}, ints), empty({0}, ints)};
  const Tensor differs = any(ne(rows.slice(0, 1), rows.slice(0, 0, n - 1)), {1});
  const Tensor begins = cat({ones({1}, differs.options()), differs});
  const Tensor starts = nonzero(begins).reshape({-1});
  const Tensor ends = cat({starts.slice(0, 1), full({1}, static_cast<double>(n), ints)});
  return {starts, cumsum(begins, 0) - 1.0, ends - starts};
}

Runs runs_of(const Tensor& x) { return runs_of_rows(x.unsqueeze(1)); }

}  // namespace

SortResult kthvalue(const Tensor& x, int64_t k, int dim, bool keepdim) {
  const Tensor whole = sortable("kthvalue", x, dim);
  TERN_CHECK(k >= 1 && k <= whole.size(dim), "kthvalue: k must be in [1, ", whole.size(dim), "], got ", k);
  const SortResult selected = detail::select_along("kthvalue", whole, dim, kernels::Selection::kPlace, k - 1);
  return without_dim(x, selected, dim, keepdim);
}

SortResult median(const Tensor& x, int dim, bool keepdim) { return median_along("median", x, dim, keepdim, false); }
SortResult nanmedian(const Tensor& x, int dim, bool keepdim) {
  return median_along("nanmedian", x, dim, keepdim, true);
}
Tensor median(const Tensor& x) {
  const bool is_nan = x.numel() == 0 && is_floating(x.dtype());
  return is_nan ? full({}, NAN, x.options()) : MedianOfAll::apply(x, false);
}
Tensor nanmedian(const Tensor& x) {
  const bool is_nan = x.numel() == 0 && is_floating(x.dtype());
  return is_nan ? full({}, NAN, x.options()) : MedianOfAll::apply(x, true);
}

namespace {
Tensor quantiles(const char* op, const Tensor& x, const Tensor& q, std::optional<int> dim, bool keepdim,
                 Interpolation interpolation, bool ignores_nan) {
  TERN_CHECK(is_floating(x.dtype()), op, ": expected a floating dtype, got ", x.dtype());
  TERN_CHECK(q.dim() <= 1, op, ": q must be a number or a vector, got ", q.shape());
  const bool all = !dim.has_value() || x.dim() == 0;
  const Tensor whole = sortable(op, all ? x.flatten() : x, all ? 0 : *dim);
  const int d = all ? 0 : x.shape().wrap(*dim);
  const auto of_rows = ignores_nan ? nan_quantiles_of_rows : quantiles_of_rows;
  Tensor y = of_rows(whole.transpose(d, -1), q.to_vector<double>(), interpolation);
  // The dimension that changed places with the last one is put back.
  y = y.unsqueeze(-1).transpose(d + 1, -1);
  const Shape shape = y.shape();
  if (all) {
    std::vector<int64_t> sizes(keepdim ? static_cast<size_t>(x.dim()) : 0, 1);
    sizes.insert(sizes.begin(), shape[0]);
    y = y.reshape(sizes);
  } else if (!keepdim) {
    y = y.squeeze(d + 1);
  }
  return q.dim() == 0 ? y.select(0, 0) : y;
}
}  // namespace

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int> dim, bool keepdim, Interpolation interpolation) {
  return quantiles("quantile", x, q, dim, keepdim, interpolation, false);
}
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int> dim, bool keepdim,
                   Interpolation interpolation) {
  return quantiles("nanquantile", x, q, dim, keepdim, interpolation, true);
}
Tensor nanquantile(const Tensor& x, double q, std::optional<int> dim, bool keepdim, Interpolation interpolation) {
  return nanquantile(x, full({}, q, {.dtype = DType::kFloat64}), dim, keepdim, interpolation);
}
Tensor quantile(const Tensor& x, double q, std::optional<int> dim, bool keepdim, Interpolation interpolation) {
  return quantile(x, full({}, q, {.dtype = DType::kFloat64}), dim, keepdim, interpolation);
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  detail::check_one_device("searchsorted", {&sorted, &values});
  TERN_CHECK(sorted.dtype() == values.dtype(), "searchsorted: expected one dtype, got ", sorted.describe(), " and ",
             values.describe(), "; convert one of them");
  const bool fits = sorted.dim() == 1 || (sorted.dim() == values.dim() && sorted.dim() > 0 &&
                                          sorted.shape().with(-1, 0) == values.shape().with(-1, 0));
  TERN_CHECK(fits, "searchsorted: the sorted tensor must be a vector or differ from the values ", values.shape(),
             " only in the last dimension, got ", sorted.shape());
  const Tensor index = empty(values.shape(), {DType::kInt64, values.device()});
  kernels::search_sorted(current_stream(values.device()), sorted.contiguous().view(), values.contiguous().view(), right,
                         index.view());
  return index;
}
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right) {
  TERN_CHECK(boundaries.dim() == 1, "bucketize: the boundaries must be a vector, got ", boundaries.shape());
  return searchsorted(boundaries, values, right);
}

Tensor isin(const Tensor& x, const Tensor& candidates, bool invert) {
  const NoGrad off;
  const DType dtype = promote(x.dtype(), candidates.dtype());
  const Tensor values = x.detach().to(dtype), sorted = sort(candidates.detach().to(dtype).flatten()).values;
  const int64_t count = sorted.numel();
  if (count == 0) return full(x.shape(), invert ? 1 : 0, {DType::kBool, x.device()});
  const Tensor place = searchsorted(sorted, values), last = full({}, static_cast<double>(count - 1), place.options());
  const Tensor found = eq(take(sorted, minimum(place, last)), values);
  return invert ? logical_not(found) : found;
}

UniqueResult unique_consecutive(const Tensor& x) {
  const NoGrad off;
  const Tensor flat = x.detach().flatten();
  const Runs runs = runs_of(flat);
  return {take(flat, runs.starts), runs.number.reshape(x.shape()), runs.counts};
}

UniqueResult unique(const Tensor& x) {
  const NoGrad off;
  const SortResult sorted = sort(x.detach().flatten(), 0);
  const Runs runs = runs_of(sorted.values);
  const Tensor inverse = scatter(empty_like(runs.number), 0, sorted.indices, runs.number);
  return {take(sorted.values, runs.starts), inverse.reshape(x.shape()), runs.counts};
}

namespace {
/// The slices of x along dim as rows.
Tensor rows_along(const Tensor& x, int dim) {
  const Tensor front = x.movedim(dim, 0);
  return front.reshape({front.size(0), front.numel() / std::max<int64_t>(front.size(0), 1)});
}
}  // namespace

UniqueResult unique_consecutive(const Tensor& x, int dim) {
  const NoGrad off;
  const Runs runs = runs_of_rows(rows_along(x.detach(), dim));
  return {index_select(x.detach(), dim, runs.starts), runs.number, runs.counts};
}

UniqueResult unique(const Tensor& x, int dim) {
  const NoGrad off;
  const Tensor rows = rows_along(x.detach(), dim);
  Tensor order = arange(0, static_cast<double>(rows.size(0)), 1, {DType::kInt64, x.device()});
  for (int64_t column = rows.size(1) - 1; column >= 0; --column)  // stable sorts, from the last column to the first
    order = take(order, sort(take(rows.select(1, column), order), 0).indices);
  const Runs runs = runs_of_rows(index_select(rows, 0, order));
  const Tensor inverse = scatter(empty_like(runs.number), 0, order, runs.number);
  return {index_select(x.detach(), dim, take(order, runs.starts)), inverse, runs.counts};
}

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

}  // namespace tern
