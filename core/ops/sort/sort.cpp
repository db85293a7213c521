#include "tern/core/ops/sort/sort.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/device/capture_state.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/ops/indexing/indexing.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/sort/selection.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/embedding.h"
#include "tern/kernels/scan.h"
#include "tern/kernels/sort.h"

namespace tern {
namespace {

constexpr int64_t kMaxColumns = (int64_t{1} << 32) - 2;

int64_t rows_of(const Tensor& x) { return x.const_view().rows(); }
int64_t cols_of(const Tensor& x) { return x.const_view().cols(); }

// Both work along the last dimension, in which no index repeats; each is the gradient of the other.

Tensor take_columns(const Tensor& x, const Tensor& index);
Tensor scatter_columns(const Tensor& y, const Tensor& index, int64_t cols);

/// y[..., j] = x[..., index[..., j]]
struct TakeColumns final : Function<TakeColumns> {
  static constexpr const char* kName = "take_columns";
  static constexpr bool kTwiceDifferentiable = true;
  Saved index_;
  int64_t cols_ = 0;
  Tensor forward(const Tensor& x, const Tensor& index) {
    index_ = index;
    cols_ = cols_of(x);
    const Tensor y = empty(index.shape(), x.options());
    IndexCheck check(kName, x.device());
    kernels::gather(current_stream(x.device()), x.view(), x.dim() - 1, index.view(), y.view(), check.data());
    TERN_CHECK(check.passed(), kName, ": ", check.found().count, " indices are outside [0, ", cols_, ")");
    if (profiling()) profile_bytes(static_cast<double>(2 * y.nbytes() + index.nbytes()));  // not all of x
    return y;
  }
  Grads backward(const Tensor& dy) override { return {scatter_columns(dy, index_.get(), cols_), {}}; }
};

/// x[..., index[..., j]] = y[..., j], other elements 0; `cols` elements per row.
struct ScatterColumns final : Function<ScatterColumns> {
  static constexpr const char* kName = "scatter_columns";
  static constexpr bool kTwiceDifferentiable = true;
  Saved index_;
  Tensor forward(const Tensor& y, const Tensor& index, int64_t cols) {
    index_ = index;
    const Tensor x = empty(y.shape().with(-1, cols), y.options());
    kernels::scatter_rows(current_stream(y.device()), y.contiguous().view(), index.view(), x.view());
    return x;
  }
  Grads backward(const Tensor& dx) override { return {take_columns(dx, index_.get()), {}}; }
};

Tensor take_columns(const Tensor& x, const Tensor& index) { return TakeColumns::apply(x, index); }
Tensor scatter_columns(const Tensor& y, const Tensor& index, int64_t cols) {
  return ScatterColumns::apply(y, index, cols);
}

/// Sorts contiguous x along its last dimension; returns values and indices.
struct Sort final : Function<Sort> {
  static constexpr const char* kName = "sort";
  static constexpr bool kTwiceDifferentiable = true;
  Saved index_;
  std::vector<Tensor> forward(const Tensor& x, bool descending) {
    const Tensor values = empty(x.shape(), x.options()), index = empty(x.shape(), {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(),
                              [&] { return kernels::sort_rows_workspace(stream, rows_of(x), cols_of(x), x.dtype()); });
    kernels::sort_rows(stream, x.view(), descending, workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override { return {scatter_columns(dy, index_.get(), cols_of(dy))}; }
};

struct TopK final : Function<TopK> {
  static constexpr const char* kName = "topk";
  static constexpr bool kTwiceDifferentiable = true;
  Saved index_;
  int64_t cols_ = 0;
  std::vector<Tensor> forward(const Tensor& x, int64_t k, bool largest, bool sorted) {
    cols_ = cols_of(x);
    const Shape shape = x.shape().with(-1, k);
    const Tensor values = empty(shape, x.options()), index = empty(shape, {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(),
                              [&] { return kernels::top_k_rows_workspace(stream, rows_of(x), cols_, k, x.dtype()); });
    kernels::top_k_rows(stream, x.view(), largest, sorted, workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override { return {scatter_columns(dy, index_.get(), cols_)}; }
};

/// Cumulative sums of contiguous x along its last dimension.
struct CumulativeSum final : Function<CumulativeSum> {
  static constexpr const char* kName = "cumsum";
  static constexpr bool kTwiceDifferentiable = true;
  bool reverse_ = false;
  Tensor forward(const Tensor& x, bool reverse) {
    reverse_ = reverse;
    const Tensor y = empty(x.shape(), {is_floating(x.dtype()) ? x.dtype() : DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(
        x.device(), [&] { return kernels::cumulative_sum_workspace(stream, rows_of(x), cols_of(x), x.dtype()); });
    kernels::cumulative_sum(stream, x.view(), reverse, workspace.data(), y.view());
    return y;
  }
  Grads backward(const Tensor& dy) override { return {CumulativeSum::apply(dy.contiguous(), !reverse_)}; }
};

/// One element of each row of contiguous x; returns values and indices.
struct SelectElement final : Function<SelectElement> {
  static constexpr const char* kName = "select_element";
  static constexpr bool kTwiceDifferentiable = true;
  Saved index_;
  int64_t cols_ = 0;
  std::vector<Tensor> forward(const Tensor& x, kernels::Selection which, int64_t place) {
    cols_ = cols_of(x);
    const Shape shape = x.shape().with(-1, 1);
    const Tensor values = empty(shape, x.options()), index = empty(shape, {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(),
                              [&] { return kernels::select_rows_workspace(stream, rows_of(x), cols_, x.dtype()); });
    kernels::select_rows(stream, x.view(), which, place, workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override { return {scatter_columns(dy, index_.get(), cols_)}; }
};

/// y[..., j - 1] where y is contiguous, and `first` in column 0.
Tensor one_before(const Tensor& y, double first) {
  const Tensor start = full(y.shape().with(-1, 1), first, y.options());
  return cat({start, y.slice(-1, 0, cols_of(y) - 1)}, -1);
}

/// y[..., j] = a[..., j] * y[..., j - 1] + b[..., j] along the last dimension, or from its end, as the kernel says.
struct LinearRecurrence final : Function<LinearRecurrence> {
  static constexpr const char* kName = "linear_recurrence";
  static constexpr bool kTwiceDifferentiable = true;
  Saved a_;
  SavedOutput y_;
  bool reverse_ = false;
  Tensor forward(const Tensor& a, const Tensor& b, bool reverse) {
    a_ = a;
    reverse_ = reverse;
    const Tensor y = empty(b.shape(), b.options());
    kernels::linear_recurrence(current_stream(b.device()), a.view(), b.view(), reverse, y.view());
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor y = y_.get(), db = LinearRecurrence::apply(a_.get(), dy.contiguous(), !reverse_);
    return {reverse_ ? mul(one_before(db, 0), y) : mul(db, one_before(y, 0)), db};
  }
};

/// Cumulative products of contiguous x along its last dimension. The derivative of later products by an element is a
/// recurrence, which divides by none of them.
struct CumulativeProduct final : Function<CumulativeProduct> {
  static constexpr const char* kName = "cumprod";
  static constexpr bool kTwiceDifferentiable = true;
  Saved x_;
  SavedOutput y_;
  Tensor forward(const Tensor& x) {
    x_ = x;
    const Tensor y = empty(x.shape(), {is_floating(x.dtype()) ? x.dtype() : DType::kInt64, x.device()});
    kernels::cumulative_product(current_stream(x.device()), x.view(), y.view());
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    if (dy.numel() == 0) return {dy};
    return {mul(LinearRecurrence::apply(x_.get(), dy.contiguous(), true), one_before(y_.get(), 1))};
  }
};

/// Running extremes of contiguous x along its last dimension; returns values and indices.
struct CumulativeExtreme final : Function<CumulativeExtreme> {
  static constexpr const char* kName = "cumulative_extreme";
  static constexpr bool kTwiceDifferentiable = true;
  Saved index_;
  std::vector<Tensor> forward(const Tensor& x, bool largest) {
    const Tensor values = empty(x.shape(), x.options()), index = empty(x.shape(), {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(
        x.device(), [&] { return kernels::cumulative_extreme_workspace(stream, rows_of(x), cols_of(x), x.dtype()); });
    kernels::cumulative_extreme(stream, largest, x.view(), workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override {  // an index may repeat
    return {scatter_add(zeros(dy.shape(), dy.options()), -1, index_.get(), dy)};
  }
};

/// Moves dimension d of x to the end, contiguous, and moves it back in results.
class Along {
 public:
  Along(const Tensor& x, int dim) : scalar_(x.dim() == 0) {
    const Tensor whole = scalar_ ? x.reshape({1}) : x;
    dim_ = whole.shape().wrap(dim);
    last_ = whole.transpose(dim_, -1).contiguous();
  }
  const Tensor& last() const { return last_; }
  /// For a scalar x a result with other than one element keeps its dimension.
  Tensor back(const Tensor& y) const { return scalar_ && y.numel() == 1 ? y.reshape(Shape{}) : y.transpose(dim_, -1); }
  SortResult back(const std::vector<Tensor>& y) const { return {back(y[0]), back(y[1])}; }

 private:
  bool scalar_;
  int dim_ = 0;
  Tensor last_;
};

void check_columns(const char* op, const Tensor& x) {
  TERN_CHECK(cols_of(x) <= kMaxColumns, op, ": at most ", kMaxColumns, " elements along the dimension, got ",
             cols_of(x));
}

/// The positions of the set elements of a mask, in row-major order: int64 [count].
Tensor positions_of(const char* op, const Tensor& mask) {
  if (mask.device().is_cuda()) detail::forbid_while_recording(op);
  const NoGrad off;
  const Tensor flags = mask.contiguous();
  const int64_t count = sum(flags).item<int64_t>();
  const Tensor positions = empty({count}, {DType::kInt64, mask.device()});
  const kernels::Stream stream = current_stream(mask.device());
  const Workspace workspace(mask.device(), [&] { return kernels::select_positions_workspace(stream, flags.numel()); });
  kernels::select_positions(stream, flags.view(), workspace.data(), positions.view());
  return positions;
}

}  // namespace

SortResult sort(const Tensor& x, int dim, bool descending) {
  const Along along(x, dim);
  check_columns("sort", along.last());
  return along.back(Sort::apply(along.last(), descending));
}

Tensor argsort(const Tensor& x, int dim, bool descending) { return sort(x.detach(), dim, descending).indices; }

SortResult detail::select_along(const char* op, const Tensor& x, int dim, kernels::Selection which, int64_t place) {
  const Along along(x, dim);
  check_columns(op, along.last());
  return along.back(SelectElement::apply(along.last(), which, place));
}

SortResult topk(const Tensor& x, int64_t k, int dim, bool largest, bool sorted) {
  const Along along(x, dim);
  check_columns("topk", along.last());
  TERN_CHECK(k >= 0 && k <= cols_of(along.last()), "topk: k must be in [0, ", cols_of(along.last()),
             "], the size of dimension ", dim, " of ", x.shape(), ", got ", k);
  return along.back(TopK::apply(along.last(), k, largest, sorted));
}

Tensor cumsum(const Tensor& input, int dim) {
  Tensor x = input;
  detail::autocast_inputs("cumsum", {&x});
  const Along along(x, dim);
  return along.back(CumulativeSum::apply(along.last(), false));
}

Tensor cumprod(const Tensor& input, int dim) {
  Tensor x = input;
  detail::autocast_inputs("cumsum", {&x});
  const Along along(x, dim);
  return along.back(CumulativeProduct::apply(along.last()));
}

SortResult cummax(const Tensor& x, int dim) {
  const Along along(x, dim);
  return along.back(CumulativeExtreme::apply(along.last(), true));
}

SortResult cummin(const Tensor& x, int dim) {
  const Along along(x, dim);
  return along.back(CumulativeExtreme::apply(along.last(), false));
}

Tensor nonzero(const Tensor& x) {
  const Tensor positions = positions_of("nonzero", x.detach().to(DType::kBool));
  const Tensor indices = empty({positions.numel(), x.dim()}, positions.options());
  kernels::unravel_positions(current_stream(x.device()), positions.view(), x.dim(), x.shape().data(), indices.view());
  return indices;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  TERN_CHECK(mask.dtype() == DType::kBool, "masked_select: the mask must be bool, got ", mask.describe(),
             "; compare first, as in masked_select(x, gt(x, y))");
  detail::check_one_device("masked_select", {&x, &mask});
  const Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  const Tensor positions = positions_of("masked_select", mask.expand(shape));
  return take_columns(x.expand(shape).reshape({shape.numel()}), positions);
}

}  // namespace tern
