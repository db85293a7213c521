#include "tern/core/ops/sort/cumulative.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/sort/columns.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/scan.h"

namespace tern {
namespace {

using detail::Along, detail::count_cols, detail::count_rows;

/// Cumulative sums of contiguous x along its last dimension.
struct CumulativeSum final : TwiceDifferentiable<CumulativeSum> {
  static constexpr const char* kName = "cumsum";
  bool reverse_ = false;
  Tensor forward(const Tensor& x, bool reverse) {
    reverse_ = reverse;
    const Tensor y = empty(x.shape(), {is_floating(x.dtype()) ? x.dtype() : DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(
        x.device(), [&] { return kernels::cumulative_sum_workspace(stream, count_rows(x), count_cols(x), x.dtype()); });
    kernels::cumulative_sum(stream, x.view(), reverse, workspace.data(), y.view());
    return y;
  }
  Grads backward(const Tensor& dy) override { return {CumulativeSum::apply(dy.contiguous(), !reverse_)}; }
};

/// y[..., j - 1] where y is contiguous, and `first` in column 0.
Tensor one_before(const Tensor& y, double first) {
  const Tensor start = full(y.shape().with(-1, 1), first, y.options());
  return cat({start, y.slice(-1, 0, count_cols(y) - 1)}, -1);
}

/// y[..., j] = a[..., j] * y[..., j - 1] + b[..., j] along the last dimension, or from its end, as the kernel says.
struct LinearRecurrence final : TwiceDifferentiable<LinearRecurrence> {
  static constexpr const char* kName = "linear_recurrence";
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
/// recurrence, which divides by none of them. It is the product of two numbers that may exceed what 16 bits hold where
/// the derivative does not, and is 0 where the elements before have a 0, whatever the later products are.
struct CumulativeProduct final : TwiceDifferentiable<CumulativeProduct> {
  static constexpr const char* kName = "cumprod";
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
    const DType dtype = dy.dtype(), wide = detail::accumulation_type(dtype);
    const Tensor x = x_.get().to(wide), y = dtype == wide ? y_.get() : CumulativeProduct::apply(x);
    const Tensor earlier = one_before(y, 1), later = LinearRecurrence::apply(x, dy.to(wide).contiguous(), true);
    // Only infinity: the gradient of this gradient needs the finite ones.
    const Tensor overflowed = logical_and(earlier == 0.0, logical_not(isfinite(later)));
    return {mul(where(overflowed, 0.0, later), earlier).to(dtype)};
  }
};

/// Running extremes of contiguous x along its last dimension; returns values and indices.
struct CumulativeExtreme final : TwiceDifferentiable<CumulativeExtreme> {
  static constexpr const char* kName = "cumulative_extreme";
  Saved index_;
  std::vector<Tensor> forward(const Tensor& x, bool largest) {
    const Tensor values = empty(x.shape(), x.options()), index = empty(x.shape(), {DType::kInt64, x.device()});
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(), [&] {
      return kernels::cumulative_extreme_workspace(stream, count_rows(x), count_cols(x), x.dtype());
    });
    kernels::cumulative_extreme(stream, largest, x.view(), workspace.data(), values.view(), index.view());
    index_ = index;
    return {values, index};
  }
  Grads backward(const Tensor& dy) override {  // an index may repeat
    return {scatter_add(zeros(dy.shape(), dy.options()), -1, index_.get(), dy)};
  }
};

/// a - b, and 0 where they are equal, infinities too.
Tensor difference(const Tensor& a, const Tensor& b) { return where(a == b, 0.0, a - b); }

/// Logarithms of cumulative sums of exp(x), contiguous, along its last dimension. With the largest element m so far
/// such a sum is exp(m) (1 + r), where r, the others' share, is a recurrence: an x above m makes 1 + r smaller by exp(m
/// - x) and is the new 1, and another adds exp(x - m). No exponential exceeds 1.
struct LogCumulativeSum final : TwiceDifferentiable<LogCumulativeSum> {
  static constexpr const char* kName = "logcumsumexp";
  Saved x_;
  SavedOutput y_;
  Tensor forward(const Tensor& x) {
    x_ = x;
    const Tensor largest = cummax(x, -1).values, rise = difference(x, one_before(largest, -INFINITY));
    const Tensor added = exp(neg(abs(rise))), kept = where(rise > 0.0, added, 1.0);
    const Tensor y = largest + log1p(LinearRecurrence::apply(kept, added, false));
    y_ = y;
    return y;
  }
  /// exp(x[i] - y[j]) is the product of exp(x[i] - y[i]) and the steps from y[i] to y[j], which never falls.
  Grads backward(const Tensor& dy) override {
    if (dy.numel() == 0) return {dy};
    const Tensor y = y_.get(), kept = exp(difference(one_before(y, -INFINITY), y));
    return {mul(LinearRecurrence::apply(kept, dy.contiguous(), true), exp(difference(x_.get(), y)))};
  }
};

}  // namespace

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

Tensor logcumsumexp(const Tensor& input, int dim) {
  TERN_CHECK(is_floating(input.dtype()), "logcumsumexp: expected a floating tensor, got ", input.dtype(),
             "; convert with to(float32)");
  Tensor x = input;
  detail::autocast_inputs("cumsum", {&x});
  const detail::Along along(x.to(detail::accumulation_type(x.dtype())), dim);
  const Tensor last = along.last();
  return along.back(last.numel() == 0 ? last.clone() : LogCumulativeSum::apply(last)).to(x.dtype());
}

SortResult cummax(const Tensor& x, int dim) {
  const Along along(x, dim);
  return along.back(CumulativeExtreme::apply(along.last(), true));
}

SortResult cummin(const Tensor& x, int dim) {
  const Along along(x, dim);
  return along.back(CumulativeExtreme::apply(along.last(), false));
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
