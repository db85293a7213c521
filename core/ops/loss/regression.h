#pragma once
// Losses of numbers: prediction and target have one shape.

#include "tern/core/ops/loss/reduction.h"
#include "tern/core/tensor.h"

namespace tern {

Tensor mse_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction = LossReduction::kMean);
Tensor l1_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction = LossReduction::kMean);
/// d^2 / (2 beta) where |d| < beta, |d| - beta / 2 elsewhere; beta 0: l1_loss.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta = 1,
                      LossReduction reduction = LossReduction::kMean);
/// d^2 / 2 where |d| < delta, delta (|d| - delta / 2) elsewhere.
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta = 1,
                  LossReduction reduction = LossReduction::kMean);

struct PoissonNllOptions {
  bool log_input = true;  // exp(x) - t x of a logarithm x; otherwise x - t log(x + eps)
  bool full = false;      // with Stirling's approximation of log(t!) for t > 1
  double eps = 1e-8;
  LossReduction reduction = LossReduction::kMean;
};
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllOptions& options = {});

struct GaussianNllOptions {
  bool full = false;  // with log(2 pi) / 2
  double eps = 1e-6;  // smallest variance; its gradient is as without it
  LossReduction reduction = LossReduction::kMean;
};
/// (log(variance) + (input - target)^2 / variance) / 2. The variance broadcasts, or has one element for each row: the
/// input's shape without the last dimension. A negative one throws Error, for which the host waits for the device.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         const GaussianNllOptions& options = {});

struct KlDivOptions {
  bool log_target = false;  // the target is given as logarithms
  LossReduction reduction = LossReduction::kMean;
  bool batch_mean = false;  // the sum divided by the size of dimension 0, whatever the reduction
};
/// t (log t - x) of logarithms x of probabilities and probabilities t; 0 where t is 0.
Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options = {});

}  // namespace tern
