#pragma once
// The products of a linear layer's forward and backward pass, of contiguous matrices; nothing is recorded.

#include "tern/core/tensor.h"
#include "tern/kernels/gemm.h"

namespace tern::detail {

/// activation(x weight^T + bias) of contiguous matrices; pre: where the pre-activation goes, or undefined.
Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias, kernels::Activation activation,
                      const Tensor& pre);
/// dpre weight, added to `sum` if that is defined.
Tensor linear_input_gradient(const Tensor& dpre, const Tensor& weight, const Tensor& sum = {});
/// dweight = dpre^T x and, when dbias is defined, the column sums of dpre.
void linear_weight_gradients(const Tensor& dpre, const Tensor& x, const Tensor& dweight, const Tensor& dbias);
/// dpre = dy * activation'(pre) and dbias, the column sums of dpre. Without activation pre and dpre are undefined.
void linear_activation_gradients(const Tensor& dy, const Tensor& pre, kernels::Activation activation,
                                 const Tensor& dpre, const Tensor& dbias);

}  // namespace tern::detail
