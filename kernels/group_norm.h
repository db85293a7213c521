#pragma once
// Group normalisation (Wu & He, arXiv:1803.08494) of images, in either order of memory.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// x is [batch, channels, pixels], or [batch, pixels, channels] if channels are last. Group g has the channels
/// [g channels / groups, (g + 1) channels / groups).
struct GroupNormShape {
  int64_t batch = 1, channels = 1, pixels = 1, groups = 1;
  bool channels_last = false;

  TERN_HD int64_t members() const { return channels / groups; }  // channels of a group
  TERN_HD int64_t group_size() const { return members() * pixels; }
};

/// Bytes of workspace of either pass, aligned to 16.
TERN_KERNEL(int64_t, group_norm_workspace, Stream stream, const GroupNormShape& shape, DType dtype);
/// y = (x - mean) * rstd * gamma + beta with the mean and rstd = 1 / sqrt(biased variance + eps) of each group. x, y:
/// contiguous, of one dtype; gamma, beta: [channels] of x's dtype or fp32, either may be absent. mean, rstd:
/// [batch, groups], fp32 (fp64 for fp64 x).
TERN_KERNEL(void, group_norm_forward, Stream stream, const GroupNormShape& shape, ConstView x, ConstView gamma,
            ConstView beta, double eps, void* workspace, View y, View mean, View rstd);
/// The gradients, given dy in the order of x. dgamma, dbeta: [channels] of any floating dtype; each result may be
/// absent.
TERN_KERNEL(void, group_norm_backward, Stream stream, const GroupNormShape& shape, ConstView dy, ConstView x,
            ConstView gamma, ConstView mean, ConstView rstd, void* workspace, View dx, View dgamma, View dbeta);

}  // namespace tern::kernels
