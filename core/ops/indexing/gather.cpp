#include "tern/core/ops/indexing/gather.h"

#include <algorithm>

#include "tern/core/autograd/function.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/ops/indexing/scatter_call.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/embedding.h"

namespace tern {
namespace {

/// A look-up reads the elements that it writes and their indices, not all of its first input.
void count_bytes(const Tensor& y, const Tensor& index) {
  if (profiling()) profile_bytes(static_cast<double>(2 * y.nbytes() + index.nbytes()));
}

/// Sums dy's rows by id into the embedding's gradient, weight [shape].
Tensor add_up_rows(const Tensor& dy, const Tensor& ids, const Shape& shape, DType dtype, int64_t padding_index) {
  const kernels::Stream stream = current_stream(dy.device());
  const Tensor dweight = empty(shape, {dtype, dy.device()});
  const Workspace workspace(
      dy.device(), [&] { return kernels::embedding_backward_workspace(stream, ids.numel(), shape[0], shape[1]); });
  kernels::embedding_backward(stream, dy.view(), ids.view(), padding_index, workspace.data(), dweight.view());
  return dweight;
}

/// The embedding's gradient as an op; the gradient of this op is the look-up, 0 at the padding.
struct EmbeddingGradient final : TwiceDifferentiable<EmbeddingGradient> {
  static constexpr const char* kName = "embedding_gradient";
  Saved ids_;
  int64_t padding_index_ = -1;

  Tensor forward(const Tensor& dy, const Tensor& ids, const Shape& shape, DType dtype, int64_t padding_index) {
    ids_ = ids;
    padding_index_ = padding_index;
    return add_up_rows(dy, ids, shape, dtype, padding_index);
  }
  Grads backward(const Tensor& g) override {
    const Tensor ids = ids_.get(), rows = embedding(g, ids, padding_index_);
    if (padding_index_ < 0) return {rows, {}};
    const Tensor padding = full({}, static_cast<double>(padding_index_), ids.options());
    return {mul(rows, ne(ids, padding).to(rows.dtype()).unsqueeze(1)), {}};
  }
};

/// Rows of weight; ids are one-dimensional.
struct Embedding final : TwiceDifferentiable<Embedding> {
  static constexpr const char* kName = "embedding";
  Saved ids_;
  Shape shape_;
  DType dtype_ = DType::kFloat32;
  int64_t padding_index_ = -1;

  /// `op` and `what` are used in errors: "embedding" and "id".
  Tensor forward(const Tensor& weight, const Tensor& ids, int64_t padding_index, const char* op, const char* what) {
    ids_ = ids;
    shape_ = weight.shape();
    dtype_ = weight.dtype();
    padding_index_ = padding_index;
    const Tensor y = empty({ids.numel(), weight.size(1)}, weight.options());
    IndexCheck check(op, weight.device());
    kernels::embedding_forward(current_stream(weight.device()), weight.view(), ids.view(), y.view(), check.data());
    const int64_t first = check.found().first;
    TERN_CHECK(check.passed(), op, ": ", what, " ", ids[first].item<int64_t>(), " at position ", first,
               " is outside [0, ", weight.size(0), ") (", check.found().count, " in all)");
    count_bytes(y, ids);
    return y;
  }

  Grads backward(const Tensor& gradient) override {
    const Tensor dy = gradient.contiguous(), ids = ids_.get();
    if (grad_enabled()) return {EmbeddingGradient::apply(dy, ids, shape_, dtype_, padding_index_), {}};
    return {add_up_rows(dy, ids, shape_, dtype_, padding_index_), {}};
  }
};

Tensor add_up_along(const Tensor& dy, const Tensor& index, int dim, const Shape& shape) {
  const Tensor dx = zeros(shape, dy.options());
  detail::scatter_into(dx, kernels::ScatterMode::kAdd, dim, index, dy, nullptr);
  return dx;
}

/// The gradient of gather as an op; the gradient of this op is gather.
struct GatherGradient final : TwiceDifferentiable<GatherGradient> {
  static constexpr const char* kName = "gather_gradient";
  Saved index_;
  int dim_ = 0;
  Tensor forward(const Tensor& dy, const Tensor& index, int dim, const Shape& shape) {
    index_ = index;
    dim_ = dim;
    return add_up_along(dy, index, dim, shape);
  }
  Grads backward(const Tensor& g) override { return {gather(g, dim_, index_.get()), {}}; }
};

struct Gather final : TwiceDifferentiable<Gather> {
  static constexpr const char* kName = "gather";
  Saved index_;
  Shape shape_;
  int dim_ = 0;
  Tensor forward(const Tensor& x, const Tensor& index, int dim, const char* op) {
    index_ = index;
    shape_ = x.shape();
    dim_ = dim;
    const Tensor y = empty(index.shape(), x.options());
    IndexCheck check(op, x.device());
    kernels::gather(current_stream(x.device()), x.view(), dim, index.view(), y.view(), check.data());
    TERN_CHECK(check.passed(), op, ": ", detail::describe_fault(check.found(), index, dim, 0, x.size(dim)));
    count_bytes(y, index);
    return y;
  }
  Grads backward(const Tensor& dy) override {
    if (grad_enabled()) return {GatherGradient::apply(dy, index_.get(), dim_, shape_), {}};
    return {add_up_along(dy, index_.get(), dim_, shape_), {}};
  }
};

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& ids, int64_t padding_index) {
  TERN_CHECK(weight.dim() == 2, "embedding: weight must be [count, width], got ", weight.shape());
  TERN_CHECK(ids.dtype() == DType::kInt64 || ids.dtype() == DType::kInt32,
             "embedding: ids must be int64 or int32, got ", ids.dtype());
  TERN_CHECK(padding_index >= -1 && padding_index < weight.size(0), "embedding: padding_index ", padding_index,
             " is outside [0, ", weight.size(0), ")");
  std::vector<int64_t> sizes = ids.shape().vec();
  sizes.push_back(weight.size(1));
  return Embedding::apply(weight.contiguous(), ids.contiguous().reshape({-1}), padding_index, "embedding", "id")
      .reshape(sizes);
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  if (x.dim() == 0 && index.dim() == 0) return gather(x.reshape({1}), dim, index.reshape({1})).reshape(Shape{});
  const int i = x.shape().wrap(dim);
  TERN_CHECK(index.dtype() == DType::kInt64 && index.dim() == x.dim(), "gather: index must be int64 with ", x.dim(),
             " dimensions, got ", index.describe(), "; convert with .to(int64), and use index_select for a vector");
  for (int e = 0; e < x.dim(); ++e)
    TERN_CHECK(e == i || index.shape()[e] <= x.shape()[e], "gather: index ", index.shape(), " is larger than x ",
               x.shape(), " in dimension ", e);
  return Gather::apply(x, index, i, "gather");
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  const int i = x.shape().wrap(dim);
  TERN_CHECK(index.dim() == 1 && (index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32),
             "index_select: index must be int64 or int32 with one dimension, got ", index.describe());
  detail::check_one_device("index_select", {&x, &index});
  if (i == 0 && x.dim() >= 2) {
    // Rows are selected by the embedding kernels.
    std::vector<int64_t> sizes = x.shape().vec();
    sizes[0] = index.numel();
    const Tensor flat = x.contiguous().reshape({x.size(0), x.numel() / std::max<int64_t>(x.size(0), 1)});
    return Embedding::apply(flat, index.contiguous(), int64_t{-1}, "index_select", "index").reshape(sizes);
  }
  std::vector<int64_t> column(static_cast<size_t>(x.dim()), 1);
  column[static_cast<size_t>(i)] = index.numel();
  return Gather::apply(x, index.to(DType::kInt64).reshape(column).expand(x.shape().with(i, index.numel())), i,
                       "index_select");
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim) {
  TERN_CHECK(x.dim() == index.dim() && x.dim() > 0, "take_along_dim: x and index must have as many dimensions, got ",
             x.shape(), " and ", index.shape());
  const int d = x.shape().wrap(dim);
  const Shape others = broadcast_shapes("take_along_dim", x.shape().with(d, 1), index.shape().with(d, 1));
  return gather(x.expand(others.with(d, x.size(d))), d, index.expand(others.with(d, index.size(d))));
}

Tensor take_along_dim(const Tensor& x, const Tensor& index) { return take_along_dim(x.flatten(), index.flatten(), 0); }

}  // namespace tern
