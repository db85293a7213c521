#include "tern/core/ops/sort/search.h"

#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/index.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/kernels/sort.h"

namespace tern {

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "searchsorted", [](const auto&... all) { return searchsorted(all...); }, sorted, values, right);
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

}  // namespace tern
