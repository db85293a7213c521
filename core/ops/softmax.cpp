#include "tern/core/ops/softmax.h"

#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/reduce.h"
#include "tern/kernels/softmax.h"

namespace tern {
namespace {

/// Over the last dimension of a contiguous tensor.
struct Softmax final : Function<Softmax> {
  static constexpr const char* kName = "softmax";
  static constexpr bool kTwiceDifferentiable = true;
  SavedOutput y_;
  bool log_ = false;
  Tensor forward(const Tensor& x, bool log) {
    log_ = log;
    const Tensor y = empty(x.shape(), x.options());
    kernels::softmax_forward(current_stream(x.device()), log, x.view(), y.view());
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor y = y_.get();
    if (grad_enabled()) {
      // Composed of ops, so that it can be differentiated again.
      if (log_) return {sub(dy, mul(exp(y), sum(dy, {-1}, true)))};
      return {mul(y, sub(dy, sum(mul(dy, y), {-1}, true)))};
    }
    const Tensor dx = empty(y.shape(), y.options());
    kernels::softmax_backward(current_stream(y.device()), log_, y.view(), dy.contiguous().view(), dx.view());
    return {dx};
  }
};

Tensor over_dimension(const Tensor& x, int dim, bool log) {
  TERN_CHECK(is_floating(x.dtype()), "softmax: expected a floating tensor, got ", x.dtype());
  if (x.dim() == 0) return Softmax::apply(x.reshape({1}), log).reshape(Shape{});
  const int i = x.shape().wrap(dim);
  if (i == x.dim() - 1) return Softmax::apply(x.contiguous(), log);
  return Softmax::apply(x.transpose(i, -1).contiguous(), log).transpose(i, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return over_dimension(x, dim, false); }
Tensor log_softmax(const Tensor& x, int dim) { return over_dimension(x, dim, true); }

}  // namespace tern
