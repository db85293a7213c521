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

/// c = a b for integers of one dtype, which wrap around. a: [batch, m, k], b: [batch, k, n], any strides; c: contiguous
/// [batch, m, n].
TERN_KERNEL(void, integer_gemm, Stream stream, ConstView a, ConstView b, View c);

/// What linear_forward does to its result. kGelu: the erf form.
enum class Activation : uint8_t { kNone, kGelu, kRelu };

/// pre = x weight^T + bias; y = activation(pre). x: [rows, in], weight: [out, in], bias: [out] or absent, y: [rows,
/// out]; all contiguous and of one dtype (bias may be fp32 with 16-bit x). pre: where the pre-activation is kept for
/// backward; absent with kNone or when no gradient is needed. Bias and activation run on each block of rows while it is
/// in cache.
TERN_KERNEL(int64_t, linear_workspace, Stream stream, ConstView x, ConstView weight, View y);
TERN_KERNEL(void, linear_forward, Stream stream, ConstView x, ConstView weight, ConstView bias, Activation activation,
            View pre, View y, void* workspace);

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
