#include "tern/core/ops/sort/columns.h"

#include "tern/core/autograd/function.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/embedding.h"
#include "tern/kernels/sort.h"

namespace tern {
namespace {

constexpr int64_t kMaxColumns = (int64_t{1} << 32) - 2;

/// y[..., j] = x[..., index[..., j]]
struct TakeColumns final : TwiceDifferentiable<TakeColumns> {
  static constexpr const char* kName = "take_columns";
  Saved index_;
  int64_t cols_ = 0;
  Tensor forward(const Tensor& x, const Tensor& index) {
    index_ = index;
    cols_ = detail::count_cols(x);
    const Tensor y = empty(index.shape(), x.options());
    IndexCheck check(kName, x.device());
    kernels::gather(current_stream(x.device()), x.view(), x.dim() - 1, index.view(), y.view(), check.data());
    TERN_CHECK(check.passed(), kName, ": ", check.found().count, " indices are outside [0, ", cols_, ")");
    if (profiling()) profile_bytes(static_cast<double>(2 * y.nbytes() + index.nbytes()));  // not all of x
    return y;
  }
  Grads backward(const Tensor& dy) override { return {detail::scatter_columns(dy, index_.get(), cols_), {}}; }
};

/// x[..., index[..., j]] = y[..., j], other elements 0; `cols` elements per row.
struct ScatterColumns final : TwiceDifferentiable<ScatterColumns> {
  static constexpr const char* kName = "scatter_columns";
  Saved index_;
  Tensor forward(const Tensor& y, const Tensor& index, int64_t cols) {
    index_ = index;
    const Tensor x = empty(y.shape().with(-1, cols), y.options());
    kernels::scatter_rows(current_stream(y.device()), y.contiguous().view(), index.view(), x.view());
    return x;
  }
  Grads backward(const Tensor& dx) override { return {detail::take_columns(dx, index_.get()), {}}; }
};

}  // namespace

Tensor detail::take_columns(const Tensor& x, const Tensor& index) { return TakeColumns::apply(x, index); }
Tensor detail::scatter_columns(const Tensor& y, const Tensor& index, int64_t cols) {
  return ScatterColumns::apply(y, index, cols);
}

void detail::check_columns(const char* op, const Tensor& x) {
  TERN_CHECK(count_cols(x) <= kMaxColumns, op, ": at most ", kMaxColumns, " elements along the dimension, got ",
             count_cols(x));
}

}  // namespace tern
