#pragma once
// Matrix products. On the CPU: oneDNN for fp32 and bf16, Eigen for fp64; 16-bit without hardware support is widened
// panel by panel to fp32. Accumulation is fp32 (fp64 for fp64).

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// c = alpha * op(a) op(b) + beta * c, batched. a: [batch, m, k] or, with transpose_a, [batch, k, m]; b: [batch, k, n]
/// or, with transpose_b, [batch, n, k]; c: [batch, m, n]. The last dimension of each is contiguous; the row stride
/// (strides[1]) and the batch stride (strides[0]; 0 broadcasts a or b) are free. dtypes of a and b are equal; c has the
/// same dtype, or fp32 for 16-bit a and b. beta is 0 (c is not read) or 1. k == 0 gives beta * c.
/// Bytes of workspace for gemm with these arguments.
TERN_KERNEL(int64_t, gemm_workspace, Stream stream, bool transpose_a, bool transpose_b, ConstView a, ConstView b,
            View c);
TERN_KERNEL(void, gemm, Stream stream, bool transpose_a, bool transpose_b, double alpha, ConstView a, ConstView b,
            double beta, View c, void* workspace);

/// What linear_forward does to its result. kGelu: the erf form.
enum class Activation : uint8_t { kNone, kGelu, kRelu };

/// pre = x weight^T + bias; y = activation(pre). x: [rows, in], weight: [out, in], bias: [out] or absent, y: [rows,
/// out]; all contiguous and of one dtype (bias may be fp32 with 16-bit x). pre: where the pre-activation is kept for
/// backward; absent with kNone or when no gradient is needed. Bias and activation run on each block of rows while it is
/// in cache.
TERN_KERNEL(int64_t, linear_workspace, Stream stream, ConstView x, ConstView weight, View y);
TERN_KERNEL(void, linear_forward, Stream stream, ConstView x, ConstView weight, ConstView bias, Activation activation,
            View pre, View y, void* workspace);

/// y = activation(x weight1^T + bias1) weight2^T + bias2: the bits that two calls of linear_forward give, but on the
/// CPU the hidden rows are never in memory; each block of rows goes through both products while it is in cache. x:
/// [rows, in], weight1: [hidden, in], bias1: [hidden] or absent, weight2: [out, hidden], bias2: [out] or absent, y:
/// [rows, out]; layout and dtypes as for linear_forward. Keeps nothing for backward.
TERN_KERNEL(int64_t, feed_forward_workspace, Stream stream, ConstView x, ConstView weight1, ConstView weight2, View y);
TERN_KERNEL(void, feed_forward, Stream stream, ConstView x, ConstView weight1, ConstView bias1, Activation activation,
            ConstView weight2, ConstView bias2, View y, void* workspace);

/// The end of a transformer's sub-layer: sum = residual + y, norm = layer norm of sum, y being a layer's result (see
/// layer_norm_forward in kernels/norm.h). residual, sum, norm: contiguous, of y's shape and dtype; sum may be absent.
/// gamma, beta: [out] of y's dtype or fp32, either may be absent.
struct ResidualNorm {
  ConstView residual, gamma, beta;
  double eps = 0;
  View sum, norm;
};

/// linear_forward or feed_forward and then layer_norm_forward, with the bits of the two calls: each block of rows is
/// normalised while it is in cache, and y is never in memory. Only for calls for which ..._pays() is true: on the CPU,
/// where products go by blocks. Keep nothing for backward.
TERN_KERNEL(bool, linear_norm_pays, Stream stream, ConstView x, ConstView weight);
TERN_KERNEL(int64_t, linear_norm_workspace, Stream stream, ConstView x, ConstView weight);
TERN_KERNEL(void, linear_norm, Stream stream, ConstView x, ConstView weight, ConstView bias, const ResidualNorm& end,
            void* workspace);
TERN_KERNEL(bool, feed_forward_norm_pays, Stream stream, ConstView x, ConstView weight1, ConstView weight2);
TERN_KERNEL(int64_t, feed_forward_norm_workspace, Stream stream, ConstView x, ConstView weight1, ConstView weight2);
TERN_KERNEL(void, feed_forward_norm, Stream stream, ConstView x, ConstView weight1, ConstView bias1,
            Activation activation, ConstView weight2, ConstView bias2, const ResidualNorm& end, void* workspace);

/// Gradients of linear_forward's activation: dpre = dy * activation'(pre), dbias = column sums of dpre (fixed order).
/// With kNone, pre and dpre are absent and only dbias is computed from dy. dbias may be absent.
/// The gradient of the input is a gemm call: dx = dpre weight.
TERN_KERNEL(int64_t, linear_activation_backward_workspace, Stream stream, ConstView dy);
TERN_KERNEL(void, linear_activation_backward, Stream stream, ConstView dy, ConstView pre, Activation activation,
            View dpre, View dbias, void* workspace);

/// dweight = dy^T x and dbias = column sums of dy, in a fixed order. dy: [rows, out], x: [rows, in], dweight: [out,
/// in], dbias: [out] or absent; all contiguous. dy and x have one dtype; dweight has it too, or fp32 when it is a
/// 16-bit one, and so does dbias.
TERN_KERNEL(int64_t, linear_weight_backward_workspace, Stream stream, ConstView dy, ConstView x, View dweight);
TERN_KERNEL(void, linear_weight_backward, Stream stream, ConstView dy, ConstView x, View dweight, View dbias,
            void* workspace);

/// Name and version of the library behind gemm: "oneDNN 2.6.3".
TERN_KERNEL(const char*, gemm_library, Stream stream);

}  // namespace tern::kernels
