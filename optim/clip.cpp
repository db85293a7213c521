#include "tern/optim/clip.h"

#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/kernels/optimizer/optimizer.h"
#include "tern/optim/gradient_norm.h"

namespace tern::optim {
namespace {

/// The gradients that are there, made contiguous in place, all on one device.
std::vector<Tensor> contiguous_gradients(const std::vector<NamedTensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const NamedTensor& parameter : parameters) {
    Tensor tensor = parameter.tensor;
    Tensor gradient = tensor.grad();
    if (!gradient.defined()) continue;
    if (!gradient.is_contiguous()) {
      gradient = gradient.contiguous();
      tensor.set_grad(gradient);
    }
    TERN_CHECK(gradients.empty() || gradient.device() == gradients.front().device(),
               "clip_grad_norm: all gradients must be on one device, but that of '", parameter.name, "' is on ",
               gradient.device(), " and the first on ", gradients.front().device());
    gradients.push_back(gradient);
  }
  return gradients;
}

/// The largest absolute value; NaN when there is one.
double maximum_norm(const std::vector<Tensor>& gradients) {
  double norm = 0;
  for (const Tensor& gradient : gradients) {
    const double largest = gradient.numel() > 0 ? max(abs(gradient)).item<double>() : 0;
    if (std::isnan(largest) || largest > norm) norm = largest;
    if (std::isnan(norm)) break;
  }
  return norm;
}

}  // namespace

double clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm, const ClipOptions& options) {
  TERN_CHECK(max_norm >= 0, "clip_grad_norm: max_norm must be >= 0, got ", max_norm);
  const bool euclidean = options.norm_type == 2;
  TERN_CHECK(euclidean || options.norm_type == INFINITY, "clip_grad_norm: norm_type must be 2 or infinity, got ",
             options.norm_type);
  NoGrad off;
  std::vector<Tensor> gradients = contiguous_gradients(parameters);
  if (gradients.empty()) return 0;
  const Device device = gradients.front().device();
  const Tensor found = euclidean ? gradient_norm(gradients, device) : Tensor();
  const double norm = euclidean ? std::sqrt(read_norm(found).sum_of_squares) : maximum_norm(gradients);
  TERN_CHECK(!options.error_if_non_finite || std::isfinite(norm), "clip_grad_norm: the total norm of the gradients is ",
             norm, "; they were left as they are");

  const double factor = kernels::clip_factor(norm, max_norm);
  if (factor == 1) return norm;
  if (!euclidean) {
    for (Tensor& gradient : gradients) {
      // As a tensor: a plain number would be rounded to 16 bits first.
      gradient.mul_(full({}, factor, {.dtype = gradient.dtype() == float64 ? float64 : float32, .device = device}));
    }
    return norm;
  }
  std::vector<kernels::View> views;
  for (const Tensor& gradient : gradients) views.push_back(gradient.view());
  kernels::scale_by_norm(current_stream(device), views.data(), static_cast<int64_t>(views.size()), norm_data(found),
                         max_norm);
  for (const Tensor& gradient : gradients) gradient.bump_version();
  return norm;
}

void clip_grad_value(const std::vector<NamedTensor>& parameters, double value) {
  TERN_CHECK(value >= 0, "clip_grad_value: the limit must be >= 0, got ", value);
  NoGrad off;
  for (const NamedTensor& parameter : parameters) {
    Tensor gradient = parameter.tensor.grad();
    if (gradient.defined()) gradient.copy_(clamp(gradient, -value, value));
  }
}

}  // namespace tern::optim
