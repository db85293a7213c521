#pragma once

#include <vector>

#include "tern/core/tensor.h"
#include "tern/kernels/reduce.h"

namespace tern::optim {

/// Memory for a kernels::GradientNorm on the device: float64 [2], so that ops can read the sum of squares, element 0.
Tensor empty_norm(Device device);
/// Computes a kernels::GradientNorm on the device, in one pass over contiguous gradients of that device. `ticket`: an
/// int32 0 on the device that the caller keeps for later calls, which saves the launch that creates one.
Tensor gradient_norm(const std::vector<Tensor>& gradients, Device device, const Tensor& ticket = {});
/// The result on the device; null for an undefined tensor.
inline const kernels::GradientNorm* norm_data(const Tensor& norm) {
  return static_cast<const kernels::GradientNorm*>(norm.const_view().data);
}
/// Copies the result to the host (waits for the device).
kernels::GradientNorm read_norm(const Tensor& norm);

}  // namespace tern::optim
