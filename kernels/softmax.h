#pragma once
// Softmax and log-softmax over the last dimension, and cross entropy fused with it.

#include "tern/kernels/index_fault.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// y = softmax(x) (log: log_softmax) over the last dimension of contiguous x[rows, cols], computed in fp32. A row that
/// contains only -infinity gives NaN, as in PyTorch.
TERN_KERNEL(void, softmax_forward, Stream stream, bool log, ConstView x, View y);
/// The gradient dx, from the saved y.
TERN_KERNEL(void, softmax_backward, Stream stream, bool log, ConstView y, ConstView dy, View dx);

/// The same over the middle dimension of contiguous x[outer, cols, inner], which has 3 dimensions.
TERN_KERNEL(void, softmax_columns_forward, Stream stream, bool log, ConstView x, View y);
TERN_KERNEL(void, softmax_columns_backward, Stream stream, bool log, ConstView y, ConstView dy, View dx);

/// Cross entropy of contiguous logits[rows, classes] against int64 targets[rows]; a target equal to ignore_index is
/// skipped. Writes each row's loss (fp32, fp64 for fp64 logits) and log-sum-exp; cross_entropy_mean averages them.
/// losses[i] = weight_i * ((1 - smoothing) * nll_i + smoothing * mean over classes of -log p), PyTorch's definition.
/// row_weights is absent (all 1) or [rows] of losses' dtype. Targets outside [0, classes) other than ignore_index are
/// recorded in *fault and give a loss of 0.
TERN_KERNEL(void, cross_entropy_forward, Stream stream, ConstView logits, ConstView targets, ConstView row_weights,
            int64_t ignore_index, double label_smoothing, View losses, View log_sum_exp, IndexFault* fault);
/// dlogits[i, c] = scale[i] * (softmax - target distribution). scale[rows] is the product of row weight, 1 / divisor of
/// the reduction and incoming gradient; 0 for ignored rows.
TERN_KERNEL(void, cross_entropy_backward, Stream stream, ConstView logits, ConstView targets, ConstView log_sum_exp,
            ConstView scale, int64_t ignore_index, double label_smoothing, View dlogits);

/// The mean of cross_entropy_forward's losses over the rows that are not ignored. *divisor is their number or, with
/// row_weights, the sum of their weights, 1 when that is 0; *loss = sum of the losses / *divisor. loss and divisor: one
/// element of losses' dtype.
TERN_KERNEL(void, cross_entropy_mean, Stream stream, ConstView losses, ConstView targets, ConstView row_weights,
            int64_t ignore_index, View loss, View divisor);
/// Computes scale[rows] for cross_entropy_backward: dy / divisor * row_weights, 0 for ignored rows. dy: one element or
/// [rows]; divisor (absent: 1) and row_weights (absent: all 1) as above; all of one dtype.
TERN_KERNEL(void, cross_entropy_scale, Stream stream, ConstView dy, ConstView divisor, ConstView targets,
            ConstView row_weights, int64_t ignore_index, View scale);

}  // namespace tern::kernels
