#pragma once
// Softmax and log-softmax over the last dimension, and cross entropy fused with it.

#include "tern/kernels/index_fault.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// y = softmax(x) (log: log_softmax) over the last dimension of contiguous x[rows, cols]; fp32 inside. A row of only
/// -infinity gives NaN, as in PyTorch.
TERN_KERNEL(void, softmax_forward, Stream stream, bool log, ConstView x, View y);
/// dx from the saved y.
TERN_KERNEL(void, softmax_backward, Stream stream, bool log, ConstView y, ConstView dy, View dx);

/// Cross entropy of contiguous logits[rows, classes] against int64 targets[rows]; a target equal to ignore_index is
/// left out. Per-row losses (fp32, fp64 for fp64 logits) and the log-sum-exp of each row are written; the caller sums.
/// losses[i] = weight_i * ((1 - smoothing) * nll_i + smoothing * mean over classes of -log p), PyTorch's definition.
/// row_weights is absent (all 1) or [rows] of losses' dtype. Targets outside [0, classes) other than ignore_index are
/// added to *fault and give a loss of 0.
TERN_KERNEL(void, cross_entropy_forward, Stream stream, ConstView logits, ConstView targets, ConstView row_weights,
            int64_t ignore_index, double label_smoothing, View losses, View log_sum_exp, IndexFault* fault);
/// dlogits[i, c] = scale[i] * (softmax - target distribution): scale[rows] already holds weights, the reduction's
/// divisor and the incoming gradient; it is 0 for ignored rows.
TERN_KERNEL(void, cross_entropy_backward, Stream stream, ConstView logits, ConstView targets, ConstView log_sum_exp,
            ConstView scale, int64_t ignore_index, double label_smoothing, View dlogits);

/// The mean of cross_entropy_forward's losses over the rows that count: *divisor is their number or, with row_weights,
/// the sum of their weights, 1 when that is 0; *loss = sum of the losses / *divisor. loss and divisor: one element of
/// losses' dtype.
TERN_KERNEL(void, cross_entropy_mean, Stream stream, ConstView losses, ConstView targets, ConstView row_weights,
            int64_t ignore_index, View loss, View divisor);
/// The scale[rows] of cross_entropy_backward: dy / divisor * row_weights, 0 for ignored rows. dy: one element or
/// [rows]; divisor (absent: 1) and row_weights (absent: all 1) as above; all of one dtype.
TERN_KERNEL(void, cross_entropy_scale, Stream stream, ConstView dy, ConstView divisor, ConstView targets,
            ConstView row_weights, int64_t ignore_index, View scale);

}  // namespace tern::kernels
