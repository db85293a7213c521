#include "tern/core/ops/sort/sort.h"

#include "tern/core/autograd/function.h"
#include "tern/core/ops/sort/columns.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/sort.h"

namespace tern {
namespace {

using detail::Along, detail::check_columns, detail::count_cols, detail::count_rows, detail::scatter_columns;

/// Sorts contiguous x along its last dimension; returns values and indices.
struct Sort final : TwiceDifferentiable<Sort> {
  static constexpr const char* kName = "sort";
  Saved index_;
  std::vector<Tensor> forward(const Tensor& x, bool descending) {
    const Tensor values = empty(x.shape(), x.options()), index = empty(x.shape(), {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(
        x.device(), [&] { return kernels::sort_rows_workspace(stream, count_rows(x), count_cols(x), x.dtype()); });
    kernels::sort_rows(stream, x.view(), descending, workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override { return {scatter_columns(dy, index_.get(), count_cols(dy))}; }
};

struct TopK final : TwiceDifferentiable<TopK> {
  static constexpr const char* kName = "topk";
  Saved index_;
  int64_t cols_ = 0;
  std::vector<Tensor> forward(const Tensor& x, int64_t k, bool largest, bool sorted) {
    cols_ = count_cols(x);
    const Shape shape = x.shape().with(-1, k);
    const Tensor values = empty(shape, x.options()), index = empty(shape, {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(
        x.device(), [&] { return kernels::top_k_rows_workspace(stream, count_rows(x), cols_, k, x.dtype()); });
    kernels::top_k_rows(stream, x.view(), largest, sorted, workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override { return {scatter_columns(dy, index_.get(), cols_)}; }
};

}  // namespace

SortResult sort(const Tensor& x, int dim, bool descending) {
  const Along along(x, dim);
  check_columns("sort", along.last());
  return along.back(Sort::apply(along.last(), descending));
}

Tensor argsort(const Tensor& x, int dim, bool descending) { return sort(x.detach(), dim, descending).indices; }

SortResult topk(const Tensor& x, int64_t k, int dim, bool largest, bool sorted) {
  const Along along(x, dim);
  check_columns("topk", along.last());
  TERN_CHECK(k >= 0 && k <= count_cols(along.last()), "topk: k must be in [0, ", count_cols(along.last()),
             "], the size of dimension ", dim, " of ", x.shape(), ", got ", k);
  return along.back(TopK::apply(along.last(), k, largest, sorted));
}

}  // namespace tern
