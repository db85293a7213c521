#pragma once

#include "tern/core/tensor.h"

namespace tern {

// Norms of images: x is floating [batch, channels, ...]. Results have x's order in memory: channels last, if x has them
// so. Statistics are fp32 (fp64 for fp64). Differentiable any number of times. weight, bias: [channels] of x's dtype or
// fp32, each may be undefined.

/// Group normalisation (Wu & He, arXiv:1803.08494): (x - mean) / sqrt(var + eps) * weight + bias with the mean and the
/// biased variance over each of `groups` groups of neighbouring channels of an image. Error unless groups divides the
/// channels, and where a single number would be its own mean.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

struct InstanceNormOptions {
  bool use_input_stats = true;  // false: the running statistics, which then are needed
  double momentum = 0.1;        // of the new value in a running one
  double eps = 1e-5;
};
/// Instance normalisation (Ulyanov et al., arXiv:1607.08022): a group norm whose groups are single channels. x: [batch,
/// channels, spatial...]. running_mean, running_var: floating [channels] or undefined; with use_input_stats they are
/// updated in place by the means over the batch, of the unbiased variance, as in torch.nn.functional.instance_norm.
/// Error where use_input_stats meets images of one pixel.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, const InstanceNormOptions& options = {});

struct LocalResponseNormOptions {
  double alpha = 1e-4, beta = 0.75, k = 1;
};
/// x / (k + alpha * mean(x^2))^beta, the mean over `size` neighbouring channels with zeros outside (Krizhevsky et al.,
/// 2012; torch.nn.functional.local_response_norm). x: [batch, channels, spatial...].
Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& options = {});

}  // namespace tern
