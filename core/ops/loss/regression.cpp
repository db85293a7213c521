#include "tern/core/ops/loss/regression.h"

#include <cmath>
#include <numbers>

#include "tern/core/autograd/autocast.h"
#include "tern/core/ops/loss/loss_inputs.h"
#include "tern/core/ops/pointwise/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"

namespace tern {

Tensor mse_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction) {
  const auto [x, t] = detail::checked_pair("mse_loss", prediction, target);
  return detail::reduce_losses(pointwise(kernels::SquaredDifference{}, x, t), reduction);
}

Tensor l1_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction) {
  const auto [x, t] = detail::checked_pair("l1_loss", prediction, target);
  return detail::reduce_losses(abs(x - t), reduction);
}

Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, LossReduction reduction) {
  TERN_CHECK(beta >= 0, "smooth_l1_loss: beta must be >= 0, got ", beta);
  const auto [x, t] = detail::checked_pair("smooth_l1_loss", prediction, target);
  if (beta == 0) return detail::reduce_losses(abs(x - t), reduction);
  return detail::reduce_losses(pointwise(kernels::Huber{beta}, x, t), reduction) / beta;
}

Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta, LossReduction reduction) {
  TERN_CHECK(delta > 0, "huber_loss: delta must be > 0, got ", delta);
  const auto [x, t] = detail::checked_pair("huber_loss", prediction, target);
  return detail::reduce_losses(pointwise(kernels::Huber{delta}, x, t), reduction);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllOptions& options) {
  const auto [x, t] = detail::checked_pair("poisson_nll_loss", input, target);
  Tensor losses = options.log_input ? exp(x) - t * x : x - t * log(x + options.eps);
  if (options.full) {
    const Tensor is_large = t > 1.0, large = where(is_large, t, 1.0);
    const Tensor stirling = large * log(large) - large + 0.5 * log(large * (2 * std::numbers::pi));
    losses = losses + where(is_large, stirling, 0.0);
  }
  return detail::reduce_losses(losses, options.reduction);
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         const GaussianNllOptions& options) {
  TERN_CHECK(options.eps > 0, "gaussian_nll_loss: eps must be > 0, got ", options.eps);
  const auto [x, t] = detail::checked_pair("gaussian_nll_loss", input, target);
  Tensor v = variance;
  detail::autocast_inputs("loss", {&v});
  // PyTorch's rule, also where [n] would broadcast to [n, n] as a row.
  if (v.defined() && x.dim() > 0 && v.shape() == x.shape().without(-1)) v = v.unsqueeze(-1);
  TERN_CHECK(v.defined() && broadcasts_to(v.shape(), x.shape()), "gaussian_nll_loss: the variance is ", v.describe(),
             ", which does not broadcast to the prediction's ", x.shape());
  TERN_CHECK(!any(v.detach() < 0.0).item<bool>(), "gaussian_nll_loss: the variance has negative elements");
  v = v + (clamp(v.detach(), options.eps, INFINITY) - v.detach());
  Tensor losses = 0.5 * (log(v) + square(x - t) / v);
  if (options.full) losses = losses + 0.5 * std::log(2 * std::numbers::pi);
  return detail::reduce_losses(losses, options.reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options) {
  const auto [x, t] = detail::checked_pair("kl_div", input, target);
  Tensor losses;
  if (options.log_target) {
    losses = exp(t) * (t - x);
  } else {
    const Tensor is_zero = t == 0.0;
    losses = where(is_zero, 0.0, t * (log(where(is_zero, 1.0, t)) - x));
  }
  if (!options.batch_mean) return detail::reduce_losses(losses, options.reduction);
  return sum(losses) / static_cast<double>(losses.dim() == 0 ? 1 : losses.size(0));
}

}  // namespace tern
