#include "tern/core/ops/sort/unique.h"

#include <algorithm>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/index.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/indexing/nonzero.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/sort/sort.h"

namespace tern {
namespace {

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

/// The slices of x along dim as rows.
Tensor rows_along(const Tensor& x, int dim) {
  const Tensor front = x.movedim(dim, 0);
  return front.reshape({front.size(0), front.numel() / std::max<int64_t>(front.size(0), 1)});
}

}  // namespace

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

}  // namespace tern
