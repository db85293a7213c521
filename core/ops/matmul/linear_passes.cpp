#include "tern/core/ops/matmul/linear_passes.h"

#include "tern/core/ops/matmul/linear_inputs.h"
#include "tern/core/ops/workspace.h"

namespace tern::detail {

Tensor linear_input_gradient(const Tensor& dpre, const Tensor& weight, const Tensor& sum) {
  const Tensor dx = sum.defined() ? sum : empty({dpre.size(0), weight.size(1)}, dpre.options());
  count_product(dx.size(0), dx.size(1), dpre.size(1), dpre.dtype());
  const kernels::Stream stream = current_stream(dpre.device());
  const Workspace workspace(dpre.device(), [&] {
    return kernels::gemm_workspace(stream, false, false, dpre.view(), weight.view(), dx.view());
  });
  kernels::gemm(stream, false, false, 1, dpre.view(), weight.view(), sum.defined() ? 1 : 0, dx.view(),
                workspace.data());
  return dx;
}

void linear_weight_gradients(const Tensor& dpre, const Tensor& x, const Tensor& dweight, const Tensor& dbias) {
  count_product(dweight.size(0), dweight.size(1), dpre.size(0), dpre.dtype());
  const kernels::Stream stream = current_stream(dpre.device());
  const Workspace workspace(dpre.device(), [&] {
    return kernels::linear_weight_backward_workspace(stream, dpre.view(), x.view(), dweight.view());
  });
  kernels::linear_weight_backward(stream, dpre.view(), x.view(), dweight.view(), dbias.view(), workspace.data());
}

void linear_activation_gradients(const Tensor& dy, const Tensor& pre, kernels::Activation activation,
                                 const Tensor& dpre, const Tensor& dbias) {
  const kernels::Stream stream = current_stream(dy.device());
  const Workspace workspace(dy.device(),
                            [&] { return kernels::linear_activation_backward_workspace(stream, dy.view()); });
  kernels::linear_activation_backward(stream, dy.view(), pre.view(), activation, dpre.view(), dbias.view(),
                                      workspace.data());
}

Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias, kernels::Activation activation,
                      const Tensor& pre) {
  const Tensor y = empty({x.size(0), weight.size(0)}, x.options());
  const kernels::Stream stream = current_stream(x.device());
  const Workspace workspace(x.device(),
                            [&] { return kernels::linear_workspace(stream, x.view(), weight.view(), y.view()); });
  kernels::linear_forward(stream, x.view(), weight.view(), bias.view(), activation, pre.view(), y.view(),
                          workspace.data());
  count_product(x.size(0), weight.size(0), x.size(1), x.dtype());
  return y;
}

}  // namespace tern::detail
