#include "tern/core/ops/reduce/softmax.h"

#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/kernels/softmax.h"

namespace tern {
namespace {

/// Over one dimension of a contiguous tensor.
struct Softmax final : TwiceDifferentiable<Softmax> {
  static constexpr const char* kName = "softmax";
  SavedOutput y_;
  int dim_ = 0;
  bool log_ = false;
  Tensor forward(const Tensor& x, int dim, bool log) {
    dim_ = dim;
    log_ = log;
    const Tensor y = empty(x.shape(), x.options());
    const kernels::Stream stream = current_stream(x.device());
    if (dim == x.dim() - 1)
      kernels::softmax_forward(stream, log, x.view(), y.view());
    else
      kernels::softmax_columns_forward(stream, log, columns(x), columns(y));
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor y = y_.get();
    if (grad_enabled()) {
      // Composed of ops, so that it can be differentiated again.
      if (log_) return {sub(dy, mul(exp(y), sum(dy, {dim_}, true)))};
      return {mul(y, sub(dy, sum(mul(dy, y), {dim_}, true)))};
    }
    const Tensor dx = empty(y.shape(), y.options());
    const kernels::Stream stream = current_stream(y.device());
    if (dim_ == y.dim() - 1)
      kernels::softmax_backward(stream, log_, y.view(), dy.contiguous().view(), dx.view());
    else
      kernels::softmax_columns_backward(stream, log_, columns(y), columns(dy.contiguous()), columns(dx));
    return {dx};
  }
  /// [outer, dimension, inner].
  kernels::View columns(const Tensor& t) const {
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < t.dim(); ++d) (d < dim_ ? outer : inner) *= d == dim_ ? 1 : t.size(d);
    return t.reshape({outer, t.size(dim_), inner}).view();
  }
};

Tensor over_dimension(const Tensor& x, int dim, bool log) {
  TERN_CHECK(is_floating(x.dtype()), "softmax: expected a floating tensor, got ", x.dtype());
  if (x.dim() == 0) return Softmax::apply(x.reshape({1}), 0, log).reshape(Shape{});
  return Softmax::apply(x.contiguous(), x.shape().wrap(dim), log);
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return over_dimension(x, dim, false); }
Tensor log_softmax(const Tensor& x, int dim) { return over_dimension(x, dim, true); }

}  // namespace tern
