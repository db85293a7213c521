// Cumulative products, extremes and log-sums: elements are combined over distances 1, 2, 4, ..., so that a dimension of
// n elements takes log2(n) ops, whose derivatives are right at zeros and infinities too.

#include <functional>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/indexing.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/reduce.h"
#include "tern/core/ops/reduction.h"
#include "tern/core/ops/sort.h"

namespace tern {
namespace {

using Parts = std::vector<Tensor>;

/// y[j] = x[0] * ... * x[j] along dim for the associative operation `combine` of (earlier, later) elements. An element
/// consists of one of each of the tensors.
Parts combined_up_to(Parts y, int dim, const std::function<Parts(const Parts&, const Parts&)>& combine) {
  const int64_t size = y[0].size(dim);
  for (int64_t distance = 1; distance < size; distance *= 2) {
    Parts earlier, later;
    for (const Tensor& part : y) {
      earlier.push_back(part.slice(dim, 0, size - distance));
      later.push_back(part.slice(dim, distance));
    }
    const Parts both = combine(earlier, later);
    for (size_t i = 0; i < y.size(); ++i) y[i] = cat({y[i].slice(dim, 0, distance), both[i]}, dim);
  }
  return y;
}

/// The same in fp32 for 16-bit floats; a tensor without dimensions is its own result.
Tensor combined_numbers(const Tensor& input, int dim, Tensor (*combine)(const Tensor&, const Tensor&)) {
  Tensor x = input;
  detail::autocast_inputs("cumsum", {&x});
  const int d = x.dim() == 0 ? x.reshape({1}).shape().wrap(dim) : x.shape().wrap(dim);
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::kInt64;
  if (x.dim() == 0) return x.to(dtype).clone();
  const Tensor wide = x.to(is_floating(dtype) ? detail::accumulation_type(dtype) : dtype).clone();
  const auto both = [combine](const Parts& a, const Parts& b) { return Parts{combine(a[0], b[0])}; };
  return combined_up_to({wide}, d, both)[0].to(dtype);
}

SortResult cumulative_extreme(const Tensor& x, int dim, bool largest) {
  const Tensor whole = x.dim() == 0 ? x.reshape({1}) : x;
  const int d = whole.shape().wrap(dim);
  std::vector<int64_t> sizes(static_cast<size_t>(whole.dim()), 1);
  sizes[static_cast<size_t>(d)] = whole.size(d);
  const auto indices = [&] {
    const NoGrad off;
    const Tensor places = arange(0, static_cast<double>(whole.size(d)), 1, {DType::kInt64, x.device()});
    const Parts start = {whole.detach(), places.reshape(sizes).expand(whole.shape())};
    return combined_up_to(start, d, [largest](const Parts& earlier, const Parts& later) {
      const Tensor better = largest ? ge(later[0], earlier[0]) : le(later[0], earlier[0]);
      const Tensor takes = logical_or(isnan(later[0]), logical_and(better, logical_not(isnan(earlier[0]))));
      return Parts{where(takes, later[0], earlier[0]), where(takes, later[1], earlier[1])};
    })[1];
  }();
  return {gather(whole, d, indices).reshape(x.shape()), indices.contiguous().reshape(x.shape())};
}

}  // namespace

Tensor cumprod(const Tensor& x, int dim) { return combined_numbers(x, dim, mul); }
Tensor logcumsumexp(const Tensor& x, int dim) {
  TERN_CHECK(is_floating(x.dtype()), "logcumsumexp: expected a floating tensor, got ", x.dtype(),
             "; convert with to(float32)");
  return combined_numbers(x, dim, logaddexp);
}
SortResult cummax(const Tensor& x, int dim) { return cumulative_extreme(x, dim, true); }
SortResult cummin(const Tensor& x, int dim) { return cumulative_extreme(x, dim, false); }

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

Tensor diff(const Tensor& x, int64_t n, int dim) {
  TERN_CHECK(n >= 0, "diff: n must not be negative, got ", n);
  const int d = x.shape().wrap(dim);
  Tensor y = x;
  for (int64_t i = 0; i < n && y.size(d) > 0; ++i) {
    const Tensor later = y.slice(d, 1), earlier = y.slice(d, 0, y.size(d) - 1);
    y = x.dtype() == DType::kBool ? ne(later, earlier) : sub(later, earlier);
  }
  return n == 0 ? x.clone() : y;
}

}  // namespace tern
