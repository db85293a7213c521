#pragma once
// Layer normalisation (Ba et al., arXiv:1607.06450), RMS normalisation (Zhang & Sennrich, arXiv:1910.07467), and their
// fusion with dropout and the residual connection.

#include "tern/kernels/kernel.h"
#include "tern/kernels/random.h"

namespace tern::kernels {

/// z = residual + dropout(x);  y = (z - mean(z)) * rstd * gamma + beta over the last dimension, in one pass over
/// memory. x, residual, z, y: contiguous [rows, cols] of one dtype. residual may be absent (z = dropout(x)). z may be
/// absent when backward does not need it or when it would equal x. gamma, beta: [cols] of x's dtype or fp32; either may
/// be absent. mean, rstd: [rows], fp32 (fp64 for fp64 x); rstd = 1 / sqrt(biased variance + eps), two-pass in fp32.
/// Without mean this is RMS normalisation: y = z * rstd * gamma + beta, rstd = 1 / sqrt(mean(z^2) + eps).
/// row_keys: absent or int64 [rows] (see random.h). rows may be 0.
/// tickets: null, or kLayerNormTickets int32 that this kernel sets to 0 for layer_norm_backward (the CPU uses none).
TERN_KERNEL(void, layer_norm_forward, Stream stream, ConstView x, ConstView residual, ConstView gamma, ConstView beta,
            double eps, Dropout dropout, ConstView row_keys, View z, View y, View mean, View rstd, void* tickets);

inline constexpr int64_t kLayerNormTickets = 32;
/// Bytes of workspace for layer_norm_backward, aligned to 16.
TERN_KERNEL(int64_t, layer_norm_backward_workspace, Stream stream, int64_t rows, int64_t cols, DType dtype);
/// dz = gradient of the normalisation + dsum, the gradient from other uses of z (absent: none); dz is the residual's
/// gradient. dx = dz where dropout kept the element, scaled.
/// z: the normalised input saved in forward; mean: absent as in forward. dx may be absent (no dropout: dx is dz); it
/// must not be dz's memory. dgamma, dbeta: [cols], overwritten; either may be absent. Columns are summed in stages, in
/// a fixed order. tickets: zeros as left by forward, 0 again afterwards; null costs one more launch.
TERN_KERNEL(void, layer_norm_backward, Stream stream, ConstView dy, ConstView dsum, ConstView z, ConstView gamma,
            ConstView mean, ConstView rstd, Dropout dropout, ConstView row_keys, void* workspace, void* tickets,
            View dz, View dx, View dgamma, View dbeta);

/// y = x * mask / (1 - p) over contiguous x[rows, cols]. Backward is the same call on the gradient.
TERN_KERNEL(void, dropout, Stream stream, ConstView x, Dropout dropout, ConstView row_keys, View y);

}  // namespace tern::kernels
