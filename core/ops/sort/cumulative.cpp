// Cumulative log-sums: elements are combined over distances 1, 2, 4, ..., so that a dimension of n elements takes
// log2(n) ops, whose derivatives are right at infinities too. Modes and differences.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/indexing/indexing.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/sort/sort.h"

namespace tern {
namespace {

/// y[j] = log(exp(x[0]) + ... + exp(x[j])) along dim, in fp32 for 16-bit floats.
Tensor log_sums_up_to(const Tensor& input, int dim) {
  Tensor x = input;
  detail::autocast_inputs("cumsum", {&x});
  const int d = x.dim() == 0 ? x.reshape({1}).shape().wrap(dim) : x.shape().wrap(dim);
  if (x.dim() == 0) return x.clone();
  Tensor y = x.to(detail::accumulation_type(x.dtype())).clone();
  const int64_t size = y.size(d);
  for (int64_t distance = 1; distance < size; distance *= 2)
    y = cat({y.slice(d, 0, distance), logaddexp(y.slice(d, 0, size - distance), y.slice(d, distance))}, d);
  return y.to(x.dtype());
}

}  // namespace

Tensor logcumsumexp(const Tensor& x, int dim) {
  TERN_CHECK(is_floating(x.dtype()), "logcumsumexp: expected a floating tensor, got ", x.dtype(),
             "; convert with to(float32)");
  return log_sums_up_to(x, dim);
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

Tensor diff(const Tensor& x, int64_t n, int dim, const Tensor& prepend, const Tensor& append) {
  TERN_CHECK(n >= 0, "diff: n must not be negative, got ", n);
  const int d = x.shape().wrap(dim);
  std::vector<Tensor> parts;
  for (const Tensor* part : {&prepend, &x, &append}) {
    if (!part->defined()) continue;
    TERN_CHECK(part->dim() == x.dim(), "diff: prepend and append must have the ", x.dim(), " dimensions of x, got ",
               part->shape());
    parts.push_back(*part);
  }
  Tensor y = cat(parts, d);
  for (int64_t i = 0; i < n && y.size(d) > 0; ++i) {
    const Tensor later = y.slice(d, 1), earlier = y.slice(d, 0, y.size(d) - 1);
    y = y.dtype() == DType::kBool ? ne(later, earlier) : sub(later, earlier);
  }
  return n == 0 ? x.clone() : y;
}

}  // namespace tern
