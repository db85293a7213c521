#include "tern/core/ops/linear.h"

#include "tern/core/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler.h"
#include "tern/kernels/reduce.h"

namespace tern {
namespace {

/// Of the product of [m, k] and [k, n].
void count_flops(int64_t m, int64_t n, int64_t k, DType dtype) {
  if (profiling()) profile_flops(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), dtype);
}

/// dpre weight
Tensor input_gradient(const Tensor& dpre, const Tensor& weight) {
  const Tensor dx = empty({dpre.size(0), weight.size(1)}, dpre.options());
  count_flops(dx.size(0), dx.size(1), dpre.size(1), dpre.dtype());
  const kernels::Stream stream = current_stream(dpre.device());
  const Workspace workspace(kernels::gemm_workspace(stream, false, false, dpre.view(), weight.view(), dx.view()),
                            dpre.device());
  kernels::gemm(stream, false, false, 1, dpre.view(), weight.view(), 0, dx.view(), workspace.data());
  return dx;
}

/// dweight = dpre^T x and, when dbias is defined, the column sums of dpre.
void weight_gradients(const Tensor& dpre, const Tensor& x, const Tensor& dweight, const Tensor& dbias) {
  count_flops(dweight.size(0), dweight.size(1), dpre.size(0), dpre.dtype());
  const kernels::Stream stream = current_stream(dpre.device());
  const Workspace workspace(kernels::linear_weight_backward_workspace(stream, dpre.view(), x.view(), dweight.view()),
                            dpre.device());
  kernels::linear_weight_backward(stream, dpre.view(), x.view(), dweight.view(), dbias.view(), workspace.data());
}

struct Linear final : Function<Linear> {
  static constexpr const char* kName = "linear";
  Saved x_, weight_, pre_;
  Activation activation_ = Activation::kNone;
  DType bias_dtype_ = DType::kFloat32;

  /// x: [rows, in], contiguous like weight.
  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
    activation_ = activation;
    if (bias.defined()) bias_dtype_ = bias.dtype();
    if (needs_grad(1)) x_ = x;
    if (needs_grad(0)) weight_ = weight;
    const Tensor y = empty({x.size(0), weight.size(0)}, x.options());
    Tensor pre;
    if (activation != Activation::kNone && recorded()) {
      pre = empty_like(y);
      pre_ = pre;
    }
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(kernels::linear_workspace(stream, x.view(), weight.view(), y.view()), x.device());
    kernels::linear_forward(stream, x.view(), weight.view(), bias.view(), activation, pre.view(), y.view(),
                            workspace.data());
    count_flops(x.size(0), weight.size(0), x.size(1), x.dtype());
    return y;
  }

  Grads backward(const Tensor& gradient) override {
    const Tensor dy = gradient.contiguous();
    const kernels::Stream stream = current_stream(dy.device());
    Grads grads(3);
    if (needs_grad(2)) grads[2] = empty({dy.size(1)}, {bias_dtype_, dy.device()});
    const bool active = activation_ != Activation::kNone;
    const Tensor dpre = active ? empty_like(dy) : dy;
    // The bias gradient comes with the activation's, or else with the weight's.
    if (active || (needs_grad(2) && !needs_grad(1))) {
      const Workspace workspace(kernels::linear_activation_backward_workspace(stream, dy.view()), dy.device());
      kernels::linear_activation_backward(stream, dy.view(), active ? pre_.get().view() : kernels::View(), activation_,
                                          active ? dpre.view() : kernels::View(), grads[2].view(), workspace.data());
    }
    if (needs_grad(0)) grads[0] = input_gradient(dpre, weight_.get());
    if (needs_grad(1)) {
      const Tensor x = x_.get();
      grads[1] = empty({dpre.size(1), x.size(1)}, x.options());
      weight_gradients(dpre, x, grads[1], active ? Tensor() : grads[2]);
    }
    return grads;
  }
};

}  // namespace

Tensor linear(const Tensor& input, const Tensor& weight_in, const Tensor& bias_in, Activation activation) {
  Tensor x = input, weight = weight_in, bias = bias_in;
  autocast_inputs("linear", {&x, &weight, &bias});
  TERN_CHECK(weight.dim() == 2, "linear: weight must be [out, in], got ", weight.shape());
  TERN_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1), "linear: x is ", x.shape(), ", expected [..., ",
             weight.size(1), "] for weight ", weight.shape());
  TERN_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)), "linear: bias is ",
             bias.defined() ? bias.shape() : Shape(), ", expected [", weight.size(0), "]");
  TERN_CHECK(x.dtype() == weight.dtype() && is_floating(x.dtype()), "linear: x is ", x.dtype(), " and weight ",
             weight.dtype(), "; they must be of one floating dtype (autocast converts both)");
  TERN_CHECK(!bias.defined() || bias.dtype() == x.dtype() || bias.dtype() == float32, "linear: bias is ", bias.dtype(),
             ", expected ", x.dtype(), " or float32");
  TERN_CHECK(x.device() == weight.device() && (!bias.defined() || bias.device() == x.device()),
             "linear: x, weight and bias must be on one device");
  std::vector<int64_t> sizes = x.shape().vec();
  sizes.back() = weight.size(0);
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.dim(); ++d) rows *= x.shape()[d];
  const Tensor flat = x.reshape({rows, weight.size(1)}).contiguous();
  return Linear::apply(flat, weight.contiguous(), bias.defined() ? bias.contiguous() : bias, activation).reshape(sizes);
}

}  // namespace tern
