#include "tern/core/ops/sort/quantile.h"

#include <cmath>
#include <tuple>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/sort/columns.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/sort.h"

namespace tern {
namespace {

using detail::Along, detail::check_columns, detail::count_cols, detail::count_rows, detail::scatter_columns;

/// One element of each row of contiguous x; returns values and indices.
struct SelectElement final : TwiceDifferentiable<SelectElement> {
  static constexpr const char* kName = "select_element";
  Saved index_;
  int64_t cols_ = 0;
  std::vector<Tensor> forward(const Tensor& x, kernels::Selection which, int64_t place) {
    cols_ = count_cols(x);
    const Shape shape = x.shape().with(-1, 1);
    const Tensor values = empty(shape, x.options()), index = empty(shape, {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(),
                              [&] { return kernels::select_rows_workspace(stream, count_rows(x), cols_, x.dtype()); });
    kernels::select_rows(stream, x.view(), which, place, workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override { return {scatter_columns(dy, index_.get(), cols_)}; }
};

/// Elements and their indices along dim, which has size 1 in the results. x has a dimension of at least one element;
/// `place` is used by kPlace.
SortResult select_along(const char* op, const Tensor& x, int dim, kernels::Selection which, int64_t place = 0) {
  const Along along(x, dim);
  check_columns(op, along.last());
  return along.back(SelectElement::apply(along.last(), which, place));
}

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
  return without_dim(x, select_along(op, sortable(op, x, dim), dim, which), dim, keepdim);
}

/// The median of all elements, whose gradient those that equal it share.
struct MedianOfAll final : TwiceDifferentiable<MedianOfAll> {
  static constexpr const char* kName = "median";
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

}  // namespace

SortResult kthvalue(const Tensor& x, int64_t k, int dim, bool keepdim) {
  const Tensor whole = sortable("kthvalue", x, dim);
  TERN_CHECK(k >= 1 && k <= whole.size(dim), "kthvalue: k must be in [1, ", whole.size(dim), "], got ", k);
  const SortResult selected = select_along("kthvalue", whole, dim, kernels::Selection::kPlace, k - 1);
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

SortResult mode(const Tensor& x, int dim, bool keepdim) {
  const Tensor whole = x.dim() == 0 ? x.reshape({1}) : x;
  const int d = whole.shape().wrap(dim);
  TERN_CHECK(whole.size(d) > 0, "mode: dimension ", dim, " of ", x.shape(), " has no elements");
  const SortResult sorted = sort(whole, d);
  const Tensor last = [&] {
    const NoGrad off;
    const Tensor values = sorted.values.detach();
    const Tensor differs = ne(values.slice(d, 1), values.slice(d, 0, whole.size(d) - 1));
    const Tensor begins = cat({ones(whole.shape().with(d, 1), differs.options()), differs}, d);
    std::vector<int64_t> sizes(static_cast<size_t>(whole.dim()), 1);
    sizes[static_cast<size_t>(d)] = whole.size(d);
    const Tensor places = arange(0, static_cast<double>(whole.size(d)), 1, {DType::kInt64, x.device()}).reshape(sizes);
    // The first of the longest runs is that of the smallest value; its last element has the run's length.
    return argmax(places - cummax(where(begins, places, 0.0), d).values, d, true);
  }();
  const auto result = [&](const Tensor& y) {
    const Tensor at = gather(y, d, last);
    return x.dim() == 0 ? at.reshape(Shape{}) : keepdim ? at : at.select(d, 0);
  };
  return {result(sorted.values), result(sorted.indices)};
}

}  // namespace tern
