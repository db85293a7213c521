#pragma once

#include <functional>

#include "tern/core/tensor.h"
#include "tern/kernels/image_activation.h"

namespace tern {

using kernels::ImageActivation;

/// The function of that name: relu(x), silu(x), ...; x itself for kNone.
Tensor activate(const Tensor& x, ImageActivation activation);

/// The processes whose batches are normalised as one.
struct BatchNormRanks {
  int rank = 0, count = 1;
  /// Replaces a tensor by its sum over the processes; all call it in the same order.
  std::function<void(Tensor&)> sum;
};

struct BatchNormOptions {
  bool training = false;  // normalises by the batch's statistics, and updates the running ones
  double momentum = 0.1;  // running = (1 - momentum) running + momentum of the batch
  double eps = 1e-5;      // added to the variance
  /// Applied to the result, and to its sum with a residual, in the same pass.
  ImageActivation activation = ImageActivation::kNone;
  const BatchNormRanks* ranks = nullptr;  // must live until backward has run
};

/// Batch normalisation (Ioffe & Szegedy, arXiv:1502.03167) as torch.nn.functional.batch_norm. x: floating [batch,
/// channels] or [batch, channels, spatial...]: activation((x - mean) / sqrt(variance + eps) * weight + bias + residual)
/// for each channel. mean and variance are those of the batch (the biased variance) in training or where the running
/// ones are undefined, otherwise running_mean and running_var. In training these are updated in place, with the
/// unbiased variance, once even if checkpoint() runs the layer again. All numbers of channels are floating [channels];
/// weight, bias and residual (of x's shape and dtype) may be undefined. Computes in fp32 for 16-bit x. The result has
/// its channels last in memory (Tensor::channels_last). Twice differentiable, but not with several ranks. Error in
/// training with a single value for each channel.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, const BatchNormOptions& options = {}, const Tensor& residual = {});

}  // namespace tern
